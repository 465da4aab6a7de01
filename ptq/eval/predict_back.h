/* Gradient of the KL divergence from a reference with respect to the head's inputs.
 *
 *   loss = scale sum_t KL(p_t || q_t),  p: softmax of the reference's logits, q: of the model's
 *   d loss / d logits of row t = scale (q_t - p_t), through the logit cap if the family has one, times the table */
#pragma once

#include "ptq/eval/predict.h"

/* Computes dhidden [n, D] = d loss / d `hidden` of the set's last model (hidden states after the final norm), after
 * calm_predict has filled `rows` of both models of `set`, the reference and this one.  Logits are computed again, tile
 * by tile.  targets: as for calm_predict; the gradient of a row with CALM_NO_TARGET is 0.  CALM_EARG: there is no
 * reference, or more than one model besides it.  CALM_ENUMERIC: a gradient is not finite. */
calm_status calm_predict_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n, float scale,
                              float *dhidden);

/* Returns the peak bytes of ctx->scratch with n_threads workers. */
size_t calm_predict_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads);
