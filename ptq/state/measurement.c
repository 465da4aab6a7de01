/* Measures of decoders and encoders, and the comparison of their losses. */
#include "ptq/state/measurement.h"

#include <math.h>

double calm_measure_loss(const calm_measure *measure)
{
    return measure->kind == CALM_STORE_EMBEDDINGS ? 1 - measure->embeddings.cosine : measure->predictions.kl;
}

/* Returns the loss of b in one window minus that of a, summed over the window's tokens, or of its sentence. */
static double difference(const calm_measure *a, const calm_measure *b, size_t window)
{
    if (a->kind == CALM_STORE_EMBEDDINGS)
        return (1 - b->embeddings.each[window].cosine) - (1 - a->embeddings.each[window].cosine);
    return b->predictions.windows[window].kl - a->predictions.windows[window].kl;
}

/* Returns the number of tokens of that sum; 1 for a sentence. */
static double weight(const calm_measure *a, size_t window)
{
    return a->kind == CALM_STORE_EMBEDDINGS ? 1 : (double)a->predictions.windows[window].tokens;
}

void calm_measure_compare(const calm_measure *a, const calm_measure *b, size_t n_windows, double *delta, double *se)
{
    double sum = 0, total = 0, spread = 0;
    for (size_t w = 0; w < n_windows; w++) {
        sum += difference(a, b, w);
        total += weight(a, w);
    }
    const double mean = sum / total;
    /* Windows differ much more from each other than two plans do in one window, so only differences show the noise.  A
     * long window has a large sum because of its length, which the residual of the ratio removes. */
    for (size_t w = 0; w < n_windows; w++) {
        const double residual = difference(a, b, w) - mean * weight(a, w);
        spread += residual * residual;
    }
    *delta = mean;
    *se = n_windows < 2 ? NAN : sqrt(spread * (double)n_windows / (double)(n_windows - 1)) / total;
}

calm_status calm_measure_join(calm_ctx *ctx, const calm_measure *a, size_t a_windows, const calm_measure *b,
                              size_t b_windows, calm_measure *out)
{
    const size_t windows[] = {a_windows, b_windows};
    out->kind = a->kind;
    if (a->kind == CALM_STORE_EMBEDDINGS) {
        const calm_embedding_result parts[] = {a->embeddings, b->embeddings};
        return calm_embedding_join(ctx, parts, 2, &out->embeddings);
    }
    const calm_eval_result parts[] = {a->predictions, b->predictions};
    return calm_evaluate_join(ctx, parts, windows, 2, true, &out->predictions);
}
