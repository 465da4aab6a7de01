/* GELU with the error function: x / 2 (1 + erf(x / sqrt 2)).
 *
 * erf in float32 uses the approximations of fdlibm's s_erff.c (Sun Microsystems, 1993), with every operation in its
 * order, and exp in double that of ARM's optimized routines (W. Dijkstra, S. Nagy; math/expf.c): glibc uses both
 * until 2.40, so the results equal those of its erff bit by bit, in vectors and with any libc.  With z = |x|:
 *
 *   z < 27/32          x + x P(x^2) / Q(x^2)
 *   z < 5/4            +-(c + P(z - 1) / Q(z - 1)), c near erf(1)
 *   z < 20/7, z < 6    +-(1 - exp(-t^2 - 9/16) exp((t - z) (t + z) + R(1/z^2) / S(1/z^2)) / z), t the first bits of z
 *   else               +-1 */
#include <math.h>
#include <stdbool.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_impl.h"

/* Numbers that are processed at once. */
#define PART ((size_t)512)

#define NEAR_END   0.84375f
#define MIDDLE_END 1.25f
#define FAR_FROM   0x1.6db6dcp+1f    /* 20/7, as fdlibm rounds it */
#define ONE_FROM   6.0f

/* ---- z < 5/4 ---- */

/* Computes erf for z < 27/32; a NaN, which is not above the end of this range, stays a NaN. */
static inline float erf_near(float x)
{
    const float z = x * x;
    const float p = 1.2837916613e-01f
                    + z * (-3.2504209876e-01f
                           + z * (-2.8481749818e-02f + z * (-5.7702702470e-03f + z * -2.3763017452e-05f)));
    const float q = 1.0f
                    + z * (3.9791721106e-01f
                           + z * (6.5022252500e-02f
                                  + z * (5.0813062117e-03f + z * (1.3249473704e-04f + z * -3.9602282413e-06f))));
    return x + x * (p / q);
}

static inline float erf_middle(float x)
{
    const float s = fabsf(x) - 1.0f;
    const float p = -2.3621185683e-03f
                    + s * (4.1485610604e-01f
                           + s * (-3.7220788002e-01f
                                  + s * (3.1834661961e-01f
                                         + s * (-1.1089469492e-01f
                                                + s * (3.5478305072e-02f + s * -2.1663755178e-03f)))));
    const float q = 1.0f
                    + s * (1.0642088205e-01f
                           + s * (5.4039794207e-01f
                                  + s * (7.1828655899e-02f
                                         + s * (1.2617121637e-01f + s * (1.3637083583e-02f + s * 1.1984500103e-02f)))));
    return copysignf(8.4506291151e-01f + p / q, x);
}

CALM_VECTORIZE static void erf_inner(size_t n, const float *x, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const float near = erf_near(x[i]), middle = erf_middle(x[i]);
        out[i] = fabsf(x[i]) >= NEAR_END ? middle : near;
    }
}

/* ---- exp in double, rounded to float ---- */

#define EXP_BITS 5
#define EXP_STEPS (1 << EXP_BITS)
#define EXP_STEPS_OF_1 (0x1.71547652b82fep+0 * EXP_STEPS)
#define EXP_LINEAR     (0x1.62e42ff0c52d6p-1 / EXP_STEPS)
#define EXP_SQUARE     (0x1.ebfce50fac4f3p-3 / EXP_STEPS / EXP_STEPS)
#define EXP_CUBIC      (0x1.c6af84b912394p-5 / EXP_STEPS / EXP_STEPS / EXP_STEPS)

/* Bits of 2^(i/32), minus i at the position of 1/32 in the exponent. */
static const uint64_t powers[EXP_STEPS] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b,
    0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb,
    0x3feedea64c123422, 0x3feece086061892d, 0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429,
    0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d, 0x3feee89f995ad3ad,
    0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
    0x3fefa4afa2a490da, 0x3fefd0765b6e4540};

/* Computes e^x with x = (k + r) ln2 / 32: 2^(k/32) by the table and the exponent field, 2^(r/32) by a polynomial. */
static inline double exp_double(double x)
{
    const double steps = EXP_STEPS_OF_1 * x;
    /* Adding and subtracting 1.5 2^52 rounds to the nearest integer, which is in the last bits of the sum. */
    const double shifted = steps + 0x1.8p+52;
    const double r = steps - (shifted - 0x1.8p+52);
    uint64_t k;
    double power;
    memcpy(&k, &shifted, sizeof k);
    k = powers[k % EXP_STEPS] + (k << (52 - EXP_BITS));
    memcpy(&power, &k, sizeof power);
    return ((EXP_CUBIC * r + EXP_SQUARE) * (r * r) + (EXP_LINEAR * r + 1)) * power;
}

/* Computes e^x in place; each loop has one width, else the compiler does not vectorize it. */
CALM_VECTORIZE static void exp_floats(size_t n, double *wide, float *x)
{
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)x[i];
    for (size_t i = 0; i < n; i++)
        wide[i] = exp_double(wide[i]);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)wide[i];
}

/* ---- 5/4 <= z < 6 ---- */

/* Returns R / S for z < 20/7, with s = 1 / z^2; ratio_far() is that for larger z. */
static inline float ratio_outer(float s)
{
    const float r = -9.8649440333e-03f
                    + s * (-6.9385856390e-01f
                           + s * (-1.0558626175e+01f
                                  + s * (-6.2375331879e+01f
                                         + s * (-1.6239666748e+02f
                                                + s * (-1.8460508728e+02f
                                                       + s * (-8.1287437439e+01f + s * -9.8143291473e+00f))))));
    const float q = 1.0f
                    + s * (1.9651271820e+01f
                           + s * (1.3765776062e+02f
                                  + s * (4.3456588745e+02f
                                         + s * (6.4538726807e+02f
                                                + s * (4.2900814819e+02f
                                                       + s * (1.0863500214e+02f
                                                              + s * (6.5702495575e+00f + s * -6.0424413532e-02f)))))));
    return r / q;
}

static inline float ratio_far(float s)
{
    const float r = -9.8649431020e-03f
                    + s * (-7.9928326607e-01f
                           + s * (-1.7757955551e+01f
                                  + s * (-1.6063638306e+02f
                                         + s * (-6.3756646729e+02f
                                                + s * (-1.0250950928e+03f + s * -4.8351919556e+02f)))));
    const float q = 1.0f
                    + s * (3.0338060379e+01f
                           + s * (3.2579251099e+02f
                                  + s * (1.5367296143e+03f
                                         + s * (3.1998581543e+03f
                                                + s * (2.5530502930e+03f
                                                       + s * (4.7452853394e+02f + s * -2.2440952301e+01f))))));
    return r / q;
}

/* Returns z with its first bits only. */
static inline float truncate(float z)
{
    uint32_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits &= 0xfffff000;
    memcpy(&z, &bits, sizeof z);
    return z;
}

/* Computes the arguments of both exponentials, for x within the range. */
#define SPLIT(RATIO)                                                                                                   \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        const float z = fabsf(x[i]), s = 1.0f / (z * z), t = truncate(z);                                              \
        square[i] = -t * t - 0.5625f;                                                                                  \
        rest[i] = (t - z) * (t + z) + (RATIO);                                                                         \
    }

CALM_VECTORIZE static void split_any(size_t n, const float *x, float *square, float *rest)
{
    SPLIT(z < FAR_FROM ? ratio_outer(s) : ratio_far(s))
}

CALM_VECTORIZE static void join_outer(size_t n, const float *x, const float *square, const float *rest, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = copysignf(1.0f - square[i] * rest[i] / fabsf(x[i]), x[i]);
}

/* ---- GELU ---- */

CALM_VECTORIZE static void scale(size_t n, const float *x, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * 0.70710678118654752f;
}

CALM_VECTORIZE static void weigh(size_t n, const float *erf, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 0.5f * x[i] * (1.0f + erf[i]);
}

/* Gathers the numbers with z >= 5/4 in a contiguous array, those with z >= 6 as 6; returns their number.  They are
 * few, and fill vectors. */
static size_t gather(size_t n, const float *z, float *outer)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        outer[k] = fabsf(z[i]) < ONE_FROM ? z[i] : copysignf(ONE_FROM, z[i]);
        k += fabsf(z[i]) >= MIDDLE_END;
    }
    return k;
}

/* Scatters the results of those numbers to their positions; for z >= 6 the result is 1. */
static void scatter(size_t n, const float *z, const float *found, float *erf)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(z[i]) >= MIDDLE_END) {
            erf[i] = fabsf(z[i]) < ONE_FROM ? found[k] : copysignf(1, z[i]);
            k++;
        }
}

/* Computes erf of n <= PART numbers. */
static void erf_plain(size_t n, const float *z, float *erf)
{
    float outer[PART + 1], square[PART], rest[PART];    /* gather() also writes the element behind the last */
    double wide[PART];
    const size_t n_outer = gather(n, z, outer);
    erf_inner(n, z, erf);
    split_any(n_outer, outer, square, rest);
    exp_floats(n_outer, wide, square);
    exp_floats(n_outer, wide, rest);
    join_outer(n_outer, outer, square, rest, outer);
    scatter(n, z, outer, erf);
}

/* ---- with AVX-512 ---- */

#if defined(__x86_64__) && !defined(CALM_SANITIZED)
#include <immintrin.h>

#define WIDE   ((size_t)16)
#define AVX512 __attribute__((target("avx512f")))
#define INLINE AVX512 __attribute__((always_inline)) static inline

/* With AVX-512 few instructions gather the numbers of each range, so each approximation runs over its own numbers
 * only. */
enum { MIDDLE, OUTER, FAR, N_RANGES };

typedef struct range {
    size_t n;
    float z[PART + WIDE], erf[PART + WIDE];
} range;

AVX512 static void all_near(size_t n, const float *x, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = erf_near(x[i]);
}

AVX512 static void all_middle(size_t n, const float *x, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = erf_middle(x[i]);
}

AVX512 static void split_outer(size_t n, const float *x, float *square, float *rest)
{
    SPLIT(ratio_outer(s))
}

AVX512 static void split_far(size_t n, const float *x, float *square, float *rest)
{
    SPLIT(ratio_far(s))
}

/* Computes e^x as exp_floats() does, for n a multiple of WIDE: the table is in four registers. */
AVX512 static void exp_wide(size_t n, float *x)
{
    __m512i table[4];
    for (size_t k = 0; k < 4; k++)
        table[k] = _mm512_loadu_si512(powers + 8 * k);
    for (size_t i = 0; i < n; i += WIDE / 2) {
        const __m512d wide = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
        const __m512d steps = _mm512_mul_pd(_mm512_set1_pd(EXP_STEPS_OF_1), wide);
        const __m512d shifted = _mm512_add_pd(steps, _mm512_set1_pd(0x1.8p+52));
        const __m512d r = _mm512_sub_pd(steps, _mm512_sub_pd(shifted, _mm512_set1_pd(0x1.8p+52)));
        const __m512i k = _mm512_castpd_si512(shifted);
        /* The permutation uses four of the five bits of k. */
        const __m512i power = _mm512_mask_mov_epi64(_mm512_permutex2var_epi64(table[0], k, table[1]),
                                                    _mm512_test_epi64_mask(k, _mm512_set1_epi64(16)),
                                                    _mm512_permutex2var_epi64(table[2], k, table[3]));
        const __m512d scale = _mm512_castsi512_pd(_mm512_add_epi64(power, _mm512_slli_epi64(k, 52 - EXP_BITS)));
        const __m512d cubic = _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(EXP_CUBIC), r), _mm512_set1_pd(EXP_SQUARE));
        const __m512d linear = _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(EXP_LINEAR), r), _mm512_set1_pd(1));
        const __m512d sum = _mm512_add_pd(_mm512_mul_pd(cubic, _mm512_mul_pd(r, r)), linear);
        _mm256_storeu_ps(x + i, _mm512_cvtpd_ps(_mm512_mul_pd(sum, scale)));
    }
}

/* Sets in[] to the lanes of x in each range, the last of which begins at 20/7; returns the lanes with z >= 6. */
INLINE __mmask16 find_ranges(__m512 x, __mmask16 *in)
{
    const __m512 size = _mm512_abs_ps(x);
    const __mmask16 middle = _mm512_cmp_ps_mask(size, _mm512_set1_ps(NEAR_END), _CMP_GE_OQ);
    const __mmask16 outer = _mm512_cmp_ps_mask(size, _mm512_set1_ps(MIDDLE_END), _CMP_GE_OQ);
    in[FAR] = _mm512_cmp_ps_mask(size, _mm512_set1_ps(FAR_FROM), _CMP_GE_OQ);
    in[MIDDLE] = middle & (__mmask16)~outer;
    in[OUTER] = outer & (__mmask16)~in[FAR];
    return _mm512_cmp_ps_mask(size, _mm512_set1_ps(ONE_FROM), _CMP_GE_OQ);
}

/* Returns `size` with the sign of x. */
INLINE __m512 with_sign(float size, __m512 x)
{
    const __m512i sign = _mm512_and_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
    return _mm512_castsi512_ps(_mm512_or_epi32(sign, _mm512_castps_si512(_mm512_set1_ps(size))));
}

/* Gathers as gather() does, for each range; n is a multiple of WIDE. */
AVX512 static void gather_ranges(size_t n, const float *z, range *ranges)
{
    __mmask16 in[N_RANGES];
    for (size_t i = 0; i < n; i += WIDE) {
        const __m512 x = _mm512_loadu_ps(z + i);
        const __mmask16 one = find_ranges(x, in);
        const __m512 capped = _mm512_mask_mov_ps(x, one, with_sign(ONE_FROM, x));
        for (size_t k = 0; k < N_RANGES; k++) {
            _mm512_storeu_ps(ranges[k].z + ranges[k].n, _mm512_maskz_compress_ps(in[k], capped));
            ranges[k].n += (size_t)__builtin_popcount(in[k]);
        }
    }
    /* Ones fill up the last vector, so that loops over a range have whole vectors. */
    for (size_t k = 0; k < N_RANGES; k++) {
        _mm512_storeu_ps(ranges[k].z + ranges[k].n, _mm512_set1_ps(1));
        ranges[k].n = (ranges[k].n + WIDE - 1) / WIDE * WIDE;
    }
}

/* Scatters as scatter() does. */
AVX512 static void scatter_ranges(size_t n, const float *z, const range *ranges, float *erf)
{
    const float *found[N_RANGES] = {ranges[MIDDLE].erf, ranges[OUTER].erf, ranges[FAR].erf};
    __mmask16 in[N_RANGES];
    for (size_t i = 0; i < n; i += WIDE) {
        const __m512 x = _mm512_loadu_ps(z + i);
        const __mmask16 one = find_ranges(x, in);
        __m512 y = _mm512_loadu_ps(erf + i);
        for (size_t k = 0; k < N_RANGES; k++) {
            y = _mm512_mask_expand_ps(y, in[k], _mm512_loadu_ps(found[k]));
            found[k] += __builtin_popcount(in[k]);
        }
        _mm512_storeu_ps(erf + i, _mm512_mask_mov_ps(y, one, with_sign(1, x)));
    }
}

static void range_beyond(void (*split)(size_t, const float *, float *, float *), range *of)
{
    float square[PART], rest[PART];
    split(of->n, of->z, square, rest);
    exp_wide(of->n, square);
    exp_wide(of->n, rest);
    join_outer(of->n, of->z, square, rest, of->erf);
}

/* Computes erf of n <= PART numbers, n a multiple of WIDE. */
static void erf_wide(size_t n, const float *z, float *erf)
{
    range ranges[N_RANGES];
    for (size_t k = 0; k < N_RANGES; k++)
        ranges[k].n = 0;
    gather_ranges(n, z, ranges);
    all_near(n, z, erf);
    all_middle(ranges[MIDDLE].n, ranges[MIDDLE].z, ranges[MIDDLE].erf);
    range_beyond(split_outer, &ranges[OUTER]);
    range_beyond(split_far, &ranges[FAR]);
    scatter_ranges(n, z, ranges, erf);
}

static bool wide(size_t n)
{
    return n % WIDE == 0 && __builtin_cpu_supports("avx512f");
}
#else
#define erf_wide erf_plain

static bool wide(size_t n)
{
    (void)n;
    return false;
}
#endif

/* Computes GELU of n <= PART numbers in place. */
static void gelu_part(size_t n, float *x)
{
    float z[PART], erf[PART];
    scale(n, x, z);
    (wide(n) ? erf_wide : erf_plain)(n, z, erf);
    weigh(n, erf, x);
}

void calm_vec_gelu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i += PART)
        gelu_part(n - i < PART ? n - i : PART, x + i);
}
