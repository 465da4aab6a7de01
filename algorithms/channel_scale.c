/* Sharing and normalisation of channel scales. */
#include "algorithms/channel_scale.h"

#include <math.h>

/* Replaces s by the geometric mean over the live channels of each absorb group, 0 without live channels. */
static calm_status share(calm_ctx *ctx, const calm_job *job, size_t n, double *s)
{
    double *sum;
    size_t *count;
    if (!job->absorb_group)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, sum, job->n_absorb_groups));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, count, job->n_absorb_groups));
    for (size_t j = 0; j < n; j++) {
        if (!(s[j] > 0))
            continue;
        sum[job->absorb_group[j]] += log(s[j]);
        count[job->absorb_group[j]]++;
    }
    for (size_t j = 0; j < n; j++) {
        const uint32_t group = job->absorb_group[j];
        s[j] = count[group] ? exp(sum[group] / (double)count[group]) : 0;
    }
    return CALM_OK;
}

size_t calm_channel_scale_bytes(const calm_job_shape *shape)
{
    const size_t n = shape->n_absorb_groups;
    return n ? CALM_BYTES(double, n) + CALM_BYTES(size_t, n) : 0;
}

calm_status calm_channel_scale(calm_ctx *ctx, const calm_problem *problem, double *s, float *scale)
{
    double sum = 0;
    size_t n_live = 0;
    CALM_TRY(share(ctx, problem->job, problem->in, s));
    for (size_t j = 0; j < problem->in; j++) {
        sum += s[j] > 0 ? log(s[j]) : 0;
        n_live += s[j] > 0;
    }
    const double middle = n_live ? exp(sum / (double)n_live) : 1;
    for (size_t j = 0; j < problem->in; j++)
        scale[j] = s[j] > 0 ? (float)(s[j] / middle) : 1;
    return CALM_OK;
}
