/* Matrix-vector products with AVX-512. */
#include "ptq/tensor/gemv_kernel.h"

#if defined(__x86_64__)

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define LANES  16
#define KERNEL calm_gemv_avx512
#include "ptq/tensor/gemv_tile.h"

#else

void calm_gemv_avx512(const calm_gemv_piece *piece)
{
    calm_gemv_plain(piece);
}

#endif
