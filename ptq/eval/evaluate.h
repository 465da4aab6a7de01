/* Evaluation: perplexity, KL divergence to a reference, top-1 and top-5 agreement, streaming over windows.
 *
 *   nll   mean over predicted tokens of -log p(token)           ppl = exp(nll)
 *   kl    mean over predicted positions of sum_v p_ref(v) log(p_ref(v) / p(v))
 *   top1  share of positions where both put the same token first
 *   top5  share of positions where the reference's first token is among the model's five first
 * The first token of a window is not predicted.  Of tokens with equal logits the lower id comes first.  Logits and
 * exponentials in float32, sums in double (docs/method.md 6). */
#pragma once

#include "ptq/base/context.h"
#include "ptq/eval/predict.h"
#include "ptq/data/windows.h"
#include "ptq/model/forward.h"

typedef struct calm_eval_window {
    size_t tokens;                /* predicted                       */
    double nll, kl, top1, top5;   /* sums over them; all but nll 0 without a reference */
} calm_eval_window;

typedef struct calm_eval_result {
    size_t tokens;                     /* predicted, all windows     */
    double nll, ppl, kl, top1, top5;   /* means; kl, top1 and top5 NaN without a reference */
    calm_eval_window *windows;         /* [windows->n] in ctx->out   */
} calm_eval_result;

/* Evaluate `subjects` [n] on the windows, and compare them with `reference` unless that is NULL.  `reference_result`
 * may be NULL.  Each model runs once per batch of windows; `tick` (may be NULL) counts windows times models.
 * CALM_EARG: the vocabularies have different sizes.  CALM_ENUMERIC: a logit is not finite. */
calm_status calm_evaluate(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                          const calm_subject *subjects, size_t n, calm_eval_result *results,
                          const calm_windows *windows, calm_tick_fn *tick, void *tick_user);

/* A predicted token, and how both models predicted it. */
typedef struct calm_eval_position {
    size_t window, token;                   /* number of the window; place of the token in it, from 1 */
    double kl, nll, reference_nll;          /* at this position                                       */
    uint32_t id, best, reference_best;      /* of the token; of the models' first choices             */
} calm_eval_position;

typedef struct calm_eval_worst {
    size_t n, most;              /* found; asked for                                            */
    calm_eval_position *each;    /* [n] by falling kl, ties by window and token; in ctx->out    */
    size_t n_kl;                 /* predicted tokens                                            */
    double *kl;                  /* [n_kl] of each, window after window; in ctx->out            */
} calm_eval_worst;

/* Evaluate one subject like calm_evaluate, keep the kl of every predicted token, and find the `most` (0: none)
 * positions where it differs most from the reference. */
calm_status calm_evaluate_worst(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                                const calm_subject *subject, calm_eval_result *result, const calm_windows *windows,
                                size_t most, calm_tick_fn *tick, void *tick_user, calm_eval_worst *worst);

/* ---- parts of an evaluation ---- */

/* Part `part` of n_parts of the windows, borrowed, and in *first the number of its first window.  Parts end where
 * batches end, so a window is computed next to the same others, with the same bits; n is 0 where batches are fewer. */
calm_status calm_evaluation_part(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t part,
                                 size_t n_parts, calm_windows *out, size_t *first);

/* What calm_evaluate gives for all windows, from its results of the parts [n], those of n_windows[i] windows; into
 * ctx->out.  `compared`: there was a reference. */
calm_status calm_evaluate_join(calm_ctx *ctx, const calm_eval_result *parts, const size_t *n_windows, size_t n,
                           bool compared, calm_eval_result *out);

/* The same of what calm_evaluate_worst finds besides; all parts had the same `most`. */
calm_status calm_evaluate_worst_join(calm_ctx *ctx, const calm_eval_worst *parts, const size_t *n_windows, size_t n,
                                 calm_eval_worst *out);

/* ---- memory ---- */

/* What the memory of an evaluation depends on. */
typedef struct calm_evaluation_shape {
    const calm_config *config;     /* of all models                                                          */
    size_t n_windows, longest;     /* the longest window's tokens, which all may have                        */
    size_t n;                      /* subjects                                                               */
    bool has_reference;
    size_t n_checkpoints;          /* models, with the reference; several subjects may be of one             */
    size_t n_kl, worst;            /* of calm_evaluate_worst: tokens of all windows, its `most`; else 0      */
    size_t block_bytes;            /* a model's most while it runs one of its blocks: weights and activations */
} calm_evaluation_shape;

/* Bytes that calm_evaluate, or calm_evaluate_worst, leaves in ctx->out, with reference_result; the most that it holds
 * besides, with n_threads workers. */
size_t calm_evaluate_bytes(const calm_evaluation_shape *shape);
size_t calm_evaluate_scratch_bytes(const calm_evaluation_shape *shape, size_t n_threads);

/* Hidden rows of a batch; windows of a batch when the longest has `longest` tokens, at least one. */
size_t calm_evaluation_rows(const calm_config *config);
size_t calm_evaluation_batch(const calm_config *config, size_t n_windows, size_t longest);
