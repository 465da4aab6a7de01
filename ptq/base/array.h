/* Arrays that grow in an arena. */
#pragma once

#include "ptq/base/context.h"

/* Make room for `need` items in an array of which `used` are kept.
 *
 *   array     a pointer to the first item, NULL to begin with; replaced when the room is too small
 *   capacity  items it has room for, 0 to begin with; at least doubled, so that n items cost n copies altogether
 *   size      bytes of an item
 *   what      the items, for the message
 *
 * New room is not initialised.  The arena keeps the smaller arrays too until it is rewound: together as much again.
 * CALM_ENOMEM; the array is then unchanged. */
calm_status calm_array_grow(calm_ctx *ctx, calm_arena *arena, void *array, size_t used, size_t *capacity, size_t need,
                            size_t size, const char *what);

/* The same for the pointer variable `ptr`. */
#define CALM_GROW(ctx, arena, ptr, used, capacity, need)                                                               \
    calm_array_grow((ctx), (arena), &(ptr), (used), (capacity), (need), sizeof *(ptr), #ptr)

/* For qsort: doubles in rising order. */
int calm_compare_doubles(const void *a, const void *b);
