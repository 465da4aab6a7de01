/* cka_linear: 1 - linear CKA of a linear's output under other weights, in closed form over all calibration rows.
 *
 *   Y = X W^T, Z = X Q^T, C = X^T X / N - mean mean^T
 *   1 - CKA(Y, Z) = 1 - |W C Q^T|_F^2 / (|W C W^T|_F |Q C Q^T|_F)         docs/method.md section 3
 *
 * It equals metric `cka` of calm_score on the same rows, without a forward pass and without the rows.  Rounding of
 * activations is not in it: for weight-only schemes.  Constant outputs count as in cka.h: a constant Z gives 1. */
#pragma once

#include "ptq/base/context.h"

/* The input of a job as calibration saw it (calm_stats has the same arrays). */
typedef struct calm_cka_input {
    size_t rows, in;       /* N, I                                           */
    const double *gram;    /* [I, I] X^T X, both triangles; NULL: every row is zero                                */
    const double *diagonal;    /* NULL: gram is not divided by N; else it is, but for its diagonal, which is this [I] */
    const double *sum;     /* [I] sum of the rows                                                                   */
} calm_cka_input;

/* What depends on W and the input alone, computed once per job and shared by its candidates; read-only afterwards, so
 * threads may share it.  `w` is borrowed. */
typedef struct calm_cka_linear_ref calm_cka_linear_ref;

/* Prepare W [out, in] (rows of a job's linears stacked) in ctx->out, which keeps two [in, in] matrices of doubles, or
 * where `in` is above 1.22 `out` one [in, in], one [out, in] and one [out, out].  An input whose variance is at most
 * 2^-16 of its mean square, what float32 products of 512 rows may be off by, is taken for a constant one.
 * Cost 4 in^3 + out in^2 flops, or 2 out in^2 + out^2 in.
 * CALM_EARG: less than 2 rows, no input or no output.  CALM_ENUMERIC: a value that is not finite, naming it, or
 * products that overflow. */
calm_status calm_cka_linear_prepare(calm_ctx *ctx, const float *w, size_t out, const calm_cka_input *input,
                                    calm_cka_linear_ref **made);

/* What it leaves in ctx->out, and holds of ctx->scratch at most. */
size_t calm_cka_linear_prepare_bytes(size_t out, size_t in);
size_t calm_cka_linear_prepare_scratch_bytes(size_t out, size_t in);

/* *loss = 1 - CKA of Q [out, in], the weights a candidate represents (codes times scales, divided by the input scale).
 * Temporaries in ctx->scratch, released on return: one [in, in], or two [out, out] matrices, and chunks of rows.  Runs
 * on the calling thread.  Cost 2 out in^2 + 2 in^3 flops, or 2 out in^2 + 3 out^2 in, in double.
 * CALM_ENUMERIC: Q holds a value that is not finite, with row and column. */
calm_status calm_cka_linear(calm_ctx *ctx, const calm_cka_linear_ref *ref, const float *q, double *loss);

/* What it holds of ctx->scratch at most. */
size_t calm_cka_linear_scratch_bytes(size_t out, size_t in);
