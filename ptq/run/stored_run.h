/* A run as the store has it: its row, and the requests of its recipe.  Nothing here needs the model. */
#ifndef CALM_RUN_STORED_RUN_H
#define CALM_RUN_STORED_RUN_H

#include "ptq/io/json.h"
#include "ptq/plan/requests.h"
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

#endif
