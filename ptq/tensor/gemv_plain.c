/* Matrix-vector products in portable vectors; the kernels of all instruction sets must give the same results. */
#define TARGET
#define LANES  4
#define KERNEL calm_gemv_plain
#include "ptq/tensor/gemv_tile.h"
