/* Channel scales: code that the transforms which rescale inputs (smooth, awq) share. */
#pragma once

#include "algorithms/part.h"

/* The least value of a statistic and of a scale; less is raised to it. */
#define CALM_CHANNEL_FLOOR 1e-5

/* Compute scale [I] from s [I]: s > 0, or 0 for a dead channel (no input, or no weight).  Channels of one absorb
 * group get the geometric mean of the live channels in the group (written to s).  Then all are divided by the geometric
 * mean over live channels (docs/method.md section 4), so that the layer that absorbs the scale keeps its size.  Dead
 * channels get the scale 1.  CALM_ENOMEM. */
calm_status calm_channel_scale(calm_ctx *ctx, const calm_problem *problem, double *s, float *scale);

/* Bytes that calm_channel_scale keeps of ctx->scratch. */
size_t calm_channel_scale_bytes(const calm_job_shape *shape);
