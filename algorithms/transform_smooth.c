/* SmoothQuant: move outliers of the input into the weights (Xiao et al. 2022, arXiv 2211.10438).
 *
 *   s_j = max(a_j^alpha / m_j^(1 - alpha), 1e-5),  a_j = max|x_j|,  m_j = max(max_i |W_ij|, 1e-5)
 *   W' = W diag(s), the input is divided by s
 *
 * m is over all linears of the job.  Unlike the paper, channel_scale.c shares s within absorb groups and normalises
 * it. */
#include <math.h>
#include <stddef.h>

#include "algorithms/channel_scale.h"
#include "algorithms/transform_smooth_impl.h"

typedef struct smooth_options {
    double alpha;
} smooth_options;

static const calm_option smooth_table[] = {
    {.name = "alpha", .help = "share of the input's range that moves into the weights",
     .offset = offsetof(smooth_options, alpha), .type = CALM_OPTION_DOUBLE, .fallback = "0.5", .min = 0, .max = 1},
    {.name = NULL},
};

void calm_smooth_scale(double alpha, size_t n, const float *absmax, const float *w_max, double *s)
{
    for (size_t j = 0; j < n; j++) {
        double weight = fmax(w_max[j], CALM_CHANNEL_FLOOR);
        s[j] = fmax(pow(absmax[j], alpha) / pow(weight, 1 - alpha), CALM_CHANNEL_FLOOR);
    }
}

/* Computes max_i |W_ij| over the rows of all linears. */
static void column_maxima(const calm_problem *problem, float *w_max)
{
    for (size_t i = 0; i < problem->out; i++)
        for (size_t j = 0; j < problem->in; j++) {
            float a = fabsf(problem->w[i * problem->in + j]);
            w_max[j] = a > w_max[j] ? a : w_max[j];
        }
}

static calm_status smooth(calm_ctx *ctx, calm_problem *problem, const void *opts)
{
    const smooth_options *options = opts;
    float *w_max, *scale;
    double *s;
    size_t n = problem->in;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w_max, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, scale, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s, n));
    /* Maxima of W and x after earlier transforms; `scale` holds the maxima of x until calm_channel_scale. */
    column_maxima(problem, w_max);
    for (size_t j = 0; j < n; j++)
        scale[j] = problem->job->stats->absmax[j] / (problem->in_scale ? problem->in_scale[j] : 1);
    calm_smooth_scale(options->alpha, n, scale, w_max, s);
    for (size_t j = 0; j < n; j++)
        s[j] = scale[j] > 0 && w_max[j] > 0 ? s[j] : 0;    /* a dead channel's floor would give an extreme scale */
    CALM_TRY(calm_channel_scale(ctx, problem, s, scale));
    return calm_problem_scale(ctx, problem, scale);
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    (void)opts;
    return (calm_part_memory){2 * CALM_BYTES(float, shape->in) + CALM_BYTES(double, shape->in) +
                                  calm_channel_scale_bytes(shape), 0};
}

const calm_part calm_transform_smooth = {
    .name = "smooth",
    .revision = 3,
    .summary = "channel scales between input and weight maxima",
    .reference = "Xiao et al. 2022, arXiv 2211.10438",
    .kind = CALM_KIND_TRANSFORM,
    .caps = CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE,
    .opts_size = sizeof(smooth_options),
    .opts = smooth_table,
    .memory = memory,
    .run.transform = smooth,
};
