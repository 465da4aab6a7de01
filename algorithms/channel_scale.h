/* Channel scales: what transforms that rescale the input have in common. */
#pragma once

#include "algorithms/part.h"

/* Neither a statistic nor a scale counts as less. */
#define CALM_CHANNEL_FLOOR 1e-5

/* scale [I] from s [I] > 0, 0 for a channel that is dead: no input, or no weight.  Channels of one absorb group take
 * the geometric mean of the live ones (s is overwritten by it), then all are divided by the geometric mean over live
 * channels (docs/method.md section 4): what the scale is folded into keeps its size, whatever a single channel has.  A
 * dead one has the scale 1.  CALM_ENOMEM. */
calm_status calm_channel_scale(calm_ctx *ctx, const calm_problem *problem, double *s, float *scale);

/* What that keeps of ctx->scratch. */
size_t calm_channel_scale_bytes(const calm_job_shape *shape);
