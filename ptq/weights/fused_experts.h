/* Reads experts that a checkpoint stores in one tensor of three dimensions as separate matrices.
 *
 *   gate and up    [E, 2 I, D]: the rows of gate, then those of up     or transposed [E, D, 2 I]
 *   down           [E, D, I]                                           or transposed [E, I, D]
 *
 *   biases, where the family has them      [E, 2 I] and [E, D]
 *
 * E experts of inner width I, hidden size D.  Where names->moe.interleaved is set, row 2 r of the first tensor is
 * gate's row r and row 2 r + 1 is up's; biases likewise. */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/io/safetensors.h"

/* Replaces such tensors in `set` by views "<prefix>layers.N.mlp.experts.E.gate_proj.weight", "up_proj", "down_proj",
 * and views of their biases; files do not change.  Blocks without such tensors stay as they are.
 * CALM_ENOTFOUND: one of a block's tensors is missing.  CALM_EFORMAT: rank, dtype or shape, or only one of the two is
 * transposed; tensor, found and expected. */
calm_status calm_experts_unfuse(calm_ctx *ctx, const calm_config *config, const char *prefix, calm_safetensors *set);
