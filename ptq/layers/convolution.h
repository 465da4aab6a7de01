/* The short causal depthwise convolution of mixers without attention: along the tokens, separately for each channel. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_convolution {
    size_t n_channels, width;                 /* width >= 1: kernel width in tokens                       */
    const float *w;                           /* [n_channels, width]                                      */
    const float *bias;                        /* [n_channels] or NULL                                     */
    void (*activate)(size_t n, float *x);     /* activation function of the outputs, in place; or NULL    */
    float *tail;                              /* [width - 1, n_channels]: inputs of the tokens before x, replaced by
                                                 the last inputs; NULL: zeros, and nothing is kept                */
} calm_convolution;

/* Computes out [T, n_channels] = activate(bias_c + sum_j w[c, j] x[t - width + 1 + j, c]) from x [T, stride], whose
 * rows before the first token are the tail, or 0.  With a tail the bytes do not depend on where a window is split.  Not
 * in place.  CALM_ENOMEM. */
calm_status calm_convolution_run(calm_ctx *ctx, const calm_convolution *conv, const float *x, size_t stride,
                                 size_t n_tokens, float *out);

/* Returns the number of elements of a tail. */
size_t calm_convolution_tail(size_t n_channels, size_t width);

/* Returns the bytes of ctx->scratch that calm_convolution_run holds. */
size_t calm_convolution_bytes(size_t n_channels, size_t width);
