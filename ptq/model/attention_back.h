/* Forward and backward pass of attention over one window. */
#pragma once

#include "ptq/model/attention_impl.h"
#include "ptq/model/block_back.h"

typedef struct calm_attention_tape {
    calm_heads heads;           /* q, k and v as the scores read them                                 */
    float *raw_q, *raw_k;       /* before their norms, with the same strides; NULL: there is none     */
    float *raw_v;               /* [T, kv_stride] before its norm; NULL: there is none                */
    float *context;             /* [T, h d] input of o                                                */
    float *raw_context;         /* [T, h d] before its gate; NULL: it has none                        */
    calm_heads_kept kept;       /* of short windows                                                   */
} calm_attention_tape;

/* out [T, D] = f of the attention sublayer from h [T, D], on ctx's threads; the tape, which keeps `span`, is in
 * ctx->scratch. */
calm_status calm_attention_forward_tape(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                        const calm_span *span, float *out, calm_attention_tape *tape);

/* From dy [T, D] of that: gradients of the linears and of the norms of q and k are added to, dh [T, D] is written
 * (NULL: not wanted). */
calm_status calm_attention_back(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                const calm_attention_tape *tape, const float *dy, const calm_block_grads *grads,
                                float *dh);

/* What the tape takes of ctx->scratch for T tokens, and the most that each of the two holds besides, with its workers.
 */
size_t calm_attention_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_attention_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
size_t calm_attention_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
