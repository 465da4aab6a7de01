/* Channel refit: for fixed codes and scales, finds the best factor of the weights per input, which is folded into the
 * layer before the job like an input scale.
 *
 *   loss(t) = tr((W - Q diag(t)) Hd (W - Q diag(t))^T),  Q the weights as dequantized, Hd damped H
 *   A = (Q^T Q) o Hd,  b = diag(Q^T W Hd),  t = 1 + A^-1 (b - A 1),  in_scale /= t
 *
 * For inputs that share a scale (absorb groups), the rows and columns of A are summed.  The factor is 1 for an input
 * whose weights are all zero, and where it would be outside [1/2, 2]; all factors are 1 unless the loss falls with the
 * stored factors.
 *
 * All sums are in double, over chunks of CHUNK rows of the job, in order, each within one task. */
#include <stddef.h>

#include "algorithms/part.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/linalg.h"

#define CHUNK ((size_t)256)    /* rows that are multiplied at once        */
#define TILE ((size_t)128)     /* columns of Q^T Q that a task computes   */
#define RIDGE 1e-6             /* of the mean of A's diagonal, added to it */
#define LEAST 0.5
#define MOST 2.0

typedef struct channel_options {
    double damp;
} channel_options;

static const calm_option channel_table[] = {
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(channel_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

typedef struct channel_job {
    const calm_problem *problem;
    const calm_qjob *qjob;
    const double *h;    /* [I, I] damped, both triangles                                          */
    double *a;          /* [I, I] (Q^T Q) o H: first the upper triangle, then both                */
    double *right;      /* [I] b - A 1: half of the negative gradient of the loss at t = 1        */
} channel_job;

/* Computes rows first .. first + n - 1 of the dequantized job, q, and of its error W - Q, w. */
static void read_rows(const channel_job *job, size_t first, size_t n, float *read, double *q, double *w)
{
    const size_t in = job->problem->in;
    const calm_qjob some = calm_qjob_rows(job->qjob, first, n);
    calm_qjob_dequantize(&some, read);
    for (size_t i = 0; i < n * in; i++) {
        q[i] = read[i];
        w[i] = (double)job->problem->w[first * in + i] - q[i];
    }
}

/* Task: computes TILE rows of A and of the right side: diag(Q^T W H) - A 1 = diag(Q^T (W - Q) H). */
static calm_status multiply_tile(calm_ctx *ctx, size_t index, void *user)
{
    const channel_job *job = user;
    const calm_problem *problem = job->problem;
    const size_t in = problem->in, start = index * TILE, tile = calm_size_min(in - start, TILE);
    float *read;
    double *q, *w, *errors;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, read, CHUNK * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, q, CHUNK * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, w, CHUNK * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, errors, tile * in));
    for (size_t first = 0; first < problem->out; first += CHUNK) {
        const size_t n = calm_size_min(problem->out - first, CHUNK);
        read_rows(job, first, n, read, q, w);
        /* Q^T Q is symmetric: from the diagonal on. */
        calm_dgemm_tn(tile, in - start, n, 1, q + start, in, q + start, in, 1, job->a + start * in + start, in);
        calm_dgemm_tn(tile, in, n, 1, q + start, in, w, in, 1, errors, in);
    }
    for (size_t i = 0; i < tile; i++) {
        const double *h = job->h + (start + i) * in;
        double sum = 0;
        for (size_t j = 0; j < in; j++)
            sum += errors[i * in + j] * h[j];
        job->right[start + i] = sum;
        for (size_t j = start + i; j < in; j++)
            job->a[(start + i) * in + j] *= h[j];
    }
    return CALM_OK;
}

/* Returns the group of inputs with which input j shares its scale. */
static size_t group_of(const calm_job *job, size_t j)
{
    return job->absorb_group ? job->absorb_group[j] : j;
}

/* Solves the system [groups, groups] in `a` for t - 1, in `right` [groups]; false: there is no solution. */
static bool solve(calm_ctx *ctx, size_t n, double *a, double *right)
{
    double ridge = 0;
    /* After a failure the factors stay 1; the run continues. */
    calm_ctx trial = *ctx;
    for (size_t i = 0; i < n; i++)
        ridge += RIDGE * a[i * n + i] / (double)n;
    for (size_t i = 0; i < n; i++)
        a[i * n + i] += a[i * n + i] > 0 ? ridge : 1;    /* a dead input has zero row and column */
    return calm_dcholesky_upper(&trial, n, a, n) == CALM_OK &&
           calm_dcholesky_solve(&trial, n, a, n, 1, right, 1) == CALM_OK;
}

/* Returns the change of the loss by these stored scales instead of 1: d A d - 2 d right, d = 1 / s - 1. */
static double change_of_loss(const channel_job *job, const float *scale)
{
    const size_t in = job->problem->in;
    double change = 0;
    for (size_t i = 0; i < in; i++) {
        double sum = 0;
        for (size_t j = 0; j < in; j++)
            sum += job->a[i * in + j] * (1 / (double)scale[j] - 1);
        change += (1 / (double)scale[i] - 1) * (sum - 2 * job->right[i]);
    }
    return change;
}

/* Computes scale [I] = 1 / t. */
static calm_status fit(calm_ctx *ctx, const channel_job *job, float *scale)
{
    const calm_job *of = job->problem->job;
    const size_t in = job->problem->in, n = of->absorb_group ? of->n_absorb_groups : in;
    double *a, *right;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, a, n * n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, right, n));
    for (size_t i = 0; i < in; i++) {
        right[group_of(of, i)] += job->right[i];
        for (size_t j = 0; j < in; j++)
            a[group_of(of, i) * n + group_of(of, j)] += job->a[i * in + j];
    }
    const bool solved = solve(ctx, n, a, right);
    for (size_t j = 0; j < in; j++) {
        const double t = solved ? 1 + right[group_of(of, j)] : 1;
        scale[j] = t >= LEAST && t <= MOST ? (float)(1 / t) : 1;
    }
    /* False for NaN, too. */
    if (change_of_loss(job, scale) < 0)
        return CALM_OK;
    for (size_t j = 0; j < in; j++)
        scale[j] = 1;
    return CALM_OK;
}

/* Computes scale [I], allocated by the caller, and releases all other memory. */
static calm_status find_scale(calm_ctx *ctx, const calm_problem *problem, double damp, const calm_qjob *qjob,
                              float *scale)
{
    const size_t in = problem->in;
    channel_job job = {.problem = problem, .qjob = qjob};
    CALM_SCOPED_SCRATCH(ctx);
    job.h = calm_problem_damped(problem, damp);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job.a, in * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job.right, in));
    CALM_TRY(calm_parallel_for(ctx, (in + TILE - 1) / TILE, multiply_tile, &job));
    calm_dsymmetrize(in, job.a, in);
    return fit(ctx, &job, scale);
}

static calm_status channel(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const channel_options *options = opts;
    float *scale;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scale, problem->in));
    CALM_TRY(find_scale(ctx, problem, options->damp, qjob, scale));
    /* The codes do not change; they now represent W diag(in_scale) with another in_scale. */
    return calm_problem_scale(ctx, problem, scale);
}

/* Counts A, and the larger of the tiles' rows and the system of the factors; only the scale is kept. */
static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    const size_t in = shape->in, n = shape->n_absorb_groups ? shape->n_absorb_groups : in;
    const size_t n_tiles = (in + TILE - 1) / TILE;
    const size_t tile = CALM_BYTES(float, CHUNK * in) + 2 * CALM_BYTES(double, CHUNK * in) +
                        CALM_BYTES(double, calm_size_min(in, TILE) * in);
    (void)opts;
    return (calm_part_memory){CALM_BYTES(float, in),
                              CALM_BYTES(double, in * in) + CALM_BYTES(double, in) +
                                  calm_size_max(calm_size_min(shape->n_threads, n_tiles) * tile,
                                                CALM_BYTES(double, n * n) + CALM_BYTES(double, n))};
}

const calm_part calm_refit_channel = {
    .name = "channel",
    .revision = 1,
    .summary = "a factor per input in closed form, folded as an input scale",
    .reference = "-",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_NEEDS_GRAM | CALM_SETS_IN_SCALE,
    .products = 2,
    .opts_size = sizeof(channel_options),
    .opts = channel_table,
    .memory = memory,
    .run.refit = channel,
};
