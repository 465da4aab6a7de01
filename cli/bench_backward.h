/* calm bench backward: forward and backward pass of a block over one window, on all threads. */
#pragma once

#include "cli/bench_timing.h"
#include "ptq/model/block.h"

/* One pass, with gradients of every weight and norm and none of the input x [n_tokens, D], as an item to be timed. */
calm_status calm_bench_backward(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                size_t n_tokens, calm_bench_item *out);
