/* Schemes: number formats of weights and activations, parsed from and printed as their names.
 *
 *   w4a16_g128         int4 weights, a scale per row and 128 input columns, activations stay float
 *   w4a16_g128_asym    the same with a zero point per group
 *   w4a16_g128_actorder    groups of inputs of like power: the first 128 by falling sum of x^2, the next, ...
 *   w4a16_g128_or32    groups of 32 in linears whose columns 128 does not divide; _orrow: one scale per row there
 *   w8a16, w8a8        one scale per row; a8: activations to int8 per token, dynamically
 *   w4a4_g128          both
 *   w8a8_asymact       activations from their smallest to their largest value, with a zero point per token
 *   w8a8_vllmact       activations by the rule of vLLM's kernel instead of compressed-tensors' (grid.h)
 *   w8a8_static        one scale for all activations of a job, found on the calibration text
 *   w4afp8_g128        activations to FP8 per token
 *   nvfp4, mxfp4, fp8, fp8_block, iq4_nl, q4_1, ...    families of schemes.def: all that they are stands there
 *   nvfp4a16, mxfp4a16, fp8a16, fp8_blocka16           their weights alone
 *   fp8_static         fp8 with one scale for all activations of a job, what spans the largest of the calibration text
 *   fp8_tensor         fp8 with one scale for all weights of a job as well; fp8_tensor_static: and one for activations
 *   gguf_q4_k_m, ...   one of these or another by the place of the matrix in its model (mix.h)
 *   float              left as it is
 * _symact is the default, spelled out.  A suffix _f16s rounds scales to float16 instead of bfloat16. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/levels.h"
#include "ptq/tensor/dtype.h"

#define CALM_SCHEME_NAME_MAX 48

/* Names of the rules for whole numbers in their order, as the values of an option. */
#define CALM_ACT_RULE_NAMES "compressed-tensors|vllm"

/* Numbers of the rows of schemes.def. */
typedef enum calm_family_id {
#define CALM_FAMILY(id, ...) CALM_FAMILY_##id,
#include "ptq/quant/schemes.def"
#undef CALM_FAMILY
    CALM_N_FAMILIES
} calm_family_id;

/* Families that GGUF has a type for, a set of bits 1 << CALM_FAMILY_X. */
enum {
    CALM_GGUF_FAMILIES = 0
#define CALM_FAMILY(id, name, levels, bits, zero, group, rows, super, scale, minimum, side, act_bits, act_rule,        \
                    instead, ggml, label)                                                                              \
    | ((ggml) ? 1 << CALM_FAMILY_##id : 0)
#include "ptq/quant/schemes.def"
#undef CALM_FAMILY
};

/* GGUF's types of whole numbers, minus their bits: next to the numbers of families. */
enum { CALM_TYPE_Q4_0 = -4, CALM_TYPE_Q8_0 = -8 };

/* How a scale is stored. */
typedef enum calm_scale_code {
    CALM_SCALE_DTYPE,    /* bfloat16 or float16, as scheme.scale_dtype says                        */
    CALM_SCALE_F16,      /* float16                                                                */
    CALM_SCALE_E8M0,     /* a power of two                                                         */
    CALM_SCALE_E4M3,     /* a small float, divided by a float32 that the whole job shares          */
    CALM_SCALE_JOB,      /* bfloat16 or float16, the same for the whole job                        */
    CALM_SCALE_U4,       /* a whole number of 4 bits times a float16 of the super-block            */
    CALM_SCALE_U6,       /* of 6 bits                                                              */
    CALM_SCALE_S6,       /* of 6 bits with a sign, -32 to 31                                       */
    CALM_SCALE_S8,       /* of 8 bits with a sign                                                  */
} calm_scale_code;

/* What is added to scale * level. */
typedef enum calm_minimum {
    CALM_MINIMUM_NONE,
    CALM_MINIMUM_FREE,    /* float16 of any sign                                                   */
    CALM_MINIMUM_TAKEN,   /* less a whole number, as the scale has, times a float16 of the super-block: at most 0 */
} calm_minimum;

/* One row of schemes.def. */
typedef struct calm_family {
    const char *name;
    const calm_levels *levels;    /* NULL: whole numbers */
    int bits, zero;
    size_t group, rows, super;
    calm_scale_code scale;
    calm_minimum minimum;
    double side_bits;
    int act_bits;                 /* 0: weights alone     */
    calm_act_rule act_rule;
    int instead;                  /* CALM_FAMILY_*, CALM_TYPE_*; 0: none                  */
    uint32_t ggml, label;         /* 0: GGUF has no such type                             */
} calm_family;

/* The rows in their order, [CALM_N_FAMILIES]. */
extern const calm_family calm_families[];

/* No super-block has more groups. */
#define CALM_SUPER_MAX 16

/* The scheme of a type, a family's weights alone or whole numbers: as calm_scheme_parse has it. */
calm_scheme calm_scheme_of_type(int type);

/* The row of a scheme. */
const calm_family *calm_scheme_family(const calm_scheme *scheme);

/* Have the scales of groups a number of the whole job, which NVFP4's are multiples of, and FP8's of tensors are? */
bool calm_scheme_has_global(const calm_scheme *scheme);

/* Has a linear, like all of its job, one scale? */
bool calm_scheme_is_whole(const calm_scheme *scheme);

/* Are weights bytes of FP8, with scales of 16 bits: of rows, of blocks or of whole linears? */
bool calm_scheme_is_fp8(const calm_scheme *scheme);

/* Levels of its codes; NULL: code - zero. */
const calm_levels *calm_scheme_levels(const calm_scheme *scheme);

/* Do groups have a float that is added? */
bool calm_scheme_has_mins(const calm_scheme *scheme);

/* Is w^ = scale (code - zero), with whole codes and nothing added? */
bool calm_scheme_is_plain(const calm_scheme *scheme);

/* Can its scales be float16 instead of bfloat16? */
bool calm_scheme_takes_f16_scales(const calm_scheme *scheme);

/* Have both the same name? */
bool calm_scheme_same(const calm_scheme *a, const calm_scheme *b);

/* Rows of a linear that share their scales, from its first row on; 1: each has its own. */
size_t calm_scheme_rows(const calm_scheme *scheme);

/* Blocks of such rows that a linear of `out` rows has, the last one perhaps shorter: its rows of scales. */
size_t calm_scheme_row_blocks(const calm_scheme *scheme, size_t out);

/* Can a row's scales be divided by any number when its codes are fixed?  Not where a scale has fewer bits than
 * bfloat16, or is shared with other rows. */
bool calm_scheme_folds(const calm_scheme *scheme);

/* Does a name contain the range of activations (_symact, _asymact; _static is symmetric)? */
bool calm_scheme_says_range(const char *name);

/* Print the canonical name, which always fits; returns `name`. */
const char *calm_scheme_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);

/* What GGUF calls it where that is another name, of its types of whole numbers "q4_0" and "q8_0"; else the same. */
const char *calm_scheme_type_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);

/* The name, as long as the block lasts in which it is called. */
#define CALM_SCHEME_NAME(scheme) calm_scheme_name((scheme), (char[CALM_SCHEME_NAME_MAX]){0})

/* ceil(in / group), 1 for group 0. */
size_t calm_scheme_groups(const calm_scheme *scheme, size_t in);

/* Columns that scales are rounded together for: of a group, or of a super-block; 0: one group per row. */
size_t calm_scheme_block(const calm_scheme *scheme);

/* The scheme of a linear of `in` columns under `scheme`: itself, or where its super-blocks do not divide them
 * what llama.cpp falls back to, as its row says, or where its groups do not what its name says.  Groups, bits and
 * blocks below are of that one. */
calm_scheme calm_scheme_for(const calm_scheme *scheme, size_t in);

/* Do its groups, or what takes their place, divide `in` columns?  Readers want that, but pad blocks of weights;
 * activations in groups they refuse where those do not divide. */
bool calm_scheme_divides(const calm_scheme *scheme, size_t in);

/* Columns per group; `in` for group 0. */
size_t calm_scheme_group_size(const calm_scheme *scheme, size_t in);

/* Bits per weight of an [out, in] matrix: codes, scales (16 bits) and zeros of asymmetric schemes.  Blocks of rows are
 * counted from the first row on: of several linears under each other that is a little less than what each has. */
double calm_scheme_bits_per_weight(const calm_scheme *scheme, size_t out, size_t in);

/* Bits of what a weight is multiplied by: those of quantized activations, 16 where they stay float. */
int calm_scheme_input_bits(const calm_scheme *scheme);
