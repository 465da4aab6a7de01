/* SmoothQuant: move outliers of the input into the weights (Xiao et al. 2022, arXiv 2211.10438).
 *
 *   s_j = max(a_j^alpha / m_j^(1 - alpha), 1e-5),  a_j = max|x_j|,  m_j = max(max_i |W_ij|, 1e-5)
 *   W' = W diag(s), the input is divided by s
 *
 * m is taken over all linears of the job.  Then, beyond the paper: channels that have to share a scale (the query
 * heads of one kv head) take the geometric mean, and s is divided by sqrt(max s * min s), which changes no
 * code but keeps what the scale is folded into in the middle of the float16 range.  Where nothing before the job can
 * take the scale, the job is left as it is. */
#include <math.h>
#include <stddef.h>

#include "algorithms/smooth.h"

#define FLOOR 1e-5

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
        double weight = fmax(w_max[j], FLOOR);
        s[j] = fmax(pow(absmax[j], alpha) / pow(weight, 1 - alpha), FLOOR);
    }
}

/* max_i |W_ij| over the rows of all linears. */
static void column_maxima(const calm_target *target, float *w_max)
{
    for (size_t i = 0; i < target->out; i++)
        for (size_t j = 0; j < target->in; j++) {
            float a = fabsf(target->w[i * target->in + j]);
            w_max[j] = a > w_max[j] ? a : w_max[j];
        }
}

/* Replace s by its geometric mean over each absorb group. */
static calm_status share(calm_ctx *ctx, const calm_job *job, size_t n, double *s)
{
    double *sum;
    size_t *count;
    if (!job->absorb_group)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, sum, job->n_absorb_groups));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, count, job->n_absorb_groups));
    for (size_t j = 0; j < n; j++) {
        sum[job->absorb_group[j]] += log(s[j]);
        count[job->absorb_group[j]]++;
    }
    for (size_t j = 0; j < n; j++)
        s[j] = exp(sum[job->absorb_group[j]] / (double)count[job->absorb_group[j]]);
    return CALM_OK;
}

static calm_status smooth(calm_ctx *ctx, calm_target *target, const void *opts)
{
    const smooth_options *options = opts;
    float *w_max, *scale;
    double *s, least = INFINITY, most = 0;
    size_t n = target->in;
    if (!target->job->can_absorb)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w_max, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, scale, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s, n));
    column_maxima(target, w_max);
    calm_smooth_scale(options->alpha, n, target->job->stats->absmax, w_max, s);
    CALM_TRY(share(ctx, target->job, n, s));
    for (size_t j = 0; j < n; j++) {
        least = fmin(least, s[j]);
        most = fmax(most, s[j]);
    }
    double middle = sqrt(least * most);
    for (size_t j = 0; j < n; j++)
        scale[j] = (float)(s[j] / middle);
    return calm_target_scale(ctx, target, scale);
}

const calm_part calm_transform_smooth = {
    .name = "smooth",
    .revision = 1,
    .summary = "channel scales between input and weight maxima",
    .reference = "Xiao et al. 2022, arXiv 2211.10438",
    .kind = CALM_KIND_TRANSFORM,
    .caps = CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE,
    .opts_size = sizeof(smooth_options),
    .opts = smooth_table,
    .run.transform = smooth,
};
