/* Values that are not just the output of v's linear: normalised ones, those computed from k's linear, and keys and
 * values of another block (Gemma 4, transformers' modeling_gemma4.py).
 *
 *   v = RMSNorm(v_proj h) or RMSNorm(k_proj h), without a weight, over each head
 *   a sharing block has no linears of k and v: it reads normalised and rotated ones of the last block of its type
 */
#include "ptq/layers/attention_impl.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/vector.h"

calm_status calm_heads_shared(calm_ctx *ctx, const calm_block *block, calm_heads *a)
{
    const calm_config *config = block->config;
    if (!a->span->carried)
        return calm_fail(ctx, CALM_EARG, "block %zu reads the keys and values of an earlier block, and the span has "
                         "none", block->index);
    /* The columns in the carried rows are only read. */
    a->k = a->span->carried + config->kv_at;
    a->v = a->k + config->n_kv * config->head_dim;
    a->kv_stride = config->carried;
    return CALM_OK;
}

typedef struct values_task {
    const calm_config *config;
    const calm_heads *a;
    calm_norm norm;    /* w NULL: no norm */
} values_task;

/* Computes rows first .. first + n - 1 of v. */
static void value_rows(size_t first, size_t n, void *user)
{
    const values_task *task = user;
    const size_t heads = task->config->n_kv, width = heads * task->config->head_dim;
    for (size_t t = first; t < first + n; t++) {
        const float *from = (task->config->k_is_v ? task->a->k : task->a->v) + t * task->a->kv_stride;
        float *v = task->a->v + t * task->a->kv_stride;
        if (task->a->raw_v)
            memcpy(task->a->raw_v + t * task->a->kv_stride, from, width * sizeof *v);
        if (task->norm.w)
            calm_norm_rows(&task->norm, from, heads, v);
        else
            memcpy(v, from, width * sizeof *v);
    }
}

calm_status calm_heads_bare_norm(calm_ctx *ctx, const calm_config *config, calm_norm *out)
{
    const size_t d = config->head_dim;
    float *ones;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, ones, d));
    for (size_t c = 0; c < d; c++)
        ones[c] = 1;
    *out = (calm_norm){CALM_NORM_RMS, config->norm_eps, d, ones, NULL};
    return CALM_OK;
}

calm_status calm_heads_values(calm_ctx *ctx, const calm_config *config, const calm_heads *a)
{
    values_task task = {.config = config, .a = a};
    if (!config->value_norm && !config->k_is_v)
        return CALM_OK;
    CALM_SCOPED_SCRATCH(ctx);
    if (config->value_norm)
        CALM_TRY(calm_heads_bare_norm(ctx, config, &task.norm));
    calm_parallel_each_rows(ctx, a->span->n_tokens, value_rows, &task);
    return CALM_OK;
}

calm_status calm_heads_values_back(calm_ctx *ctx, const calm_config *config, const calm_heads *a, const float *raw_v,
                                   const calm_heads *d)
{
    const calm_norm_rows_of rows = {a->span->n_tokens, config->n_kv, a->kv_stride};
    calm_norm norm;
    CALM_SCOPED_SCRATCH(ctx);
    if (raw_v) {
        CALM_TRY(calm_heads_bare_norm(ctx, config, &norm));
        CALM_TRY(calm_norm_back(ctx, &norm, rows, raw_v, d->v, NULL, NULL, d->v));
    }
    /* The keys' linear has two readers: k's norm, and v. */
    if (config->k_is_v)
        calm_vec_add(rows.n * a->kv_stride, d->v, d->k);
    return CALM_OK;
}

void calm_heads_keep_kv(const calm_heads *a)
{
    const calm_config *config = a->config;
    const size_t width = config->n_kv * config->head_dim;
    float *carried = a->span->carried;
    /* Without carried rows, as in runs of candidates, nothing reads them. */
    if (config->kv != CALM_KV_KEPT || !carried)
        return;
    for (size_t t = 0; t < a->span->n_tokens; t++) {
        float *row = carried + (a->before + t) * config->carried + config->kv_at;
        memcpy(row, a->k + t * a->kv_stride, width * sizeof *row);
        memcpy(row + width, a->v + t * a->kv_stride, width * sizeof *row);
    }
}

size_t calm_heads_values_bytes(const calm_config *config, size_t n_tokens)
{
    /* The weight of ones is released before scores, which take more, are computed. */
    return config->kv == CALM_KV_SHARED ? 0 : 2 * CALM_BYTES(float, n_tokens * config->n_kv * config->head_dim);
}
