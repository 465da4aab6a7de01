/* Scores: how far a candidate's output Z is from the float output Y.
 *
 *   Y, Z  [n, d]  rows are tokens, row-major, float32; all sums in double.
 * Every metric is a loss: 0 means equal.  docs/method.md section 3 has the formulas; Kornblith et al. 1905.00414 for
 * linear CKA.  cka/ sees two matrices and does not know what quantization is.
 *
 * Where a formula has no value, so that none is ever NaN or infinite:
 *   - a constant Z (Gram norm at most 1e-12 of Y's) gives 1 in every CKA; of a constant Y it is 0 where Z is
 *     constant too, else 1;
 *   - cka_token divides a row by an eighth of the median norm where its own is less; where the median is 0, a zero row
 *     of Y is a zero row of both matrices;
 *   - log_rel_mse: a row's |z-y|^2 / |y|^2 is held within [2^-64, 2^64] (2^-48 is the square of float32's rounding
 *     unit), so equal outputs give -44.4, the only metric whose best value is not 0;
 *   - cosine: a zero row against a zero row gives 0, against another 1;
 *   - rel_mse, rel_mae: 0/0 is 0, and both are cut off at 2^64. */
#pragma once

#include "ptq/base/context.h"

/* What calm_score_prepare leaves in ctx->out (a few [d, d] matrices of doubles, or two [n, n] where n <= 2 d), and
 * holds of ctx->scratch at most.  Its result is read-only, so threads may share it.  Not monotonic in n:
 * both fall where n passes calm_score_square_rows(d). */
size_t calm_score_prepare_bytes(size_t n, size_t d);
size_t calm_score_prepare_scratch_bytes(size_t n, size_t d);

/* calm_score_prepare for rows of Y, and of the Z that are scored against it, that were multiplied by weight [n] each
 * (NULL: by 1): what counts every token alike - cka_token, log_rel_mse, cosine - counts it by weight^2 instead, as the
 * other metrics do by themselves.  weight is read only now.  Where all are 0 they count alike. */
calm_status calm_score_prepare_weighted(calm_ctx *ctx, const float *y, size_t n, size_t d, const float *weight,
                                        calm_score_ref **out);

/* The most rows whose [n, n] matrices are kept instead of [d, d] ones. */
size_t calm_score_square_rows(size_t d);

/* What calm_score holds of ctx->scratch at most, released on return.  It runs on the calling thread, and gives the same
 * bits on any. */
size_t calm_score_scratch_bytes(size_t n, size_t d);
