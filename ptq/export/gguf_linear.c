/* Quantized linears as ggml's blocks. */
#include "ptq/export/gguf_linear.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/quant/super_block.h"

#define BLOCK 32    /* elements of a block of Q4_0, Q4_1 and Q8_0 */

/* Returns the type of a family of schemes, which has the type's groups and super-blocks. */
static calm_status family_type(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in,
                               calm_ggml_type *out)
{
    const uint32_t type = calm_scheme_family(scheme)->ggml;
    const char *name = CALM_SCHEME_NAME(scheme);
    if (!type)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s is %s, for which GGUF has no type", module, name);
    *out = (calm_ggml_type)type;
    const size_t elements = calm_ggml_find(type)->elements;
    if (in % elements)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s has %zu input columns, which the blocks of %zu of %s do not divide; use q5_0, "
                         "w4a16_g32 or w8a16_g32 for it", module, in, elements, name);
    return CALM_OK;
}

/* Returns the type of a scheme of integers. */
static calm_ggml_type plain_type(const calm_scheme *scheme)
{
    return scheme->bits > 4                          ? CALM_GGML_Q8_0
           : scheme->bits == 4 && !scheme->symmetric ? CALM_GGML_Q4_1
                                                     : CALM_GGML_Q4_0;
}

const char *calm_export_gguf_refuses(const calm_scheme *scheme)
{
    if (scheme->act_bits)
        return "GGUF has no quantized activations";
    if (!scheme->family && scheme->group % BLOCK && !scheme->group_else)
        return "GGUF's blocks have 32 columns, which must divide the groups";
    return !scheme->family && scheme->bits == 8 && !scheme->symmetric ? "GGUF has no asymmetric type of 8 bits" : NULL;
}

calm_status calm_gguf_type_of(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in,
                              calm_ggml_type *out)
{
    const char *name = CALM_SCHEME_NAME(scheme), *why = calm_export_gguf_refuses(scheme);
    if (why)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s is %s: %s; use a scheme such as w4a16_g32, q4_k or w8a16",
                         module, name, why);
    if (scheme->family)
        return family_type(ctx, scheme, module, in, out);
    if (in % BLOCK)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s has %zu input columns, which GGUF's blocks of %d do not divide; leave it float",
                         module, in, BLOCK);
    *out = plain_type(scheme);
    return CALM_OK;
}

double calm_export_gguf_bits(const calm_scheme *scheme, size_t out, size_t in)
{
    /* Blocks of a family are its groups, so that the scheme has their bits. */
    if (scheme->family)
        return calm_scheme_bits_per_weight(scheme, out, in);
    const calm_ggml_info *type = calm_ggml_find(plain_type(scheme));
    return 8.0 * (double)type->bytes / (double)type->elements;
}

/* A buffer of blocks to write to the file. */
typedef struct pieces {
    calm_gguf_writer *writer;
    size_t n;
    uint8_t bytes[8192];
} pieces;

static calm_status put_pieces(calm_ctx *ctx, pieces *to)
{
    const size_t n = to->n;
    to->n = 0;
    return n ? calm_gguf_put(ctx, to->writer, to->bytes, n) : CALM_OK;
}

static calm_status add_block(calm_ctx *ctx, pieces *to, const calm_ggml_blocks *type, size_t bytes,
                             const calm_ggml_parts *parts)
{
    calm_ggml_pack(type, parts, to->bytes + to->n);
    to->n += bytes;
    return to->n + bytes > sizeof to->bytes ? put_pieces(ctx, to) : CALM_OK;
}

/* Computes d and dmin of a block whose codes count from `zero`. */
static calm_status fill_plain(calm_ctx *ctx, const calm_qlinear *linear, const char *module, size_t row, size_t group,
                              int zero, const calm_ggml_blocks *type, calm_ggml_parts *parts)
{
    const float s = linear->scales[row * linear->n_groups + group];
    parts->d = calm_f32_to_f16(s);
    parts->dmin = type->minimum ? calm_f32_to_f16(-(float)zero * s) : 0;
    if (calm_f16_to_f32(parts->d) != s)
        return calm_fail(ctx, CALM_ENUMERIC, "gguf: %s: the scale %g of row %zu, group %zu is no float16", module,
                         (double)s, row, group);
    if (!isfinite(calm_f16_to_f32(parts->dmin)))
        return calm_fail(ctx, CALM_ENUMERIC, "gguf: %s: the minimum %g of row %zu, group %zu is out of float16's range",
                         module, -zero * (double)s, row, group);
    return CALM_OK;
}

/* Computes to [n] = from + shift. */
CALM_VECTORIZE
static void shift_codes(const uint8_t *restrict from, size_t n, int shift, uint8_t *restrict to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(from[i] + shift);
}

static calm_status put_plain(calm_ctx *ctx, pieces *to, const calm_qlinear *linear, const char *module, size_t row,
                             const calm_gguf_order *order, const calm_ggml_blocks *type)
{
    const size_t bytes = calm_ggml_find(type->type)->bytes;
    calm_ggml_parts parts = {0};
    for (size_t column = 0; column < linear->in; column += type->elements) {
        const size_t first = calm_gguf_order_column(order, column), group = first / linear->group;
        const int zero = linear->zeros ? linear->zeros[row * linear->n_groups + group]
                                       : 1 << (linear->scheme.bits - 1);
        CALM_TRY(fill_plain(ctx, linear, module, row, group, zero, type, &parts));
        /* The type's levels are code - type->zero; the minimum includes the linear's zero. */
        shift_codes(linear->codes + row * linear->in + first, type->elements, type->minimum ? 0 : type->zero - zero,
                    parts.codes);
        CALM_TRY(add_block(ctx, to, type, bytes, &parts));
    }
    return CALM_OK;
}

/* NVFP4: computes the e4m3 scale of each group, before the division by the global scale. */
static calm_status fill_small(calm_ctx *ctx, const calm_qlinear *linear, const char *module, size_t row, size_t first,
                              const calm_ggml_blocks *type, calm_ggml_parts *parts)
{
    const float *scales = linear->scales + row * linear->n_groups + first / type->group;
    for (size_t g = 0; g < type->elements / type->group; g++) {
        double stored = scales[g] > 0 ? (double)scales[g] * (double)linear->global : 0;
        calm_levels_nearest(&calm_levels_e4m3, &stored, 1);
        if (!(stored > 0) || (float)stored / linear->global != scales[g])
            return calm_fail(ctx, CALM_ENUMERIC, "gguf: %s: the scale %g of row %zu, group %zu is no e4m3 above 0 over "
                             "%g", module, (double)scales[g], row, first / type->group + g, (double)linear->global);
        parts->scales[g] = calm_levels_bits(&calm_levels_e4m3, calm_levels_code(&calm_levels_e4m3, stored));
    }
    return CALM_OK;
}

/* Writes scales and minima of a family's block in its byte layout. */
static calm_status fill_scales(calm_ctx *ctx, const calm_qlinear *linear, const char *module, size_t row, size_t first,
                               const calm_ggml_blocks *type, calm_ggml_parts *parts)
{
    const size_t n = type->elements / type->group, at = row * linear->n_groups + first / type->group;
    const float *scales = linear->scales + at, *mins = linear->mins ? linear->mins + at : NULL;
    const bool power = type->scale == CALM_GGML_SCALE_E8M0;    /* its levels are doubled, its scale is half of calm's */
    calm_super_block block;
    if (type->scale == CALM_GGML_SCALE_E4M3)
        return fill_small(ctx, linear, module, row, first, type, parts);
    if (!calm_scheme_is_super_block(&linear->scheme)) {
        parts->d = power ? (uint16_t)(ilogbf(scales[0]) + 127) : calm_f32_to_f16(scales[0]);
        parts->dmin = mins ? calm_f32_to_f16(mins[0]) : 0;
        const float held = power ? ldexpf(1, parts->d - 127) : calm_f16_to_f32(parts->d);
        if (held == scales[0] && (!mins || calm_f16_to_f32(parts->dmin) == mins[0]))
            return CALM_OK;
        return calm_fail(ctx, CALM_ENUMERIC,
                         "gguf: %s: the scale %g of row %zu, group %zu or its minimum is no %s", module,
                         (double)scales[0], row, first / type->group, power ? "power of two" : "float16");
    }
    if (!calm_super_split(&linear->scheme, n, scales, mins, &block))
        return calm_fail(ctx, CALM_ENUMERIC, "gguf: %s: the scales of row %zu from group %zu on are no whole numbers "
                         "times one float16", module, row, first / type->group);
    parts->d = block.d;
    parts->dmin = block.dmin;
    for (size_t g = 0; g < n; g++) {
        parts->scales[g] = (uint8_t)(block.scales[g] + type->scale_zero);
        parts->minima[g] = (uint8_t)block.minima[g];
    }
    return CALM_OK;
}

/* Codes of a family are the type's: ranks of levels in rising order, or code - zero with the same zero; of small floats
 * a sign and a magnitude. */
static calm_status put_family(calm_ctx *ctx, pieces *to, const calm_qlinear *linear, const char *module, size_t row,
                              const calm_gguf_order *order, const calm_ggml_blocks *type)
{
    const size_t bytes = calm_ggml_find(type->type)->bytes;
    const bool small = calm_scheme_levels(&linear->scheme) == &calm_levels_e2m1;
    for (size_t column = 0; column < linear->in; column += type->elements) {
        const size_t first = calm_gguf_order_column(order, column);
        calm_ggml_parts parts = {0};
        CALM_TRY(fill_scales(ctx, linear, module, row, first, type, &parts));
        memcpy(parts.codes, linear->codes + row * linear->in + first, type->elements);
        for (size_t i = 0; i < type->elements && small; i++)
            parts.codes[i] = calm_levels_bits(&calm_levels_e2m1, parts.codes[i]);
        CALM_TRY(add_block(ctx, to, type, bytes, &parts));
    }
    return CALM_OK;
}

calm_status calm_gguf_put_row(calm_ctx *ctx, calm_gguf_writer *writer, const calm_qlinear *linear, const char *module,
                              size_t row, const calm_gguf_order *order, calm_ggml_type type)
{
    const calm_ggml_blocks *blocks = calm_ggml_blocks_find(type);
    pieces to;
    to.writer = writer;
    to.n = 0;
    CALM_TRY(linear->scheme.family ? put_family(ctx, &to, linear, module, row, order, blocks)
                                   : put_plain(ctx, &to, linear, module, row, order, blocks));
    return put_pieces(ctx, &to);
}
