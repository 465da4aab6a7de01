/* Quantized linears as ggml's blocks. */
#include "ptq/export/gguf_linear.h"

#include <math.h>

calm_status calm_gguf_type_of(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in,
                              calm_ggml_type *out)
{
    char name[CALM_SCHEME_NAME_MAX];
    calm_scheme_name(scheme, name);
    if (scheme->act_bits)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s is %s: GGUF has no quantized activations; use a scheme for weights alone "
                         "(w4a16_g32, w8a16)",
                         module, name);
    if (scheme->group % CALM_GGML_BLOCK)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s is %s: GGUF's blocks have %d columns, which must divide the groups of %zu", module,
                         name, CALM_GGML_BLOCK, scheme->group);
    if (in % CALM_GGML_BLOCK)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s has %zu input columns, which GGUF's blocks of %d do not divide; leave it float",
                         module, in, CALM_GGML_BLOCK);
    if (scheme->bits == 8 && !scheme->symmetric)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s is %s: GGUF has no asymmetric type of 8 bits; use %s",
                         module, name, "a symmetric one");
    *out = scheme->bits > 4                          ? CALM_GGML_Q8_0
           : scheme->bits == 4 && !scheme->symmetric ? CALM_GGML_Q4_1
                                                     : CALM_GGML_Q4_0;
    return CALM_OK;
}

static calm_status put_block(calm_ctx *ctx, calm_gguf_writer *writer, const calm_qlinear *linear, const char *module,
                             size_t row, size_t first, calm_ggml_type type)
{
    const size_t group = row * linear->n_groups + first / linear->group;
    const uint8_t *u = linear->codes + row * linear->in + first;
    const int zero = linear->zeros ? linear->zeros[group] : 1 << (linear->scheme.bits - 1);
    const int shift = type == CALM_GGML_Q4_0 ? 8 - zero : type == CALM_GGML_Q4_1 ? 0 : -zero;
    const float s = linear->scales[group];
    uint8_t codes[CALM_GGML_BLOCK], block[CALM_GGML_BLOCK_BYTES];
    const uint16_t scale = calm_f32_to_f16(s);
    uint16_t minimum = 0;
    if (calm_f16_to_f32(scale) != s)
        return calm_fail(ctx, CALM_ENUMERIC, "gguf: %s: the scale %g of row %zu, group %zu is no float16", module,
                         (double)s, row, first / linear->group);
    if (type == CALM_GGML_Q4_1) {
        minimum = calm_f32_to_f16(-(float)zero * s);
        if (!isfinite(calm_f16_to_f32(minimum)))
            return calm_fail(ctx, CALM_ENUMERIC,
                             "gguf: %s: the minimum %g of row %zu, group %zu is out of float16's range", module,
                             -zero * (double)s, row, first / linear->group);
    }
    for (int i = 0; i < CALM_GGML_BLOCK; i++)
        codes[i] = (uint8_t)(u[i] + shift);
    return calm_gguf_put(ctx, writer, block, calm_ggml_pack(type, codes, scale, minimum, block));
}

calm_status calm_gguf_put_row(calm_ctx *ctx, calm_gguf_writer *writer, const calm_qlinear *linear, const char *module,
                              size_t row, calm_ggml_type type)
{
    for (size_t first = 0; first < linear->in; first += CALM_GGML_BLOCK)
        CALM_TRY(put_block(ctx, writer, linear, module, row, first, type));
    return CALM_OK;
}
