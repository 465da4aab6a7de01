/* The short causal convolution of sublayers without attention: each channel by itself, along the tokens. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_convolution {
    size_t n_channels, width;                 /* width >= 1: tokens that an output sees, its own the last */
    const float *w;                           /* [n_channels, width]                                      */
    const float *bias;                        /* [n_channels] or NULL                                     */
    void (*activate)(size_t n, float *x);     /* of the outputs, in place; NULL: none                     */
    float *tail;                              /* [width - 1, n_channels]: inputs of the tokens before, which become
                                                 those of the last; NULL: none are before, and none are kept      */
} calm_convolution;

/* out [T, n_channels] = activate(bias_c + sum_j w[c, j] x[t - width + 1 + j, c]), x [T, stride] being before the first
 * token what the tail has, or 0: the bytes are those of one window, wherever it is cut.  Not in place.  CALM_ENOMEM. */
calm_status calm_convolution_run(calm_ctx *ctx, const calm_convolution *conv, const float *x, size_t stride,
                                 size_t n_tokens, float *out);

/* Elements of a tail. */
size_t calm_convolution_tail(size_t n_channels, size_t width);

/* What that holds of ctx->scratch. */
size_t calm_convolution_bytes(size_t n_channels, size_t width);
