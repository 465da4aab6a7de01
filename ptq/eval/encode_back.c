/* Cosine distance of sentence embeddings, with gradients. */
#include "ptq/eval/encode_back.h"

#include <math.h>

#include "ptq/base/scope.h"

/* Computes the embedding of hidden states, and its length. */
static calm_status pool(calm_ctx *ctx, const calm_pooling *pooling, const float *x, size_t n, double *room,
                        const double **out, double *length)
{
    double square = 0;
    *out = calm_pooling_run(pooling, x, n, room);
    for (size_t j = 0; j < pooling->width; j++)
        square += (*out)[j] * (*out)[j];
    *length = sqrt(square);
    return isfinite(*length) && *length > 0
               ? CALM_OK
               : calm_fail(ctx, CALM_ENUMERIC, "the length of a sentence's embedding is %g", *length);
}

calm_status calm_embedding_back(calm_ctx *ctx, const calm_pooling *pooling, const float *x, const float *y, size_t n,
                                double scale, double *loss, float *d)
{
    const size_t room = calm_pooling_room(pooling), width = pooling->width, hidden = pooling->hidden;
    const double *q, *f;
    double *stages[2], *dq, *dp, of_q, of_f, cosine = 0;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, stages[0], room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, stages[1], room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, dq, width));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, dp, hidden));
    CALM_TRY(pool(ctx, pooling, x, n, stages[0], &q, &of_q));
    CALM_TRY(pool(ctx, pooling, y, n, stages[1], &f, &of_f));
    for (size_t j = 0; j < width; j++)
        cosine += q[j] / of_q * (f[j] / of_f);
    *loss = 1 - cosine;
    if (!d)
        return CALM_OK;
    for (size_t j = 0; j < width; j++)
        dq[j] = scale * (cosine * q[j] / of_q - f[j] / of_f) / of_q;
    /* The reference's intermediate results are overwritten. */
    calm_pooling_back(pooling, stages[0], dq, stages[1], dp);
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < hidden; j++)
            d[t * hidden + j] = (float)(calm_pooling_weight(pooling->mode, n, t) * dp[j]);
    return CALM_OK;
}

size_t calm_embedding_back_scratch_bytes(const calm_config *config)
{
    const size_t room = config->pooling ? calm_pooling_room(config->pooling) : config->hidden;
    return 2 * CALM_BYTES(double, room) + CALM_BYTES(double, calm_pooling_width(config)) +
           CALM_BYTES(double, config->hidden);
}
