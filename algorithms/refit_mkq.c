/* MKQ with the full Hessian: alternates least-squares scales and one sweep of coordinate descent over the codes.
 *
 *   loss = (w - s q) H (w - s q)^T per row, H damped
 *   until the loss of a row falls by no more than 1e-4 of itself in a round, or `rounds` are done
 *
 * Rows that share their scales stop together.  For asymmetric schemes with groups of at most 128 columns, the sweep
 * also changes zeros by one per round if that gains more (rows.c).
 *
 * MKQ-BERT (Tang et al. 2022, arXiv 2203.13483) learns scales by their gradient while it trains; here both scales
 * and codes descend on the layer's own quadratic loss, and each row stops by itself. */
#include <stddef.h>

#include "algorithms/descent.h"
#include "algorithms/rows.h"

#define LEAST_FALL 1e-4

typedef struct mkq_options {
    long long rounds;
    double damp;
} mkq_options;

static const calm_option mkq_table[] = {
    {.name = "rounds", .help = "most rounds of scales and codes", .offset = offsetof(mkq_options, rounds),
     .type = CALM_OPTION_INT, .fallback = "4", .min = 1, .max = 1000},
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(mkq_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

typedef struct descent {
    long long rounds;
    calm_descent_shared shared;
} descent;

/* For a descent that shares nothing. */
static const calm_descent_shared nothing_shared;

/* Records the loss of row r at this step; returns false if the row should stop early. */
static bool has_hope(const calm_descent_shared *shared, const calm_rows *rows, size_t r, size_t step)
{
    const size_t row = rows->row[r];
    if (shared->path && step < CALM_DESCENT_STEPS)
        shared->path[step * rows->problem->out + row] = rows->loss[r];
    return !shared->fall || !calm_descent_hopeless(shared, row, step, calm_rows_likely(rows, r));
}

/* Records the result of row r and drops it. */
static void end_row(const calm_descent_shared *shared, calm_rows *rows, size_t r)
{
    if (shared->least)
        shared->least[rows->row[r]] = calm_rows_least(rows, r);
    if (shared->path)
        shared->end[rows->row[r]] = rows->loss[r];
    calm_rows_drop(rows, r);
}

/* Ends the rows that should stop early at this step, and with `gain` those that gained too little.  Runs from the last
 * row down, because the last row replaces a dropped one. */
static void end_rows(const calm_descent_shared *shared, calm_rows *rows, size_t step, bool gain)
{
    for (size_t r = rows->n; r-- > 0;) {
        const bool hope = has_hope(shared, rows, r, step);
        if (!hope || (gain && !(rows->before[r] - rows->loss[r] > LEAST_FALL * rows->before[r])))
            end_row(shared, rows, r);
    }
}

/* Runs rounds of rows that share their scales, until they gain too little together. */
static calm_status alternate_shared(calm_ctx *ctx, calm_rows *rows, long long rounds)
{
    double before = 1, loss = 0;
    for (long long round = 0; round < rounds && before - loss > LEAST_FALL * before; round++) {
        CALM_TRY(calm_rows_scales(ctx, rows));
        CALM_TRY(calm_rows_sweep(ctx, rows, true, round + 1 < rounds));
        calm_rows_sums(rows, &before, &loss);
    }
    return CALM_OK;
}

/* Runs rounds until every row has stopped. */
static calm_status alternate(calm_ctx *ctx, calm_rows *rows, const void *opts)
{
    const descent *to = opts;
    const calm_descent_shared *shared = &to->shared;
    CALM_TRY(calm_rows_begin_scales(ctx, rows, shared->wh, shared->known));
    if (rows->shared)
        return alternate_shared(ctx, rows, to->rounds);
    for (long long round = 0; round < to->rounds && rows->n; round++) {
        CALM_TRY(calm_rows_scales(ctx, rows));
        end_rows(shared, rows, 2 * (size_t)round + 1, false);
        CALM_TRY(calm_rows_sweep(ctx, rows, true, round + 1 < to->rounds));
        end_rows(shared, rows, 2 * (size_t)round + 2, true);
    }
    while (rows->n)
        end_row(shared, rows, rows->n - 1);
    return CALM_OK;
}

calm_status calm_descent_mkq(calm_ctx *ctx, const calm_problem *problem, long long rounds, double damp,
                             const calm_descent_shared *shared, calm_qjob *qjob)
{
    const descent to = {rounds, shared ? *shared : nothing_shared};
    const size_t n = to.shared.row ? to.shared.n : problem->out,
                 chunk = calm_rows_chunk(ctx, problem, qjob);
    if (!to.shared.kept)
        return calm_rows_each(ctx, problem, qjob, damp, chunk, alternate, &to);
    return calm_rows_some(ctx, problem, qjob, to.shared.kept, to.shared.row, n, chunk, alternate, &to);
}

static calm_status mkq(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const mkq_options *options = opts;
    return calm_descent_mkq(ctx, problem, options->rounds, options->damp, NULL, qjob);
}

const calm_part calm_refit_mkq = {
    .name = "mkq",
    .revision = 5,
    .summary = "least-squares scales and coordinate descent in turn",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_NEEDS_GRAM,
    .products = 2.5,
    .in_float = true,
    .opts_size = sizeof(mkq_options),
    .opts = mkq_table,
    .memory = calm_rows_refit_memory,
    .run.refit = mkq,
};
