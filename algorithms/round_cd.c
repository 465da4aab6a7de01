/* Coordinate descent from the nearest codes: cyclic sweeps over the columns (rows.c has the sweep).
 *
 *   q_j = round((w_j + sum over k != j of H_jk e_k / H_jj) / s_j) clipped,  e = w - s q,  H damped
 *
 * Each change lowers (w - s q) H (w - s q)^T, so the result is never worse than rounding to nearest under that loss. */
#include <stddef.h>

#include "algorithms/rows.h"

typedef struct cd_options {
    long long sweeps;
    double damp;
} cd_options;

static const calm_option cd_table[] = {
    {.name = "sweeps", .help = "over all columns", .offset = offsetof(cd_options, sweeps), .type = CALM_OPTION_INT,
     .fallback = "1", .min = 1, .max = 1000},
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(cd_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

/* Sweeps all rows every time: there are few sweeps, and a sweep that changes nothing costs only a product. */
static calm_status sweep_rows(calm_ctx *ctx, calm_rows *rows, const void *opts)
{
    const cd_options *options = opts;
    for (long long sweep = 0; sweep < options->sweeps; sweep++)
        CALM_TRY(calm_rows_sweep(ctx, rows, false, false));
    return CALM_OK;
}

static calm_status cd(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const cd_options *options = opts;
    CALM_TRY(calm_problem_nearest(ctx, problem, qjob));
    return calm_rows_each(ctx, problem, qjob, options->damp, CALM_ROW_CHUNK, sweep_rows, options);
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    const size_t rows = calm_size_min(shape->out, CALM_ROW_CHUNK);
    (void)opts;
    return (calm_part_memory){.most = calm_size_max(calm_problem_nearest_scratch_bytes(shape),
                                                    calm_rows_kept_bytes(shape->in) +
                                                        calm_shape_workers(shape) * calm_rows_load_bytes(shape, rows))};
}

const calm_part calm_round_cd = {
    .name = "cd",
    .revision = 2,
    .summary = "nearest, then coordinate descent under the full Hessian",
    .reference = "-",
    .kind = CALM_KIND_ROUND,
    .caps = CALM_NEEDS_GRAM,
    .products = 2,
    .in_float = true,
    .opts_size = sizeof(cd_options),
    .opts = cd_table,
    .memory = memory,
    .run.round = cd,
};
