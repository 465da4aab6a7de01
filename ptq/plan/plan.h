/* Plan: one candidate per job of the model, and where its quantized weights come from.
 *
 * The plan has all schemes in memory (headers and configs need them); codes are fetched one job at a time. */
#pragma once

#include "ptq/arch/layout.h"
#include "ptq/base/context.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/vectors.h"

typedef struct calm_plan_job {
    bool quantized;             /* false: the job's linears stay float        */
    calm_scheme scheme;
    const char *entry_name;     /* "gptq", with several schemes "gptq w3a16_g128"; NULL when float */
    const void *source;         /* belongs to the fetch function */
} calm_plan_job;

/* Fetches the codes of a quantized job of the plan into ctx->out. */
typedef calm_status calm_plan_fetch_fn(void *user, calm_ctx *ctx, const calm_plan_job *job, calm_qjob *out);

/* Fetches the vectors of a learned block into ctx->out; `source` belongs to this function. */
typedef calm_status calm_plan_vectors_fn(void *user, calm_ctx *ctx, const void *source, calm_vectors *out);

typedef struct calm_plan {
    size_t n_jobs;
    calm_plan_job *jobs;        /* [n_jobs] in the layout's order */
    const void **blocks;        /* [n_blocks] sources of learned vectors; an entry NULL: not learned; NULL: none is */
    calm_plan_vectors_fn *vectors;
    bool free_scales;           /* input scales that cannot be folded stay at the input: to measure, not to export */
    calm_plan_fetch_fn *fetch;
    void *user;
} calm_plan;
