/* Backward pass of sentence embeddings: the cosine distance to the reference's embedding, and its gradient with respect
 * to the hidden states.
 *
 *   q   embedding of a sentence (ptq/model/pooling.h)  f   the reference's embedding of it
 *   L   1 - q . f / (|q| |f|)                          dL/dq = (cos q / |q| - f / |f|) / |q|
 *   dL/dx_t = w_t dL/dp, p: the pooled hidden state, from dL/dq back through the layers behind the pooling
 *
 * Computed in double, in a fixed order. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/model/pooling.h"

/* Computes *loss = L for a sentence of n >= 1 tokens with hidden states x [n, D], y [n, D] in the reference, and
 * d [n, D] = scale dL/dx (d NULL: no gradient).  CALM_ENUMERIC: an embedding is 0 or not finite. */
calm_status calm_embedding_back(calm_ctx *ctx, const calm_pooling *pooling, const float *x, const float *y, size_t n,
                                double scale, double *loss, float *d);

/* Returns the peak bytes of ctx->scratch for the model's pooling. */
size_t calm_embedding_back_scratch_bytes(const calm_config *config);
