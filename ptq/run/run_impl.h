/* The state of a run, and the stages that work on it.  Only files of this folder and their tests include it. */
#ifndef CALM_RUN_RUN_IMPL_H
#define CALM_RUN_RUN_IMPL_H

#include "ptq/run/memory_plan.h"
#include "ptq/plan/solve.h"
#include "ptq/run/inputs.h"
#include "ptq/run/outer_rows.h"
#include "ptq/run/run.h"

/* Everything lives in the context's arenas or belongs to calm_run_close. */
struct calm_run {
    calm_inputs in;
    calm_result result;
    calm_events events;
    const char *command;
    calm_cluster *cluster;                     /* NULL: one rank                      */
    void (*failed)(calm_ctx *ctx, const calm_run *run);    /* calm_run_failed             */
    struct calm_learn_share *learn_share;      /* another rank: what it has of passes (learn_ranks.h); NULL: nothing */
    calm_store_relay relay;                    /* another rank than 0: its rows go to rank 0 */
    double divided, waited;                    /* seconds: when the blocks were; spent waiting for rows */
    bool seeding;                              /* rows are put that come from there   */
    bool output_shared;                        /* all ranks see what rank 0 writes    */
    bool several;                              /* memory is planned as for several ranks: there are, or may be */
    const calm_model *written;                 /* what was written, read back; NULL: not now */
    calm_arena *arena;                         /* what lives as long as the run       */
    calm_memory *account;                      /* whose limit it sets; NULL: none     */
    char key[CALM_SHA256_HEX], model_key[CALM_SHA256_HEX], calib_key[CALM_SHA256_HEX];
    calm_rope rope;
    float *const *row_factors;                 /* [n_blocks * CALM_N_JOBS] of [calibration rows] while candidates are
                                                * computed (row_weights.h); NULL: all are 1                       */
    int64_t *job_ids;                          /* [n_jobs] numbered as in the layout  */
    int64_t *text_ids;                         /* [texts] calibration rows of each of several; NULL: there is one */
    bool resumed;
    const calm_algorithm *fallback;            /* for experts that saw too few tokens */
    const calm_algorithm *outer;               /* for embedding and head              */
    calm_outer_fit head;                       /* what a head is fitted to            */

    calm_memory_plan memory;                     /* its knobs change no result                              */
    calm_memory_plan_held held;
    const char *spill_dir;                     /* hidden rows lie in a file there; NULL: in memory        */

    bool sheds;                                /* its stages are choice, guard and export: calm_run_shed may */
    bool follows;                              /* its guard goes on beside the blocks, where it may */
    struct calm_guard_rows *guard_rows;        /* of plans that pass them (guard_rows.h); NULL: none */
    calm_store_dropped shed;                   /* those that went                     */
    bool surveyed, computed;                   /* what the store has of the candidates is known; all are there */
    calm_pool pool;                            /* of the recipe's selection, as far as known */
    calm_scope scope;                          /* what pins and target leave to its units */
    struct calm_file_budget *file;             /* where the recipe asks for a size (file_size.h); else NULL */
    size_t *choice;                            /* [n_jobs] entry of the pool          */
    const char *cost;                          /* what the target cost; NULL: there is none */
    calm_windows eval;
};

/* As calm_run_quantize, with `stages` instead of choice, guard and export once all candidates are computed. */
typedef calm_status calm_stages_fn(calm_ctx *ctx, calm_run *run, void *user);
calm_status calm_run_stages(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                            calm_stages_fn *stages, void *user, calm_run **out);

/* Begin a run without computing: open its inputs, check what the exporter would refuse, fit the memory.  Nothing is
 * written.  Close it after a failure too. */
calm_status calm_run_open(calm_ctx *ctx, const calm_recipe *recipe, calm_run **out);

/* The recipe as the store keeps it: `all` with what the command line said instead of a recipe file and with the file
 * that says the same, which are not in the key (run_recipe.c). */
calm_status calm_run_recipe_text(calm_ctx *ctx, const calm_recipe *recipe, bool all, calm_text *out);

/* Put the recipe as it stands into the run's row: what was decided on the way is what calm assemble repeats
 * (run_recipe.c). */
calm_status calm_run_keep_recipe(calm_ctx *ctx, const calm_run *run);

/* ---- the guard between a rotated model and the one that was given (rotate_guard.c) ---- */

/* The model as given, quantized by the same recipe up to its guard. */
typedef struct calm_rival {
    const calm_recipe *recipe;                 /* without rotation                    */
    bool measured;
    const char *name;                          /* of its result                       */
    calm_measure measure;                      /* of that, on the guard's windows     */
    char windows[CALM_SHA256_HEX];
    bool better;                               /* calm_run_rival_judge: it is the result  */
    const char *verdict;                       /* NULL: not compared                  */
} calm_rival;

/* Is a recipe's rotation compared with the model as given?  It is where a guard has windows, unless `keep_hybrid` says
 * otherwise; a budget or several ranks are warned of. */
bool calm_run_judges_rotation(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options);

/* The rival of a recipe that rotates, not measured yet; its recipe is in ctx->out. */
calm_status calm_run_rival_of(calm_ctx *ctx, const calm_recipe *recipe, calm_rival *out);

/* What a run of the rival's recipe came to behind its guard. */
void calm_run_rival_take(const calm_run *run, calm_rival *rival);

/* Compare the rotated run, behind its guard, with the rival, and say it in the verdict. */
calm_status calm_run_rival_judge(calm_ctx *ctx, calm_run *run, calm_rival *rival);

/* ---- stages, in their own files ---- */

/* Put the rows of model, calibration, blocks and jobs, and compute every candidate's key (store_rows.c). */
calm_status calm_run_register(calm_ctx *ctx, calm_run *run);

/* Name of a hook point of a block (< 0: outside the blocks) or one of its experts, in ctx->out (store_rows.c). */
calm_status calm_run_hook_name(calm_ctx *ctx, const calm_run *run, long block, long expert, calm_hook hook, char **out);

/* run->calib_key: of the calibration windows; with a quantized prefix also of all that decides what the blocks before
 * choose, so that candidates and statistics of different prefixes keep apart (store_rows.c). */
calm_status calm_run_calibration_key(calm_ctx *ctx, calm_run *run);

/* Find every candidate in the store, compute what is missing block by block, and put it there (survey.c). */
calm_status calm_run_blocks(calm_ctx *ctx, calm_run *run);

/* Put bytes of one piece into the store's blobs (store_rows.c). */
calm_status calm_run_put_blob(calm_ctx *ctx, const calm_run *run, const void *bytes, size_t n_bytes,
                              char digest[CALM_SHA256_HEX]);

/* Take what a row of the store says of a candidate, but for whether it is complete (store_rows.c). */
void calm_run_adopt(calm_candidate *candidate, const calm_store_candidate *row);

/* Is the blob there, with the content that its name says?  If not, which the log then says, it is computed again
 * (survey.c). */
bool calm_run_blob_is_sound(calm_ctx *ctx, const calm_run *run, const char *digest);

/* ---- codes of losers (losers.c) ---- */

/* Does the store lack codes of a candidate whose row it has (survey.c)? */
bool calm_run_any_dropped(const calm_run *p);

/* A plan of this run asks for codes: those that were dropped are computed again by calm_run_restore, those of several
 * plans together.  Nothing to do: nothing is done.  CALM_ENUMERIC: one of them has no result this time. */
void calm_run_want(const calm_plan *plan);
calm_status calm_run_restore(calm_ctx *ctx, calm_run *p);

/* Compute candidates of a run in the store again whose codes were dropped, by their keys [n]; `recipe` is that of the
 * run.  CALM_EMISMATCH: it does not make one of them (any more). */
calm_status calm_run_recall(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options, int64_t run_id,
                            const char *const *keys, size_t n);

/* Take over the rows of all candidates, and compute those of the keys again (losers.c). */
calm_status calm_run_restore_keys(calm_ctx *ctx, calm_run *p, const char *const *keys, size_t n);

/* Is a block's choice the last word on it?  Neither probes nor a budget come between candidates and choice
 * (guard_rows.c). */
bool calm_run_settles(const calm_run *p);

/* Once a block is done: let what the guard follows pass it, and where nothing later needs its losers choose for it, and
 * drop the codes of its other candidates.  What cannot be chosen or removed yet stays (shed.c).  CALM_ENOSPC, CALM_EIO:
 * rows of the guard cannot be written. */
calm_status calm_run_shed(calm_ctx *ctx, calm_run *p, size_t block);

/* Once the results are written: drop the codes of all candidates that are not chosen, not of the result, and not needed
 * by another run (calm_store_drop_losers), unless the recipe keeps them.  What cannot be removed costs a warning. */
calm_status calm_run_drop_losers(calm_ctx *ctx, const calm_run *p);

/* Choose per unit and put the choices (choices.c); then measure the hybrid and every uniform run on the guard windows
 * and settle on the result (guard.c). */
calm_status calm_run_choose(calm_ctx *ctx, calm_run *run);
calm_status calm_run_guard(calm_ctx *ctx, calm_run *run);

/* The guard's rule over measured trials [n], the hybrid first: the least mean loss, but of what is within one paired
 * standard error of the hybrid where that has the least a uniform run, the best of those.  0: the hybrid
 * (guard_rule.c). */
size_t calm_guard_pick(const calm_trial *trials, size_t n);

/* The measured uniform run of least loss, whether it may replace the hybrid or not; 0: none (guard_rule.c). */
size_t calm_guard_least_uniform(const calm_trial *trials, size_t n);

/* While the best uniform run is the pick for its simplicity alone, that is behind the hybrid, within an error, and
 * another plan: measure both, and all others within an error, on more windows, twice as many each time, as far as
 * in.guard_all has them.  Sets `more` of those, and *best to the pick on all windows so far; without need neither is
 * touched.  trials [n] are measured on in.guard (guard_more.c). */
calm_status calm_guard_look_again(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n, size_t *best);

/* Measure trials [n] on the guard windows, and where they leave it open on more; *result = the first, or the uniform
 * run that the rule picks; *verdict says why, with the errors, in ctx->out (guard.c). */
calm_status calm_guard_judge(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n, size_t *result,
                             const char **verdict);

/* Append the cost of the target's restrictions (NULL: none) to a verdict, in ctx->out (guard.c). */
calm_status calm_verdict_add(calm_ctx *ctx, const char *cost, const char **verdict);

/* Crest factor of a job's input: median over tokens of max|x| / rms(x); NaN when the store does not know
 * (activations.c). */
double calm_run_crest(calm_ctx *ctx, const calm_run *run, size_t job);

/* Put the candidate that a solution takes for each job of the pool, the reason, and the activation rule's advice
 * (choices.c). */
calm_status calm_choices_put(calm_ctx *ctx, calm_store *store, int64_t run, const calm_pool *pool,
                             const calm_solution *solution);

/* One probe per unit, then for each budget the plan of least predicted loss, its guard, and the result.  With one
 * budget choice, trials and plan are set as by choice and guard, and the choices put (choices.c). */
calm_status calm_run_spend(calm_ctx *ctx, calm_run *run);

/* Learn the blocks of the result, as the recipe asks, measure what came of it beside it on the guard windows, and make
 * it the result if the guard's rule says so (learn.c). */
calm_status calm_run_learn(calm_ctx *ctx, calm_run *run);

/* Before any work: what learning takes or would take, into run->result.learned (learn.c).  Where the recipe asks for
 * it: CALM_EARG of too few windows; warnings of few, and of nothing to learn. */
calm_status calm_run_foresee_learning(calm_ctx *ctx, calm_run *run);

/* ---- sensitivity: probes of single units (sensitivity.c) ---- */

/* One unit, by one of its jobs, quantized by one entry. */
typedef struct calm_probe {
    size_t job, entry;
} calm_probe;

/* Measure the loss (KL, or 1 - cosine) of the model with one unit of this kind quantized, on the first calibration
 * windows, and put it as the score probe_kl of the unit's candidates.  What the store has is read from there; a unit
 * with a failed candidate gets no score. */
calm_status calm_run_probe(calm_ctx *ctx, calm_run *run, calm_unit unit, const calm_probe *probes, size_t n);

/* The trial in which the unit of a probe alone is quantized by its entry; in ctx->out. */
calm_status calm_run_probe_trial(calm_ctx *ctx, const calm_run *run, calm_unit unit, const calm_probe *probe,
                             calm_trial *out);

/* Keep a loss as the score of every candidate of the probe's unit. */
calm_status calm_run_probe_keep(calm_ctx *ctx, const calm_run *run, calm_unit unit, const calm_probe *probe, int score,
                            double loss);

/* The same for every unit and entry. */
calm_status calm_run_probe_all(calm_ctx *ctx, calm_run *run, calm_unit unit);

/* ---- trials (trials.c) ---- */

/* Progress of several measurements as that of one: `before` units of `total` were done when this one began. */
typedef struct calm_shared_tick {
    calm_tick_fn *fn;    /* NULL: nothing is reported */
    void *user;
    size_t before, total;
} calm_shared_tick;

/* Mark a trial of choice [n_jobs] as missing, with the reason, if the target does not take one of its jobs: it is then
 * not measured. */
calm_status calm_trial_constrain(calm_ctx *ctx, const calm_run *run, const size_t *choice, calm_trial *trial);

/* Measure trials [n] on windows.  Those that the store has are read from there, equal plans are measured once, trials
 * that miss a candidate are left out; codes that were dropped are computed again.  Sets id, measure, delta and se. */
calm_status calm_trials_measure(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n,
                                const calm_windows *windows, const char *text_name, calm_stage stage);

/* The same for some of a stage's trials.  ticks->before: what the stage has done; ticks->total 0: these are all. */
calm_status calm_trials_measure_part(calm_ctx *ctx, calm_run *run, calm_trial *trials, size_t n,
                                     const calm_windows *windows, const char *text_name, calm_shared_tick *ticks);

/* At most so many trials are in memory at once. */
#define CALM_TRIALS_AT_ONCE ((size_t)12)

/* Put each measured trial as an evaluation that the run used for `role`, in one transaction. */
calm_status calm_trials_put(calm_ctx *ctx, const calm_run *run, const calm_trial *trials, size_t n, const char *role);

/* ---- the end ---- */

/* Collect what a head is fitted to, unless it is there or the recipe fits none (table_probes.c). */
calm_status calm_run_fit_head(calm_ctx *ctx, calm_run *run);

/* Write the checkpoint under a temporary name, evaluate what was written, add card and recipe, and give it its name;
 * put its files as artifacts (finish.c). */
calm_status calm_run_export(calm_ctx *ctx, calm_run *run);

/* Measure the results of several budgets, and the float model, on the evaluation's text (finish.c). */
calm_status calm_run_test_budgets(calm_ctx *ctx, calm_run *run);

/* Read the evaluation's text into run->eval and the result's facts (finish.c). */
calm_status calm_run_read_eval(calm_ctx *ctx, calm_run *run);

/* ---- evaluations (evaluations.c) ---- */

/* Read the evaluation of `subject_key` on these windows from the store, or write it there.  find: *id is 0, and *out
 * unchanged, when the store has none. */
calm_status calm_run_find_evaluation(calm_ctx *ctx, const calm_run *run, const char *subject_key,
                                     const calm_windows *windows, calm_measure *out, int64_t *id);
calm_status calm_run_put_evaluation(calm_ctx *ctx, const calm_run *run, const char *subject_key, const char *subject,
                                    const char *text_name, const calm_windows *windows, const calm_measure *measure,
                                    int64_t *id);

/* ---- where the result differs (divergence.c) ---- */

/* So many of the tokens that differ most are kept of a final evaluation. */
#define CALM_RUN_WORST ((size_t)50)

/* As calm_run_measure on run->eval, and of a decoder where the subject differs: of an encoder *worst is all zero. */
calm_status calm_run_measure_test(calm_ctx *ctx, const calm_run *run, calm_measure *reference_measure,
                                  const calm_subject *subject, calm_measure *measure, calm_tick_fn *fn, void *user,
                                  calm_eval_worst *worst);

/* Put that beside an evaluation on run->eval; nothing where no token was predicted. */
calm_status calm_run_put_divergence(calm_ctx *ctx, const calm_run *run, const calm_eval_worst *worst,
                                    int64_t evaluation_id);

/* A calm_tick_fn; `user` is a calm_shared_tick. */
void calm_run_tick_shared(void *user, size_t done, size_t total);

/* Measure subjects [n <= CALM_TRIALS_AT_ONCE] against the float model: a decoder by predictions, an encoder by sentence
 * embeddings.  `reference_measure` (NULL: not wanted) gets the float model's own (encoders.c). */
calm_status calm_run_measure(calm_ctx *ctx, const calm_run *run, calm_measure *reference_measure,
                             const calm_subject *subjects, size_t n, calm_measure *measures,
                             const calm_windows *windows, calm_tick_fn *fn, void *user);

#endif
