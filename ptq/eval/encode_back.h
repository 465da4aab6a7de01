/* Backward pass of sentence embeddings: how far one is from the reference's, and its gradient by the hidden rows.
 *
 *   q   mean of the rows of a sentence (encode.h)      f   the same of the reference
 *   L   1 - q . f / (|q| |f|)                          dL/dx_t = (cos q / |q| - f / |f|) / (|q| T)
 *
 * In double, in a fixed order. */
#ifndef CALM_EVAL_ENCODE_BACK_H
#define CALM_EVAL_ENCODE_BACK_H

#include "ptq/base/context.h"

/* *loss = L of a sentence of n >= 1 tokens with rows x [n, width], the reference's being y [n, width]; d (NULL: not
 * wanted) [n, width] = scale dL/dx.  CALM_ENUMERIC: an embedding is 0 or not finite. */
calm_status calm_embedding_back(calm_ctx *ctx, const float *x, const float *y, size_t n, size_t width, double scale,
                                double *loss, float *d);

/* What that holds of ctx->scratch. */
size_t calm_embedding_back_scratch_bytes(size_t width);

#endif
