/* Measures: the distance between a quantized model and the float model on a text.
 *
 * A decoder is measured by its predictions of the next token, an encoder by its sentence embeddings.  Only the loss is
 * defined for both: the mean divergence KL(float || model) per token, or the mean cosine distance 1 - cosine per
 * sentence. */
#pragma once

#include "ptq/eval/encode.h"
#include "ptq/eval/evaluate.h"
#include "store/store.h"

typedef struct calm_measure {
    calm_store_figures kind;                /* which member is set; 0: predictions, nothing measured */
    union {
        calm_eval_result predictions;       /* CALM_STORE_PREDICTIONS                                            */
        calm_embedding_result embeddings;   /* CALM_STORE_EMBEDDINGS; each window is a sentence                  */
    };
} calm_measure;

/* Returns the mean KL(float || model) per token, or the mean 1 - cosine; lower is better.  NaN: there is no
 * reference. */
double calm_measure_loss(const calm_measure *measure);

/* Compares two measures of one kind, paired over the same windows of n_w tokens (sentences: n_w = 1).
 *
 *   *delta = sum (L_b,w - L_a,w) / sum n_w        difference of the mean losses; L_w: the loss summed over window w
 *   *se    = sqrt(W / (W - 1) sum d_w^2) / sum n_w,  d_w = L_b,w - L_a,w - delta n_w
 *
 * *se is the standard error of a ratio with windows as samples; NaN for fewer than 2 windows. */
void calm_measure_compare(const calm_measure *a, const calm_measure *b, size_t n_windows, double *delta, double *se);

/* Joins the measures of a_windows windows and b_windows further windows into one, in ctx->out.  For an encoder it has
 * no rank correlation, which is defined on one set of sentences. */
calm_status calm_measure_join(calm_ctx *ctx, const calm_measure *a, size_t a_windows, const calm_measure *b,
                              size_t b_windows, calm_measure *out);
