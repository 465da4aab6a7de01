/* The normal equations of a chunk of rows (rows_scales.c), block by block of columns.
 *
 *   A_gk = sum over i in g, j in k of q_i H_ij q_j:  a block of columns adds the pairs whose later column it has
 *
 * When a sweep reaches a block, the codes before it are final.  The gradient needs the products q_g H of each group g
 * before the block, at the block's columns.  When the block's codes are final, too, the same products give its part of
 * A, so that the scales after a sweep need no further product. */
#include <string.h>

#include "algorithms/rows.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/vector.h"

/* Returns the number of columns of group g within start .. end - 1; *first is the first one. */
static size_t columns_within(const calm_rows *rows, size_t g, size_t start, size_t end, size_t *first)
{
    const size_t group = rows->problem->group;
    *first = calm_size_max(g * group, start);
    return calm_size_min((g + 1) * group, end) - *first;
}

void calm_rows_normal_begin(calm_rows *rows)
{
    const size_t systems = rows->shared ? 1 : rows->n, unknowns = rows->unknowns;
    memset(rows->normal, 0, systems * unknowns * unknowns * sizeof *rows->normal);
    memset(rows->right, 0, systems * unknowns * sizeof *rows->right);
    /* The products of minima with minima do not depend on codes. */
    const size_t n_groups = rows->problem->n_groups;
    for (size_t g = 0; rows->qjob->mins && g < n_groups; g++)
        for (size_t r = 0; r < systems; r++)
            memcpy(rows->normal + (r * unknowns + n_groups + g) * unknowns + n_groups + g,
                   rows->ones_ones + g * n_groups + g, (n_groups - g) * sizeof *rows->normal);
}

/* ---- products ---- */

static float *cross_of(const calm_rows *rows, size_t g)
{
    return rows->cross + g * rows->n * CALM_SWEEP_BLOCK;
}

calm_status calm_rows_multiply_groups(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block)
{
    for (size_t g = 0, first; g * rows->problem->group < block->start; g++) {
        const size_t n = columns_within(rows, g, 0, block->start, &first);
        CALM_TRY(calm_rows_multiply_codes(ctx, rows, block, first, first + n, cross_of(rows, g)));
    }
    return CALM_OK;
}

/* Computes out [n] = scale q. */
CALM_VECTORIZE
static void scale_codes(const float *restrict q, size_t n, float scale, float *restrict out)
{
    for (size_t j = 0; j < n; j++)
        out[j] = scale * q[j];
}

void calm_rows_values(calm_rows *rows)
{
    const size_t in = rows->problem->in, n_groups = rows->problem->n_groups;
    for (size_t r = 0; r < rows->n; r++)
        for (size_t g = 0, first; g < n_groups; g++) {
            const size_t n = columns_within(rows, g, 0, in, &first);
            scale_codes(rows->q + r * in + first, n, (float)(rows->scale[r * n_groups + g] * rows->unit_w),
                        rows->product + r * in + first);
        }
    calm_rows_pack_product(rows, 0, in);
}

CALM_VECTORIZE
static void add_scaled(const float *restrict x, size_t n, float scale, float *restrict out)
{
    for (size_t j = 0; j < n; j++)
        out[j] += scale * x[j];
}

calm_status calm_rows_multiply_values(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block)
{
    const size_t n_groups = rows->problem->n_groups, start = block->start, end = block->end;
    CALM_TRY(calm_rows_multiply_product(ctx, rows, block, start, rows->problem->in, 0, rows->gradient));
    for (size_t g = 0; g * rows->problem->group < start; g++)
        for (size_t r = 0; r < rows->n; r++)
            add_scaled(cross_of(rows, g) + r * CALM_SWEEP_BLOCK, end - start,
                       (float)(rows->scale[r * n_groups + g] * rows->unit_w), rows->gradient + r * CALM_SWEEP_BLOCK);
    return CALM_OK;
}

/* ---- sums ---- */

static double *normal_of(const calm_rows *rows, size_t r)
{
    return rows->normal + (rows->shared ? 0 : r) * rows->unknowns * rows->unknowns;
}

static double *right_of(const calm_rows *rows, size_t r)
{
    return rows->right + (rows->shared ? 0 : r) * rows->unknowns;
}

/* Adds the products of n columns of group g from `first` on, n <= CALM_SWEEP_BLOCK, with W and with minima. */
static void add_alone(const calm_rows *rows, size_t r, size_t g, size_t first, size_t n)
{
    const size_t in = rows->problem->in, n_groups = rows->problem->n_groups;
    const double *wh = rows->wh + r * in + first;
    double q[CALM_SWEEP_BLOCK], *right = right_of(rows, r) + g;
    for (size_t j = 0; j < n; j++)
        q[j] = (double)rows->q[r * in + first + j];
    right[0] += calm_vec_ddot(n, wh, q);
    if (!rows->qjob->mins)
        return;
    double *across = normal_of(rows, r) + g * rows->unknowns + n_groups;
    for (size_t j = 0; j < n; j++)
        right[n_groups] += wh[j];
    for (size_t k = 0; k < n_groups; k++)
        across[k] += calm_vec_ddot(n, rows->ones + k * in + first, q);
}

/* Adds to A_fg, `times` 1 or 2, the products of q_f H, products [n, CALM_SWEEP_BLOCK] for the block from column `start`
 * on, with the codes of n columns of group g from `first` on. */
static void add_pair(const calm_rows *rows, size_t f, size_t g, const float *products, size_t start, size_t first,
                     size_t n, double times)
{
    const size_t in = rows->problem->in;
    for (size_t r = 0; r < rows->n; r++)
        normal_of(rows, r)[f * rows->unknowns + g] +=
            times / rows->unit_h *
            calm_vec_dot(n, products + r * CALM_SWEEP_BLOCK + first - start, rows->q + r * in + first);
}

calm_status calm_rows_normal_add(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block)
{
    const size_t group = rows->problem->group, start = block->start, end = block->end;
    calm_rows_pack_codes(rows, start, end);
    for (size_t g = start / group, first; g * group < end; g++) {
        const size_t n = columns_within(rows, g, start, end, &first);
        for (size_t r = 0; r < rows->n; r++)
            add_alone(rows, r, g, first, n);
        /* A group that begins before the block has pairs in both triangles, so they count twice. */
        for (size_t f = 0; f <= g && f * group < start; f++)
            add_pair(rows, f, g, cross_of(rows, f), start, first, n, f == g ? 2 : 1);
        CALM_TRY(calm_rows_multiply_codes(ctx, rows, block, first, first + n, rows->gradient));
        for (size_t k = g, from; k * group < end; k++) {
            const size_t columns = columns_within(rows, k, start, end, &from);
            add_pair(rows, g, k, rows->gradient, start, from, columns, 1);
        }
    }
    return CALM_OK;
}
