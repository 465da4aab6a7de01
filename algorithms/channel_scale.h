/* Channel scales: what transforms that rescale the input have in common. */
#ifndef CALM_ALGORITHMS_CHANNEL_SCALE_H
#define CALM_ALGORITHMS_CHANNEL_SCALE_H

#include "algorithms/part.h"

/* Neither a statistic nor a scale counts as less. */
#define CALM_CHANNEL_FLOOR 1e-5

/* scale [I] from s [I] > 0: channels of one absorb group take their geometric mean (s is overwritten by it), then all
 * are divided by sqrt(max s * min s), which keeps what the scale is folded into in the middle of the float16 range
 * (docs/method.md section 4).  CALM_ENOMEM. */
calm_status calm_channel_scale(calm_ctx *ctx, const calm_problem *problem, double *s, float *scale);

/* What that keeps of ctx->scratch. */
size_t calm_channel_scale_bytes(const calm_job_shape *shape);

#endif
