/* MKQ with the full Hessian: alternate least-squares scales and one sweep of coordinate descent over the codes.
 *
 *   loss = (w - s q) H (w - s q)^T per row, H damped
 *   until the loss of a row falls by no more than 1e-4 of itself in a round, or `rounds` are done
 *
 * Rows that share their scales continue and stop together.  Of asymmetric schemes with groups of at most 128 columns
 * the sweep moves zeros, too, by one a round where that gains more (rows.c).
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
    {.name = "rounds", .help = "of scales and codes at most", .offset = offsetof(mkq_options, rounds),
     .type = CALM_OPTION_INT, .fallback = "4", .min = 1, .max = 1000},
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(mkq_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

typedef struct descent {
    long long rounds;
    calm_descent_shared shared;
} descent;

/* Row r has ended. */
static void note(const descent *to, const calm_rows *rows, size_t r)
{
    if (to->shared.least)
        to->shared.least[rows->row[r]] = calm_rows_least(rows, r);
}

/* Rounds until every row has stopped. */
static calm_status alternate(calm_ctx *ctx, calm_rows *rows, const void *opts)
{
    const descent *to = opts;
    CALM_TRY(calm_rows_begin_scales(ctx, rows, to->shared.wh, to->shared.known));
    for (long long round = 0; round < to->rounds && rows->n; round++) {
        calm_rows_scales(ctx, rows);
        calm_rows_sweep(rows, true);
        if (rows->shared) {    /* no row stops by itself */
            double before, loss;
            calm_rows_sums(rows, &before, &loss);
            if (!(before - loss > LEAST_FALL * before))
                break;
            continue;
        }
        /* From the last row down: a dropped one is replaced by the last, which has been looked at already. */
        for (size_t r = rows->n; r-- > 0;)
            if (!(rows->before[r] - rows->loss[r] > LEAST_FALL * rows->before[r])) {
                note(to, rows, r);
                calm_rows_drop(rows, r);
            }
    }
    for (size_t r = 0; r < rows->n; r++)
        note(to, rows, r);
    return CALM_OK;
}

calm_status calm_descent_mkq(calm_ctx *ctx, const calm_problem *problem, long long rounds, double damp,
                             calm_descent_shared *shared, calm_qjob *qjob)
{
    const descent to = {rounds, shared ? *shared : (calm_descent_shared){NULL, false, NULL}};
    CALM_TRY(calm_rows_each(ctx, problem, qjob, damp, calm_rows_chunk(qjob->scheme.family, problem->n_groups),
                            alternate, &to));
    if (shared)
        shared->known = shared->wh != NULL;
    return CALM_OK;
}

static calm_status mkq(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const mkq_options *options = opts;
    return calm_descent_mkq(ctx, problem, options->rounds, options->damp, NULL, qjob);
}

const calm_part calm_refit_mkq = {
    .name = "mkq",
    .revision = 4,
    .summary = "least-squares scales and coordinate descent in turn",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_NEEDS_GRAM,
    .products = 3.5,
    .opts_size = sizeof(mkq_options),
    .opts = mkq_table,
    .memory = calm_rows_refit_memory,
    .run.refit = mkq,
};
