/* Peak: the rate at which this CPU multiplies and adds, measured by a loop that touches no memory. */
#pragma once

#include <stdbool.h>

#include "ptq/tensor/int_product.h"

typedef struct calm_peak {
    const char *unit;     /* "AVX-512 fused multiply-adds"                                   */
    double flops;         /* operations of one run with float sums, on one thread: millions */
    void (*run)(void);
} calm_peak;

/* The loop of the widest vector unit that this CPU has: of float operands, or where it multiplies them of bfloat16. */
const calm_peak *calm_peak_of_cpu(bool bf16);

/* The loop of the instructions that multiply whole numbers in this set, which the CPU has: `flops` counts products and
 * sums of whole numbers. */
const calm_peak *calm_peak_of_ints(calm_int_set set);
