/* Memory accounting: the bytes that the arenas of a context and its workers hold, with a limit, and the system's
 * figures for the process.
 *
 * Arenas hold nearly all memory of a run: an allocation beyond the limit fails like one that the system refuses. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct calm_spare_pages calm_spare_pages;

/* A memory account.  Initialise with zeros.  It outlives every arena that uses it.  Every function below accepts
 * NULL for "not counted": nothing is held, and there is no limit.
 *
 * Pages that an arena frees are kept as spare pages for the next request that fits into them, which then needs no
 * page faults: `used` plus the spare pages never exceed `most` plus calm_memory_room(most), nor the limit. */
typedef struct calm_memory {
    atomic_size_t limit, used, peak;
    atomic_size_t most;         /* maximum of `used` over all stages                      */
    atomic_bool busy;           /* spin lock of the two members below                     */
    calm_spare_pages *spare;    /* list, the most recently freed first                    */
    size_t spare_bytes;
} calm_memory;

/* Set and return the limit in bytes on all arenas of an account; 0: none.  Set it only while no worker runs. */
void calm_memory_set_limit(calm_memory *memory, size_t bytes);
size_t calm_memory_limit(const calm_memory *memory);

/* Bytes that the arenas hold now; their maximum since calm_memory_restart; restart that maximum. */
size_t calm_memory_used(const calm_memory *memory);
size_t calm_memory_peak(const calm_memory *memory);
void calm_memory_restart(calm_memory *memory);

/* For arenas: take charges `bytes` to the account, and returns false if the limit does not allow it; give returns
 * them. */
bool calm_memory_take(calm_memory *memory, size_t bytes);
void calm_memory_give(calm_memory *memory, size_t bytes);

/* Returns `bytes` rounded up to whole pages. */
size_t calm_memory_whole_pages(size_t bytes);

/* For arenas, in whole pages: map returns pages for bytes that were taken, huge pages if the system has them, NULL
 * if it has no memory; *zero: the pages are new and zeroed.  unmap frees the pages of bytes that were given back. */
void *calm_memory_map(calm_memory *memory, size_t bytes, bool *zero);
void calm_memory_unmap(calm_memory *memory, void *pages, size_t bytes);

/* For arenas, after bytes were taken without calm_memory_map: unmaps spare pages that exceed the bound. */
void calm_memory_trim(calm_memory *memory);

/* Returns the most bytes of spare pages when arenas held at most `bytes`: an eighth, at most 32 MiB. */
size_t calm_memory_room(size_t bytes);

/* Restarts `most` at the bytes held now, and unmaps the spare pages that then exceed the bound. */
void calm_memory_release(calm_memory *memory);

/* Returns the resident bytes of this process; 0 if the system does not say. */
size_t calm_memory_resident(void);

/* Returns the bytes that can be used without swapping: what the system has available, or what the control group of
 * this process allows if that is less; 0 if the system does not say. */
size_t calm_memory_available(void);

/* Returns the bytes that remain under the limits of this process on address space and data (ulimit -v, ulimit -d),
 * the smaller one; *limit is that limit, *option its name.  SIZE_MAX: no limit. */
size_t calm_memory_left(size_t *limit, const char **option);

/* Returns an upper bound of the memory that the C library keeps in its per-thread free lists after some of the
 * `bytes` that arenas held were freed. */
size_t calm_memory_kept(size_t bytes, size_t n_threads);

/* For a program, once at its start: makes the C library return large blocks to the system when they are freed.  A
 * library leaves that choice to its host. */
void calm_memory_setup(void);
