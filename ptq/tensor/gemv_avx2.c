/* Matrix-vector products with AVX2. */
#include "ptq/tensor/gemv_kernel.h"

#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2")))
#define LANES  8
#define KERNEL calm_gemv_avx2
#include "ptq/tensor/gemv_tile.h"

#else

void calm_gemv_avx2(const calm_gemv_piece *piece)
{
    calm_gemv_plain(piece);
}

#endif
