/* Random vectors whose covariance is the Hessian of the KL divergence, propagated back through the head to the rows
 * that it reads.
 *
 * Of p = softmax of a row's logits KL(p || softmax(logits + e)) is 1/2 e^T F e + O(e^3), F = diag(p) - p p^T.  With
 * independent signs s over the vocabulary v = sqrt(p) s - p (sqrt(p) . s) has E[v v^T] = F, so (v . e)^2 is 2 KL in the
 * mean over draws.  Rows draw their own signs: of several rows the sum of v . e has the sum of their KL. */
#pragma once

#include "ptq/eval/predict.h"

/* dhidden [n, D] = J^T v of the only model's `hidden`, rows after the final norm, when calm_predict has filled `rows`:
 * J is the derivative of a row's logits.  Row t draws number first + t of `stream`, so that draws depend neither on
 * tiles nor on how many rows come at once.  `targets` as there: of a row with CALM_NO_TARGET dhidden is 0.  CALM_EARG:
 * there is more than one model.  CALM_ENUMERIC: a value is not finite. */
calm_status calm_predict_sample_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n,
                                     size_t first, uint64_t stream, float *dhidden);

/* The most that it holds of ctx->scratch with n_threads workers. */
size_t calm_predict_sample_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads);
