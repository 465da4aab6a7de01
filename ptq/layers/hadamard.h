/* Online transforms: Hadamard matrices that multiply the inputs of linears while the model runs.
 *
 *   x' = x H      the job's weights are W H, so that x' (W H)^T = x W^T
 *
 * H is block-diagonal with blocks of config.hadamard[job] channels (tensor/rotation.h), normalised and symmetric: the
 * backward pass multiplies gradients by the same matrix. */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/base/context.h"

/* Multiplies the input x [n, width] of a job's linears in place, if the job has a transform. */
calm_status calm_hadamard_rows(calm_ctx *ctx, const calm_config *config, calm_job_kind job, size_t n, size_t width,
                               float *x);

/* Returns the bytes of ctx->scratch that this takes, one row; 0 without a transform. */
size_t calm_hadamard_bytes(const calm_config *config, calm_job_kind job, size_t width);
