/* Search: quantize every job with every algorithm of the pool, score the results, and keep them in the store.
 *
 * The work goes block by block and, within a block, sublayer by sublayer (survey.c, block_run.c).  What the store
 * already has is not computed again. */
#pragma once

#include "ptq/eval/predict.h"
#include "ptq/state/state.h"

/* Find every candidate in the store, compute the missing ones block by block, and put them there (survey.c). */
calm_status calm_run_blocks(calm_ctx *ctx, calm_run *run);

/* Choose for the jobs of a block alone, into run->choice: later blocks may have no candidates yet (block_run.c). */
calm_status calm_run_choose_block(calm_ctx *ctx, calm_run *run, size_t block);

/* ---- codes in the store ---- */

/* Is the blob there, with the content that its name says?  If not, the log says so, and it is computed again
 * (survey.c). */
bool calm_run_blob_is_sound(calm_ctx *ctx, const calm_run *run, const char *digest);

/* Does the store lack the codes of a candidate whose row it has (survey.c)? */
bool calm_run_any_dropped(const calm_run *run);

/* Mark the dropped codes that a plan of this run needs; compute all marked codes again, in one pass over the blocks up
 * to the last that lacks some.  Nothing marked: nothing is done.  CALM_ENUMERIC: a candidate fails this time
 * (recompute.c). */
void calm_recompute_mark(const calm_plan *plan);
calm_status calm_recompute_marked(calm_ctx *ctx, calm_run *run);

/* Read the rows of all candidates, and compute the codes of those with these keys [n] again (recompute.c). */
calm_status calm_recompute_keys(calm_ctx *ctx, calm_run *run, const char *const *keys, size_t n);

/* ---- a pass of gradients through the float model (gradient_pass.c) ---- */

/* One pass back through the blocks of the float model, over the first calibration windows.  The gradient is that of
 * predictions in directions drawn at random, whose covariance is the second derivative of the KL divergence to the
 * float model (ptq/eval/predict_sample.h); the divergence itself has none there. */
typedef struct calm_gradient_pass calm_gradient_pass;

/* Called with the gradient of a block's output; it may write to pass->work. */
typedef calm_status calm_gradient_visit(calm_ctx *ctx, calm_gradient_pass *pass, size_t block);

struct calm_gradient_pass {
    /* Set by the caller */
    const calm_run *run;
    size_t n_windows;                /* the first ones of the calibration                                         */
    const char *key;                 /* recipe key that a failure names: "choice.sensitivity"                     */
    calm_stage stage;                /* of its progress                                                           */
    size_t first_block;              /* the pass ends with the gradient of what enters this block                 */
    calm_gradient_visit *visit;      /* for every block that the gradient reaches, from the last on; NULL: none   */
    void *user;
    size_t n_visits;                 /* steps of progress that the visits of all blocks make                      */
    float *const *lengths;           /* [n_blocks * CALM_N_JOBS] of [rows of all windows]: the length of the gradient
                                      * at a job's outputs is written there, of blocks from first_block on; NULL, or
                                      * one of them NULL: not wanted */
    /* Set by the pass */
    calm_windows windows;
    calm_predictors set;             /* the float model's head                                                    */
    calm_batch *inputs;              /* [n_blocks + 1] of the current windows: what enters each block             */
    calm_batch work;                 /* of the same windows                                                       */
    float *d;                        /* [rows, D] gradient of the current block's output                          */
    size_t done, total;              /* steps, for progress                                                       */
};

/* Run it.  Same bytes for any number of threads and of windows that go through the model together.  CALM_EARG: windows
 * of one token predict nothing.  CALM_ENUMERIC: a value is not finite; the message names the block. */
calm_status calm_gradient_pass_run(calm_ctx *ctx, calm_gradient_pass *pass);

/* A step of a visit is done. */
void calm_gradient_pass_tick(calm_gradient_pass *pass);

/* Number of windows out of n that go through the model together; bytes that the pass holds then, besides a block. */
size_t calm_gradient_pass_windows(const calm_run *run, size_t n);
size_t calm_gradient_pass_bytes(const calm_run *run, size_t n, size_t n_threads);

/* ---- what the memory plan asks ---- */

/* Number of experts from `first` on that are captured and scored at once: as many as the memory plan says, or fewer
 * when they got more tokens than it allows for (calm_wave_tokens); at least one (expert_wave.c). */
size_t calm_wave_experts(const calm_run *run, const calm_routing *routing, size_t first, size_t n_threads);

/* Tokens out of `rows` that the memory plan allows one of several experts: twice an even share. */
size_t calm_wave_tokens(const calm_moe_config *moe, size_t rows);

/* The largest bytes(m, d) of any m <= n: the tokens of an expert are not known before it is routed. */
size_t calm_wave_score_bytes(size_t (*bytes)(size_t n, size_t d), size_t n, size_t d);

/* Can input scales of the job be absorbed by an earlier weight or norm?  If not, quantized activations may still be
 * divided by them at run time, if the recipe says so. */
bool calm_run_absorbs(const calm_run *run, size_t job);

/* Are rows of the inputs kept for the jobs of a fold set (calm_layout_fold_set), which are captured together? */
bool calm_run_keeps_rows(const calm_run *run, size_t block, calm_sublayer sublayer, long expert);

/* Damping of the matrix H, and of its factor, that the candidates of a job share; 0: they share none. */
double calm_run_damping(const calm_recipe *recipe);
double calm_run_factor(const calm_recipe *recipe);

/* Does the algorithm read that factor? */
bool calm_run_reads_factor(const calm_recipe *recipe, const calm_algorithm *algorithm);

/* Bytes of run->row_factors at most; 0 when the recipe does not weigh rows. */
size_t calm_run_weigh_rows_bytes(const calm_run *run);

/* Bytes of bookkeeping for n sublayers or experts that were captured, and for all their candidates. */
size_t calm_captured_bytes(size_t n);
size_t calm_candidates_bytes(const calm_recipe *recipe, size_t n);
