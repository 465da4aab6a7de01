/* Result of a run: the data that reports, cards, gates and locks read. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/base/times.h"
#include "ptq/data/windows.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/auto_class.h"
#include "ptq/plan/allocate.h"
#include "ptq/plan/limits.h"
#include "ptq/plan/plan.h"
#include "ptq/recipe/recipe.h"
#include "ptq/state/measurement.h"
#include "store/store.h"

/* Figures of a guard trial on the first windows and further windows together. */
typedef struct calm_trial_more {
    size_t windows;              /* number of all windows; 0: not needed */
    int64_t id;                  /* row of the evaluation */
    calm_measure measure;
    double delta, se;            /* as in calm_trial, on these windows */
} calm_trial_more;

/* A choice for every job, measured end to end. */
typedef struct calm_trial {
    const char *name;            /* "hybrid", or the name of a pool entry */
    calm_plan plan;
    char key[CALM_SHA256_HEX];   /* digest of its candidates */
    const char *missing;         /* why this plan cannot exist: a candidate that failed; NULL: it exists */
    const char *substituted;     /* a uniform run's units with failed candidates, and the substitutes; NULL:
                                  * none */
    double bits_per_weight, act_bits;    /* act_bits: mean over weights of their activations' bits */
    int64_t id;                  /* row of the evaluation; 0: not measured */
    calm_measure measure;
    double delta, se;            /* mean loss minus that of the first trial, and its paired standard error; NaN: none */
    calm_trial_more more;        /* for the hybrid and for trials within one standard error of it */
} calm_trial;

/* The result for one bit budget. */
typedef struct calm_pareto {
    double budget;
    calm_trial *trials;          /* [n_trials] the hybrid first, then the uniform runs within the budget */
    size_t n_trials, result;     /* result: index of the chosen trial                                       */
    const char *verdict;
    calm_allocation total;       /* predicted loss of the hybrid, and the part of it that the target causes */
    calm_trial test;             /* the chosen trial on the evaluation's text */
} calm_pareto;

/* Windows that something was measured on. */
typedef struct calm_window_facts {
    size_t n, tokens, longest;   /* windows; tokens of all windows; tokens of the longest */
    size_t available;            /* number of windows of the whole text */
    char sha256[CALM_SHA256_HEX];
} calm_window_facts;

/* Figures of learning over all blocks; n 0: nothing was learned. */
typedef struct calm_learned_facts {
    size_t n, kept;                /* blocks; blocks that learning left as they were */
    size_t changed;                /* codes that learning changed */
    double before, after;          /* mean loss of learned blocks: relative error of their outputs */
    size_t codes;                  /* number of codes in learned blocks */
    double seconds;                /* time of all blocks */
    double operations;             /* of learning, done or planned; 0: the run learns nothing */
    double back_operations;        /* part of them in steps: forward and backward through blocks */
    double pass_operations;        /* part of them in passes of all windows through float and learned blocks */
    double updates;                /* weights times steps, not in `operations` */
} calm_learned_facts;

/* Work of one rank of several, in seconds. */
typedef struct calm_rank_facts {
    const char *host;              /* its machine */
    size_t blocks;                 /* number of blocks that it computed */
    double block_seconds;          /* until these blocks were done */
    double row_seconds;            /* part of block_seconds: waiting for hidden states */
    double asked_seconds;          /* other ranks: work on windows and passes that rank 0 asked for */
    double idle_seconds;           /* part of divided_seconds without work */
} calm_rank_facts;

/* A written file, by its path below the output folder. */
typedef struct calm_written_file {
    const char *name;
    char sha256[CALM_SHA256_HEX];
} calm_written_file;

typedef struct calm_run calm_run;    /* ptq/state/state.h */

typedef struct calm_result {
    const calm_recipe *recipe;
    const calm_layout *layout;                 /* layout of the float model */
    const calm_safetensors *tensors;           /* tensors of the recipe's model as given; NULL: the run rotated it */
    size_t first_job, end_job;                 /* range of the layout's jobs to quantize */
    bool encoder;
    calm_auto_class loads;                     /* class of transformers that loads the result */
    size_t n_experts;                          /* experts per block of a mixture; 0: dense */
    calm_store *store;                         /* the store with the run's rows */
    int64_t run_id, model_id, calibration_id;

    calm_plan plan;                            /* the plan that is exported */
    const char *name, *verdict;                /* "hybrid" or an algorithm; the guard's sentence */
    const calm_trial *trial;                   /* the guard's trial of `plan`; NULL: a budget's */
    calm_trial *trials;                        /* [n_trials] the guard's trials, the hybrid first */
    size_t n_trials;
    calm_pareto *pareto;                       /* [n_budgets] if there are several budgets */
    calm_limits limits;                        /* the target's limits */

    calm_learned_facts learned;                /* learning of blocks */
    calm_learned_facts tuned;                  /* tuning of the whole model; losses are divergences, one per block */
    double bits_per_weight;                    /* mean over quantized linears; NaN: not known yet */
    int64_t bytes_before, bytes_after;
    const char *tables;                        /* "embedding and head q6_k"; NULL: they stayed float */
    const calm_exporter *measured;             /* format that an evaluation reads (calm_outputs_measured); or NULL */
    calm_written_file *files;                  /* [n_files] written files; NULL before they are written */
    size_t n_files;
    calm_window_facts calib, guard, eval;
    bool evaluates;
    calm_measure eval_float, eval_result;      /* float model and result on the evaluation's text */
    double *gate_values;                       /* [n_gates] measured values; NULL: not measured yet */

    size_t n_cached;                           /* number of candidates found in the store */
    double seconds;
    double score_seconds;                      /* sum over all threads */
    calm_times times;                          /* times of the stages */
    double *pool_seconds;                      /* [n_pool] seconds of the tasks that computed an entry's candidates */
    calm_rank_facts *ranks;                    /* [n_ranks] if there are several ranks */
    size_t n_ranks;                            /* 0: one rank */
    double divided_seconds;                    /* from the division of blocks among ranks to the end */
} calm_result;

/* Stores the failure of ctx as the run's end and keeps its status, even if the store fails; the message of an
 * interruption then names the store.  Also for failures after the run (run_recipe.c). */
void calm_run_failed(calm_ctx *ctx, const calm_run *run);

/* Returns the facts of windows; all zero if they were never read. */
calm_window_facts calm_window_facts_of(const calm_windows *windows);

/* ---- names of plans ---- */

/* Returns the index of a uniform run with the same candidates as the hybrid, trial 0; 0: there is none. */
size_t calm_trial_same_uniform(const calm_trial *trials, size_t n);

/* Returns the part of a plan's name that says what was done after the choice, ", learned"; NULL: nothing.  The commas
 * of chains have no space after them. */
const char *calm_trial_after(const char *name);

/* Returns the name of a plan in reports, in ctx->out: `name`; or if that is the hybrid's (trial 0 of [n]) and every
 * unit chose the same algorithm, the name of the uniform run.  choices: the hybrid's plan.  NULL if `name` is NULL:
 * several budgets have no single result. */
calm_status calm_trial_label(calm_ctx *ctx, const calm_trial *trials, size_t n, const calm_plan *choices,
                             const char *name, const char **out);

/* Does the same for a plan of the result. */
calm_status calm_result_label(calm_ctx *ctx, const calm_result *result, const char *name, const char **out);

/* Returns the names of [n] trials in a table, the hybrid first, in ctx->out.  NULL: the uniform run that equals the
 * hybrid, whose row would repeat the first. */
calm_status calm_trial_labels(calm_ctx *ctx, const calm_trial *trials, size_t n, const char ***out);

/* ---- gates ---- */

/* Computes result->gate_values from the figures, for the recipe's gates. */
calm_status calm_gates_measure(calm_ctx *ctx, calm_result *result);

/* Stores the values of measured gates. */
calm_status calm_gates_put(calm_ctx *ctx, const calm_result *result);

/* Fails with CALM_EMISMATCH if a gate does not hold; the message has the gate and the measured value. */
calm_status calm_gates_verdict(calm_ctx *ctx, const calm_result *result);
