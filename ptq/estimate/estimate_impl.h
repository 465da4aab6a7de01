/* Parts of the memory plan.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/estimate/estimate.h"

/* Estimates the peaks of the run with these knobs. */
void calm_memory_plan_estimate(const calm_run *p, size_t n_threads, const calm_knobs *knobs, calm_memory_plan *out);

/* Returns the limit: `memory` of the recipe, or 70 % of the free memory.  CALM_EARG: `memory` is no size. */
calm_status calm_memory_plan_limit(calm_ctx *ctx, const calm_recipe *recipe, size_t *out);

/* The inputs of an estimate. */
typedef struct calm_memory_estimate {
    const calm_run *p;
    const calm_config *config;
    const calm_layout *layout;
    const calm_knobs *knobs;
    size_t n_threads, windows, rows, score_rows, held_rows, longest;    /* from windows on: of the calibration */
    unsigned caps;                                           /* union of the pool's CALM_NEEDS_* and CALM_SETS_* */
    unsigned extras;                                         /* CALM_QJOB_*: optional parts of candidates */
} calm_memory_estimate;

/* Sets *most to the larger of *most and `bytes`. */
static inline void calm_memory_raise(size_t *most, size_t bytes)
{
    *most = calm_size_max(*most, bytes);
}

/* Adds bytes to the peak of every stage, and to the plan's peak. */
void calm_memory_plan_raise_all(calm_memory_plan *plan, size_t bytes);

/* Returns the bytes of a model for one of its blocks with every job quantized: float and quantized weights, and the
 * larger of what it needs to run n_windows windows, and `then`. */
size_t calm_memory_plan_block_bytes(const calm_memory_estimate *e, size_t block, size_t n_windows, size_t longest,
                               size_t then);

/* Returns the bytes of the guard's plans that run together with the blocks; 0: none does (memory_models.c). */
size_t calm_memory_plan_guard_bytes(const calm_memory_estimate *e, size_t block);

/* Returns the bytes of a gradient pass over n_windows calibration windows, with a block (memory_models.c). */
size_t calm_memory_plan_gradient_bytes(const calm_memory_estimate *e, size_t n_windows);

/* Returns the bytes of the hidden states of all windows, unless they are in a file; with a quantized prefix also at the
 * block's input and, asymmetric, behind float blocks; if blocks are scored as a whole, of the scoring windows.
 * Includes the weights of rows, which live as long. */
size_t calm_memory_plan_hidden_bytes(const calm_memory_estimate *e);

/* Raises out->capture, out->quantize and out->score to the peaks of a block: of each sublayer in turn, then of the
 * whole block. */
void calm_memory_plan_add_block(const calm_memory_estimate *e, size_t block, calm_memory_plan *out);

/* Does the same for a dense block whose candidates need only its weights: job by job. */
void calm_memory_plan_add_weights_only(const calm_memory_estimate *e, size_t block, calm_memory_plan *out);

/* Raise out->evaluate to the peak of evaluations, and out->assemble to that of the formats (memory_models.c). */
void calm_memory_plan_add_evaluations(const calm_memory_estimate *e, calm_memory_plan *out);
void calm_memory_plan_add_formats(const calm_memory_estimate *e, calm_memory_plan *out);
