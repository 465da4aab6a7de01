/* One linear as the forward pass applies it, with what quantization adds to it: input scales and quantized inputs. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/scheme.h"
#include "ptq/tensor/int_product.h"

/* y = A(x / in_scale) W^T + bias; all arrays are borrowed. */
typedef struct calm_weight {
    const char *name;         /* module: "model.layers.0.self_attn.q_proj"                 */
    size_t out, in;
    const float *w;           /* [out, in]; NULL: there is no such linear; with `ints` no floats */
    const calm_int_weight *ints;    /* the weight as whole numbers (int_linear.h), in the memory of w; or NULL */
    const void *bf16;         /* [out, in] in place of w's floats (row_linear.h), of any alignment; or NULL */
    const float *bias;        /* [out] or NULL                                             */
    const float *in_scale;    /* [in] or NULL = ones                                       */
    int act_bits;             /* A quantizes each token to this many bits; 0 = not at all    */
    bool act_asymmetric;      /* from its smallest to its largest value, with a zero point */
    calm_act_rule act_rule;   /* by this rule                                              */
    float act_global;         /* which may divide scales by it; else 0                     */
} calm_weight;

/* y [T, out] = the linear applied to x [T, in].  CALM_ENOMEM: no copy of x can be made, where the input is changed. */
calm_status calm_weight_apply(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y);

/* The same with rows and tiles of the product on ctx's threads (ptq/tensor/product.h): for a window that runs alone. */
calm_status calm_weight_apply_tiled(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                    float *y);

/* Either of the two. */
typedef calm_status calm_apply_fn(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y);

/* y[i] = linear i of n applied to the same x: side by side, and prepared once for neighbours that scale and quantize it
 * alike. */
calm_status calm_weight_apply_each(calm_ctx *ctx, calm_apply_fn *apply, size_t n, const calm_weight *const *weight,
                                   const float *x, size_t n_tokens, float *const *y);

/* What that holds of ctx->scratch when the input is prepared: scaled, or quantized. */
size_t calm_weight_apply_scratch_bytes(size_t in, size_t n_tokens);

/* Backward from dy [T, out]: dw [out, in] and dbias [out] are added to, dx [T, in] is written, or with `add` added to;
 * each may be NULL: not wanted.  x is what calm_weight_apply read.  CALM_ENUMERIC: a value of dw or dbias is not
 * finite, naming the linear. */
calm_status calm_weight_back(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, const float *dy,
                             float *dw, float *dbias, bool add, float *dx);

/* What that holds of ctx->scratch when the input was scaled or quantized. */
size_t calm_weight_back_scratch_bytes(size_t in, size_t n_tokens);
