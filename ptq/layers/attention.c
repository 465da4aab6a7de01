/* Grouped-query attention over one window, in blocks of query rows.
 *
 *   s[t, j] = scale q_t . k_j, capped if the family caps,  p = softmax(s),  context_t = sum_j p[t, j] v_j
 *   causal: keys j <= t, and of those position_t - position_j < window, or those of one chunk of `window` positions
 *   with sinks: p = exp(s) / (sum exp(s) + exp(sink_h)), sink_h a learned logit of each head
 *   bidirectional: all keys, or those with |position_t - position_j| < window; some families add a position bias
 *
 * A block of query rows only needs keys up to its last row, so about half of the causal square is never computed.  The
 * division by the softmax's sum follows the product with v, on d values instead of T. */
#include "ptq/layers/attention_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/layout.h"
#include "ptq/base/threads.h"
#include "ptq/layers/distance.h"
#include "ptq/layers/hadamard.h"
#include "ptq/layers/past.h"
#include "ptq/tensor/product.h"
#include "ptq/tensor/vector.h"

calm_heads calm_heads_of(const calm_block *block, const calm_span *span)
{
    const calm_config *config = block->config;
    return (calm_heads){.config = config,
                        .span = span,
                        .before = span->past ? span->past->n : 0,
                        .k_width = config->head_dim,
                        .v_width = config->head_dim,
                        .kv_step = config->head_dim,
                        .window = config->window[block->index],
                        .distance = block->distance,
                        .sinks = block->plain[CALM_PLAIN_SINKS].w};
}

size_t calm_heads_norm_parts(const calm_config *config, size_t n_heads)
{
    return config->qk_norm == CALM_QK_NORM_WHOLE ? 1 : n_heads;
}

calm_query_rows calm_heads_rows(const calm_heads *a, size_t head, size_t first)
{
    const calm_config *config = a->config;
    const size_t n_tokens = a->span->n_tokens, n = calm_size_min(n_tokens - first, CALM_QUERY_ROWS);
    /* The block needs keys from the first one that its first query sees; n_heads / n_kv query heads share a key
     * head. */
    const size_t key = calm_heads_first_key(a, first), end = calm_heads_end_key(a, first + n - 1);
    const size_t kv_head = head / (config->n_heads / config->n_kv);
    return (calm_query_rows){.head = head,
                             .first = first,
                             .n = n,
                             .key = key,
                             .n_keys = end - key,
                             .q = first * a->q_stride + head * (a->k_width + a->shared_width),
                             .kv = key * a->kv_stride + kv_head * a->kv_step,
                             .context = (first * config->n_heads + head) * a->v_width};
}

/* Uses ctx->operands, so that a run may compute products in another precision. */
calm_status calm_heads_scores(calm_ctx *ctx, const calm_heads *a, const calm_query_rows *rows, float *scores)
{
    const float *q = a->q + rows->q;
    /* Scores are unscaled: the softmax reads them anyway, and applies the scale. */
    CALM_TRY(calm_multiply(ctx, CALM_PRODUCT_NT, rows->n, rows->n_keys, a->k_width, q, a->q_stride, a->k + rows->kv,
                           a->kv_stride, 0.0f, scores, rows->n_keys));
    if (!a->shared)
        return CALM_OK;
    return calm_multiply(ctx, CALM_PRODUCT_NT, rows->n, rows->n_keys, a->shared_width, q + a->k_width, a->q_stride,
                         a->shared + rows->key * a->shared_stride, a->shared_stride, 1.0f, scores, rows->n_keys);
}

/* Scales row [n] of query t, whose keys begin at `first` in the block, and adds the relative position bias. */
static void add_distances(const calm_heads *a, const calm_query_rows *rows, size_t t, size_t first, size_t n,
                          float *row)
{
    const size_t from = calm_heads_position(a, t);
    for (size_t j = 0; j < n; j++)
        row[j] = row[j] * a->config->attention_scale
                 + calm_distance_at(a->distance, rows->head, from, calm_heads_position(a, rows->key + first + j));
}

/* Adds the head's sink to the sum of a row's numerators, whose largest scaled score is `most`. */
static void add_sink(const calm_heads *a, size_t head, size_t t, float most, float *sum)
{
    const float sink = expf(a->sinks[head] - most);
    *sum += sink;
    /* A sink far above the scores is infinite, and its probability is 1. */
    if (a->shares)
        a->shares[t * a->config->n_heads + head] = isinf(sink) ? 1 : sink / *sum;
}

void calm_heads_exponentiate(const calm_heads *a, const calm_query_rows *rows, float *scores, float *sums)
{
    const calm_config *config = a->config;
    const size_t n_keys = rows->n_keys;
    for (size_t r = 0; r < rows->n; r++) {
        /* Later queries of the block may not see some of its first keys. */
        const size_t t = rows->first + r;
        const size_t first = calm_heads_first_key(a, t) - rows->key, end = calm_heads_end_key(a, t) - rows->key;
        const size_t n = end - first;
        float *row = scores + r * n_keys;
        memset(row, 0, first * sizeof *row);
        /* The cap applies to scaled scores, so it includes the scale; otherwise the softmax does, which saves a
         * pass. */
        if (config->attention_cap > 0)
            calm_vec_soft_cap(n, config->attention_scale, config->attention_cap, row + first);
        if (a->distance)
            add_distances(a, rows, t, first, n, row + first);
        const bool scaled = config->attention_cap > 0 || a->distance;
        const float scale = scaled ? 1 : config->attention_scale, most = a->sinks ? calm_vec_max(n, row + first) : 0;
        sums[r] = calm_vec_softmax_numerators(n, scale, row + first);
        if (a->sinks)
            add_sink(a, rows->head, t, scale * most, &sums[r]);
        /* Zeros, so that one product with v serves all rows of the block. */
        memset(row + end, 0, (n_keys - end) * sizeof *row);
    }
}

calm_status calm_heads_attend(calm_ctx *ctx, const calm_heads *a, const calm_query_rows *rows, float *scores,
                              float *sums, float *context)
{
    const size_t d = a->v_width, width = a->config->n_heads * d;
    CALM_TRY(calm_heads_scores(ctx, a, rows, scores));
    calm_heads_exponentiate(a, rows, scores, sums);
    CALM_TRY(calm_multiply(ctx, CALM_PRODUCT_NN, rows->n, d, rows->n_keys, scores, rows->n_keys, a->v + rows->kv,
                           a->kv_stride, 0.0f, context + rows->context, width));
    for (size_t r = 0; r < rows->n; r++)
        calm_vec_scale(d, 1.0f / sums[r], context + rows->context + r * width);
    return CALM_OK;
}

/* ---- all heads ---- */

typedef struct attend_task {
    const calm_heads *heads;
    const calm_heads_kept *kept;
    float *context;
    size_t n_blocks; /* blocks of query rows in a head */
} attend_task;

size_t calm_heads_query_blocks(size_t n_tokens)
{
    return (n_tokens + CALM_QUERY_ROWS - 1) / CALM_QUERY_ROWS;
}

/* Computes the context of one block of query rows of one head. */
static calm_status attend_rows(calm_ctx *ctx, size_t index, void *user)
{
    const attend_task *task = user;
    /* The last blocks of a head see the most keys, so they run first. */
    const size_t block = task->n_blocks - 1 - index % task->n_blocks;
    const calm_query_rows rows = calm_heads_rows(task->heads, index / task->n_blocks, block * CALM_QUERY_ROWS);
    /* The worker's scratch memory is rewound after each task, so it holds one block's scores. */
    const size_t n_tokens = task->heads->span->n_tokens, row = rows.head * n_tokens + rows.first;
    float *scores, *sums;
    if (task->kept->numerators) {
        scores = task->kept->numerators + row * n_tokens;
        sums = task->kept->sums + row;
    } else {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scores, rows.n * rows.n_keys));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, sums, rows.n));
    }
    return calm_heads_attend(ctx, task->heads, &rows, scores, sums, task->context);
}

calm_status calm_heads_attend_all(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, float *context)
{
    attend_task task = {a, kept, context, calm_heads_query_blocks(a->span->n_tokens)};
    return calm_parallel_for(ctx, a->config->n_heads * task.n_blocks, attend_rows, &task);
}

size_t calm_heads_attend_bytes(const calm_config *config, size_t n_tokens)
{
    (void)config;    /* one block of query rows, independent of the number of heads */
    const size_t rows = calm_size_min(n_tokens, CALM_QUERY_ROWS);
    return CALM_BYTES(float, rows * n_tokens) + CALM_BYTES(float, rows);
}

/* ---- projections ---- */

typedef struct part_task {
    const calm_heads *a;
    bool back;
} part_task;

/* Reorders (q_0, gate_0, q_1, gate_1, ...), a pair for each head, to all queries, then all gates; or back. */
static calm_status part_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const part_task *task = user;
    const size_t d = task->a->config->head_dim, width = task->a->config->n_heads * d;
    float *row;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, 2 * width));
    for (size_t t = first; t < first + n; t++) {
        float *q = task->a->q + t * task->a->q_stride;
        memcpy(row, q, 2 * width * sizeof *row);
        for (size_t head = 0; head < task->a->config->n_heads; head++)
            for (size_t half = 0; half < 2; half++) {
                const size_t parted = half * width + head * d, paired = (2 * head + half) * d;
                memcpy(q + (task->back ? paired : parted), row + (task->back ? parted : paired), d * sizeof *q);
            }
    }
    return CALM_OK;
}

calm_status calm_heads_part(calm_ctx *ctx, const calm_heads *a, bool back)
{
    return calm_parallel_rows(ctx, a->span->n_tokens, part_rows, &(part_task){a, back});
}

typedef struct gate_task {
    const calm_heads *a;
    float *context;
} gate_task;

/* Multiplies the context by sigmoid(gate). */
static void gate_rows(size_t first, size_t n, void *user)
{
    const gate_task *task = user;
    const size_t width = task->a->config->n_heads * task->a->config->head_dim;
    for (size_t t = first; t < first + n; t++)
        calm_vec_sigmoid_mul(width, task->a->gate + t * task->a->q_stride, task->context + t * width);
}

void calm_heads_gate(calm_ctx *ctx, const calm_heads *a, float *context)
{
    if (!a->gate)
        return;
    calm_parallel_each_rows(ctx, a->span->n_tokens, gate_rows, &(gate_task){a, context});
}

calm_status calm_heads_project(calm_ctx *ctx, const calm_block *block, const float *h, calm_apply_fn *apply,
                               calm_heads *a)
{
    const calm_config *config = block->config;
    const size_t n_tokens = a->span->n_tokens, q_width = config->n_heads * config->head_dim,
                 kv_width = config->n_kv * config->head_dim;
    const calm_weight *fused = &block->weight[CALM_ROLE_FUSED_QKV];
    /* The three parts stay columns of the fused product, with a common stride. */
    if (fused->w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->q, n_tokens * fused->out));
        a->k = a->q + q_width;
        a->v = a->k + kv_width;
        a->q_stride = a->kv_stride = fused->out;
        return apply(ctx, fused, h, n_tokens, a->q);
    }
    a->q_stride = (config->output_gate ? 2 : 1) * q_width;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->q, n_tokens * a->q_stride));
    /* The block reads keys and values of an earlier one, and only projects queries. */
    if (config->kv == CALM_KV_SHARED) {
        CALM_TRY(calm_heads_shared(ctx, block, a));
        return apply(ctx, &block->weight[CALM_ROLE_Q], h, n_tokens, a->q);
    }
    a->kv_stride = kv_width;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->k, n_tokens * kv_width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a->v, n_tokens * kv_width));
    CALM_TRY(calm_weight_apply_each(ctx, apply, config->k_is_v ? 2 : 3,
                                    (const calm_weight *[]){&block->weight[CALM_ROLE_Q], &block->weight[CALM_ROLE_K],
                                                            &block->weight[CALM_ROLE_V]},
                                    h, n_tokens, (float *[]){a->q, a->k, a->v}));
    CALM_TRY(calm_heads_values(ctx, config, a));
    if (!config->output_gate)
        return CALM_OK;
    /* After the reordering by calm_heads_part() the gates follow the queries of each row. */
    a->gate = a->q + q_width;
    return calm_heads_part(ctx, a, false);
}

/* ---- norms and rotation: parallel over rows and heads where one window runs alone ---- */

typedef struct heads_task {
    const calm_block *block;
    const calm_heads *a;
    calm_norm q_norm, k_norm;    /* from calm_heads_norms */
    calm_rope_table table;
    calm_rotate_fn *rotate;    /* NULL: no rotation, only the scale of queries */
} heads_task;

/* Applies an RMSNorm to x [n, stride]: to each of `parts` rows of its width, from the first column on. */
static void norm_rows(const calm_norm *norm, float *x, size_t stride, size_t n, size_t parts)
{
    for (size_t t = 0; norm->w && t < n; t++)
        for (size_t part = 0; part < parts; part++)
            calm_norm_rows(norm, x + t * stride + part * norm->width, 1, x + t * stride + part * norm->width);
}

/* Clamps the first `width` columns of x [n, stride] to -limit .. limit; NaN stays NaN. */
static void limit_rows(float limit, float *x, size_t stride, size_t n, size_t width)
{
    for (size_t t = 0; limit > 0 && t < n; t++)
        for (size_t i = 0; i < width; i++) {
            float *at = &x[t * stride + i];
            *at = *at > limit ? limit : *at < -limit ? -limit : *at;
        }
}

/* Applies the norms of q and k, then the family's clamp of q, k and v. */
static void norm_tokens(size_t first, size_t n, void *user)
{
    const heads_task *task = user;
    const calm_heads *a = task->a;
    const size_t width = a->config->n_kv * a->config->head_dim;
    norm_rows(&task->q_norm, a->q + first * a->q_stride, a->q_stride, n,
              calm_heads_norm_parts(a->config, a->config->n_heads));
    norm_rows(&task->k_norm, a->k + first * a->kv_stride, a->kv_stride, n,
              calm_heads_norm_parts(a->config, a->config->n_kv));
    limit_rows(a->config->qkv_limit, a->q + first * a->q_stride, a->q_stride, n,
               a->config->n_heads * a->config->head_dim);
    limit_rows(a->config->qkv_limit, a->k + first * a->kv_stride, a->kv_stride, n, width);
    limit_rows(a->config->qkv_limit, a->v + first * a->kv_stride, a->kv_stride, n, width);
}

bool calm_heads_normed(const calm_block *block)
{
    if (block->config->qk_norm == CALM_QK_NORM_BARE)
        return calm_heads_rotated(block);
    return block->plain[CALM_PLAIN_Q_NORM].w || block->plain[CALM_PLAIN_K_NORM].w;
}

calm_status calm_heads_norms(calm_ctx *ctx, const calm_block *block, calm_norm *q, calm_norm *k)
{
    *q = block->plain[CALM_PLAIN_Q_NORM];
    *k = block->plain[CALM_PLAIN_K_NORM];
    if (block->config->qk_norm != CALM_QK_NORM_BARE || !calm_heads_rotated(block))
        return CALM_OK;
    CALM_TRY(calm_heads_bare_norm(ctx, block->config, q));
    *k = *q;
    return CALM_OK;
}

calm_status calm_heads_norm(calm_ctx *ctx, const calm_block *block, const calm_heads *a)
{
    heads_task task = {.a = a};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_heads_norms(ctx, block, &task.q_norm, &task.k_norm));
    calm_parallel_each_rows(ctx, a->span->n_tokens, norm_tokens, &task);
    return CALM_OK;
}

/* Rounds keys and values as an 8-bit KV cache does, or records their largest magnitudes. */
static void cache_tokens(size_t first, size_t n, void *user)
{
    const heads_task *task = user;
    const calm_heads *a = task->a;
    const calm_block *block = task->block;
    const size_t width = a->config->n_kv * a->config->head_dim, at = first * a->kv_stride;
    /* Shared keys and values are rounded by the block that computes them; here they have the same peaks. */
    if (block->kv_peaks) {
        calm_kv_watch(&block->kv_peaks->k, a->k + at, n, a->kv_stride, width);
        calm_kv_watch(&block->kv_peaks->v, a->v + at, n, a->kv_stride, width);
    }
    if (block->kv.k > 0 && a->config->kv != CALM_KV_SHARED) {
        calm_kv_round(block->kv.k, a->k + at, n, a->kv_stride, width);
        calm_kv_round(block->kv.v, a->v + at, n, a->kv_stride, width);
    }
}

static void cache_heads(calm_ctx *ctx, const calm_block *block, const calm_heads *a)
{
    if (block->kv_peaks || block->kv.k > 0)
        calm_parallel_each_rows(ctx, a->span->n_tokens, cache_tokens, &(heads_task){.block = block, .a = a});
}

/* Multiplies a head of q by its position-dependent scale; gradients are multiplied likewise. */
static void grow_head(const calm_heads *a, float *q)
{
    const calm_query_scale_config *growth = &a->config->query_growth;
    for (size_t t = 0; t < a->span->n_tokens; t++) {
        const double turns = floor((double)(calm_heads_position(a, t) + growth->from_one) / growth->length);
        /* In most texts all positions are below `length`, where the factor is 1. */
        if (turns > 0)
            calm_vec_scale(a->config->head_dim, (float)(1 + (double)growth->beta * log1p(turns)), q + t * a->q_stride);
    }
}

/* Rotates head `index` of q, or after those of k; where keys have a shared part, only that part and the matching
 * channels of q. */
static void rotate_head(size_t index, void *user)
{
    const heads_task *task = user;
    const calm_heads *a = task->a;
    const size_t n = a->span->n_tokens, d = a->k_width + a->shared_width, n_heads = a->config->n_heads;
    if (index < n_heads && task->rotate)
        task->rotate(&task->table, a->q + index * d + (a->shared ? a->k_width : 0), a->q_stride, n, 1, d,
                     a->span->positions);
    if (index < n_heads && a->config->query_growth.beta > 0
        && a->config->query_growth.unrotated == !task->rotate)
        grow_head(a, a->q + index * d);
    if (index < n_heads || !task->rotate)
        return;
    if (a->shared)
        task->rotate(&task->table, a->shared, a->shared_stride, n, 1, a->shared_width, a->span->positions);
    else
        task->rotate(&task->table, a->k + (index - n_heads) * d, a->kv_stride, n, 1, d, a->span->positions);
}

bool calm_heads_rotated(const calm_block *block)
{
    const calm_config *config = block->config;
    /* Encoders add position embeddings instead. */
    return config->rope[CALM_ROPE_GLOBAL].rotary && !(config->no_rope && config->no_rope[block->index]);
}

calm_status calm_heads_rotate(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_heads *a,
                              calm_rotate_fn *rotate)
{
    const calm_config *config = block->config;
    const size_t n = a->span->n_tokens;
    heads_task task = {.a = a, .rotate = rotate};
    if (!calm_heads_rotated(block)) {
        task.rotate = NULL;
        if (config->query_growth.beta > 0 && config->query_growth.unrotated)
            calm_parallel_each(ctx, config->n_heads, rotate_head, &task);
        return CALM_OK;
    }
    /* The table depends on the block and on the window's last position. */
    CALM_TRY(calm_rope_find(ctx, rope, config, block->index, n ? calm_heads_position(a, n - 1) + 1 : 0, &task.table));
    const size_t keys = config->kv == CALM_KV_SHARED ? 0 : a->shared ? 1 : config->n_kv;
    calm_parallel_each(ctx, config->n_heads + keys, rotate_head, &task);
    return CALM_OK;
}

size_t calm_block_attention_scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    const size_t projected = calm_has_role(config, CALM_ROLE_FUSED_QKV)
                                 ? CALM_BYTES(float, n_tokens * (q_width + 2 * kv_width))
                                 : CALM_BYTES(float, (config->output_gate ? 2 : 1) * n_tokens * q_width)
                                       + calm_heads_values_bytes(config, n_tokens);
    /* The prepared input of q, k and v is released before scores are computed; that of o is allocated last. */
    const size_t first = prepared ? calm_weight_apply_scratch_bytes(config->hidden, n_tokens) : 0;
    const size_t last = calm_size_max(calm_hadamard_bytes(config, CALM_JOB_O, q_width),
                                      prepared ? calm_weight_apply_scratch_bytes(q_width, n_tokens) : 0);
    const size_t context = CALM_BYTES(float, n_tokens * q_width);
    const bool sinks = config->arch->names->plain[CALM_PLAIN_SINKS] != NULL;
    const size_t shares = sinks ? CALM_BYTES(float, n_tokens * config->n_heads) : 0;
    return projected + calm_size_max(first, calm_rope_scratch_bytes(config, n_tokens) + context + shares +
                                                calm_heads_attend_bytes(config, n_tokens) + last);
}

calm_status calm_block_attention(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                 const calm_span *span, float *out, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const size_t n = span->n_tokens, width = config->n_heads * config->head_dim;
    CALM_SCOPED_SCRATCH(ctx);
    calm_heads a = calm_heads_of(block, span);
    float *context;
    calm_observation seen = {CALM_HOOK_QKV_IN, CALM_NO_EXPERT, span->window, h, n, config->hidden, NULL};
    CALM_TRY(calm_observe(observer, ctx, &seen));
    CALM_TRY(calm_heads_project(ctx, block, h, calm_weight_apply, &a));
    /* The order matters: rotation keeps lengths, but a norm's weights are per channel. */
    if (!config->arch->late_qk_norm)
        CALM_TRY(calm_heads_norm(ctx, block, &a));
    CALM_TRY(calm_heads_rotate(ctx, block, rope, &a, calm_rope_rotate));
    if (config->arch->late_qk_norm)
        CALM_TRY(calm_heads_norm(ctx, block, &a));
    cache_heads(ctx, block, &a);
    calm_heads_keep_kv(&a);
    calm_heads_remember(block, &a);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, context, n * width));
    if (a.sinks)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a.shares, n * config->n_heads));
    if (calm_heads_use_ints(ctx, block, &a))
        CALM_TRY(calm_heads_attend_ints(ctx, &a, context));
    else
        CALM_TRY(calm_heads_attend_all(ctx, &a, &(calm_heads_kept){NULL, NULL}, context));
    if (a.sinks) {
        seen = (calm_observation){CALM_HOOK_SINK, CALM_NO_EXPERT, span->window, a.shares, n, config->n_heads, NULL};
        CALM_TRY(calm_observe(observer, ctx, &seen));
    }
    calm_heads_gate(ctx, &a, context);
    CALM_TRY(calm_hadamard_rows(ctx, config, CALM_JOB_O, n, width, context));
    seen.hook = CALM_HOOK_O_IN;
    seen.x = context;
    seen.width = width;
    CALM_TRY(calm_observe(observer, ctx, &seen));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_O], context, n, out);
}
