/* The work on one block: candidates, scores, activation statistics.  Only files of this folder and their tests include
 * this header. */
#pragma once

#include "algorithms/hessian.h"
#include "cka/linear.h"
#include "ptq/calib/capture.h"
#include "ptq/ranks/ranks.h"
#include "ptq/search/search.h"

/* Data that the candidates of a job share; a separate job v shares with q and k (shared_h.c). */
typedef struct calm_job_share {
    calm_hessian hessian;     /* its h replaces the job's Gram matrix; NULL: there is none */
    size_t n_readers;         /* candidates not done yet that read its factor */
    calm_arena arena, factor; /* arena of hessian; arena of the factor, freed after its last reader */
} calm_job_share;

/* A captured sublayer or expert, and the references that its candidates are scored against. */
typedef struct calm_captured {
    const calm_capture *capture;
    size_t begin, end;             /* its jobs in the layout; those with capture->job[kind].used are quantized */
    calm_job_share share[CALM_N_JOBS];    /* by kind; q, k and v read one input, so they use one share */
    calm_score_ref *reference;     /* NULL: too few rows to score                                */
    calm_cka_linear_ref *linear[CALM_FOLD_SET_JOBS];    /* [end - begin] for cka_linear; NULL: no Gram matrix */
} calm_captured;

/* One candidate that is being computed. */
typedef struct calm_work {
    const calm_captured *from;
    calm_job_share *share;         /* share of its job, in `from` */
    size_t job, entry;             /* job of the layout; entry of the recipe's pool */
    size_t twin;                   /* entry with an identical result; `entry`: it must be computed */
    const calm_algorithm *used;    /* the entry's algorithm, or the fallback that needs no data */
    bool reads;                    /* true: it reads the shared factor */
    calm_arena arena;              /* owns qjob                                                  */
    calm_qjob qjob;
    calm_scores scores;
    double cka_linear;             /* NaN: not measured                                          */
    bool failed;                   /* a numerical failure: a row of the store, and the run continues */
    char reason[CALM_MESSAGE_MAX];
    double seconds;                /* time to quantize */
} calm_work;

/* The data of all tasks of a block; each task writes only its own calm_work. */
typedef struct calm_block_work {
    calm_run *p;
    const calm_block *block;
    calm_work *items;              /* [n + n_twins] candidates to compute, then those that equal one of them */
    size_t n, n_twins;             /* candidates to compute; candidates to copy afterwards */
    size_t n_done;                 /* progress of the stage over all blocks */
    size_t n_total;
} calm_block_work;

/* With --effort light, inputs with a crest (calm_run_crest) below this are not smoothed. */
#define CALM_LIGHT_CREST 5.0

/* Marks the candidates of a job that need not be tried as skipped, once the crest of its input is known.  Returns how
 * many of them would have been computed. */
size_t calm_run_skip(calm_ctx *ctx, const calm_run *p, size_t job);

/* Computes what is missing of a block and moves the batch (NULL: nothing reads rows, calm_inputs_read_rows) and `exact`
 * (NULL: none; the same windows behind float blocks) behind the block.  `done` counts finished candidates.  Frees all
 * data of the block. */
calm_status calm_block_process(calm_ctx *ctx, calm_run *p, size_t index, const calm_missing *missing,
                               calm_batch *batch, calm_batch *exact, size_t *done);

/* Computes what is missing, block by block, without reading the store; this rank computes all if blocks have no owners
 * (survey.c). */
calm_status calm_run_missing(calm_ctx *ctx, calm_run *p, const calm_missing *missing);

/* With a quantized prefix: adds to `missing` the deleted codes that earlier blocks' choices need, because these blocks
 * run with their choices (survey.c). */
calm_status calm_recompute_prefix(calm_ctx *ctx, calm_run *p, calm_missing *missing);

/* ---- data that the candidates of a job share (shared_h.c) ---- */

/* Computes H for the jobs of a slice in place of their Gram matrices, and factors that several parallel candidates
 * read. */
calm_status calm_run_share_make(calm_ctx *ctx, const calm_block_work *work);

/* _enter prepares a candidate's chain; *out is the argument of calm_algorithm_run_shared.  _leave ends it. */
calm_status calm_run_share_enter(calm_ctx *ctx, const calm_block_work *work, calm_work *item, const calm_hessian **out);
void calm_run_share_leave(calm_work *item);

/* Frees the shares of captured [n]. */
void calm_run_share_clear(calm_captured *captured, size_t n);

/* The fewest rows for which the metrics are defined. */
#define CALM_LEAST_SCORE_ROWS 4

/* Sets `used` and `reads` of every listed item, and counts the readers of each job's factor. */
void calm_candidate_count(calm_block_work *work);

/* _quantize quantizes every item, _score scores it; as many at once as memory allows. */
calm_status calm_block_quantize(calm_ctx *ctx, calm_block_work *work);
calm_status calm_block_score(calm_ctx *ctx, calm_block_work *work);

/* Stores every item's blob and row, in order. */
calm_status calm_block_keep(calm_ctx *ctx, calm_block_work *work);

/* Returns the pool entry whose candidate on this job has the same bits and is stored or is the first to be computed;
 * `entry` if there is none.  Such candidates take the same steps: a transform that sets input scales is skipped if the
 * job cannot absorb them, a bias correction is skipped without biases, and experts with too few tokens all use one
 * algorithm. */
size_t calm_candidate_equal(const calm_run *p, const calm_captured *from, size_t job, size_t entry);

/* Stores the rows of equal candidates, in order: results, failures and scores of the candidates that they equal, which
 * are stored already. */
calm_status calm_candidate_store_equals(calm_ctx *ctx, calm_block_work *work);

/* ---- scores of whole sublayers and blocks (unit_scores.c) ---- */

/* Return true if a score at this point is wanted and unknown for the unit of jobs begin .. end - 1: of one entry, or of
 * any.  Entries with a failed candidate have no score. */
bool calm_run_lacks_score(const calm_run *p, size_t begin, size_t end, size_t entry, calm_point point);
bool calm_unit_missing(const calm_run *p, size_t begin, size_t end, calm_point point);

/* Scores a captured sublayer or expert with all its jobs quantized by each entry, and stores the scores.  The input of
 * its first job must have been kept. */
calm_status calm_sublayer_score(calm_ctx *ctx, calm_run *p, const calm_block *block, const calm_captured *captured);

/* Scores a block's output, and output minus input, with all its jobs quantized by each entry; rows: the block's input
 * in the scoring windows. */
calm_status calm_block_score_whole(calm_ctx *ctx, calm_run *p, size_t index, const calm_batch *rows);

/* Replaces the weights and biases of a job in weight [CALM_N_ROLES] by a quantized job's, as an engine computes them:
 * weight-only schemes multiply the input scale into the weights, quantized activations divide the input by it.  New
 * arrays are in ctx->scratch. */
calm_status calm_job_replace(calm_ctx *ctx, const calm_layout *layout, size_t job, const calm_qjob *qjob,
                             calm_weight *weight);

/* Computes z [n, D], the output of the sublayer or expert before the residual, for the scoring rows, with weight
 * [CALM_N_ROLES] in which the linears of job `kind` are a candidate's. */
calm_status calm_captured_output(calm_ctx *ctx, const calm_run *p, const calm_block *block,
                                 const calm_captured *captured, calm_job_kind kind,
                                 const calm_weight weight[CALM_N_ROLES], float *z);

/* Converts scores to rows of the store; rows has room for CALM_N_SCORES.  Returns their number. */
size_t calm_scores_as_rows(const calm_score_set *set, calm_point point, calm_store_score *rows);

/* Stores the statistics of one hook point; block < 0: outside the blocks.  of_text [texts]: statistics per text, each
 * of which has a separate calibration in the store; NULL: none. */
calm_status calm_activation_keep(calm_ctx *ctx, const calm_run *p, long block, long expert, calm_hook hook,
                                 const calm_actstat_acc *acc, calm_actstat_acc *const *of_text);

/* Stores all statistics of a sublayer or an expert, in one transaction. */
calm_status calm_activations_keep(calm_ctx *ctx, const calm_run *p, size_t block, const calm_capture *capture);

/* Sets *out to whether the store has the hook points of a block (< 0: embedding and final norm), by the block's output,
 * which is stored last. */
calm_status calm_activations_kept(calm_ctx *ctx, const calm_run *p, long block, bool *out);

/* ---- weights of calibration rows (row_weights.c) ---- */

/* Computes weights of calibration rows if the recipe has them: by gradients of the float model, or for the first row of
 * each window.
 *
 * A candidate minimises sum_t w_t |E x_t|^2 over the rows x_t of its job's input, E the error of its weights.  Without
 * weights w_t is 1.  An error of row t costs the model about |g_t . E x_t|^2, where g_t is the gradient, at the job's
 * outputs, of predictions in a random direction; so rows with large gradients count more: w_t = |g_t|, clipped to a
 * factor of 32 around the mean.  First tokens have the largest gradients if all later tokens attend to them
 * (StreamingLLM, arXiv 2309.17453).
 *
 * Sets run->row_factors, in `arena`, for the blocks whose candidates this rank computes.  Fails as
 * calm_gradient_pass_run does. */
calm_status calm_run_weigh_rows(calm_ctx *ctx, calm_run *run, const calm_missing *missing, calm_arena *arena);
