/* Forward and backward pass of attention over one window. */
#pragma once

#include "ptq/arch/kind.h"
#include "ptq/layers/attention_impl.h"

typedef struct calm_attention_tape {
    calm_heads heads;           /* q, k and v after norms and rotation                                */
    float *raw_q, *raw_k;       /* q and k before their norms, same strides; NULL: no norms           */
    float *raw_v;               /* [T, kv_stride] v before its norm; NULL: no norm                    */
    float *context;             /* [T, h d] input of o                                                */
    float *raw_context;         /* [T, h d] context before its gate; NULL: no gate                    */
    calm_heads_kept kept;       /* probabilities, for short windows                                   */
} calm_attention_tape;

/* Members of calm_kind_back: the forward pass, and the backward pass with dx ignored, on ctx's threads.  `tape`: a
 * calm_attention_tape, which refers to the span, with arrays in ctx->scratch. */
calm_status calm_attention_forward_tape(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *tape);
calm_status calm_attention_back(calm_ctx *ctx, const calm_kind_pass *pass, const void *tape, const float *dy,
                                const calm_block_grads *grads, float *dh, float *dx);

/* Return the bytes of ctx->scratch of the tape for T tokens, and the peak of each pass in addition, workers
 * included. */
size_t calm_attention_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_attention_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
size_t calm_attention_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
