/* Multi-head latent attention (MLA) over one window: the steps that its forward and backward pass share.
 *
 *   a = q_a h                         [T, q_rank]; q = q_b N(a), or without q_a one linear of h
 *   [c | s] = kv_a h                  [T, kv_rank + rope]: the latent, and the part of the key that heads share
 *   per head [k | v] = kv_b N(c)      [nope + value]; a head of q is [nope | rope]; RoPE rotates its rope part and s
 *   scores = scale ([k | s] . q); o reads the heads' weighted sums of v
 *
 * Reference: arXiv 2405.04434; transformers' modeling_deepseek_v3.py. */
#pragma once

#include "ptq/layers/attention_impl.h"

/* Values of the steps before the scores, in ctx->scratch. */
typedef struct calm_latent {
    float *q_a, *q_in;      /* [T, q_rank] output of q_a, and normalised; NULL without q_a         */
    float *kv_a, *kv_in;    /* [T, kv_rank + rope], the shared key rotated; [T, kv_rank] normalised */
    calm_heads heads;
} calm_latent;

/* Computes q, k and v of all heads, before the rotation, from h [T, D]; `observer` sees all hook points except the
 * context. */
calm_status calm_latent_project(calm_ctx *ctx, const calm_block *block, const float *h, const calm_span *span,
                                calm_apply_fn *apply, const calm_observer *observer, calm_latent *out);

/* Return the bytes that this allocates in ctx->scratch, and the peak of scaling or quantizing inputs in addition. */
size_t calm_latent_project_bytes(const calm_config *config, size_t n_tokens);
size_t calm_latent_prepared_bytes(const calm_config *config, size_t n_tokens);

/* Return the width of a row of q, of k and v together, and of the context, each over all heads. */
size_t calm_latent_q_width(const calm_config *config);
size_t calm_latent_kv_width(const calm_config *config);
size_t calm_latent_context_width(const calm_config *config);
