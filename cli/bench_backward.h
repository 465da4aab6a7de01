/* calm bench backward: forward and backward pass of a block over one window. */
#ifndef CALM_CLI_BENCH_BACKWARD_H
#define CALM_CLI_BENCH_BACKWARD_H

#include "ptq/model/block.h"

/* best = seconds of the fastest of `repeats` passes over x [T, D] on ctx's threads, with the gradients of all linears
 * and norms, from which a block is learned. */
calm_status calm_bench_backward_seconds(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                        size_t n_tokens, long long repeats, double *best);

/* Operations of one such pass, multiply-adds counted twice: of a linear 2 forward and 4 backward for every weight and
 * token; of attention's two products forward 5 backward, of which one is computed
 * again. */
double calm_bench_backward_flops(const calm_block *block, size_t n_tokens);

#endif
