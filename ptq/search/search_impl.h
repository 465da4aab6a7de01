/* The work on one block: its candidates, their scores, and activation statistics.  Only files of this folder and their
 * tests include this header. */
#pragma once

#include "algorithms/hessian.h"
#include "cka/linear.h"
#include "ptq/calib/capture.h"
#include "ptq/ranks/ranks.h"
#include "ptq/search/search.h"

/* What the candidates of a job share, and of v where it is its own job with those of q and k (shared_h.c). */
typedef struct calm_job_share {
    calm_hessian hessian;     /* its h is where the job's Gram matrix was; NULL: none was made */
    size_t n_readers;         /* candidates to come that read its factor                         */
    calm_arena arena, factor; /* of hessian; of the factor, which goes with its last reader      */
} calm_job_share;

/* A sublayer or an expert that was captured, and what its candidates are scored against. */
typedef struct calm_captured {
    const calm_capture *capture;
    size_t begin, end;             /* its jobs in the layout; of use where capture->job[kind].used */
    calm_job_share share[CALM_N_JOBS];    /* by kind: q and k, and v, read one input with one Gram matrix */
    calm_score_ref *reference;     /* NULL: too few rows to score                                */
    calm_cka_linear_ref *linear[CALM_FOLD_SET_JOBS];    /* [end - begin] for cka_linear; NULL: no Gram matrix */
} calm_captured;

/* One candidate in work. */
typedef struct calm_work {
    const calm_captured *from;
    calm_job_share *share;         /* of from, the job's                                         */
    size_t job, entry;             /* in the layout; in the recipe's pool                        */
    size_t twin;                   /* entry that has the same result; its own: it is computed    */
    const calm_algorithm *used;    /* that one, or the one that needs no data                    */
    bool reads;                    /* the factor that the job's candidates share                 */
    calm_arena arena;              /* owns qjob                                                  */
    calm_qjob qjob;
    calm_scores scores;
    double cka_linear;             /* NaN: not measured                                          */
    bool failed;                   /* by its own numbers: a row in the store, not the end        */
    char reason[CALM_MESSAGE_MAX];
    double seconds;                /* of quantizing                                              */
} calm_work;

/* Everything the tasks of a block read; they write their own calm_work alone. */
typedef struct calm_block_work {
    calm_run *p;
    const calm_block *block;
    calm_work *items;              /* [n], then [n_twins]                                        */
    size_t n, n_twins;             /* to compute; to copy once those are kept                    */
    size_t n_done;                 /* of the stage, all blocks together                          */
    size_t n_total;
} calm_block_work;

/* Under --effort light inputs with a crest (calm_run_crest) below this are not smoothed. */
#define CALM_LIGHT_CREST 5.0

/* Leave out what need not be tried of a job, once the crest of its input is known.  Returns how many candidates would
 * have been computed. */
size_t calm_run_skip(calm_ctx *ctx, const calm_run *p, size_t job);

/* Compute what is missing of a block and advance the batch over it (NULL: nothing reads rows, calm_inputs_read_rows),
 * and `exact` (NULL: none), the same windows behind float blocks.  `done` counts finished candidates.  Everything of
 * the block is gone afterwards. */
calm_status calm_block_process(calm_ctx *ctx, calm_run *p, size_t index, const calm_missing *missing,
                               calm_batch *batch, calm_batch *exact, size_t *done);

/* Compute what is missing, block by block, without a look at the store; all of it in this rank where there are no
 * owners (survey.c). */
calm_status calm_run_missing(calm_ctx *ctx, calm_run *p, const calm_missing *missing);

/* With a quantized prefix: add to what is missing the codes that were dropped of what the blocks before choose, which
 * are run with it (survey.c). */
calm_status calm_recompute_prefix(calm_ctx *ctx, calm_run *p, calm_missing *missing);

/* ---- what the candidates of a job share (shared_h.c) ---- */

/* H of the jobs of a slice in place of their Gram matrices, and factors that several candidates at once read. */
calm_status calm_run_share_make(calm_ctx *ctx, const calm_block_work *work);

/* Before a chain runs: *out as calm_algorithm_run_shared takes it; and after it ran. */
calm_status calm_run_share_enter(calm_ctx *ctx, const calm_block_work *work, calm_work *item, const calm_hessian **out);
void calm_run_share_leave(calm_work *item);

/* Release what was made of captured [n]. */
void calm_run_share_clear(calm_captured *captured, size_t n);

/* Fewest rows that the metrics are defined for. */
#define CALM_LEAST_SCORE_ROWS 4

/* Once all items are listed: what runs of each, and how many read the factor of their job. */
void calm_candidate_count(calm_block_work *work);

/* Quantize, then score, every item; as many at once as memory allows. */
calm_status calm_block_quantize(calm_ctx *ctx, calm_block_work *work);
calm_status calm_block_score(calm_ctx *ctx, calm_block_work *work);

/* Put every item's blob and row, in order. */
calm_status calm_block_keep(calm_ctx *ctx, calm_block_work *work);

/* The entry of the pool whose candidate on this job has the same bits, and is in the store or the first of those to be
 * computed; `entry` itself where there is no other.  Such equal candidates take the same steps: transforms that set
 * input scales are left out where the job cannot absorb them, corrections of biases where it has none, and experts with
 * too few tokens have one algorithm for all. */
size_t calm_candidate_twin(const calm_run *p, const calm_captured *from, size_t job, size_t entry);

/* Put the rows of equal candidates, in order: results, failures and scores of the candidate they equal, which
 * is kept. */
calm_status calm_candidate_keep_twins(calm_ctx *ctx, calm_block_work *work);

/* ---- scores of whole sublayers and blocks (unit_scores.c) ---- */

/* Is a score at this point wanted of the unit of jobs begin .. end - 1, of one entry or of any, and not known?  Entries
 * with a failed candidate have none. */
bool calm_run_lacks_score(const calm_run *p, size_t begin, size_t end, size_t entry, calm_point point);
bool calm_unit_missing(const calm_run *p, size_t begin, size_t end, calm_point point);

/* Score what was captured with all its jobs quantized by each entry, and put the scores.  Its first job's input was
 * kept. */
calm_status calm_sublayer_score(calm_ctx *ctx, calm_run *p, const calm_block *block, const calm_captured *captured);

/* Score a block's output, and its output minus its input, with all its jobs quantized by each entry; `rows` are its
 * input in the scoring windows. */
calm_status calm_block_score_whole(calm_ctx *ctx, calm_run *p, size_t index, const calm_batch *rows);

/* The weights and biases of a job in weight [CALM_N_ROLES] replaced by a quantized job's, as they will run: weight-only
 * schemes take the input scale into the weights, quantized activations need it on the input.  New ones are in
 * ctx->scratch. */
calm_status calm_job_replace(calm_ctx *ctx, const calm_layout *layout, size_t job, const calm_qjob *qjob,
                             calm_weight *weight);

/* Output of the sublayer or expert as it is added to x, for the scoring rows, with weight [CALM_N_ROLES] of which those
 * of its job `kind` are a candidate's; z [n, D]. */
calm_status calm_captured_output(calm_ctx *ctx, const calm_run *p, const calm_block *block,
                                 const calm_captured *captured, calm_job_kind kind,
                                 const calm_weight weight[CALM_N_ROLES], float *z);

/* Scores as rows of the store.  rows has room for CALM_N_SCORES; returns their number. */
size_t calm_scores_as_rows(const calm_score_set *set, calm_point point, calm_store_score *rows);

/* Put the statistics of one hook point; block < 0: outside the blocks.  of_text [texts]: those of each text, which
 * have a separate calibration in the store; NULL: there are none. */
calm_status calm_activation_keep(calm_ctx *ctx, const calm_run *p, long block, long expert, calm_hook hook,
                                 const calm_actstat_acc *acc, calm_actstat_acc *const *of_text);

/* Put those of a sublayer or an expert, in one transaction. */
calm_status calm_activations_keep(calm_ctx *ctx, const calm_run *p, size_t block, const calm_capture *capture);

/* Are the hook points of a block (< 0: embedding and final norm) in the store?  The block's output is put last. */
calm_status calm_activations_kept(calm_ctx *ctx, const calm_run *p, long block, bool *out);

/* ---- weights of calibration rows (row_weights.c) ---- */

/* Weigh calibration rows, when the recipe asks for it: by gradients of the float model, or the first of each window.
 *
 * A candidate minimises sum_t w_t |E x_t|^2 over the rows x_t of its job's input, E the error of its weights.  Without
 * weights w_t is 1.  An error of row t costs the model about |g_t . E x_t|^2, g_t the gradient at the job's outputs of
 * predictions in a random direction: rows of large gradients count more.  w_t = |g_t|, held within a factor of 32 of
 * its mean.  First tokens have far the largest where all later ones attend to them (StreamingLLM, arXiv 2309.17453).
 *
 * Sets run->row_factors for the blocks whose candidates this rank computes, in `arena`; every rank computes its own.
 * Fails as calm_gradient_pass_run does. */
calm_status calm_run_weigh_rows(calm_ctx *ctx, calm_run *run, const calm_missing *missing, calm_arena *arena);
