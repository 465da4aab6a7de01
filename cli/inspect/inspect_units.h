/* The units of a stored run as views show them: pool, choices, and the choice that the rule makes again. */
#pragma once

#include "cli/inspect/inspect_view.h"
#include "ptq/stored/stored.h"
#include "ptq/plan/solve.h"

#define CALM_INSPECT_NONE SIZE_MAX

typedef struct calm_inspect_units {
    calm_stored_run run;         /* without its recipe's JSON, which is released                    */
    calm_stored_run_pool stored;     /* every job of the model, with the cells of the run               */
    calm_scope scope;            /* entries that may be chosen: without --forbid of calm select     */
    const char *metric;          /* of the cells: --metric or the run's; NULL: none                 */
    const char *tie;             /* what decides near ties: "log_rel_mse" at the metric's point     */
    const char *rule;            /* of the run; NULL: none                                          */
    bool rule_known;             /* this program has it, and the metric                             */
    bool budget;                 /* a budget of bits decided between schemes                        */
    size_t *chosen;              /* [n_units] entry; CALM_INSPECT_NONE: nothing, or a candidate that is in no cell */
    bool *seen;                  /* [n_units] it has a candidate or a choice                        */
} calm_inspect_units;

/* Read the units of a run into ctx->out.  `metric` (NULL: the run's own) is what candidates are read with.  Fails as
 * calm_pool_of_store. */
calm_status calm_inspect_units_read(calm_ctx *ctx, calm_store *store, int64_t run, const char *metric,
                                    calm_inspect_units *out);

/* The cell of an entry on the first job of a unit, whose scores are shown for the unit; NULL: there is no candidate. */
const calm_pool_cell *calm_inspect_cell(const calm_inspect_units *units, size_t unit, size_t entry);

/* What was chosen for a unit, by its first job. */
const calm_stored_run_choice *calm_inspect_chosen(const calm_inspect_units *units, size_t unit);

/* The unit of this name: a unit's, a job's, or either without what all share ("0.qkv").
 * CALM_ENOTFOUND with the nearest. */
calm_status calm_inspect_unit_find(calm_ctx *ctx, const calm_pool *pool, int64_t run, const char *name, size_t *out);

/* Block id, first and last position of --unit as query parameters [3]; NULLs where it is not given. */
calm_status calm_inspect_unit_params(calm_ctx *ctx, const calm_inspection *in, calm_value params[3]);

/* The failure of the entry on one of the unit's jobs; NULL: none failed, or there is no candidate. */
const char *calm_inspect_failure(const calm_inspect_units *units, size_t unit, size_t entry);

/* Is the entry excluded from the unit (--forbid of calm select)? */
bool calm_inspect_forbidden(const calm_inspect_units *units, size_t unit, size_t entry);

/* How many times the least of a metric a value is, 1 and up: e^(difference) of a logarithm, else 1 + (value - least) /
 * |least|, which is value / least where that is positive.  NaN where a value is. */
double calm_inspect_times(const char *metric, double value, double least);

/* Did the budget of bits decide against the scheme of an entry? */
bool calm_inspect_other_scheme(const calm_inspect_units *units, size_t unit, size_t entry);

/* Least value of the metric among the entries of a unit that did not fail, or of these among those that the rule
 * `compared`; NaN: there is none. */
double calm_inspect_least(const calm_inspect_units *units, size_t unit, bool compared);

/* The entry that the rule chooses for a unit from the stored scores, and its reason in ctx->out; among entries of the
 * chosen scheme alone where a budget decided between schemes.  *out is CALM_INSPECT_NONE, and *reason says why,
 * when the rule is unknown or cannot choose. */
calm_status calm_inspect_choose(calm_ctx *ctx, const calm_inspect_units *units, size_t unit, size_t *out,
                                const char **reason);
