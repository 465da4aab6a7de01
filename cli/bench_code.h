/* calm bench code: speed and compression of the lossless exponent code (ptq/quant/exponent_code.h). */
#pragma once

#include "cli/bench_timing.h"

typedef struct calm_bench_exponents {
    const char *input;        /* safetensors file, or folder of them; NULL: Gaussian numbers */
    size_t n, repeats;        /* number of Gaussian numbers; number of timed runs            */
    bool json;
} calm_bench_exponents;

/* Encodes each bfloat16 and float32 tensor of the input on one thread, checks that decoding returns the same bits, and
 * prints bytes, ratio and GB/s of encoding and decoding, as a table or JSON.  CALM_EARG: the input has no such tensors.
 * Fails as calm_safetensors_open. */
calm_status calm_bench_code_run(calm_ctx *ctx, const calm_bench_exponents *bench);
