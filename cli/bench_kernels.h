/* calm bench kernels: the speed of integer matrix products, by shape. */
#pragma once

#include "cli/bench_timing.h"

/* Linears hidden -> inner and inner -> hidden, on 1, 8, 64, 512 and 4096 rows, at most `tokens`. */
typedef struct calm_bench_kernels {
    size_t tokens, hidden, inner, repeats;
    bool json;
} calm_bench_kernels;

/* Times W8A8 and W4A8 (groups of 128, and a scale per row) of each shape with the instructions that calm_int_choose
 * selects, next to sgemm and the peak rate of these instructions, and prints a table or JSON.  Quantizing the rows is
 * not timed.  Fails as calm_int_choose. */
calm_status calm_bench_kernels_run(calm_ctx *ctx, const calm_bench_kernels *bench);
