/* A chunk of weight rows, and the quadratic loss that refits minimise over the codes and scales of these rows.
 *
 *   loss = (w - s q) H (w - s q)^T  per row,  q = code - zero, or the level of a code,  H damped
 *
 * Products with H are in float32, everything else is in double.  Float32 is enough because these products multiply
 * errors and codes: it changes a gradient by some 1e-7 of its terms, and a code moves only by half a step of its scale.
 * Where ctx->operands are of two bfloat16, so are these products: 1e-5 of a term.  One bfloat16 holds a code, and H is
 * rounded alike in all products, so that normal equations are those of an H that is next to this one.
 * W H, from which the normal equations subtract large numbers, is a sum in double of products of a block of columns.
 * H, W and errors are first multiplied by powers of two, so that no number leaves float32's range.
 *
 * `scales` (rows_scales.c, rows_normal.c) and `sweep` (rows.c) are the two moves; each lowers the loss of every row or
 * leaves the row alone.  If the scheme has minima, w has the qjob's minima subtracted, and `scales` moves scales and
 * minima.
 *
 * Rows that share their scales (`shared`) are a separate chunk with one solution: the normal equations of all rows
 * together, and one loss, the sum of the rows' parts in `loss` and `before`. */
#pragma once

#include "algorithms/part.h"
#include "ptq/tensor/packed.h"

#define CALM_SWEEP_BLOCK ((size_t)128)

typedef struct calm_rows {
    const calm_problem *problem;
    calm_qjob *qjob;
    const double *h;          /* [I, I] damped, both triangles                          */
    bool shared;              /* one scale a group for all rows                         */
    size_t n;                 /* rows here; they are swapped and dropped when finished  */
    size_t room;              /* rows that there is memory for, at least n               */
    size_t *row;              /* [n] which row of the job each is                        */
    double *w;                /* [n, I] weights, less the minima of their groups         */
    double *wh;               /* [n, I] W H                                              */
    float *q;                 /* [n, I] codes less zeros, or levels: floats hold all     */
    double *scale, *zero;     /* [n, G]                                                  */
    double *loss, *before;    /* [n] now, and when `scales` last began                   */
    float *product;           /* [n, I] work: the errors w - s q, or s q, by unit_w      */
    float *gradient;          /* [n, CALM_SWEEP_BLOCK] work                              */
    const float *rounded;     /* [I, I] H times unit_h, where all of it is kept; or NULL */
    const calm_packed *packed;    /* the same for products that read it packed; or NULL  */
    float *panel;             /* [CALM_SWEEP_BLOCK, I] work: a few such rows, with neither */
    calm_packed packed_q, packed_product;    /* with `packed`: q and product as calm_rows_pack left them */
    double unit_h, unit_w;    /* powers of two                                           */
    bool two_parts;           /* products with H are of two bfloat16                      */
    size_t unknowns;          /* U: scales G, with minima 2 G                            */
    double *normal;           /* [n, U, U] normal equations, upper triangles; [U, U] of shared scales */
    double *right;            /* [n, U] their right sides; [U]                           */
    bool built;               /* both are of the codes as they are                       */
    float *cross;             /* [G, n, CALM_SWEEP_BLOCK] work: q_g H with a block's columns */
    double *system;           /* [U, U] work                                             */
    double *solution;         /* [U] work                                                */
    double *ones;             /* [G, I] 1_g H, with minima                               */
    double *ones_ones;        /* [G, G] 1_g H 1_g'^T, likewise                           */
} calm_rows;

/* H as products of rows read it: for all chunks and every refit with this damping.  Of the widest jobs each chunk makes
 * a few rows at a time for itself. */
typedef struct calm_rows_kept {
    const double *h;         /* [I, I] damped                            */
    double unit;             /* a power of two, as unit_h below          */
    const float *rounded;    /* [I, I] H by it, or NULL                  */
    bool packs;
    calm_packed packed;      /* with `packs`, in place of `rounded`      */
} calm_rows_kept;

/* Keep H with `damp` times its mean diagonal added, in ctx->scratch; the bytes that takes. */
calm_status calm_rows_keep(calm_ctx *ctx, const calm_problem *problem, double damp, calm_rows_kept *out);
size_t calm_rows_kept_bytes(size_t in);

/* The work of a part on a chunk of rows; calm_rows_each then stores the rows. */
typedef calm_status calm_rows_fn(calm_ctx *ctx, calm_rows *rows, const void *opts);

/* Run fn over all rows of the job in chunks of `chunk` rows, or of those that share scales, under H with `damp` times
 * its mean diagonal added. */
calm_status calm_rows_each(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob, double damp, size_t chunk,
                           calm_rows_fn *fn, const void *opts);

/* The same under H as it is kept, of rows row [n] alone, of a scheme whose rows share no scales; row NULL: of all n. */
calm_status calm_rows_some(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob, const calm_rows_kept *kept,
                           const size_t *row, size_t n, size_t chunk, calm_rows_fn *fn, const void *opts);

/* U, unknowns of a row: its scales, with minima twice as many. */
size_t calm_rows_unknowns(int family, size_t n_groups);

/* Rows per chunk of this job, with operands as ctx->operands says: fewer when there are many groups, whose normal
 * equations take U^2 cells a row. */
size_t calm_rows_chunk(const calm_ctx *ctx, const calm_problem *problem, const calm_qjob *qjob);

/* Prepare calm_rows_scales, before its first call: W H, and memory for normal equations, from ctx->scratch.  wh [O, I]
 * and known [O] are NULL, or W H of the job and which of its rows are there: read, else written. */
calm_status calm_rows_begin_scales(calm_ctx *ctx, calm_rows *rows, double *wh, bool *known);

/* Bytes that calm_rows_begin_scales takes for n rows of a job of this shape. */
size_t calm_rows_scales_bytes(const calm_job_shape *shape, size_t n);

/* Bytes that calm_rows_each takes of ctx->scratch for n rows of a job of this shape, besides calm_rows_kept_bytes. */
size_t calm_rows_load_bytes(const calm_job_shape *shape, size_t n);

/* Memory of a refit that uses scales and sweeps in chunks of calm_rows_chunk rows, after damping H. */
calm_part_memory calm_rows_refit_memory(const calm_job_shape *shape, const void *opts);

/* Least-squares scales for the codes, and minima with them, kept for each row if they lower its loss; sets `before` and
 * `loss`. */
calm_status calm_rows_scales(calm_ctx *ctx, calm_rows *rows);

/* One sweep of cyclic coordinate descent over the codes; each change lowers `loss` by its gain.  With `zeros`, zero
 * points of groups of at most CALM_SWEEP_BLOCK columns also move by one if this gains more.  With `build`, after
 * calm_rows_begin_scales, it leaves the normal equations that the next calm_rows_scales needs, for the price of one
 * product less than those alone. */
calm_status calm_rows_sweep(calm_ctx *ctx, calm_rows *rows, bool zeros, bool build);

/* Columns start .. end - 1 of H, which are its rows, at most CALM_SWEEP_BLOCK, by unit_h. */
typedef struct calm_rows_block {
    size_t start, end;
    const float *h;    /* [end - start, I]; NULL: H is packed */
} calm_rows_block;

/* (rows_normal.c) Normal equations block by block: begin, then for each block of columns, from left to right,
 * `multiply_groups` once the codes before it are final, and `add` once its own are. */
void calm_rows_normal_begin(calm_rows *rows);
calm_status calm_rows_multiply_groups(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block);
calm_status calm_rows_normal_add(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block);

/* product = s q by unit_w; and after multiply_groups, gradient = (s q) H of the block by the units, where product has
 * what is from the block on. */
void calm_rows_values(calm_rows *rows);
calm_status calm_rows_multiply_values(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block);

/* (rows_panel.c) A block of H for products of its rows `from` and those after.  Until the next call. */
calm_rows_block calm_rows_panel(calm_rows *rows, size_t start, size_t end, size_t from);

/* Columns first .. end - 1 of q, or of product, are as the next products read them. */
void calm_rows_pack_codes(calm_rows *rows, size_t first, size_t end);
void calm_rows_pack_product(calm_rows *rows, size_t first, size_t end);

/* out [n, CALM_SWEEP_BLOCK] = columns first .. end - 1 of q, or of product, times these rows of H's block. */
calm_status calm_rows_multiply_codes(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, size_t first,
                                     size_t end, float *out);
/* With beta out added. */
calm_status calm_rows_multiply_product(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, size_t first,
                                       size_t end, float beta, float *out);

/* product [n, I] = the first n rows of gradient, which are columns start .. end - 1 of something, times these rows of
 * H. */
calm_status calm_rows_multiply_gradient(calm_ctx *ctx, calm_rows *rows, size_t n, size_t start, size_t end);

/* Bytes that n rows take for a panel, or for their packed operands; and those. */
size_t calm_rows_panel_bytes(const calm_job_shape *shape, size_t n);
calm_status calm_rows_new_panel(calm_ctx *ctx, calm_rows *rows);

/* Are H and rows packed for its products, of such operands?  All of these begin and end at whole steps then. */
bool calm_rows_packs(calm_operands operands, size_t in, size_t group);

/* Is a job of `in` inputs narrow enough to keep what all its products read, besides H itself? */
bool calm_rows_keeps(size_t in);

/* Sums of `before` and `loss` over the rows here. */
void calm_rows_sums(const calm_rows *rows, double *before, double *loss);

/* After `scales` and sweeps: what the loss of row r is not below.  They follow it from the normal equations, whose
 * terms are as large as w H w^T and of float32's accuracy. */
double calm_rows_least(const calm_rows *rows, size_t r);

/* The loss of row r as `scales` and sweeps follow it, less what products of two bfloat16 were seen to add: of 8 bits up
 * to a fifth, by which rows must not stop. */
double calm_rows_likely(const calm_rows *rows, size_t r);

/* loss of every row as it stands, from its errors alone. */
calm_status calm_rows_losses(calm_ctx *ctx, calm_rows *rows);

/* Write row r back to the job and put the last row in its place. */
void calm_rows_drop(calm_rows *rows, size_t r);
