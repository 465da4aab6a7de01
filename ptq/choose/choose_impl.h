/* Private parts of choosing.  Only this folder and its tests include this file. */
#pragma once

#include "ptq/choose/choose.h"
#include "ptq/layers/row_store.h"
#include "ptq/measure/measure.h"

/* ---- the guard's rule ---- */

/* Returns the index of the measured uniform run of least loss, whether or not it may replace the hybrid; 0: none
 * (guard_rule.c). */
size_t calm_guard_least_uniform(const calm_trial *trials, size_t n);

/* Extends the guard to more windows while the best uniform run would win only because it is simpler: its loss is higher
 * than the hybrid's, but within one standard error, and it is a different plan.  Each round measures both, and all
 * others within an error, on twice as many windows, up to those of in.guard_all.  Sets `more` of these trials, and
 * *best to the pick on all windows so far.  trials [n] are measured on in.guard (guard_extend.c). */
calm_status calm_guard_extend(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n, size_t *best);

/* Measures trials [n] on the guard windows, and on more if these do not decide.  *result is the first trial, or the
 * uniform run that the rule picks; *verdict says why, with the errors, in ctx->out (guard.c). */
calm_status calm_guard_judge(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n, size_t *result,
                             const char **verdict);

/* ---- probes of single units (sensitivity.c) ---- */

/* A unit, named by one of its jobs, and the pool entry that quantizes it. */
typedef struct calm_probe {
    size_t job, entry;
} calm_probe;

/* Measures the loss (KL, or 1 - cosine) of the model with one unit of this kind quantized, on the first calibration
 * windows, and puts it as the score probe_kl of the unit's candidates.  Reads stored measurements; a unit with a failed
 * candidate gets no score. */
calm_status calm_run_probe(calm_ctx *ctx, calm_run *run, calm_unit unit, const calm_probe *probes, size_t n);

/* Returns the trial that quantizes only the unit of a probe, by its entry; in ctx->out. */
calm_status calm_run_probe_trial(calm_ctx *ctx, const calm_run *run, calm_unit unit, const calm_probe *probe,
                             calm_trial *out);

/* Puts a loss as the score of every candidate of the probe's unit. */
calm_status calm_run_probe_keep(calm_ctx *ctx, const calm_run *run, calm_unit unit, const calm_probe *probe, int score,
                            double loss);

/* Estimates from gradients what calm_run_probe measures, with one forward and one backward pass of the float model over
 * the held-out windows, and puts it as the score gradient_kl of the unit's candidates.  Skips units that have the
 * score; a unit with a failed candidate gets none.  Decoders only (sensitivity_gradient.c). */
calm_status calm_run_gradient(calm_ctx *ctx, calm_run *run, calm_unit unit, const calm_probe *probes, size_t n);

/* Does what calm_trials_measure does for some trials of a stage.  ticks->before: progress of the stage so far;
 * ticks->total 0: these trials are the whole stage (trials.c). */
calm_status calm_trials_measure_part(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n,
                                     const calm_windows *windows, const char *text_name, calm_shared_tick *ticks);

/* ---- embedding and head of a file of limited size (table_probes.c) ---- */

/* Measures the loss of each table choice alone: the model is float except for its rounded embedding, head, or both if
 * they are one tensor. */
calm_status calm_run_file_probe(calm_ctx *ctx, calm_run *run);

/* Takes a table choice: the run's recipe then asks for its schemes, in memory and in the store. */
calm_status calm_run_file_take(calm_ctx *ctx, calm_run *run, size_t table);

/* ---- the guard's hidden states, updated block by block ----
 *
 * Hidden states of the guard's windows after the blocks so far, in the float model, the hybrid and every uniform run.
 * If choices are final block by block, all these plans run a block as soon as its choice is made.  The codes of its
 * rejected candidates are then not needed again, so the store never holds those of more than one block.  The hidden
 * states are in a file next to the store, which is written again for each block, so that a killed run continues with
 * it.  The measured figures have the same bits as an evaluation that runs all blocks, because the same batches run
 * through the same blocks. */

/* Class of a plan that was dropped: the guard measures it by running all blocks. */
#define CALM_GUARD_GONE SIZE_MAX

/* A plan whose hidden states are in the file.  Plans that are equal so far form a class and share the states. */
typedef struct calm_guard_plan {
    size_t *choice;               /* [n_jobs] entries of the pool for the blocks so far; NULL: `plan` is set   */
    const calm_plan *plan;        /* complete at least in the block that is being run                          */
    size_t of_class, next;        /* class before and after that block, or CALM_GUARD_GONE                     */
    char key[CALM_SHA256_HEX];    /* key of the whole plan, once it is known                                   */
} calm_guard_plan;

typedef struct calm_guard_rows {
    const calm_windows *windows;
    calm_rope rope;
    const char *path, *new_path, *dir;
    char identity[CALM_SHA256_HEX];    /* hash of run and windows; empty: the file has no name, and no
                                        * later run continues with it                                  */
    size_t position;                   /* number of blocks that the states have passed               */
    size_t rows, head;                 /* rows of a class; rows that the header takes                */
    calm_row_store file;               /* the states; not open at position 0                         */
    calm_guard_plan *plans;            /* [n] the guard's plans: the hybrid, then each uniform run   */
    size_t n;
    bool finished;                     /* the last block is passed, and keys are known               */
} calm_guard_rows;

/* Creates the hidden states of n plans before the first block, in the run's arena; the plans are all zero. */
calm_status calm_guard_rows_open(calm_ctx *ctx, calm_run *p, const calm_windows *windows, size_t n,
                                 calm_guard_rows **out);

/* Continues with the file of a killed run.  A file that cannot be read is ignored; its content is computed again. */
calm_status calm_guard_rows_load(calm_ctx *ctx, const calm_run *p, calm_guard_rows *rows);

/* Runs p->guard_rows through the next block, in which all plans are known; a plan that lacks codes is dropped. */
calm_status calm_guard_rows_cross(calm_ctx *ctx, const calm_run *p);

/* Runs the remaining blocks after the choice, and computes the keys of the plans (guard_stream.c). */
calm_status calm_guard_rows_finish(calm_ctx *ctx, calm_run *p);

/* Hook `begin` of calm_guard_hooks (guard_stream.c): continues with the hidden states of a killed run, or if candidates
 * are `missing` begins with the embeddings; else there are no states, and the guard runs the blocks itself. */
calm_status calm_guard_rows_begin(calm_ctx *ctx, calm_run *run, bool missing);

/* Runs the plans through the blocks up to this one, whose candidates are complete.  A plan that lacks codes there is
 * dropped, and measured without stored states.  Does nothing if there are no states.  CALM_ENOSPC, CALM_EIO: the file
 * cannot be written. */
calm_status calm_guard_rows_pass(calm_ctx *ctx, calm_run *run, size_t block);

/* Do later measurements not need the rejected candidates of a block, because all plans with states have passed it, or
 * there is no guard? */
bool calm_guard_rows_are_past(const calm_run *run, size_t block);

/* Prepares the measurement of trials of[0 .. n) on windows: runs the remaining blocks, and computes the dropped codes
 * of plans without states again.  If these are several plans, it does so block by block, so that the codes of all
 * blocks are never stored at once.  Fails as calm_recompute_marked does (guard_recompute.c). */
calm_status calm_guard_rows_recompute(calm_ctx *ctx, calm_run *run, const calm_trial *trials, const size_t *of,
                                      size_t n, const calm_windows *windows);

/* Gives a subject its stored hidden states on these windows: those of the plan with this key, or (NULL) of the float
 * model.  Returns false if there are none. */
bool calm_guard_rows_of(const calm_run *run, const char *key, const calm_windows *windows, calm_subject *subject);

/* Does calm_guard_rows_close and removes the file. */
void calm_guard_rows_remove(calm_ctx *ctx, calm_run *run);

/* Finishes a block: runs the guard's plans through it; if nothing later needs its rejected candidates, chooses for it
 * and drops their codes.  Codes stay if the choice or the removal is not possible yet.  CALM_ENOSPC, CALM_EIO: the
 * guard's hidden states cannot be written (drop_codes.c). */
calm_status calm_drop_block_codes(calm_ctx *ctx, calm_run *run, size_t block);
