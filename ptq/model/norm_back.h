/* Backward pass of norms over rows. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/model/norm.h"

/* Rows that a norm was applied to: n groups, one every `stride` floats, of `parts` rows of the norm's width each. */
typedef struct calm_norm_rows_of {
    size_t n, parts, stride;
} calm_norm_rows_of;

/* Through the norm of rows x: dx from dy, which may be the same, and dweight and dbias [width] added to; each may be
 * NULL: not wanted.  Without a norm dx is dy. */
calm_status calm_norm_back(calm_ctx *ctx, const calm_norm *norm, calm_norm_rows_of rows, const float *x,
                           const float *dy, float *dweight, float *dbias, float *dx);

/* What it holds of ctx->scratch for n groups. */
size_t calm_norm_back_scratch_bytes(size_t width, size_t n);
