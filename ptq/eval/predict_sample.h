/* Random vectors whose covariance is the Hessian of the KL divergence, propagated back through the head to its
 * inputs.
 *
 * With p = softmax of a row's logits, KL(p || softmax(logits + e)) = 1/2 e^T F e + O(e^3), F = diag(p) - p p^T.  For
 * independent random signs s over the vocabulary, v = sqrt(p) s - p (sqrt(p) . s) has E[v v^T] = F, so the mean of
 * (v . e)^2 over draws is 2 KL.  Each row draws separate signs; so the mean square of the sum of v . e over rows is the
 * sum of their 2 KL. */
#pragma once

#include "ptq/eval/predict.h"

/* Computes dhidden [n, D] = J^T v for `hidden` of the set's only model (hidden states after the final norm), after
 * calm_predict has filled `rows`; J: the derivative of a row's logits.  Row t uses draw first + t of `stream`, so that
 * draws depend neither on tiles nor on how many rows are computed together.  targets: as for calm_predict; dhidden of a
 * row with CALM_NO_TARGET is 0.  CALM_EARG: there is more than one model.  CALM_ENUMERIC: a value is not finite. */
calm_status calm_predict_sample_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n,
                                     size_t first, uint64_t stream, float *dhidden);

/* Returns the peak bytes of ctx->scratch with n_threads workers. */
size_t calm_predict_sample_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads);
