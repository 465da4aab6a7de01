/* One linear as the forward pass applies it, with input scales and quantized inputs. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/scheme.h"
#include "ptq/tensor/int_product.h"

/* y = A(x / in_scale) W^T + bias; all arrays are borrowed. */
typedef struct calm_weight {
    const char *name;         /* module: "model.layers.0.self_attn.q_proj"                 */
    size_t out, in;
    const float *w;           /* [out, in]; NULL: there is no such linear; holds no floats if `ints` is set */
    const calm_int_weight *ints;    /* integer codes of the weight (int_linear.h), in the memory of w; or NULL */
    const void *bf16;         /* [out, in] bfloat16 instead of w's floats (row_linear.h), any alignment; or NULL */
    const float *bias;        /* [out] or NULL                                             */
    const float *in_scale;    /* [in] or NULL = ones                                       */
    int act_bits;             /* A quantizes each token to this many bits; 0 = not at all    */
    bool act_asymmetric;      /* the range is from the smallest to the largest value, with a zero point */
    calm_act_rule act_rule;   /* rounding rule of A                                        */
    float act_global;         /* divisor of A's scales, or its static scale, if the rule has one; else 0 */
} calm_weight;

/* Applies the linear: y [T, out] from x [T, in].  CALM_ENOMEM: no memory for a copy of x, where the input is scaled or
 * quantized. */
calm_status calm_weight_apply(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y);

/* Does the same with rows and tiles of the product on ctx's threads (ptq/tensor/product.h), for a window that runs
 * alone. */
calm_status calm_weight_apply_tiled(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                    float *y);

/* Type of these two functions. */
typedef calm_status calm_apply_fn(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y);

/* Applies n linears to the same x: y[i] from weight[i].  Consecutive linears that scale and quantize x alike share the
 * result. */
calm_status calm_weight_apply_each(calm_ctx *ctx, calm_apply_fn *apply, size_t n, const calm_weight *const *weight,
                                   const float *x, size_t n_tokens, float *const *y);

/* Returns its bytes of ctx->scratch when the input is prepared, that is scaled or quantized. */
size_t calm_weight_apply_scratch_bytes(size_t in, size_t n_tokens);

/* Backward pass from dy [T, out]: adds to dw [out, in] and dbias [out], and writes dx [T, in], or with `add` adds to
 * it; each may be NULL: not wanted.  x is the input of calm_weight_apply.  CALM_ENUMERIC: a value of dw or dbias is not
 * finite, naming the linear. */
calm_status calm_weight_back(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, const float *dy,
                             float *dw, float *dbias, bool add, float *dx);

/* Returns its bytes of ctx->scratch when the input was scaled or quantized. */
size_t calm_weight_back_scratch_bytes(size_t in, size_t n_tokens);
