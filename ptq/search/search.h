/* Search: quantizes every job with every algorithm of the pool, scores the results, and stores them.
 *
 * The work proceeds block by block and, within a block, sublayer by sublayer (survey.c, block_run.c).  Candidates that
 * the store has are not computed again. */
#pragma once

#include "ptq/eval/predict.h"
#include "ptq/state/state.h"

/* Looks up every candidate in the store, computes the missing ones block by block, and stores them (survey.c). */
calm_status calm_run_blocks(calm_ctx *ctx, calm_run *run);

/* Chooses for the jobs of one block, into run->choice, while later blocks may have no candidates yet (block_run.c). */
calm_status calm_run_choose_block(calm_ctx *ctx, calm_run *run, size_t block);

/* ---- codes in the store ---- */

/* Returns true if the blob exists and its content has its digest.  If not, logs that it will be computed again
 * (survey.c). */
bool calm_run_blob_is_sound(calm_ctx *ctx, const calm_run *run, const char *digest);

/* Returns true if the store has the row of a candidate but not its codes (survey.c). */
bool calm_run_any_dropped(const calm_run *run);

/* _mark marks the deleted codes that a plan of this run needs.  _marked computes all marked codes again, in one pass
 * over the blocks up to the last block with marked codes; it does nothing if none is marked.  CALM_ENUMERIC: a
 * candidate fails this time (recompute.c). */
void calm_recompute_mark(const calm_plan *plan);
calm_status calm_recompute_marked(calm_ctx *ctx, calm_run *run);

/* Reads the rows of all candidates, and computes the codes of those with these keys [n] again (recompute.c). */
calm_status calm_recompute_keys(calm_ctx *ctx, calm_run *run, const char *const *keys, size_t n);

/* ---- gradients of the float model (gradient_pass.c) ---- */

/* A backward pass through the blocks of the float model, over the first calibration windows.  The loss is the sum of
 * predictions in random directions whose covariance is the second derivative of the KL divergence to the float model
 * (ptq/eval/predict_sample.h); the gradient of the divergence itself is 0 there. */
typedef struct calm_gradient_pass calm_gradient_pass;

/* Called with the gradient of a block's output; the function may overwrite pass->work. */
typedef calm_status calm_gradient_visit(calm_ctx *ctx, calm_gradient_pass *pass, size_t block);

struct calm_gradient_pass {
    /* Fields that the caller sets */
    const calm_run *run;
    size_t n_windows;                /* number of calibration windows, the first ones */
    const char *key;                 /* recipe key that a failure names: "choice.sensitivity"                     */
    calm_stage stage;                /* stage of the progress events */
    size_t first_block;              /* the pass ends with the gradient of this block's input */
    calm_gradient_visit *visit;      /* called for every block from the last to first_block; NULL: none */
    void *user;
    size_t n_visits;                 /* progress steps of the visits of all blocks */
    float *const *lengths;           /* [n_blocks * CALM_N_JOBS] of [rows of all windows]: receives the length of the
                                      * gradient at a job's outputs, in blocks from first_block on; NULL, or an entry
                                      * NULL: not computed */
    /* Fields that the pass sets */
    /* Set by the pass */
    calm_windows windows;
    calm_predictors set;             /* the float model's head                                                    */
    calm_batch *inputs;              /* [n_blocks + 1] hidden states at each block's input, of the current windows */
    calm_batch work;                 /* work space of the same shape */
    float *d;                        /* [rows, D] gradient of the current block's output */
    size_t done, total;              /* progress steps */
};

/* Runs the pass.  The bytes do not depend on the number of threads or on how many windows run together.  CALM_EARG: all
 * windows have one token, which predicts nothing.  CALM_ENUMERIC: a value is not finite; the message names the
 * block. */
calm_status calm_gradient_pass_run(calm_ctx *ctx, calm_gradient_pass *pass);

/* Counts one progress step of a visit. */
void calm_gradient_pass_tick(calm_gradient_pass *pass);

/* Return how many of n windows run together, and the peak bytes of the pass with them, without a block's weights. */
size_t calm_gradient_pass_windows(const calm_run *run, size_t n);
size_t calm_gradient_pass_bytes(const calm_run *run, size_t n, size_t n_threads);

/* ---- sizes for the memory plan ---- */

/* Returns how many experts from `first` on are captured and scored together: as many as the memory plan allows, or
 * fewer if they have more tokens than planned (calm_wave_tokens); at least one (expert_wave.c). */
size_t calm_wave_experts(const calm_run *run, const calm_routing *routing, size_t first, size_t n_threads);

/* Returns the tokens, of `rows`, that the memory plan allows for one of several experts: twice an even share. */
size_t calm_wave_tokens(const calm_moe_config *moe, size_t rows);

/* Returns the maximum of bytes(m, d) over m <= n: an expert's tokens are not known before routing. */
size_t calm_wave_score_bytes(size_t (*bytes)(size_t n, size_t d), size_t n, size_t d);

/* Returns true if an earlier weight or norm can absorb input scales of the job, or if the recipe lets them stay at its
 * input. */
bool calm_run_absorbs(const calm_run *run, size_t job);

/* Returns true if input rows are kept for the jobs of a fold set (calm_layout_fold_set), which are captured
 * together. */
bool calm_run_keeps_rows(const calm_run *run, size_t block, calm_sublayer sublayer, long expert);

/* Return the damping of the matrix H, and of its factor, that the candidates of a job share; 0: they share none. */
double calm_run_damping(const calm_recipe *recipe);
double calm_run_factor(const calm_recipe *recipe);

/* Returns true if the algorithm reads that factor. */
bool calm_run_reads_factor(const calm_recipe *recipe, const calm_algorithm *algorithm);

/* Returns the most bytes of run->row_factors; 0 if the recipe does not weight rows. */
size_t calm_run_weigh_rows_bytes(const calm_run *run);

/* Return the bytes of bookkeeping for n captured sublayers or experts, and for all their candidates. */
size_t calm_captured_bytes(size_t n);
size_t calm_candidates_bytes(const calm_recipe *recipe, size_t n);
