/* H in float32 for the products of rows under refit.  Each chunk of rows reads all of H in every product, so H is
 * rounded once, and packed if the kernels need it.  For the widest jobs, whose H dominates the memory of a run, each
 * chunk rounds a few rows of H at a time instead. */
#include "algorithms/rows.h"

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"

#define KEPT_WIDTH ((size_t)14336)    /* MLP width of models with 8 billion parameters */
/* Number of columns of H that are rounded for packing at a time: 32 KiB with CALM_ROWS_OF_TASK rows. */
#define AT_ONCE ((size_t)256)

_Static_assert(CALM_ROWS_OF_TASK % CALM_PACKED_STEP == 0, "tasks pack whole steps");

bool calm_rows_keeps(size_t in)
{
    return in <= KEPT_WIDTH;
}

bool calm_rows_packs(calm_operands operands, size_t in, size_t group)
{
    return calm_rows_keeps(in) && calm_packed_fits(operands, in) && calm_packed_fits(operands, group);
}

CALM_VECTORIZE
static void to_float(const double *restrict x, size_t n, double unit, float *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(x[i] * unit);
}

/* ---- all rows ---- */

typedef struct panel_job {
    const double *h;
    size_t in;
    double unit;
    float *panel;
    calm_packed *packed;
} panel_job;

static void round_rows(size_t first, size_t n, void *user)
{
    const panel_job *job = user;
    to_float(job->h + first * job->in, n * job->in, job->unit, job->panel + first * job->in);
}

static void pack_rows(size_t first, size_t n, void *user)
{
    const panel_job *job = user;
    float some[CALM_ROWS_OF_TASK * AT_ONCE];
    for (size_t j = 0, columns; j < job->in; j += columns) {
        columns = calm_size_min(job->in - j, AT_ONCE);
        for (size_t i = 0; i < n; i++)
            to_float(job->h + (first + i) * job->in + j, columns, job->unit, some + i * AT_ONCE);
        calm_packed_store(job->packed, first, n, j, columns, some, AT_ONCE);
    }
}

/* A symmetric matrix without negative eigenvalues has its largest number on the diagonal. */
static double largest_diagonal(const double *h, size_t in)
{
    double most = 0;
    for (size_t j = 0; j < in; j++)
        most = fmax(most, h[j * in + j]);
    return most;
}

calm_status calm_rows_keep(calm_ctx *ctx, const calm_problem *problem, double damp, calm_rows_kept *out)
{
    const size_t in = problem->in;
    float *panel;
    *out = (calm_rows_kept){.h = calm_problem_damped(problem, damp),
                            .packs = calm_rows_packs(ctx->operands, in, problem->group)};
    out->unit = calm_problem_unit(largest_diagonal(out->h, in));
    if (!calm_rows_keeps(in))
        return CALM_OK;
    panel_job job = {out->h, in, out->unit, NULL, &out->packed};
    if (out->packs) {
        CALM_TRY(calm_packed_new(ctx, true, in, in, &out->packed));
        calm_parallel_each_rows(ctx, in, pack_rows, &job);
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, panel, in * in));
    out->rounded = job.panel = panel;
    calm_parallel_each_rows(ctx, in, round_rows, &job);
    return CALM_OK;
}

size_t calm_rows_kept_bytes(size_t in)
{
    /* Packed, H has two bfloat16 per number: as many bytes. */
    return calm_rows_keeps(in) ? CALM_BYTES(float, in * in) : 0;
}

/* ---- a block ---- */

size_t calm_rows_panel_bytes(const calm_job_shape *shape, size_t n)
{
    if (calm_rows_packs(shape->operands, shape->in, shape->group))
        return 2 * calm_packed_bytes(shape->operands, n, shape->in);
    return calm_rows_keeps(shape->in) ? 0 : CALM_BYTES(float, CALM_SWEEP_BLOCK * shape->in);
}

calm_status calm_rows_new_panel(calm_ctx *ctx, calm_rows *rows)
{
    const size_t in = rows->problem->in;
    if (rows->rounded)
        return CALM_OK;
    if (!rows->packed)
        return CALM_NEW_RAW(ctx, ctx->scratch, rows->panel, CALM_SWEEP_BLOCK * in);
    CALM_TRY(calm_packed_new(ctx, false, rows->room, in, &rows->packed_q));
    return calm_packed_new(ctx, false, rows->room, in, &rows->packed_product);
}

calm_rows_block calm_rows_panel(calm_rows *rows, size_t start, size_t end, size_t from)
{
    const size_t in = rows->problem->in;
    if (rows->packed)
        return (calm_rows_block){start, end, NULL};
    if (rows->rounded)
        return (calm_rows_block){start, end, rows->rounded + start * in};
    for (size_t k = 0; k < end - start; k++)
        to_float(rows->h + (start + k) * in + from, in - from, rows->unit_h, rows->panel + k * in + from);
    return (calm_rows_block){start, end, rows->panel};
}

/* ---- products ---- */

static void pack(const calm_rows *rows, const float *x, size_t first, size_t end, calm_packed *out)
{
    if (rows->packed)
        calm_packed_store(out, 0, rows->n, first, end - first, x + first, rows->problem->in);
}

void calm_rows_pack_codes(calm_rows *rows, size_t first, size_t end)
{
    pack(rows, rows->q, first, end, &rows->packed_q);
}

void calm_rows_pack_product(calm_rows *rows, size_t first, size_t end)
{
    pack(rows, rows->product, first, end, &rows->packed_product);
}

/* Computes out = columns first .. end - 1 of x, packed or not, times the block, + beta out. */
static calm_status multiply(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, const float *x,
                            const calm_packed *packed, size_t first, size_t end, float beta, float *out)
{
    const size_t in = rows->problem->in, n = block->end - block->start;
    /* With no columns, calm_multiply reads neither operand. */
    if (!rows->packed || first == end)
        return calm_multiply(ctx, CALM_PRODUCT_NT, rows->n, n, end - first, x + first, in,
                             block->h ? block->h + first : x, in, beta, out, CALM_SWEEP_BLOCK);
    return calm_packed_multiply(ctx, rows->n, n, end - first, (calm_packed_part){packed, 0, first},
                                (calm_packed_part){rows->packed, block->start, first}, beta, out, CALM_SWEEP_BLOCK);
}

calm_status calm_rows_multiply_codes(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, size_t first,
                                     size_t end, float *out)
{
    return multiply(ctx, rows, block, rows->q, &rows->packed_q, first, end, 0, out);
}

calm_status calm_rows_multiply_product(calm_ctx *ctx, const calm_rows *rows, const calm_rows_block *block, size_t first,
                                       size_t end, float beta, float *out)
{
    return multiply(ctx, rows, block, rows->product, &rows->packed_product, first, end, beta, out);
}

calm_status calm_rows_multiply_gradient(calm_ctx *ctx, calm_rows *rows, size_t n, size_t start, size_t end)
{
    const size_t in = rows->problem->in;
    if (!rows->packed)
        return calm_multiply(ctx, CALM_PRODUCT_NN, n, in, end - start, rows->gradient, CALM_SWEEP_BLOCK,
                             calm_rows_panel(rows, start, end, 0).h, in, 0, rows->product, in);
    /* H is exactly symmetric, so its rows are its columns. */
    calm_packed_store(&rows->packed_product, 0, n, start, end - start, rows->gradient, CALM_SWEEP_BLOCK);
    return calm_packed_multiply(ctx, n, in, end - start, (calm_packed_part){&rows->packed_product, 0, start},
                                (calm_packed_part){rows->packed, 0, start}, 0, rows->product, in);
}
