/* Kernel families of OpenBLAS: the CPU features that each requires, and the family that this process should use.
 *
 * OpenBLAS selects a family by the CPU model.  If it does not know the model, it selects the oldest family
 * (Prescott, SSE3) at a fifth of the CPU's rate; calm then requests a family by CPU features. */
#pragma once

#include <stdbool.h>

/* Environment variable that OpenBLAS reads when it is loaded: the family to use. */
#define CALM_BLAS_VARIABLE "OPENBLAS_CORETYPE"

/* CPU features that the selection depends on, as bits of a set. */
typedef enum calm_cpu_feature {
    CALM_CPU_AMD = 1 << 0,
    CALM_CPU_SSE42 = 1 << 1,
    CALM_CPU_AVX = 1 << 2,
    CALM_CPU_FMA4 = 1 << 3,
    CALM_CPU_FMA = 1 << 4,
    CALM_CPU_AVX2 = 1 << 5,
    CALM_CPU_AVX512 = 1 << 6,         /* F, DQ, BW and VL */
    CALM_CPU_AVX512_BF16 = 1 << 7,
    CALM_CPU_AVX_VNNI = 1 << 8,
    CALM_CPU_AVX512_VNNI = 1 << 9,
    CALM_CPU_AMX_INT8 = 1 << 10,
    CALM_CPU_AMX_BF16 = 1 << 11,
} calm_cpu_feature;

/* Returns the features of this CPU that the operating system supports; 0 if it is not an x86-64. */
unsigned calm_cpu_features(void);

/* Returns whether a CPU with these features can run the family `name` (upper or lower case); true for a name that
 * is not in the table. */
bool calm_blas_runs(unsigned features, const char *name);

/* Returns whether the bytes of each sum of a product are independent of the columns of C that are computed with it,
 * in family `name`.  Known for the families with AVX-512; Haswell and Zen add in another order at the end of a
 * block of columns, whose position depends on the number of columns. */
bool calm_blas_any_columns(const char *name);

/* Chooses the family to use.  `loaded` is OpenBLAS's choice, `wish` the user's, `variable` the value of
 * CALM_BLAS_VARIABLE (NULL: not set).  In this order: the wish; the loaded family if the variable is set; the best
 * family for these features if it is better than the loaded one; the loaded family. */
const char *calm_blas_choose(unsigned features, const char *loaded, const char *wish, const char *variable);
