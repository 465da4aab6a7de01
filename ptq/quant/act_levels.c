/* Quantization of activations to small floats, per token or per group of channels. */
#include "ptq/quant/act_levels.h"

#include <math.h>

#include "ptq/quant/levels.h"

#define PIECE ((size_t)128)    /* values whose levels are computed at once */
#define E4M3_MOST 448.0f
#define E2M1_MOST 6.0f
#define ZERO_SCALE 0.125f      /* scale of an NVFP4 group whose rounded scale is 0 */
#define FP8_GROUP ((size_t)128)

static bool is_fp8(calm_act_rule rule)
{
    return rule == CALM_ACT_RULE_FP8 || rule == CALM_ACT_RULE_FP8_GROUPS || rule == CALM_ACT_RULE_FP8_STATIC;
}

bool calm_act_rule_is_static(calm_act_rule rule)
{
    return rule == CALM_ACT_RULE_STATIC || rule == CALM_ACT_RULE_FP8_STATIC;
}

bool calm_act_rule_is_open(calm_act_rule rule)
{
    return rule == CALM_ACT_RULE_COMPRESSED_TENSORS || rule == CALM_ACT_RULE_VLLM;
}

bool calm_act_rule_is_float(calm_act_rule rule)
{
    return is_fp8(rule) || rule == CALM_ACT_RULE_MXFP4 || rule == CALM_ACT_RULE_NVFP4;
}

float calm_act_global(calm_act_rule rule, float absmax)
{
    if (rule != CALM_ACT_RULE_NVFP4)
        return 0;
    /* For smaller inputs the quotient would overflow. */
    return absmax > 0x1p-100f ? E4M3_MOST * E2M1_MOST / absmax : 1;
}

/* Returns the power-of-two scale; rounds up from 1.75 times a power of two, as the library adds a quarter to the
 * mantissa. */
static float power_scale(float most)
{
    int exponent;
    const float part = frexpf(most, &exponent);    /* most = part 2^exponent, part in [1/2, 1) */
    exponent += (part >= 0.875f) - 3;              /* floor(log2 most), or one more, minus 2   */
    return ldexpf(1, exponent < -127 ? -127 : exponent);
}

static float scale_of(calm_act_rule rule, float most, float global)
{
    if (rule == CALM_ACT_RULE_FP8_STATIC)
        return global;
    if (is_fp8(rule))
        return most / E4M3_MOST;
    if (rule == CALM_ACT_RULE_MXFP4)
        return power_scale(most);
    double stored = (double)(global * (most / E2M1_MOST));
    calm_levels_nearest(&calm_levels_e4m3, &stored, 1);
    return (stored == 0 ? ZERO_SCALE : (float)stored) / global;
}

static void quantize(const float *x, size_t n, calm_act_rule rule, float global, float *y)
{
    const calm_levels *levels = is_fp8(rule) ? &calm_levels_e4m3 : &calm_levels_e2m1;
    double q[PIECE];
    float most = 0;
    bool finite = true;
    for (size_t j = 0; j < n; j++) {
        const float a = fabsf(x[j]);
        most = a > most ? a : most;
        finite &= isfinite(x[j]) != 0;
    }
    /* A group of zeros may have any scale. */
    const float scale = !finite ? NAN : most > 0 ? scale_of(rule, most, global) : 1;
    for (size_t start = 0; start < n; start += PIECE) {
        const size_t piece = n - start < PIECE ? n - start : PIECE;
        for (size_t j = 0; j < piece; j++)
            q[j] = (double)(x[start + j] / scale);
        calm_levels_nearest(levels, q, piece);
        for (size_t j = 0; j < piece; j++)
            y[start + j] = (float)q[j] * scale;
    }
}

void calm_act_levels(const float *x, size_t n, size_t d, calm_act_rule rule, float global, float *y)
{
    const size_t group = rule == CALM_ACT_RULE_FP8_GROUPS ? FP8_GROUP
                         : is_fp8(rule)                   ? d
                         : rule == CALM_ACT_RULE_MXFP4    ? 32
                                                          : 16;
    for (size_t t = 0; t < n; t++)
        for (size_t start = 0; start < d; start += group)
            quantize(x + t * d + start, d - start < group ? d - start : group, rule, global, y + t * d + start);
}
