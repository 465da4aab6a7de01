/* The blocks of ggml's types as rows of one table: where in a block the bits of codes, scales and minima lie, and what
 * values they represent.  Reading and packing are the same loops for all types. */
#pragma once

#include "ptq/io/ggml_type.h"

/* The most elements, groups and bytes that a block of a type in the table has. */
#define CALM_GGML_BLOCK_MAX 256
#define CALM_GGML_GROUPS_MAX 16
#define CALM_GGML_BYTES_MAX 210

/* Equal parts of numbers: `span` bytes hold `bits` bits each of the first `span` numbers, above them those of the next
 * ones, until the bytes are full; then the next `span` bytes follow.  Bits 0: there is no such plane. */
typedef struct calm_ggml_plane {
    uint8_t at, bits, span;    /* at: byte of the block */
} calm_ggml_plane;

/* How the scale of a whole block is stored. */
typedef enum calm_ggml_scale {
    CALM_GGML_SCALE_F16,
    CALM_GGML_SCALE_E8M0,      /* one byte e: 2^(e - 128), half of what the standard says, as levels are doubled */
    CALM_GGML_SCALE_E4M3,      /* none; the integers of groups are bits of an e4m3 without sign, halved likewise */
} calm_ggml_scale;

/* What is taken off the product of scale and level. */
typedef enum calm_ggml_minimum {
    CALM_GGML_NO_MINIMUM,
    CALM_GGML_MINIMUM_ADDED,       /* a float16 of the block, which is added       */
    CALM_GGML_MINIMUM_TAKEN,       /* dmin times an integer of the group, taken off */
} calm_ggml_minimum;

typedef struct calm_ggml_blocks {
    calm_ggml_type type;
    size_t elements, group;        /* of a block; that share an integer scale (`elements`: there are none) */
    calm_ggml_scale scale;
    calm_ggml_minimum minimum;
    uint8_t d, dmin;               /* bytes where they lie */
    calm_ggml_plane codes[2];      /* low bits, high bits */
    uint8_t zero;                  /* level of a code: code - zero */
    const int8_t *levels;          /* or these; NULL: the above */
    calm_ggml_plane scales[2];     /* the integers: scales, and minima behind them */
    uint8_t packed;                /* where Q4_K's 12 bytes of scales and minima lie instead; 0: nowhere */
    uint8_t scale_zero;            /* an integer scale is its code less this */
    uint8_t code_flip, scale_flip; /* bits of a code and of a scale that are stored the other way: 0x80 makes an int8 */
} calm_ggml_blocks;

/* A block taken apart; what a type lacks is 0. */
typedef struct calm_ggml_parts {
    uint16_t d, dmin;              /* as stored: float16, or a byte */
    uint8_t codes[CALM_GGML_BLOCK_MAX];
    uint8_t scales[CALM_GGML_GROUPS_MAX], minima[CALM_GGML_GROUPS_MAX];
} calm_ggml_parts;

/* The row of a type; NULL: calm cannot read its codes. */
const calm_ggml_blocks *calm_ggml_blocks_find(calm_ggml_type type);

/* A block's bytes from its parts, which calm_ggml_unpack (ggml_blocks_impl.h) makes of them. */
void calm_ggml_pack(const calm_ggml_blocks *blocks, const calm_ggml_parts *parts, uint8_t *out);

/* Are values of the type (code - zero) scale, exact products? */
bool calm_ggml_is_scaled(const calm_ggml_blocks *blocks);

/* Codes [n] of n elements, a whole number of blocks, and the scales [n / group] of their groups.  False: the type is
 * not calm_ggml_is_scaled, and nothing is written. */
bool calm_ggml_read_codes(const calm_ggml_blocks *blocks, const uint8_t *in, size_t n, uint8_t *codes, float *scales);

/* Where a block of a type has float16 scales: at[0], at[1]; how many.  Also of types that are not readable. */
size_t calm_ggml_halves(calm_ggml_type type, size_t at[2]);

/* Can calm_ggml_to_f32 widen it? */
bool calm_ggml_readable(calm_ggml_type type);

/* Widen `n` elements, a whole number of blocks, from `in` (any alignment) to out [n].  CALM_EUNSUPPORTED for a type
 * that is not readable. */
calm_status calm_ggml_to_f32(calm_ctx *ctx, calm_ggml_type type, const void *in, size_t n, float *out);
