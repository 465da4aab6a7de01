/* The block layouts of ggml's types as rows of one table: the position of codes, scales and minima in a block, and
 * the values that they represent.  The same loops read and pack all types. */
#pragma once

#include "ptq/io/ggml_type.h"

/* Upper bounds of elements, groups and bytes of a block over all types in the table. */
#define CALM_GGML_BLOCK_MAX 256
#define CALM_GGML_GROUPS_MAX 16
#define CALM_GGML_BYTES_MAX 210

/* Bit plane of an array of numbers: each of the first `span` bytes holds `bits` bits of number i, above them those
 * of number i + span, and so on until the byte is full; the next `span` bytes continue.  bits 0: the type has no
 * such plane. */
typedef struct calm_ggml_plane {
    uint8_t at, bits, span;    /* at: byte offset in the block */
} calm_ggml_plane;

/* How the scale of a whole block is stored. */
typedef enum calm_ggml_scale {
    CALM_GGML_SCALE_F16,
    CALM_GGML_SCALE_E8M0,      /* one byte e: 2^(e - 128), half of the OCP value, since levels are doubled       */
    CALM_GGML_SCALE_E4M3,      /* none; the integer scale of a group is an unsigned e4m3, halved likewise        */
} calm_ggml_scale;

/* The minimum, which is added to or subtracted from the product of scale and level. */
typedef enum calm_ggml_minimum {
    CALM_GGML_NO_MINIMUM,
    CALM_GGML_MINIMUM_ADDED,       /* a float16 of the block, which is added       */
    CALM_GGML_MINIMUM_TAKEN,       /* dmin times an integer of the group, which is subtracted */
} calm_ggml_minimum;

typedef struct calm_ggml_blocks {
    calm_ggml_type type;
    size_t elements, group;        /* elements of a block; elements that share an integer scale (`elements`: the
                                    * type has none) */
    calm_ggml_scale scale;
    calm_ggml_minimum minimum;
    uint8_t d, dmin;               /* byte offsets         */
    calm_ggml_plane codes[2];      /* low bits, high bits */
    uint8_t zero;                  /* the level of a code is code - zero */
    const int8_t *levels;          /* levels by code; NULL: code - zero */
    calm_ggml_plane scales[2];     /* integer scales, followed by the minima       */
    uint8_t packed;                /* byte offset of Q4_K's 12 packed bytes of scales and minima; 0: the type has
                                    * none */
    uint8_t scale_zero;            /* offset of integer scales: scale = code - scale_zero */
    uint8_t code_flip, scale_flip; /* bits that are inverted in stored codes and scales: 0x80 makes an int8           */
} calm_ggml_blocks;

/* The parts of a block; parts that the type lacks are 0. */
typedef struct calm_ggml_parts {
    uint16_t d, dmin;              /* as stored: float16, or a byte */
    uint8_t codes[CALM_GGML_BLOCK_MAX];
    uint8_t scales[CALM_GGML_GROUPS_MAX], minima[CALM_GGML_GROUPS_MAX];
} calm_ggml_parts;

/* Returns the layout of a type; NULL: calm cannot read its codes. */
const calm_ggml_blocks *calm_ggml_blocks_find(calm_ggml_type type);

/* Packs parts into the bytes of a block; the inverse of calm_ggml_unpack (ggml_blocks_impl.h). */
void calm_ggml_pack(const calm_ggml_blocks *blocks, const calm_ggml_parts *parts, uint8_t *out);

/* Returns whether all values of the type are exact products (code - zero) scale. */
bool calm_ggml_is_scaled(const calm_ggml_blocks *blocks);

/* Reads the codes [n] of n elements, a whole number of blocks, and the scales [n / group] of their groups.  False:
 * the type is not calm_ggml_is_scaled, and nothing is written. */
bool calm_ggml_read_codes(const calm_ggml_blocks *blocks, const uint8_t *in, size_t n, uint8_t *codes, float *scales);

/* Writes the byte offsets of a block's float16 scales to at[0], at[1], and returns how many there are.  Also for
 * types that are not readable. */
size_t calm_ggml_halves(calm_ggml_type type, size_t at[2]);

/* Returns whether calm_ggml_to_f32 supports the type. */
bool calm_ggml_readable(calm_ggml_type type);

/* Dequantizes `n` elements, a whole number of blocks, from `in` (any alignment) to out [n].  CALM_EUNSUPPORTED: the
 * type is not readable. */
calm_status calm_ggml_to_f32(calm_ctx *ctx, calm_ggml_type type, const void *in, size_t n, float *out);
