/* Blocks of ggml's types: what their numbers mean.  Only files of this folder and tests include it. */
#pragma once

#include "ptq/io/ggml_blocks.h"

/* Bits of a code and of an integer scale of a type; 0: it has no such scales. */
int calm_ggml_code_bits(const calm_ggml_blocks *blocks);
int calm_ggml_scale_bits(const calm_ggml_blocks *blocks);

/* Level of a code. */
int calm_ggml_level(const calm_ggml_blocks *blocks, uint8_t code);

/* The value that a stored d or dmin represents. */
float calm_ggml_scale_value(const calm_ggml_blocks *blocks, uint16_t bits);

/* A block's bytes to its parts.  calm_ggml_pack undoes it, for any bytes. */
void calm_ggml_unpack(const calm_ggml_blocks *blocks, const uint8_t *in, calm_ggml_parts *out);
