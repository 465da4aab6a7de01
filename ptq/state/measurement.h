/* Measures: how far a quantized model is from the float model on a text.
 *
 * A decoder is measured by its predictions of the next token, an encoder by its sentence embeddings.  The two have no
 * figure in common; only their loss can be compared without asking for the kind: the divergence KL(float || model)
 * per token, or the cosine distance 1 - cosine per sentence. */
#pragma once

#include "ptq/eval/encode.h"
#include "ptq/eval/evaluate.h"
#include "store/store.h"

typedef struct calm_measure {
    calm_store_figures kind;                /* which member is set; all zero: predictions, nothing measured      */
    union {
        calm_eval_result predictions;       /* CALM_STORE_PREDICTIONS                                            */
        calm_embedding_result embeddings;   /* CALM_STORE_EMBEDDINGS; each window is a sentence                  */
    };
} calm_measure;

/* Mean KL(float || model) per token, or mean 1 - cosine: the lower the better.  NaN: measured without a reference. */
double calm_measure_loss(const calm_measure *measure);

/* Paired comparison of two measures of one kind over the same windows of n_w tokens (sentences: n_w = 1).
 *
 *   *delta = sum (L_b,w - L_a,w) / sum n_w        the difference of the two mean losses; L_w: summed over the window
 *   *se    = sqrt(W / (W - 1) sum d_w^2) / sum n_w,  d_w = L_b,w - L_a,w - delta n_w
 *
 * the standard error of a ratio, windows as the samples; *se is NaN for fewer than 2 windows. */
void calm_measure_compare(const calm_measure *a, const calm_measure *b, size_t n_windows, double *delta, double *se);

/* The measure of windows a, then b, from those of a_windows and b_windows alone, into ctx->out.  Of an encoder without
 * a rank correlation, which is of one set of sentences. */
calm_status calm_measure_join(calm_ctx *ctx, const calm_measure *a, size_t a_windows, const calm_measure *b,
                              size_t b_windows, calm_measure *out);
