/* Instruction sets for integer products that this machine has. */
#ifndef CALM_TESTS_INT_SETS_H
#define CALM_TESTS_INT_SETS_H

#include <stdlib.h>

#include "ptq/tensor/int_product.h"
#include "tests/support/harness.h"

/* Does the CPU have a set? */
static inline bool has_int_set(int set)
{
    calm_int_set chosen;
    ck_assert_int_eq(setenv(CALM_INT_VARIABLE, calm_int_set_names[set], 1), 0);
    const bool yes = calm_int_choose(ctx, &chosen) == CALM_OK;
    calm_ctx_clear_failure(ctx);
    ck_assert_int_eq(unsetenv(CALM_INT_VARIABLE), 0);
    return yes;
}

#endif
