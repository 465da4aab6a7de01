/* Backward pass of attention: its projections, norms and rotation; heads_back.c has that of the scores. */
#include "ptq/layers/attention_back.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/layout.h"
#include "ptq/base/threads.h"
#include "ptq/layers/block_back.h"
#include "ptq/layers/hadamard.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/vector_back.h"

/* ---- forward ---- */

/* Allocates copies of q and k, or of the fused matrix, as they are before their norms. */
static calm_status new_raw(calm_ctx *ctx, const calm_block *block, calm_attention_tape *tape)
{
    const calm_heads *a = &tape->heads;
    const size_t n = a->span->n_tokens;
    if (!calm_heads_normed(block))
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->raw_q, n * a->q_stride));
    /* In a copy of the fused matrix; separate linears get another array below. */
    tape->raw_k = tape->raw_q + (a->k - a->q);
    return block->weight[CALM_ROLE_FUSED_QKV].w ? CALM_OK
                                                : CALM_NEW_RAW(ctx, ctx->scratch, tape->raw_k, n * a->kv_stride);
}

/* Copies q and k, then applies their norms. */
static calm_status keep_and_norm(calm_ctx *ctx, const calm_block *block, calm_attention_tape *tape)
{
    const calm_heads *a = &tape->heads;
    const size_t n = a->span->n_tokens;
    if (tape->raw_q)
        memcpy(tape->raw_q, a->q, n * a->q_stride * sizeof *a->q);
    if (tape->raw_q && !block->weight[CALM_ROLE_FUSED_QKV].w)
        memcpy(tape->raw_k, a->k, n * a->kv_stride * sizeof *a->k);
    return calm_heads_norm(ctx, block, a);
}

calm_status calm_attention_forward_tape(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *user)
{
    const calm_block *block = pass->block;
    const calm_config *config = block->config;
    const size_t n = pass->span->n_tokens;
    calm_attention_tape *tape = user;
    *tape = (calm_attention_tape){.heads = calm_heads_of(block, pass->span)};
    if (config->value_norm && config->kv != CALM_KV_SHARED)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->raw_v, n * config->n_kv * config->head_dim));
    tape->heads.raw_v = tape->raw_v;
    CALM_TRY(calm_heads_project(ctx, block, pass->h, calm_weight_apply_tiled, &tape->heads));
    CALM_TRY(new_raw(ctx, block, tape));
    /* The tape is allocated before the mark below, which releases a rotary table of this window. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->context, n * config->n_heads * config->head_dim));
    if (tape->heads.gate)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->raw_context, n * config->n_heads * config->head_dim));
    CALM_TRY(calm_heads_keep(ctx, config, n, &tape->kept));
    if (!config->arch->late_qk_norm)
        CALM_TRY(keep_and_norm(ctx, block, tape));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_heads_rotate(ctx, block, pass->rope, &tape->heads, calm_rope_rotate));
    if (config->arch->late_qk_norm)
        CALM_TRY(keep_and_norm(ctx, block, tape));
    CALM_TRY(calm_heads_attend_tape(ctx, &tape->heads, &tape->kept, tape->context));
    if (tape->raw_context)
        memcpy(tape->raw_context, tape->context, n * config->n_heads * config->head_dim * sizeof *tape->context);
    calm_heads_gate(ctx, &tape->heads, tape->context);
    CALM_TRY(calm_hadamard_rows(ctx, config, CALM_JOB_O, n, config->n_heads * config->head_dim, tape->context));
    return calm_weight_apply_tiled(ctx, &block->weight[CALM_ROLE_O], tape->context, n, y);
}

/* ---- backward ---- */

/* Allocates dq, dk and dv in the layout of the projected matrices. */
static calm_status new_like(calm_ctx *ctx, const calm_block *block, const calm_heads *a, calm_heads *out)
{
    const size_t n = a->span->n_tokens;
    *out = *a;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->q, n * a->q_stride));
    out->gate = a->gate ? out->q + (a->gate - a->q) : NULL;
    if (block->weight[CALM_ROLE_FUSED_QKV].w) {
        out->k = out->q + (a->k - a->q);
        out->v = out->q + (a->v - a->q);
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->k, n * a->kv_stride));
    return CALM_NEW_RAW(ctx, ctx->scratch, out->v, n * a->kv_stride);
}

typedef struct gate_task {
    const calm_attention_tape *tape;
    const calm_heads *d;
    float *dcontext;
} gate_task;

/* Turns the gradient of context sigmoid(gate) into those of both factors. */
static void gate_rows(size_t first, size_t n, void *user)
{
    const gate_task *task = user;
    const calm_heads *a = &task->tape->heads;
    const size_t width = a->config->n_heads * a->config->head_dim;
    for (size_t t = first; t < first + n; t++)
        calm_vec_sigmoid_mul_back(width, a->gate + t * a->q_stride, task->tape->raw_context + t * width,
                                  task->dcontext + t * width, task->d->gate + t * task->d->q_stride);
}

/* Backward of the context's gate, in place. */
static void gate_back(calm_ctx *ctx, const calm_attention_tape *tape, const calm_heads *d, float *dcontext)
{
    if (!tape->raw_context)
        return;
    calm_parallel_each_rows(ctx, d->span->n_tokens, gate_rows, &(gate_task){tape, d, dcontext});
}

/* Backward of the norms of q and k, in place. */
static calm_status norms_back(calm_ctx *ctx, const calm_block *block, const calm_attention_tape *tape,
                              const calm_block_grads *grads, const calm_heads *d)
{
    const calm_config *config = block->config;
    const size_t n = d->span->n_tokens;
    const calm_norm_rows_of q = {n, calm_heads_norm_parts(config, config->n_heads), d->q_stride};
    const calm_norm_rows_of k = {n, calm_heads_norm_parts(config, config->n_kv), d->kv_stride};
    calm_norm q_norm, k_norm;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_heads_norms(ctx, block, &q_norm, &k_norm));
    CALM_TRY(calm_norm_back(ctx, &q_norm, q, tape->raw_q, d->q, grads->plain[CALM_PLAIN_Q_NORM], NULL, d->q));
    return calm_norm_back(ctx, &k_norm, k, tape->raw_k, d->k, grads->plain[CALM_PLAIN_K_NORM], NULL, d->k);
}

/* Writes the length of the gradient of each token's q (with its gate), k and v together. */
static void write_lengths(const calm_heads *d, float *lengths)
{
    const size_t n = d->span->n_tokens, head = d->config->head_dim;
    calm_vec_lengths(n, (d->gate ? 2 : 1) * d->config->n_heads * head, d->q_stride, d->q, false, lengths);
    calm_vec_lengths(n, d->config->n_kv * head, d->kv_stride, d->k, true, lengths);
    if (!d->config->k_is_v)
        calm_vec_lengths(n, d->config->n_kv * head, d->kv_stride, d->v, true, lengths);
}

/* Adds the gradient of the loss of attention's relations to d. */
static calm_status relations_back(calm_ctx *ctx, const calm_relations *relations, const calm_heads *a,
                                  const calm_heads *d)
{
    if (!relations)
        return CALM_OK;
    const calm_attention_tape *of = calm_block_tape_of(relations->reference, CALM_SUBLAYER_ATTENTION);
    return calm_heads_relate(ctx, a, &of->heads, relations->scale, d, relations->loss);
}

calm_status calm_attention_back(calm_ctx *ctx, const calm_kind_pass *pass, const void *user, const float *dy,
                                const calm_block_grads *grads, float *dh, float *dx)
{
    const calm_block *block = pass->block;
    const float *h = pass->h;
    const calm_attention_tape *tape = user;
    const calm_heads *a = &tape->heads;
    const size_t n = a->span->n_tokens;
    const calm_weight *weight = block->weight;
    float *dcontext;
    calm_heads d;
    /* x reaches attention only through h, so it has no other gradient. */
    (void)dx;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_like(ctx, block, a, &d));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dcontext, n * block->config->n_heads * block->config->head_dim));
    CALM_TRY(calm_weight_back(ctx, &weight[CALM_ROLE_O], tape->context, n, dy, grads->weight[CALM_ROLE_O],
                              grads->bias[CALM_ROLE_O], false, dcontext));
    /* The steps of the forward pass in reverse, each in place. */
    CALM_TRY(calm_hadamard_rows(ctx, block->config, CALM_JOB_O, n, weight[CALM_ROLE_O].in, dcontext));
    gate_back(ctx, tape, &d, dcontext);
    CALM_TRY(calm_heads_back(ctx, a, &tape->kept, dcontext, &d, grads->plain[CALM_PLAIN_SINKS]));
    CALM_TRY(relations_back(ctx, grads->relations, a, &d));
    if (block->config->arch->late_qk_norm)
        CALM_TRY(norms_back(ctx, block, tape, grads, &d));
    CALM_TRY(calm_heads_rotate(ctx, block, pass->rope, &d, calm_rope_rotate_back));
    if (!block->config->arch->late_qk_norm)
        CALM_TRY(norms_back(ctx, block, tape, grads, &d));
    CALM_TRY(calm_heads_values_back(ctx, block->config, a, tape->raw_v, &d));
    /* Gradients of the linears' outputs, before norms and rotation. */
    if (grads->lengths[CALM_JOB_QKV])
        write_lengths(&d, grads->lengths[CALM_JOB_QKV]);
    if (d.gate)
        CALM_TRY(calm_heads_part(ctx, &d, true));
    if (weight[CALM_ROLE_FUSED_QKV].w)
        return calm_weight_back(ctx, &weight[CALM_ROLE_FUSED_QKV], h, n, d.q, grads->weight[CALM_ROLE_FUSED_QKV],
                                grads->bias[CALM_ROLE_FUSED_QKV], false, dh);
    /* q's product writes dh, those of k and v add to it. */
    CALM_TRY(calm_weight_back(ctx, &weight[CALM_ROLE_Q], h, n, d.q, grads->weight[CALM_ROLE_Q],
                              grads->bias[CALM_ROLE_Q], false, dh));
    CALM_TRY(calm_weight_back(ctx, &weight[CALM_ROLE_K], h, n, d.k, grads->weight[CALM_ROLE_K],
                              grads->bias[CALM_ROLE_K], true, dh));
    if (block->config->k_is_v)
        return CALM_OK;
    return calm_weight_back(ctx, &weight[CALM_ROLE_V], h, n, d.v, grads->weight[CALM_ROLE_V], grads->bias[CALM_ROLE_V],
                            true, dh);
}

/* ---- memory ---- */

/* Returns the bytes of q, k and v, or of their gradients. */
static size_t projected_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    return calm_has_role(config, CALM_ROLE_FUSED_QKV)
               ? CALM_BYTES(float, n_tokens * (q_width + 2 * kv_width))
               : CALM_BYTES(float, (config->output_gate ? 2 : 1) * n_tokens * q_width)
                     + 2 * CALM_BYTES(float, n_tokens * kv_width);
}

static size_t context_bytes(const calm_config *config, size_t n_tokens)
{
    return CALM_BYTES(float, n_tokens * config->n_heads * config->head_dim);
}

size_t calm_attention_tape_bytes(const calm_config *config, size_t n_tokens)
{
    /* Of separate linears only q and k are kept before their norms, of a fused one the whole output. */
    const size_t raw = config->qk_norm == CALM_QK_NORM_NONE ? 0 : projected_bytes(config, n_tokens);
    const size_t no_v = calm_has_role(config, CALM_ROLE_FUSED_QKV) || !raw
                            ? 0
                            : CALM_BYTES(float, n_tokens * config->n_kv * config->head_dim);
    /* The gate needs the context, and o the gated context. */
    const size_t contexts = (config->output_gate ? 2 : 1) * context_bytes(config, n_tokens);
    const size_t raw_v = config->value_norm ? CALM_BYTES(float, n_tokens * config->n_kv * config->head_dim) : 0;
    return projected_bytes(config, n_tokens) + raw - no_v + raw_v + contexts + calm_heads_keep_bytes(config, n_tokens);
}

size_t calm_attention_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const size_t q_width = config->n_heads * config->head_dim;
    const size_t workers = calm_size_min(n_threads, config->n_heads * calm_heads_query_blocks(n_tokens));
    const size_t attend = workers * calm_heads_attend_bytes(config, n_tokens);
    const size_t o = calm_size_max(calm_hadamard_bytes(config, CALM_JOB_O, q_width),
                                   calm_weight_apply_scratch_bytes(q_width, n_tokens));
    const size_t ones = CALM_BYTES(float, config->head_dim), norm = config->qk_norm == CALM_QK_NORM_BARE ? ones : 0;
    return calm_size_max(calm_size_max(config->value_norm ? ones : 0,
                                       calm_weight_apply_scratch_bytes(config->hidden, n_tokens)),
                         calm_rope_scratch_bytes(config, n_tokens) + calm_size_max(norm, calm_size_max(attend, o)));
}

size_t calm_attention_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const size_t d = config->head_dim;
    const size_t scores = calm_size_max(
        2 * context_bytes(config, n_tokens) + calm_heads_back_bytes(config, n_tokens, n_threads),
        calm_heads_relate_bytes(config, n_tokens, n_threads));
    const size_t norms = config->qk_norm == CALM_QK_NORM_WHOLE
                             ? calm_norm_back_scratch_bytes(config->n_heads * d, n_tokens)
                             : calm_norm_back_scratch_bytes(d, n_tokens) + CALM_BYTES(float, d);
    const size_t o = calm_size_max(calm_hadamard_bytes(config, CALM_JOB_O, config->n_heads * d),
                                   calm_weight_back_scratch_bytes(config->n_heads * d, n_tokens));
    const size_t qkv = calm_weight_back_scratch_bytes(config->hidden, n_tokens);
    /* A rotary table of this window stays until the end. */
    return projected_bytes(config, n_tokens) + context_bytes(config, n_tokens)
           + calm_size_max(calm_size_max(o, scores),
                           calm_rope_scratch_bytes(config, n_tokens) + calm_size_max(norms, qkv));
}
