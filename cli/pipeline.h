/* Pipeline: the one place that knows the order of stages.
 *
 *   open -> text -> per block: capture, quantize, score, keep -> choose -> guard -> assemble, export -> evaluate
 *
 * It is a library function, so tests drive it without a process. */
#ifndef CALM_CLI_PIPELINE_H
#define CALM_CLI_PIPELINE_H

#include "cli/memory_plan.h"
#include "cli/progress.h"
#include "cli/recipe.h"
#include "cli/solve.h"
#include "ptq/eval/encode.h"
#include "ptq/eval/evaluate.h"
#include "ptq/hybrid/plan.h"
#include "ptq/io/tokenizer.h"
#include "ptq/model/model.h"
#include "store/store.h"

typedef enum calm_stage {
    CALM_STAGE_CALIBRATE,
    CALM_STAGE_QUANTIZE,
    CALM_STAGE_SCORE,
    CALM_STAGE_PROBE,
    CALM_STAGE_CHOOSE,
    CALM_STAGE_ASSEMBLE,
    CALM_STAGE_EVALUATE,
    CALM_N_STAGES
} calm_stage;

/* One entry of the pool on one job, as the store has it. */
typedef struct calm_candidate {
    char key[CALM_SHA256_HEX];
    int64_t id;                                /* 0: not in the store                 */
    char blob[CALM_SHA256_HEX];                /* empty when it failed                */
    const char *failure;                       /* NULL: it succeeded                  */
    bool skipped;                              /* not tried; failure says why         */
    calm_score_set scores;
    double bits_per_weight;
    double seconds;                            /* it took; 0: unknown                 */
    bool todo;                                 /* to be computed in this run          */
} calm_candidate;

/* A choice for every job that is measured end to end. */
typedef struct calm_trial {
    const char *name;            /* "hybrid", an entry of the pool                       */
    calm_plan plan;
    char key[CALM_SHA256_HEX];   /* digest over its candidates                          */
    const char *lacks;           /* why there is no such plan: a candidate that failed; NULL: there is */
    double bits_per_weight;
    int64_t id;                  /* evaluation; 0: not measured                          */
    calm_eval_result eval;
    double delta, se;            /* mean KL minus the first trial's, paired standard error; NaN for the first */
} calm_trial;

/* What a budget came to. */
typedef struct calm_pareto {
    double budget;
    calm_trial *trials;         /* [n_trials] the hybrid first, then uniform runs that fit */
    size_t n_trials, result;    /* the one that holds                                      */
    const char *verdict;
    calm_share_total total;     /* what the hybrid loses, and lost to the target            */
    calm_trial test;            /* the result on the evaluation's text                     */
} calm_pareto;

/* A job that no pin is about. */
#define CALM_NO_PIN SIZE_MAX

/* A job that a choice leaves as it is. */
#define CALM_STAYS_FLOAT SIZE_MAX

/* The state of a run; everything lives in the context's arenas or belongs to `calm_pipeline_close`. */
typedef struct calm_pipeline {
    const calm_recipe *recipe;
    const char *command;                       /* as typed                            */
    calm_progress *progress;
    calm_arena *arena;                         /* what lives as long as the run       */

    calm_model *model;
    calm_tokenizer *tokenizer;
    calm_store *store;
    calm_rope rope;
    char model_key[CALM_SHA256_HEX], calib_key[CALM_SHA256_HEX];
    int64_t model_id, calibration_id, run_id;
    int64_t *job_ids;                          /* [n_jobs] numbered as in the layout  */
    bool resumed, evaluates;
    size_t first_block, end_block;             /* blocks to quantize: first .. end - 1 */
    const calm_algorithm *fallback;            /* for experts that saw too few tokens */

    calm_memory_plan memory;                   /* its knobs change no result                              */
    calm_memory_plan_held held;
    const char *spill_dir;                     /* hidden rows lie in a file there; NULL: in memory        */

    calm_windows calib, guard;
    calm_candidate *candidates;                /* [n_jobs][n_pool]                    */
    size_t n_cached;                           /* candidates found in the store       */

    calm_constraint constraint;                /* what the recipe's target leaves     */
    size_t *pinned;                            /* [n_jobs] entry that a pin says, or CALM_NO_PIN */
    size_t *choice;                            /* [n_jobs] entry of the pool          */
    calm_plan result;                          /* what is exported                    */
    calm_trial *trials;                        /* [n_trials] of the guard, the hybrid first */
    size_t n_trials;
    calm_pareto *pareto;                       /* [n_budgets] with several budgets    */
    const char *result_name, *verdict;         /* "hybrid" or an algorithm; the guard's sentence */

    double bits_per_weight;                    /* of the quantized linears            */
    int64_t bytes_before, bytes_after;
    calm_windows eval;
    calm_eval_result eval_float, eval_result;
    double *gate_values;                       /* [n_gates] measured; NULL: not yet   */
    calm_embedding_result eval_encoding;       /* of an encoder's result              */
    const calm_json *stored_recipe;            /* to write beside the weights; NULL: `recipe` */
    double seconds;
    double score_seconds;                      /* of all threads together             */
} calm_pipeline;

/* Run a recipe from start to end.  `out` must be closed also after a failure, which is recorded in the store as far
 * as it got.  Fails as its stages do; nothing half-written stays under the output's name. */
calm_status calm_pipeline_run(calm_ctx *ctx, const calm_recipe *recipe, const char *command, calm_progress *progress,
                              calm_pipeline *out);
void calm_pipeline_close(calm_pipeline *pipeline);

/* Put the failure of ctx as the run's end, keeping its message; the store may be what failed.  For what follows a run. */
void calm_pipeline_failed(calm_ctx *ctx, const calm_pipeline *p);

/* The same with other stages after the candidates are there: what they do with them is theirs. */
typedef calm_status calm_stages_fn(calm_ctx *ctx, calm_pipeline *p, void *user);
calm_status calm_pipeline_stages(calm_ctx *ctx, const calm_recipe *recipe, const char *command, calm_progress *progress,
                                 calm_stages_fn *stages, void *user, calm_pipeline *out);

/* The beginning of a run alone: open everything, check what the exporter would refuse, fit the memory.  Nothing is
 * written.  Close also after a failure. */
calm_status calm_pipeline_open(calm_ctx *ctx, const calm_recipe *recipe, calm_pipeline *out);

/* Open the tokenizer of the recipe's model into p->tokenizer.  With --tokens one that calm cannot read costs the words in
 * the reports and the evaluation, not the run: it is NULL then. */
calm_status calm_pipeline_open_tokenizer(calm_ctx *ctx, calm_pipeline *p);

/* Read the recipe's calibration text into ctx->out: calibration windows first, guard windows after them, of one reading,
 * so that they cannot overlap.  Needs p->recipe, p->model and, for a text, p->tokenizer.  The failures of
 * calm_windows_read and calm_token_file_read. */
calm_status calm_pipeline_read_windows(calm_ctx *ctx, const calm_pipeline *p, calm_windows *calib, calm_windows *guard);

/* The candidate of an entry of the pool on a job. */
calm_candidate *calm_pipeline_candidate(const calm_pipeline *p, size_t job, size_t entry);

/* Jobs first .. end - 1 of the layout are to be quantized (--blocks); the others stay float. */
void calm_pipeline_jobs(const calm_pipeline *p, size_t *first, size_t *end);

/* ---- stages, in their own files ---- */

/* Put the rows of model, calibration, blocks and jobs, and compute every candidate's key (register.c). */
calm_status calm_pipeline_register(calm_ctx *ctx, calm_pipeline *p);

/* Name of a hook point of a block or one of its experts, in ctx->out (register.c). */
calm_status calm_pipeline_hook_name(calm_ctx *ctx, const calm_pipeline *p, size_t block, long expert, calm_hook hook,
                                    char **out);

/* p->calib_key: of the calibration windows; with a quantized prefix also of all that decides what the blocks before choose,
 * so that candidates and statistics of different prefixes keep apart (register.c). */
calm_status calm_pipeline_calibration_key(calm_ctx *ctx, calm_pipeline *p);

/* Find every candidate in the store, compute what is missing block by block, and put it there (blocks.c). */
calm_status calm_pipeline_blocks(calm_ctx *ctx, calm_pipeline *p);

/* Choose per unit and put the choices (choose.c); then measure the hybrid and every uniform run on the guard windows and
 * settle on the result (guard.c). */
calm_status calm_pipeline_choose(calm_ctx *ctx, calm_pipeline *p);
calm_status calm_pipeline_guard(calm_ctx *ctx, calm_pipeline *p);

/* Measure trials [n] on the guard windows; *result = the first, or the uniform run that is better by more than two paired
 * standard errors; *verdict says so, in ctx->out (guard.c). */
calm_status calm_guard_judge(calm_ctx *ctx, calm_pipeline *p, calm_trial *trials, size_t n, size_t *result,
                             const char **verdict);

/* The entry among pool entries first .. first + n - 1 that a selection takes for the unit of `job`, and why, in ctx->out.
 * CALM_ENUMERIC: every candidate failed. CALM_EARG: there are too few rows for the score (choose.c). */
calm_status calm_pipeline_select(calm_ctx *ctx, const calm_pipeline *p, const calm_selection *selection, size_t job,
                                 size_t first, size_t n, size_t *entry, char **reason);

/* The same for every unit of jobs first .. end - 1, into choice [n_jobs] and reasons [n_jobs] (NULL: not wanted). */
calm_status calm_pipeline_select_all(calm_ctx *ctx, const calm_pipeline *p, const calm_selection *selection,
                                     size_t first, size_t end, size_t *choice, const char **reasons);

/* Crest of a job's input: median over tokens of max|x| / rms(x); NaN when the store does not know. */
double calm_pipeline_crest(calm_ctx *ctx, const calm_pipeline *p, size_t job);

/* Put p->choice[job] with its reason, and what the activation rule says of it. */
calm_status calm_pipeline_put_choice(calm_ctx *ctx, const calm_pipeline *p, size_t job, const char *reason);

/* ---- probes (probe.c) ---- */

/* One unit, by one of its jobs, quantized by one entry. */
typedef struct calm_probe {
    size_t job, entry;
} calm_probe;

/* Measure KL(float || .) with one unit of this kind quantized, on the first calibration windows, into the scores
 * of its candidates; what is in the store is taken from there.  A unit with a failed candidate has none. */
calm_status calm_pipeline_probe(calm_ctx *ctx, calm_pipeline *p, calm_unit unit, const calm_probe *probes, size_t n);

/* The same for every unit and entry. */
calm_status calm_pipeline_probe_all(calm_ctx *ctx, calm_pipeline *p, calm_unit unit);

/* ---- budgets of bits (bits.c) ---- */

/* CALM_EARG: a budget below the smallest or above the largest plan. */
calm_status calm_pipeline_check_budgets(calm_ctx *ctx, const calm_pipeline *p);

/* One probe per unit, then for each budget the plan of least predicted loss, its guard, and the result.  With one budget
 * p->choice, p->trials and p->result are set as by choice and guard, and the choices put. */
calm_status calm_pipeline_share_bits(calm_ctx *ctx, calm_pipeline *p);

/* ---- the target (constrain.c) ---- */

/* p->constraint of the recipe's target; schemes that no job can have leave the recipe, which is then a copy.  Pins are
 * there.  CALM_EARG: a unit is left without a scheme. */
calm_status calm_pipeline_constrain(calm_ctx *ctx, calm_pipeline *p);

/* May a job have a scheme of the recipe, in the run's blocks? */
bool calm_pipeline_takes(const calm_pipeline *p, size_t job, size_t scheme);

/* A trial of choice [n_jobs] that the target would not take lacks the first job of that kind: it is not measured. */
calm_status calm_trial_constrain(calm_ctx *ctx, const calm_pipeline *p, const size_t *choice, calm_trial *trial);

/* Add what the target cost to a verdict, in ctx->out; total NULL: nothing was to choose.  Without a target nothing. */
calm_status calm_pipeline_say_cost(calm_ctx *ctx, const calm_pipeline *p, const calm_share_total *total,
                                   const char **verdict);

/* ---- plans and trials (trials.c) ---- */

/* The plan of choice [n_jobs]: entries of the pool, or CALM_STAYS_FLOAT. */
calm_status calm_pipeline_plan(calm_ctx *ctx, const calm_pipeline *p, const size_t *choice, calm_plan *out);

/* choice [n_jobs] = `entry` for the jobs of the run, float for the others; in ctx->out. */
calm_status calm_pipeline_uniform(calm_ctx *ctx, const calm_pipeline *p, size_t entry, size_t **choice);

/* p->pinned from the recipe's pins: a unit's name counts more than a pattern.  CALM_EARG: a pin that is about no unit of the
 * run, with the nearest name; patterns that say different things of one (pins.c). */
calm_status calm_pipeline_pin(calm_ctx *ctx, calm_pipeline *p);

/* The entry that a pin says for a job, or CALM_NO_PIN; also before calm_pipeline_pin (pins.c). */
size_t calm_pipeline_pinned(const calm_pipeline *p, size_t job);

/* As calm_pipeline_uniform, but pinned jobs keep what their pins say (pins.c). */
calm_status calm_pipeline_uniform_pinned(calm_ctx *ctx, const calm_pipeline *p, size_t entry, size_t **choice);

/* Weights of jobs first .. end - 1; `active`: those that one token meets, of a mixture its share of the experts. */
double calm_pipeline_weights(const calm_pipeline *p, size_t first, size_t end, bool active);

/* Bits that a plan takes for a job with scales and zeros; and per weight of all quantized linears, NaN for none. */
double calm_pipeline_job_bits(const calm_pipeline *p, size_t job, const calm_scheme *scheme);
double calm_pipeline_plan_bits(const calm_pipeline *p, const calm_plan *plan);

/* A trial of choice [n_jobs], not measured yet. */
calm_status calm_trial_new(calm_ctx *ctx, const calm_pipeline *p, const char *name, const size_t *choice,
                           calm_trial *out);

/* Measure trials [n] on windows: what the store has is taken from there, equal plans are measured once, those that lack a
 * candidate are left out.  Sets id, eval, delta and se. */
calm_status calm_trials_measure(calm_ctx *ctx, const calm_pipeline *p, calm_trial *trials, size_t n,
                                const calm_windows *windows, const char *text_name, calm_tick_fn *tick, void *user);

/* At most so many trials are in memory at once. */
#define CALM_TRIALS_AT_ONCE ((size_t)12)

/* Put each measured trial as an evaluation that the run used for `role`, in one transaction. */
calm_status calm_trials_put(calm_ctx *ctx, const calm_pipeline *p, const calm_trial *trials, size_t n, const char *role);

/* Write the checkpoint under a temporary name, evaluate what was written, add card and recipe, and give it its name; put
 * its files as artifacts (finish.c). */
calm_status calm_pipeline_export(calm_ctx *ctx, calm_pipeline *p);

/* The two halves of it: the directory, with `evaluate` (NULL: not wanted) before the card is written, and the rows.  `tick`
 * hears of blocks, with `p`.  Sets bytes_before, bytes_after, bits_per_weight. */
typedef calm_status calm_evaluate_fn(calm_ctx *ctx, calm_pipeline *p, const char *dir);
calm_status calm_checkpoint_write(calm_ctx *ctx, calm_pipeline *p, calm_tick_fn *tick, calm_evaluate_fn *evaluate);
calm_status calm_checkpoint_put(calm_ctx *ctx, const calm_pipeline *p);

/* Read the evaluation's text into p->eval (finish.c). */
calm_status calm_pipeline_read_eval(calm_ctx *ctx, calm_pipeline *p);

/* The figures of an encoder's evaluation of the store into p->eval_encoding.  CALM_EFORMAT: it has none (finish.c). */
calm_status calm_pipeline_find_encoding(calm_ctx *ctx, calm_pipeline *p, int64_t id);

/* Measure the results of several budgets, and the float model, on the evaluation's text (finish.c). */
calm_status calm_pipeline_test_budgets(calm_ctx *ctx, calm_pipeline *p);

/* Digest over the candidates of a plan: the subject of its evaluations (trials.c). */
calm_status calm_pipeline_plan_key(calm_ctx *ctx, const calm_plan *plan, char key[CALM_SHA256_HEX]);

/* An evaluation of the store as a result, and the other way (evaluations.c).  find: *id is 0 when absent. */
calm_status calm_pipeline_find_evaluation(calm_ctx *ctx, const calm_pipeline *p, const char *subject_key,
                                          const calm_windows *windows, calm_eval_result *out, int64_t *id);
calm_status calm_pipeline_put_evaluation(calm_ctx *ctx, const calm_pipeline *p, const char *subject_key,
                                         const char *subject, const char *text_name, const calm_windows *windows,
                                         const calm_eval_result *result, int64_t *id);

/* Is the model an encoder?  Windows of a text: of an encoder's, its sentences (encoders.c). */
bool calm_pipeline_encodes(const calm_pipeline *p);
calm_status calm_pipeline_read_text(calm_ctx *ctx, const calm_pipeline *p, const char *path,
                                    const calm_windows_options *options, calm_windows *out);

/* Evaluate subjects [n] against the float model: by predictions, or by sentence embeddings; then `kl` is 1 - cosine, `nll`
 * the relative error, `top1` the rank correlation, and `distances` [n] (NULL: not wanted) has all of it (encoders.c). */
calm_status calm_pipeline_measure(calm_ctx *ctx, const calm_pipeline *p, calm_eval_result *reference_result,
                                  const calm_subject *subjects, size_t n, calm_eval_result *results,
                                  calm_embedding_result *distances, const calm_windows *windows, calm_tick_fn *fn,
                                  void *user);

#endif
