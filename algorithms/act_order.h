/* Groups of inputs of like power: a job with its inputs in another order, on which any chain runs as it is. */
#pragma once

#include "algorithms/algorithm.h"
#include "algorithms/hessian.h"

/* A job whose input k is input order[k] of the one that it was made of, and what of it is shared. */
typedef struct calm_ordered_job {
    calm_job job;             /* its scheme without act_order                        */
    calm_stats stats;         /* those that the chain needs                          */
    calm_hessian hessian;     /* a copy of `shared`, without its factor              */
    const calm_hessian *shared;
    size_t *order;            /* [I] by falling sum of x^2, equal ones in their order */
} calm_ordered_job;

/* `needs`: CALM_NEEDS_* of the chain, which runs with an H that chains share, or NULL.  In ctx->scratch. */
calm_status calm_ordered_job_make(calm_ctx *ctx, const calm_job *job, unsigned needs, const calm_hessian *shared,
                                  calm_ordered_job *out);

/* What that takes. */
size_t calm_ordered_job_bytes(const calm_job_shape *shape, unsigned needs);

/* The result of the chain as one of the job: its scheme, its order in ctx->out, and the input scale in the job's. */
calm_status calm_ordered_job_restore(calm_ctx *ctx, const calm_ordered_job *from, const calm_job *job,
                                     calm_qjob *qjob);
