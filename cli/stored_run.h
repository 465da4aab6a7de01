/* A run as the store has it: what it was, the pool that competed in it, what it chose.  Nothing here needs the
 * model. */
#ifndef CALM_CLI_STORED_RUN_H
#define CALM_CLI_STORED_RUN_H

#include "cli/solve.h"
#include "ptq/io/json.h"
#include "store/store.h"

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

/* What a choice reads of a pool. */
typedef struct calm_pool_how {
    calm_unit unit;
    calm_rule rule;
    calm_point point;    /* of that unit */
    int score;
} calm_pool_how;

/* The pool of a run in ctx->out, by its candidates: the entries in the order of its recipe, units named as the run
 * would. `every` and `remedy` are left to the caller.
 * CALM_ENOTFOUND: the run considered no candidate, or stopped before it had all.  CALM_EFORMAT: rows that contradict
 * each other. */
calm_status calm_stored_pool(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, const calm_pool_how *how,
                             calm_solve_pool *out);

/* Units that the run's own recipe pinned, pins [n] in ctx->out; the texts are the run's. */
calm_status calm_stored_pins(calm_ctx *ctx, const calm_stored_run *run, calm_solve_pin **pins, size_t *n);

/* The entry of the pool that the run chose for each job, [n_jobs] in ctx->out; SIZE_MAX: none.
 * CALM_EFORMAT: a candidate that is not of its pool. */
calm_status calm_stored_choice(calm_ctx *ctx, const calm_stored_run *run, const calm_solve_pool *pool, size_t **choice);

/* What the activation rule says of an entry for a job, and whether the entry differs from it; NULL: it says nothing. */
const char *calm_stored_advice(const calm_solve_pool *pool, size_t job, size_t entry, bool *disagrees);

#endif
