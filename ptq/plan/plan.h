/* Plan: one candidate per job of the model, and where its quantized weights come from.
 *
 * The plan knows schemes beforehand (headers and configs need them); codes are fetched one job at a time. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/model/layout.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/vectors.h"

typedef struct calm_plan_job {
    bool quantized;             /* false: the job's linears stay float        */
    calm_scheme scheme;
    const char *entry_name;     /* "gptq", of several schemes "gptq w3a16_g128"; NULL when float */
    const void *source;         /* the fetcher's own                          */
} calm_plan_job;

/* Codes of a job that the plan quantizes, into ctx->out. */
typedef calm_status calm_plan_fetch_fn(void *user, calm_ctx *ctx, const calm_plan_job *job, calm_qjob *out);

/* Vectors of a block that was learned, into ctx->out; `source` is the fetcher's own. */
typedef calm_status calm_plan_vectors_fn(void *user, calm_ctx *ctx, const void *source, calm_vectors *out);

typedef struct calm_plan {
    size_t n_jobs;
    calm_plan_job *jobs;        /* [n_jobs] numbered as in the layout */
    const void **blocks;        /* [n_blocks] sources of learned vectors, NULL of a block without; NULL: no block has */
    calm_plan_vectors_fn *vectors;
    bool free_scales;           /* input scales that cannot be folded stay at the input: to measure, not to export */
    calm_plan_fetch_fn *fetch;
    void *user;
} calm_plan;
