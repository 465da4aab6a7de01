/* calm bench quantize: time of the roundings and refits on one linear. */
#pragma once

#include "ptq/base/context.h"

/* A linear of `out` outputs and `in` inputs; every algorithm runs on it `repeats` times, or fewer as calm_bench_measure
 * has it.  Printed as JSON or as a table. */
typedef struct calm_bench_quantize {
    size_t out, in, repeats;
    bool json;
} calm_bench_quantize;

/* Make the linear and its statistics, time GPTQ and the rest on one thread next to the Cholesky and dgemm rates, and
 * print. */
calm_status calm_bench_quantize_run(calm_ctx *ctx, const calm_bench_quantize *bench);
