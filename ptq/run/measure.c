/* Measures of decoders and encoders, compared by their loss. */
#include "ptq/run/measure.h"

#include <math.h>

double calm_measure_loss(const calm_measure *measure)
{
    return measure->kind == CALM_STORE_EMBEDDINGS ? 1 - measure->embeddings.cosine : measure->predictions.kl;
}

/* Loss of b in one window minus that of a. */
static double difference(const calm_measure *a, const calm_measure *b, size_t window)
{
    if (a->kind == CALM_STORE_EMBEDDINGS)
        return (1 - b->embeddings.each[window].cosine) - (1 - a->embeddings.each[window].cosine);
    const calm_eval_window *of_a = &a->predictions.windows[window], *of_b = &b->predictions.windows[window];
    return (of_b->kl - of_a->kl) / (double)of_a->tokens;    /* windows hold sums over their tokens */
}

void calm_measure_compare(const calm_measure *a, const calm_measure *b, size_t n_windows, double *delta, double *se)
{
    double mean = 0, spread = 0;
    for (size_t w = 0; w < n_windows; w++)
        mean += difference(a, b, w) / (double)n_windows;
    /* Windows differ much more from each other than two plans do on one window: only differences show the noise. */
    for (size_t w = 0; w < n_windows; w++)
        spread += (difference(a, b, w) - mean) * (difference(a, b, w) - mean);
    *delta = mean;
    *se = n_windows < 2 ? NAN : sqrt(spread / (double)(n_windows - 1) / (double)n_windows);
}
