/* Parts of choosing that its files share.  Only files of this folder and their tests include this header. */
#pragma once

#include "ptq/choose/choose.h"
#include "ptq/measure/measure.h"
#include "ptq/model/row_store.h"

/* ---- the guard's rule ---- */

/* Index of the measured uniform run of least loss, whether it may replace the hybrid or not; 0: none (guard_rule.c). */
size_t calm_guard_least_uniform(const calm_trial *trials, size_t n);

/* Extend the guard to more windows while the best uniform run would win for its simplicity alone: it is behind the
 * hybrid, within one error, and another plan.  Both, and all others within an error, are measured on twice as many
 * windows each time, as far as in.guard_all has them.  Sets `more` of those trials, and *best to the pick on all
 * windows so far.  trials [n] are measured on in.guard (guard_extend.c). */
calm_status calm_guard_extend(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n, size_t *best);

/* Measure trials [n] on the guard windows, and on more where those leave the decision open.  *result = the first trial,
 * or the uniform run that the rule picks; *verdict says why, with the errors, in ctx->out (guard.c). */
calm_status calm_guard_judge(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n, size_t *result,
                             const char **verdict);

/* ---- probes of single units (sensitivity.c) ---- */

/* One unit, named by one of its jobs, quantized by one entry. */
typedef struct calm_probe {
    size_t job, entry;
} calm_probe;

/* Measure the loss (KL, or 1 - cosine) of the model with one unit of this kind quantized, on the first calibration
 * windows, and put it as the score probe_kl of the unit's candidates.  What the store has is read from there; a unit
 * with a failed candidate gets no score. */
calm_status calm_run_probe(calm_ctx *ctx, calm_run *run, calm_unit unit, const calm_probe *probes, size_t n);

/* The trial that quantizes the unit of a probe alone, by its entry; in ctx->out. */
calm_status calm_run_probe_trial(calm_ctx *ctx, const calm_run *run, calm_unit unit, const calm_probe *probe,
                             calm_trial *out);

/* Keep a loss as the score of every candidate of the probe's unit. */
calm_status calm_run_probe_keep(calm_ctx *ctx, const calm_run *run, calm_unit unit, const calm_probe *probe, int score,
                            double loss);

/* Estimate what probes measure from gradients: the loss of the model with one unit quantized, from one forward and one
 * backward pass of the float model over the held-out windows, put as the score gradient_kl of the unit's candidates.
 * Units that have the score are left out; a unit with a failed candidate gets none.  Decoders alone
 * (sensitivity_gradient.c). */
calm_status calm_run_gradient(calm_ctx *ctx, calm_run *run, calm_unit unit, const calm_probe *probes, size_t n);

/* As calm_trials_measure for some of a stage's trials.  ticks->before: what the stage has done; ticks->total 0: these
 * are all of them (trials.c). */
calm_status calm_trials_measure_part(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n,
                                     const calm_windows *windows, const char *text_name, calm_shared_tick *ticks);

/* ---- tables of a file of limited size (table_probes.c) ---- */

/* Measure what each of several tables costs alone: the loss of the model whose embedding, head, or both where they are
 * one tensor, are rounded. */
calm_status calm_run_file_probe(calm_ctx *ctx, calm_run *run);

/* Take a table: the run's recipe asks for its schemes from here on, in memory and in the store. */
calm_status calm_run_file_take(calm_ctx *ctx, calm_run *run, size_t table);

/* ---- rows of the guard next to the blocks ----
 *
 * Hidden rows of the guard's windows behind the blocks so far, of the float model, the hybrid and every uniform run.
 * Where a block's choice is final, all plans pass the block as soon as it has chosen; the codes of its rejected
 * candidates are then needed no more, and the store never has those of more than one block.  Rows are in a file next to
 * the store, written anew block by block, so that a killed run continues with them.  The measured figures have the bits
 * of an evaluation that runs the blocks itself: the same batches go through the same blocks. */

/* Class of a plan that is not followed any more. */
#define CALM_GUARD_GONE SIZE_MAX

/* A plan that is followed. */
typedef struct calm_guard_plan {
    size_t *choice;               /* [n_jobs] entries of the pool, of the blocks so far; NULL: `plan` is known */
    const calm_plan *plan;        /* in the block that is being passed at least                                */
    size_t of_class, next;        /* before and behind that block; or CALM_GUARD_GONE                          */
    char key[CALM_SHA256_HEX];    /* of the whole plan, once it is known                                       */
} calm_guard_plan;

typedef struct calm_guard_rows {
    const calm_windows *windows;
    calm_rope rope;
    const char *path, *new_path, *dir;
    char identity[CALM_SHA256_HEX];    /* of run and windows; empty: the file has no name, and no
                                        * later run continues with it                                  */
    size_t position;                   /* blocks that are passed                                     */
    size_t rows, head;                 /* of a class; of the header                                  */
    calm_row_store file;               /* at position 0 there is none                                */
    calm_guard_plan *plans;            /* [n] of the guard: the hybrid, then each uniform run        */
    size_t n;
    bool finished;                     /* behind the last block, and keys are known                  */
} calm_guard_rows;

/* Rows of n plans before the first block, in the run's arena; the plans are all zero. */
calm_status calm_guard_rows_open(calm_ctx *ctx, calm_run *p, const calm_windows *windows, size_t n,
                                 calm_guard_rows **out);

/* Continue with the file of a run that was killed.  One that cannot be read is as none: what it saves is computed
 * again. */
calm_status calm_guard_rows_load(calm_ctx *ctx, const calm_run *p, calm_guard_rows *rows);

/* Let p->guard_rows pass the next block, in which all plans are known; those that cannot leave. */
calm_status calm_guard_rows_cross(calm_ctx *ctx, const calm_run *p);

/* After the choice: pass the blocks that are left, and find the plans that the rows are of (guard_stream.c). */
calm_status calm_guard_rows_finish(calm_ctx *ctx, calm_run *p);

/* calm_guard_hooks (guard_stream.c).  begin: continue with the rows of a killed run, or begin with those of the
 * embedding when candidates are `missing`; without either there are no rows, and the guard runs the blocks itself. */
calm_status calm_guard_rows_begin(calm_ctx *ctx, calm_run *run, bool missing);

/* The candidates of the blocks up to this one are complete: plans pass the blocks that they have not passed.  A plan
 * that lacks codes there leaves, and is measured without rows.  Nothing is done without rows.  CALM_ENOSPC, CALM_EIO:
 * of the file. */
calm_status calm_guard_rows_pass(calm_ctx *ctx, calm_run *run, size_t block);

/* Does no later measurement need the rejected candidates of a block?  All plans with rows have passed it, or there is
 * no guard. */
bool calm_guard_rows_are_past(const calm_run *run, size_t block);

/* Before trials of[0 .. n) are measured on windows: pass the remaining blocks, and compute the dropped codes of plans
 * without rows again; those of more than one plan block by block, so that they are never there at once.  Fails as
 * calm_recompute_marked does (guard_recompute.c). */
calm_status calm_guard_rows_recompute(calm_ctx *ctx, calm_run *run, const calm_trial *trials, const size_t *of,
                                      size_t n, const calm_windows *windows);

/* Let a subject read its rows on these windows, if they are there: of the plan with this key, NULL: of the float model.
 * True: it has them. */
bool calm_guard_rows_of(const calm_run *run, const char *key, const calm_windows *windows, calm_subject *subject);

/* calm_guard_rows_close, and their file is removed. */
void calm_guard_rows_remove(calm_ctx *ctx, calm_run *run);

/* A block is done: let the guard's plans pass it; where nothing later needs its rejected candidates, choose for it and
 * drop their codes.  What cannot be chosen or removed yet stays.  CALM_ENOSPC, CALM_EIO: rows of the guard cannot be
 * written (drop_codes.c). */
calm_status calm_drop_block_codes(calm_ctx *ctx, calm_run *run, size_t block);
