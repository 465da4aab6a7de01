/* The kernel families that numerical tests run under, one line each, for tests/run --kernels-all: all that this CPU
 * runs but the one that OpenBLAS takes here by itself, with which all tests run.  The others are named on standard
 * error. */
#include <stdio.h>
#include <strings.h>

#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/linalg.h"

int main(void)
{
    static const char *const families[] = {"Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX",
                                           "Cooperlake"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcasecmp(families[i], calm_linalg_kernels()) == 0)
            fprintf(stderr, "calm: %s is what all tests run with here\n", families[i]);
        else if (calm_blas_runs(calm_cpu_features(), families[i]))
            puts(families[i]);
        else
            fprintf(stderr, "SKIP: this CPU has no instructions for %s (another CPU)\n", families[i]);
    return 0;
}
