/* Activation order of GPTQ's files (act_order, desc_act): a group holds inputs of similar power instead of neighbours,
 * so that the few large inputs share scales that fit their weights; g_idx gives the group of each input.
 *
 *   order = inputs by falling sum of x^2;  W', X^T X', ... = W, X^T X, ... with inputs in that order;  group k / g
 *
 * A chain gets the job in this order, so every part works unchanged: scales per group, error feedback, refits.  GPTQ
 * processes columns in this order (Frantar's code, --act-order); here all chains do. */
#include "algorithms/act_order.h"

#include <string.h>

#include "algorithms/inverse.h"
#include "ptq/base/scope.h"

/* The largest number of linears in a job of any kind of sublayer. */
#define MOST_LINEARS 8

/* to [rows, n] = from [rows, n] with the columns in that order. */
#define REORDER(type, rows, n, order, from, to)                                                                        \
    for (size_t row = 0; row < (rows); row++)                                                                          \
        for (size_t k = 0; k < (n); k++)                                                                               \
            (to)[row * (n) + k] = ((const type *)(from))[row * (n) + (order)[k]]

/* Reorders the columns of floats [rows, n] into ctx->scratch. */
static calm_status reorder_floats(calm_ctx *ctx, size_t rows, size_t n, const size_t *order, const float *from,
                                  const float **out)
{
    float *to;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, to, rows * n));
    REORDER(float, rows, n, order, from, to);
    *out = to;
    return CALM_OK;
}

/* Reorders one row of doubles into ctx->scratch. */
static calm_status reorder_doubles(calm_ctx *ctx, size_t n, const size_t *order, const double *from,
                                   const double **out)
{
    double *to;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, to, n));
    REORDER(double, 1, n, order, from, to);
    *out = to;
    return CALM_OK;
}

/* Reorders rows and columns of a matrix [n, n] into ctx->scratch. */
static calm_status reorder_both(calm_ctx *ctx, size_t n, const size_t *order, const double *from, double **out)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *out, n * n));
    for (size_t i = 0; i < n; i++)
        REORDER(double, 1, n, order, from + order[i] * n, *out + i * n);
    return CALM_OK;
}

/* Reorders the numbers of the absorb groups. */
static calm_status reorder_groups(calm_ctx *ctx, const size_t *order, calm_job *job)
{
    const size_t n = job->linears[0].in;
    const uint32_t *from = job->absorb_group;
    uint32_t *to;
    if (!from)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, to, n));
    REORDER(uint32_t, 1, n, order, from, to);
    job->absorb_group = to;
    return CALM_OK;
}

/* Reorders the weights of all linears, which become one stacked matrix. */
static calm_status reorder_weights(calm_ctx *ctx, const size_t *order, calm_job *job)
{
    const size_t n = job->linears[0].in;
    calm_linear *linears;
    size_t rows = 0;
    float *to;
    for (size_t i = 0; i < job->n_linears; i++)
        rows += job->linears[i].out;
    CALM_TRY(calm_alloc(ctx, ctx->scratch, &to, rows, n * sizeof *to, "weights"));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, linears, job->n_linears));
    for (size_t i = 0; i < job->n_linears; i++) {
        linears[i] = job->linears[i];
        const size_t cells = linears[i].out * n, bad = calm_find_nonfinite(linears[i].w, cells);
        /* Checked here, where the message can name the original column. */
        if (bad < cells)
            return calm_fail(ctx, CALM_ENUMERIC, "%s.weight[%zu, %zu] is %g", linears[i].name, bad / n, bad % n,
                             linears[i].w[bad]);
        REORDER(float, linears[i].out, n, order, linears[i].w, to);
        linears[i].w = to;
        to += cells;
    }
    job->linears = linears;
    return CALM_OK;
}

/* Reorders H and its damping; a chain that needs a factor computes it. */
static calm_status reorder_hessian(calm_ctx *ctx, size_t n, const size_t *order, calm_hessian *hessian)
{
    const double *diagonal;
    CALM_TRY(reorder_both(ctx, n, order, hessian->h, &hessian->h));
    CALM_TRY(reorder_doubles(ctx, n, order, hessian->diagonal, &diagonal));
    hessian->diagonal = (double *)(uintptr_t)diagonal;
    /* The mean of the diagonal is summed in the new order, as in a chain that computes its own H. */
    calm_hessian_damp(n, hessian->diagonal, hessian->damp, hessian->h);
    hessian->inverse = NULL;
    hessian->lent = false;
    return CALM_OK;
}

/* Reorders the statistics that the chain needs; others become NULL. */
static calm_status reorder_stats(calm_ctx *ctx, size_t n, unsigned needs, calm_ordered_job *to)
{
    const calm_stats from = to->stats;
    double *both;
    to->stats = (calm_stats){.rows = from.rows};
    /* With a shared H there is no Gram matrix. */
    if (needs & CALM_NEEDS_GRAM && !to->shared) {
        CALM_TRY(reorder_both(ctx, n, to->order, from.gram, &both));
        to->stats.gram = both;
    }
    if (needs & CALM_NEEDS_CROSS && from.cross) {
        CALM_TRY(reorder_both(ctx, n, to->order, from.cross, &both));
        to->stats.cross = both;
    }
    if (needs & CALM_NEEDS_ABSMAX)
        CALM_TRY(reorder_floats(ctx, 1, n, to->order, from.absmax, &to->stats.absmax));
    if (needs & CALM_NEEDS_SUMS)
        CALM_TRY(reorder_doubles(ctx, n, to->order, from.sumabs, &to->stats.sumabs));
    if (from.sum)
        CALM_TRY(reorder_doubles(ctx, n, to->order, from.sum, &to->stats.sum));
    if (!(needs & CALM_NEEDS_SAMPLES))
        return CALM_OK;
    to->stats.n_samples = from.n_samples;
    return reorder_floats(ctx, from.n_samples, n, to->order, from.samples, &to->stats.samples);
}

calm_status calm_ordered_job_make(calm_ctx *ctx, const calm_job *job, unsigned needs, const calm_hessian *shared,
                                  calm_ordered_job *out)
{
    const size_t n = job->linears[0].in;
    *out = (calm_ordered_job){.job = *job, .stats = *job->stats};
    CALM_TRY(calm_inverse_order(ctx, n, job->stats->sumsq, &out->order));
    CALM_TRY(reorder_weights(ctx, out->order, &out->job));
    CALM_TRY(reorder_groups(ctx, out->order, &out->job));
    if (shared && needs & CALM_NEEDS_GRAM) {
        out->hessian = *shared;
        CALM_TRY(reorder_hessian(ctx, n, out->order, &out->hessian));
        out->shared = &out->hessian;
    }
    CALM_TRY(reorder_stats(ctx, n, needs, out));
    /* The chain checks that there is a Gram matrix, but reads H instead. */
    if (out->shared)
        out->stats.gram = out->hessian.h;
    out->job.stats = &out->stats;
    out->job.scheme.act_order = false;
    return CALM_OK;
}

size_t calm_ordered_job_bytes(const calm_job_shape *shape, unsigned needs)
{
    const size_t n = shape->in, both = CALM_BYTES(double, n * n);
    return calm_inverse_order_bytes(n) + CALM_BYTES(calm_linear, MOST_LINEARS) +
           CALM_BYTES(float, shape->out * n) + CALM_BYTES(uint32_t, n) +
           (needs & CALM_NEEDS_GRAM ? both + CALM_BYTES(double, n) : 0) + (needs & CALM_NEEDS_CROSS ? both : 0) +
           (needs & CALM_NEEDS_ABSMAX ? CALM_BYTES(float, n) : 0) +
           (needs & CALM_NEEDS_SUMS ? CALM_BYTES(double, n) : 0) + CALM_BYTES(double, n) +
           (needs & CALM_NEEDS_SAMPLES ? CALM_BYTES(float, shape->n_samples * n) : 0);
}

calm_status calm_ordered_job_restore(calm_ctx *ctx, const calm_ordered_job *from, const calm_job *job,
                                     calm_qjob *qjob)
{
    float *scale;
    CALM_SCOPED_SCRATCH(ctx);
    qjob->scheme = job->scheme;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, qjob->order, qjob->in));
    for (size_t k = 0; k < qjob->in; k++)
        qjob->order[k] = (uint32_t)from->order[k];
    if (!qjob->in_scale)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scale, qjob->in));
    memcpy(scale, qjob->in_scale, qjob->in * sizeof *scale);
    for (size_t k = 0; k < qjob->in; k++)
        qjob->in_scale[from->order[k]] = scale[k];
    return CALM_OK;
}
