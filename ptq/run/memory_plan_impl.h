/* Parts of the memory plan.  Only files of this folder and their tests include it. */
#ifndef CALM_RUN_MEMORY_PLAN_IMPL_H
#define CALM_RUN_MEMORY_PLAN_IMPL_H

#include "ptq/run/memory_plan.h"

/* Peaks of the run with these knobs. */
void calm_memory_plan_estimate(const calm_run *p, size_t n_threads, const calm_knobs *knobs, calm_memory_plan *out);

/* The first knobs in order of their cost in time whose estimate is within `limit`; knobs of the recipe as they are.
 * CALM_ENOMEM as calm_memory_plan_apply. */
calm_status calm_memory_plan_choose(calm_ctx *ctx, const calm_run *p, size_t limit, calm_memory_plan *out);

/* What is resident besides arenas and what was there at first: buffers of BLAS and stacks, 24 MiB a thread, and as much
 * again; measured, not allocated by us. */
#define CALM_PROGRAM_BYTES(n_threads) (((n_threads) + 1) * ((size_t)24 * 1024 * 1024))

/* `memory` of the recipe, or 70 % of what is free now.  CALM_EARG: `memory` is no size. */
calm_status calm_memory_plan_limit(calm_ctx *ctx, const calm_recipe *recipe, size_t *out);

#endif
