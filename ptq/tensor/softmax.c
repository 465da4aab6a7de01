/* Rows of a softmax: maximum, exponentials and sums.
 *
 * AVX-512 has single instructions for several operations of exp_one, and masks for the end of a row.  All of them
 * round in the same way, so both versions give the same bytes. */
#include <stdbool.h>

#include "ptq/base/arena.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_impl.h"

/* Vectors that are compared independently, as each comparison of one chain waits for the one before it. */
#define AT_ONCE ((size_t)4)

/* ---- loops that the compiler vectorizes ---- */

/* Numbers whose maxima are found independently: at least two vectors of each width. */
#define ACROSS ((size_t)32)

/* Computes most = max(most, x) for n elements; n is constant after inlining. */
static inline void raise_each(size_t n, const float *x, float *most)
{
    for (size_t k = 0; k < n; k++)
        most[k] = x[k] > most[k] ? x[k] : most[k];
}

/* Returns the maximum.  The last numbers of a long row are compared together with some before them, which are
 * compared twice without effect. */
CALM_VECTORIZE static float max_plain(size_t n, const float *x)
{
    float most[ACROSS];
    for (size_t k = 0; k < ACROSS; k++)
        most[k] = x[0];
    for (size_t i = 0; n >= ACROSS && i < n; i += ACROSS)
        raise_each(ACROSS, x + calm_size_min(i, n - ACROSS), most);
    for (size_t i = 1; n < ACROSS && i < n; i++)
        raise_each(1, x + i, most);
    raise_each(16, most + 16, most);
    raise_each(8, most + 8, most);
    raise_each(4, most + 4, most);
    raise_each(2, most + 2, most);
    raise_each(1, most + 1, most);
    return most[0];
}

CALM_VECTORIZE static void exp_shifted(size_t n, float shift, const float *x, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = exp_one(x[i] - shift);
}

/* Uses two loops, as the compiler does not vectorize one that mixes float and double. */
static double exp_sum_plain(size_t n, float shift, const float *x, float *out)
{
    exp_shifted(n, shift, x, out);
    return calm_vec_sum(n, out);
}

CALM_VECTORIZE static float numerators_plain(size_t n, float scale, float shift, float *x)
{
    float lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            x[i + j] = exp_one(scale * (x[i + j] - shift));
            lane[j] += x[i + j];
        }
    for (; i < n; i++) {
        x[i] = exp_one(scale * (x[i] - shift));
        lane[i % LANES] += x[i];
    }
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* ---- AVX-512 ---- */

#if defined(__x86_64__) && !defined(CALM_SANITIZED)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define INLINE AVX512 __attribute__((always_inline)) static inline

/* Returns the mask of a row's last vector with `left` numbers. */
INLINE __mmask16 lanes_of(size_t left)
{
    return (__mmask16)(left < LANES ? (1u << left) - 1 : UINT16_MAX);
}

/* Loops over n vectors, n constant after inlining, so that independent operations overlap. */
#define EACH _Pragma("GCC unroll 4") for (size_t k = 0; k < n; k++)
#define ALL(x) _mm512_set1_ps(x)

/* Computes exp_one of x [n] in place, n <= AT_ONCE, with the same steps.  The first product with the integer is
 * exact, so fusing its sum changes nothing; minimum and maximum return a NaN operand. */
INLINE void exp_each(size_t n, __m512 *x)
{
    static const float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                                  5.0000001201e-1f};
    const __m512 least = ALL(-87.3f);
    __m512 r[AT_ONCE], whole[AT_ONCE], p[AT_ONCE];
    EACH r[k] = _mm512_max_ps(least, _mm512_min_ps(ALL(88.0f), x[k]));
    EACH whole[k] = _mm512_roundscale_ps(_mm512_mul_ps(r[k], ALL(1.44269504088896341f)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    EACH r[k] = _mm512_fnmadd_ps(whole[k], ALL(0.693359375f), r[k]);
    EACH r[k] = _mm512_sub_ps(r[k], _mm512_mul_ps(whole[k], ALL(-2.12194440e-4f)));
    EACH p[k] = ALL(1.9875691500e-4f);
    _Pragma("GCC unroll 8") for (size_t t = 0; t < sizeof terms / sizeof *terms; t++)
        EACH p[k] = _mm512_add_ps(_mm512_mul_ps(p[k], r[k]), ALL(terms[t]));
    EACH p[k] = _mm512_add_ps(_mm512_mul_ps(_mm512_mul_ps(p[k], r[k]), r[k]), r[k]);
    EACH p[k] = _mm512_add_ps(p[k], ALL(1.0f));
    EACH x[k] = _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x[k], least, _CMP_NLT_UQ), p[k], whole[k]);
}

/* Computes the same for one vector. */
INLINE __m512 exp_wide(__m512 x)
{
    exp_each(1, &x);
    return x;
}

/* Returns `part` where it is greater, else `most`. */
INLINE __m512 raise_wide(__m512 most, __m512 part)
{
    return _mm512_max_ps(part, most);
}

/* Returns the maximum.  Either all lanes are NaN, if the first number is, or none: so the order of comparisons
 * matters only for the sign of 0. */
AVX512 static float max_wide(size_t n, const float *x)
{
    const __m512 first = _mm512_set1_ps(x[0]);
    __m512 a = first, b = first, c = first, d = first;
    size_t i = 0;
    for (; i + AT_ONCE * LANES <= n; i += AT_ONCE * LANES) {
        a = raise_wide(a, _mm512_loadu_ps(x + i));
        b = raise_wide(b, _mm512_loadu_ps(x + i + LANES));
        c = raise_wide(c, _mm512_loadu_ps(x + i + 2 * LANES));
        d = raise_wide(d, _mm512_loadu_ps(x + i + 3 * LANES));
    }
    for (; i < n; i += LANES)
        a = raise_wide(a, _mm512_mask_loadu_ps(first, lanes_of(n - i), x + i));
    a = raise_wide(raise_wide(a, b), raise_wide(c, d));
    a = raise_wide(a, _mm512_shuffle_f32x4(a, a, _MM_SHUFFLE(1, 0, 3, 2)));
    a = raise_wide(a, _mm512_shuffle_f32x4(a, a, _MM_SHUFFLE(2, 3, 0, 1)));
    a = raise_wide(a, _mm512_permute_ps(a, _MM_SHUFFLE(1, 0, 3, 2)));
    a = raise_wide(a, _mm512_permute_ps(a, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm512_cvtss_f32(a);
}

/* Computes e^(x - shift) of n vectors under the mask `there`, and adds them in double to halves [2] in their order. */
INLINE void exp_sum_each(size_t n, float shift, const float *x, __mmask16 there, float *out, __m512d halves[2])
{
    __m512 e[AT_ONCE];
    EACH e[k] = _mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + k * LANES), ALL(shift));
    exp_each(n, e);
    EACH _mm512_mask_storeu_ps(out + k * LANES, there, e[k]);
    EACH
    {
        const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(e[k]), 1));
        halves[0] = _mm512_mask_add_pd(halves[0], (__mmask8)there, halves[0],
                                       _mm512_cvtps_pd(_mm512_castps512_ps256(e[k])));
        halves[1] = _mm512_mask_add_pd(halves[1], (__mmask8)(there >> 8), halves[1], _mm512_cvtps_pd(upper));
    }
}

AVX512 static double exp_sum_wide(size_t n, float shift, const float *x, float *out)
{
    __m512d halves[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    double lane[LANES], total = 0;
    size_t i = 0;
    for (; i + AT_ONCE * LANES <= n; i += AT_ONCE * LANES)
        exp_sum_each(AT_ONCE, shift, x + i, UINT16_MAX, out + i, halves);
    for (; i < n; i += LANES)
        exp_sum_each(1, shift, x + i, lanes_of(n - i), out + i, halves);
    _mm512_storeu_pd(lane, halves[0]);
    _mm512_storeu_pd(lane + LANES / 2, halves[1]);
    for (size_t j = 0; j < LANES; j++)
        total += lane[j];
    return total;
}

/* Computes the numerators of n vectors in place under the mask `there`, and adds them to `lanes` in their order. */
INLINE __m512 numerators_each(size_t n, float scale, float shift, float *x, __mmask16 there, __m512 lanes)
{
    __m512 e[AT_ONCE];
    EACH e[k] = _mm512_mul_ps(ALL(scale), _mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + k * LANES), ALL(shift)));
    exp_each(n, e);
    EACH _mm512_mask_storeu_ps(x + k * LANES, there, e[k]);
    EACH lanes = _mm512_mask_add_ps(lanes, there, lanes, e[k]);
    return lanes;
}

AVX512 static float numerators_wide(size_t n, float scale, float shift, float *x)
{
    __m512 lanes = _mm512_setzero_ps();
    float lane[LANES], sum = 0;
    size_t i = 0;
    for (; i + AT_ONCE * LANES <= n; i += AT_ONCE * LANES)
        lanes = numerators_each(AT_ONCE, scale, shift, x + i, UINT16_MAX, lanes);
    for (; i < n; i += LANES)
        lanes = numerators_each(1, scale, shift, x + i, lanes_of(n - i), lanes);
    _mm512_storeu_ps(lane, lanes);
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static bool wide(void)
{
    return __builtin_cpu_supports("avx512f");
}
#else
#define max_wide        max_plain
#define exp_sum_wide    exp_sum_plain
#define numerators_wide numerators_plain

static bool wide(void)
{
    return false;
}
#endif

/* ---- dispatch ---- */

float calm_vec_max(size_t n, const float *x)
{
    return (wide() ? max_wide : max_plain)(n, x);
}

size_t calm_vec_argmax(size_t n, const float *x)
{
    const float max = calm_vec_max(n, x);
    size_t i = 0;
    while (i + 1 < n && x[i] != max)
        i++;
    return i;
}

double calm_vec_exp_sum(size_t n, float shift, const float *x, float *out)
{
    return (wide() ? exp_sum_wide : exp_sum_plain)(n, shift, x, out);
}

float calm_vec_softmax_numerators(size_t n, float scale, float *x)
{
    return (wide() ? numerators_wide : numerators_plain)(n, scale, calm_vec_max(n, x), x);
}
