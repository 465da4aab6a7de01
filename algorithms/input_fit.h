/* Least-squares fit of weights to the input that they will get, quantized (actfit) or from quantized blocks (asym). */
#pragma once

#include "algorithms/part.h"

/* Replaces W by W + alpha (W* - W), W* = W ((Hq + l I)^-1 (Cq + l I))^T the minimum of
 * E|W x - W* xq|^2 + l |W - W*|^2.  Hq = E[xq xq^T] is h [I, I] (upper triangle), Cq = E[xq x^T] is c [I, I]
 * (overwritten), l = lambda mean(diag Hq).  If that mean is 0, there was no input and W stays.  CALM_ENUMERIC, naming
 * `part`: Hq + l I is not positive definite, or a weight becomes infinite or NaN. */
calm_status calm_input_fit(calm_ctx *ctx, calm_problem *problem, const char *part, const double *h, double *c,
                           double lambda, double alpha);

/* Returns the peak bytes of ctx->scratch of calm_input_fit, all workers together. */
size_t calm_input_fit_scratch_bytes(const calm_job_shape *shape);
