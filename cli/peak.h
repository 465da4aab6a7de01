/* Peak: the rate at which this CPU multiplies and adds, measured by a loop that touches no memory. */
#pragma once

#include "ptq/tensor/int_product.h"

typedef struct calm_peak {
    const char *unit;     /* "AVX-512 fused multiply-adds"                                   */
    double flops;         /* operations of one run with float sums, on one thread: millions */
    void (*run)(void);
} calm_peak;

/* The loop of the widest vector unit that this CPU has for such operands.  Of two bfloat16 each, three products count
 * as one. */
const calm_peak *calm_peak_of_cpu(calm_operands operands);

/* The loop of the instructions that multiply whole numbers in this set, which the CPU has: `flops` counts products and
 * sums of whole numbers. */
const calm_peak *calm_peak_of_ints(calm_int_set set);
