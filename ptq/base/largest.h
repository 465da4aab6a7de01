/* Sums the largest of many sizes: the most bytes that tasks hold which run at the same time. */
#pragma once

#include <stddef.h>

/* Sizes that are kept one by one. */
#define CALM_LARGEST_KEPT ((size_t)64)

/* All zero: no size yet. */
typedef struct calm_largest {
    size_t n, bytes[CALM_LARGEST_KEPT];    /* by falling size     */
    size_t all;                            /* the sum of all sizes */
} calm_largest;

/* Add a size. */
void calm_largest_add(calm_largest *to, size_t bytes);

/* Sum of the `count` largest sizes when each is there `times` times; an upper bound beyond CALM_LARGEST_KEPT. */
size_t calm_largest_sum(const calm_largest *from, size_t times, size_t count);
