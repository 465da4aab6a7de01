/* calm bench code: speed and compression of the lossless exponent code (ptq/quant/exponent_code.h). */
#pragma once

#include "cli/bench_timing.h"

typedef struct calm_bench_code {
    const char *input;        /* safetensors file, or folder of them; NULL: numbers of a Gaussian */
    size_t n, repeats;        /* Gaussian numbers; timed runs                                     */
    bool json;
} calm_bench_code;

/* Code the bfloat16 and float32 tensors of the input, each by itself, on one thread, check that the same bits come
 * back, and print bytes, ratio and GB/s of words each way, as a table or JSON.  CALM_EARG: the input has no such
 * tensors; fails as calm_safetensors_open. */
calm_status calm_bench_code_run(calm_ctx *ctx, const calm_bench_code *bench);
