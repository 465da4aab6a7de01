/* Experts that a checkpoint stores in one tensor of three dimensions, as the matrices that they are.
 *
 *   gate and up    [E, 2 I, D]: the rows of gate, then those of up     or transposed [E, D, 2 I]
 *   down           [E, D, I]                                           or transposed [E, I, D]
 *
 *   biases, of families that have them     [E, 2 I] and [E, D]
 *
 * E experts of width I, hidden size D.  Where names->moe.interleaved is set, row 2 r of the first is gate's row r and
 * row 2 r + 1 is up's; so of biases. */
#pragma once

#include "ptq/io/safetensors.h"
#include "ptq/model/config.h"

/* In `set` put "<prefix>layers.N.mlp.experts.E.gate_proj.weight", "up_proj", "down_proj", views of such tensors, and
 * their biases, in their place; the files stay.  Blocks without such tensors stay as they are.
 * CALM_ENOTFOUND: one of a block's is missing.  CALM_EFORMAT: rank, dtype, shape, or one of the two transposed and
 * the other not; tensor, found and expected. */
calm_status calm_experts_unfuse(calm_ctx *ctx, const calm_config *config, const char *prefix, calm_safetensors *set);
