/* Result of a run: what reports, cards, gates and locks read. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/base/times.h"
#include "ptq/data/windows.h"
#include "ptq/io/safetensors.h"
#include "ptq/plan/allocate.h"
#include "ptq/plan/limits.h"
#include "ptq/plan/plan.h"
#include "ptq/recipe/recipe.h"
#include "ptq/state/measurement.h"
#include "store/store.h"

/* Figures of a trial of the guard on more windows: the first windows, and further ones. */
typedef struct calm_trial_more {
    size_t windows;              /* in all; 0: not needed                                                   */
    int64_t id;                  /* evaluation                                                              */
    calm_measure measure;
    double delta, se;            /* as below, on these windows                                              */
} calm_trial_more;

/* A choice for every job, measured end to end. */
typedef struct calm_trial {
    const char *name;            /* "hybrid", an entry of the pool                                          */
    calm_plan plan;
    char key[CALM_SHA256_HEX];   /* digest over its candidates                                              */
    const char *missing;         /* why this plan does not exist: a candidate that failed; NULL: it exists   */
    const char *substituted;     /* units of a uniform run whose candidates failed, and the substitutes; NULL:
                                  * none                                                                     */
    double bits_per_weight, act_bits;    /* act_bits: mean over weights of what they are multiplied by       */
    int64_t id;                  /* evaluation; 0: not measured                                             */
    calm_measure measure;
    double delta, se;            /* mean loss minus the first trial's, paired standard error; NaN: none      */
    calm_trial_more more;        /* for the hybrid and trials within one standard error of it               */
} calm_trial;

/* The result for one budget of bits. */
typedef struct calm_pareto {
    double budget;
    calm_trial *trials;          /* [n_trials] the hybrid first, then uniform runs that fit                 */
    size_t n_trials, result;     /* result: index of the chosen trial                                       */
    const char *verdict;
    calm_allocation total;       /* predicted loss of the hybrid, and the loss caused by the target         */
    calm_trial test;             /* the result on the evaluation's text                                     */
} calm_pareto;

/* Windows that something was measured on. */
typedef struct calm_window_facts {
    size_t n, tokens, longest;   /* windows; tokens of all; tokens of the longest                           */
    size_t available;            /* windows that the text has                                               */
    char sha256[CALM_SHA256_HEX];
} calm_window_facts;

/* Figures of learning over all blocks; n 0: nothing was learned. */
typedef struct calm_learned_facts {
    size_t n, kept;                /* blocks; blocks that did not change                                    */
    size_t changed;                /* codes that differ from the start                                      */
    double before, after;          /* mean loss of learned blocks: relative error of their outputs          */
    size_t codes;                  /* all codes of learned blocks                                            */
    double seconds;                /* all blocks took                                                       */
    double operations;             /* that learning takes or would take; 0: nothing of the run is learned   */
    double back_operations;        /* of those: steps, forward and backward through blocks                  */
    double pass_operations;        /* likewise: passes of all windows through float and learned blocks      */
    double updates;                /* weights times steps, besides                                          */
} calm_learned_facts;

/* Work of one of several ranks, in seconds. */
typedef struct calm_rank_facts {
    const char *host;              /* its machine                                                           */
    size_t blocks;                 /* that it computed                                                      */
    double block_seconds;          /* until they were done                                                  */
    double row_seconds;            /* of those, waiting for rows                                            */
    double asked_seconds;          /* other ranks: on windows and passes that rank 0 asked for              */
    double idle_seconds;           /* of divided_seconds                                                    */
} calm_rank_facts;

/* A file that was written, by its path below the output. */
typedef struct calm_written_file {
    const char *name;
    char sha256[CALM_SHA256_HEX];
} calm_written_file;

typedef struct calm_run calm_run;    /* ptq/state/state.h */

typedef struct calm_result {
    const calm_recipe *recipe;
    const calm_layout *layout;                 /* of the float model                                        */
    const calm_safetensors *tensors;           /* of the recipe's model as given; NULL: the run rotated it  */
    size_t first_job, end_job;                 /* jobs of the layout that were to be quantized              */
    bool encoder;
    size_t n_experts;                          /* of each block of a mixture; 0: dense                      */
    calm_store *store;                         /* where the run's rows are                                  */
    int64_t run_id, model_id, calibration_id;

    calm_plan plan;                            /* what is exported                                          */
    const char *name, *verdict;                /* "hybrid" or an algorithm; the guard's sentence            */
    const calm_trial *trial;                   /* of the guard, the one that is the plan; NULL: a budget's   */
    calm_trial *trials;                        /* [n_trials] of the guard, the hybrid first                 */
    size_t n_trials;
    calm_pareto *pareto;                       /* [n_budgets] with several budgets                          */
    calm_limits limits;                        /* what the target left                                      */

    calm_learned_facts learned;                /* blocks                                                    */
    calm_learned_facts tuned;                  /* of the whole model; losses: divergence, once for each block */
    double bits_per_weight;                    /* of the quantized linears; NaN: not known yet              */
    int64_t bytes_before, bytes_after;
    const char *tables;                        /* "embedding and head q6_k"; NULL: they stayed float        */
    calm_written_file *files;                  /* [n_files] under the output, once they are there           */
    size_t n_files;
    calm_window_facts calib, guard, eval;
    bool evaluates;
    calm_measure eval_float, eval_result;      /* of the float model, of the result; on the evaluation's text */
    double *gate_values;                       /* [n_gates] measured; NULL: not yet                         */

    size_t n_cached;                           /* candidates found in the store                             */
    double seconds;
    double score_seconds;                      /* of all threads together                                   */
    calm_times times;                          /* of the stages                                             */
    double *pool_seconds;                      /* [n_pool] of tasks that computed candidates of an entry    */
    calm_rank_facts *ranks;                    /* [n_ranks] where there were several                        */
    size_t n_ranks;                            /* 0: one                                                    */
    double divided_seconds;                    /* from the division of blocks to the end                    */
} calm_result;

/* Put the failure of ctx as the run's end and keep its message; the store may be what failed.  Also for failures after
 * the run (run_recipe.c). */
void calm_run_failed(calm_ctx *ctx, const calm_run *run);

/* Facts of windows; of none all zero. */
calm_window_facts calm_window_facts_of(const calm_windows *windows);

/* ---- what plans are called ---- */

/* Index of a uniform run with the candidates of the hybrid, trial 0, or 0: the hybrid mixes algorithms. */
size_t calm_trial_same_uniform(const calm_trial *trials, size_t n);

/* What was done to a plan after the choice, ", learned" behind its name; NULL: nothing.  Chains have commas, too, but
 * without blanks behind them. */
const char *calm_trial_after(const char *name);

/* What a plan is called: `name`, or where that is the hybrid's, trial 0 of [n], and every unit chose one algorithm, the
 * uniform plan's.  `choices` is the hybrid's plan.  NULL where `name` is: several budgets have no one result.  In
 * ctx->out. */
calm_status calm_trial_label(calm_ctx *ctx, const calm_trial *trials, size_t n, const calm_plan *choices,
                             const char *name, const char **out);

/* The same of a plan of the result. */
calm_status calm_result_label(calm_ctx *ctx, const calm_result *result, const char *name, const char **out);

/* What each of [n] trials is called in a table, the hybrid first: NULL of the hybrid once more, as the uniform run that
 * every unit chose, whose row would be the first one again.  In ctx->out. */
calm_status calm_trial_labels(calm_ctx *ctx, const calm_trial *trials, size_t n, const char ***out);

/* ---- gates ---- */

/* result->gate_values from the figures, for the gates of the recipe. */
calm_status calm_gates_measure(calm_ctx *ctx, calm_result *result);

/* Put the values of measured gates into the store. */
calm_status calm_gates_put(calm_ctx *ctx, const calm_result *result);

/* CALM_EMISMATCH when one of them does not hold, with the gate and what was measured. */
calm_status calm_gates_verdict(calm_ctx *ctx, const calm_result *result);
