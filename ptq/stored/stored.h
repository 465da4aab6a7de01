/* Choose again and assemble from a store, without computing candidates.
 *
 * A stored run is read back from its rows: its recipe, its pool with all scores, its choices. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"
#include "ptq/plan/requests.h"
#include "ptq/plan/solve.h"
#include "ptq/state/inputs.h"
#include "ptq/state/outer_rows.h"
#include "store/store.h"

/* ---- a stored run (stored_run.c) ---- */

typedef struct calm_stored_run {
    int64_t id, model_id, calibration_id;         /* calibration 0: none                                  */
    const char *key, *status, *unit, *rule, *metric;    /* rule, metric NULL: none                        */
    const char *result, *reason;                  /* NULL: none                                           */
    double bits_per_weight;                       /* NaN: unknown                                         */
    int64_t bytes_after;                          /* 0: unknown                                           */
    const char *recipe_text;                      /* as stored                                            */
    calm_json *recipe;                            /* the same parsed                                      */
    const char *model_digest, *model_name, *model_path;    /* path NULL: unknown                          */
} calm_stored_run;

/* Parse the word for a run: a number from 1.  `owner` is the command, for the message.  CALM_EARG. */
calm_status calm_stored_run_number(calm_ctx *ctx, const char *owner, const char *word, int64_t *run);

/* Read a run into ctx->out; clear it also after a failure.  CALM_ENOTFOUND: there is no such run (the message has the
 * newest).  CALM_EFORMAT: its recipe is not an object. */
calm_status calm_stored_run_read(calm_ctx *ctx, calm_store *store, int64_t run, calm_stored_run *out);
void calm_stored_run_clear(calm_stored_run *run);

/* The family of OpenBLAS's kernels that the run's keys are of, in ctx->out; NULL: the store does not say, or there is
 * no such run. */
calm_status calm_stored_run_kernels(calm_ctx *ctx, calm_store *store, int64_t run, const char **out);

/* The run's unit and rule by their names; false: this calm does not know it. */
bool calm_stored_run_unit(const calm_stored_run *run, calm_unit *unit);
bool calm_stored_run_rule(const calm_stored_run *run, calm_choice_rule *rule);

/* The factor of the shortlist that the run chose with: that of the selection that it is, else of its recipe, else that
 * of runs stored before recipes said it. */
double calm_stored_run_shortlist(const calm_stored_run *run);

/* The requests that the run's choice was made under: those of its recipe, then those of selections, in rounds.  forbid
 * and pins have `room` more places behind them; in ctx->out.  Texts are borrowed from the run. */
calm_status calm_stored_run_requests(calm_ctx *ctx, const calm_stored_run *run, size_t room, calm_word **forbid,
                                 calm_pin **pins, calm_requests *out);

/* ---- its pool (stored_pool.c) ---- */

/* Which pool to read: what its units are, and which scores the choice reads. */
typedef struct calm_pool_query {
    calm_unit unit;
    calm_choice_rule rule;
    double shortlist;            /* its factor                                                        */
    const char *metric;          /* name of the score that the rule reads; NULL: none                 */
    bool partial;                /* also of a run that stopped, with every job of the model: the cells
                                  * of jobs without candidates have no id                             */
} calm_pool_query;

/* What a run chose for a job. */
typedef struct calm_stored_run_choice {
    bool decided;                /* there is a choice                                                 */
    int64_t candidate;           /* 0: the job stays float, or nothing is decided                     */
    const char *reason;          /* NULL: none                                                        */
    const char *advice;          /* of the activation rule; NULL: it said nothing                     */
    bool disagrees;              /* the choice differs from it                                        */
    int64_t block_id, position;  /* of the job                                                        */
} calm_stored_run_choice;

/* Columns of a candidate that a choice does not read. */
typedef struct calm_stored_run_cell {
    const char *algorithm;       /* as it ran: "rtn for gptq" of an expert with too few tokens; NULL: no candidate */
    double bits_per_weight;      /* NaN: unknown                                                      */
} calm_stored_run_cell;

typedef struct calm_stored_run_pool {
    calm_pool pool;              /* indexed; `every` and `remedy` are left to the caller              */
    calm_stored_run_choice *choices; /* [n_jobs]                                                          */
    calm_stored_run_cell *cells;     /* [n_jobs][n_entries]                                               */
} calm_stored_run_pool;

/* Read the pool of a run into ctx->out, by its candidates: the entries in the order of its recipe, units named as the
 * run would. CALM_ENOTFOUND (unless partial): the run considered no candidate, or stopped before it had all.
 * CALM_EFORMAT: rows that contradict each other; more entries than a pool has. */
calm_status calm_pool_of_store(calm_ctx *ctx, calm_store *store, const calm_stored_run *run,
                               const calm_pool_query *query, calm_stored_run_pool *out);

/* The jobs and units alone: no entries, no cells.  For names. */
calm_status calm_jobs_of_store(calm_ctx *ctx, calm_store *store, const calm_stored_run *run,
                               const calm_pool_query *query, calm_stored_run_pool *out);

/* The entry of the pool that the run chose for each job, [n_jobs] in ctx->out; SIZE_MAX: none.
 * CALM_EFORMAT: a candidate that is not of its pool. */
calm_status calm_stored_run_entries(calm_ctx *ctx, const calm_stored_run *run, const calm_stored_run_pool *stored,
                                size_t **entries);

/* ---- another choice from the stored scores: `calm select` (reselect.c) ---- */

#define CALM_AS_IN_RUN (-1)

typedef struct calm_reselect_options {
    const char *store;
    int64_t run;
    int unit, rule;             /* calm_unit, calm_choice_rule, or CALM_AS_IN_RUN                                    */
    const char *metric;         /* NULL: the run's                                                            */
    double budget;              /* bits per weight; NaN: the run's, if it had one                             */
    double act_budget;          /* mean bits of activations; 0: the run's, if it had one                      */
    size_t file_bytes;          /* most bytes of the file; 0: the run's, if it had one and no other is asked  */
    double file_bits;           /* the same as bits per weight of its tensors                                 */
    double shortlist;           /* factor of the rule token; 0: the run's                                     */
    calm_words forbid;          /* "gptq", "#12": besides what the run had                                    */
    calm_pairs pins;            /* unit, candidate: besides what the run had, and counting more               */
    const char *engine;         /* engine that the plan is for; NULL: the run's                               */
    bool dry_run;               /* write nothing                                                              */
    const char *command;        /* as typed                                                                   */
} calm_reselect_options;

typedef struct calm_reselected {
    calm_stored_run parent;
    calm_stored_run_pool stored;    /* its pool                                                                   */
    calm_solution solution;
    double budget, act_budget;  /* that held; NaN: none, infinite: a size; 0: none                            */
    const char *size;           /* "`choice.size` 3000000B"; NULL: none                                       */
    const calm_engine *engine;  /* that held                                                                  */
    size_t *before;             /* [n_jobs] entries that the parent chose; SIZE_MAX: none                     */
    double bits_before;         /* per weight, of those; NaN: some job had none                               */
    size_t n_changed;           /* units that differ in at least one job                                      */
    int64_t run;                /* that holds the new choices; 0: a dry run                                   */
    bool found;                 /* the same selection was there already                                       */
} calm_reselected;

/* Does a unit of the solution differ from what the parent chose? */
bool calm_reselected_differs(const calm_reselected *selected, size_t unit);

/* Choose, and unless it is a dry run put the result as a separate finished run: the same selection of the same run is
 * found again.  In ctx->out; clear also after a failure, after which the store is as it was.
 * Fails as the store, calm_pool_of_store and calm_solve do; CALM_EARG: a metric that the unit has not (with the
 * nearest), a list of requests that cannot be read. */
calm_status calm_reselect(calm_ctx *ctx, const calm_reselect_options *options, calm_reselected *out);
void calm_reselected_clear(calm_reselected *selected);

/* ---- the checkpoint of a stored run: `calm assemble` (reassemble.c) ---- */

typedef struct calm_assemble_options {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;       /* directory of the float model; NULL: where the run read it                */
    const char *adapter;     /* directory of its adapter; NULL: where the run read one                    */
    bool hybrid;             /* the run's choices, also where a uniform run was its result               */
    calm_words formats;      /* names; none: those of the run                                             */
    calm_export_options export;    /* options of exporters                                                */
    bool force;              /* replace the output                                                       */
    const char *command;     /* as typed                                                                 */
    calm_events events;
} calm_assemble_options;

/* The state of the run before its export, restored. */
typedef struct calm_assembly {
    calm_stored_run run;
    calm_stored_run_pool stored;
    calm_scope scope;            /* what the recipe's pins leave to its units                            */
    size_t *places;              /* [jobs of the pool] job of the model's layout                         */
    calm_recipe recipe;          /* the run's, as far as card and report need it                         */
    const calm_json *document;   /* that is written as calm_recipe.json; borrowed from `run`             */
    calm_inputs in;
    calm_outer_fit head;         /* what the run fitted a head to                                        */
    bool learned;                /* the result is one that was learned or tuned                          */
    calm_result result;
} calm_assembly;

/* Write the checkpoint of a run: its result, or with `hybrid` its choices.  One block is in memory at a time; the
 * directory is complete under its name or not there.  Its files become artifacts of the run.  Close also after a
 * failure.  CALM_EARG, CALM_EEXIST: the output may not be written; the run came to no result.  CALM_ENOTFOUND: no
 * such run, model or blob; for imatrix, no calibration text.  CALM_EMISMATCH: the model, or that text, is another
 * one.  CALM_EFORMAT: a damaged blob, rows that contradict the model. */
calm_status calm_reassemble(calm_ctx *ctx, const calm_assemble_options *options, calm_assembly *out);
void calm_assembly_close(calm_assembly *assembly);
