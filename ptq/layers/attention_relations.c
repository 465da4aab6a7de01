/* A loss of the relations between tokens in attention (MiniLM, 2002.10957; the last layer of MKQ-BERT, 2203.13483):
 *
 *   P = softmax(scale Q K^T) of each head       R = softmax(V V^T / sqrt(d)) of each head of values
 *   L = mean over heads and tokens of KL(P' || P)  +  the same of KL(R' || R),  ' of the reference
 *   dL/dscores = (P - P') / (heads T)           dQ = scale dS K   dK = scale dS^T Q   dV = (dS V + dS^T V) / sqrt(d)
 *
 * P covers the keys that each query sees; R covers all tokens. */
#include <math.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/layers/attention_impl.h"
#include "ptq/layers/distance.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

typedef struct relating {
    const calm_heads *a, *reference, *d;
    double scale, *losses;    /* [n_kv] */
} relating;

/* Scores of a block of query rows, of both models. */
typedef struct room {
    float *own, *other, *sums, *other_sums;
    float *raw;    /* `own` before the softmax: logarithms need them where numerators are 0 */
} room;

/* Returns KL(p' || p) of a row: p from numerators and their sum, log p from raw scores times `scale`; `other` is p'. */
static double divergence(size_t width, const float *p, float sum, const float *raw, double scale, const float *other)
{
    size_t most = 0;
    double loss = 0;
    for (size_t j = 1; j < width; j++)    /* of keys that are seen, since p is 0 for the others */
        most = p[j] > p[most] ? j : most;
    for (size_t j = 0; j < width; j++) {
        const double own = scale * ((double)raw[j] - (double)raw[most]) - log((double)sum);
        loss += other[j] > 0 ? (double)other[j] * (log((double)other[j]) - own) : 0;
    }
    return loss;
}

/* Replaces the numerators `own` [n, width] by weight (p - p'); returns the sum of weight KL(p' || p) over the rows. */
static double compare(const room *of, size_t n, size_t width, double scale, double weight)
{
    double loss = 0;
    for (size_t r = 0; r < n; r++) {
        float *p = of->own + r * width, *other = of->other + r * width;
        calm_vec_scale(width, 1 / of->other_sums[r], other);
        loss += weight * divergence(width, p, of->sums[r], of->raw + r * width, scale, other);
        calm_vec_scale(width, 1 / of->sums[r], p);
        calm_vec_axpy(width, -1, other, p);
        calm_vec_scale(width, (float)weight, p);
    }
    return loss;
}

/* Copies scores to raw [n, n_keys] as the softmax reads them, without the mask; returns the scale that is still to be
 * applied. */
static float keep_raw(const calm_heads *a, const calm_query_rows *rows, const float *scores, float *raw)
{
    const uint32_t *at = a->span->positions;
    const float scale = a->config->attention_scale;
    memcpy(raw, scores, rows->n * rows->n_keys * sizeof *raw);
    for (size_t r = 0; a->distance && r < rows->n; r++)
        for (size_t j = 0; j < rows->n_keys; j++) {
            const size_t t = rows->first + r, key = rows->key + j;
            float *x = raw + r * rows->n_keys + j;
            *x = *x * scale + calm_distance_at(a->distance, rows->head, at ? at[t] : t, at ? at[key] : key);
        }
    return a->distance ? 1 : scale;
}

/* Adds loss and gradient of the query block that begins with query `first` of a head. */
static calm_status relate_queries(calm_ctx *ctx, const relating *r, size_t head, size_t first, const room *of,
                                  double *loss)
{
    const calm_heads *a = r->a, *d = r->d;
    const calm_query_rows rows = calm_heads_rows(a, head, first), others = calm_heads_rows(r->reference, head, first);
    const float scale = a->config->attention_scale;
    const double weight = r->scale / (double)(a->config->n_heads * a->span->n_tokens);
    CALM_TRY(calm_heads_scores(ctx, a, &rows, of->own));
    CALM_TRY(calm_heads_scores(ctx, r->reference, &others, of->other));
    const float of_raw = keep_raw(a, &rows, of->own, of->raw);
    calm_heads_exponentiate(a, &rows, of->own, of->sums);
    calm_heads_exponentiate(r->reference, &others, of->other, of->other_sums);
    *loss += compare(of, rows.n, rows.n_keys, (double)of_raw, weight);
    calm_sgemm_nn(rows.n, a->k_width, rows.n_keys, scale, of->own, rows.n_keys, a->k + rows.kv, a->kv_stride, 1,
                  d->q + rows.q, d->q_stride);
    calm_sgemm_tn(rows.n_keys, a->k_width, rows.n, scale, of->own, rows.n_keys, a->q + rows.q, a->q_stride, 1,
                  d->k + rows.kv, d->kv_stride);
    return CALM_OK;
}

/* Computes the numerators of n rows of R from `first` on, and their raw scores (NULL: not wanted); v: the head's
 * values. */
static void relate_rows(const calm_heads *a, const float *v, size_t first, size_t n, float scale, float *scores,
                        float *raw, float *sums)
{
    const size_t all = a->span->n_tokens;
    calm_sgemm_nt(n, all, a->v_width, 1, v + first * a->kv_stride, a->kv_stride, v, a->kv_stride, 0, scores, all);
    if (raw)
        memcpy(raw, scores, n * all * sizeof *raw);
    for (size_t r = 0; r < n; r++)
        sums[r] = calm_vec_softmax_numerators(all, scale, scores + r * all);
}

/* Adds loss and gradient of the tokens from `first` on of a head of values. */
static void relate_values(const relating *r, size_t kv_head, size_t first, const room *of, double *loss)
{
    const calm_heads *a = r->a;
    const size_t all = a->span->n_tokens, n = calm_size_min(all - first, CALM_QUERY_ROWS);
    const size_t at = kv_head * a->kv_step, row = first * a->kv_stride;
    const float scale = 1 / sqrtf((float)a->v_width), *v = a->v + at;
    float *dv = r->d->v + at;
    relate_rows(a, v, first, n, scale, of->own, of->raw, of->sums);
    relate_rows(r->reference, r->reference->v + kv_head * r->reference->kv_step, first, n, scale, of->other,
                NULL, of->other_sums);
    *loss += compare(of, n, all, (double)scale, r->scale / (double)(a->config->n_kv * all));
    calm_sgemm_nn(n, a->v_width, all, scale, of->own, all, v, a->kv_stride, 1, dv + row, a->kv_stride);
    calm_sgemm_tn(all, a->v_width, n, scale, of->own, all, v + row, a->kv_stride, 1, dv, a->kv_stride);
}

/* Task: a head of keys and values, with the query heads that share it in order, since they add to its keys. */
static calm_status relate_head(calm_ctx *ctx, size_t kv_head, void *user)
{
    const relating *r = user;
    const size_t n = r->a->span->n_tokens, each = r->a->config->n_heads / r->a->config->n_kv;
    const size_t rows = calm_size_min(n, CALM_QUERY_ROWS);
    room of;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, of.own, rows * n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, of.other, rows * n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, of.raw, rows * n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, of.sums, rows));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, of.other_sums, rows));
    for (size_t first = 0; first < n; first += CALM_QUERY_ROWS) {
        for (size_t head = kv_head * each; head < (kv_head + 1) * each; head++)
            CALM_TRY(relate_queries(ctx, r, head, first, &of, &r->losses[kv_head]));
        relate_values(r, kv_head, first, &of, &r->losses[kv_head]);
    }
    return CALM_OK;
}

calm_status calm_heads_relate(calm_ctx *ctx, const calm_heads *a, const calm_heads *reference, double scale,
                              const calm_heads *d, double *loss)
{
    const calm_config *config = a->config;
    relating r = {a, reference, d, scale, NULL};
    CALM_SCOPED_SCRATCH(ctx);
    if (a->shared || a->sinks || config->attention_cap > 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "attention with shared keys, sinks or capped scores has no loss of "
                         "its relations here");
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r.losses, config->n_kv));
    CALM_TRY(calm_parallel_for(ctx, config->n_kv, relate_head, &r));
    for (size_t i = 0; i < config->n_kv; i++)
        *loss += r.losses[i];
    return CALM_OK;
}

size_t calm_heads_relate_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const size_t rows = calm_size_min(n_tokens, CALM_QUERY_ROWS), workers = calm_size_min(n_threads, config->n_kv);
    return CALM_BYTES(double, config->n_kv) +
           workers * (3 * CALM_BYTES(float, rows * n_tokens) + 2 * CALM_BYTES(float, rows));
}
