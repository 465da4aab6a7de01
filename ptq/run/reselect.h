/* Choosing anew from what a run left in the store: another rule, metric, unit or budget, entries that are forbidden,
 * units that are pinned.  The model is not read, but for its headers where a size of the file is asked
 * (reselect_size.h). */
#ifndef CALM_RUN_RESELECT_H
#define CALM_RUN_RESELECT_H

#include "ptq/run/stored_pool.h"
#include "ptq/plan/solve.h"
#include "ptq/base/option.h"

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

/* Choose, and unless it is a dry run put the result as a finished run of its own: the same selection of the same run is
 * found again.  In ctx->out; clear also after a failure, after which the store is as it was.
 * Fails as the store, calm_pool_of_store and calm_solve do; CALM_EARG: a metric that the unit has not (with the
 * nearest), a list of requests that cannot be read. */
calm_status calm_reselect(calm_ctx *ctx, const calm_reselect_options *options, calm_reselected *out);
void calm_reselected_clear(calm_reselected *selected);

#endif
