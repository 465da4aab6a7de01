/* Scores: losses between a candidate's output Z and the float output Y.
 *
 *   Y, Z  [n, d]  rows are tokens, row-major, float32; all sums in double.
 * Every metric is a loss: 0 means equal.  docs/method.md section 3 has the formulas; linear CKA is from Kornblith et
 * al. 1905.00414.  cka/ sees two matrices and does not know what quantization is.
 *
 * Special cases, so that no score is ever NaN or infinite:
 *   - if Z is constant (Gram norm at most 1e-12 of Y's), every CKA loss is 1; if Y is constant, it is 0 where Z is
 *     constant, too, else 1;
 *   - cka_token divides a row by its norm, but at least by an eighth of the median norm; if the median is 0, zero rows
 *     of Y become zero rows of both matrices;
 *   - log_rel_mse: a row's |z-y|^2 / |y|^2 is clipped to [2^-64, 2^64] (2^-48 is the square of float32's rounding
 *     unit), so equal outputs give -44.4; this is the only metric whose best value is not 0;
 *   - cosine: the loss of two zero rows is 0, of one zero row 1;
 *   - rel_mse, rel_mae: 0/0 is 0, and both are clipped to at most 2^64. */
#pragma once

#include "ptq/base/context.h"

/* Return the bytes that calm_score_prepare leaves in ctx->out (a few [d, d] matrices of doubles, or two [n, n] if
 * n <= 2 d), and its peak bytes of ctx->scratch.  Threads may share the result, which is read-only.  The bytes are not
 * monotonic in n: both fall where n exceeds calm_score_square_rows(d). */
size_t calm_score_prepare_bytes(size_t n, size_t d);
size_t calm_score_prepare_scratch_bytes(size_t n, size_t d);

/* Does what calm_score_prepare does for a Y whose rows, and those of every Z, were multiplied by weight [n] (NULL: by
 * 1).  The metrics that count all tokens equally (cka_token, log_rel_mse, cosine) then weight a token by weight^2, as
 * the other metrics do because of the multiplied rows.  If all weights are 0, tokens count equally.  weight is not read
 * after the call. */
calm_status calm_score_prepare_weighted(calm_ctx *ctx, const float *y, size_t n, size_t d, const float *weight,
                                        calm_score_ref **out);

/* Returns the largest n for which [n, n] matrices are kept instead of [d, d] ones. */
size_t calm_score_square_rows(size_t d);

/* Returns the peak bytes of ctx->scratch of calm_score, all released on return.  calm_score runs on the calling thread;
 * its bits are the same on every thread. */
size_t calm_score_scratch_bytes(size_t n, size_t d);
