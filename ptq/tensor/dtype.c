/* Element types: names, sizes, conversions.  IEEE 754 binary16 and bfloat16, round to nearest even. */
#include "ptq/tensor/dtype.h"

#include <string.h>

#include "ptq/base/simd.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define CALM_DTYPE_ROW(name, bytes) {#name, bytes},
    CALM_DTYPE_LIST(CALM_DTYPE_ROW)
#undef CALM_DTYPE_ROW
};

const char *calm_dtype_name(calm_dtype dtype)
{
    return (unsigned)dtype < CALM_N_DTYPES ? dtypes[dtype].name : "unknown";
}

size_t calm_dtype_bytes(calm_dtype dtype)
{
    return dtypes[dtype].bytes;
}

calm_dtype calm_dtype_find(const char *name)
{
    unsigned i = 0;
    while (i < CALM_N_DTYPES && strcmp(dtypes[i].name, name) != 0)
        i++;
    return (calm_dtype)i;
}

bool calm_dtype_is_float(calm_dtype dtype)
{
    return dtype == CALM_F64 || dtype == CALM_F32 || dtype == CALM_F16 || dtype == CALM_BF16;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float calm_bf16_to_f32(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

float calm_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u)    /* infinity and NaN keep their payload */
        return from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude < 0x400u) {    /* subnormal: magnitude * 2^-24, exact in float32 */
        float value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    return from_bits(sign | ((magnitude << 13) + (112u << 23)));
}

uint16_t calm_f32_to_bf16(float value)
{
    uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);    /* NaN stays NaN, quiet */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

uint16_t calm_f32_to_f16(float value)
{
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x47800000u)    /* 2^16 and above, infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        /* Below 2^-14: adding 0.5 aligns the unit of the last place to 2^-24 and rounds to even. */
        float aligned = from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (to_bits(aligned) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}

float calm_dtype_round(calm_dtype dtype, float value)
{
    if (dtype == CALM_BF16)
        return calm_bf16_to_f32(calm_f32_to_bf16(value));
    return dtype == CALM_F16 ? calm_f16_to_f32(calm_f32_to_f16(value)) : value;
}

CALM_VECTORIZE static void widen_bf16(const unsigned char *in, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof bits);
        out[i] = calm_bf16_to_f32(bits);
    }
}

calm_status calm_to_f32(calm_ctx *ctx, calm_dtype dtype, const void *in, size_t n, float *out)
{
    const unsigned char *bytes = in;
    switch (dtype) {
    case CALM_F32:
        if (n)
            memcpy(out, in, n * sizeof *out);
        return CALM_OK;
    case CALM_BF16:
        widen_bf16(bytes, n, out);
        return CALM_OK;
    case CALM_F16:
        for (size_t i = 0; i < n; i++) {
            uint16_t bits;
            memcpy(&bits, bytes + 2 * i, sizeof bits);
            out[i] = calm_f16_to_f32(bits);
        }
        return CALM_OK;
    case CALM_F64:
        for (size_t i = 0; i < n; i++) {
            double value;
            memcpy(&value, bytes + 8 * i, sizeof value);
            out[i] = (float)value;
        }
        return CALM_OK;
    default:
        return calm_fail(ctx, CALM_EUNSUPPORTED, "dtype %s: expected F64, F32, F16 or BF16", calm_dtype_name(dtype));
    }
}

calm_status calm_from_f32(calm_ctx *ctx, calm_dtype dtype, const float *in, size_t n, void *out)
{
    unsigned char *bytes = out;
    if (dtype == CALM_F32) {
        if (n)
            memcpy(out, in, n * sizeof *in);
        return CALM_OK;
    }
    if (dtype != CALM_F16 && dtype != CALM_BF16)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "dtype %s: expected F32, F16 or BF16", calm_dtype_name(dtype));
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = dtype == CALM_F16 ? calm_f32_to_f16(in[i]) : calm_f32_to_bf16(in[i]);
        memcpy(bytes + 2 * i, &bits, sizeof bits);
    }
    return CALM_OK;
}

/* Any bit pattern with all exponent bits set, looked for in blocks so that the loop vectorises. */
CALM_VECTORIZE static bool any_nonfinite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (to_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    return bad != 0;
}

size_t calm_find_nonfinite(const float *x, size_t n)
{
    const size_t block = 4096;
    for (size_t begin = 0; begin < n; begin += block) {
        size_t length = n - begin < block ? n - begin : block;
        if (!any_nonfinite(x + begin, length))
            continue;
        size_t i = begin;
        while ((to_bits(x[i]) & 0x7f800000u) != 0x7f800000u)
            i++;
        return i;
    }
    return n;
}
