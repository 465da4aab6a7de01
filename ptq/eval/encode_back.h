/* Backward pass of sentence embeddings: the loss against the reference's embedding, and its gradient with respect to
 * the hidden rows.
 *
 *   q   embedding of a sentence (ptq/model/pooling.h)  f   the same of the reference
 *   L   1 - q . f / (|q| |f|)                          dL/dq = (cos q / |q| - f / |f|) / |q|
 *   dL/dx_t = w_t dL/dp, p the pooled row, from dL/dq back through the layers behind it
 *
 * In double, in a fixed order. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/model/pooling.h"

/* *loss = L of a sentence of n >= 1 tokens with rows x [n, D], the reference's being y [n, D]; d (NULL: not wanted)
 * [n, D] = scale dL/dx.  CALM_ENUMERIC: an embedding is 0 or not finite. */
calm_status calm_embedding_back(calm_ctx *ctx, const calm_pooling *pooling, const float *x, const float *y, size_t n,
                                double scale, double *loss, float *d);

/* What that holds of ctx->scratch, of the model's pooling. */
size_t calm_embedding_back_scratch_bytes(const calm_config *config);
