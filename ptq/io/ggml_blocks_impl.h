/* Blocks of ggml's types: the values of their numbers.  Only files of this folder and tests include it. */
#pragma once

#include "ptq/io/ggml_blocks.h"

/* Return the bits of a code and of an integer scale of a type; 0: the type has no integer scales. */
int calm_ggml_code_bits(const calm_ggml_blocks *blocks);
int calm_ggml_scale_bits(const calm_ggml_blocks *blocks);

/* Returns the level of a code. */
int calm_ggml_level(const calm_ggml_blocks *blocks, uint8_t code);

/* Returns the value of a stored d or dmin. */
float calm_ggml_scale_value(const calm_ggml_blocks *blocks, uint16_t bits);

/* Unpacks the bytes of a block; calm_ggml_pack restores the same bytes, whatever they are. */
void calm_ggml_unpack(const calm_ggml_blocks *blocks, const uint8_t *in, calm_ggml_parts *out);
