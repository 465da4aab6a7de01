/* AWQ: channel scales from the magnitude of the input, with an exponent found by search (Lin et al. 2023, arXiv
 * 2306.00978).
 *
 *   s_j = m_j^r,  m_j = mean|x_j|,  r in {0, 0.05, ..., 0.95};  W' = W diag(s), the input is divided by s
 *   chosen: the r of least tr((W - Q/s) H (W - Q/s)^T), the smaller one of equals; Q = the nearest codes of W' on the
 *   chain's own grid, H undamped
 *
 * The paper measures outputs on a sample and clips weights by a separate search; here H measures outputs on all rows,
 * and the chain's grid clips.  m > 0 is at least CALM_CHANNEL_FLOOR; channel_scale.c shares s within absorb groups and
 * normalises it.  An exponent whose grid cannot be stored is not chosen. */
#include <math.h>
#include <stddef.h>

#include "algorithms/channel_scale.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/linalg.h"

#define N_RATIOS ((size_t)20)
#define RATIO_STEP 0.05
#define BLOCK ((size_t)128)

/* The search: tasks are pairs of an exponent and a chunk of rows. */
typedef struct awq_search {
    const calm_problem *problem;
    size_t n_chunks;
    float *scale;      /* [N_RATIOS, I] s                     */
    double *h_diag;    /* [N_RATIOS, I] diag H / s^2           */
    float *global;     /* [N_RATIOS] global of W diag(s)       */
    double *loss;      /* [N_RATIOS, n_chunks] loss per task   */
} awq_search;

/* The state of a task. */
typedef struct awq_chunk {
    calm_problem problem;    /* the problem with s, except for w and h     */
    const float *scale;      /* [I] s                                      */
    size_t first, n;         /* rows                                       */
    float *w;                /* [n, I] W diag(s)                           */
    calm_qjob qjob;          /* Q, of the n rows                           */
    double *e;               /* [n, I] W - Q/s                             */
    double *product;         /* [n, I]                                     */
} awq_chunk;

/* Computes the errors of the chunk's row r. */
static void subtract(const awq_chunk *chunk, size_t r)
{
    const calm_problem *problem = &chunk->problem;
    const float *w = problem->w + (chunk->first + r) * problem->in, *s = chunk->scale;
    const uint8_t *codes = chunk->qjob.codes + r * problem->in;
    double *e = chunk->e + r * problem->in;
    for (size_t j = 0; j < problem->in; j++) {
        const calm_grid grid = calm_qjob_grid(&chunk->qjob, r * problem->n_groups + j / problem->group);
        e[j] = w[j] - ((double)grid.scale * calm_level_value(&problem->job->scheme, grid.zero, codes[j]) +
                       (double)grid.min) / s[j];
    }
}

/* Returns the sum over rows of e H e^T, from the blocks on and above the diagonal. */
static double quadratic(const awq_chunk *chunk)
{
    size_t in = chunk->problem.in;
    double sum = 0;
    for (size_t start = 0; start < in; start += BLOCK) {
        size_t width = in - start < BLOCK ? in - start : BLOCK;
        const double *h = chunk->problem.h + start * in + start, *e = chunk->e + start;
        calm_dgemm_nn(chunk->n, in - start, width, 1, e, in, h, in, 0, chunk->product, in);
        for (size_t r = 0; r < chunk->n; r++)
            for (size_t j = 0; j < in - start; j++)
                sum += (j < width ? 1 : 2) * chunk->product[r * in + j] * e[r * in + j];
    }
    return sum;
}

/* Measures the loss of one exponent over the rows of chunk `index`. */
static calm_status measure(calm_ctx *ctx, const awq_search *search, size_t ratio, size_t index, double *loss)
{
    const calm_problem *problem = search->problem;
    const size_t in = problem->in;
    awq_chunk chunk = {.problem = *problem, .scale = search->scale + ratio * in};
    chunk.n = calm_problem_chunk(problem, index, &chunk.first);
    chunk.problem.h_diag = search->h_diag + ratio * in;
    chunk.problem.global = search->global[ratio];
    chunk.qjob = (calm_qjob){.out = chunk.n, .in = in, .n_groups = problem->n_groups, .group = problem->group,
                             .scheme = problem->job->scheme};
    CALM_SCOPED_OUT(ctx, ctx->scratch);    /* the codes are temporary */
    CALM_TRY(calm_qjob_new(ctx, 0, &chunk.qjob));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, chunk.w, chunk.n * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, chunk.e, chunk.n * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, chunk.product, chunk.n * in));
    for (size_t i = 0; i < chunk.n * in; i++)
        chunk.w[i] = problem->w[chunk.first * in + i] * chunk.scale[i % in];    /* in float32, as it would be stored */
    CALM_TRY(calm_problem_chunk_nearest(ctx, &chunk.problem, index, chunk.w, &chunk.qjob));
    for (size_t r = 0; r < chunk.n; r++)
        subtract(&chunk, r);
    *loss = quadratic(&chunk);
    return CALM_OK;
}

/* Task: an exponent whose grid cannot be stored has infinite loss; other failures fail the task. */
static calm_status measure_task(calm_ctx *ctx, size_t index, void *user)
{
    awq_search *search = user;
    calm_ctx trial = *ctx;
    calm_status status = measure(&trial, search, index / search->n_chunks, index % search->n_chunks,
                                 &search->loss[index]);
    if (status == CALM_ENUMERIC)
        search->loss[index] = INFINITY;
    else if (status != CALM_OK)
        return calm_fail(ctx, status, "%s", trial.message);
    return CALM_OK;
}

/* Returns `global` of the problem with weights W diag(s). */
static float global_of(const calm_problem *problem, const float *s)
{
    float most = 0;
    if (!calm_scheme_has_global(&problem->job->scheme))
        return problem->global;
    for (size_t i = 0; i < problem->out * problem->in; i++)
        most = fmaxf(most, fabsf(problem->w[i] * s[i % problem->in]));
    return calm_scale_global(&problem->job->scheme, most);
}

/* Computes the channel scales of all exponents. */
static calm_status prepare(calm_ctx *ctx, const calm_problem *problem, awq_search *search)
{
    size_t n = problem->in;
    const calm_stats *stats = problem->job->stats;
    double *s;
    *search = (awq_search){.problem = problem, .n_chunks = calm_problem_chunks(problem)};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, search->scale, N_RATIOS * n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, search->h_diag, N_RATIOS * n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, search->loss, N_RATIOS * search->n_chunks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, search->global, N_RATIOS));
    for (size_t i = 0; i < N_RATIOS; i++) {
        float *scale = search->scale + i * n;
        for (size_t j = 0; j < n; j++) {
            double mean = stats->rows ? stats->sumabs[j] / (double)stats->rows : 0;
            /* m is the mean of the input after earlier transforms. */
            if (problem->in_scale)
                mean /= problem->in_scale[j];
            s[j] = mean > 0 ? pow(fmax(mean, CALM_CHANNEL_FLOOR), RATIO_STEP * (double)i) : 0;
        }
        CALM_TRY(calm_channel_scale(ctx, problem, s, scale));
        for (size_t j = 0; j < n; j++)
            search->h_diag[i * n + j] = problem->h_diag[j] / ((double)scale[j] * scale[j]);
        search->global[i] = global_of(problem, scale);
    }
    return CALM_OK;
}

/* Returns the first exponent of least loss; 0, scales of ones, if no grid can be stored: the rounding then fails and
 * names it. */
static size_t choose(const awq_search *search)
{
    size_t best = 0;
    double least = INFINITY;
    for (size_t i = 0; i < N_RATIOS; i++) {
        double loss = 0;
        for (size_t c = 0; c < search->n_chunks; c++)
            loss += search->loss[i * search->n_chunks + c];
        if (loss < least) {
            least = loss;
            best = i;
        }
    }
    return best;
}

static calm_status awq(calm_ctx *ctx, calm_problem *problem, const void *opts)
{
    awq_search search;
    (void)opts;
    CALM_TRY(prepare(ctx, problem, &search));
    CALM_TRY(calm_parallel_for(ctx, N_RATIOS * search.n_chunks, measure_task, &search));
    return calm_problem_scale(ctx, problem, search.scale + choose(&search) * problem->in);
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    const size_t in = shape->in, tasks = N_RATIOS * calm_shape_chunks(shape);
    const size_t rows = calm_size_min(shape->out, CALM_ROW_CHUNK), cells = rows * in;
    const calm_scheme scheme = {.group = shape->group, .symmetric = shape->symmetric, .family = shape->family};
    const size_t scales = CALM_BYTES(double, in) + CALM_BYTES(float, N_RATIOS * in) +
                          CALM_BYTES(double, N_RATIOS * in) + CALM_BYTES(float, N_RATIOS);
    calm_job_shape one = *shape;    /* grids of a worker */
    one.n_threads = 1;
    (void)opts;
    return (calm_part_memory){scales + CALM_BYTES(double, tasks) + N_RATIOS * calm_channel_scale_bytes(shape),
                              calm_size_min(shape->n_threads, tasks) *
                                  (calm_problem_nearest_scratch_bytes(&one) + calm_qjob_bytes(&scheme, rows, in, 0) +
                                   CALM_BYTES(float, cells) + 2 * CALM_BYTES(double, cells))};
}

const calm_part calm_transform_awq = {
    .name = "awq",
    .revision = 2,
    .summary = "channel scales by input size, the exponent searched",
    .reference = "Lin et al. 2023, arXiv 2306.00978",
    .kind = CALM_KIND_TRANSFORM,
    .caps = CALM_NEEDS_GRAM | CALM_NEEDS_SUMS | CALM_SETS_IN_SCALE,
    .products = 20,
    .memory = memory,
    .run.transform = awq,
};
