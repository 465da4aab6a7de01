/* Tiles of a triangular matrix, for the blocked factorizations (inverse_root.c, root_float.c). */
#pragma once

#include "ptq/base/arena.h"

/* Rows and columns of a tile: large enough for BLAS's full rate, small enough to give many cores work from some
 * thousand rows on. */
#define CALM_TRIANGLE_TILE ((size_t)192)

/* Returns the rows of tile i of n rows. */
static inline size_t calm_triangle_side(size_t n, size_t i)
{
    return calm_size_min(n - i * CALM_TRIANGLE_TILE, CALM_TRIANGLE_TILE);
}

/* Returns the pair (i, j), i <= j, with index j (j + 1) / 2 + i. */
static inline void calm_triangle_pair(size_t index, size_t *i, size_t *j)
{
    *j = 0;
    while ((*j + 1) * (*j + 2) / 2 <= index)
        ++*j;
    *i = index - *j * (*j + 1) / 2;
}
