/* The units of a stored run: their jobs, the candidates of each in columns of the pool, what was chosen. */
#ifndef CALM_CLI_INSPECT_UNITS_H
#define CALM_CLI_INSPECT_UNITS_H

#include "cli/inspect_view.h"
#include "ptq/hybrid/select.h"

#define CALM_INSPECT_NONE SIZE_MAX

/* One candidate on one job. */
typedef struct calm_inspect_candidate {
    int64_t id;
    const char *key, *algorithm, *scheme;
    const char *failure;         /* NULL: it succeeded                                              */
    double metric, tie;          /* of the run's unit; NaN: not measured                            */
    double bits;                 /* per weight; NaN: unknown                                        */
    int64_t algorithm_id;
} calm_inspect_candidate;

typedef struct calm_inspect_job {
    int64_t id, block_id, block, position;
    const char *name;
    const calm_inspect_candidate **cells;    /* [n_columns] NULL where there is no candidate        */
    bool decided;                /* the run chose something for it                                  */
    int64_t chosen;              /* candidate; 0: it stays float                                    */
    const char *unit, *reason;   /* of the choice; unit is derived where nothing is decided         */
    const char *advice;          /* NULL: not asked                                                 */
    bool disagrees;
} calm_inspect_job;

/* Jobs first .. first + n - 1 that get one choice. */
typedef struct calm_inspect_unit {
    const char *name;
    size_t first, n;
    size_t chosen;               /* column; CALM_INSPECT_NONE: nothing, or a candidate that is in none */
    bool seen;                   /* it has a candidate or a choice                                  */
} calm_inspect_unit;

/* One entry of the pool. */
typedef struct calm_inspect_column {
    const char *name;            /* "gptq-hls"; with several schemes "gptq-hls w3a16_g128"          */
    const char *algorithm, *scheme;
    size_t order;                /* in the recipe                                                   */
} calm_inspect_column;

typedef struct calm_inspect_units {
    int64_t run, model_id, calibration_id;
    const char *model, *status, *result, *verdict, *recipe;    /* NULL: none                        */
    const char *unit, *rule, *metric;          /* of the run; rule and metric may be NULL           */
    const char *tie;             /* what decides near ties: "log_rel_mse" at the metric's point     */
    bool budget;                 /* a budget of bits decided between schemes                        */
    const char **forbid;         /* [n_forbid] what calm select was to leave out, as it was said    */
    size_t n_forbid;
    calm_inspect_job *jobs;      /* [n_jobs] by block and position                                  */
    calm_inspect_unit *units;    /* [n] in the same order                                           */
    calm_inspect_column *columns;
    size_t n_jobs, n, n_columns;
} calm_inspect_units;

/* Read the units of a run into ctx->out.  `metric` (NULL: the run's own) is what candidates are read with.
 * CALM_EUNSUPPORTED: more algorithms and schemes than columns make sense of. */
calm_status calm_inspect_units_read(calm_ctx *ctx, calm_store *store, int64_t run, const char *metric,
                                    calm_inspect_units *out);

/* The unit of this name: a unit's, a job's, or either without what all share ("0.qkv").
 * CALM_ENOTFOUND with the nearest. */
calm_status calm_inspect_unit_find(calm_ctx *ctx, const calm_inspect_units *units, const char *name, size_t *out);

/* Block id, first and last position of --unit as query parameters [3]; NULLs where it is not given. */
calm_status calm_inspect_unit_params(calm_ctx *ctx, const calm_inspection *in, calm_value params[3]);

/* "model.layers.0.qkv" without what all units share: "0.qkv". */
const char *calm_inspect_short(const char *name);

/* Why the entry of a column cannot be had for a unit: the failure of one of its jobs; NULL: it can. */
const char *calm_inspect_failure(const calm_inspect_units *units, const calm_inspect_unit *unit, size_t column);

/* Was the entry of a column to be left out: by its algorithm, "gptq w3a16_g128", or "#123", its candidate? */
bool calm_inspect_forbidden(const calm_inspect_units *units, const calm_inspect_unit *unit, size_t column);

/* How many times the least of a metric a value is, 1 and up: e^(difference) of a logarithm, else 1 + (value - least) /
 * |least|, which is value / least where that is positive.  NaN where a value is. */
double calm_inspect_times(const char *metric, double value, double least);

/* Least value of the metric among the entries that can be had for a unit; NaN: there is none. */
double calm_inspect_least(const calm_inspect_units *units, const calm_inspect_unit *unit);

/* What the rule takes of a unit from the stored scores, a column, and its sentence in ctx->out; among the chosen scheme
 * alone where a budget decided between schemes.  *out is CALM_INSPECT_NONE when the rule cannot say; *reason is why. */
calm_status calm_inspect_choose(calm_ctx *ctx, const calm_inspect_units *units, const calm_inspect_unit *unit,
                                size_t *out, char **reason);

#endif
