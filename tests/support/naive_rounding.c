/* Each rule in a few slow lines; tests/readers/naive_rounding.sh compares them with the tools.  GGUF types follow
 * quantize_row_*_ref of llama.cpp (ggml/src/ggml-quants.c), which llama-quantize calls without an importance matrix.
 * Other formats follow calculate_qparams of compressed-tensors, as llm-compressor's round to nearest uses it. */
#include "tests/support/naive_rounding.h"

#include <math.h>

#include "ptq/quant/levels.h"
#include "ptq/tensor/dtype.h"

static float half(double x)
{
    return calm_dtype_round(CALM_F16, (float)x);
}

static double clip(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Returns the value of largest magnitude. */
static double extreme(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabs((double)x[i]) > fabs(most) ? (double)x[i] : most;
    return most;
}

static void span(const float *x, size_t n, double *lo, double *hi)
{
    *lo = *hi = (double)x[0];
    for (size_t i = 1; i < n; i++) {
        *lo = (double)x[i] < *lo ? (double)x[i] : *lo;
        *hi = (double)x[i] > *hi ? (double)x[i] : *hi;
    }
}

/* Returns the nearest level; of two equally near ones that with an even mantissa. */
static double nearest_level(const calm_levels *levels, double x)
{
    const size_t zero = levels->n / 2;
    size_t best = 0;
    for (size_t i = 1; i < levels->n; i++) {
        const double now = fabs(x - (double)levels->value[i]), was = fabs(x - (double)levels->value[best]);
        if (now < was || (now == was && levels->least > 0 && (i + zero) % 2 == 0))
            best = i;
    }
    return (double)levels->value[best];
}

/* Codes whose levels are integers from lo to hi, or the values of a table. */
typedef struct codes {
    double lo, hi;
    const calm_levels *levels;
} codes;

static double level(const codes *c, double x)
{
    return c->levels ? nearest_level(c->levels, x) : clip(rint(x), c->lo, c->hi);
}

static void widen(const codes *c, double scale, double min, const float *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(scale != 0 ? scale * level(c, ((double)x[i] - min) / scale) + min : min);
}

/* ---- one scale for a group ---- */

/* Computes the sums of a least squares scale for levels q at scale 1 / inverse: sum w x q and sum w q^2. */
static void project(const codes *c, double inverse, const float *x, const float *weight, size_t n, double *xq,
                    double *qq)
{
    *xq = *qq = 0;
    for (size_t i = 0; i < n; i++) {
        const double q = level(c, inverse * (double)x[i]), w = (double)weight[i];
        *xq += w * q * (double)x[i];
        *qq += w * q * q;
    }
}

/* make_qx_quants and quantize_row_iq4_nl_impl: tries scales that map the largest weight near `end`, `step` apart,
 * `tries` to each side; the latter begins with -end. */
static double searched_scale(const codes *c, double end, double step, int tries, const float *x, const float *weight,
                             size_t n)
{
    const double most = extreme(x, n);
    double best = 0, scale = 0, xq, qq;
    for (int t = -tries - (c->levels != NULL); t <= tries && most != 0; t++) {
        project(c, t < -tries ? -end / most : (end + step * t) / most, x, weight, n, &xq, &qq);
        if (qq > 0 && xq * xq > best * qq) {
            scale = xq / qq;
            best = scale * xq;
        }
    }
    return scale;
}

/* make_q3_quants: begins with a scale that reaches the largest weight, then changes single codes in five rounds. */
static double descended_scale(const codes *c, const float *x, const float *weight, size_t n)
{
    const double most = extreme(x, n);
    double q[16], xq = 0, qq = 0;
    for (size_t i = 0; i < n && most != 0; i++) {
        q[i] = level(c, c->lo / most * (double)x[i]);
        xq += (double)weight[i] * q[i] * (double)x[i];
        qq += (double)weight[i] * q[i] * q[i];
    }
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < n && most != 0; i++) {
            const double w = (double)weight[i], xi = (double)x[i], rest_xq = xq - w * q[i] * xi,
                         rest_qq = qq - w * q[i] * q[i], next = rest_xq > 0 ? level(c, xi * rest_qq / rest_xq) : q[i],
                         new_xq = rest_xq + w * next * xi, new_qq = rest_qq + w * next * next;
            if (new_qq > 0 && new_xq * new_xq * qq > xq * xq * new_qq) {
                q[i] = next;
                xq = new_xq;
                qq = new_qq;
            }
        }
    return qq > 0 ? xq / qq : 0;
}

/* ---- scale and minimum ---- */

/* Returns the error of a group's scale and minimum; Q2_K's search adds magnitudes, not squares. */
static double cost(const codes *c, double inverse, double lo, double scale, double min, bool magnitude, const float *x,
                   const float *weight, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double e = scale * level(c, inverse * ((double)x[i] - lo)) + min - (double)x[i];
        sum += (double)weight[i] * (magnitude ? fabs(e) : e * e);
    }
    return sum;
}

/* make_qkx2_quants: tries slightly narrower and wider spans, and fits scale and minimum <= 0 by least squares to the
 * codes of each.  Later spans begin at the best minimum so far. */
static void searched_pair(const codes *c, double first, int steps, bool magnitude, const float *x, const float *weight,
                          size_t n, double *scale, double *min)
{
    double lo, hi;
    span(x, n, &lo, &hi);
    lo = lo > 0 ? 0 : lo;
    *min = lo;
    *scale = (hi - lo) / c->hi;
    double best = *scale > 0 ? cost(c, 1 / *scale, lo, *scale, lo, magnitude, x, weight, n) : 0;
    for (int t = 0; t <= steps && *scale > 0; t++) {
        const double inverse = (first + 0.1 * t + c->hi) / (hi - lo);
        double s0 = 0, sx = 0, sq = 0, qq = 0, xq = 0;
        for (size_t i = 0; i < n; i++) {
            const double q = level(c, inverse * ((double)x[i] - lo)), w = (double)weight[i], xi = (double)x[i];
            s0 += w;
            sx += w * xi;
            sq += w * q;
            qq += w * q * q;
            xq += w * q * xi;
        }
        const double det = s0 * qq - sq * sq;
        double s = (s0 * xq - sx * sq) / det, m = (qq * sx - sq * xq) / det;
        if (!(det > 0))
            continue;
        if (m > 0) {
            m = 0;
            s = xq / qq;
        }
        const double now = cost(c, inverse, lo, s, m, magnitude, x, weight, n);
        if (now < best) {
            best = now;
            *scale = s;
            *min = lo = m;
        }
    }
}

/* Rounds numbers x [n] to integer multiples of one float16, which maps the largest to `end`. */
static void share_step(double *x, size_t n, double end, double lo, double hi)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabs(x[i]) > fabs(most) ? x[i] : most;
    const double d = (double)half(most / end);
    for (size_t i = 0; i < n; i++)
        x[i] = d != 0 ? d * clip(rint(x[i] / (most / end)), lo, hi) : 0;
}

/* ---- the formats ---- */

/* Computes the weights of errors in llama.cpp's searches. */
static void weigh(int family, const float *x, size_t n, float *weight)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += (double)x[i] * (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        weight[i] = family == CALM_FAMILY_Q2_K                                     ? a
                    : family == CALM_FAMILY_Q4_K || family == CALM_FAMILY_Q5_K ? (float)sqrt(square) + a
                                                                               : a * a;
    }
}

/* Rounds a super-block of 256 weights. */
static void super_block(int family, const float *x, float *out, float *weight)
{
    const calm_family *f = &calm_families[family];
    const double top = (double)(1 << f->bits) - 1, ends = f->scale == CALM_SCALE_S8   ? 128
                                                          : f->scale == CALM_SCALE_S6 ? 32
                                                          : f->scale == CALM_SCALE_U6 ? 63
                                                                                      : 15;
    const codes c = {-(double)f->zero, top - (double)f->zero, f->levels};
    const size_t group = f->group, n = 256 / group;
    double scale[16], min[16] = {0};
    for (size_t g = 0; g < n; g++) {
        const float *xg = x + g * group;
        weigh(family, xg, group, weight + g * group);
        if (f->minimum == CALM_MINIMUM_TAKEN)
            searched_pair(&c, family == CALM_FAMILY_Q4_K ? -1 : -0.5, family == CALM_FAMILY_Q4_K ? 20 : 15,
                          family == CALM_FAMILY_Q2_K, xg, weight + g * group, group, &scale[g], &min[g]);
        else if (family == CALM_FAMILY_Q3_K)
            scale[g] = descended_scale(&c, xg, weight + g * group, group);
        else
            scale[g] = searched_scale(&c, c.levels ? -127 : c.lo, c.levels ? 1 : 0.1, c.levels ? 7 : 9, xg,
                                      weight + g * group, group);
    }
    if (f->minimum == CALM_MINIMUM_TAKEN) {
        share_step(scale, n, ends, 0, ends);
        share_step(min, n, ends, 0, ends);
    } else {
        share_step(scale, n, -ends, -ends, ends - 1);
    }
    for (size_t g = 0; g < n; g++)
        widen(&c, scale[g], min[g], x + g * group, group, out + g * group);
}

/* Rounds 32 weights as Q4_0, Q5_0, Q8_0, Q4_1, Q5_1, IQ4_NL or MXFP4 of llama.cpp. */
static void block_of_32(const calm_scheme *scheme, const float *x, float *out, float *weight)
{
    const int family = scheme->family, bits = scheme->bits;
    const double most = extreme(x, 32);
    codes c = {-(double)(1 << (bits - 1)), (double)(1 << (bits - 1)) - 1, calm_families[family].levels};
    double lo, hi, scale, min = 0;
    if (family == CALM_FAMILY_Q4_1 || family == CALM_FAMILY_Q5_1) {
        span(x, 32, &lo, &hi);
        c.lo = 0;
        c.hi = (double)(1 << bits) - 1;
        scale = (double)half((hi - lo) / c.hi);
        min = (double)half(lo);
    } else if (family == CALM_FAMILY_MXFP4) {
        scale = most != 0 ? exp2(floor(log2(fabs(most))) - 2) : 0;
    } else if (family == CALM_FAMILY_IQ4_NL) {
        weigh(family, x, 32, weight);
        scale = (double)half(searched_scale(&c, -127, 1, 7, x, weight, 32));
    } else {
        scale = (double)half(bits == 8 ? fabs(most) / 127 : most / c.lo);
    }
    widen(&c, scale, min, x, 32, out);
}

/* Rounds as compressed-tensors: integers by the span, small floats by the largest magnitude.  The rows of x [rows,
 * n], `stride` apart, share the scale. */
static void plain(const calm_scheme *scheme, const float *x, size_t rows, size_t n, size_t stride, float global,
                  float *out)
{
    const double half_span = (double)((1 << scheme->bits) - 1) / 2;
    codes c = {-half_span - 0.5, half_span - 0.5, calm_families[scheme->family].levels};
    double lo = 0, hi = 0, scale, zero = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            lo = fmin(lo, (double)x[r * stride + i]);
            hi = fmax(hi, (double)x[r * stride + i]);
        }
    const bool power = scheme->family == CALM_FAMILY_MXFP4;
    if (scheme->family == CALM_FAMILY_NVFP4)
        scale = nearest_level(&calm_levels_e4m3, fmax(-lo, hi) / 6 * (double)global) / (double)global;
    else if (power)    /* the exponent rounds up from a mantissa of 1.75 on */
        scale = fmax(-lo, hi) > 0 ? exp2(floor(log2(fmax(-lo, hi) / 3.5))) : 0;
    else
        scale = c.levels ? fmax(-lo, hi) / 448 : scheme->symmetric ? fmax(-lo, hi) / half_span
                                                                   : (hi - lo) / (2 * half_span);
    if (scheme->family != CALM_FAMILY_NVFP4 && !power)
        scale = (double)calm_dtype_round(scheme->scale_dtype, (float)scale);
    if (!c.levels && !scheme->symmetric)
        zero = clip(rint(c.lo - lo / scale), c.lo, c.hi);
    c.lo -= zero;
    c.hi -= zero;
    for (size_t r = 0; r < rows; r++)
        widen(&c, scale, 0, x + r * stride, n, out + r * stride);
}

const char *naive_round(const calm_scheme *scheme, bool gguf, const float *w, size_t rows, size_t n, float *out,
                        float *weight)
{
    const calm_family *family = calm_scheme_family(scheme);
    const size_t deep = family->rows, group = scheme->group ? scheme->group : n;
    const bool ggml = scheme->scale_dtype == CALM_F16 || family->scale == CALM_SCALE_F16 || family->super > 1 ||
                      (gguf && scheme->family == CALM_FAMILY_MXFP4);
    float most = 0;
    for (size_t i = 0; i < rows * n; i++) {
        weight[i] = 1;
        most = fmaxf(most, fabsf(w[i]));
    }
    const size_t step = family->super > 1 ? 256 : ggml ? 32 : group;
    for (size_t r = 0; r < rows; r += deep)
        for (size_t j = 0, at = r * n; j < n; j += step, at += step) {
            if (family->super > 1)
                super_block(scheme->family, w + at, out + at, weight + at);
            else if (ggml)
                block_of_32(scheme, w + at, out + at, weight + at);
            else
                plain(scheme, w + at, rows - r < deep ? rows - r : deep, step, n, 448 * 6 / most, out + at);
        }
    return ggml ? "llama-quantize" : "compressed-tensors";
}

void naive_round_mlx(int bits, const float *w, size_t n, float *out)
{
    const float most = (float)((1 << bits) - 1);
    float lo = w[0], hi = w[0];
    for (size_t i = 1; i < n; i++) {
        lo = fminf(lo, w[i]);
        hi = fmaxf(hi, w[i]);
    }
    const bool below = fabsf(lo) > fabsf(hi);
    const float span = fmaxf((hi - lo) / most, 1e-7f), first = below ? span : -span, end = below ? lo : hi;
    const float steps = rintf(end / first);
    const float scale = steps == 0 ? first : end / steps, bias = steps == 0 ? 0 : end;
    const float stored = calm_bf16_to_f32(calm_f32_to_bf16(scale)), least = calm_bf16_to_f32(calm_f32_to_bf16(bias));
    for (size_t i = 0; i < n; i++)
        out[i] = fminf(fmaxf(rintf((w[i] - bias) / scale), 0), most) * stored + least;
}
