/* 1 - cosine of sentence embeddings, with gradients. */
#include "ptq/eval/encode_back.h"

#include <math.h>

#include "ptq/base/scope.h"
#include "ptq/eval/encode.h"

/* Embedding of the rows, and its length. */
static calm_status pool(calm_ctx *ctx, const float *x, size_t n, size_t width, double *mean, double *length)
{
    double square = 0;
    calm_embedding_mean(x, n, width, mean);
    for (size_t j = 0; j < width; j++)
        square += mean[j] * mean[j];
    *length = sqrt(square);
    return isfinite(*length) && *length > 0
               ? CALM_OK
               : calm_fail(ctx, CALM_ENUMERIC, "the length of a sentence's embedding is %g", *length);
}

calm_status calm_embedding_back(calm_ctx *ctx, const float *x, const float *y, size_t n, size_t width, double scale,
                                double *loss, float *d)
{
    double *q, *f, of_q, of_f, cosine = 0;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, q, width));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, f, width));
    CALM_TRY(pool(ctx, x, n, width, q, &of_q));
    CALM_TRY(pool(ctx, y, n, width, f, &of_f));
    for (size_t j = 0; j < width; j++)
        cosine += q[j] / of_q * (f[j] / of_f);
    *loss = 1 - cosine;
    for (size_t j = 0; d && j < width; j++) {
        const float g = (float)(scale * (cosine * q[j] / of_q - f[j] / of_f) / (of_q * (double)n));
        for (size_t t = 0; t < n; t++)
            d[t * width + j] = g;
    }
    return CALM_OK;
}

size_t calm_embedding_back_scratch_bytes(size_t width)
{
    return 2 * CALM_BYTES(double, width);
}
