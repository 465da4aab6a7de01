/* Online transforms of linears' inputs (ptq/layers/hadamard.h): which jobs have one, by a checkpoint or by request. */
#pragma once

#include "ptq/arch/layout.h"
#include "ptq/weights/qformat.h"

/* Sets in config and layout the transforms that the checkpoint `stored` (NULL: none) in `dir` asks for.
 * CALM_EUNSUPPORTED: linears of a kind of job have different transforms, or the forward pass has none there. */
calm_status calm_transforms_read(calm_ctx *ctx, const char *dir, const calm_qformat_reader *stored, calm_config *config,
                                 calm_layout *layout);

/* Implements calm_model_use_hadamard, with the same errors. */
calm_status calm_transforms_use_hadamard(calm_ctx *ctx, const char *dir, bool every, calm_config *config,
                                         calm_layout *layout);

/* Does any job have a transform? */
bool calm_transforms_any(const calm_config *config);

/* Returns the name of a job's transform in transform_config: "R4" before down, as in SpinQuant, else the job's. */
const char *calm_transforms_label(calm_job_kind job);

/* Returns the name, within a block with dense sublayers, of the module of a role whose input has a transform; NULL: the
 * family does not have the role, or the role has no transform. */
const char *calm_transforms_module(const calm_config *config, calm_role role);
