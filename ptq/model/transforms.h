/* Transforms of linears' inputs while a model runs: a Hadamard matrix before every down, or none. */
#pragma once

#include "ptq/model/layout.h"
#include "ptq/model/qformat.h"

/* Note in config and layout what the checkpoint `stored` (NULL: none) in `dir` asks for.  CALM_EUNSUPPORTED: another
 * transform than one of the same width before every down. */
calm_status calm_transforms_read(calm_ctx *ctx, const char *dir, const calm_qformat_reader *stored, calm_config *config,
                                 calm_layout *layout);

/* As calm_model_use_hadamard, which has the errors. */
calm_status calm_transforms_use_hadamard(calm_ctx *ctx, const char *dir, calm_config *config, calm_layout *layout);

/* The module within a block, of dense MLPs, whose input the transform changes. */
const char *calm_transforms_module(const calm_config *config);
