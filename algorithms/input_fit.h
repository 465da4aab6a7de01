/* Least-squares fit of weights to the input that they will get, quantized or from quantized blocks: shared by actfit
 * and asym. */
#pragma once

#include "algorithms/part.h"

/* Replace W by W* = W ((Hq + l I)^-1 (Cq + l I))^T, the minimum of E|W x - W* xq|^2 + l |W - W*|^2.  Hq = E[xq xq^T] is
 * h [I, I] (upper triangle), Cq = E[xq x^T] is c [I, I] (overwritten), l = lambda mean diag Hq.  Only the share `alpha`
 * of the change W* - W is applied.  Without input (mean 0) W stays.  CALM_ENUMERIC, naming `part`: not positive
 * definite, or a weight that is not finite. */
calm_status calm_input_fit(calm_ctx *ctx, calm_problem *problem, const char *part, const double *h, double *c,
                           double lambda, double alpha);

/* Bytes that calm_input_fit holds of ctx->scratch, all workers together. */
size_t calm_input_fit_scratch_bytes(const calm_job_shape *shape);
