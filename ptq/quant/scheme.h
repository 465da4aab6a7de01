/* Schemes: number formats of weights and activations, parsed from and printed as their names.
 *
 *   w4a16_g128         int4 weights, a scale per row and 128 input columns, activations stay float
 *   w4a16_g128_asym    the same with a zero point per group
 *   w8a16, w8a8        one scale per row; a8: activations to int8 per token, dynamically
 *   w4a4_g128          both
 *   w8a8_asymact       activations from their smallest to their largest value, with a zero point per token
 *   w8a8_vllmact       activations by the rule of vLLM's kernel instead of compressed-tensors' (grid.h)
 *   float              left as it is
 * _symact is the default, spelled out.  A suffix _f16s rounds scales to float16 instead of bfloat16. */
#ifndef CALM_QUANT_SCHEME_H
#define CALM_QUANT_SCHEME_H

#include "ptq/base/context.h"
#include "ptq/tensor/dtype.h"

#define CALM_SCHEME_NAME_MAX 48

/* The library whose rule computes the scale of a token's activations from its range.  It is not stored in checkpoints.
 */
typedef enum calm_act_rule { CALM_ACT_RULE_COMPRESSED_TENSORS, CALM_ACT_RULE_VLLM } calm_act_rule;

/* Their names in that order, as the values of an option. */
#define CALM_ACT_RULE_NAMES "compressed-tensors|vllm"

typedef struct calm_scheme {
    int bits;                 /* of a weight: 2 to 8; 0 = float                        */
    size_t group;             /* input columns per scale; 0 = one group per row        */
    bool symmetric;           /* zero point 2^(bits-1) everywhere                      */
    int act_bits;             /* 0 = activations stay float; else per token            */
    bool act_asymmetric;      /* false without act_bits                                */
    calm_act_rule act_rule;   /* CALM_ACT_RULE_COMPRESSED_TENSORS without act_bits     */
    calm_dtype scale_dtype;   /* CALM_BF16 (default) or CALM_F16                       */
} calm_scheme;

/* Parse a name.  CALM_EARG with what is wrong and examples. */
calm_status calm_scheme_parse(calm_ctx *ctx, const char *name, calm_scheme *out);

/* Does a name contain the range of activations (_symact, _asymact)? */
bool calm_scheme_says_range(const char *name);

/* Print the canonical name; always fits. */
void calm_scheme_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);

/* ceil(in / group), 1 for group 0. */
size_t calm_scheme_groups(const calm_scheme *scheme, size_t in);

/* Columns per group; `in` for group 0. */
size_t calm_scheme_group_size(const calm_scheme *scheme, size_t in);

/* Bits per weight of an [out, in] matrix: codes, scales (16 bits) and zeros of asymmetric schemes. */
double calm_scheme_bits_per_weight(const calm_scheme *scheme, size_t out, size_t in);

#endif
