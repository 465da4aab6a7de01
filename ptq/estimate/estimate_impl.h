/* Parts of the memory plan.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/estimate/estimate.h"

/* Peaks of the run with these knobs. */
void calm_memory_plan_estimate(const calm_run *p, size_t n_threads, const calm_knobs *knobs, calm_memory_plan *out);

/* `memory` of the recipe, or 70 % of what is free now.  CALM_EARG: `memory` is no size. */
calm_status calm_memory_plan_limit(calm_ctx *ctx, const calm_recipe *recipe, size_t *out);

/* Where the estimate stands. */
typedef struct calm_memory_estimate {
    const calm_run *p;
    const calm_config *config;
    const calm_layout *layout;
    const calm_knobs *knobs;
    size_t n_threads, windows, rows, score_rows, held_rows, longest;    /* of the calibration                 */
    unsigned caps;                                           /* CALM_NEEDS_* and CALM_SETS_* of the pool      */
    unsigned extras;                                         /* CALM_QJOB_*: what candidates may have         */
} calm_memory_estimate;

/* Raise *most to `bytes`, where those are more. */
static inline void calm_memory_raise(size_t *most, size_t bytes)
{
    *most = calm_size_max(*most, bytes);
}

/* This many bytes more in every stage; the peak is that of the largest. */
void calm_memory_plan_raise_all(calm_memory_plan *plan, size_t bytes);

/* What a model holds of one of its blocks with every job quantized, float and quantized weights, and while it runs
 * on this many windows, or after that `then`. */
size_t calm_memory_plan_block_bytes(const calm_memory_estimate *e, size_t block, size_t n_windows, size_t longest,
                               size_t then);

/* Plans of the guard that pass a block as it comes, next to the calibration's rows; 0: none does (memory_models.c). */
size_t calm_memory_plan_guard_bytes(const calm_memory_estimate *e, size_t block);

/* A pass of gradients over this many windows of the calibration, with a block (memory_models.c). */
size_t calm_memory_plan_gradient_bytes(const calm_memory_estimate *e, size_t n_windows);

/* Hidden rows of all windows, unless they are in a file; with a quantized prefix also as they entered the block and,
 * asymmetric, behind float blocks; and of a block that is scored as a whole those of the scoring windows.  And the
 * weights of rows, which are there as long. */
size_t calm_memory_plan_hidden_bytes(const calm_memory_estimate *e);

/* Raise out->capture, out->quantize and out->score to what a block needs: each sublayer in turn, then what needs the
 * whole block. */
void calm_memory_plan_add_block(const calm_memory_estimate *e, size_t block, calm_memory_plan *out);

/* The same of a dense block whose candidates are made from its weights alone: job by job. */
void calm_memory_plan_add_blind(const calm_memory_estimate *e, size_t block, calm_memory_plan *out);

/* Raise out->evaluate to what evaluations need, and out->assemble to what the formats do (memory_models.c). */
void calm_memory_plan_add_evaluations(const calm_memory_estimate *e, calm_memory_plan *out);
void calm_memory_plan_add_formats(const calm_memory_estimate *e, calm_memory_plan *out);
