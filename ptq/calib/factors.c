/* Factors of calibration rows. */
#include <math.h>

#include "ptq/calib/capture.h"

/* One random direction is a noisy measurement of a row, so weights far from the mean are clipped.  The limit is loose:
 * <bos>, which every later token attends to, really has gradients 20 to 160 times the mean. */
#define MOST_WEIGHT 32.0
/* The first token of a window of n tokens has weight n / 16, clipped to 1 .. 32: the more tokens attend to it, the
 * longer its gradients; with 512 tokens they are about 32 times the mean at the inputs of q, k and v
 * (docs/evidence/first_token.csv). */
#define FIRST_TOKENS 16.0f

bool calm_capture_factors(float *lengths, size_t n)
{
    double sum = 0;
    for (size_t t = 0; t < n; t++)
        sum += (double)lengths[t];
    if (!isfinite(sum))
        return false;
    const double mean = sum / (double)n;
    sum = 0;
    for (size_t t = 0; t < n; t++) {
        /* If all gradients are 0, all rows have equal weight. */
        lengths[t] = mean > 0 ? (float)fmin(fmax((double)lengths[t], mean / MOST_WEIGHT), mean * MOST_WEIGHT) : 1;
        sum += (double)lengths[t];
    }
    for (size_t t = 0; t < n; t++)
        lengths[t] = (float)sqrt((double)lengths[t] * (double)n / sum);
    return true;
}

void calm_capture_first_factors(const size_t *begin, size_t n, float *out)
{
    for (size_t t = begin[0]; t < begin[n]; t++)
        out[t - begin[0]] = 1;
    for (size_t w = 0; w < n; w++)
        if (begin[w + 1] > begin[w])
            out[begin[w] - begin[0]] =
                fminf(fmaxf((float)(begin[w + 1] - begin[w]) / FIRST_TOKENS, 1), (float)MOST_WEIGHT);
    /* Nothing is clipped: weights from 1 to 32 are within a factor of 32 of their mean. */
    calm_capture_factors(out, begin[n] - begin[0]);
}

calm_status calm_job_row_factors(calm_ctx *ctx, const calm_capture_options *options, calm_job_kind kind,
                                 const float *weight, size_t first, const uint32_t *rows, size_t n, const float **out)
{
    const float *factors = options->factors ? options->factors[kind] : NULL;
    float *both;
    *out = weight;
    if (!factors)
        return CALM_OK;
    *out = factors + first;
    if (!weight && !rows)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, both, n));
    for (size_t t = 0; t < n; t++)
        both[t] = factors[rows ? rows[t] : first + t] * (weight ? weight[t] : 1);
    *out = both;
    return CALM_OK;
}
