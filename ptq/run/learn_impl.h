/* Learning one block of a run.  Only learn.c, learn_block.c and the memory plan include it. */
#ifndef CALM_RUN_LEARN_IMPL_H
#define CALM_RUN_LEARN_IMPL_H

#include "ptq/run/run_impl.h"

/* What a block is learned from: the plan as it was before, the hidden rows that enter the quantized block, and those
 * that leave the float one; of the same windows. */
typedef struct calm_learn_task {
    const calm_run *run;
    const calm_plan *start;
    size_t block;
    const calm_batch *inputs, *targets;
    calm_tick_fn *tick;    /* after each step; NULL: none */
    void *user;
} calm_learn_task;

/* What came of it, in ctx->out. */
typedef struct calm_learn_result {
    calm_qjob *jobs;       /* [jobs of the block] of the folded form */
    calm_vectors vectors;  /* norms and biases that are not the float model's */
    calm_learn_outcome outcome;
} calm_learn_result;

/* Learn one block.  Fails as assembly and the passes through the block do; numerical failures leave it at its start. */
calm_status calm_learn_block(calm_ctx *ctx, const calm_learn_task *task, calm_learn_result *out);

/* The most that learning the run's blocks holds of all arenas, hidden rows included; `spill`: those lie in a file.
 * 0: the recipe does not ask for it. */
size_t calm_learn_bytes(const calm_run *run, unsigned extras, bool spill, size_t n_threads);

#endif
