/* Units of a stored run for views: the pool, the stored choices, and the choices that the rule makes again. */
#pragma once

#include "cli/inspect/inspect_view.h"
#include "ptq/stored/stored.h"
#include "ptq/plan/solve.h"

#define CALM_INSPECT_NONE SIZE_MAX

typedef struct calm_inspect_units {
    calm_stored_run run;         /* without its recipe's JSON, which is released                                    */
    calm_stored_run_pool stored;     /* every job of the model, with the cells of the run                           */
    calm_scope scope;            /* entries that may be chosen: without --forbid of calm select                     */
    const char *metric;          /* metric of the cells: --metric or the run's; NULL: none                          */
    const char *tie;             /* metric that decides near ties: "log_rel_mse" at the metric's point              */
    const char *rule;            /* the run's rule; NULL: none                                                      */
    bool rule_known;             /* this program has the rule and the metric                                        */
    bool budget;                 /* a bit budget decided between schemes                                            */
    size_t *chosen;              /* [n_units] chosen entry; CALM_INSPECT_NONE: none, or its candidate is in no cell */
    bool *seen;                  /* [n_units] the unit has a candidate or a choice                                  */
} calm_inspect_units;

/* Reads the units of a run into ctx->out, with the candidates' scores by `metric` (NULL: the run's).  Fails as
 * calm_pool_of_store. */
calm_status calm_inspect_units_read(calm_ctx *ctx, calm_store *store, int64_t run, const char *metric,
                                    calm_inspect_units *out);

/* Returns the cell of an entry on the first job of a unit, whose scores views show for the unit; NULL: no candidate. */
const calm_pool_cell *calm_inspect_cell(const calm_inspect_units *units, size_t unit, size_t entry);

/* Returns the stored choice of a unit's first job. */
const calm_stored_run_choice *calm_inspect_chosen(const calm_inspect_units *units, size_t unit);

/* Finds a unit by its name or a job's, in full or without the prefix that all share ("0.qkv").  CALM_ENOTFOUND: none;
 * the message suggests the nearest. */
calm_status calm_inspect_unit_find(calm_ctx *ctx, const calm_pool *pool, int64_t run, const char *name, size_t *out);

/* Writes block id, first and last position of --unit to the query parameters [3]; NULLs without --unit. */
calm_status calm_inspect_unit_params(calm_ctx *ctx, const calm_inspection *in, calm_value params[3]);

/* Returns the failure of the entry on one of the unit's jobs; NULL: none failed, or there is no candidate. */
const char *calm_inspect_failure(const calm_inspect_units *units, size_t unit, size_t entry);

/* Is the entry excluded from the unit (--forbid of calm select)? */
bool calm_inspect_forbidden(const calm_inspect_units *units, size_t unit, size_t entry);

/* Returns `value` as a multiple, 1 and up, of the least value of the metric: e^(difference) of a logarithmic metric,
 * else 1 + (value - least) / |least|, which is value / least if `least` is positive.  NaN if an argument is NaN. */
double calm_inspect_times(const char *metric, double value, double least);

/* Did the bit budget decide against the scheme of an entry? */
bool calm_inspect_other_scheme(const calm_inspect_units *units, size_t unit, size_t entry);

/* Returns the least value of the metric among the entries of a unit that did not fail; with `compared` only among
 * those that the rule compares.  NaN: there is none. */
double calm_inspect_least(const calm_inspect_units *units, size_t unit, bool compared);

/* Finds the entry that the rule chooses for a unit from the stored scores, and the reason, in ctx->out.  If a budget
 * decided between schemes, only entries of the chosen scheme compete.  If the rule is unknown or cannot choose, *out is
 * CALM_INSPECT_NONE and *reason says why. */
calm_status calm_inspect_choose(calm_ctx *ctx, const calm_inspect_units *units, size_t unit, size_t *out,
                                const char **reason);
