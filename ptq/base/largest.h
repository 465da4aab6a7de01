/* Adds up the largest of many sizes: an upper bound of the bytes of tasks that run at the same time. */
#pragma once

#include <stddef.h>

/* Number of sizes that are kept individually. */
#define CALM_LARGEST_KEPT ((size_t)64)

/* The largest sizes so far.  Initialise with zeros. */
typedef struct calm_largest {
    size_t n, bytes[CALM_LARGEST_KEPT];    /* [n] in falling order */
    size_t all;                            /* sum of all sizes     */
} calm_largest;

/* Adds a size. */
void calm_largest_add(calm_largest *to, size_t bytes);

/* Returns the sum of the `count` largest sizes when each size occurs `times` times; an upper bound beyond
 * CALM_LARGEST_KEPT. */
size_t calm_largest_sum(const calm_largest *from, size_t times, size_t count);
