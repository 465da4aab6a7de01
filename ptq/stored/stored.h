/* Chooses again and assembles a checkpoint from a store, without computing candidates.
 *
 * A stored run is read back from its rows: recipe, pool with all scores, choices. */
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
    int64_t id, model_id, calibration_id;         /* calibration 0: none */
    const char *key, *status, *unit, *rule, *metric;    /* rule, metric NULL: none */
    const char *result, *reason;                  /* NULL: none */
    double bits_per_weight;                       /* NaN: unknown */
    int64_t bytes_after;                          /* 0: unknown */
    const char *recipe_text;                      /* JSON text of the recipe in the store */
    calm_json *recipe;                            /* the recipe parsed */
    const char *model_digest, *model_name, *model_path;    /* path NULL: unknown */
} calm_stored_run;

/* Parses the number of a run, from 1 on; `owner`: the command, for the message.  CALM_EARG: no such number. */
calm_status calm_stored_run_number(calm_ctx *ctx, const char *owner, const char *word, int64_t *run);

/* _read reads a run into ctx->out; call _clear even after a failure.  CALM_ENOTFOUND: there is no such run (the message
 * has the newest).  CALM_EFORMAT: its recipe is not an object. */
calm_status calm_stored_run_read(calm_ctx *ctx, calm_store *store, int64_t run, calm_stored_run *out);
void calm_stored_run_clear(calm_stored_run *run);

/* Returns the family of OpenBLAS kernels in the run's keys, in ctx->out; NULL: the store does not have it, or there is
 * no such run. */
calm_status calm_stored_run_kernels(calm_ctx *ctx, calm_store *store, int64_t run, const char **out);

/* Parse the names of the run's unit and rule; false: this version of calm does not know the name. */
bool calm_stored_run_unit(const calm_stored_run *run, calm_unit *unit);
bool calm_stored_run_rule(const calm_stored_run *run, calm_choice_rule *rule);

/* Returns the shortlist's factor of the run's choice: from its selection, else from its recipe, else
 * CALM_SHORTLIST_UNSAID. */
double calm_stored_run_shortlist(const calm_stored_run *run);

/* Collects the requests of the run's choice: those of its recipe, then those of later selections, by round, in
 * ctx->out.  forbid and pins have space for `room` more entries.  Texts are borrowed from the run. */
calm_status calm_stored_run_requests(calm_ctx *ctx, const calm_stored_run *run, size_t room, calm_word **forbid,
                                 calm_pin **pins, calm_requests *out);

/* ---- the pool of a stored run (stored_pool.c) ---- */

/* Which pool to read: the units, and the scores that the choice reads. */
typedef struct calm_pool_query {
    calm_unit unit;
    calm_choice_rule rule;
    double shortlist;            /* factor of the shortlist */
    const char *metric;          /* name of the score that the rule reads; NULL: none */
    bool partial;                /* accept a run that stopped; the pool has every job of the model, and cells of jobs
                                  * without candidates have no id */
} calm_pool_query;

/* What a stored run chose for a job. */
typedef struct calm_stored_run_choice {
    bool decided;                /* false: there is no choice */
    int64_t candidate;           /* candidate's id; 0: the job stays float, or nothing is decided */
    const char *reason;          /* NULL: none */
    const char *advice;          /* what the activation rule advised; NULL: nothing */
    bool disagrees;              /* the choice contradicts the advice */
    int64_t block_id, position;  /* the job's block row and position */
} calm_stored_run_choice;

/* Columns of a candidate that are shown, but not read by a choice. */
typedef struct calm_stored_run_cell {
    const char *algorithm;       /* as run: "rtn for gptq" for an expert with too few tokens; NULL: no candidate */
    double bits_per_weight;      /* NaN: unknown                                                      */
} calm_stored_run_cell;

typedef struct calm_stored_run_pool {
    calm_pool pool;              /* indexed; the caller sets `every` and `remedy` */
    calm_stored_run_choice *choices; /* [n_jobs]                                                          */
    calm_stored_run_cell *cells;     /* [n_jobs][n_entries]                                               */
} calm_stored_run_pool;

/* Reads the pool of a run from its candidates into ctx->out: entries in the order of its recipe, units with the names
 * that the run gives them.  CALM_ENOTFOUND (unless partial): the run considered no candidate, or stopped before it had
 * all.  CALM_EFORMAT: rows contradict each other, or there are more entries than a pool can have. */
calm_status calm_pool_of_store(calm_ctx *ctx, calm_store *store, const calm_stored_run *run,
                               const calm_pool_query *query, calm_stored_run_pool *out);

/* Reads only the jobs and units, without entries and cells, to resolve names. */
calm_status calm_jobs_of_store(calm_ctx *ctx, calm_store *store, const calm_stored_run *run,
                               const calm_pool_query *query, calm_stored_run_pool *out);

/* Returns the pool entry that the run chose for each job, [n_jobs] in ctx->out; SIZE_MAX: none.  CALM_EFORMAT: a
 * candidate that is not in the pool. */
calm_status calm_stored_run_entries(calm_ctx *ctx, const calm_stored_run *run, const calm_stored_run_pool *stored,
                                size_t **entries);

/* ---- another choice from the stored scores: `calm select` (reselect.c) ---- */

#define CALM_AS_IN_RUN (-1)

typedef struct calm_reselect_options {
    const char *store;
    int64_t run;
    int unit, rule;             /* calm_unit, calm_choice_rule; CALM_AS_IN_RUN: the run's */
    const char *metric;         /* NULL: the run's */
    double budget;              /* bits per weight; NaN: the run's budget, if any */
    double act_budget;          /* mean bits of activations; 0: the run's budget, if any */
    size_t file_bytes;          /* size limit of the file; 0: the run's, if it has one and no other limit is given */
    double file_bits;           /* size limit as bits per weight of the file's tensors */
    double shortlist;           /* factor for the rule `token`; 0: the run's */
    calm_words forbid;          /* "gptq", "#12": added to the run's */
    calm_pairs pins;            /* unit, candidate: added to the run's, and stronger */
    const char *engine;         /* engine that must run the plan; NULL: the run's */
    bool dry_run;               /* write nothing */
    const char *command;        /* the command line as typed */
} calm_reselect_options;

typedef struct calm_reselected {
    calm_stored_run parent;
    calm_stored_run_pool stored;    /* the parent's pool */
    calm_solution solution;
    double budget, act_budget;  /* in force: NaN: none, infinite: a size; 0: none */
    const char *size;           /* "`choice.size` 3000000B"; NULL: none */
    const calm_engine *engine;  /* in force */
    size_t *before;             /* [n_jobs] entries that the parent chose; SIZE_MAX: none */
    double bits_before;         /* bits per weight of the parent's choice; NaN: it lacks a job */
    size_t n_changed;           /* units that differ in at least one job */
    int64_t run;                /* run with the new choices; 0: a dry run */
    bool found;                 /* the same selection was in the store already */
} calm_reselected;

/* Returns true if a unit of the solution differs from the parent's choice. */
bool calm_reselected_differs(const calm_reselected *selected, size_t unit);

/* _reselect chooses and, unless it is a dry run, stores the result as a separate finished run; the same selection of
 * the same run is found and not stored twice.  Memory is in ctx->out; call _clear even after a failure, which leaves
 * the store unchanged.  Fails as the store, calm_pool_of_store and calm_solve do; CALM_EARG: the unit does not have the
 * metric (the message has the nearest), or a list of requests is invalid. */
calm_status calm_reselect(calm_ctx *ctx, const calm_reselect_options *options, calm_reselected *out);
void calm_reselected_clear(calm_reselected *selected);

/* ---- the checkpoint of a stored run: `calm assemble` (reassemble.c) ---- */

typedef struct calm_assemble_options {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;       /* directory of the float model; NULL: the one that the run read */
    const char *adapter;     /* directory of its adapter; NULL: the one that the run read */
    bool hybrid;             /* the run's choices, even if its result was a uniform run */
    calm_words formats;      /* names; empty: the run's */
    calm_export_options export;    /* options of exporters */
    bool force;              /* replace the output */
    const char *command;     /* the command line as typed */
    calm_events events;
} calm_assemble_options;

/* The state of a stored run before its export. */
typedef struct calm_assembly {
    calm_stored_run run;
    calm_stored_run_pool stored;
    calm_scope scope;            /* entries that the recipe's pins leave to its units */
    size_t *places;              /* [jobs of the pool] job of the model's layout */
    calm_recipe recipe;          /* the run's recipe, as far as card and report need it */
    const calm_json *document;   /* written as calm_recipe.json; borrowed from `run` */
    calm_inputs in;
    calm_outer_fit head;         /* how the run fitted its head */
    bool learned;                /* the result was learned or tuned */
    calm_result result;
} calm_assembly;

/* _reassemble writes the checkpoint of a run: its result, or with `hybrid` its choices.  One block is in memory at a
 * time; the directory appears complete or not at all; its files become artifacts of the run.  Call _close even after a
 * failure.  CALM_EARG, CALM_EEXIST: the output may not be written, or the run has no result.  CALM_ENOTFOUND: there is
 * no such run, model or blob, or for imatrix no calibration text.  CALM_EMISMATCH: the model or that text has changed.
 * CALM_EFORMAT: a damaged blob, or rows that contradict the model. */
calm_status calm_reassemble(calm_ctx *ctx, const calm_assemble_options *options, calm_assembly *out);
void calm_assembly_close(calm_assembly *assembly);
