/* Choose: selects one candidate per unit from the pool, and checks the choice on held-out windows.
 *
 * The guard measures the hybrid and every uniform run on windows outside the calibration set; the result is the hybrid
 * or the best uniform run. */
#pragma once

#include "ptq/search/search.h"

/* Contents of a run's file, for a recipe that asks for a size in bytes (file_size.c). */
typedef struct calm_file_budget {
    calm_pool_file pool;           /* const view of the arrays below, for the solver              */
    calm_pool_table *tables;       /* [pool.n_tables] the array of pool.tables                    */
    calm_outer_plan *outer;        /* [pool.n_tables] schemes of embedding and head               */
    uint64_t *bits;                /* the array of pool.bits                                      */
} calm_file_budget;

/* The state of choosing in a run. */
typedef struct calm_choosing {
    calm_outer_fit head;           /* statistics that the rows of a quantized head are fitted to  */
    calm_file_budget *file;        /* NULL: the recipe asks for no size                           */
    const char *cost;              /* sentence about the cost of the target's restrictions; NULL: none */
    bool drops;                    /* a finished block may drop the codes of its rejected candidates */
    bool streams;                  /* the guard runs block by block, if it can                    */
    calm_store_dropped dropped;    /* codes that were dropped from the store                      */
} calm_choosing;

/* Creates run->choosing, in ctx->out, and sets run->guard, the hooks that run the guard block by block. */
calm_status calm_choosing_open(calm_ctx *ctx, calm_run *run);

/* ---- choice and guard (choices.c, guard.c) ---- */

/* Chooses a candidate per unit and puts the choices. */
calm_status calm_run_choose(calm_ctx *ctx, calm_run *run);

/* Measures the hybrid and every uniform run on the guard windows, and sets the result. */
calm_status calm_run_guard(calm_ctx *ctx, calm_run *run);

/* Probes every unit; then for each budget finds the plan of least predicted loss, guards it, and sets the result.  With
 * one budget, choice, trials and plan are set as by calm_run_choose and calm_run_guard, and the choices put. */
calm_status calm_run_spend(calm_ctx *ctx, calm_run *run);

/* Puts the candidate that a solution takes for each job of the pool, the reason, and the activation rule's advice. */
calm_status calm_choices_put(calm_ctx *ctx, calm_store *store, int64_t run, const calm_pool *pool,
                             const calm_solution *solution);

/* Returns the index of the result among measured trials [n], the hybrid first: the trial of least mean loss; if that is
 * the hybrid, the best uniform run within one paired standard error, since it is simpler.  0: the hybrid
 * (guard_rule.c). */
size_t calm_guard_pick(const calm_trial *trials, size_t n);

/* Appends the cost of the target's restrictions (NULL: none) to a verdict, in ctx->out. */
calm_status calm_verdict_add(calm_ctx *ctx, const char *cost, const char **verdict);

/* Drops, after the results are written, the codes of all candidates that are neither chosen nor part of the result nor
 * needed by another run (calm_store_drop_rejected), unless the recipe keeps them.  If a code cannot be removed, it logs
 * a warning (drop_codes.c). */
calm_status calm_drop_rejected_codes(calm_ctx *ctx, const calm_run *run);

/* ---- trials: plans measured on windows (trials.c) ---- */

/* If the target cannot run one of the jobs of choice [n_jobs], marks the trial as missing, with the reason; it is then
 * not measured. */
calm_status calm_trial_constrain(calm_ctx *ctx, const calm_run *run, const size_t *choice, calm_trial *trial);

/* Measures trials [n] on windows.  Reads stored evaluations, measures equal plans once, skips trials that lack a
 * candidate, and computes dropped codes again.  Sets id, measure, delta and se. */
calm_status calm_trials_measure(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n,
                                const calm_windows *windows, const char *text_name, calm_stage stage);

/* Puts each measured trial as an evaluation that the run used for `role`, in one transaction. */
calm_status calm_trials_put(calm_ctx *ctx, const calm_run *run, const calm_trial *trials, size_t n, const char *role);

/* Measures the loss of every unit of this kind, quantized alone with each entry, and puts it as the score probe_kl
 * (sensitivity.c). */
calm_status calm_run_probe_all(calm_ctx *ctx, calm_run *run, calm_unit unit);

/* ---- the size of the file (file_size.c, table_probes.c) ---- */

/* Returns the plan that quantizes with one scheme every job that the target can run with it, in ctx->out.  Its jobs
 * have schemes but no codes, which is enough to compute file sizes. */
calm_status calm_run_plan_of_scheme(calm_ctx *ctx, const calm_run *run, size_t scheme, calm_plan *out);

/* If the recipe asks for a size, computes the file's size for every scheme and table choice into run->choosing->file,
 * in ctx->out; the run's pool and scope are set before.  Reads only headers and the tokenizer.  CALM_EUNSUPPORTED: the
 * format writes no weights, or refuses one by name. */
calm_status calm_run_file_open(calm_ctx *ctx, calm_run *run);

/* Returns the bytes of the largest table while it is measured. */
size_t calm_run_file_probe_bytes(const calm_run *run);

/* Computes *bytes of the files with weights if every job has this one of the recipe's schemes, with the recipe's
 * tables; and *bits of the jobs' weights, as schemes count them.  Uses the first of several formats; for a format
 * without weights, everything that is not a job counts with the float model's bytes. */
calm_status calm_run_file_of_scheme(calm_ctx *ctx, const calm_run *run, size_t scheme, size_t *bytes, double *bits);

/* Collects the statistics that a head is fitted to, unless the run has them or the recipe fits no head
 * (table_probes.c). */
calm_status calm_run_fit_head(calm_ctx *ctx, calm_run *run);

/* ---- the guard block by block (guard_rows.c) ---- */

/* Is a block's choice final when its candidates are complete?  It is if the recipe has neither probes nor a budget. */
bool calm_choice_is_final(const calm_run *run);

/* calm_guard_can_stream: can the guard run block by block?  It can if choices are final block by block and the model is
 * a decoder; encoders are small, and each sentence is measured alone.  calm_guard_streams: does it?  It does if it also
 * needs less disk (ptq/estimate). */
bool calm_guard_can_stream(const calm_run *run);
bool calm_guard_streams(const calm_run *run);

/* Releases the guard's hidden states; their file stays for a run that continues. */
void calm_guard_rows_close(calm_run *run);

/* Return, for a run with guard windows, the bytes of the guard's hidden states in memory, without a block and its pass;
 * and the peak bytes of their files on disk. */
size_t calm_guard_rows_bytes(const calm_run *run);
double calm_guard_rows_file_bytes(const calm_run *run);

/* ---- a rotated model against the unrotated baseline (rotate_guard.c) ---- */

/* The unrotated model, quantized by the same recipe up to its guard. */
typedef struct calm_baseline {
    const calm_recipe *recipe;                 /* without rotation                    */
    bool measured;
    const char *name;                          /* name of its result                  */
    calm_measure measure;                      /* its result on the guard's windows   */
    char windows[CALM_SHA256_HEX];             /* hash of these windows               */
    bool better;                               /* it becomes the result; set by calm_baseline_judge */
    const char *verdict;                       /* NULL: not compared                  */
} calm_baseline;

/* Does the recipe compare its rotation with the unrotated baseline?  It does if the guard has windows, unless
 * `keep_hybrid` is set; with a budget or several ranks it does not, and logs a warning. */
bool calm_rotation_is_judged(calm_ctx *ctx, const calm_recipe *recipe, int n_ranks);

/* Creates the unrotated baseline of a recipe that rotates, not measured yet; its recipe is in ctx->out. */
calm_status calm_baseline_of(calm_ctx *ctx, const calm_recipe *recipe, calm_baseline *out);

/* Copies the result of the baseline's run, after its guard. */
void calm_baseline_record(const calm_run *run, calm_baseline *baseline);

/* Compares the rotated run, after its guard, with the baseline, and adds the comparison to the verdict. */
calm_status calm_baseline_judge(calm_ctx *ctx, calm_run *run, calm_baseline *baseline);
