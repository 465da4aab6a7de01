/* The kernel of integer matrix products for one set of instructions (int_product.h). */
#pragma once

#include "ptq/tensor/int_product.h"

/* A piece of a product: these panels of the weight, these rows of the activations. */
typedef struct calm_int_piece {
    const calm_int_weight *weight;
    const calm_int_rows *rows;
    const float *bias;                /* [out] or NULL              */
    float *y;                         /* [rows, out], of all rows   */
    size_t first_panel, end_panel;
    size_t first_row, end_row;
} calm_int_piece;

/* Write the piece of y. */
typedef void calm_int_kernel(const calm_int_piece *piece);

calm_int_kernel calm_int_plain, calm_int_avx2, calm_int_avx_vnni, calm_int_avx512, calm_int_amx;

/* Rows that AMX takes together; pieces of fewer read the weight more often. */
#define CALM_INT_AMX_ROWS ((size_t)128)
/* Do `times` products of 16 by 16 sums and 64 codes by AMX, and nothing else; nothing without it. */
#define CALM_INT_AMX_OPS (16.0 * 16 * 64 * 2)
void calm_int_amx_spin(size_t times);

/* A tile: rows by vectors of columns that are summed at once, from this vector and this row of the piece on. */
typedef void calm_int_tile_fn(const calm_int_piece *piece, size_t first_vector, size_t first_row);
typedef struct calm_int_tile {
    size_t rows, vectors;
    calm_int_tile_fn *run;
} calm_int_tile;

/* Tiles of a kernel at most. */
#define CALM_INT_TILES 4

/* Cover a piece with tiles [CALM_INT_TILES], from those of the most rows to one of one row; what is not used has
 * rows 0.  `parts`: vectors of a panel. */
void calm_int_tiles(const calm_int_piece *piece, const calm_int_tile *tiles, size_t parts);

/* Columns of group g, with those that fill it up. */
static inline size_t calm_int_group_columns(const calm_int_weight *weight, size_t g)
{
    return g + 1 < weight->n_groups ? weight->group : weight->stride - g * weight->group;
}
