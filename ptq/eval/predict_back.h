/* Gradient of the KL divergence from a reference with respect to the rows that a head reads.
 *
 *   loss = scale sum_t KL(p_t || q_t),  p = softmax of the reference's logits, q of the model's
 *   d loss / d logits of row t = scale (q_t - p_t), through the cap if the family has one, times the table */
#pragma once

#include "ptq/eval/predict.h"

/* dhidden [n, D] = d loss / d the last model's `hidden`, rows after the final norm, when calm_predict has filled `rows`
 * of both models of `set`, the reference and this one.  Logits are computed again, tile after tile.  `targets` as
 * there: CALM_NO_TARGET leaves a row out, whose gradient is 0.  CALM_EARG: there is no reference, or more than one
 * model next to it.  CALM_ENUMERIC: a gradient is not finite. */
calm_status calm_predict_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n, float scale,
                              float *dhidden);

/* The most that it holds of ctx->scratch with n_threads workers. */
size_t calm_predict_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads);
