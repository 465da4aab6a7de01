/* Backward pass of latent attention: the steps of latent.c in reverse; heads_back.c has that of the scores. */
#include "ptq/layers/latent_back.h"

#include <string.h>

#include "ptq/layers/block_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/vector_back.h"

calm_status calm_latent_forward_tape(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *user)
{
    const calm_block *block = pass->block;
    const calm_config *config = block->config;
    const size_t n = pass->span->n_tokens;
    calm_latent_tape *tape = user;
    *tape = (calm_latent_tape){.context = NULL};
    CALM_TRY(calm_latent_project(ctx, block, pass->h, pass->span, calm_weight_apply_tiled, NULL, &tape->rows));
    /* The tape is allocated before the mark below, which releases a rotary table of this window. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->context, n * calm_latent_context_width(config)));
    CALM_TRY(calm_heads_keep(ctx, config, n, &tape->kept));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_heads_rotate(ctx, block, pass->rope, &tape->rows.heads, calm_rope_rotate));
    CALM_TRY(calm_heads_attend_tape(ctx, &tape->rows.heads, &tape->kept, tape->context));
    return calm_weight_apply_tiled(ctx, &block->weight[CALM_ROLE_O], tape->context, n, y);
}

/* ---- backward ---- */

/* Gradients, each in the layout of its operand. */
typedef struct grads_of {
    calm_heads heads;    /* of q, k, v and, in kv_a, the shared key                       */
    float *q_a;          /* [T, q_rank] of q_b's input, then of q_a's output; NULL without q_a */
    float *kv_a;         /* [T, kv_rank + rope]                                           */
    float *kv_in;        /* [T, kv_rank] of kv_b's input                                  */
    float *context;      /* [T, h value]                                                  */
} grads_of;

/* Allocates them in the order in which the forward pass allocates the operands. */
static calm_status new_grads(calm_ctx *ctx, const calm_config *config, const calm_heads *a, grads_of *out)
{
    const calm_latent_config *latent = &config->latent;
    const size_t n = a->span->n_tokens;
    *out = (grads_of){.heads = *a};
    if (latent->q_rank)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->q_a, n * latent->q_rank));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->kv_a, n * a->shared_stride));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->kv_in, n * latent->kv_rank));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->heads.q, n * a->q_stride));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->heads.k, n * a->kv_stride));
    out->heads.v = out->heads.k + (a->v - a->k);
    out->heads.shared = out->kv_a + latent->kv_rank;
    return CALM_NEW_RAW(ctx, ctx->scratch, out->context, n * calm_latent_context_width(config));
}

/* Backward of one linear: adds to its gradients, and writes dx, or with `add` adds to it. */
static calm_status linear_back(calm_ctx *ctx, const calm_block *block, calm_role role, const float *x, size_t n,
                               const float *dy, const calm_block_grads *grads, bool add, float *dx)
{
    return calm_weight_back(ctx, &block->weight[role], x, n, dy, grads->weight[role], grads->bias[role], add, dx);
}

/* Backward from queries to h: writes dh. */
static calm_status queries_back(calm_ctx *ctx, const calm_block *block, const float *h, const calm_latent *rows,
                                const calm_block_grads *grads, const grads_of *d, float *dh)
{
    const size_t n = rows->heads.span->n_tokens;
    const calm_norm_rows_of each = {n, 1, block->config->latent.q_rank};
    if (!rows->q_a)
        return linear_back(ctx, block, CALM_ROLE_Q_FULL, h, n, d->heads.q, grads, false, dh);
    CALM_TRY(linear_back(ctx, block, CALM_ROLE_Q_B, rows->q_in, n, d->heads.q, grads, false, d->q_a));
    CALM_TRY(calm_norm_back(ctx, &block->plain[CALM_PLAIN_Q_A_NORM], each, rows->q_a, d->q_a,
                            grads->plain[CALM_PLAIN_Q_A_NORM], NULL, d->q_a));
    return linear_back(ctx, block, CALM_ROLE_Q_A, h, n, d->q_a, grads, false, dh);
}

/* Backward from keys and values to h: adds to dh. */
static calm_status keys_back(calm_ctx *ctx, const calm_block *block, const float *h, const calm_latent *rows,
                             const calm_block_grads *grads, const grads_of *d, float *dh)
{
    const size_t n = rows->heads.span->n_tokens, rank = block->config->latent.kv_rank, stride = d->heads.shared_stride;
    const calm_norm_rows_of each = {n, 1, stride};
    CALM_TRY(linear_back(ctx, block, CALM_ROLE_KV_B, rows->kv_in, n, d->heads.k, grads, false, d->kv_in));
    /* Copied next to the gradient of the shared key, into the layout of kv_a's rows. */
    for (size_t t = 0; t < n; t++)
        memcpy(d->kv_a + t * stride, d->kv_in + t * rank, rank * sizeof *d->kv_a);
    CALM_TRY(calm_norm_back(ctx, &block->plain[CALM_PLAIN_KV_A_NORM], each, rows->kv_a, d->kv_a,
                            grads->plain[CALM_PLAIN_KV_A_NORM], NULL, d->kv_a));
    return linear_back(ctx, block, CALM_ROLE_KV_A, h, n, d->kv_a, grads, true, dh);
}

/* Writes the row lengths of the gradients of each job's outputs. */
static void write_lengths(const calm_latent *rows, const grads_of *d, const calm_block_grads *grads)
{
    const calm_heads *a = &d->heads;
    const size_t n = a->span->n_tokens, q_rank = a->config->latent.q_rank;
    float *down = grads->lengths[CALM_JOB_QKV_A], *q_b = grads->lengths[CALM_JOB_Q_B],
          *kv_b = grads->lengths[CALM_JOB_KV_B];
    /* The gradients are those of the linears' outputs, before norms and rotation. */
    if (q_b)
        calm_vec_lengths(n, a->q_stride, a->q_stride, a->q, false, q_b);
    if (kv_b)
        calm_vec_lengths(n, a->kv_stride, a->kv_stride, a->k, false, kv_b);
    if (!down)
        return;
    if (rows->q_a)
        calm_vec_lengths(n, q_rank, q_rank, d->q_a, false, down);
    else
        calm_vec_lengths(n, a->q_stride, a->q_stride, a->q, false, down);
    calm_vec_lengths(n, a->shared_stride, a->shared_stride, d->kv_a, true, down);
}

calm_status calm_latent_back(calm_ctx *ctx, const calm_kind_pass *pass, const void *user, const float *dy,
                             const calm_block_grads *grads, float *dh, float *dx)
{
    const calm_block *block = pass->block;
    const calm_latent_tape *tape = user;
    const calm_latent *rows = &tape->rows;
    const size_t n = rows->heads.span->n_tokens;
    grads_of d;
    (void)dx;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_grads(ctx, block->config, &rows->heads, &d));
    CALM_TRY(linear_back(ctx, block, CALM_ROLE_O, tape->context, n, dy, grads, false, d.context));
    /* The steps of the forward pass in reverse. */
    CALM_TRY(calm_heads_back(ctx, &rows->heads, &tape->kept, d.context, &d.heads, NULL));
    CALM_TRY(calm_heads_rotate(ctx, block, pass->rope, &d.heads, calm_rope_rotate_back));
    CALM_TRY(queries_back(ctx, block, pass->h, rows, grads, &d, dh));
    CALM_TRY(keys_back(ctx, block, pass->h, rows, grads, &d, dh));
    write_lengths(rows, &d, grads);
    return CALM_OK;
}

/* ---- memory ---- */

/* Returns the bytes of o's input, or of its gradient. */
static size_t context_bytes(const calm_config *config, size_t n_tokens)
{
    return CALM_BYTES(float, n_tokens * calm_latent_context_width(config));
}

size_t calm_latent_tape_bytes(const calm_config *config, size_t n_tokens)
{
    return calm_latent_project_bytes(config, n_tokens) + context_bytes(config, n_tokens)
           + calm_heads_keep_bytes(config, n_tokens);
}

size_t calm_latent_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    /* A worker holds one block of query rows of one head. */
    const size_t workers = calm_size_min(n_threads, config->n_heads * calm_heads_query_blocks(n_tokens));
    const size_t attend = workers * calm_heads_attend_bytes(config, n_tokens);
    const size_t o = calm_weight_apply_scratch_bytes(calm_latent_context_width(config), n_tokens);
    return calm_size_max(calm_latent_prepared_bytes(config, n_tokens),
                         calm_rope_scratch_bytes(config, n_tokens) + calm_size_max(attend, o));
}

size_t calm_latent_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const calm_latent_config *latent = &config->latent;
    const size_t heads = n_tokens * config->n_heads, widest = calm_size_max(latent->q_rank, latent->kv_rank);
    const size_t own = (latent->q_rank ? CALM_BYTES(float, n_tokens * latent->q_rank) : 0)
                       + CALM_BYTES(float, n_tokens * (latent->kv_rank + latent->rope))
                       + CALM_BYTES(float, n_tokens * latent->kv_rank)
                       + CALM_BYTES(float, n_tokens * calm_latent_q_width(config))
                       + CALM_BYTES(float, n_tokens * calm_latent_kv_width(config)) + context_bytes(config, n_tokens);
    /* Every query head has its own gradients, until they are added up. */
    const size_t scores = CALM_BYTES(float, heads * latent->nope) + CALM_BYTES(float, heads * latent->value)
                          + CALM_BYTES(float, heads * latent->rope)
                          + calm_heads_back_bytes(config, n_tokens, n_threads);
    const size_t o = calm_weight_back_scratch_bytes(calm_latent_context_width(config), n_tokens);
    const size_t linears = calm_weight_back_scratch_bytes(calm_size_max(config->hidden, widest), n_tokens);
    /* A rotary table of this window stays until the end. */
    return own + calm_size_max(calm_size_max(o, scores),
                               calm_rope_scratch_bytes(config, n_tokens)
                                   + calm_size_max(calm_norm_back_scratch_bytes(widest, n_tokens), linears));
}
