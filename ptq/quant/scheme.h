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

/* Their names in that order, as the values of an option. */
#define CALM_ACT_RULE_NAMES "compressed-tensors|vllm"

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

/* Bits of what a weight is multiplied by: those of quantized activations, 16 where they stay float. */
int calm_scheme_input_bits(const calm_scheme *scheme);

#endif
