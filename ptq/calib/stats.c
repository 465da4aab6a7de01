/* Statistics of a whole matrix, as calibration collects them window by window. */

#include "ptq/calib/capture.h"
#include "ptq/calib/gram.h"

calm_status calm_stats_new(calm_ctx *ctx, const float *x, size_t n, size_t width, calm_stats *out)
{
    CALM_ENTER(ctx, x && out);
    const size_t row_begin[] = {0, n};
    calm_channel_sums sums;
    double *gram;
    size_t cells, bad;
    if (!n || !width || !calm_size_mul(&cells, n, width) || !calm_size_mul(&cells, width, width))
        return calm_fail(ctx, CALM_EARG, "calm_stats_new: expected a matrix that fits, found [%zu, %zu]", n, width);
    bad = calm_find_nonfinite(x, n * width);
    if (bad < n * width)
        return calm_fail(ctx, CALM_ENUMERIC, "calm_stats_new: x[%zu, %zu] is %g", bad / width, bad % width, x[bad]);
    CALM_TRY(calm_channel_sums_new(ctx, ctx->out, width, &sums));
    CALM_TRY(CALM_NEW(ctx, ctx->out, gram, cells));
    const calm_gram_job job = {gram, x, n, width, row_begin, 1, NULL};
    CALM_TRY(calm_gram_add(ctx, &job, 1));
    calm_gram_mirror(ctx, width, gram);
    calm_channel_sums_add(ctx, x, n, width, NULL, &sums);
    *out = (calm_stats){.rows = n, .gram = gram, .absmax = sums.absmax, .sum = sums.sum, .sumsq = sums.sumsq,
                        .sumabs = sums.sumabs, .samples = x, .n_samples = n};
    return CALM_OK;
}
