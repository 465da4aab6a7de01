/* Least-squares scales: for fixed codes the group scales that minimise tr((W - S Q) H (W - S Q)^T), row by row, H
 * damped (rows.c has the normal equations).  Kept for the rows whose loss falls with the scales as stored. */
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

typedef struct ls_job {
    const calm_problem *problem;
    calm_qjob *qjob;
    const double *h;
    size_t chunk;
} ls_job;

static calm_status ls_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const ls_job *job = user;
    size_t first = index * job->chunk, left = job->problem->out - first;
    calm_rows rows;
    CALM_TRY(calm_rows_load(ctx, &rows, job->problem, job->qjob, job->h, first, left < job->chunk ? left : job->chunk));
    CALM_TRY(calm_rows_begin_scales(ctx, &rows));
    calm_rows_scales(ctx, &rows);
    for (size_t r = 0; r < rows.n; r++)
        calm_rows_store(&rows, r);
    return CALM_OK;
}

static calm_status ls(calm_ctx *ctx, const calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const ls_options *options = opts;
    double *h;
    ls_job job = {.problem = problem, .qjob = qjob, .chunk = calm_rows_chunk(problem->n_groups)};
    CALM_TRY(calm_problem_damped(ctx, problem, options->damp, &h));
    job.h = h;
    return calm_parallel_for(ctx, (problem->out + job.chunk - 1) / job.chunk, ls_chunk, &job);
}

const calm_part calm_refit_ls = {
    .name = "ls",
    .revision = 1,
    .summary = "least-squares scales under the full Hessian",
    .reference = "-",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_NEEDS_GRAM,
    .opts_size = sizeof(ls_options),
    .opts = ls_table,
    .memory = calm_rows_refit_memory,
    .run.refit = ls,
};
