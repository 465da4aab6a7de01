/* Grouped-query causal attention over one window, in blocks of query rows.
 *
 *   s[t, j] = q_t . k_j / sqrt(d) for t - window < j <= t,  p = softmax(s),  context_t = sum_j p[t, j] v_j
 *
 * A block of query rows needs the keys up to its last row alone: about half of the square is never computed.  The
 * division by the softmax's sum comes after the product with v, on d values instead of T. */
#include <math.h>
#include <string.h>

#include "ptq/model/block.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

#define QUERY_ROWS ((size_t)128)

calm_status calm_rope_init(calm_ctx *ctx, const calm_config *config, size_t n_positions, calm_rope *out)
{
    const size_t half = config->head_dim / 2;
    size_t n;
    float *cosines, *sines;
    if (!calm_size_mul(&n, n_positions, half))
        return calm_fail(ctx, CALM_EARG, "%zu positions are too many", n_positions);
    CALM_TRY(CALM_NEW(ctx, ctx->out, cosines, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, sines, n));
    for (size_t c = 0; c < half; c++) {
        /* The frequency and the angle are float32 in the field's implementations, so models were trained so. */
        float frequency = (float)pow(config->rope_theta, -2.0 * (double)c / (double)config->head_dim);
        for (size_t t = 0; t < n_positions; t++) {
            float angle = (float)t * frequency;
            cosines[t * half + c] = (float)cos((double)angle);
            sines[t * half + c] = (float)sin((double)angle);
        }
    }
    *out = (calm_rope){n_positions, half, cosines, sines};
    return CALM_OK;
}

/* Rotate pairs (c, c + d/2) of every head; x [T, n_heads * d]. */
static void rotate(const calm_rope *rope, float *x, size_t n_tokens, size_t n_heads)
{
    const size_t half = rope->half;
    for (size_t t = 0; t < n_tokens; t++) {
        const float *cosines = rope->cos + t * half, *sines = rope->sin + t * half;
        for (size_t head = 0; head < n_heads; head++) {
            float *a = x + (t * n_heads + head) * 2 * half, *b = a + half;
            for (size_t c = 0; c < half; c++) {
                float u = a[c], v = b[c];
                a[c] = u * cosines[c] - v * sines[c];
                b[c] = v * cosines[c] + u * sines[c];
            }
        }
    }
}

/* RMSNorm over each head, when the family has it; x [T, n_heads * d]. */
static void norm_heads(const calm_config *config, const float *weight, float *x, size_t n_tokens, size_t n_heads)
{
    if (!weight)
        return;
    for (size_t i = 0; i < n_tokens * n_heads; i++)
        calm_vec_rmsnorm(config->head_dim, x + i * config->head_dim, weight, config->norm_eps,
                         x + i * config->head_dim);
}

/* Softmax numerators of the score rows t0 .. t0 + rows - 1 over keys k0 .. ; entries outside the mask become 0. */
static void mask_and_exponentiate(float *scores, size_t stride, size_t t0, size_t rows, size_t k0, size_t window,
                                  float scale, float *sums)
{
    for (size_t r = 0; r < rows; r++) {
        const size_t t = t0 + r, last = t - k0;
        const size_t first = window && t + 1 > window + k0 ? t + 1 - window - k0 : 0;
        float *row = scores + r * stride;
        memset(row, 0, first * sizeof *row);
        sums[r] = calm_vec_softmax_numerators(last + 1 - first, scale, row + first);
        memset(row + last + 1, 0, (stride - last - 1) * sizeof *row);
    }
}

typedef struct heads {
    const float *q, *k, *v;    /* [T, h * d], [T, h_kv * d] twice */
    float *context;            /* [T, h * d]                      */
    float *scores, *sums;      /* [QUERY_ROWS, T], [QUERY_ROWS]   */
    size_t window;
} heads;

static void attend_block(const calm_config *config, const heads *a, size_t head, size_t t0, size_t rows)
{
    const size_t d = config->head_dim, q_stride = config->n_heads * d, kv_stride = config->n_kv * d;
    const size_t kv_head = head / (config->n_heads / config->n_kv);
    const size_t k0 = a->window && t0 + 1 > a->window ? t0 + 1 - a->window : 0, n_keys = t0 + rows - k0;
    const float scale = (float)(1.0 / sqrt((double)d));
    float *context = a->context + t0 * q_stride + head * d;
    calm_sgemm_nt(rows, n_keys, d, 1.0f, a->q + t0 * q_stride + head * d, q_stride,
                  a->k + k0 * kv_stride + kv_head * d, kv_stride, 0.0f, a->scores, n_keys);
    mask_and_exponentiate(a->scores, n_keys, t0, rows, k0, a->window, scale, a->sums);
    calm_sgemm_nn(rows, d, n_keys, 1.0f, a->scores, n_keys, a->v + k0 * kv_stride + kv_head * d, kv_stride, 0.0f,
                  context, q_stride);
    for (size_t r = 0; r < rows; r++)
        calm_vec_scale(d, 1.0f / a->sums[r], context + r * q_stride);
}

static calm_status attend(calm_ctx *ctx, const calm_config *config, const float *q, const float *k, const float *v,
                          size_t n_tokens, size_t window, float *context)
{
    heads a = {.q = q, .k = k, .v = v, .context = context, .window = window};
    const size_t block_rows = n_tokens < QUERY_ROWS ? n_tokens : QUERY_ROWS;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a.scores, block_rows * n_tokens));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a.sums, block_rows));
    for (size_t head = 0; head < config->n_heads; head++)
        for (size_t t0 = 0; t0 < n_tokens; t0 += QUERY_ROWS)
            attend_block(config, &a, head, t0, n_tokens - t0 < QUERY_ROWS ? n_tokens - t0 : QUERY_ROWS);
    return CALM_OK;
}

calm_status calm_block_attention(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                 size_t n_tokens, float *out, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    float *q, *k, *v, *context;
    if (n_tokens > rope->n_positions)
        return calm_fail(ctx, CALM_EARG, "a window of %zu tokens, rotary tables for %zu", n_tokens, rope->n_positions);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, q, n_tokens * q_width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, k, n_tokens * kv_width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, v, n_tokens * kv_width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, context, n_tokens * q_width));
    if (observer && observer->fn)
        CALM_TRY(observer->fn(observer->user, ctx, CALM_HOOK_QKV_IN, observer->window, h, n_tokens, config->hidden));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_Q], h, n_tokens, q));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_K], h, n_tokens, k));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_V], h, n_tokens, v));
    norm_heads(config, block->q_norm, q, n_tokens, config->n_heads);
    norm_heads(config, block->k_norm, k, n_tokens, config->n_kv);
    rotate(rope, q, n_tokens, config->n_heads);
    rotate(rope, k, n_tokens, config->n_kv);
    CALM_TRY(attend(ctx, config, q, k, v, n_tokens, config->window[block->index], context));
    if (observer && observer->fn)
        CALM_TRY(observer->fn(observer->user, ctx, CALM_HOOK_O_IN, observer->window, context, n_tokens, q_width));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_O], context, n_tokens, out);
}
