/* Sharing and normalisation of channel scales. */
#include "algorithms/channel_scale.h"

#include <math.h>

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

size_t calm_channel_scale_bytes(const calm_job_shape *shape)
{
    const size_t n = shape->n_absorb_groups;
    return n ? CALM_BYTES(double, n) + CALM_BYTES(size_t, n) : 0;
}

calm_status calm_channel_scale(calm_ctx *ctx, const calm_problem *problem, double *s, float *scale)
{
    double least = INFINITY, most = 0;
    CALM_TRY(share(ctx, problem->job, problem->in, s));
    for (size_t j = 0; j < problem->in; j++) {
        least = fmin(least, s[j]);
        most = fmax(most, s[j]);
    }
    /* Largest and smallest scale are then inverses of each other. */
    double middle = sqrt(least * most);
    for (size_t j = 0; j < problem->in; j++)
        scale[j] = (float)(s[j] / middle);
    return CALM_OK;
}
