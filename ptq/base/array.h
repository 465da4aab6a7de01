/* Arrays that grow in an arena. */
#pragma once

#include "ptq/base/context.h"

/* Makes room for `need` items in an array of which the first `used` are kept.
 *
 *   array     address of the pointer to the first item (NULL at first), which is replaced when the array moves
 *   capacity  items that fit, 0 at first; at least doubled, so that appending n items copies O(n) items altogether
 *   size      bytes of an item
 *   what      name of the items, for the message
 *
 * New items are not initialised.  The arena keeps the smaller arrays until it is rewound: together at most as much
 * again.  CALM_ENOMEM: the array is unchanged. */
calm_status calm_array_grow(calm_ctx *ctx, calm_arena *arena, void *array, size_t used, size_t *capacity, size_t need,
                            size_t size, const char *what);

/* Does the same for the pointer variable `ptr`. */
#define CALM_GROW(ctx, arena, ptr, used, capacity, need)                                                               \
    calm_array_grow((ctx), (arena), &(ptr), (used), (capacity), (need), sizeof *(ptr), #ptr)

/* Compares two doubles for qsort, in rising order. */
int calm_compare_doubles(const void *a, const void *b);
