/* Scale rounding, codes and dequantization of one group; quantization of activations per token.
 *
 * Rounding adds and subtracts 1.5 * 2^(mantissa bits): in the default rounding mode this rounds half to even at the
 * magnitudes that remain after clipping, and it vectorizes on every processor. */
#include "ptq/quant/grid.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/quant/act_levels.h"
#include "ptq/quant/super_block.h"

#define ROUND_F64 0x1.8p52
#define ROUND_F32 0x1.8p23f

/* Power-of-two scales: from the smallest normal float32 to the largest scale of other formats. */
#define E8M0_MIN 0x1p-126
#define E8M0_MAX 0x1p15

/* ---- the range of a group ---- */

/* Computes *lo = min(min x, start), *hi = max(max x, start) of n values in lanes, so that it vectorizes: an
 * extremum does not depend on the order.  Comparisons with a NaN are false, so a NaN is ignored.  Rows of activations
 * are long: with 64 lanes no comparison waits for the one before; groups of weights may have 32. */
#define FOLD(half)                                                                                      \
    for (size_t l = 0; l < half; l++) {                                                                 \
        least[l] = least[l + half] < least[l] ? least[l + half] : least[l];                             \
        most[l] = most[l + half] > most[l] ? most[l + half] : most[l];                                  \
    }

#define DEFINE_SPAN(name, number, lanes, folds)                                                         \
    CALM_VECTORIZE static void name(const number *x, size_t n, number start, number *lo, number *hi)    \
    {                                                                                                   \
        number least[lanes], most[lanes];                                                               \
        size_t j = 0;                                                                                   \
        for (size_t l = 0; l < lanes; l++)                                                              \
            least[l] = most[l] = start;                                                                 \
        for (; j + lanes <= n; j += lanes)                                                              \
            for (size_t l = 0; l < lanes; l++) {                                                        \
                number a = x[j + l];                                                                    \
                least[l] = a < least[l] ? a : least[l];                                                 \
                most[l] = a > most[l] ? a : most[l];                                                    \
            }                                                                                           \
        for (; j < n; j++) {                                                                            \
            least[0] = x[j] < least[0] ? x[j] : least[0];                                               \
            most[0] = x[j] > most[0] ? x[j] : most[0];                                                  \
        }                                                                                               \
        folds                                                                                           \
        FOLD(8)                                                                                         \
        FOLD(4)                                                                                         \
        FOLD(2)                                                                                         \
        FOLD(1)                                                                                         \
        *lo = least[0];                                                                                 \
        *hi = most[0];                                                                                  \
    }

DEFINE_SPAN(span, float, 64, FOLD(32) FOLD(16))
DEFINE_SPAN(span_f64, double, 16, )

/* ---- scales ---- */

static double least_of(calm_dtype dtype)
{
    return dtype == CALM_F16 ? CALM_SCALE_LEAST_F16 : CALM_SCALE_LEAST_BF16;
}

/* Returns the scale whose nearest 16-bit number is `rounded`, within the range of scales. */
static inline float within_range(double scale, float rounded, double least)
{
    const float inside = fabsf(rounded) > (float)CALM_SCALE_MAX ? copysignf(INFINITY, rounded) : rounded;
    const double instead = scale == 0 ? CALM_SCALE_MIN : least;
    return fabs(scale) < least ? copysignf((float)instead, (float)scale) : inside;
}

static float round_16_bits(double scale, calm_dtype dtype)
{
    assert(dtype == CALM_BF16 || dtype == CALM_F16);
    return within_range(scale, dtype == CALM_F16 ? calm_round_f16((float)scale) : calm_round_bf16((float)scale),
                        least_of(dtype));
}

CALM_VECTORIZE
static void narrow_all(size_t n, const double *scale, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)scale[i];
}

CALM_VECTORIZE
static void within_range_all(size_t n, const double *scale, double least, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = within_range(scale[i], out[i], least);
}

static float round_power(double scale)
{
    int exponent;
    if (!(scale > E8M0_MIN))
        return (float)E8M0_MIN;
    if (scale >= 1.5 * E8M0_MAX)
        return INFINITY;
    const double part = frexp(scale, &exponent);
    return (float)ldexp(1, part < 0.75 ? exponent - 1 : exponent);
}

/* Rounds a scale to E4M3 times the global scale, by which readers divide in float32. */
static float round_e4m3(double scale, float global)
{
    const calm_levels *levels = &calm_levels_e4m3;
    if (scale > CALM_SCALE_MAX)
        return INFINITY;
    double stored = scale * (double)global;
    calm_levels_nearest(levels, &stored, 1);
    const float least = levels->value[levels->n / 2 + 1];
    return (stored < (double)least ? least : (float)stored) / global;
}

float calm_scale_global(const calm_scheme *scheme, float absmax)
{
    const calm_family *family = calm_scheme_family(scheme);
    if (!calm_scheme_has_global(scheme))
        return 0;
    if (calm_scheme_is_whole(scheme))
        return round_16_bits((double)absmax / (double)family->levels->value[family->levels->n - 1],
                             scheme->scale_dtype);
    const float most = calm_levels_e4m3.value[calm_levels_e4m3.n - 1] * family->levels->value[family->levels->n - 1];
    /* For smaller weights the quotient would overflow. */
    return absmax > 0x1p-100f ? most / absmax : 1;
}

float calm_scale_round(const calm_scheme *scheme, float global, double scale)
{
    if (isnan(scale))
        return NAN;
    switch (calm_scheme_family(scheme)->scale) {
    case CALM_SCALE_E8M0:
        return round_power(scale);
    case CALM_SCALE_E4M3:
        return round_e4m3(scale, global);
    case CALM_SCALE_JOB:
        return isinf(scale) ? INFINITY : global;
    case CALM_SCALE_F16:
        return round_16_bits(scale, CALM_F16);
    case CALM_SCALE_U4:
    case CALM_SCALE_U6:
    case CALM_SCALE_S6:
    case CALM_SCALE_S8:
        return calm_super_scale(scheme, scale);
    case CALM_SCALE_DTYPE:
        break;
    }
    return round_16_bits(scale, scheme->scale_dtype);
}

void calm_scale_round_all(const calm_scheme *scheme, float global, size_t n, const double *scale, float *out)
{
    const calm_scale_code code = calm_scheme_family(scheme)->scale;
    if (calm_scheme_is_super_block(scheme)) {
        calm_super_scales(scheme, n, scale, out);
    } else if (code == CALM_SCALE_F16 || code == CALM_SCALE_DTYPE) {
        const calm_dtype dtype = code == CALM_SCALE_F16 ? CALM_F16 : scheme->scale_dtype;
        narrow_all(n, scale, out);
        calm_dtype_round_all(dtype, out, n);
        within_range_all(n, scale, least_of(dtype), out);
    } else {
        for (size_t i = 0; i < n; i++)
            out[i] = calm_scale_round(scheme, global, scale[i]);
    }
}

double calm_scale_most(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->scale == CALM_SCALE_E8M0 ? E8M0_MAX : CALM_SCALE_MAX;
}

double calm_scale_least(const calm_scheme *scheme, float absmax)
{
    switch (calm_scheme_family(scheme)->scale) {
    case CALM_SCALE_E8M0:
        return E8M0_MIN;
    case CALM_SCALE_E4M3:
        return (double)calm_scale_round(scheme, calm_scale_global(scheme, absmax), 0);
    case CALM_SCALE_JOB:
        return (double)calm_scale_global(scheme, absmax);
    case CALM_SCALE_DTYPE:
        return least_of(scheme->scale_dtype);
    default:    /* float16, also in a super-block */
        return CALM_SCALE_LEAST_F16;
    }
}

float calm_min_round(const calm_scheme *scheme, double min)
{
    if (!calm_scheme_has_mins(scheme))
        return 0;
    if (calm_scheme_family(scheme)->minimum == CALM_MINIMUM_TAKEN)
        return calm_super_minimum(min);
    const float rounded = calm_dtype_round(CALM_F16, (float)min);
    return fabsf(rounded) <= (float)CALM_SCALE_MAX ? rounded : copysignf(INFINITY, rounded);
}

void calm_scales_round(const calm_scheme *scheme, float global, size_t n, float *scales, float *mins)
{
    if (calm_scheme_is_super_block(scheme)) {
        calm_super_round(scheme, n, scales, mins);
        return;
    }
    for (size_t g = 0; g < n; g++) {
        scales[g] = calm_scale_round(scheme, global, scales[g]);
        if (mins)
            mins[g] = calm_min_round(scheme, mins[g]);
    }
}

bool calm_scale_mirrors(const calm_scheme *scheme)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    if (levels)    /* small floats have the same levels on both sides, and their scales have no sign */
        return !(levels->least > 0);
    return scheme->symmetric && calm_code_min(scheme) == 0 && !calm_scheme_has_mins(scheme);
}

/* ---- codes ---- */

int calm_code_min(const calm_scheme *scheme)
{
    return scheme->bits == 8 && scheme->symmetric && !scheme->family ? 1 : 0;
}

int calm_code_max(const calm_scheme *scheme)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    return levels ? (int)levels->n - 1 : (1 << scheme->bits) - 1;
}

uint8_t calm_symmetric_zero(const calm_scheme *scheme)
{
    return (uint8_t)(scheme->family ? calm_scheme_family(scheme)->zero : 1 << (scheme->bits - 1));
}

void calm_grid_span(const calm_scheme *scheme, const double *w, size_t n, double *lo, double *hi)
{
    const bool free = calm_scheme_family(scheme)->minimum == CALM_MINIMUM_FREE && n;
    span_f64(w, n, free ? w[0] : 0, lo, hi);
    /* Of zeros of both signs, take the first: files store the sign. */
    for (size_t j = 0; free && *lo == 0 && j < n; j++)
        if (w[j] == 0) {
            *lo = w[j];
            break;
        }
}

/* Returns the smallest power of two under which values exceed the largest level by less than a sixth, and so round
 * to it, as compressed-tensors chooses it. */
static double power_span(double scale)
{
    int exponent;
    return frexp(scale * 6 / 7, &exponent) > 0 ? ldexp(1, exponent) : 0;
}

/* Returns the symmetric scale: twice the larger side of the range over this many codes. */
static inline double even_scale(double lo, double hi, int most)
{
    return 2 * (-lo > hi ? -lo : hi) / most;
}

/* Returns the grid of the range [lo, hi]: from a minimum over the distance of its codes, or over the ends of the
 * levels. */
static calm_grid family_between(const calm_scheme *scheme, float global, double lo, double hi)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    calm_grid grid = {.zero = calm_symmetric_zero(scheme)};
    double scale = (hi - lo) / calm_code_max(scheme);
    if (levels) {
        const double below = lo / (double)levels->value[0], above = hi / (double)levels->value[levels->n - 1];
        scale = below > above ? below : above;
        if (calm_scheme_family(scheme)->scale == CALM_SCALE_E8M0)
            scale = power_span(scale);
    } else {
        grid.min = calm_min_round(scheme, lo);
    }
    grid.scale = calm_scale_round(scheme, global, scale);
    return grid;
}

calm_grid calm_grid_between(const calm_scheme *scheme, float global, double lo, double hi)
{
    if (scheme->family && !calm_scheme_is_plain(scheme))
        return family_between(scheme, global, lo, hi);
    const int most = calm_code_max(scheme);
    const bool even = scheme->family || scheme->symmetric;
    const float scale = calm_scale_round(scheme, global, even ? even_scale(lo, hi, most) : (hi - lo) / most);
    const double zero = even ? calm_symmetric_zero(scheme) : rint(-lo / scale);
    return (calm_grid){.scale = scale, .zero = (uint8_t)(zero < most ? zero : most)};
}

/* Computes the grids one by one. */
static void each_between(const calm_scheme *scheme, float global, double lo, double hi, const double *p, size_t n,
                         calm_grid *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = calm_grid_between(scheme, global, p[i] * lo, p[i] * hi);
}

CALM_VECTORIZE
static void even_scales(double lo, double hi, int most, const double *p, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = even_scale(p[i] * lo, p[i] * hi, most);
}

#define PIECE ((size_t)64)    /* weights or grids that are computed at once */

void calm_grid_between_all(const calm_scheme *scheme, float global, double lo, double hi, const double *p, size_t n,
                           calm_grid *out)
{
    double scale[PIECE];
    float rounded[PIECE];
    if (calm_scheme_levels(scheme) || calm_scheme_has_mins(scheme) || !(scheme->family || scheme->symmetric)) {
        each_between(scheme, global, lo, hi, p, n, out);
        return;
    }
    const int most = calm_code_max(scheme);
    const uint8_t zero = calm_symmetric_zero(scheme);
    for (size_t start = 0; start < n; start += PIECE) {
        const size_t piece = calm_size_min(n - start, PIECE);
        even_scales(lo, hi, most, p + start, piece, scale);
        calm_scale_round_all(scheme, global, piece, scale, rounded);
        for (size_t i = 0; i < piece; i++)
            out[start + i] = (calm_grid){.scale = rounded[i], .zero = zero};
    }
}

CALM_VECTORIZE
static void nearest_whole(double lo, double hi, double *x, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double q = x[j];
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        x[j] = (q + ROUND_F64) - ROUND_F64;
    }
}

void calm_level_nearest(const calm_scheme *scheme, double zero, double *x, size_t n)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    if (levels)
        calm_levels_nearest(levels, x, n);
    else
        nearest_whole(calm_code_min(scheme) - zero, calm_code_max(scheme) - zero, x, n);
}

double calm_level_value(const calm_scheme *scheme, double zero, uint8_t code)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    return levels ? (double)levels->value[code] : code - zero;
}

uint8_t calm_level_code(const calm_scheme *scheme, double zero, double level)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    return levels ? calm_levels_code(levels, level) : (uint8_t)(int)(level + zero);
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

static void encode_levels(const calm_scheme *scheme, calm_grid grid, const double *w, size_t n, uint8_t *codes)
{
    double x[PIECE];
    for (size_t start = 0; start < n; start += PIECE) {
        const size_t piece = n - start < PIECE ? n - start : PIECE;
        for (size_t j = 0; j < piece; j++)
            x[j] = (w[start + j] - (double)grid.min) / (double)grid.scale;
        calm_level_nearest(scheme, grid.zero, x, piece);
        for (size_t j = 0; j < piece; j++)
            codes[start + j] = calm_level_code(scheme, grid.zero, x[j]);
    }
}

void calm_grid_encode(const calm_scheme *scheme, calm_grid grid, const double *w, size_t n, uint8_t *codes)
{
    if (calm_scheme_is_plain(scheme))
        encode(grid.scale, calm_code_min(scheme) - grid.zero, calm_code_max(scheme) - grid.zero, grid.zero, w, n,
               codes);
    else
        encode_levels(scheme, grid, w, n, codes);
}

CALM_VECTORIZE
static void decode(calm_grid grid, const uint8_t *codes, size_t n, float *w)
{
    for (size_t j = 0; j < n; j++)
        w[j] = (float)((int)codes[j] - (int)grid.zero) * grid.scale;
}

void calm_grid_decode(const calm_scheme *scheme, calm_grid grid, const uint8_t *codes, size_t n, float *w)
{
    const calm_levels *levels = calm_scheme_levels(scheme);
    if (levels)
        for (size_t j = 0; j < n; j++)
            w[j] = levels->value[codes[j]] * grid.scale;
    else
        decode(grid, codes, n, w);
    for (size_t j = 0; calm_scheme_has_mins(scheme) && j < n; j++)
        w[j] += grid.min;
}

/* ---- activations ---- */

/* Returns max|x| from the minimum (<= 0) and maximum (>= 0) of x; +0, not -0, for a row of zeros. */
static float magnitude(float least, float most)
{
    return -least > most ? -least : most;
}

/* Quantizes and dequantizes a row.  The quotient is rounded to float32 before the zero point is added, as in the
 * library. */
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

/* Computes scale and zero point of a row as compressed-tensors does. */
static void row_compressed_tensors(const float *x, size_t d, float half, bool asymmetric, float *scale, float *zero)
{
    const float lo = -half, hi = half - 1;
    float least, most;
    span(x, d, 0, &least, &most);
    *scale = asymmetric ? (most - least) / (hi - lo) : magnitude(least, most) / (half - 0.5f);
    if (*scale == 0)
        *scale = 1;
    *zero = asymmetric ? lo - least / *scale : 0;
    *zero = rintf(*zero > hi ? hi : *zero);    /* at least lo, for least <= 0 */
}

static void rows_compressed_tensors(const float *x, size_t n, size_t d, int bits, bool asymmetric, float *y)
{
    const float half = (float)(1 << (bits - 1));
    for (size_t t = 0; t < n; t++) {
        float scale, zero;
        row_compressed_tensors(x + t * d, d, half, asymmetric, &scale, &zero);
        act_quantize(x + t * d, d, scale, zero, -half, half - 1, y + t * d);
    }
}

/* ---- vLLM ---- */

/* Quantizes a row.  If its range is far from zero, codes and zero point are large, so they are added in double; for
 * numbers above 2^31, where the kernel would overflow, both results are useless. */
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
        if (scale == 0)    /* all results are multiplied by 0         */
            zero = inverse = 0;
        act_quantize_inverse(x + t * d, d, inverse, scale, zero, lo, hi, y + t * d);
    }
}

/* ---- static scale ---- */

/* Quantizes with a static scale.  A value that is not finite must not become the end of the range: it becomes NaN,
 * which the caller finds in the output. */
CALM_VECTORIZE
static void act_quantize_fixed(const float *x, size_t n, float scale, float lo, float hi, float *y)
{
    for (size_t j = 0; j < n; j++) {
        float q = x[j] / scale;
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        y[j] = ((q + ROUND_F32) - ROUND_F32) * scale + (x[j] - x[j]);
    }
}

void calm_actquant_rows(const float *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                        float global, float *y)
{
    assert(bits >= 2 && bits <= 8);
    if (d == 0)
        return;
    if (calm_act_rule_is_float(rule))
        calm_act_levels(x, n, d, rule, global, y);
    else if (rule == CALM_ACT_RULE_VLLM)
        rows_vllm(x, n, d, bits, asymmetric, y);
    else if (rule == CALM_ACT_RULE_STATIC)
        act_quantize_fixed(x, n * d, global, -(float)(1 << (bits - 1)), (float)((1 << (bits - 1)) - 1), y);
    else
        rows_compressed_tensors(x, n, d, bits, asymmetric, y);
}

/* ---- codes of activations ---- */

bool calm_actquant_has_codes(int bits, bool asymmetric, calm_act_rule rule)
{
    /* vLLM's zero points may be any integer. */
    return bits >= 2 && bits <= 8 && !calm_act_rule_is_float(rule) && !(asymmetric && rule == CALM_ACT_RULE_VLLM);
}

/* Computes the codes of act_quantize() and act_quantize_fixed(), whose y is (code - zero) scale. */
CALM_VECTORIZE
static void act_encode(const float *x, size_t d, float scale, float zero, float lo, float hi, int8_t *codes)
{
    for (size_t j = 0; j < d; j++) {
        float q = x[j] / scale + zero;
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        codes[j] = (int8_t)((q + ROUND_F32) - ROUND_F32);
    }
}

/* Computes the codes of act_quantize_inverse() with zero point 0. */
CALM_VECTORIZE
static void act_encode_inverse(const float *x, size_t d, float inverse, float lo, float hi, int8_t *codes)
{
    for (size_t j = 0; j < d; j++) {
        float q = rintf(x[j] * inverse);
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        codes[j] = (int8_t)q;
    }
}

void calm_actquant_codes(const float *x, size_t d, int bits, bool asymmetric, calm_act_rule rule, float global,
                         int8_t *codes, float *scale, int32_t *zero)
{
    const float half = (float)(1 << (bits - 1));
    float middle = 0, least, most;
    assert(calm_actquant_has_codes(bits, asymmetric, rule));
    *scale = NAN;
    *zero = 0;
    if (calm_find_nonfinite(x, d) < d) {
        memset(codes, 0, d);
        return;
    }
    if (rule == CALM_ACT_RULE_VLLM) {
        span(x, d, 0, &least, &most);
        most = magnitude(least, most);
        *scale = most / (half - 1);
        act_encode_inverse(x, d, *scale == 0 ? 0 : (half - 1) / most, -half, half - 1, codes);
        return;
    }
    if (rule == CALM_ACT_RULE_STATIC)
        *scale = global;
    else
        row_compressed_tensors(x, d, half, asymmetric, scale, &middle);
    *zero = (int32_t)middle;
    /* If the range overflows float32, x / scale is 0, and 0 scale is NaN. */
    if (isfinite(*scale))
        act_encode(x, d, *scale, middle, -half, half - 1, codes);
    else
        memset(codes, 0, d);
}
