/* Block layouts of ggml's types: one table, one reader, one packer. */
#include "ptq/io/ggml_blocks_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"

static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t e2m1_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};    /* doubled */

static const calm_ggml_blocks table[] = {
    {.type = CALM_GGML_Q4_0, .elements = 32, .group = 32, .codes = {{2, 4, 16}}, .zero = 8},
    {.type = CALM_GGML_Q4_1, .elements = 32, .group = 32, .minimum = CALM_GGML_MINIMUM_ADDED, .dmin = 2,
     .codes = {{4, 4, 16}}},
    {.type = CALM_GGML_Q5_0, .elements = 32, .group = 32, .codes = {{6, 4, 16}, {2, 1, 1}}, .zero = 16},
    {.type = CALM_GGML_Q5_1, .elements = 32, .group = 32, .minimum = CALM_GGML_MINIMUM_ADDED, .dmin = 2,
     .codes = {{8, 4, 16}, {4, 1, 1}}},
    {.type = CALM_GGML_Q8_0, .elements = 32, .group = 32, .codes = {{2, 8, 32}}, .zero = 128, .code_flip = 0x80},
    {.type = CALM_GGML_Q2_K, .elements = 256, .group = 16, .minimum = CALM_GGML_MINIMUM_TAKEN, .d = 80, .dmin = 82,
     .codes = {{16, 2, 32}}, .scales = {{0, 4, 16}}},
    {.type = CALM_GGML_Q3_K, .elements = 256, .group = 16, .d = 108, .codes = {{32, 2, 32}, {0, 1, 32}}, .zero = 4,
     .scales = {{96, 4, 8}, {104, 2, 4}}, .scale_zero = 32},
    {.type = CALM_GGML_Q4_K, .elements = 256, .group = 32, .minimum = CALM_GGML_MINIMUM_TAKEN, .dmin = 2,
     .codes = {{16, 4, 32}}, .packed = 4},
    {.type = CALM_GGML_Q5_K, .elements = 256, .group = 32, .minimum = CALM_GGML_MINIMUM_TAKEN, .dmin = 2,
     .codes = {{48, 4, 32}, {16, 1, 32}}, .packed = 4},
    {.type = CALM_GGML_Q6_K, .elements = 256, .group = 16, .d = 208, .codes = {{0, 4, 64}, {128, 2, 32}}, .zero = 32,
     .scales = {{192, 8, 16}}, .scale_zero = 128, .scale_flip = 0x80},
    {.type = CALM_GGML_IQ4_XS, .elements = 256, .group = 32, .codes = {{8, 4, 16}}, .levels = iq4_levels,
     .scales = {{4, 4, 1}, {2, 2, 1}}, .scale_zero = 32},
    {.type = CALM_GGML_MXFP4, .elements = 32, .group = 32, .scale = CALM_GGML_SCALE_E8M0, .codes = {{1, 4, 16}},
     .levels = e2m1_levels},
    {.type = CALM_GGML_NVFP4, .elements = 64, .group = 16, .scale = CALM_GGML_SCALE_E4M3, .codes = {{4, 4, 8}},
     .levels = e2m1_levels, .scales = {{0, 8, 4}}},
    {.type = CALM_GGML_IQ4_NL, .elements = 32, .group = 32, .codes = {{2, 4, 16}}, .levels = iq4_levels},
};
#define N_ROWS (sizeof table / sizeof *table)

const calm_ggml_blocks *calm_ggml_blocks_find(calm_ggml_type type)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (table[i].type == type)
            return &table[i];
    return NULL;
}

int calm_ggml_code_bits(const calm_ggml_blocks *blocks)
{
    return blocks->codes[0].bits + blocks->codes[1].bits;
}

int calm_ggml_scale_bits(const calm_ggml_blocks *blocks)
{
    return blocks->packed ? 6 : blocks->scales[0].bits + blocks->scales[1].bits;
}

int calm_ggml_level(const calm_ggml_blocks *blocks, uint8_t code)
{
    return blocks->levels ? blocks->levels[code] : code - blocks->zero;
}

/* As in ggml, the sign bit is ignored, and the NaN 0x7f is 0. */
static float half_e4m3(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (bits == 0x7f)
        return 0;
    return exponent ? ldexpf((float)(8 + mantissa), exponent - 11) : ldexpf((float)mantissa, -10);
}

float calm_ggml_scale_value(const calm_ggml_blocks *blocks, uint16_t bits)
{
    if (blocks->scale == CALM_GGML_SCALE_F16)
        return calm_f16_to_f32(bits);
    if (blocks->scale == CALM_GGML_SCALE_E4M3)
        return half_e4m3((uint8_t)bits);
    /* 2^-128 and 2^-127 are subnormal: a shifted one bit; the others have the exponent bits - 1. */
    const uint32_t word = bits < 2 ? UINT32_C(0x00200000) << bits : (uint32_t)(bits - 1) << 23;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* ---- planes ---- */

/* numbers [n] |= the plane's bits, shifted left by `above`; n is a multiple of the numbers in `span` bytes. */
static void read_plane(const calm_ggml_plane *plane, const uint8_t *block, size_t n, int above, uint8_t *numbers)
{
    const size_t span = plane->span, per_byte = 8u / plane->bits;
    const unsigned mask = (1u << plane->bits) - 1;
    const uint8_t *in = block + plane->at;
    for (size_t first = 0; first < n; first += span * per_byte, in += span)
        for (size_t part = 0; part < per_byte; part++)
            for (size_t i = 0; i < span; i++)
                numbers[first + part * span + i] |= (uint8_t)((in[i] >> part * plane->bits & mask) << above);
}

/* out [n] |= (numbers >> above & mask) << shift. */
CALM_VECTORIZE
static void write_bits(const uint8_t *restrict numbers, size_t n, int above, unsigned mask, int shift,
                       uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] |= (uint8_t)((numbers[i] >> above & mask) << shift);
}

/* Reverses read_plane(): stores bits from `above` on of numbers [n] in the plane's bytes, which were 0. */
static void write_plane(const calm_ggml_plane *plane, const uint8_t *numbers, size_t n, int above, uint8_t *block)
{
    const size_t span = plane->span, per_byte = 8u / plane->bits;
    const unsigned mask = (1u << plane->bits) - 1;
    uint8_t *out = block + plane->at;
    for (size_t first = 0; first < n; first += span * per_byte, out += span)
        for (size_t part = 0; part < per_byte; part++)
            write_bits(numbers + first + part * span, span, above, mask, (int)part * plane->bits, out);
}

static void read_planes(const calm_ggml_plane planes[2], const uint8_t *block, size_t n, uint8_t *numbers)
{
    read_plane(&planes[0], block, n, 0, numbers);
    if (planes[1].bits)
        read_plane(&planes[1], block, n, planes[0].bits, numbers);
}

static void write_planes(const calm_ggml_plane planes[2], const uint8_t *numbers, size_t n, uint8_t *block)
{
    write_plane(&planes[0], numbers, n, 0, block);
    if (planes[1].bits)
        write_plane(&planes[1], numbers, n, planes[0].bits, block);
}

static void flip(uint8_t *numbers, size_t n, uint8_t bits)
{
    for (size_t i = 0; i < n; i++)
        numbers[i] ^= bits;
}

/* ---- Q4_K's scales: s[0..3] and m[0..3] are the low 6 bits of 4 bytes each; s[4..7] and m[4..7] have their low 4
 * bits in 4 more bytes, their upper 2 at the top of the first eight ---- */

static void read_packed(const uint8_t *in, uint8_t *scales, uint8_t *minima)
{
    for (int i = 0; i < 4; i++) {
        scales[i] = in[i] & 63;
        minima[i] = in[4 + i] & 63;
        scales[4 + i] = (uint8_t)((in[8 + i] & 15) | (in[i] >> 6) << 4);
        minima[4 + i] = (uint8_t)(in[8 + i] >> 4 | (in[4 + i] >> 6) << 4);
    }
}

static void write_packed(const uint8_t *scales, const uint8_t *minima, uint8_t *out)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(scales[i] | (scales[4 + i] >> 4) << 6);
        out[4 + i] = (uint8_t)(minima[i] | (minima[4 + i] >> 4) << 6);
        out[8 + i] = (uint8_t)((scales[4 + i] & 15) | minima[4 + i] << 4);
    }
}

/* ---- blocks ---- */

static uint16_t half_at(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static void put_half(uint8_t *at, uint16_t bits)
{
    at[0] = (uint8_t)bits;
    at[1] = (uint8_t)(bits >> 8);
}

/* Reads integer scales and minima of a block, [groups] each. */
static void read_scales(const calm_ggml_blocks *b, const uint8_t *in, uint8_t *scales, uint8_t *minima)
{
    const size_t groups = b->elements / b->group, n = b->minimum == CALM_GGML_MINIMUM_TAKEN ? 2 * groups : groups;
    uint8_t numbers[2 * CALM_GGML_GROUPS_MAX] = {0};
    if (b->packed)
        read_packed(in + b->packed, scales, minima);
    if (!b->scales[0].bits)
        return;
    read_planes(b->scales, in, n, numbers);
    flip(numbers, n, b->scale_flip);
    memcpy(scales, numbers, groups);
    memcpy(minima, numbers + groups, n - groups);
}

static void write_scales(const calm_ggml_blocks *b, const uint8_t *scales, const uint8_t *minima, uint8_t *out)
{
    const size_t groups = b->elements / b->group, n = b->minimum == CALM_GGML_MINIMUM_TAKEN ? 2 * groups : groups;
    uint8_t numbers[2 * CALM_GGML_GROUPS_MAX];
    if (b->packed)
        write_packed(scales, minima, out + b->packed);
    if (!b->scales[0].bits)
        return;
    memcpy(numbers, scales, groups);
    memcpy(numbers + groups, minima, n - groups);
    flip(numbers, n, b->scale_flip);
    write_planes(b->scales, numbers, n, out);
}

void calm_ggml_unpack(const calm_ggml_blocks *b, const uint8_t *in, calm_ggml_parts *out)
{
    memset(out, 0, sizeof *out);
    if (b->scale != CALM_GGML_SCALE_E4M3)
        out->d = b->scale == CALM_GGML_SCALE_E8M0 ? in[b->d] : half_at(in + b->d);
    if (b->minimum)
        out->dmin = half_at(in + b->dmin);
    read_planes(b->codes, in, b->elements, out->codes);
    flip(out->codes, b->elements, b->code_flip);
    read_scales(b, in, out->scales, out->minima);
}

void calm_ggml_pack(const calm_ggml_blocks *b, const calm_ggml_parts *parts, uint8_t *out)
{
    uint8_t flipped[CALM_GGML_BLOCK_MAX];
    const uint8_t *codes = parts->codes;
    memset(out, 0, calm_ggml_find(b->type)->bytes);    /* planes are or-ed in */
    if (b->code_flip) {
        memcpy(flipped, codes, b->elements);
        flip(flipped, b->elements, b->code_flip);
        codes = flipped;
    }
    write_planes(b->codes, codes, b->elements, out);
    write_scales(b, parts->scales, parts->minima, out);
    if (b->scale == CALM_GGML_SCALE_E8M0)
        out[b->d] = (uint8_t)parts->d;
    else if (b->scale == CALM_GGML_SCALE_F16)
        put_half(out + b->d, parts->d);
    if (b->minimum)
        put_half(out + b->dmin, parts->dmin);
}

/* Returns the factor of the levels of group g. */
static float group_scale(const calm_ggml_blocks *b, const calm_ggml_parts *parts, size_t g)
{
    if (b->scale == CALM_GGML_SCALE_E4M3)
        return calm_ggml_scale_value(b, parts->scales[g]);
    const float d = calm_ggml_scale_value(b, parts->d);
    return calm_ggml_scale_bits(b) > 0 ? d * (float)(parts->scales[g] - b->scale_zero) : d;
}

/* Dequantizes one block.  Products are exact in float32, so that all readers get the same bits; only a minimum
 * rounds, once. */
static void widen(const calm_ggml_blocks *b, const uint8_t *in, float *out)
{
    calm_ggml_parts parts;
    calm_ggml_unpack(b, in, &parts);
    const float dmin = calm_f16_to_f32(parts.dmin);
    for (size_t first = 0, g = 0; first < b->elements; first += b->group, g++) {
        const float s = group_scale(b, &parts, g);
        const float m = b->minimum == CALM_GGML_MINIMUM_TAKEN ? dmin * (float)parts.minima[g] : -dmin;
        for (size_t i = first; i < first + b->group; i++)
            out[i] = s * (float)calm_ggml_level(b, parts.codes[i]);
        for (size_t i = first; i < first + b->group && b->minimum; i++)    /* adding 0 would change -0 */
            out[i] -= m;
    }
}

bool calm_ggml_is_scaled(const calm_ggml_blocks *b)
{
    return !b->levels && !b->minimum;
}

bool calm_ggml_read_codes(const calm_ggml_blocks *b, const uint8_t *in, size_t n, uint8_t *codes, float *scales)
{
    const size_t bytes = calm_ggml_find(b->type)->bytes, groups = b->elements / b->group;
    calm_ggml_parts parts;
    if (!calm_ggml_is_scaled(b))
        return false;
    for (size_t i = 0; i < n / b->elements; i++) {
        calm_ggml_unpack(b, in + i * bytes, &parts);
        memcpy(codes + i * b->elements, parts.codes, b->elements);
        for (size_t g = 0; g < groups; g++)
            scales[i * groups + g] = group_scale(b, &parts, g);
    }
    return true;
}

size_t calm_ggml_halves(calm_ggml_type type, size_t at[2])
{
    /* Types that are not in the table above. */
    static const struct {
        calm_ggml_type type;
        uint8_t n, at[2];
    } others[] = {{CALM_GGML_Q8_1, 2, {0, 2}}, {CALM_GGML_IQ2_XXS, 1, {0}}, {CALM_GGML_IQ2_XS, 1, {0}},
                  {CALM_GGML_IQ3_XXS, 1, {0}}, {CALM_GGML_IQ1_S, 1, {0}},   {CALM_GGML_IQ3_S, 1, {0}},
                  {CALM_GGML_IQ2_S, 1, {0}},   {CALM_GGML_TQ1_0, 1, {52}},  {CALM_GGML_TQ2_0, 1, {64}}};
    const calm_ggml_blocks *b = calm_ggml_blocks_find(type);
    at[0] = b ? b->d : 0;
    at[1] = b ? b->dmin : 0;
    if (b)
        return b->scale != CALM_GGML_SCALE_F16 ? 0 : b->minimum ? 2 : 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].type == type) {
            at[0] = others[i].at[0];
            at[1] = others[i].at[1];
            return others[i].n;
        }
    return 0;
}

bool calm_ggml_readable(calm_ggml_type type)
{
    const calm_dtype dtype = calm_ggml_dtype(type);
    return dtype == CALM_F32 || dtype == CALM_F16 || dtype == CALM_BF16 || calm_ggml_blocks_find(type);
}

calm_status calm_ggml_to_f32(calm_ctx *ctx, calm_ggml_type type, const void *in, size_t n, float *out)
{
    const calm_ggml_info *info = calm_ggml_find(type);
    const uint8_t *at = in;
    if (!info || !calm_ggml_readable(type))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "tensors of type %s cannot be widened", info ? info->name : "unknown");
    if (info->elements == 1)
        return calm_to_f32(ctx, calm_ggml_dtype(type), in, n, out);
    assert(n % info->elements == 0);
    const calm_ggml_blocks *blocks = calm_ggml_blocks_find(type);
    for (size_t i = 0; i < n; i += info->elements, at += info->bytes)
        widen(blocks, at, out + i);
    return CALM_OK;
}
