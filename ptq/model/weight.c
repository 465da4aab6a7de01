/* One linear as the forward pass applies it. */
#include "ptq/model/weight.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/quant/grid.h"
#include "ptq/tensor/linalg.h"

/* The input that the product reads: x / in_scale, then quantized per token; x itself if the linear has neither. */
static calm_status prepare_input(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                 const float **out)
{
    float *copy;
    size_t n = n_tokens * weight->in;
    *out = x;
    /* The usual case copies nothing. */
    if (!weight->in_scale && !weight->act_bits)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, copy, n));
    memcpy(copy, x, n * sizeof *copy);
    for (size_t t = 0; weight->in_scale && t < n_tokens; t++)
        for (size_t i = 0; i < weight->in; i++)
            /* A division, as the folded norm divides: a product with the inverse would round differently. */
            copy[t * weight->in + i] /= weight->in_scale[i];
    if (weight->act_bits)
        calm_actquant_rows(copy, n_tokens, weight->in, weight->act_bits, weight->act_asymmetric, weight->act_rule,
                               copy);
    *out = copy;
    return CALM_OK;
}

size_t calm_weight_apply_scratch_bytes(size_t in, size_t n_tokens)
{
    return CALM_BYTES(float, n_tokens * in);
}

calm_status calm_weight_apply(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y)
{
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(prepare_input(ctx, weight, x, n_tokens, &x));
    /* The product adds to the bias (beta = 1), so y is written once. */
    for (size_t t = 0; weight->bias && t < n_tokens; t++)
        memcpy(y + t * weight->out, weight->bias, weight->out * sizeof *y);
    calm_sgemm_nt(n_tokens, weight->out, weight->in, 1.0f, x, weight->in, weight->w, weight->in,
                  weight->bias ? 1.0f : 0.0f, y, weight->out);
    return CALM_OK;
}
