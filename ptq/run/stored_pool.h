/* The pool of a stored run, read back from its rows.  Nothing here needs the model. */
#ifndef CALM_RUN_STORED_POOL_H
#define CALM_RUN_STORED_POOL_H

#include "ptq/run/stored_run.h"

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

#endif
