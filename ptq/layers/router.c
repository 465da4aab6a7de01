/* Routing by the rules of a family (config.h: calm_moe_config). */
#include "ptq/layers/router.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* Lower than every score with bias: the expert is not chosen again. */
#define NEVER (-INFINITY)

void calm_router_logits(const calm_block *block, const float *h, size_t n, float *logits)
{
    const size_t width = block->config->hidden, experts = block->config->moe.n_experts;
    const float *bias = block->plain[CALM_PLAIN_ROUTER_BIAS].w;
    /* The product adds to the bias. */
    for (size_t t = 0; bias && t < n; t++)
        memcpy(logits + t * experts, bias, experts * sizeof *logits);
    calm_sgemm_nt(n, experts, width, 1.0f, h, width, block->moe.router, width, bias ? 1.0f : 0.0f, logits, experts);
}

/* ---- scores ---- */

/* Can the choice use the softmax's numerators?  Then only those of chosen experts are divided by the sum. */
static bool is_plain(const calm_moe_config *moe)
{
    return moe->score == CALM_ROUTER_SOFTMAX && !moe->choice_bias && moe->n_groups <= 1;
}

/* Turns logits into scores in place. */
static void to_scores(const calm_moe_config *moe, float *s)
{
    if (moe->score == CALM_ROUTER_SOFTMAX) {
        calm_vec_scale(moe->n_experts, 1.0f / calm_vec_softmax_numerators(moe->n_experts, 1, s), s);
        return;
    }
    for (size_t e = 0; e < moe->n_experts; e++)
        s[e] = 1.0f / (1.0f + expf(-s[e]));
}

/* ---- the choice ---- */

/* Returns a group's score: the sum of its two largest c, or its largest. */
static float group_score(const calm_moe_config *moe, const float *c, size_t n)
{
    float first = NEVER, second = NEVER;
    for (size_t e = 0; e < n; e++) {
        second = fmaxf(second, fminf(first, c[e]));
        first = fmaxf(first, c[e]);
    }
    return moe->group_by_max || n == 1 ? first : first + second;
}

/* Excludes the experts of all but the best groups. */
static void keep_groups(const calm_moe_config *moe, float *c)
{
    const size_t n = moe->n_experts / moe->n_groups;
    float scores[CALM_ROUTER_GROUPS];
    for (size_t g = 0; g < moe->n_groups; g++)
        scores[g] = group_score(moe, c + g * n, n);
    for (size_t dropped = moe->n_groups - moe->top_groups; dropped > 0; dropped--) {
        size_t worst = 0;
        /* Of two equal groups the one with the higher number is excluded. */
        for (size_t g = 1; g < moe->n_groups; g++)
            worst = scores[g] <= scores[worst] ? g : worst;
        scores[worst] = INFINITY;
        for (size_t e = worst * n; e < (worst + 1) * n; e++)
            c[e] = NEVER;
    }
}

/* Divides the weights by `chosen`, their sum, where the family does, and multiplies them by moe->scale; in float32 and
 * after the choice, like transformers. */
static void finish_weights(const calm_moe_config *moe, float chosen, calm_route *out)
{
    const float sum = fmaxf(chosen + moe->sum_plus, moe->sum_min);
    for (size_t k = 0; moe->norm_top_k && k < moe->top_k; k++)
        out[k].weight /= sum;
    for (size_t k = 0; moe->scale != 1 && k < moe->top_k; k++)
        out[k].weight *= moe->scale;
}

static calm_status not_finite(calm_ctx *ctx, const calm_block *block)
{
    return calm_fail(ctx, CALM_ENUMERIC, "block %zu: a router logit is not finite", block->index);
}

/* Chooses by the numerators p, which are overwritten. */
static calm_status choose_plain(calm_ctx *ctx, const calm_block *block, float *p, calm_route *out)
{
    const calm_moe_config *moe = &block->config->moe;
    float chosen = 0;
    /* Only chosen experts are divided by the sum: 8 of 128, say. */
    const float total = calm_vec_softmax_numerators(moe->n_experts, 1, p);
    /* A NaN among the logits makes every comparison below false and would choose expert 0 silently. */
    if (!isfinite(total))
        return not_finite(ctx, block);
    for (size_t k = 0; k < moe->top_k; k++) {
        const size_t best = calm_vec_argmax(moe->n_experts, p);
        out[k] = (calm_route){(uint32_t)best, p[best] / total};
        chosen += p[best] / total;
        /* Lower than every probability, so that it is not chosen again; argmax returns the lower number of two equal
         * ones. */
        p[best] = -1;
    }
    finish_weights(moe, chosen, out);
    return CALM_OK;
}

/* Chooses by c, computed from the logits in s; s becomes the scores. */
static void choose_scored(const calm_block *block, float *s, float *c, calm_route *out)
{
    const calm_moe_config *moe = &block->config->moe;
    float chosen = 0;
    if (moe->by_logit)
        memcpy(c, s, moe->n_experts * sizeof *c);
    to_scores(moe, s);
    /* The bias affects the choice only; weights are scores without it. */
    if (!moe->by_logit)
        memcpy(c, s, moe->n_experts * sizeof *c);
    if (block->moe.choice_bias)
        calm_vec_add(moe->n_experts, block->moe.choice_bias, c);
    if (moe->n_groups > 1)
        keep_groups(moe, c);
    for (size_t k = 0; k < moe->top_k; k++) {
        const size_t best = calm_vec_argmax(moe->n_experts, c);
        out[k] = (calm_route){(uint32_t)best, s[best]};
        chosen += s[best];
        c[best] = NEVER;
    }
    finish_weights(moe, chosen, out);
}

/* ---- sparsemixer ---- */

/* Computes p [E], the softmax over the logits near the largest of c, 0 elsewhere and where c is NEVER; returns the
 * number of the largest. */
static size_t mix_round(const calm_moe_config *moe, const float *r, const float *c, float *p)
{
    const size_t best = calm_vec_argmax(moe->n_experts, c);
    float sum = 0;
    /* A chosen expert keeps its logit in r, like in transformers, but gets no share. */
    for (size_t e = 0; e < moe->n_experts; e++) {
        const bool far = (c[best] - r[e]) / fmaxf(fabsf(r[e]), c[best]) > 2 * moe->jitter;
        p[e] = far || c[e] == NEVER ? 0 : expf(c[e] - c[best]);
        sum += p[e];
    }
    for (size_t e = 0; e < moe->n_experts; e++)
        p[e] /= sum;
    return best;
}

static void choose_mixed(const calm_moe_config *moe, const float *r, float *c, float *p, calm_route *out)
{
    memcpy(c, r, moe->n_experts * sizeof *c);
    for (size_t k = 0; k < moe->top_k; k++) {
        const size_t best = mix_round(moe, r, c, p);
        out[k] = (calm_route){(uint32_t)best, p[best]};
        c[best] = NEVER;
    }
}

/* ---- rows ---- */

/* Returns the number of vectors [E] that a row needs. */
static size_t vectors(const calm_moe_config *moe)
{
    return is_plain(moe) ? 1 : moe->score == CALM_ROUTER_SPARSEMIXER ? 3 : 2;
}

size_t calm_router_choose_bytes(const calm_moe_config *moe)
{
    return CALM_BYTES(float, vectors(moe) * moe->n_experts);
}

/* Multiplies weights by the factors of experts, as the last step (Gemma 4). */
static void scale_weights(const calm_block *block, size_t n, calm_route *routes)
{
    const float *scale = block->plain[CALM_PLAIN_EXPERT_SCALE].w;
    for (size_t i = 0; scale && i < n * block->config->moe.top_k; i++)
        routes[i].weight *= scale[routes[i].expert];
}

calm_status calm_router_choose(calm_ctx *ctx, const calm_block *block, const float *logits, size_t n, calm_route *out)
{
    const calm_moe_config *moe = &block->config->moe;
    const size_t experts = moe->n_experts;
    CALM_SCOPED_SCRATCH(ctx);
    float *s;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s, vectors(moe) * experts));
    for (size_t t = 0; t < n; t++) {
        calm_route *row = out + t * moe->top_k;
        memcpy(s, logits + t * experts, experts * sizeof *s);
        if (is_plain(moe)) {
            CALM_TRY(choose_plain(ctx, block, s, row));
            continue;
        }
        /* Checked here, since a sigmoid of infinity is finite, and a NaN would lose every comparison. */
        if (calm_find_nonfinite(s, experts) < experts)
            return not_finite(ctx, block);
        if (moe->score == CALM_ROUTER_SPARSEMIXER)
            choose_mixed(moe, s, s + experts, s + 2 * experts, row);
        else
            choose_scored(block, s, s + experts, row);
    }
    scale_weights(block, n, out);
    return CALM_OK;
}

/* ---- backward ---- */

/* Adds the gradients of all rounds to dlogits, each of a softmax over the logits near its largest. */
static void mixed_back(const calm_moe_config *moe, const calm_route *routes, const float *dweight, const float *r,
                       float *dlogits)
{
    for (size_t k = 0; k < moe->top_k; k++) {
        const float top = r[routes[k].expert];
        float sum = 0;
        /* Two passes over the experts: the first computes the sum. */
        for (int pass = 0; pass < 2; pass++)
            for (size_t e = 0; e < moe->n_experts; e++) {
                bool gone = (top - r[e]) / fmaxf(fabsf(r[e]), top) > 2 * moe->jitter;
                for (size_t before = 0; before < k; before++)
                    gone |= routes[before].expert == e;
                const float p = gone ? 0 : expf(r[e] - top);
                if (pass)
                    dlogits[e] += dweight[k] * routes[k].weight * ((e == routes[k].expert) - p / sum);
                else
                    sum += p;
            }
    }
}

void calm_router_unscaled(const calm_moe_config *moe, const calm_route *routes, float *s, calm_route *u)
{
    float chosen = 0;
    /* Recomputed as in the forward pass: dividing the weights by a factor could divide by 0. */
    to_scores(moe, s);
    for (size_t k = 0; k < moe->top_k; k++) {
        u[k] = (calm_route){routes[k].expert, s[routes[k].expert]};
        chosen += u[k].weight;
    }
    finish_weights(moe, chosen, u);
}

void calm_router_back(const calm_moe_config *moe, const calm_route *routes, const float *dweight, float *s,
                      float *dlogits)
{
    float sum = 0, mean = 0;
    memset(dlogits, 0, moe->n_experts * sizeof *dlogits);
    if (moe->score == CALM_ROUTER_SPARSEMIXER) {
        mixed_back(moe, routes, dweight, s, dlogits);
        return;
    }
    to_scores(moe, s);
    for (size_t k = 0; k < moe->top_k; k++) {
        sum += s[routes[k].expert];
        mean += dweight[k] * routes[k].weight;
    }
    /* A sum below sum_min is replaced by a constant, whose gradient is 0. */
    const float divisor = fmaxf(sum + moe->sum_plus, moe->sum_min);
    if (sum + moe->sum_plus < moe->sum_min)
        mean = 0;
    /* The choice is held fixed: an expert that was not chosen only has a gradient through the softmax's sum. */
    for (size_t k = 0; k < moe->top_k; k++) {
        float *ds = &dlogits[routes[k].expert];
        *ds = moe->norm_top_k ? (dweight[k] * moe->scale - mean) / divisor : dweight[k] * moe->scale;
    }
    if (moe->score == CALM_ROUTER_SOFTMAX) {
        calm_vec_softmax_back(moe->n_experts, s, dlogits);
        return;
    }
    /* Sigmoids are independent of each other. */
    for (size_t e = 0; e < moe->n_experts; e++)
        dlogits[e] *= s[e] * (1 - s[e]);
}
