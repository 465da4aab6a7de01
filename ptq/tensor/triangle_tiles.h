/* The tiles that a triangle of a matrix is cut into, by those that factor in tiles (inverse_root.c, root_float.c). */
#pragma once

#include "ptq/base/arena.h"

/* Rows and columns of a tile: the products of a step run near BLAS's rate, and there are tasks for many cores from
 * some thousand rows on. */
#define CALM_TRIANGLE_TILE ((size_t)192)

/* Rows of tile i of n rows. */
static inline size_t calm_triangle_side(size_t n, size_t i)
{
    return calm_size_min(n - i * CALM_TRIANGLE_TILE, CALM_TRIANGLE_TILE);
}

/* The pair (i, j), i <= j, number j (j + 1) / 2 + i. */
static inline void calm_triangle_pair(size_t index, size_t *i, size_t *j)
{
    *j = 0;
    while ((*j + 1) * (*j + 2) / 2 <= index)
        ++*j;
    *i = index - *j * (*j + 1) / 2;
}
