/* Memory of this process: what its arenas hold, a limit on that, and what the system says.
 *
 * Arenas are nearly all of it: an allocation that would pass the limit fails like one that the system refuses. */
#ifndef CALM_BASE_MEMORY_H
#define CALM_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* At most so many bytes in all arenas together; 0: no limit.  Not for use while workers run. */
void calm_memory_set_limit(size_t bytes);
size_t calm_memory_limit(void);

/* Bytes that all arenas hold now, and the most they held since calm_memory_restart. */
size_t calm_memory_used(void);
size_t calm_memory_peak(void);
void calm_memory_restart(void);

/* For arenas: take `bytes`, false when the limit does not allow it; give them back. */
bool calm_memory_take(size_t bytes);
void calm_memory_give(size_t bytes);

/* Resident bytes of this process, now and at most; 0 when the system does not say. */
size_t calm_memory_resident(void);
size_t calm_memory_resident_peak(void);

/* Bytes that could be used without swapping: what the system has available, or what the control group of this process
 * allows when that is less; 0 when the system does not say. */
size_t calm_memory_available(void);

/* Of so many bytes that arenas hold at most, what is resident besides when some of it was given back: free lists of
 * the C library, one for this thread and one for each of the workers. */
size_t calm_memory_kept(size_t bytes, size_t n_threads);

/* Call once at start: the C library gives large blocks back to the system as soon as they are freed. */
void calm_memory_setup(void);

#endif
