/* Restarts: repeats GPTQ on the best scales with other orders of the columns; every row keeps its best result.
 *
 *   for k = 1 .. n:  columns by falling H_jj exp(jitter z_j), z_j standard normal
 *                    codes by GPTQ on the present scales, then rounds of mkq
 *                    a row whose loss fell takes these codes and scales
 *   loss = (w - s q) H (w - s q)^T per row, H damped
 *
 * In most orders a row ends above its best, so rows stop early when this is likely.  In the first order every fourth
 * row runs to its end and records its loss after GPTQ, after scales and after codes.  f = the quantile `leave` of (last
 * loss / loss at a step) over these rows; any other row stops at that step if f times its loss is not below its best.
 *
 * GPTQ is greedy and descent stops at a local minimum, so the result of a row depends mostly on the order of its
 * columns.  Rows are independent, so every row takes the best of n + 1 results, which no single order gives. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/descent.h"
#include "algorithms/rows.h"
#include "ptq/base/array.h"
#include "ptq/base/rng.h"
#include "ptq/base/scope.h"

/* The same orders in every run and on every machine. */
#define SEED ((uint64_t)0x63616c6d)    /* "calm" */
/* In the first order every EXPLORERS-th row runs to its end. */
#define EXPLORERS ((size_t)4)

typedef struct restarts_options {
    long long n, rounds;
    double jitter, damp, leave;
} restarts_options;

static const calm_option restarts_table[] = {
    {.name = "n", .help = "orders to try", .offset = offsetof(restarts_options, n), .type = CALM_OPTION_INT,
     .fallback = "8", .min = 1, .max = 100},
    {.name = "jitter", .help = "standard deviation of log H_jj in an order",
     .offset = offsetof(restarts_options, jitter), .type = CALM_OPTION_DOUBLE, .fallback = "0.5", .min = 0, .max = 100},
    {.name = "rounds", .help = "most rounds of scales and codes after each order",
     .offset = offsetof(restarts_options, rounds), .type = CALM_OPTION_INT, .fallback = "4", .min = 1, .max = 1000},
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(restarts_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = "leave", .help = "stop rows early that need a fall that only this share of the first order's rows had; "
                              "0: none",
     .offset = offsetof(restarts_options, leave), .type = CALM_OPTION_DOUBLE, .fallback = "0.4", .min = 0, .max = 0.9},
    {.name = NULL},
};

/* Allocates codes, scales, zeros and minima for a copy of the job, in ctx->scratch. */
static calm_status copy_job(calm_ctx *ctx, const calm_qjob *from, calm_qjob *to)
{
    const size_t cells = from->out * from->n_groups;
    *to = *from;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, to->codes, from->out * from->in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, to->scales, cells));
    /* Minima and zeros only if the scheme has them. */
    if (from->mins)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, to->mins, cells));
    return from->zeros ? CALM_NEW(ctx, ctx->scratch, to->zeros, cells) : CALM_OK;
}

/* Is W H computed once for all orders?  Not with minima, because they change W. */
static bool keeps_product(size_t in, bool minima)
{
    return !minima && calm_rows_keeps(in);
}

/* Returns the bytes of copy_job, and of W H if it is kept. */
static size_t copy_bytes(const calm_job_shape *shape)
{
    const size_t cells = shape->out * shape->n_groups, weights = shape->out * shape->in;
    const bool mins = calm_scheme_has_mins(&(calm_scheme){.family = shape->family});
    return CALM_BYTES(uint8_t, weights) + (mins ? 2 : 1) * CALM_BYTES(float, cells) +
           (shape->symmetric ? 0 : CALM_BYTES(uint8_t, cells)) +
           (keeps_product(shape->in, mins) ? CALM_BYTES(double, weights) : 0);
}

/* Copies the grids of rows first .. first + n - 1. */
static void copy_grids(const calm_qjob *from, calm_qjob *to, size_t first, size_t n)
{
    const size_t cell = first * from->n_groups, cells = n * from->n_groups;
    memcpy(to->scales + cell, from->scales + cell, cells * sizeof *to->scales);
    if (from->mins)
        memcpy(to->mins + cell, from->mins + cell, cells * sizeof *to->mins);
    if (from->zeros)
        memcpy(to->zeros + cell, from->zeros + cell, cells * sizeof *to->zeros);
}

/* ---- losses ---- */

typedef struct losses {
    double *of;    /* [O] */
} losses;

static calm_status keep_losses(calm_ctx *ctx, calm_rows *rows, const void *opts)
{
    const losses *out = opts;
    CALM_TRY(calm_rows_losses(ctx, rows));
    for (size_t r = 0; r < rows->n; r++)
        out->of[rows->row[r]] = rows->loss[r];
    return CALM_OK;
}

/* Measures the loss [O] of rows row [n] of the job, or (row NULL) of its first n. */
static calm_status measure(calm_ctx *ctx, const calm_problem *problem, const calm_rows_kept *kept, const size_t *row,
                           size_t n, calm_qjob *qjob, double *loss)
{
    const losses out = {loss};
    CALM_SCOPED_SCRATCH(ctx);
    return calm_rows_some(ctx, problem, qjob, kept, row, n, calm_rows_chunk(ctx, problem, qjob),
                          keep_losses, &out);
}

/* Lists in row [O] the rows of the trial that may beat the best loss, and copies the lower bounds to loss [O]. */
static size_t list_hopeful(size_t out, const double *least, const double *best, size_t *row, double *loss)
{
    size_t n = 0;
    for (size_t r = 0; r < out; r++) {
        if (!(least[r] > best[r]))
            row[n++] = r;
        loss[r] = least[r];
    }
    return n;
}

/* ---- the refit ---- */

/* Computes power [I] of the k-th order. */
static void jitter_powers(const calm_problem *problem, double jitter, uint64_t k, double *power)
{
    for (size_t j = 0; j < problem->in; j++)
        power[j] = problem->h_diag[j] * exp(jitter * calm_rng_normal(SEED, k, j));
}

/* Data that the orders of one job share. */
typedef struct orders {
    calm_rows_kept kept;
    calm_descent_shared shared;
    double *power;     /* [I] */
    double *best;      /* [O] losses of the job's present rows */
    double *loss;      /* [O] losses of the trial */
    double *fall;      /* [CALM_DESCENT_STEPS] */
    size_t *row;       /* [O] work; NULL: rows share their scales */
} orders;

static calm_status allocate_orders(calm_ctx *ctx, const calm_problem *problem, const calm_qjob *qjob,
                                   const restarts_options *options, orders *all)
{
    *all = (orders){.shared.kept = &all->kept};
    CALM_TRY(calm_rows_keep(ctx, problem, options->damp, &all->kept));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->power, qjob->in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->best, qjob->out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->loss, qjob->out));
    if (keeps_product(qjob->in, qjob->mins != NULL))
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, all->shared.wh, qjob->out * qjob->in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->shared.known, qjob->out));
    /* Rows that share their scales are compared together, so none stops early. */
    if (calm_scheme_rows(&qjob->scheme) > 1)
        return CALM_OK;
    all->shared.best = all->best;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->shared.least, qjob->out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->row, qjob->out));
    if (options->leave == 0)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->shared.path, CALM_DESCENT_STEPS * qjob->out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all->shared.end, qjob->out));
    return CALM_NEW(ctx, ctx->scratch, all->fall, CALM_DESCENT_STEPS);
}

/* Returns the bytes of allocate_orders without power, W H and H. */
static size_t orders_bytes(size_t out)
{
    return 4 * CALM_BYTES(double, out) + CALM_BYTES(double, CALM_DESCENT_STEPS * out) +
           CALM_BYTES(double, CALM_DESCENT_STEPS) + CALM_BYTES(size_t, out) + CALM_BYTES(bool, out);
}

/* Computes fall [CALM_DESCENT_STEPS]: at each step the quantile `leave` of (last loss / loss) over the explored rows
 * that reached the step; 0, with which no row stops, if none did.  `work` [O] is temporary. */
static void learn_falls(const calm_descent_shared *first, size_t out, double leave, double *work, double *fall)
{
    for (size_t step = 0; step < CALM_DESCENT_STEPS; step++) {
        const double *path = first->path + step * out;
        size_t n = 0;
        for (size_t i = 0; i < first->n; i++)
            if (path[first->row[i]] > 0)
                work[n++] = first->end[first->row[i]] / path[first->row[i]];
        qsort(work, n, sizeof *work, calm_compare_doubles);
        fall[step] = n ? work[(size_t)(leave * (double)n)] : 0;
    }
}

/* Lists the rows that continue after GPTQ, without the explored ones (every `done`-th; 0: none).  The others are given
 * up: their bound is infinite, so that their loss is not measured. */
static void list_rows(orders *all, size_t out, size_t done)
{
    calm_descent_shared *shared = &all->shared;
    shared->row = all->row;
    shared->n = 0;
    for (size_t r = 0; r < out; r++)
        if (done && r % done == 0)
            continue;
        else if (calm_descent_hopeless(shared, r, 0, all->loss[r]))
            shared->least[r] = INFINITY;
        else
            all->row[shared->n++] = r;
}

/* Runs some rows of the first order to their ends, to learn how far a loss may fall after each step. */
static calm_status explore(calm_ctx *ctx, const calm_problem *problem, const restarts_options *options, orders *all,
                           calm_qjob *trial)
{
    calm_descent_shared *shared = &all->shared;
    shared->row = all->row;
    shared->n = 0;
    for (size_t r = 0; r < trial->out; r += EXPLORERS)
        all->row[shared->n++] = r;
    CALM_TRY(calm_descent_mkq(ctx, problem, options->rounds, options->damp, shared, trial));
    learn_falls(shared, trial->out, options->leave, all->loss, all->fall);
    memcpy(all->loss, shared->path, trial->out * sizeof *all->loss);
    shared->fall = all->fall;
    shared->path = NULL;
    return CALM_OK;
}

/* Computes new codes of the trial by GPTQ, then descends. */
static calm_status descend(calm_ctx *ctx, const calm_problem *problem, const restarts_options *options, orders *all,
                           calm_qjob *trial)
{
    const bool explores = all->shared.path != NULL;
    {
        CALM_SCOPED_SCRATCH(ctx);    /* GPTQ's memory is released before the rows are loaded */
        CALM_TRY(calm_descent_gptq(ctx, problem, all->power, options->damp, explores ? all->shared.path : all->loss,
                                   trial));
    }
    CALM_SCOPED_SCRATCH(ctx);
    if (explores)
        CALM_TRY(explore(ctx, problem, options, all, trial));
    if (all->shared.fall)
        list_rows(all, trial->out, explores ? EXPLORERS : 0);
    return calm_descent_mkq(ctx, problem, options->rounds, options->damp, &all->shared, trial);
}

/* Copies rows first .. first + n - 1 of the trial to the job if the sum of their losses falls. */
static void keep_rows(const calm_qjob *trial, const double *loss, size_t first, size_t n, double *best, calm_qjob *qjob)
{
    double found = 0, bound = 0;
    for (size_t r = first; r < first + n; r++) {
        found += loss[r];
        bound += best[r];
    }
    if (!(found < bound))
        return;
    memcpy(best + first, loss + first, n * sizeof *best);
    memcpy(qjob->codes + first * qjob->in, trial->codes + first * qjob->in, n * qjob->in);
    copy_grids(trial, qjob, first, n);
}

/* Keeps better rows, one by one, or together if they share their scales. */
static void keep_better(const calm_problem *problem, const calm_qjob *trial, const double *loss, double *best,
                        calm_qjob *qjob)
{
    /* A row cannot take new scales alone if it shares them. */
    const bool shared = calm_scheme_rows(&qjob->scheme) > 1;
    const size_t units = shared ? calm_problem_chunks(problem) : qjob->out;
    for (size_t i = 0; i < units; i++) {
        size_t first = i;
        const size_t n = shared ? calm_problem_chunk(problem, i, &first) : 1;
        keep_rows(trial, loss, first, n, best, qjob);
    }
}

static calm_status restarts(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const restarts_options *options = opts;
    orders all;
    calm_qjob trial;
    CALM_TRY(copy_job(ctx, qjob, &trial));
    CALM_TRY(allocate_orders(ctx, problem, qjob, options, &all));
    CALM_TRY(measure(ctx, problem, &all.kept, NULL, qjob->out, qjob, all.best));
    for (long long k = 1; k <= options->n; k++) {
        size_t n = qjob->out;
        jitter_powers(problem, options->jitter, (uint64_t)k, all.power);
        copy_grids(qjob, &trial, 0, qjob->out);
        CALM_TRY(descend(ctx, problem, options, &all, &trial));
        if (all.row)
            n = list_hopeful(qjob->out, all.shared.least, all.best, all.row, all.loss);
        CALM_TRY(measure(ctx, problem, &all.kept, all.row, n, &trial, all.loss));
        keep_better(problem, &trial, all.loss, all.best, qjob);
    }
    return CALM_OK;
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    const calm_part_memory gptq = calm_descent_gptq_memory(shape), rows = calm_rows_refit_memory(shape, opts);
    /* H is rounded once for all orders. */
    const size_t h = calm_rows_kept_bytes(shape->in);
    const size_t kept = copy_bytes(shape) + CALM_BYTES(double, shape->in) + orders_bytes(shape->out) + h;
    return (calm_part_memory){kept, calm_size_max(gptq.kept + gptq.most, rows.kept + rows.most - h)};
}

const calm_part calm_refit_restarts = {
    .name = "restarts",
    .revision = 9,
    .summary = "GPTQ and descent again in other orders of the columns; the best row by row",
    .reference = "arXiv 2210.17323 and 2203.13483",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_NEEDS_GRAM | CALM_NEEDS_INVERSE,
    .products = 4,
    .factors = 2,    /* eight roots in float, each half the operations at twice the rate */
    .in_float = true,
    .opts_size = sizeof(restarts_options),
    .opts = restarts_table,
    .memory = memory,
    .run.refit = restarts,
};
