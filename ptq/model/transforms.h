/* Online transforms of linears' inputs: a Hadamard matrix before every down, or none. */
#pragma once

#include "ptq/arch/layout.h"
#include "ptq/weights/qformat.h"

/* Sets in config and layout the transform that the checkpoint `stored` (NULL: none) in `dir` asks for.
 * CALM_EUNSUPPORTED: another transform than one of the same width before every down. */
calm_status calm_transforms_read(calm_ctx *ctx, const char *dir, const calm_qformat_reader *stored, calm_config *config,
                                 calm_layout *layout);

/* Implements calm_model_use_hadamard, with the same errors. */
calm_status calm_transforms_use_hadamard(calm_ctx *ctx, const char *dir, calm_config *config, calm_layout *layout);

/* Returns the name, within a block with a dense MLP, of the module whose input the transform changes. */
const char *calm_transforms_module(const calm_config *config);
