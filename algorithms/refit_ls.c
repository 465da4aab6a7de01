/* Least-squares scales: for fixed codes the group scales that minimise tr((W - S Q) H (W - S Q)^T), row by row, H
 * damped (rows_scales.c).  A row gets the new scales if its loss falls with the stored scales. */
#include <stddef.h>

#include "algorithms/rows.h"

typedef struct ls_options {
    double damp;
} ls_options;

static const calm_option ls_table[] = {
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(ls_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

/* Solves once per row, because codes do not change. */
static calm_status fit_scales(calm_ctx *ctx, calm_rows *rows, const void *opts)
{
    (void)opts;
    CALM_TRY(calm_rows_begin_scales(ctx, rows, NULL, NULL));
    return calm_rows_scales(ctx, rows);
}

static calm_status ls(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const ls_options *options = opts;
    return calm_rows_each(ctx, problem, qjob, options->damp, calm_rows_chunk(ctx, problem, qjob),
                          fit_scales, NULL);
}

const calm_part calm_refit_ls = {
    .name = "ls",
    .revision = 3,
    .summary = "least-squares scales under the full Hessian",
    .reference = "-",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_NEEDS_GRAM,
    .products = 1,
    .in_float = true,
    .opts_size = sizeof(ls_options),
    .opts = ls_table,
    .memory = calm_rows_refit_memory,
    .run.refit = ls,
};
