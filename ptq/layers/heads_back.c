/* Backward pass of the scores and the context, in the blocks of query rows of the forward pass.
 *
 *   context = P V,  P = softmax(S)      dV = P^T dC     dP = dC V^T     dS = P (dP - rowsum(P dP))
 *   S = scale Q K^T                     dQ = scale dS K                 dK = scale dS^T Q
 *   S = cap tanh(scale Q K^T / cap)     dS (1 - tanh^2) instead of dS there
 *   P with a sink of share s            dsink = - sum of s rowsum(P dP)
 *
 * P of a long window is recomputed from q and k: T^2 / 2 values of every head would be most of the tape. */
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/attention_impl.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* Largest size of P that is kept of a window: for 512 tokens and 32 heads keeping saves a fifth of attention's time. */
#define KEPT_MOST ((size_t)32 << 20)

calm_status calm_heads_keep(calm_ctx *ctx, const calm_config *config, size_t n_tokens, calm_heads_kept *out)
{
    const size_t bytes = CALM_BYTES(float, config->n_heads * n_tokens * n_tokens);
    /* The cap's derivative needs the scores, which the softmax has overwritten. */
    if (config->attention_cap > 0 || bytes > KEPT_MOST)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->numerators, config->n_heads * n_tokens * n_tokens));
    return CALM_NEW_RAW(ctx, ctx->scratch, out->sums, config->n_heads * n_tokens);
}

size_t calm_heads_keep_bytes(const calm_config *config, size_t n_tokens)
{
    /* A shorter window may be kept where the longest is not. */
    const size_t all = CALM_BYTES(float, config->n_heads * n_tokens * n_tokens);
    return config->attention_cap > 0
               ? 0 : CALM_BYTES(float, config->n_heads * n_tokens) + calm_size_min(KEPT_MOST, all);
}

/* Returns the operand type of scores where linears round theirs to one bfloat16: a score of 50 would be wrong by .1,
 * and its probability by a tenth. */
static calm_operands operands_of_scores(calm_operands operands)
{
    return operands == CALM_OPERANDS_BF16 ? calm_bf16_auto() : operands;
}

calm_status calm_heads_attend_tape(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, float *context)
{
    CALM_SCOPED_OPERANDS(ctx, operands_of_scores(ctx->operands));
    return calm_heads_attend_all(ctx, a, kept, context);
}

/* Gradients of the heads: dq in the layout of q; for keys, values and the shared key each query head has its own
 * columns, `heads` times their width. */
typedef struct scores {
    const calm_heads *heads;
    const calm_heads_kept *kept;
    const float *dcontext;
    float *dq, *dk, *dv, *dshared;
    float *dsinks;    /* [h] added to; NULL: not wanted */
} scores;

/* Returns the elements of a row with `width` columns for every query head. */
static size_t row_of(const calm_heads *a, size_t width)
{
    return a->config->n_heads * width;
}

/* Recomputes P of a block of query rows; copies its scores to `capped` (NULL: no cap); sums is scratch memory. */
static calm_status softmax_again(calm_ctx *ctx, const scores *back, const calm_query_rows *rows, float *p,
                                 float *capped, float *sums)
{
    const calm_heads *a = back->heads;
    const size_t n = rows->n, n_keys = rows->n_keys, n_tokens = a->span->n_tokens;
    if (back->kept->numerators) {
        const size_t row = rows->head * n_tokens + rows->first;
        memcpy(p, back->kept->numerators + row * n_tokens, n * n_keys * sizeof *p);
        memcpy(sums, back->kept->sums + row, n * sizeof *sums);
    } else {
        CALM_SCOPED_OPERANDS(ctx, operands_of_scores(ctx->operands));
        CALM_TRY(calm_heads_scores(ctx, a, rows, p));
        /* The cap's derivative needs the scores, which the softmax overwrites. */
        if (capped)
            memcpy(capped, p, n * n_keys * sizeof *p);
        calm_heads_exponentiate(a, rows, p, sums);
    }
    /* The forward pass divides after the product with v; here P itself is needed. */
    for (size_t r = 0; r < n; r++)
        calm_vec_scale(n_keys, 1.0f / sums[r], p + r * n_keys);
    return CALM_OK;
}

/* Adds the gradient of a head's sink, whose probability is 1 minus those of the keys and whose value is 0. */
static void sink_back(const calm_query_rows *rows, const float *p, const float *dp, float *dsink)
{
    for (size_t r = 0; r < rows->n; r++) {
        float keys = 0;
        for (size_t j = 0; j < rows->n_keys; j++)
            keys += p[r * rows->n_keys + j];
        *dsink -= (1 - keys) * (float)calm_vec_dot(rows->n_keys, p + r * rows->n_keys, dp + r * rows->n_keys);
    }
}

/* One part of the key, k in rows of k_stride, which is multiplied by columns `columns` .. of q. */
typedef struct key_part {
    size_t columns, width;
    const float *k;
    size_t k_stride;
    float *dk;
} key_part;

/* Computes dq and dk of that part from ds [n, n_keys]. */
static void key_back(const scores *back, const calm_query_rows *rows, float scale, const float *ds,
                     const key_part *part)
{
    const calm_heads *a = back->heads;
    const size_t n = rows->n, n_keys = rows->n_keys, q = rows->q + part->columns, stride = row_of(a, part->width);
    calm_sgemm_nn(n, part->width, n_keys, scale, ds, n_keys, part->k, part->k_stride, 0.0f, back->dq + q, a->q_stride);
    calm_sgemm_tn(n_keys, part->width, n, scale, ds, n_keys, a->q + q, a->q_stride, 1.0f,
                  part->dk + rows->key * stride + rows->head * part->width, stride);
}

/* Backward of one block of query rows of a head: writes dq of those rows, and adds to the head's dk and dv.  p, ds,
 * capped [n, n_keys] and sums [n] are scratch memory. */
static calm_status back_query_rows(calm_ctx *ctx, const scores *back, const calm_query_rows *rows, float *p,
                                   float *ds, float *capped, float *sums)
{
    const calm_heads *a = back->heads;
    const calm_config *config = a->config;
    const size_t v = a->v_width, width = row_of(a, v), n = rows->n, n_keys = rows->n_keys;
    const float *dcontext = back->dcontext + rows->context;
    CALM_TRY(softmax_again(ctx, back, rows, p, capped, sums));
    calm_sgemm_tn(n_keys, v, n, 1.0f, p, n_keys, dcontext, width, 1.0f,
                  back->dv + rows->key * width + rows->head * v, width);
    calm_sgemm_nt(n, n_keys, v, 1.0f, dcontext, width, a->v + rows->kv, a->kv_stride, 0.0f, ds, n_keys);
    if (back->dsinks)
        sink_back(rows, p, ds, &back->dsinks[rows->head]);
    /* Keys that a query does not see have p = 0, and so get no gradient. */
    for (size_t r = 0; r < n; r++) {
        calm_vec_softmax_back(n_keys, p + r * n_keys, ds + r * n_keys);
        if (capped)
            calm_vec_soft_cap_back(n_keys, config->attention_scale, config->attention_cap, capped + r * n_keys,
                                   ds + r * n_keys);
    }
    /* The cap's derivative includes the scale. */
    const float scale = capped ? 1 : config->attention_scale;
    key_back(back, rows, scale, ds, &(key_part){0, a->k_width, a->k + rows->kv, a->kv_stride, back->dk});
    if (a->shared)
        key_back(back, rows, scale, ds,
                 &(key_part){a->k_width, a->shared_width, a->shared + rows->key * a->shared_stride, a->shared_stride,
                             back->dshared});
    return CALM_OK;
}

/* Clears one head's columns, which no other task uses. */
static void clear_head(const calm_heads *a, size_t head, size_t width, float *d)
{
    for (size_t t = 0; d && t < a->span->n_tokens; t++)
        memset(d + t * row_of(a, width) + head * width, 0, width * sizeof *d);
}

/* Backward of a query head, block after block, since every block adds to dk and dv of the same keys. */
static calm_status back_head(calm_ctx *ctx, size_t head, void *user)
{
    const scores *back = user;
    const calm_heads *a = back->heads;
    const size_t n_tokens = a->span->n_tokens, n = calm_size_min(n_tokens, CALM_QUERY_ROWS);
    /* Sized for the longest block of query rows, the last one of a causal head. */
    float *p, *ds, *capped = NULL, *sums;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, p, n * n_tokens));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, ds, n * n_tokens));
    if (a->config->attention_cap > 0)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, capped, n * n_tokens));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, sums, n));
    clear_head(a, head, a->k_width, back->dk);
    clear_head(a, head, a->v_width, back->dv);
    clear_head(a, head, a->shared_width, back->dshared);
    for (size_t first = 0; first < n_tokens; first += CALM_QUERY_ROWS) {
        const calm_query_rows rows = calm_heads_rows(a, head, first);
        CALM_TRY(back_query_rows(ctx, back, &rows, p, ds, capped, sums));
    }
    return CALM_OK;
}

typedef struct group_task {
    const scores *back;
    const calm_heads *d;
} group_task;

/* Copies `from` to `to` [n], or with `add` adds it. */
static void put(size_t n, const float *from, bool add, float *to)
{
    if (add)
        calm_vec_add(n, from, to);
    else
        memcpy(to, from, n * sizeof *to);
}

/* Computes dk and dv of a key head: the sum over the query heads that share it, in order; of the shared key over all
 * heads. */
static void add_groups(size_t first, size_t n, void *user)
{
    const group_task *task = user;
    const scores *back = task->back;
    const calm_heads *to = task->d;
    const size_t heads = to->config->n_heads, group = heads / to->config->n_kv, k = to->k_width, v = to->v_width;
    for (size_t t = first; t < first + n; t++)
        for (size_t head = 0; head < heads; head++) {
            const size_t from = t * heads + head, at = t * to->kv_stride + head / group * to->kv_step;
            put(k, back->dk + from * k, head % group, to->k + at);
            put(v, back->dv + from * v, head % group, to->v + at);
            /* All heads add to the shared key. */
            const size_t r = to->shared_width;
            if (to->shared)
                put(r, back->dshared + from * r, head, to->shared + t * to->shared_stride);
        }
}

calm_status calm_heads_back(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, const float *dcontext,
                            const calm_heads *d, float *dsinks)
{
    const size_t n = a->span->n_tokens;
    /* Each query head has its own dk and dv, though heads share keys: so their sum has a fixed order, and there are as
     * many tasks as query heads. */
    scores back = {a, kept, dcontext, d->q, NULL, NULL, NULL, dsinks};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, back.dk, n * row_of(a, a->k_width)));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, back.dv, n * row_of(a, a->v_width)));
    if (a->shared)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, back.dshared, n * row_of(a, a->shared_width)));
    CALM_TRY(calm_parallel_for(ctx, a->config->n_heads, back_head, &back));
    calm_parallel_each_rows(ctx, n, add_groups, &(group_task){&back, d});
    return CALM_OK;
}

size_t calm_heads_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    /* Every worker holds the scores of one head. */
    const size_t rows = calm_size_min(n_tokens, CALM_QUERY_ROWS);
    const size_t squares = (config->attention_cap > 0 ? 3 : 2) * CALM_BYTES(float, rows * n_tokens);
    return calm_size_min(n_threads, config->n_heads) * (squares + CALM_BYTES(float, rows));
}
