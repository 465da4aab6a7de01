/* Grouped-query attention over one window, in blocks of query rows.
 *
 *   s[t, j] = scale q_t . k_j, capped if the family caps,  p = softmax(s),  context_t = sum_j p[t, j] v_j
 *   causal: keys j <= t, and of those position_t - position_j < window;  encoders: all keys
 *
 * A block of query rows needs the keys up to its last row alone: about half of the causal square is never computed. The
 * division by the softmax's sum comes after the product with v, on d values instead of T. */
#include <math.h>
#include <string.h>

#include "ptq/model/arch.h"
#include "ptq/model/block.h"
#include "ptq/model/layout.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

/* Scores of 128 queries over some thousand keys stay in the second-level cache. */
#define QUERY_ROWS ((size_t)128)

/* RMSNorm over each head, or over all of them together; x [T, stride], heads of d from its first column. */
static void norm_heads(const calm_config *config, const calm_norm *norm, float *x, size_t stride, size_t n_tokens,
                       size_t n_heads)
{
    const size_t parts = config->arch->qk_norm == CALM_QK_NORM_HEAD ? n_heads : 1;
    for (size_t t = 0; norm->w && t < n_tokens; t++)
        for (size_t part = 0; part < parts; part++)
            calm_norm_rows(norm, x + t * stride + part * norm->width, 1, x + t * stride + part * norm->width);
}

typedef struct heads {
    const calm_config *config;
    const calm_span *span;
    float *q, *k, *v;              /* first columns of [T, q_stride] and [T, kv_stride]     */
    size_t q_stride, kv_stride;
    float *context;                /* [T, h d]                                              */
    float *scores, *sums;          /* [QUERY_ROWS, T], [QUERY_ROWS]                         */
    size_t window;                 /* 0: all                                                */
} heads;

/* Position of token t: windows from which padding was dropped keep the positions of what is left. */
static size_t position(const heads *a, size_t t)
{
    return a->span->positions ? a->span->positions[t] : t;
}

/* First key that query t sees. */
static size_t first_key(const heads *a, size_t t)
{
    size_t j = 0;
    if (!a->window || position(a, t) + 1 <= a->window)
        return 0;
    const size_t least = position(a, t) + 1 - a->window;
    if (!a->span->positions)
        return least;
    /* Positions rise but may skip, where padding was dropped: the distance counts, not the index. */
    while (a->span->positions[j] < least)
        j++;
    return j;
}

/* Softmax numerators of the score rows t0 .. t0 + rows - 1 over keys k0 .. ; entries outside the mask become 0. */
static void mask_and_exponentiate(const heads *a, size_t t0, size_t rows, size_t k0, size_t n_keys)
{
    const calm_config *config = a->config;
    for (size_t r = 0; r < rows; r++) {
        /* Keys of the block begin at k0, the first that its first query sees; later queries may see fewer of them. */
        const size_t last = config->arch->encoder ? n_keys - 1 : t0 + r - k0, first = first_key(a, t0 + r) - k0;
        const size_t n = last + 1 - first;
        float *row = a->scores + r * n_keys;
        memset(row, 0, first * sizeof *row);
        /* The cap is on scaled scores, so it applies the scale; else the softmax does, which saves a pass. */
        if (config->attention_cap > 0)
            calm_vec_soft_cap(n, config->attention_scale, config->attention_cap, row + first);
        a->sums[r] =
            calm_vec_softmax_numerators(n, config->attention_cap > 0 ? 1 : config->attention_scale, row + first);
        /* Zeros, so that one product with v serves all rows of the block. */
        memset(row + last + 1, 0, (n_keys - last - 1) * sizeof *row);
    }
}

/* Context of one head for query rows t0 .. t0 + rows - 1; query heads share a key head in groups of n_heads / n_kv. */
static void attend_block(const heads *a, size_t head, size_t t0, size_t rows)
{
    const calm_config *config = a->config;
    const size_t d = config->head_dim, width = config->n_heads * d, kv_head = head / (config->n_heads / config->n_kv);
    const size_t k0 = first_key(a, t0), end = config->arch->encoder ? a->span->n_tokens : t0 + rows, n_keys = end - k0;
    float *context = a->context + t0 * width + head * d;
    /* Unscaled: the scale is applied where the softmax reads the scores anyway. */
    calm_sgemm_nt(rows, n_keys, d, 1.0f, a->q + t0 * a->q_stride + head * d, a->q_stride,
                  a->k + k0 * a->kv_stride + kv_head * d, a->kv_stride, 0.0f, a->scores, n_keys);
    mask_and_exponentiate(a, t0, rows, k0, n_keys);
    calm_sgemm_nn(rows, d, n_keys, 1.0f, a->scores, n_keys, a->v + k0 * a->kv_stride + kv_head * d, a->kv_stride, 0.0f,
                  context, width);
    for (size_t r = 0; r < rows; r++)
        calm_vec_scale(d, 1.0f / a->sums[r], context + r * width);
}

/* context [T, h d] from q, k and v. */
static calm_status attend(calm_ctx *ctx, heads *a)
{
    const size_t n_tokens = a->span->n_tokens, block_rows = calm_size_min(n_tokens, QUERY_ROWS);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->scores, block_rows * n_tokens));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->sums, block_rows));
    /* Heads one after the other: windows are what runs in parallel. */
    for (size_t head = 0; head < a->config->n_heads; head++)
        for (size_t t0 = 0; t0 < n_tokens; t0 += QUERY_ROWS)
            attend_block(a, head, t0, calm_size_min(n_tokens - t0, QUERY_ROWS));
    return CALM_OK;
}

/* q, k and v of all tokens: three products, or columns of one. */
static calm_status project(calm_ctx *ctx, const calm_block *block, const float *h, size_t n_tokens, heads *a)
{
    const calm_config *config = block->config;
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    const calm_weight *fused = &block->weight[CALM_ROLE_FUSED_QKV];
    /* The three parts stay where the fused product put them, as columns of one matrix with a common stride. */
    if (fused->w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->q, n_tokens * fused->out));
        a->k = a->q + q_width;
        a->v = a->k + kv_width;
        a->q_stride = a->kv_stride = fused->out;
        return calm_weight_apply(ctx, fused, h, n_tokens, a->q);
    }
    a->q_stride = q_width;
    a->kv_stride = kv_width;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->q, n_tokens * q_width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->k, n_tokens * kv_width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->v, n_tokens * kv_width));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_Q], h, n_tokens, a->q));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_K], h, n_tokens, a->k));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_V], h, n_tokens, a->v);
}

/* Rotary embedding of q and k in place; the table depends on the block and on how far the window reaches. */
static calm_status rotate(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, heads *a)
{
    const calm_config *config = block->config;
    const size_t n = a->span->n_tokens;
    calm_rope_table table;
    /* Encoders add positions to the embedding instead. */
    if (config->rope[CALM_ROPE_GLOBAL].rotary == 0)
        return CALM_OK;
    CALM_TRY(calm_rope_find(ctx, rope, config, block->index, n ? position(a, n - 1) + 1 : 0, &table));
    calm_rope_rotate(&table, a->q, a->q_stride, n, config->n_heads, config->head_dim, a->span->positions);
    calm_rope_rotate(&table, a->k, a->kv_stride, n, config->n_kv, config->head_dim, a->span->positions);
    return CALM_OK;
}

size_t calm_block_attention_scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    const size_t projected = calm_has_role(config, CALM_ROLE_FUSED_QKV)
                                 ? CALM_BYTES(float, n_tokens * (q_width + 2 * kv_width))
                                 : CALM_BYTES(float, n_tokens * q_width) + 2 * CALM_BYTES(float, n_tokens * kv_width);
    /* The prepared input of q, k and v is gone before scores are made; that of o comes on top of all. */
    const size_t first = prepared ? calm_weight_apply_scratch_bytes(config->hidden, n_tokens) : 0;
    const size_t last = prepared ? calm_weight_apply_scratch_bytes(q_width, n_tokens) : 0;
    const size_t context = CALM_BYTES(float, n_tokens * q_width), rows = calm_size_min(n_tokens, QUERY_ROWS);
    return projected + calm_size_max(first, calm_rope_scratch_bytes(config, n_tokens) + context +
                                                CALM_BYTES(float, rows * n_tokens) + CALM_BYTES(float, rows) + last);
}

calm_status calm_block_attention(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                 const calm_span *span, float *out, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const size_t n = span->n_tokens, width = config->n_heads * config->head_dim;
    CALM_SCOPED_SCRATCH(ctx);
    heads a = {.config = config, .span = span, .window = config->window[block->index]};
    calm_observation seen = {CALM_HOOK_QKV_IN, CALM_NO_EXPERT, span->window, h, n, config->hidden, NULL};
    CALM_TRY(calm_observe(observer, ctx, &seen));
    CALM_TRY(project(ctx, block, h, n, &a));
    /* Before the rotation: it does not change lengths, but the weights of a norm are per channel. */
    norm_heads(config, &block->q_norm, a.q, a.q_stride, n, config->n_heads);
    norm_heads(config, &block->k_norm, a.k, a.kv_stride, n, config->n_kv);
    CALM_TRY(rotate(ctx, block, rope, &a));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a.context, n * width));
    CALM_TRY(attend(ctx, &a));
    seen.hook = CALM_HOOK_O_IN;
    seen.x = a.context;
    seen.width = width;
    CALM_TRY(calm_observe(observer, ctx, &seen));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_O], a.context, n, out);
}
