/* Asymmetric calibration: fits weights that compensate the error of the input after quantized blocks (GPTAQ, Li et al.
 * 2025, arXiv 2504.02692; Qronos, Zhang et al. 2025, arXiv 2505.11695).
 *
 *   x the input after float blocks, x~ after the chosen quantized blocks (`calibration.prefix` asymmetric)
 *   H = E[x~ x~^T],  C = E[x~ x^T],  W* = W + alpha (W ((H + l I)^-1 (C + l I))^T - W),  l = lambda mean diag H
 *
 * With alpha 1, W* is the minimum of E|W x - W* x~|^2 + l |W - W*|^2; later parts round W* for the input x~.  The
 * papers correct in each step of GPTQ; calm corrects before, so that any rounding and refit can follow. */
#include <stddef.h>

#include "algorithms/input_fit.h"
#include "ptq/base/scope.h"

typedef struct asym_options {
    double alpha, lambda;
} asym_options;

static const calm_option asym_table[] = {
    {.name = "alpha", .help = "share of the fitted change to apply", .offset = offsetof(asym_options, alpha),
     .type = CALM_OPTION_DOUBLE, .fallback = "1", .min = 0, .max = 1},
    {.name = "lambda", .help = "pull towards the original weights, as a share of the mean of diag H",
     .offset = offsetof(asym_options, lambda), .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

static calm_status asym(calm_ctx *ctx, calm_problem *problem, const void *opts)
{
    const asym_options *options = opts;
    const calm_stats *stats = problem->job->stats;
    const size_t in = problem->in;
    double *c;
    if (!stats->rows)
        return CALM_OK;
    if (stats->rows / CALM_CROSS_ROWS_PER_INPUT < in)
        return calm_fail(ctx, CALM_ENUMERIC,
                         "%s: asym has %zu rows for %zu inputs, needs %zu: more calibration windows",
                         problem->job->name, stats->rows, in, CALM_CROSS_ROWS_PER_INPUT * in);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, c, in * in));
    /* Of the input as earlier transforms have left it, as problem->h is. */
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < in; j++) {
            const double s = problem->in_scale ? (double)problem->in_scale[i] * (double)problem->in_scale[j] : 1;
            c[i * in + j] = stats->cross[i * in + j] / (double)stats->rows / s;
        }
    return calm_input_fit(ctx, problem, "asym", problem->h, c, options->lambda, options->alpha);
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    (void)opts;
    return (calm_part_memory){.most = CALM_BYTES(double, shape->in * shape->in) + calm_input_fit_scratch_bytes(shape)};
}

const calm_part calm_transform_asym = {
    .name = "asym",
    .revision = 1,
    .summary = "weights fitted to the input behind quantized blocks",
    .reference = "Li et al. 2025, arXiv 2504.02692",
    .kind = CALM_KIND_TRANSFORM,
    .caps = CALM_NEEDS_GRAM | CALM_NEEDS_CROSS | CALM_FITS_INPUT,
    .products = 1,
    .opts_size = sizeof(asym_options),
    .opts = asym_table,
    .memory = memory,
    .run.transform = asym,
};
