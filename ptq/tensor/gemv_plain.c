/* Products with one row in vectors that every CPU has: what the kernels of all instruction sets must equal. */
#define TARGET
#define LANES  4
#define KERNEL calm_gemv_plain
#include "ptq/tensor/gemv_tile.h"
