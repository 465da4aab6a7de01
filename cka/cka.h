/* Scores: how far a candidate's output Z lies from the float output Y.
 *
 *   Y, Z  [n, d]  rows are tokens, row-major, float32; all sums in double.
 * Every metric is a loss: 0 means equal.  docs/method.md section 3 has the formulas; Kornblith et al. 1905.00414 for
 * linear CKA.  cka/ sees two matrices and does not know what quantization is.
 *
 * Where a formula has no value, so that none is ever NaN or infinite:
 *   - a constant Z (Gram norm at most 1e-12 of Y's) gives 1 in every CKA; of a constant Y it is 0 where Z is
 *     constant too, else 1;
 *   - a zero row of Y is a zero row of both matrices in cka_token;
 *   - log_rel_mse: a row's |z-y|^2 / |y|^2 is held within [2^-64, 2^64] (2^-48 is the square of float32's rounding
 *     unit), so equal outputs give -44.4, the only metric whose best value is not 0;
 *   - cosine: a zero row against a zero row gives 0, against another 1;
 *   - rel_mse, rel_mae: 0/0 is 0, and both are cut off at 2^64. */
#ifndef CALM_CKA_CKA_H
#define CALM_CKA_CKA_H

#include "ptq/base/context.h"

/* One line about a metric; static storage. */
const char *calm_metric_help(calm_metric metric);
/* CALM_N_METRICS when unknown. */
calm_metric calm_metric_find(const char *name);

/* What calm_score_prepare leaves in ctx->out (a few [d, d] matrices of doubles, or two [n, n] where n <= 2 d), and
 * holds of ctx->scratch at most.  Its result is read-only, so threads may share it.  Of more rows than
 * calm_score_square_rows it is less than of so many, until they are a few times as many. */
size_t calm_score_prepare_bytes(size_t n, size_t d);
size_t calm_score_prepare_scratch_bytes(size_t n, size_t d);

/* The most rows whose [n, n] matrices are kept instead of [d, d] ones. */
size_t calm_score_square_rows(size_t d);

/* What calm_score holds of ctx->scratch at most, released on return.  It runs on the calling thread, and gives the same
 * bits on any. */
size_t calm_score_scratch_bytes(size_t n, size_t d);

/* Linear CKA of two matrices of different widths, X [n, d1] and Y [n, d2] in double, the general form that the
 * fixtures state: *cka and *debiased receive the similarities themselves (not 1 - ...); either may be NULL.
 * A constant matrix is similar to nothing: 0.  CALM_ENUMERIC for a value that is not finite; CALM_EARG for
 * n < 2, or n < 4 when `debiased` is asked for.  Cost 2 n (d1 d2 + d1^2 + d2^2) flops; temporaries in ctx->scratch. */
calm_status calm_cka_general(calm_ctx *ctx, const double *x, size_t d1, const double *y, size_t d2, size_t n,
                             double *cka, double *debiased);

#endif
