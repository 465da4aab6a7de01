/* Kernel families of OpenBLAS: what each needs of the CPU, and which one this process should compute with.
 *
 * OpenBLAS picks a family by the type of CPU.  A CPU that is newer than it gets the oldest one (Prescott, SSE3), at a
 * fifth of the rate that the CPU can reach; then calm asks for a family by what the CPU can do. */
#pragma once

#include <stdbool.h>

/* The variable that OpenBLAS reads while it is loaded: the family to take. */
#define CALM_BLAS_VARIABLE "OPENBLAS_CORETYPE"

/* What decides about a CPU: bits of a set. */
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

/* The set of this CPU, as far as the system lets programs use it; 0 where it is no x86-64. */
unsigned calm_cpu_features(void);

/* Has a CPU of these features the instructions of the family `name`, in either case?  true for a name that is not in
 * the table. */
bool calm_blas_runs(unsigned features, const char *name);

/* Has each sum of a product the same bytes with the kernels `name`, whichever columns of C are computed with it?  That
 * is known of those with AVX-512.  Haswell's and Zen's add otherwise at the end of a block of columns, and where blocks
 * end follows from how many columns there are. */
bool calm_blas_any_columns(const char *name);

/* The family to compute with.  `loaded` is what OpenBLAS has taken, `wish` what the user asks for, `variable` the value
 * of CALM_BLAS_VARIABLE (NULL: not given).  In this order: the wish; what is loaded, where the variable is set; the
 * family that these features allow, where it is above the loaded one; what is loaded. */
const char *calm_blas_choose(unsigned features, const char *loaded, const char *wish, const char *variable);
