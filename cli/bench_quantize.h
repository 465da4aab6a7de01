/* calm bench quantize: what the roundings and refits take on one linear. */
#ifndef CALM_CLI_BENCH_QUANTIZE_H
#define CALM_CLI_BENCH_QUANTIZE_H

#include "ptq/base/context.h"

/* What to time: a linear of `out` outputs and `in` inputs by GPTQ, `repeats` times, the fastest counts, and once by the
 * other algorithms; as JSON or as a table. */
typedef struct calm_bench_quantize {
    size_t out, in;
    long long repeats;
    bool json;
} calm_bench_quantize;

/* Make the linear and its statistics, time GPTQ and the rest on one thread beside the Cholesky and dgemm rates, and
 * print. */
calm_status calm_bench_quantize_run(calm_ctx *ctx, const calm_bench_quantize *bench);

#endif
