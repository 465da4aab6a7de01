/* Memory accounting: the bytes that the arenas of a context and its workers hold, with a limit, and the system's
 * figures for the process.
 *
 * Arenas are nearly all of a run's memory: an allocation that would pass the limit fails like one that the system
 * refuses. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct calm_spare_pages calm_spare_pages;

/* All members are 0 at the start.  An account outlives every arena that took from it.  Every function below takes NULL
 * for "not counted": nothing is held, and there is no limit.
 *
 * Pages that an arena gives back wait here for the next request that fits into them, which then faults none in: `used`
 * and they together are never more than `most` and its calm_memory_room, nor than the limit. */
typedef struct calm_memory {
    atomic_size_t limit, used, peak;
    atomic_size_t most;         /* the largest that `used` was, of all stages             */
    atomic_bool busy;           /* who has set it may change the two members below        */
    calm_spare_pages *spare;    /* the last one given back first                          */
    size_t spare_bytes;
} calm_memory;

/* The most bytes that the arenas of an account may hold together; 0: no limit.  Not for use while workers run. */
void calm_memory_set_limit(calm_memory *memory, size_t bytes);
size_t calm_memory_limit(const calm_memory *memory);

/* Bytes that the arenas hold now, and the most they held since calm_memory_restart. */
size_t calm_memory_used(const calm_memory *memory);
size_t calm_memory_peak(const calm_memory *memory);
void calm_memory_restart(calm_memory *memory);

/* For arenas: take `bytes`, false when the limit does not allow it; give them back. */
bool calm_memory_take(calm_memory *memory, size_t bytes);
void calm_memory_give(calm_memory *memory, size_t bytes);

/* This many bytes or more, that whole pages hold. */
size_t calm_memory_whole_pages(size_t bytes);

/* For arenas, of bytes that were taken and are whole pages: pages, huge ones where the system has them; NULL when it
 * has none.  *zero: they are new and hold zeros.  And back again, of bytes that were given. */
void *calm_memory_map(calm_memory *memory, size_t bytes, bool *zero);
void calm_memory_unmap(calm_memory *memory, void *pages, size_t bytes);

/* For arenas, after bytes were taken for something else than pages: the spare pages above the limit go back. */
void calm_memory_trim(calm_memory *memory);

/* What spare pages may hold next to the most that arenas held, `bytes`, where the limit allows it: an eighth of
 * that, at most 32 MiB. */
size_t calm_memory_room(size_t bytes);

/* All spare pages go back to the system, and what is held now is the most again. */
void calm_memory_release(calm_memory *memory);

/* Resident bytes of this process; 0 when the system does not say. */
size_t calm_memory_resident(void);

/* Bytes that could be used without swapping: what the system has available, or what the control group of this process
 * allows when that is less; 0 when the system does not say. */
size_t calm_memory_available(void);

/* Bytes that a limit of this process leaves of its address space or its data (ulimit -v, ulimit -d), the smaller one;
 * *limit is it, *option its name.  SIZE_MAX: there is none. */
size_t calm_memory_left(size_t *limit, const char **option);

/* Of this many bytes that arenas hold at most, what is resident besides when some of it was given back: free lists of
 * the C library, one for each thread. */
size_t calm_memory_kept(size_t bytes, size_t n_threads);

/* For a program, once at its start: the C library gives large blocks back to the system as soon as they are freed.  A
 * library leaves that to its host. */
void calm_memory_setup(void);
