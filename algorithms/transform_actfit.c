/* Activation fit: weights that compensate the error of quantized activations, as MKQ-BERT's layer distillation does by
 * training (Tang et al. 2022, arXiv 2203.13483); here the minimum of that loss in closed form.
 *
 *   xq = Qa(x / in_scale) on the kept rows,  Hq = E[xq xq^T],  Cq = E[xq (x / in_scale)^T],  l = lambda mean diag Hq
 *   W* = W ((Hq + l I)^-1 (Cq + l I))^T
 *
 * which minimises E|W x - W* xq|^2 + l |W - W*|^2.  Later parts round W* for the input xq, so H becomes Hq.
 *
 * All sums are in double, over chunks of CHUNK kept rows, in order, each within one task. */
#include <stddef.h>
#include <string.h>

#include "algorithms/input_fit.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/linalg.h"

#define CHUNK ((size_t)256)    /* kept rows that are multiplied at once  */
#define TILE ((size_t)128)     /* rows of Hq and Cq that a task computes */
#define ROWS_PER_INPUT 8

typedef struct actfit_options {
    double lambda;
} actfit_options;

static const calm_option actfit_table[] = {
    {.name = "lambda", .help = "pull towards the original weights, as a share of the mean of diag Hq",
     .offset = offsetof(actfit_options, lambda), .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

/* Refuses schemes without quantized activations. */
static const char *refuses(const calm_scheme *scheme)
{
    return scheme->act_bits ? NULL : "activations stay float, so there is nothing to fit";
}

typedef struct actfit_job {
    const calm_problem *problem;
    size_t n;         /* number of kept rows                              */
    float *xq;        /* [n, I]                                           */
    double *h, *c;    /* [I, I] Hq, first its upper triangle; Cq          */
} actfit_job;

/* Computes rows first .. first + n - 1 of x / in_scale, in float32 as the model divides. */
static void scaled_rows(const calm_problem *problem, size_t first, size_t n, float *x)
{
    size_t in = problem->in;
    memcpy(x, problem->job->stats->samples + first * in, n * in * sizeof *x);
    for (size_t i = 0; problem->in_scale && i < n * in; i++)
        x[i] /= problem->in_scale[i % in];
}

static void quantize_chunk(size_t index, void *user)
{
    const actfit_job *job = user;
    const calm_scheme *scheme = &job->problem->job->scheme;
    size_t first = index * CHUNK, n = calm_size_min(job->n - first, CHUNK), in = job->problem->in;
    /* Scaled in the result's memory, then quantized in place. */
    float *xq = job->xq + first * in;
    scaled_rows(job->problem, first, n, xq);
    calm_actquant_rows(xq, n, in, scheme->act_bits, scheme->act_asymmetric, scheme->act_rule,
                       job->problem->act_global, xq);
}

/* Task: computes TILE rows of Hq and Cq. */
static calm_status multiply_tile(calm_ctx *ctx, size_t index, void *user)
{
    const actfit_job *job = user;
    size_t in = job->problem->in, start = index * TILE, tile = in - start < TILE ? in - start : TILE;
    float *x;
    double *a, *b;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, CHUNK * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a, CHUNK * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, b, CHUNK * in));
    for (size_t first = 0; first < job->n; first += CHUNK) {
        size_t n = calm_size_min(job->n - first, CHUNK);
        scaled_rows(job->problem, first, n, x);
        for (size_t i = 0; i < n * in; i++) {
            a[i] = job->xq[first * in + i];
            b[i] = x[i];
        }
        /* Hq is symmetric: only from the diagonal on. */
        calm_dgemm_tn(tile, in - start, n, 1, a + start, in, a + start, in, 1, job->h + start * in + start, in);
        calm_dgemm_tn(tile, in, n, 1, a + start, in, b, in, 1, job->c + start * in, in);
    }
    for (size_t i = start; i < start + tile; i++)
        for (size_t j = 0; j < in; j++) {
            job->h[i * in + j] /= (double)job->n;
            job->c[i * in + j] /= (double)job->n;
        }
    return CALM_OK;
}

/* Computes Hq and Cq over the kept rows. */
static calm_status multiply(calm_ctx *ctx, actfit_job *job)
{
    size_t in = job->problem->in, cells;
    if (!calm_size_mul(&cells, in, in))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", job->problem->job->name, in, in);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, job->xq, job->n * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job->c, cells));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job->h, cells));
    calm_parallel_each(ctx, (job->n + CHUNK - 1) / CHUNK, quantize_chunk, job);
    CALM_TRY(calm_parallel_for(ctx, (in + TILE - 1) / TILE, multiply_tile, job));
    calm_dsymmetrize(in, job->h, in);
    return CALM_OK;
}

static calm_status actfit(calm_ctx *ctx, calm_problem *problem, const void *opts)
{
    const actfit_options *options = opts;
    size_t in = problem->in, needed;
    actfit_job job = {.problem = problem, .n = problem->job->stats->n_samples};
    if (!calm_size_mul(&needed, ROWS_PER_INPUT, in) || job.n < needed)
        return calm_fail(ctx, CALM_ENUMERIC,
                         "%s: actfit has %zu kept rows for %zu inputs, needs %zu: more calibration windows",
                         problem->job->name, job.n, in, needed);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(multiply(ctx, &job));
    /* With rows that are all zero, as without input, there is nothing to fit to. */
    bool blind = true;
    for (size_t j = 0; j < in; j++)
        blind &= job.h[j * in + j] == 0;
    if (blind)
        return CALM_OK;
    CALM_TRY(calm_input_fit(ctx, problem, "actfit", job.h, job.c, options->lambda, 1));
    if (!problem->h)
        return CALM_OK;
    memcpy(problem->h, job.h, in * in * sizeof *problem->h);
    for (size_t j = 0; j < in; j++)
        problem->h_diag[j] = problem->h[j * in + j];
    return CALM_OK;
}

/* Counts the products of the kept rows, then the system and the rows of W*; all are released. */
static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    const size_t in = shape->in, square = CALM_BYTES(double, in * in), n_tiles = (in + TILE - 1) / TILE;
    const size_t tile = CALM_BYTES(float, CHUNK * in) + 2 * CALM_BYTES(double, CHUNK * in);
    (void)opts;
    return (calm_part_memory){.most = CALM_BYTES(float, shape->n_samples * in) + 2 * square +
                                      calm_size_max(calm_size_min(shape->n_threads, n_tiles) * tile,
                                                    calm_input_fit_scratch_bytes(shape))};
}

const calm_part calm_transform_actfit = {
    .name = "actfit",
    .revision = 1,
    .summary = "weights fitted to the quantized input",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_TRANSFORM,
    .caps = CALM_NEEDS_SAMPLES | CALM_FITS_INPUT,
    .products = 1,
    .opts_size = sizeof(actfit_options),
    .opts = actfit_table,
    .refuses = refuses,
    .memory = memory,
    .run.transform = actfit,
};
