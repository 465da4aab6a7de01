/* cka_linear: 1 - linear CKA between a linear's outputs with weights W and Q, in closed form over all calibration rows.
 *
 *   Y = X W^T, Z = X Q^T, C = X^T X / N - mean mean^T
 *   1 - CKA(Y, Z) = 1 - |W C Q^T|_F^2 / (|W C W^T|_F |Q C Q^T|_F)         docs/method.md section 3
 *
 * It equals metric `cka` of calm_score on the same rows, but needs no forward pass and no rows.  It ignores the
 * rounding of activations, so it is for weight-only schemes.  Constant outputs count as in cka.h: a constant Z gives
 * 1. */
#pragma once

#include "ptq/base/context.h"

/* Statistics of a job's calibration input (calm_stats has the same arrays). */
typedef struct calm_cka_input {
    size_t rows, in;       /* N, I                                           */
    const double *gram;    /* [I, I] X^T X, both triangles; NULL: every row is zero                                */
    const double *diagonal;    /* NULL: gram is X^T X; else gram is X^T X / N except its diagonal, and this [I] is the
                                * diagonal of X^T X / N                                                             */
    const double *sum;     /* [I] sum of the rows                                                                   */
} calm_cka_input;

/* Values that depend only on W and the input, computed once per job for all its candidates.  Threads may share it,
 * because it is read-only.  `w` is borrowed. */
typedef struct calm_cka_linear_ref calm_cka_linear_ref;

/* Prepares W [out, in] (rows of a job's linears stacked) in ctx->out, which keeps two [in, in] matrices of doubles, or
 * if `in` > 1.22 `out` one [in, in], one [out, in] and one [out, out].  An input whose variance is at most 2^-16 of its
 * mean square, the possible error of float32 products of 512 rows, counts as constant.
 * Cost 4 in^3 + out in^2 flops, or 2 out in^2 + out^2 in.
 * CALM_EARG: less than 2 rows, no input or no output.  CALM_ENUMERIC: a value that is not finite, naming it, or
 * products that overflow. */
calm_status calm_cka_linear_prepare(calm_ctx *ctx, const float *w, size_t out, const calm_cka_input *input,
                                    calm_cka_linear_ref **made);

/* Return the bytes that calm_cka_linear_prepare leaves in ctx->out, and its peak bytes of ctx->scratch. */
size_t calm_cka_linear_prepare_bytes(size_t out, size_t in);
size_t calm_cka_linear_prepare_scratch_bytes(size_t out, size_t in);

/* Computes *loss = 1 - CKA for Q [out, in], the decoded weights of a candidate (codes times scales, divided by the
 * input scale).  Temporaries in ctx->scratch, released on return: one [in, in], or two [out, out] matrices, and chunks
 * of rows.  Runs on the calling thread.  Cost 2 out in^2 + 2 in^3 flops, or 2 out in^2 + 3 out^2 in, in double.
 * CALM_ENUMERIC: Q holds a value that is not finite, with row and column. */
calm_status calm_cka_linear(calm_ctx *ctx, const calm_cka_linear_ref *ref, const float *q, double *loss);

/* Returns the peak bytes of ctx->scratch of calm_cka_linear. */
size_t calm_cka_linear_scratch_bytes(size_t out, size_t in);
