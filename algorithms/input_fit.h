/* Weights fitted to the input that they will get: what actfit and asym have in common. */
#pragma once

#include "algorithms/part.h"

/* W* = W ((Hq + l I)^-1 (Cq + l I))^T in place of W, Hq = E[xq xq^T] (h [I, I], its upper triangle), Cq = E[xq x^T]
 * (c [I, I], overwritten), l = lambda mean diag Hq: the zero of E|W x - W* xq|^2 + l |W - W*|^2.  Of the change W* - W
 * the share `alpha` is made.  Without input (mean 0) W stays.  CALM_ENUMERIC, naming `part`: not positive definite, or
 * a weight that is not finite. */
calm_status calm_input_fit(calm_ctx *ctx, calm_problem *problem, const char *part, const double *h, double *c,
                           double lambda, double alpha);

/* What that holds of ctx->scratch, all workers together. */
size_t calm_input_fit_scratch_bytes(const calm_job_shape *shape);
