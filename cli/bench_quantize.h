/* calm bench quantize: time of the roundings and refits on one linear. */
#pragma once

#include "ptq/base/context.h"

/* A linear with `out` outputs and `in` inputs.  Every algorithm runs on it at most `repeats` times, as
 * calm_bench_measure decides. */
typedef struct calm_bench_quantize {
    size_t out, in, repeats;
    bool json;
} calm_bench_quantize;

/* Makes the linear and its statistics, times GPTQ and the other algorithms on one thread next to the rates of Cholesky
 * and dgemm, and prints a table or JSON. */
calm_status calm_bench_quantize_run(calm_ctx *ctx, const calm_bench_quantize *bench);
