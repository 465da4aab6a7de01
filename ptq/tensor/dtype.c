/* Element types: names, sizes, conversions. */
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

static const struct {
    calm_dtype dtype;
    const char *word;
} words[] = {{CALM_BF16, "bfloat16"}, {CALM_F16, "float16"}, {CALM_F32, "float32"}};

const char *calm_dtype_word(calm_dtype dtype)
{
    return words[dtype == CALM_F32 ? 2 : dtype == CALM_F16].word;
}

calm_dtype calm_dtype_of_word(const char *word)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0)
            return words[i].dtype;
    return CALM_N_DTYPES;
}

bool calm_dtype_is_float(calm_dtype dtype)
{
    return dtype == CALM_F64 || dtype == CALM_F32 || dtype == CALM_F16 || dtype == CALM_BF16;
}

float calm_dtype_round(calm_dtype dtype, float value)
{
    if (dtype == CALM_BF16)
        return calm_round_bf16(value);
    return dtype == CALM_F16 ? calm_round_f16(value) : value;
}

CALM_VECTORIZE static void round_all_f16(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = calm_round_f16(x[i]);
}

CALM_VECTORIZE static void round_all_bf16(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = calm_round_bf16(x[i]);
}

void calm_dtype_round_all(calm_dtype dtype, float *x, size_t n)
{
    if (dtype == CALM_BF16)
        round_all_bf16(x, n);
    else if (dtype == CALM_F16)
        round_all_f16(x, n);
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

/* Returns whether a value is infinite or NaN: all bits of its exponent are set.  The loop vectorizes. */
CALM_VECTORIZE static bool any_nonfinite(const float *x, size_t n)
{
    /* Adding 1 to the lowest bit of the exponent carries into the highest bit of the number if all bits of the
     * exponent are set. */
    uint32_t carried = 0;
    for (size_t i = 0; i < n; i++)
        carried |= (calm_bits_of_float(x[i]) & 0x7fffffffu) + 0x00800000u;
    return carried >> 31;
}

size_t calm_find_nonfinite(const float *x, size_t n)
{
    const size_t block = 4096;
    for (size_t begin = 0; begin < n; begin += block) {
        size_t length = n - begin < block ? n - begin : block;
        if (!any_nonfinite(x + begin, length))
            continue;
        size_t i = begin;
        while ((calm_bits_of_float(x[i]) & 0x7f800000u) != 0x7f800000u)
            i++;
        return i;
    }
    return n;
}
