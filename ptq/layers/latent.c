/* Latent attention: the steps before the scores. */
#include "ptq/layers/latent.h"

#include "ptq/base/threads.h"

/* Each head has nope and rope channels. */
size_t calm_latent_q_width(const calm_config *config)
{
    return config->n_heads * (config->latent.nope + config->latent.rope);
}

/* Each head has a key and a value, next to each other. */
size_t calm_latent_kv_width(const calm_config *config)
{
    return config->n_heads * (config->latent.nope + config->latent.value);
}

size_t calm_latent_context_width(const calm_config *config)
{
    return config->n_heads * config->latent.value;
}

/* Returns the columns of kv_a. */
static size_t kv_a_width(const calm_config *config)
{
    return config->latent.kv_rank + config->latent.rope;
}

size_t calm_latent_project_bytes(const calm_config *config, size_t n_tokens)
{
    const calm_latent_config *latent = &config->latent;
    /* The latent before and after its norm: the norm's backward pass reads the first. */
    const size_t q_a = latent->q_rank ? 2 * CALM_BYTES(float, n_tokens * latent->q_rank) : 0;
    return q_a + CALM_BYTES(float, n_tokens * kv_a_width(config)) + CALM_BYTES(float, n_tokens * latent->kv_rank)
           + CALM_BYTES(float, n_tokens * calm_latent_q_width(config))
           + CALM_BYTES(float, n_tokens * calm_latent_kv_width(config));
}

size_t calm_latent_prepared_bytes(const calm_config *config, size_t n_tokens)
{
    /* One prepared input at a time: h, the input of q_b, or that of kv_b. */
    const size_t widest = calm_size_max(config->hidden, calm_size_max(config->latent.q_rank, config->latent.kv_rank));
    return calm_weight_apply_scratch_bytes(widest, n_tokens);
}

/* Allocates all rows, before anything that is released again. */
static calm_status new_rows(calm_ctx *ctx, const calm_block *block, size_t n, calm_latent *out)
{
    const calm_config *config = block->config;
    const calm_latent_config *latent = &config->latent;
    calm_heads *a = &out->heads;
    float *kv;
    if (latent->q_rank) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->q_a, n * latent->q_rank));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->q_in, n * latent->q_rank));
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->kv_a, n * kv_a_width(config)));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->kv_in, n * latent->kv_rank));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->q, n * calm_latent_q_width(config)));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, kv, n * calm_latent_kv_width(config)));
    /* A head's key and value are columns of kv_b's output, the shared key of kv_a's. */
    a->k = kv;
    a->v = kv + latent->nope;
    a->q_stride = calm_latent_q_width(config);
    a->kv_stride = calm_latent_kv_width(config);
    a->kv_step = latent->nope + latent->value;
    a->k_width = latent->nope;
    a->v_width = latent->value;
    a->shared = out->kv_a + latent->kv_rank;
    a->shared_stride = kv_a_width(config);
    a->shared_width = latent->rope;
    return CALM_OK;
}

/* ---- the latent's norm, over the first columns of kv_a's rows ---- */

typedef struct latent_task {
    const calm_norm *norm;
    size_t stride;
    const float *from;
    float *to;
} latent_task;

/* Normalises rows from `first` on; the shared key after the latent is not normalised. */
static void norm_latent(size_t first, size_t n, void *user)
{
    const latent_task *task = user;
    for (size_t t = first; t < first + n; t++)
        calm_norm_rows(task->norm, task->from + t * task->stride, 1, task->to + t * task->norm->width);
}

/* ---- the products ---- */

/* Shows the observer x [n_tokens, width]. */
static calm_status observe(calm_ctx *ctx, const calm_observer *observer, const calm_span *span, calm_hook hook,
                           const float *x, size_t width)
{
    const calm_observation seen = {hook, CALM_NO_EXPERT, span->window, x, span->n_tokens, width, NULL};
    return calm_observe(observer, ctx, &seen);
}

/* Computes q from h, or its latent q_a, and the output of kv_a. */
static calm_status project_down(calm_ctx *ctx, const calm_block *block, const float *h, size_t n,
                                calm_apply_fn *apply, const calm_latent *rows)
{
    const calm_weight *weight = block->weight;
    const bool direct = !rows->q_a;
    return calm_weight_apply_each(ctx, apply, 2,
                                  (const calm_weight *[]){&weight[direct ? CALM_ROLE_Q_FULL : CALM_ROLE_Q_A],
                                                          &weight[CALM_ROLE_KV_A]},
                                  h, n, (float *[]){direct ? rows->heads.q : rows->q_a, rows->kv_a});
}

/* Applies the norms of the latents, then q_b and kv_b. */
static calm_status project_up(calm_ctx *ctx, const calm_block *block, const calm_span *span, calm_apply_fn *apply,
                              const calm_observer *observer, const calm_latent *rows)
{
    const calm_latent_config *latent = &block->config->latent;
    const size_t n = span->n_tokens, width = kv_a_width(block->config);
    latent_task task = {&block->plain[CALM_PLAIN_KV_A_NORM], width, rows->kv_a, rows->kv_in};
    if (rows->q_a) {
        calm_norm_all(ctx, &block->plain[CALM_PLAIN_Q_A_NORM], rows->q_a, n, rows->q_in);
        CALM_TRY(observe(ctx, observer, span, CALM_HOOK_Q_B_IN, rows->q_in, latent->q_rank));
        CALM_TRY(apply(ctx, &block->weight[CALM_ROLE_Q_B], rows->q_in, n, rows->heads.q));
    }
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_LATENT, rows->kv_a, width));
    calm_parallel_each_rows(ctx, n, norm_latent, &task);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_KV_B_IN, rows->kv_in, latent->kv_rank));
    return apply(ctx, &block->weight[CALM_ROLE_KV_B], rows->kv_in, n, rows->heads.k);
}

calm_status calm_latent_project(calm_ctx *ctx, const calm_block *block, const float *h, const calm_span *span,
                                calm_apply_fn *apply, const calm_observer *observer, calm_latent *out)
{
    /* Both latents are kept before and after their norms. */
    *out = (calm_latent){.heads = calm_heads_of(block, span)};
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_QKV_IN, h, block->config->hidden));
    CALM_TRY(new_rows(ctx, block, span->n_tokens, out));
    CALM_TRY(project_down(ctx, block, h, span->n_tokens, apply, out));
    return project_up(ctx, block, span, apply, observer, out);
}
