/* Peak rate: how fast this CPU multiplies and adds, measured by a loop that touches no memory. */
#pragma once

#include "ptq/tensor/int_product.h"

typedef struct calm_peak {
    const char *unit;     /* "AVX-512 fused multiply-adds"                                    */
    double flops;         /* operations of one run on one thread, products and sums: millions */
    void (*run)(void);
} calm_peak;

/* Returns the loop for the widest vector unit that this CPU has for such operands.  With operands of two bfloat16 each,
 * three products count as one. */
const calm_peak *calm_peak_of_cpu(calm_operands operands);

/* Returns the loop for the integer multiply instructions of this set, which the CPU must have; `flops` counts integer
 * products and sums. */
const calm_peak *calm_peak_of_ints(calm_int_set set);
