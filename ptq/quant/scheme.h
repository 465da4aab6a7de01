/* Schemes: number formats of weights and activations, parsed from and printed as their names.
 *
 *   w4a16_g128         int4 weights, a scale per row and 128 input columns, activations stay float
 *   w4a16_g128_asym    the same with a zero point per group
 *   w4a16_g128_actorder    groups of inputs with similar power: sorted by falling sum of x^2, 128 at a time
 *   w4a16_g128_or32    groups of 32 in linears whose columns 128 does not divide; _orrow: one scale per row there
 *   w8a16, w8a8        one scale per row; a8: activations to int8 per token, dynamically
 *   w4a4_g128          int4 weights in groups of 128, activations to int4 per token
 *   w8a8_asymact       activations from their smallest to their largest value, with a zero point per token
 *   w8a8_vllmact       activations by the rule of vLLM's kernel instead of compressed-tensors' (grid.h)
 *   w8a8_static        one scale for all activations of a job, from the calibration text
 *   w4afp8_g128        activations to FP8 per token
 *   nvfp4, mxfp4, fp8, fp8_block, iq4_nl, q4_1, ...    families, which schemes.def describes
 *   nvfp4a16, mxfp4a16, fp8a16, fp8_blocka16           only the weights of a family; activations stay float
 *   fp8_static         fp8 with one scale for all activations of a job, which covers the whole calibration text
 *   fp8_tensor         fp8 with one scale for all weights of a job; fp8_tensor_static: and one for activations
 *   gguf_q4_k_m, ...   a mix: the type depends on the role of the matrix in its model (mix.h)
 *   float              not quantized
 *
 * _symact is the default, spelled out.  A suffix _f16s rounds scales to float16 instead of bfloat16. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/levels.h"
#include "ptq/tensor/dtype.h"

#define CALM_SCHEME_NAME_MAX 48

/* Names of the rules for integer activations in enum order, as the values of an option. */
#define CALM_ACT_RULE_NAMES "compressed-tensors|vllm"

/* Indices of the rows of schemes.def. */
typedef enum calm_family_id {
#define CALM_FAMILY(id, ...) CALM_FAMILY_##id,
#include "ptq/quant/schemes.def"
#undef CALM_FAMILY
    CALM_N_FAMILIES
} calm_family_id;

/* Families that have a GGUF type, a set of bits 1 << CALM_FAMILY_X. */
enum {
    CALM_GGUF_FAMILIES = 0
#define CALM_FAMILY(id, name, levels, bits, zero, group, rows, super, scale, minimum, side, act_bits, act_rule,        \
                    instead, ggml, label)                                                                              \
    | ((ggml) ? 1 << CALM_FAMILY_##id : 0)
#include "ptq/quant/schemes.def"
#undef CALM_FAMILY
};

/* GGUF's integer types, as minus their bits: numbers that no family has. */
enum { CALM_TYPE_Q4_0 = -4, CALM_TYPE_Q8_0 = -8 };

/* Encoding of a stored scale. */
typedef enum calm_scale_code {
    CALM_SCALE_DTYPE,    /* bfloat16 or float16, as scheme.scale_dtype says                        */
    CALM_SCALE_F16,      /* float16                                                                */
    CALM_SCALE_E8M0,     /* a power of two                                                         */
    CALM_SCALE_E4M3,     /* e4m3, divided by a float32 that the whole job shares                   */
    CALM_SCALE_JOB,      /* one bfloat16 or float16 for the whole job                              */
    CALM_SCALE_U4,       /* 4-bit unsigned integer times a float16 of the super-block              */
    CALM_SCALE_U6,       /* 6-bit unsigned integer, likewise                                       */
    CALM_SCALE_S6,       /* 6-bit signed integer, -32 to 31, likewise                              */
    CALM_SCALE_S8,       /* 8-bit signed integer, likewise                                         */
} calm_scale_code;

/* Minimum that is added to scale * level. */
typedef enum calm_minimum {
    CALM_MINIMUM_NONE,
    CALM_MINIMUM_FREE,    /* float16 of any sign                                                   */
    CALM_MINIMUM_TAKEN,   /* minus an unsigned integer, encoded as the scale, times a float16 of the super-block  */
} calm_minimum;

/* One row of schemes.def, which describes the fields. */
typedef struct calm_family {
    const char *name;
    const calm_levels *levels;    /* NULL: integers      */
    int bits, zero;
    size_t group, rows, super;
    calm_scale_code scale;
    calm_minimum minimum;
    double side_bits;
    int act_bits;                 /* 0: weights only      */
    calm_act_rule act_rule;
    int instead;                  /* CALM_FAMILY_*, CALM_TYPE_*; 0: none                  */
    uint32_t ggml, label;         /* 0: GGUF has no such type                             */
} calm_family;

/* The rows of schemes.def, [CALM_N_FAMILIES]. */
extern const calm_family calm_families[];

/* Largest number of groups of a super-block. */
#define CALM_SUPER_MAX 16

/* Returns the scheme of a type, as calm_scheme_parse returns it: the weights of a family, or integers. */
calm_scheme calm_scheme_of_type(int type);

/* Returns the family of a scheme. */
const calm_family *calm_scheme_family(const calm_scheme *scheme);

/* Returns whether the job has a global scale: the divisor of the group scales of NVFP4, the only scale of FP8 per
 * tensor. */
bool calm_scheme_has_global(const calm_scheme *scheme);

/* Returns whether all weights of a job have one scale. */
bool calm_scheme_is_whole(const calm_scheme *scheme);

/* Returns whether weights are FP8 with 16-bit scales: per row, per block or per job. */
bool calm_scheme_is_fp8(const calm_scheme *scheme);

/* Returns the level table of the codes; NULL: level = code - zero. */
const calm_levels *calm_scheme_levels(const calm_scheme *scheme);

/* Returns whether groups have a float minimum that is added. */
bool calm_scheme_has_mins(const calm_scheme *scheme);

/* Returns whether w^ = scale (code - zero) with integer levels and no minimum. */
bool calm_scheme_is_plain(const calm_scheme *scheme);

/* Returns whether scales can be float16 instead of bfloat16. */
bool calm_scheme_takes_f16_scales(const calm_scheme *scheme);

/* Returns whether both schemes have the same name. */
bool calm_scheme_same(const calm_scheme *a, const calm_scheme *b);

/* Returns the number of consecutive rows of a linear that share their scales, counted from its first row; 1: none
 * do. */
size_t calm_scheme_rows(const calm_scheme *scheme);

/* Returns the number of such blocks of rows in a linear of `out` rows, a shorter last one included: its rows of
 * scales. */
size_t calm_scheme_row_blocks(const calm_scheme *scheme, size_t out);

/* Returns whether a row's scales can be divided by any number while its codes stay: not if a scale has fewer bits
 * than bfloat16, or is shared with other rows. */
bool calm_scheme_folds(const calm_scheme *scheme);

/* Returns whether a name states the range of activations (_symact, _asymact; _static is symmetric). */
bool calm_scheme_says_range(const char *name);

/* Writes the canonical name, which always fits; returns `name`. */
const char *calm_scheme_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);

/* Writes the name of GGUF's type if it is another one, "q4_0" and "q8_0" of the integer types; else the canonical
 * name. */
const char *calm_scheme_type_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);

/* The canonical name of a scheme, valid until the end of the enclosing block. */
#define CALM_SCHEME_NAME(scheme) calm_scheme_name((scheme), (char[CALM_SCHEME_NAME_MAX]){0})

/* Returns the groups per row: ceil(in / group), 1 for group 0. */
size_t calm_scheme_groups(const calm_scheme *scheme, size_t in);

/* Returns the columns whose scales are rounded together: a group or a super-block; 0: one group per row. */
size_t calm_scheme_block(const calm_scheme *scheme);

/* Returns the scheme of a linear of `in` columns under `scheme`: llama.cpp's fallback (`instead`) if super-blocks
 * do not divide the columns, the group that the name states (group_else) if groups do not, else the scheme itself.
 * Groups, bits and blocks of the functions below are those of this scheme. */
calm_scheme calm_scheme_for(const calm_scheme *scheme, size_t in);

/* Returns whether groups, or the fallback's, divide `in` columns.  Readers require it, but pad blocks of weights;
 * they refuse quantized activations whose groups do not divide the columns. */
bool calm_scheme_divides(const calm_scheme *scheme, size_t in);

/* Returns the columns per group; `in` for group 0. */
size_t calm_scheme_group_size(const calm_scheme *scheme, size_t in);

/* Returns the bits per weight of an [out, in] matrix: codes, scales (16 bits) and zeros of asymmetric schemes.
 * Blocks of rows are counted from the first row on, which is slightly too little for several stacked linears. */
double calm_scheme_bits_per_weight(const calm_scheme *scheme, size_t out, size_t in);

/* Returns the bits of a weight's input: those of quantized activations, 16 if they stay float. */
int calm_scheme_input_bits(const calm_scheme *scheme);
