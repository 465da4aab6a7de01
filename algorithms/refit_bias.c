/* Bias correction: adds the mean error of every output to the bias of its linear (Nagel et al. 2019, arXiv 1906.04721,
 * section 4.2, with the measured mean of the input).
 *
 *   delta = E[W x] - E[W^ xq] = (W - W^ diag(1/s)) E[x] + W^ E[x / s - xq],  xq = Qa(x / s)
 *
 * W are the weights before any transform, s the input scale, W^ the decoded weights.  E[x] is over all rows; E[x / s -
 * xq], the shift by quantizing the input, is over the kept rows, and 0 if inputs stay float.  Rows of linears without a
 * bias have delta 0.
 *
 * All sums are in double, over chunks of CHUNK kept rows, in order. */
#include <math.h>
#include <string.h>

#include "algorithms/part.h"
#include "ptq/base/scope.h"

#define CHUNK ((size_t)512)    /* number of kept rows that a task sums */

typedef struct bias_job {
    const calm_problem *problem;
    calm_qjob *qjob;
    double *mean;     /* [I] E[x] / s                                  */
    double *shift;    /* [I] E[x / s - xq]; NULL: inputs stay float    */
    double *parts;    /* [chunks of kept rows, I] sums of x / s - xq   */
} bias_job;

static size_t chunks_of(size_t n_samples)
{
    return (n_samples + CHUNK - 1) / CHUNK;
}

/* Task: sums x / s - xq over one chunk of kept rows. */
static calm_status add_shifts(calm_ctx *ctx, size_t index, void *user)
{
    const bias_job *job = user;
    const calm_problem *problem = job->problem;
    const calm_scheme *scheme = &problem->job->scheme;
    const calm_stats *stats = problem->job->stats;
    const size_t in = problem->in, end = calm_size_min((index + 1) * CHUNK, stats->n_samples);
    double *sum = job->parts + index * in;
    float *x, *xq;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, xq, in));
    memset(sum, 0, in * sizeof *sum);
    for (size_t row = index * CHUNK; row < end; row++) {
        memcpy(x, stats->samples + row * in, in * sizeof *x);
        for (size_t j = 0; problem->in_scale && j < in; j++)
            x[j] /= problem->in_scale[j];    /* in float32, as the model divides */
        calm_actquant_rows(x, 1, in, scheme->act_bits, scheme->act_asymmetric, scheme->act_rule,
                           problem->act_global, xq);
        for (size_t j = 0; j < in; j++)
            sum[j] += (double)x[j] - (double)xq[j];
    }
    return CALM_OK;
}

static calm_status measure_shift(calm_ctx *ctx, bias_job *job)
{
    const size_t in = job->problem->in, n = job->problem->job->stats->n_samples;
    size_t cells;
    if (!calm_size_mul(&cells, chunks_of(n), in))
        return calm_fail(ctx, CALM_ENOMEM, "%s: sums of %zu rows of %zu inputs do not fit", job->problem->job->name, n,
                         in);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job->shift, in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, job->parts, cells));
    CALM_TRY(calm_parallel_for(ctx, chunks_of(n), add_shifts, job));
    for (size_t c = 0; c < chunks_of(n); c++)
        for (size_t j = 0; j < in; j++)
            job->shift[j] += job->parts[c * in + j] / (double)n;
    return CALM_OK;
}

/* Returns the mean error of the output of row `row` of the job's stacked weights. */
static double row_error(const bias_job *job, size_t row, const float *w, float *quantized)
{
    const calm_problem *problem = job->problem;
    const calm_qjob one = calm_qjob_rows(job->qjob, row, 1);
    double error = 0;
    calm_qjob_dequantize(&one, quantized);
    for (size_t j = 0; j < problem->in; j++) {
        const double s = problem->in_scale ? (double)problem->in_scale[j] : 1;
        error += ((double)w[j] * s - (double)quantized[j]) * job->mean[j];
        error += job->shift ? (double)quantized[j] * job->shift[j] : 0;
    }
    return error;
}

static calm_status correct_rows(calm_ctx *ctx, size_t index, void *user)
{
    const bias_job *job = user;
    const calm_problem *problem = job->problem;
    const calm_linear *linear = problem->job->linears;
    size_t first, before = 0;    /* rows of the linears before this one */
    const size_t end = calm_problem_chunk(problem, index, &first) + first;
    float *quantized;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, quantized, problem->in));
    for (size_t row = first; row < end; row++) {
        while (row - before >= linear->out)
            before += linear++->out;
        if (!linear->bias)
            continue;
        const double error = row_error(job, row, linear->w + (row - before) * problem->in, quantized);
        job->qjob->bias_delta[row] = (float)error;
        if (!isfinite(job->qjob->bias_delta[row]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: the correction of the bias of row %zu is %g", linear->name,
                             row - before, error);
    }
    return CALM_OK;
}

static calm_status bias(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const calm_stats *stats = problem->job->stats;
    bias_job job = {.problem = problem, .qjob = qjob};
    (void)opts;
    if (!stats->rows)
        return CALM_OK;    /* without input there is no mean: nothing is corrected */
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job.mean, problem->in));
    for (size_t j = 0; j < problem->in; j++)
        job.mean[j] = stats->sum[j] / (double)stats->rows / (problem->in_scale ? (double)problem->in_scale[j] : 1);
    if (problem->job->scheme.act_bits && stats->n_samples)
        CALM_TRY(measure_shift(ctx, &job));
    return calm_problem_each_chunk(ctx, problem, correct_rows, &job);
}

/* Counts the means, the chunks' sums, and per worker two rows of the input or one of the weights; all are released. */
static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    const size_t chunks = chunks_of(shape->n_samples);
    const size_t rows = 2 * CALM_BYTES(float, shape->in) * calm_size_min(shape->n_threads, chunks);
    (void)opts;
    if (!shape->biased)
        return (calm_part_memory){0, 0};
    return (calm_part_memory){.most = 2 * CALM_BYTES(double, shape->in) + CALM_BYTES(double, chunks * shape->in) +
                                      calm_size_max(rows, calm_shape_workers(shape) * CALM_BYTES(float, shape->in))};
}

const calm_part calm_refit_bias = {
    .name = "bias",
    .revision = 1,
    .summary = "the mean error of the outputs moved into biases",
    .reference = "Nagel et al. 2019, arXiv 1906.04721",
    .kind = CALM_KIND_REFIT,
    .caps = CALM_SETS_BIAS,
    .memory = memory,
    .run.refit = bias,
};
