/* Activation order: reorders the inputs of a job by falling power, so that a group has inputs of similar power; any
 * chain then runs on the reordered job. */
#pragma once

#include "algorithms/algorithm.h"
#include "algorithms/hessian.h"

/* A reordered job: its input k is input order[k] of the original job. */
typedef struct calm_ordered_job {
    calm_job job;             /* the reordered job; its scheme is without act_order        */
    calm_stats stats;         /* the reordered statistics that the chain needs             */
    calm_hessian hessian;     /* the shared H, reordered, without its factor               */
    const calm_hessian *shared;    /* &hessian; NULL: the chain computes H                 */
    size_t *order;            /* [I] by falling sum of x^2; equal sums keep the job's order */
} calm_ordered_job;

/* Reorders a job in ctx->scratch, calm_ordered_job_bytes.  needs: CALM_NEEDS_* of the chain; shared: the H that chains
 * share, or NULL. */
calm_status calm_ordered_job_make(calm_ctx *ctx, const calm_job *job, unsigned needs, const calm_hessian *shared,
                                  calm_ordered_job *out);

/* Returns the bytes that calm_ordered_job_make allocates. */
size_t calm_ordered_job_bytes(const calm_job_shape *shape, unsigned needs);

/* Turns the chain's result into a result of the original job: sets its scheme and the order (in ctx->out), and brings
 * the input scale back to the job's order. */
calm_status calm_ordered_job_restore(calm_ctx *ctx, const calm_ordered_job *from, const calm_job *job,
                                     calm_qjob *qjob);
