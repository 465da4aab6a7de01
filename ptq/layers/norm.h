/* Norms over rows: RMSNorm, RMSNorm with weights stored as w - 1, LayerNorm. */
#pragma once

#include "ptq/arch/arch.h"

typedef struct calm_norm {
    calm_norm_kind kind;
    float eps;
    size_t width;
    const float *w;    /* [width] factors, 1 already added where it is stored as w - 1; NULL: there is no norm */
    const float *b;    /* [width] bias of a LayerNorm; or NULL                                               */
} calm_norm;

/* Normalises the rows of x to out [n, width], which may be x; without a norm (w NULL) copies them. */
void calm_norm_rows(const calm_norm *norm, const float *x, size_t n, float *out);

/* Does the same on ctx's threads. */
void calm_norm_all(calm_ctx *ctx, const calm_norm *norm, const float *x, size_t n, float *out);
