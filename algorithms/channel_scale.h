/* Channel scales of the transforms that rescale inputs (smooth, awq). */
#pragma once

#include "algorithms/part.h"

/* The least value of a statistic and of a scale; smaller values are replaced by it. */
#define CALM_CHANNEL_FLOOR 1e-5

/* Computes scale [I] from s [I]: s > 0, or 0 for a dead channel (no input, or no weight).  Channels of one absorb
 * group get the geometric mean of the live channels in the group (written to s).  Then all are divided by the geometric
 * mean over live channels (docs/method.md section 4), so that the layer that absorbs the scale keeps the magnitude of
 * its weights.  Dead channels get the scale 1.  CALM_ENOMEM. */
calm_status calm_channel_scale(calm_ctx *ctx, const calm_problem *problem, double *s, float *scale);

/* Returns the bytes of ctx->scratch that calm_channel_scale allocates. */
size_t calm_channel_scale_bytes(const calm_job_shape *shape);
