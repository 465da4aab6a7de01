/* calm bench backward: forward and backward pass of a block over one window, on all threads. */
#pragma once

#include "cli/bench_timing.h"
#include "ptq/layers/block.h"

/* Makes an item that times one forward and backward pass on x [n_tokens, D]: it computes gradients of every weight and
 * norm, but not of x. */
calm_status calm_bench_backward(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                size_t n_tokens, calm_bench_item *out);
