/* Backward pass of norms over rows. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/layers/norm.h"

/* Rows of a norm: n groups, `stride` floats apart, of `parts` contiguous rows of the norm's width each. */
typedef struct calm_norm_rows_of {
    size_t n, parts, stride;
} calm_norm_rows_of;

/* Backward pass of a norm with input x: writes dx, which may be dy, from dy, and adds to dweight and dbias [width];
 * each may be NULL: not wanted.  Without a norm dx is dy. */
calm_status calm_norm_back(calm_ctx *ctx, const calm_norm *norm, calm_norm_rows_of rows, const float *x,
                           const float *dy, float *dweight, float *dbias, float *dx);

/* Returns its bytes of ctx->scratch for n groups. */
size_t calm_norm_back_scratch_bytes(size_t width, size_t n);
