/* Interface of the kernels of integer matrix products, one per instruction set (int_product.h). */
#pragma once

#include "ptq/tensor/int_product.h"

/* A piece of a product: a range of panels of the weight and a range of rows of the activations. */
typedef struct calm_int_piece {
    const calm_int_weight *weight;
    const calm_int_rows *rows;
    const float *bias;                /* [out] or NULL              */
    float *y;                         /* [rows, out] of the whole product */
    size_t first_panel, end_panel;
    size_t first_row, end_row;
} calm_int_piece;

/* Computes the piece of y. */
typedef void calm_int_kernel(const calm_int_piece *piece);

calm_int_kernel calm_int_plain, calm_int_avx2, calm_int_avx_vnni, calm_int_avx512, calm_int_amx;

/* Rows that AMX multiplies together; pieces with fewer rows read the weight more often. */
#define CALM_INT_AMX_ROWS ((size_t)128)
/* Executes `times` AMX products of 16 by 16 sums and 64 codes, to measure their rate; does nothing without AMX. */
#define CALM_INT_AMX_OPS (16.0 * 16 * 64 * 2)
void calm_int_amx_spin(size_t times);

/* A tile: the function computes `rows` rows by `vectors` vectors of columns, from this vector and row of the piece
 * on. */
typedef void calm_int_tile_fn(const calm_int_piece *piece, size_t first_vector, size_t first_row);
typedef struct calm_int_tile {
    size_t rows, vectors;
    calm_int_tile_fn *run;
} calm_int_tile;

/* Largest number of tiles of a kernel. */
#define CALM_INT_TILES 4

/* Covers a piece with tiles [CALM_INT_TILES], in order from most rows to one row; unused entries have rows 0.
 * `parts`: vectors per panel. */
void calm_int_tiles(const calm_int_piece *piece, const calm_int_tile *tiles, size_t parts);

/* Returns the columns of group g, padding included. */
static inline size_t calm_int_group_columns(const calm_int_weight *weight, size_t g)
{
    return g + 1 < weight->n_groups ? weight->group : weight->stride - g * weight->group;
}
