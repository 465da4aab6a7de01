/* Latent attention (MLA) over one window: the steps that its forward and backward pass share.
 *
 *   a = q_a h                         [T, q_rank]; q = q_b N(a), or where there is no q_a one product of h
 *   [c | s] = kv_a h                  [T, kv_rank + rope]: the latent, and the part of the key that all heads share
 *   per head [k | v] = kv_b N(c)      [nope + value]; q is [nope | rope], and only rope turns by the position, with s
 *   scores = scale ([k | s] . q), o of the heads' weighted sums of v
 *
 * Reference: arXiv 2405.04434; transformers' modeling_deepseek_v3.py. */
#pragma once

#include "ptq/model/attention_impl.h"

/* What precedes the scores, in ctx->scratch. */
typedef struct calm_latent {
    float *q_a, *q_in;      /* [T, q_rank] as q_a gives it, and normalised; NULL without q_a       */
    float *kv_a, *kv_in;    /* [T, kv_rank + rope], the shared key turned; [T, kv_rank] normalised */
    calm_heads heads;
} calm_latent;

/* All up to q, k and v of all heads, before the rotation, from h [T, D]; observed at its hook points but the
 * context. */
calm_status calm_latent_project(calm_ctx *ctx, const calm_block *block, const float *h, const calm_span *span,
                                calm_apply_fn *apply, const calm_observer *observer, calm_latent *out);

/* What that leaves in ctx->scratch, and the most that preparing inputs takes on top of it while it runs. */
size_t calm_latent_project_bytes(const calm_config *config, size_t n_tokens);
size_t calm_latent_prepared_bytes(const calm_config *config, size_t n_tokens);

/* Widths of a row: of q over all heads, of k and v over all heads, and of the context. */
size_t calm_latent_q_width(const calm_config *config);
size_t calm_latent_kv_width(const calm_config *config);
size_t calm_latent_context_width(const calm_config *config);
