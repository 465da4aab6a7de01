/* Independent chains of multiply-adds in registers, as many as hide their latency: 12 are more than enough for two
 * units of 4 cycles, 16 for up to four units.  No matrix product exceeds the rate of this loop on a core. */
#include "cli/peak.h"

#include <stddef.h>

#define ROUNDS (1 << 21)

/* Values stay between 1 and 2, because products and sums alternate: nothing overflows or becomes denormal. */
#define FACTOR 0.5f
#define TERM 1.0f

/* Keeps the compiler from removing a loop whose result is unused. */
static volatile float sink;

#define DO_12(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define DO_16(step) DO_12(step) step(12) step(13) step(14) step(15)

/* A loop over `do_all` chains of vectors `type`: `step(i)` is one operation on chain a##i, `fill(x)` a vector of x. */
/* Chains begin with different values: the compiler would compute equal chains once, and the rate would look too
 * high. */
#define CHAIN(i) a##i = fill(TERM + (float)(i) / 32),
#define LOOP(name, attributes, type, do_all)                                                                           \
    attributes static void name(void)                                                                                  \
    {                                                                                                                  \
        type do_all(CHAIN) factor = fill(FACTOR), term = fill(TERM);                                                   \
        for (size_t round = 0; round < ROUNDS; round++) {                                                              \
            do_all(STEP)                                                                                               \
        }                                                                                                              \
        term = do_all(PLUS) term;                                                                                      \
        sink = (float)term[0];                                                                                         \
    }
#define PLUS(i) a##i +

/* Chains of products and chains of sums side by side, for units without fused multiply-add: one operation per lane. */
#define SEPARATE(i) a##i = (i) % 2 ? a##i + term : a##i * factor;

#if defined(__x86_64__)
#include <immintrin.h>

#include "ptq/tensor/bf16_amx.h"
#include "ptq/tensor/int_kernel.h"

#define fill(x) _mm512_set1_ps(x)
#define STEP(i) a##i = _mm512_fmadd_ps(a##i, factor, term);
LOOP(wide, __attribute__((target("avx512f"))), __m512, DO_12)
#undef STEP

/* In each lane one product of the pair is 0.5, the other 0: sums stay bounded.  The latency is longer. */
#define STEP(i) a##i = _mm512_dpbf16_ps(a##i, (__m512bh)factor, (__m512bh)term);
LOOP(pairs, __attribute__((target("avx512f,avx512bf16"))), __m512, DO_16)
#undef fill
#undef STEP

#define fill(x) _mm256_set1_ps(x)
#define STEP(i) a##i = _mm256_fmadd_ps(a##i, factor, term);
LOOP(fused, __attribute__((target("avx,fma"))), __m256, DO_12)
#undef STEP

#define STEP SEPARATE
LOOP(avx, __attribute__((target("avx"))), __m256, DO_12)
#undef fill

#define fill(x) _mm_set1_ps(x)
LOOP(sse2, , __m128, DO_12)
#undef fill
#undef STEP

/* Multiplies zeros: the rate does not depend on values. */
static void tiles(void)
{
    calm_bf16_amx_spin(4 * ROUNDS);
}

const calm_peak *calm_peak_of_cpu(calm_operands operands)
{
    static const calm_peak loops[] = {{"AVX-512 fused multiply-adds", 12.0 * 16 * 2 * ROUNDS, wide},
                                      {"AVX fused multiply-adds", 12.0 * 8 * 2 * ROUNDS, fused},
                                      {"AVX products and sums", 12.0 * 8 * ROUNDS, avx},
                                      {"SSE2 products and sums", 12.0 * 4 * ROUNDS, sse2},
                                      {"AVX-512 products of bfloat16", 16.0 * 32 * 2 * ROUNDS, pairs},
                                      {"AMX products of bfloat16", 4 * CALM_BF16_AMX_FLOPS * ROUNDS, tiles},
                                      {"AMX products of two bfloat16", 4 * CALM_BF16_AMX_FLOPS * ROUNDS / 3, tiles}};
    __builtin_cpu_init();
    if (operands != CALM_OPERANDS_F32 && calm_bf16_amx_available())
        return &loops[operands == CALM_OPERANDS_BF16 ? 5 : 6];
    if (operands == CALM_OPERANDS_BF16 && __builtin_cpu_supports("avx512bf16"))
        return &loops[4];
    if (__builtin_cpu_supports("avx512f"))
        return &loops[0];
    if (__builtin_cpu_supports("fma"))
        return &loops[1];
    return __builtin_cpu_supports("avx") ? &loops[2] : &loops[3];
}

/* Integer chains begin with different values, too. */
#define fill(x) _mm512_set1_epi32((int)((x) * 32))
#define STEP(i) a##i = _mm512_dpbusd_epi32(a##i, factor, term);
LOOP(bytes_wide, __attribute__((target("avx512f,avx512vnni"))), __m512i, DO_12)
#undef fill
#undef STEP

#define fill(x) _mm256_set1_epi32((int)((x) * 32))
#define STEP(i) a##i = _mm256_dpbusd_avx_epi32(a##i, factor, term);
LOOP(bytes, __attribute__((target("avx2,avxvnni"))), __m256i, DO_12)
#undef STEP
#define STEP(i) a##i = _mm256_madd_epi16(a##i, (i) % 2 ? factor : term);
LOOP(halves, __attribute__((target("avx2"))), __m256i, DO_12)
#undef fill
#undef STEP

#define fill(x) _mm_set1_epi32((int)((x) * 32))
#define STEP(i) a##i = _mm_madd_epi16(a##i, (i) % 2 ? factor : term);
LOOP(halves_sse2, , __m128i, DO_12)
#undef fill
#undef STEP

static void tiles_of_bytes(void)
{
    calm_int_amx_spin(4 * ROUNDS);
}

const calm_peak *calm_peak_of_ints(calm_int_set set)
{
    static const calm_peak loops[CALM_N_INT_SETS] = {
        {"SSE2 products of 16 bits", 12.0 * 8 * 2 * ROUNDS, halves_sse2},
        {"AVX2 products of 16 bits", 12.0 * 16 * 2 * ROUNDS, halves},
        {"AVX-VNNI products of 8 bits", 12.0 * 32 * 2 * ROUNDS, bytes},
        {"AVX512-VNNI products of 8 bits", 12.0 * 64 * 2 * ROUNDS, bytes_wide},
        {"AMX products of 8 bits", 4 * CALM_INT_AMX_OPS * ROUNDS, tiles_of_bytes}};
    return &loops[set];
}
#elif defined(__aarch64__)
#include <arm_neon.h>

#define fill(x) vdupq_n_f32(x)
#define STEP(i) a##i = vfmaq_f32(term, a##i, factor);
LOOP(neon, , float32x4_t, DO_16)

const calm_peak *calm_peak_of_cpu(calm_operands operands)
{
    static const calm_peak loop = {"NEON fused multiply-adds", 16.0 * 4 * 2 * ROUNDS, neon};
    (void)operands;
    return &loop;
}
#else
typedef float vector __attribute__((vector_size(16)));

#define fill(x) ((vector){x, x, x, x})
#define STEP SEPARATE
LOOP(plain, , vector, DO_16)

const calm_peak *calm_peak_of_cpu(calm_operands operands)
{
    static const calm_peak loop = {"products and sums of 4 lanes", 16.0 * 4 * ROUNDS, plain};
    (void)operands;
    return &loop;
}
#endif

#if !defined(__x86_64__)
/* For plain C, which the compiler vectorizes as it can, the peak is that of the float loop. */
const calm_peak *calm_peak_of_ints(calm_int_set set)
{
    (void)set;
    return calm_peak_of_cpu(false);
}
#endif
