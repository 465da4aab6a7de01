/* Choose: one candidate per unit out of the pool, and a check on held-out windows that the choice is worth it.
 *
 * The guard measures the hybrid and every uniform run on windows outside the calibration; the result is the hybrid or
 * the best uniform run. */
#pragma once

#include "ptq/search/search.h"

/* What the file of a run consists of, for a recipe that asks for a size in bytes (file_size.c). */
typedef struct calm_file_budget {
    calm_pool_file pool;
    calm_pool_table *tables;       /* [pool.n_tables] the same as pool.tables                     */
    calm_outer_plan *outer;        /* [pool.n_tables]                                             */
    uint64_t *bits;                /* the same as pool.bits                                       */
} calm_file_budget;

/* What choosing keeps for itself. */
typedef struct calm_choosing {
    calm_outer_fit head;           /* what the rows of a quantized head are fitted to             */
    calm_file_budget *file;        /* NULL: the recipe asks for no size                           */
    const char *cost;              /* what the target's restrictions cost; NULL: there are none   */
    bool drops;                    /* codes of rejected candidates may leave the store as blocks are done */
    bool streams;                  /* the guard runs next to the blocks, where it may             */
    calm_store_dropped dropped;    /* codes that left the store                                   */
} calm_choosing;

/* run->choosing, in ctx->out, and run->guard, which lets the guard run next to the blocks. */
calm_status calm_choosing_open(calm_ctx *ctx, calm_run *run);

/* ---- choice and guard (choices.c, guard.c) ---- */

/* Choose per unit and put the choices. */
calm_status calm_run_choose(calm_ctx *ctx, calm_run *run);

/* Measure the hybrid and every uniform run on the guard windows, and set the result. */
calm_status calm_run_guard(calm_ctx *ctx, calm_run *run);

/* One probe per unit, then for each budget the plan of least predicted loss, its guard, and the result.  With one
 * budget choice, trials and plan are set as by calm_run_choose and calm_run_guard, and the choices put. */
calm_status calm_run_spend(calm_ctx *ctx, calm_run *run);

/* Put the candidate that a solution takes for each job of the pool, the reason, and the activation rule's advice. */
calm_status calm_choices_put(calm_ctx *ctx, calm_store *store, int64_t run, const calm_pool *pool,
                             const calm_solution *solution);

/* Index of the result among measured trials [n], the hybrid first: the trial of least mean loss; where that is the
 * hybrid, the best uniform run within one paired standard error, since it is simpler.  0: the hybrid
 * (guard_rule.c). */
size_t calm_guard_pick(const calm_trial *trials, size_t n);

/* Append the cost of the target's restrictions (NULL: none) to a verdict, in ctx->out. */
calm_status calm_verdict_add(calm_ctx *ctx, const char *cost, const char **verdict);

/* Once the results are written: drop the codes of all candidates that are neither chosen nor of the result nor needed
 * by another run (calm_store_drop_rejected), unless the recipe keeps them.  A code that cannot be removed costs a
 * warning (drop_codes.c). */
calm_status calm_drop_rejected_codes(calm_ctx *ctx, const calm_run *run);

/* ---- trials: plans measured on windows (trials.c) ---- */

/* Mark a trial of choice [n_jobs] as missing, with the reason, if the target does not take one of its jobs; it is then
 * not measured. */
calm_status calm_trial_constrain(calm_ctx *ctx, const calm_run *run, const size_t *choice, calm_trial *trial);

/* Measure trials [n] on windows.  Those that the store has are read from there, equal plans are measured once, trials
 * that miss a candidate are left out; dropped codes are computed again.  Sets id, measure, delta and se. */
calm_status calm_trials_measure(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n,
                                const calm_windows *windows, const char *text_name, calm_stage stage);

/* Put each measured trial as an evaluation that the run used for `role`, in one transaction. */
calm_status calm_trials_put(calm_ctx *ctx, const calm_run *run, const calm_trial *trials, size_t n, const char *role);

/* Measure the loss of every unit of this kind with every entry quantized alone, as the score probe_kl (sensitivity.c).
 */
calm_status calm_run_probe_all(calm_ctx *ctx, calm_run *run, calm_unit unit);

/* ---- the size of the file (file_size.c, table_probes.c) ---- */

/* The plan that quantizes every job with one scheme, as far as the target takes it, in ctx->out.  Its jobs have schemes
 * and no codes, which is enough for a format to say what it makes of them. */
calm_status calm_run_plan_of_scheme(calm_ctx *ctx, const calm_run *run, size_t scheme, calm_plan *out);

/* When the recipe asks for a size, add up the file of every scheme and table into run->choosing->file, in ctx->out; the
 * run's pool and scope are set before.  Reads headers and the tokenizer alone.  CALM_EUNSUPPORTED: the format writes no
 * weights, or refuses one by name. */
calm_status calm_run_file_open(calm_ctx *ctx, calm_run *run);

/* Bytes that the largest table takes while it is measured. */
size_t calm_run_file_probe_bytes(const calm_run *run);

/* *bytes of the weights' files, with the recipe's tables, when every job has one of its schemes; *bits of the jobs, as
 * schemes count them.  Of several formats the first; of a format without weights the float model's bytes count for
 * what is not a job. */
calm_status calm_run_file_of_scheme(calm_ctx *ctx, const calm_run *run, size_t scheme, size_t *bytes, double *bits);

/* Collect the statistics that a head is fitted to, unless they are there or the recipe fits none (table_probes.c). */
calm_status calm_run_fit_head(calm_ctx *ctx, calm_run *run);

/* ---- the guard next to the blocks (guard_rows.c) ---- */

/* Is a block's choice final once its candidates are there?  No probes and no budget come between candidates and
 * choice. */
bool calm_choice_is_final(const calm_run *run);

/* Can the guard run next to the blocks?  Where choices are final block by block, and of decoders: encoders are small,
 * and each sentence is measured alone.  Does it?  Where that takes less disk, too (ptq/estimate). */
bool calm_guard_can_stream(const calm_run *run);
bool calm_guard_streams(const calm_run *run);

/* Release the guard's rows; their file stays for a run that continues. */
void calm_guard_rows_close(calm_run *run);

/* Bytes that the guard's rows hold besides a block and its pass: rows of a batch, names, tables; and the most that
 * their files take on disk.  Of a run with guard windows. */
size_t calm_guard_rows_bytes(const calm_run *run);
double calm_guard_rows_file_bytes(const calm_run *run);

/* ---- a rotated model against the model as given (rotate_guard.c) ---- */

/* The model as given, quantized by the same recipe up to its guard. */
typedef struct calm_baseline {
    const calm_recipe *recipe;                 /* without rotation                    */
    bool measured;
    const char *name;                          /* of its result                       */
    calm_measure measure;                      /* of that, on the guard's windows     */
    char windows[CALM_SHA256_HEX];
    bool better;                               /* calm_baseline_judge: it is the result  */
    const char *verdict;                       /* NULL: not compared                  */
} calm_baseline;

/* Does the recipe compare its rotation with the model as given?  It does when a guard has windows, unless `keep_hybrid`
 * says otherwise; with a budget or several ranks it does not, and a warning says so. */
bool calm_rotation_is_judged(calm_ctx *ctx, const calm_recipe *recipe, int n_ranks);

/* The unrotated baseline of a recipe that rotates, not measured yet; its recipe is in ctx->out. */
calm_status calm_baseline_of(calm_ctx *ctx, const calm_recipe *recipe, calm_baseline *out);

/* Copy the result of the baseline's run, after its guard. */
void calm_baseline_take(const calm_run *run, calm_baseline *baseline);

/* Compare the rotated run, after its guard, with the baseline, and say it in the verdict. */
calm_status calm_baseline_judge(calm_ctx *ctx, calm_run *run, calm_baseline *baseline);
