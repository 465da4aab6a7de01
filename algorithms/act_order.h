/* Activation order: reorders the inputs of a job so that each group has inputs of similar power; any chain then runs on
 * the reordered job. */
#pragma once

#include "algorithms/algorithm.h"
#include "algorithms/hessian.h"

/* A reordered job: its input k is input order[k] of the original job. */
typedef struct calm_ordered_job {
    calm_job job;             /* its scheme without act_order                        */
    calm_stats stats;         /* the statistics that the chain needs                 */
    calm_hessian hessian;     /* a copy of `shared`, without its factor              */
    const calm_hessian *shared;
    size_t *order;            /* [I] by falling sum of x^2, equal ones in their order */
} calm_ordered_job;

/* Reorder a job, in ctx->scratch.  needs: CALM_NEEDS_* of the chain; shared: the H that chains share, or NULL. */
calm_status calm_ordered_job_make(calm_ctx *ctx, const calm_job *job, unsigned needs, const calm_hessian *shared,
                                  calm_ordered_job *out);

/* Bytes that calm_ordered_job_make takes. */
size_t calm_ordered_job_bytes(const calm_job_shape *shape, unsigned needs);

/* Turn the chain's result into one of the original job: its scheme, the order (in ctx->out), and the input scale in the
 * job's order. */
calm_status calm_ordered_job_restore(calm_ctx *ctx, const calm_ordered_job *from, const calm_job *job,
                                     calm_qjob *qjob);
