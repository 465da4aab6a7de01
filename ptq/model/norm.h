/* Norms: RMSNorm, RMSNorm with weights stored less one, LayerNorm, over rows. */
#pragma once

#include "ptq/model/arch.h"

typedef struct calm_norm {
    calm_norm_kind kind;
    float eps;
    size_t width;
    const float *w;    /* [width], as the formula multiplies by it (1 already added); NULL: there is no norm */
    const float *b;    /* [width] LayerNorm alone, some have none: NULL                                      */
} calm_norm;

/* out [n, width] = norm of the rows of x; in place allowed; copies (or does nothing in place) when there is no norm. */
void calm_norm_rows(const calm_norm *norm, const float *x, size_t n, float *out);

/* The same on ctx's threads. */
void calm_norm_all(calm_ctx *ctx, const calm_norm *norm, const float *x, size_t n, float *out);
