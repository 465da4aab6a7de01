/* A chunk of weight rows, and the quadratic loss that refits minimise over the codes and scales of these rows.
 *
 *   loss = (w - s q) H (w - s q)^T  per row,  q = code - zero, or the level of a code,  H damped
 *
 * Products with H use float32, everything else uses double.  Float32 is enough because these products multiply errors
 * and codes: the rounding changes a gradient by about 1e-7 of its terms, and a code changes only where the gradient
 * asks for half a step of its scale.  If ctx->operands splits floats into two bfloat16, these products do so, too, with
 * an error of 1e-5 of a term.  One bfloat16 holds a code exactly, and all products read the same rounded H, so the
 * normal equations are exact for an H close to the given one.
 * The normal equations subtract large numbers from W H, so W H is a sum in double of float products of column blocks.
 * H, W and errors are first multiplied by powers of two, so that no number leaves float32's range.
 *
 * There are two steps: calm_rows_scales (rows_scales.c, rows_normal.c) and calm_rows_sweep (rows.c).  Each lowers the
 * loss of a row or leaves the row unchanged.  If the scheme has minima, `w` has the qjob's minima subtracted, and
 * calm_rows_scales changes scales and minima.
 *
 * Rows that share their scales (`shared`) are one chunk with one solution: their normal equations are summed, and their
 * loss is the sum over the rows of `loss` and `before`. */
#pragma once

#include "algorithms/part.h"
#include "ptq/tensor/packed.h"

#define CALM_SWEEP_BLOCK ((size_t)128)

typedef struct calm_rows {
    const calm_problem *problem;
    calm_qjob *qjob;
    const double *h;          /* [I, I] damped, both triangles                          */
    bool shared;              /* all rows share one scale per group                     */
    size_t n;                 /* number of rows in work; finished rows are dropped       */
    size_t room;              /* number of rows that memory is allocated for, >= n       */
    size_t *row;              /* [n] number of each row in the job                       */
    double *w;                /* [n, I] weights minus the minima of their groups         */
    double *wh;               /* [n, I] W H                                              */
    float *q;                 /* [n, I] codes minus zeros, or levels: exact in float32   */
    double *scale, *zero;     /* [n, G]                                                  */
    double *loss, *before;    /* [n] current loss; loss at the start of calm_rows_scales */
    float *product;           /* [n, I] work: the errors w - s q, or s q, times unit_w   */
    float *gradient;          /* [n, CALM_SWEEP_BLOCK] work                              */
    const float *rounded;     /* [I, I] H times unit_h in float32; NULL: not kept        */
    const calm_packed *packed;    /* the same packed for calm_packed_multiply; NULL: not kept */
    float *panel;             /* [CALM_SWEEP_BLOCK, I] work: some rows of H times unit_h, if neither is kept */
    calm_packed packed_q, packed_product;    /* with `packed`: q and product, packed by calm_rows_pack_*  */
    double unit_h, unit_w;    /* powers of two that scale H and W                        */
    bool two_parts;           /* products with H split floats into two bfloat16          */
    size_t unknowns;          /* U per row: G scales, or G scales and G minima           */
    double *normal;           /* [n, U, U] normal equations, upper triangles; `shared`: [U, U] */
    double *right;            /* [n, U] their right sides; `shared`: [U]                 */
    bool built;               /* normal and right belong to the current codes            */
    float *cross;             /* [G, n, CALM_SWEEP_BLOCK] work: q_g H at a block's columns */
    double *system;           /* [U, U] work                                             */
    double *solution;         /* [U] work                                                */
    double *ones;             /* [G, I] 1_g H; only with minima                          */
    double *ones_ones;        /* [G, G] 1_g H 1_g'^T; only with minima                   */
} calm_rows;

/* H rounded for the products with rows: all chunks and refits with this damping share it.  For the widest jobs
 * (calm_rows_keeps) it is not kept; each chunk then rounds a few rows of H at a time. */
typedef struct calm_rows_kept {
    const double *h;         /* [I, I] damped                            */
    double unit;             /* power of two that scales H               */
    const float *rounded;    /* [I, I] H times unit, or NULL             */
    bool packs;              /* `packed` is set instead of `rounded`     */
    calm_packed packed;      /* H times unit, packed                     */
} calm_rows_kept;

/* Rounds H, damped by `damp` times its mean diagonal, into ctx->scratch; returns the bytes that this allocates. */
calm_status calm_rows_keep(calm_ctx *ctx, const calm_problem *problem, double damp, calm_rows_kept *out);
size_t calm_rows_kept_bytes(size_t in);

/* Does a part's work on a chunk of rows; calm_rows_each stores the rows afterwards. */
typedef calm_status calm_rows_fn(calm_ctx *ctx, calm_rows *rows, const void *opts);

/* Runs fn over all rows of the job in chunks of `chunk` rows, or of the rows that share scales, with H damped by `damp`
 * times its mean diagonal. */
calm_status calm_rows_each(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob, double damp, size_t chunk,
                           calm_rows_fn *fn, const void *opts);

/* Does the same with the H of `kept`, and only for rows row [n] of the job; row NULL: for its first n rows.  If rows
 * share scales, it takes all rows of the job. */
calm_status calm_rows_some(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob, const calm_rows_kept *kept,
                           const size_t *row, size_t n, size_t chunk, calm_rows_fn *fn, const void *opts);

/* Returns U, the number of unknowns of a row: its scales, or its scales and minima. */
size_t calm_rows_unknowns(int family, size_t n_groups);

/* Returns the number of rows per chunk of this job with the operands of ctx->operands: fewer when there are many
 * groups, because the normal equations of a row have U^2 cells. */
size_t calm_rows_chunk(const calm_ctx *ctx, const calm_problem *problem, const calm_qjob *qjob);

/* Prepares calm_rows_scales before its first call: computes W H, and allocates the normal equations in ctx->scratch.
 * wh [O, I] and known [O] hold W H of the job and which of its rows are computed; rows that are not are added.  NULL:
 * W H is not shared. */
calm_status calm_rows_begin_scales(calm_ctx *ctx, calm_rows *rows, double *wh, bool *known);

/* Returns the bytes that calm_rows_begin_scales allocates for n rows of a job of this shape. */
size_t calm_rows_scales_bytes(const calm_job_shape *shape, size_t n);

/* Returns the bytes of ctx->scratch that calm_rows_each allocates for n rows of a job of this shape, without
 * calm_rows_kept_bytes. */
size_t calm_rows_load_bytes(const calm_job_shape *shape, size_t n);

/* Returns the memory of a refit that calls scales and sweeps in chunks of calm_rows_chunk rows. */
calm_part_memory calm_rows_refit_memory(const calm_job_shape *shape, const void *opts);

/* Computes least-squares scales, and minima, for the current codes; a row gets them if they lower its loss.  Sets
 * `before` and `loss`. */
calm_status calm_rows_scales(calm_ctx *ctx, calm_rows *rows);

/* Does one sweep of cyclic coordinate descent over the codes; each change lowers `loss` by its gain.  With `zeros`, the
 * zero point of a group of at most CALM_SWEEP_BLOCK columns also changes by one if this gains more.  With `build`,
 * which needs calm_rows_begin_scales, it also builds the normal equations for the next calm_rows_scales; this costs one
 * product less than building them separately. */
calm_status calm_rows_sweep(calm_ctx *ctx, calm_rows *rows, bool zeros, bool build);

/* Rows start .. end - 1 of H times unit_h, at most CALM_SWEEP_BLOCK; H is symmetric, so they are also its columns. */
typedef struct calm_rows_block {
    size_t start, end;
    const float *h;    /* [end - start, I]; NULL: H is packed */
} calm_rows_block;

/* (rows_normal.c) Build the normal equations block by block: call begin once; then for each block of columns, from left
 * to right, call `multiply_groups` when the codes before the block are final, and `add` when the block's codes are. */
void calm_rows_normal_begin(calm_rows *rows);
calm_status calm_rows_multiply_groups(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block);
calm_status calm_rows_normal_add(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block);

/* calm_rows_values sets product = s q times unit_w.  After multiply_groups, calm_rows_multiply_values sets gradient =
 * (s q) H at the block's columns, times both units; from the block on it reads s q from product. */
void calm_rows_values(calm_rows *rows);
calm_status calm_rows_multiply_values(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block);

/* (rows_panel.c) Returns rows start .. end - 1 of H for products, valid at columns >= `from` until the next call. */
calm_rows_block calm_rows_panel(calm_rows *rows, size_t start, size_t end, size_t from);

/* Pack columns first .. end - 1 of q, or of product, for the next products; nothing if H is not packed. */
void calm_rows_pack_codes(calm_rows *rows, size_t first, size_t end);
void calm_rows_pack_product(calm_rows *rows, size_t first, size_t end);

/* Computes out [n, CALM_SWEEP_BLOCK] = columns first .. end - 1 of q, times the same rows of H at the block's
 * columns. */
calm_status calm_rows_multiply_codes(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, size_t first,
                                     size_t end, float *out);
/* Does the same with product instead of q, and adds beta times the old out. */
calm_status calm_rows_multiply_product(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, size_t first,
                                       size_t end, float beta, float *out);

/* Computes product [n, I] = the first n rows of gradient [n, end - start] times rows start .. end - 1 of H. */
calm_status calm_rows_multiply_gradient(calm_ctx *ctx, calm_rows *rows, size_t n, size_t start, size_t end);

/* Return the bytes of, and allocate, what products of n rows need: the panel, or the packed q and product. */
size_t calm_rows_panel_bytes(const calm_job_shape *shape, size_t n);
calm_status calm_rows_new_panel(calm_ctx *ctx, calm_rows *rows);

/* Are H and the rows packed for products with these operands?  Then all products begin and end at multiples of
 * CALM_PACKED_STEP. */
bool calm_rows_packs(calm_operands operands, size_t in, size_t group);

/* Is a job of `in` inputs narrow enough to keep a rounded copy of H in addition to H? */
bool calm_rows_keeps(size_t in);

/* Sum `before` and `loss` over the rows of the chunk. */
void calm_rows_sums(const calm_rows *rows, double *before, double *loss);

/* Returns a lower bound of the exact loss of row r after scales and sweeps.  These update the loss from the normal
 * equations, whose terms are as large as w H w^T and have the accuracy of the products. */
double calm_rows_least(const calm_rows *rows, size_t r);

/* Returns the loss of row r after scales and sweeps, minus the largest observed error of products of two bfloat16: at 8
 * bits this error is up to a fifth of the loss, and must not stop a row. */
double calm_rows_likely(const calm_rows *rows, size_t r);

/* Computes `loss` of every row from its errors alone. */
calm_status calm_rows_losses(calm_ctx *ctx, calm_rows *rows);

/* Writes row r back to the job and moves the last row of the chunk to its place. */
void calm_rows_drop(calm_rows *rows, size_t r);
