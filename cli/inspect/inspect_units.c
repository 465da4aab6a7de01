/* Reads the units of a stored run. */
#include "cli/inspect/inspect_units.h"

#include <math.h>
#include <string.h>

/* ---- reading ---- */

static bool has_budget(const calm_json *owner)
{
    const calm_json *budget = calm_json_get(owner, "budget");
    return calm_json_size(budget) > 0 || isfinite(calm_json_number(budget, NAN)) ||
           calm_json_number(calm_json_get(owner, "act_budget"), 0) > 0;
}

/* Sets unit, rule and metric of the run.  Names of a newer version stay, and `rule_known` is then false. */
static void resolve(const char *metric, calm_inspect_units *units, calm_pool_query *query)
{
    calm_point point;
    int score;
    *query = (calm_pool_query){.metric = metric ? metric : units->run.metric, .partial = true,
                               .shortlist = calm_stored_run_shortlist(&units->run)};
    if (!calm_stored_run_unit(&units->run, &query->unit))
        query->unit = CALM_UNIT_JOB;
    units->rule_known = calm_stored_run_rule(&units->run, &query->rule) && query->metric &&
                        calm_score_find(query->unit, query->metric, &point, &score);
    units->rule = units->run.rule;
    units->metric = query->metric;
    units->tie = query->metric && strncmp(query->metric, "delta_", 6) == 0 ? "delta_log_rel_mse" : "log_rel_mse";
}

/* Excludes the candidates that a stored --forbid names.  It ignores a name that matches nothing: an old store must
 * stay readable. */
static calm_status leave_out(calm_ctx *ctx, const calm_requests *one, calm_inspect_units *units)
{
    const size_t n = units->stored.pool.n_units * units->stored.pool.n_entries;
    calm_scope scope;
    const calm_status status = calm_scope_open(ctx, &units->stored.pool, one, &scope);
    if (status == CALM_EARG)
        calm_ctx_clear_failure(ctx);
    else
        CALM_TRY(status);
    for (size_t i = 0; i < n && status == CALM_OK; i++)
        units->scope.allowed[i] &= scope.allowed[i];
    return CALM_OK;
}

/* Reads what decided in addition to scores: a bit budget, and --forbid of calm select. */
static calm_status read_requests(calm_ctx *ctx, calm_inspect_units *units)
{
    const calm_json *recipe = units->run.recipe;
    const calm_pool *pool = &units->stored.pool;
    calm_requests requests;
    calm_word *forbid;
    calm_pin *pins;
    units->budget = has_budget(recipe) || has_budget(calm_json_get(recipe, "select"));
    CALM_TRY(calm_stored_run_requests(ctx, &units->run, 0, &forbid, &pins, &requests));
    if (!pool->n_entries)    /* the run stopped before its first candidate, so there are no entries to allow */
        return CALM_OK;
    /* Ignores pins: calm_inspect_choose shows what the rule alone would choose. */
    const calm_requests nothing = {.budget = NAN};
    CALM_TRY(calm_scope_open(ctx, pool, &nothing, &units->scope));
    for (size_t i = 0; i < requests.n_forbid; i++) {
        const calm_requests one = {.budget = NAN, .forbid = &forbid[i], .n_forbid = 1};
        CALM_TRY(leave_out(ctx, &one, units));
    }
    /* An entry without a candidate does not compete; a pool may have fewer candidates for some units. */
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t i = 0; i < pool->n_entries; i++)
            units->scope.allowed[u * pool->n_entries + i] &= calm_inspect_cell(units, u, i) != NULL;
    return CALM_OK;
}

static calm_status find_chosen(calm_ctx *ctx, calm_inspect_units *units)
{
    const calm_pool *pool = &units->stored.pool;
    CALM_TRY(CALM_NEW(ctx, ctx->out, units->chosen, pool->n_units));
    CALM_TRY(CALM_NEW(ctx, ctx->out, units->seen, pool->n_units));
    for (size_t u = 0; u < pool->n_units; u++) {
        units->chosen[u] = CALM_INSPECT_NONE;
        for (size_t j = pool->unit_begin[u]; j < pool->unit_begin[u + 1]; j++)
            units->seen[u] |= units->stored.choices[j].decided;
        for (size_t i = 0; i < pool->n_entries; i++) {
            const calm_pool_cell *cell = calm_inspect_cell(units, u, i);
            units->seen[u] |= cell != NULL;
            if (cell && cell->id == calm_inspect_chosen(units, u)->candidate)
                units->chosen[u] = i;
        }
    }
    return CALM_OK;
}

static void clear_run(calm_inspect_units **units)
{
    calm_stored_run_clear(&(*units)->run);
}

calm_status calm_inspect_units_read(calm_ctx *ctx, calm_store *store, int64_t run, const char *metric,
                                    calm_inspect_units *out)
{
    CALM_SCOPED(calm_inspect_units *, clear_run) units = out;
    calm_pool_query query;
    *units = (calm_inspect_units){0};
    CALM_TRY(calm_stored_run_read(ctx, store, run, &units->run));
    resolve(metric, units, &query);
    CALM_TRY(calm_pool_of_store(ctx, store, &units->run, &query, &units->stored));
    units->stored.pool.remedy = "calm quantize measures it";
    CALM_TRY(read_requests(ctx, units));
    return find_chosen(ctx, units);
}

const calm_pool_cell *calm_inspect_cell(const calm_inspect_units *units, size_t unit, size_t entry)
{
    const calm_pool *pool = &units->stored.pool;
    const calm_pool_cell *cell = calm_pool_cell_at(pool, pool->unit_begin[unit], entry);
    return cell->id ? cell : NULL;
}

const calm_stored_run_choice *calm_inspect_chosen(const calm_inspect_units *units, size_t unit)
{
    return &units->stored.choices[units->stored.pool.unit_begin[unit]];
}

/* ---- names ---- */

static bool named(const char *name, const char *word)
{
    return strcmp(name, word) == 0 || strcmp(calm_unit_short_name(name), word) == 0;
}

calm_status calm_inspect_unit_find(calm_ctx *ctx, const calm_pool *pool, int64_t run, const char *name, size_t *out)
{
    const char *shown, **names;
    const size_t n = pool->n_units + pool->n_jobs;
    for (*out = 0; *out < pool->n_units; ++*out)
        if (named(calm_pool_unit(pool, *out), name))
            return CALM_OK;
    for (*out = 0; *out < pool->n_units; ++*out)
        for (size_t j = pool->unit_begin[*out]; j < pool->unit_begin[*out + 1]; j++)
            if (named(pool->jobs[j].name, name))
                return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, 2 * n));
    for (size_t i = 0; i < n; i++) {
        names[2 * i] = i < pool->n_units ? calm_pool_unit(pool, i) : pool->jobs[i - pool->n_units].name;
        names[2 * i + 1] = calm_unit_short_name(names[2 * i]);
    }
    const char *near = calm_nearest(name, names, 2 * n);
    CALM_TRY(calm_inspect_printable(ctx, near ? near : n ? names[0] : "", &shown));
    return calm_fail(ctx, CALM_ENOTFOUND, "run %lld has no unit \"%s\"%s%s%s", (long long)run, name,
                     near ? "; did you mean \"" : n ? "; it has " : "", shown,
                     near ? "\"?" : pool->n_units > 1 ? " and others" : "");
}

/* Reads the jobs of a run's model with their units, without candidates. */
static calm_status read_names(calm_ctx *ctx, const calm_inspection *in, calm_stored_run_pool *out)
{
    CALM_SCOPED(calm_inspect_units *, clear_run) units = &(calm_inspect_units){0};
    calm_pool_query query;
    CALM_TRY(calm_stored_run_read(ctx, in->store, in->run, &units->run));
    resolve(NULL, units, &query);
    return calm_jobs_of_store(ctx, in->store, &units->run, &query, out);
}

calm_status calm_inspect_unit_params(calm_ctx *ctx, const calm_inspection *in, calm_value params[3])
{
    calm_stored_run_pool stored;
    size_t u;
    params[0] = params[1] = params[2] = (calm_value){.type = CALM_VALUE_NULL};
    if (!in->query->unit)
        return CALM_OK;
    if (!in->run)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: there is no run with a unit \"%s\"", calm_store_path(in->store),
                         in->query->unit);
    CALM_TRY(read_names(ctx, in, &stored));
    CALM_TRY(calm_inspect_unit_find(ctx, &stored.pool, in->run, in->query->unit, &u));
    const calm_stored_run_choice *first = &stored.choices[stored.pool.unit_begin[u]];
    params[0] = calm_value_int(first->block_id);
    params[1] = calm_value_int(first->position);
    params[2] = calm_value_int(stored.choices[stored.pool.unit_begin[u + 1] - 1].position);
    return CALM_OK;
}

/* ---- scores ---- */

const char *calm_inspect_failure(const calm_inspect_units *units, size_t unit, size_t entry)
{
    const calm_pool *pool = &units->stored.pool;
    const char *failure = NULL;
    for (size_t j = pool->unit_begin[unit]; j < pool->unit_begin[unit + 1] && !failure; j++)
        failure = calm_pool_cell_at(pool, j, entry)->failure;
    return failure;
}

bool calm_inspect_forbidden(const calm_inspect_units *units, size_t unit, size_t entry)
{
    return !units->scope.allowed[unit * units->stored.pool.n_entries + entry];
}

double calm_inspect_times(const char *metric, double value, double least)
{
    if (isnan(value) || isnan(least))
        return NAN;
    if (value == least)
        return 1;
    if (calm_score_is_log(metric))
        return exp(value - least);
    return 1 + (value - least) / fabs(least);
}

bool calm_inspect_other_scheme(const calm_inspect_units *units, size_t unit, size_t entry)
{
    const calm_pool_entry *entries = units->stored.pool.entries;
    return units->budget && units->chosen[unit] != CALM_INSPECT_NONE &&
           entries[units->chosen[unit]].of_scheme != entries[entry].of_scheme;
}

double calm_inspect_least(const calm_inspect_units *units, size_t unit, bool compared)
{
    double least = NAN;
    for (size_t i = 0; i < units->stored.pool.n_entries; i++) {
        const calm_pool_cell *cell = calm_inspect_cell(units, unit, i);
        const bool left_out =
            calm_inspect_other_scheme(units, unit, i) || calm_inspect_forbidden(units, unit, i);
        if (cell && isfinite(cell->metric) && !calm_inspect_failure(units, unit, i) && !(compared && left_out))
            least = fmin(least, cell->metric);
    }
    return least;
}

/* ---- the rule again ---- */

calm_status calm_inspect_choose(calm_ctx *ctx, const calm_inspect_units *units, size_t unit, size_t *out,
                                const char **reason)
{
    const calm_pool *pool = &units->stored.pool;
    const bool limited = units->budget && units->chosen[unit] != CALM_INSPECT_NONE;
    const size_t scheme = limited ? pool->entries[units->chosen[unit]].of_scheme : CALM_ANY_SCHEME;
    bool any = false;
    *out = CALM_INSPECT_NONE;
    for (size_t i = 0; i < pool->n_entries; i++)
        any |= calm_inspect_cell(units, unit, i) != NULL;
    if (!units->rule_known)
        return calm_strf(ctx, ctx->out, reason, "this program has no rule \"%s\" of \"%s\"",
                         units->rule ? units->rule : "", units->metric ? units->metric : "");
    if (!any)
        return calm_strf(ctx, ctx->out, reason, "it has no candidate");
    const calm_status status = calm_solve_unit(ctx, pool, &units->scope, unit, scheme, out, reason);
    if (status != CALM_ENUMERIC && status != CALM_EARG)
        return status;
    *out = CALM_INSPECT_NONE;
    char said[CALM_MESSAGE_MAX];
    memcpy(said, ctx->message, sizeof said);
    calm_ctx_clear_failure(ctx);
    return calm_strf(ctx, ctx->out, reason, "%s", said);
}
