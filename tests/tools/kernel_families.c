/* The kernel families that numerical tests run under, one line each, for tests/run --kernels-all; families that this
 * CPU does not run are named on standard error. */
#include <stdio.h>

#include "ptq/tensor/blas_family.h"

int main(void)
{
    static const char *const families[] = {"Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX",
                                           "Cooperlake"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (calm_blas_runs(calm_cpu_features(), families[i]))
            puts(families[i]);
        else
            fprintf(stderr, "SKIP: this CPU has no instructions for %s\n", families[i]);
    return 0;
}
