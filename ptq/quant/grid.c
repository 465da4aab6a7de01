/* Scale rounding, codes and dequantization of one group; activations per token.
 *
 * Rounding adds and subtracts 1.5 * 2^(mantissa bits): in the default rounding mode that is round-half-even for
 * the magnitudes left after clipping, and it vectorizes on every processor. */
#include "ptq/quant/grid.h"

#include <assert.h>
#include <math.h>

#include "ptq/base/simd.h"

#define ROUND_F64 0x1.8p52
#define ROUND_F32 0x1.8p23f

float calm_scale_round(double scale, calm_dtype dtype)
{
    if (isnan(scale))
        return NAN;
    if (fabs(scale) < CALM_SCALE_MIN)
        return copysignf((float)CALM_SCALE_MIN, (float)scale);
    assert(dtype == CALM_BF16 || dtype == CALM_F16);
    float narrow = (float)scale;
    float rounded = dtype == CALM_F16 ? calm_f16_to_f32(calm_f32_to_f16(narrow))
                                      : calm_bf16_to_f32(calm_f32_to_bf16(narrow));
    return fabsf(rounded) <= (float)CALM_SCALE_MAX ? rounded : copysignf(INFINITY, rounded);
}

int calm_code_min(const calm_scheme *scheme)
{
    return scheme->bits == 8 && scheme->symmetric ? 1 : 0;
}

int calm_code_max(const calm_scheme *scheme)
{
    return (1 << scheme->bits) - 1;
}

uint8_t calm_symmetric_zero(const calm_scheme *scheme)
{
    return (uint8_t)(1 << (scheme->bits - 1));
}

void calm_grid_span(const double *w, size_t n, double *lo, double *hi)
{
    *lo = *hi = 0;
    for (size_t j = 0; j < n; j++) {
        *lo = w[j] < *lo ? w[j] : *lo;
        *hi = w[j] > *hi ? w[j] : *hi;
    }
}

calm_grid calm_grid_between(const calm_scheme *scheme, double lo, double hi)
{
    const int most = calm_code_max(scheme);
    const double range = scheme->symmetric ? 2 * (-lo > hi ? -lo : hi) : hi - lo;
    const float scale = calm_scale_round(range / most, scheme->scale_dtype);
    const double zero = scheme->symmetric ? calm_symmetric_zero(scheme) : rint(-lo / scale);
    return (calm_grid){scale, (uint8_t)(zero < most ? zero : most)};
}

CALM_VECTORIZE
static void encode(double scale, double lo, double hi, double zero, const double *w, size_t n, uint8_t *codes)
{
    for (size_t j = 0; j < n; j++) {
        double q = w[j] / scale;
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        codes[j] = (uint8_t)(int)((q + ROUND_F64) - ROUND_F64 + zero);
    }
}

void calm_grid_encode(const calm_scheme *scheme, calm_grid grid, const double *w, size_t n, uint8_t *codes)
{
    encode(grid.scale, calm_code_min(scheme) - grid.zero, calm_code_max(scheme) - grid.zero, grid.zero, w, n, codes);
}

CALM_VECTORIZE
void calm_grid_decode(calm_grid grid, const uint8_t *codes, size_t n, float *w)
{
    for (size_t j = 0; j < n; j++)
        w[j] = (float)((int)codes[j] - (int)grid.zero) * grid.scale;
}

/* *lo = min(min x, start), *hi = max(max x, start) of n values.  In 16 lanes, so that it vectorizes: an extremum does
 * not depend on the order.  A NaN compares as neither less nor more and is passed over. */
CALM_VECTORIZE
static void span(const float *x, size_t n, float start, float *lo, float *hi)
{
    float least[16], most[16];
    size_t j = 0;
    for (size_t l = 0; l < 16; l++)
        least[l] = most[l] = start;
    for (; j + 16 <= n; j += 16)
        for (size_t l = 0; l < 16; l++) {
            float a = x[j + l];
            least[l] = a < least[l] ? a : least[l];
            most[l] = a > most[l] ? a : most[l];
        }
    for (; j < n; j++) {
        least[0] = x[j] < least[0] ? x[j] : least[0];
        most[0] = x[j] > most[0] ? x[j] : most[0];
    }
    *lo = *hi = start;
    for (size_t l = 0; l < 16; l++) {
        *lo = least[l] < *lo ? least[l] : *lo;
        *hi = most[l] > *hi ? most[l] : *hi;
    }
}

/* max|x| from the least (<= 0) and the largest (>= 0) of x; +0 and not -0 for a row of zeros. */
static float magnitude(float least, float most)
{
    return -least > most ? -least : most;
}

/* The quotient is rounded to float32 before the zero point is added, as the library does. */
CALM_VECTORIZE
static void act_quantize(const float *x, size_t d, float scale, float zero, float lo, float hi, float *y)
{
    for (size_t j = 0; j < d; j++) {
        float q = x[j] / scale + zero;
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        y[j] = (((q + ROUND_F32) - ROUND_F32) - zero) * scale;
    }
}

static void rows_compressed_tensors(const float *x, size_t n, size_t d, int bits, bool asymmetric, float *y)
{
    const float half = (float)(1 << (bits - 1)), lo = -half, hi = half - 1;
    for (size_t t = 0; t < n; t++) {
        float zero = 0, least, most;
        span(x + t * d, d, 0, &least, &most);
        float scale = asymmetric ? (most - least) / (hi - lo) : magnitude(least, most) / (half - 0.5f);
        if (scale == 0)
            scale = 1;
        if (asymmetric) {
            zero = lo - least / scale;
            zero = rintf(zero > hi ? hi : zero);    /* at least lo, for least <= 0 */
        }
        act_quantize(x + t * d, d, scale, zero, lo, hi, y + t * d);
    }
}

/* ---- vLLM ---- */

/* Where the range is far from zero, codes and zero point are large, so they meet in double; those of a row whose
 * numbers pass 2^31, which the kernel would let overflow, are useless in either form. */
CALM_VECTORIZE
static void act_quantize_inverse(const float *x, size_t d, float inverse, float scale, double zero, double lo,
                                 double hi, float *y)
{
    for (size_t j = 0; j < d; j++) {
        double q = (double)rintf(x[j] * inverse) + zero;
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        y[j] = (float)(q - zero) * scale;
    }
}

static void rows_vllm(const float *x, size_t n, size_t d, int bits, bool asymmetric, float *y)
{
    const float half = (float)(1 << (bits - 1)), lo = -half, hi = half - 1;
    for (size_t t = 0; t < n; t++) {
        float scale, inverse, zero = 0, least, most;
        span(x + t * d, d, asymmetric ? x[t * d] : 0, &least, &most);
        if (asymmetric) {
            scale = (most - least) / (hi - lo);
            inverse = 1 / scale;
            zero = rintf(lo - least / scale);
        } else {
            most = magnitude(least, most);
            scale = most / hi;
            inverse = hi / most;
        }
        if (scale == 0)    /* all that comes of it is multiplied by 0 */
            zero = inverse = 0;
        act_quantize_inverse(x + t * d, d, inverse, scale, zero, lo, hi, y + t * d);
    }
}

void calm_actquant_rows(const float *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule, float *y)
{
    assert(bits >= 2 && bits <= 8);
    if (d == 0)
        return;
    if (rule == CALM_ACT_RULE_VLLM)
        rows_vllm(x, n, d, bits, asymmetric, y);
    else
        rows_compressed_tensors(x, n, d, bits, asymmetric, y);
}
