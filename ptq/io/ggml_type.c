/* ggml's tensor types. */
#include "ptq/io/ggml_type.h"

#include <assert.h>
#include <string.h>

#define HALF (CALM_GGML_BLOCK / 2)

const calm_ggml_info *calm_ggml_find(uint32_t number)
{
    static const calm_ggml_info all[] = {
#define CALM_GGML_ROW(name, number, elements, bytes, readable) [number] = {#name, elements, bytes, readable},
        CALM_GGML_TYPE_LIST(CALM_GGML_ROW)
#undef CALM_GGML_ROW
    };
    return number < sizeof all / sizeof *all && all[number].name ? &all[number] : NULL;
}

calm_dtype calm_ggml_dtype(calm_ggml_type type)
{
    return type == CALM_GGML_F32    ? CALM_F32
           : type == CALM_GGML_F16  ? CALM_F16
           : type == CALM_GGML_BF16 ? CALM_BF16
           : type == CALM_GGML_F64  ? CALM_F64
                                    : CALM_N_DTYPES;
}

static float half_at(const uint8_t *at)
{
    return calm_f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

/* Where the parts of a block of nibbles lie, in bytes behind its scale d; 0: it has no such part. */
static const struct nibbles {
    size_t minimum, fifth_bits, codes;
    int zero;
} nibbles[] = {
    [CALM_GGML_Q4_0] = {0, 0, 2, 8},
    [CALM_GGML_Q4_1] = {2, 0, 4, 0},
    [CALM_GGML_Q5_0] = {0, 2, 6, 16},
    [CALM_GGML_Q5_1] = {2, 4, 8, 0},
};

/* Every product is exact in float32, so that all readers get the same bits. */
static void widen_block(calm_ggml_type type, const uint8_t *in, float *out)
{
    const float d = half_at(in);
    if (type == CALM_GGML_Q8_0) {
        for (int i = 0; i < CALM_GGML_BLOCK; i++)
            out[i] = (float)(int8_t)in[2 + i] * d;
        return;
    }
    const struct nibbles *at = &nibbles[type];
    const float m = at->minimum ? half_at(in + at->minimum) : 0;
    for (int i = 0; i < CALM_GGML_BLOCK; i++) {
        const uint8_t *qs = in + at->codes, *qh = in + at->fifth_bits;
        int code = i < HALF ? qs[i] & 15 : qs[i - HALF] >> 4;
        if (at->fifth_bits)
            code |= (qh[i / 8] >> i % 8 & 1) << 4;
        out[i] = (float)(code - at->zero) * d;
        if (at->minimum)    /* adding 0 would turn -0 into 0 */
            out[i] += m;
    }
}

calm_status calm_ggml_to_f32(calm_ctx *ctx, calm_ggml_type type, const void *in, size_t n, float *out)
{
    const calm_ggml_info *info = calm_ggml_find(type);
    const uint8_t *at = in;
    if (!info || !info->readable)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "tensors of type %s cannot be widened", info ? info->name : "unknown");
    if (info->elements == 1)
        return calm_to_f32(ctx, calm_ggml_dtype(type), in, n, out);
    assert(n % info->elements == 0);
    for (size_t i = 0; i < n; i += info->elements, at += info->bytes)
        widen_block(type, at, out + i);
    return CALM_OK;
}

size_t calm_ggml_pack(calm_ggml_type type, const uint8_t codes[CALM_GGML_BLOCK], uint16_t scale, uint16_t minimum,
                      uint8_t out[CALM_GGML_BLOCK_BYTES])
{
    size_t n = 0;
    assert(type == CALM_GGML_Q4_0 || type == CALM_GGML_Q4_1 || type == CALM_GGML_Q8_0);
    out[n++] = (uint8_t)scale;
    out[n++] = (uint8_t)(scale >> 8);
    if (type == CALM_GGML_Q8_0) {
        memcpy(out + n, codes, CALM_GGML_BLOCK);
        return n + CALM_GGML_BLOCK;
    }
    if (type == CALM_GGML_Q4_1) {
        out[n++] = (uint8_t)minimum;
        out[n++] = (uint8_t)(minimum >> 8);
    }
    for (int i = 0; i < HALF; i++)
        out[n++] = (uint8_t)(codes[i] | codes[i + HALF] << 4);
    return n;
}
