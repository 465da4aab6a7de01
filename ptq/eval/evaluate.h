/* Evaluation: perplexity, KL divergence to a reference, top-1 and top-5 agreement, streaming over windows.
 *
 *   nll   mean over predicted tokens of -log p(token)           ppl = exp(nll)
 *   kl    mean over predicted positions of sum_v p_ref(v) log(p_ref(v) / p(v))
 *   top1  share of positions where both models have the same most probable token
 *   top5  share of positions where the reference's most probable token is among the model's five most probable
 * The first token of a window is not predicted.  Of tokens with equal logits the lower id comes first.  Logits and
 * exponentials in float32, sums in double (docs/method.md 6). */
#pragma once

#include "ptq/base/context.h"
#include "ptq/eval/predict.h"
#include "ptq/data/windows.h"
#include "ptq/model/forward.h"

typedef struct calm_eval_window {
    size_t tokens;                /* number of predicted tokens */
    double nll, kl, top1, top5;   /* sums over them; kl, top1 and top5 are 0 without a reference */
} calm_eval_window;

typedef struct calm_eval_result {
    size_t tokens;                     /* number of predicted tokens of all windows */
    double nll, ppl, kl, top1, top5;   /* means; kl, top1 and top5 NaN without a reference */
    calm_eval_window *windows;         /* [windows->n] in ctx->out   */
} calm_eval_result;

/* Evaluates `subjects` [n] on the windows, and compares them with `reference` (NULL: none).  `reference_result` may be
 * NULL.  Each model runs once per batch of windows; `tick` (NULL: none) counts windows times models.
 * CALM_EARG: the vocabularies have different sizes.  CALM_ENUMERIC: a logit is not finite. */
calm_status calm_evaluate(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                          const calm_subject *subjects, size_t n, calm_eval_result *results,
                          const calm_windows *windows, calm_tick_fn *tick, void *tick_user);

/* A predicted token, and its prediction by both models. */
typedef struct calm_eval_position {
    size_t window, token;                   /* number of the window; position of the token in it, from 1 */
    double kl, nll, reference_nll;          /* at this position                                       */
    uint32_t id, best, reference_best;      /* the token; the most probable tokens of both models */
} calm_eval_position;

typedef struct calm_eval_worst {
    size_t n, most;              /* number found; number asked for */
    calm_eval_position *each;    /* [n] by falling kl, ties by window and token; in ctx->out    */
    size_t n_kl;                 /* number of predicted tokens */
    double *kl;                  /* [n_kl] divergence of each, window after window; in ctx->out */
} calm_eval_worst;

/* Evaluates one subject as calm_evaluate does, keeps the divergence of every predicted token, and finds the `most` (0:
 * none) positions with the largest divergence. */
calm_status calm_evaluate_worst(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                                const calm_subject *subject, calm_eval_result *result, const calm_windows *windows,
                                size_t most, calm_tick_fn *tick, void *tick_user, calm_eval_worst *worst);

/* ---- parts of an evaluation ---- */

/* Returns part `part` of n_parts of the windows (borrowed), and in *first the number of its first window.  Parts end at
 * ends of batches, so that every window is computed in the same batch, with the same bits; n is 0 if there are fewer
 * batches. */
calm_status calm_evaluation_part(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t part,
                                 size_t n_parts, calm_windows *out, size_t *first);

/* Joins the results of parts [n] with n_windows[i] windows to the result of all windows, in ctx->out; compared: there
 * was a reference. */
calm_status calm_evaluate_join(calm_ctx *ctx, const calm_eval_result *parts, const size_t *n_windows, size_t n,
                           bool compared, calm_eval_result *out);

/* Does the same for the results of calm_evaluate_worst; all parts had the same `most`. */
calm_status calm_evaluate_worst_join(calm_ctx *ctx, const calm_eval_worst *parts, const size_t *n_windows, size_t n,
                                 calm_eval_worst *out);

/* ---- memory ---- */

/* The sizes that determine the memory of an evaluation. */
typedef struct calm_evaluation_shape {
    const calm_config *config;     /* shape of all models */
    size_t n_windows, longest;     /* windows; tokens of the longest, which all may have */
    size_t n;                      /* subjects                                                               */
    bool has_reference;
    size_t n_checkpoints;          /* different models, with the reference; several subjects may share one */
    size_t n_kl, worst;            /* calm_evaluate_worst: tokens of all windows, its `most`; else 0 */
    size_t block_bytes;            /* peak of a model while one of its blocks runs: weights and activations */
} calm_evaluation_shape;

/* Return the bytes that calm_evaluate or calm_evaluate_worst allocates in ctx->out, with reference_result; and the peak
 * bytes besides, with n_threads workers. */
size_t calm_evaluate_bytes(const calm_evaluation_shape *shape);
size_t calm_evaluate_scratch_bytes(const calm_evaluation_shape *shape, size_t n_threads);

/* Return the hidden states (rows) of a batch; and its windows, at least one, if the longest has `longest` tokens. */
size_t calm_evaluation_rows(const calm_config *config);
size_t calm_evaluation_batch(const calm_config *config, size_t n_windows, size_t longest);
