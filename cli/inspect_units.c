/* Units of a stored run. */
#include "cli/inspect_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX ((size_t)1000)    /* a pool has some ten; a store of a stranger may say anything */

/* ---- rows ---- */

static double real_of(const calm_value *value)
{
    return value->type == CALM_VALUE_REAL      ? value->real
           : value->type == CALM_VALUE_INTEGER ? (double)value->integer
                                               : NAN;
}

/* A copy in ctx->out; NULL for anything but text. */
static calm_status text_of(calm_ctx *ctx, const calm_value *value, const char **out)
{
    char *copy = NULL;
    if (value->type == CALM_VALUE_TEXT)
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", value->text));
    *out = copy;
    return CALM_OK;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

typedef struct place_of_id {
    int64_t id;
    size_t at;
} place_of_id;

/* A list that grows while a query runs. */
typedef struct growing {
    calm_inspect_units *units;
    place_of_id *ids;        /* [n_jobs] by rising id */
    calm_inspect_candidate *candidates;
    size_t *job, *column;    /* [n] of each candidate */
    size_t n, capacity;
} growing;

static const char run_sql[] =
    "SELECT r.model_id, coalesce(r.calibration_id, 0), m.name, r.status, r.result, r.reason, r.recipe, r.unit, r.rule, "
    "r.metric FROM run r JOIN model m ON m.id = r.model_id WHERE r.id = ?1";

static calm_status read_run(calm_ctx *ctx, calm_store *store, int64_t run, const char *metric, calm_inspect_units *out)
{
    calm_value row[10];
    const calm_value param = calm_value_int(run);
    const char *text[10];
    CALM_TRY(calm_store_query_one(ctx, store, run_sql, &param, 1, row, 10));
    for (size_t i = 2; i < 10; i++)
        text[i] = row[i].type == CALM_VALUE_TEXT ? row[i].text : NULL;
    *out = (calm_inspect_units){.run = run, .model_id = row[0].integer, .calibration_id = row[1].integer,
                                .model = or_empty(text[2]), .status = or_empty(text[3]), .result = text[4],
                                .verdict = text[5], .recipe = text[6] ? text[6] : "{}",
                                .unit = text[7] ? text[7] : "job", .rule = text[8],
                                .metric = metric ? metric : text[9]};
    out->tie = out->metric && strncmp(out->metric, "delta_", 6) == 0 ? "delta_log_rel_mse" : "log_rel_mse";
    return CALM_OK;
}

/* ---- jobs and units ---- */

/* A unit's name where nothing is decided yet is made as ptq/model/layout.c makes it. */
static const char jobs_sql[] =
    "SELECT j.id, b.id, b.number, j.position, j.name, c.run_id IS NOT NULL, coalesce(c.candidate_id, 0), "
    "coalesce(c.unit, CASE r.unit WHEN 'block' THEN b.name WHEN 'job' THEN j.name ELSE b.name || '.' || "
    "  iif(instr(j.role, '.'), rtrim(rtrim(j.role, replace(j.role, '.', '')), '.'), j.sublayer) END), "
    "c.reason, c.advice, coalesce(c.disagrees, 0) "
    "FROM run r JOIN block b ON b.model_id = r.model_id JOIN job j ON j.block_id = b.id "
    "LEFT JOIN choice c ON c.run_id = r.id AND c.job_id = j.id WHERE r.id = ?1 ORDER BY b.number, j.position, j.id";

static calm_status add_job(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    calm_inspect_units *units = user;
    (void)n, (void)names;
    if (!values)
        return CALM_OK;
    calm_inspect_job *job = &units->jobs[units->n_jobs++];
    *job = (calm_inspect_job){.id = values[0].integer, .block_id = values[1].integer, .block = values[2].integer,
                              .position = values[3].integer, .decided = values[5].integer != 0,
                              .chosen = values[6].integer, .disagrees = values[10].integer != 0};
    CALM_TRY(text_of(ctx, &values[4], &job->name));
    CALM_TRY(text_of(ctx, &values[7], &job->unit));
    CALM_TRY(text_of(ctx, &values[8], &job->reason));
    CALM_TRY(text_of(ctx, &values[9], &job->advice));
    job->name = or_empty(job->name);
    job->unit = or_empty(job->unit);
    return CALM_OK;
}

static calm_status read_jobs(calm_ctx *ctx, calm_store *store, calm_inspect_units *out)
{
    calm_value n;
    const calm_value run = calm_value_int(out->run), model = calm_value_int(out->model_id);
    CALM_TRY(calm_store_query_one(ctx, store,
                                  "SELECT count(*) FROM job j JOIN block b ON b.id = j.block_id WHERE b.model_id = ?1",
                                  &model, 1, &n, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, (size_t)n.integer));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->units, (size_t)n.integer));
    CALM_TRY(calm_store_query(ctx, store, jobs_sql, &run, 1, add_job, out));
    for (size_t j = 0; j < out->n_jobs; j++) {
        calm_inspect_unit *last = out->n ? &out->units[out->n - 1] : NULL;
        if (last && strcmp(last->name, out->jobs[j].unit) == 0)
            last->n++;
        else
            out->units[out->n++] = (calm_inspect_unit){out->jobs[j].unit, j, 1, CALM_INSPECT_NONE, false};
    }
    return CALM_OK;
}

/* ---- candidates ---- */

static const char candidates_sql[] =
    "SELECT k.job_id, k.id, k.key, a.name, k.scheme, k.failure, s.value, t.value, k.bits_per_weight, a.id "
    "FROM run_candidate rc JOIN candidate k ON k.id = rc.candidate_id JOIN algorithm a ON a.id = k.algorithm_id "
    "LEFT JOIN score s ON s.candidate_id = k.id AND s.unit = ?2 AND s.metric = ?3 "
    "LEFT JOIN score t ON t.candidate_id = k.id AND t.unit = ?2 AND t.metric = ?4 "
    "WHERE rc.run_id = ?1 ORDER BY rc.candidate_id";

/* Of "rtn for gptq", what stands for gptq where an expert saw too few tokens, the pool's name. */
static const char *pool_name(const char *algorithm)
{
    const char *instead = strstr(algorithm, " for ");
    return instead ? instead + 5 : algorithm;
}

static calm_status find_column(calm_ctx *ctx, calm_inspect_units *units, const calm_inspect_candidate *candidate,
                               size_t *out)
{
    const char *name = pool_name(candidate->algorithm);
    for (*out = 0; *out < units->n_columns; ++*out)
        if (strcmp(units->columns[*out].algorithm, name) == 0 &&
            strcmp(units->columns[*out].scheme, candidate->scheme) == 0)
            return CALM_OK;
    if (units->n_columns == COLUMNS_MAX)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "run %lld: over %zu algorithms and schemes, more than a pool has",
                         (long long)units->run, COLUMNS_MAX);
    units->columns[units->n_columns++] = (calm_inspect_column){.algorithm = name, .scheme = candidate->scheme};
    return CALM_OK;
}

static calm_status grow(calm_ctx *ctx, growing *rows)
{
    calm_inspect_candidate *candidates = rows->candidates;
    size_t *job = rows->job, *column = rows->column;
    if (rows->n < rows->capacity)
        return CALM_OK;
    rows->capacity = rows->capacity ? 2 * rows->capacity : 256;
    CALM_TRY(CALM_NEW(ctx, ctx->out, rows->candidates, rows->capacity));
    CALM_TRY(CALM_NEW(ctx, ctx->out, rows->job, rows->capacity));
    CALM_TRY(CALM_NEW(ctx, ctx->out, rows->column, rows->capacity));
    if (rows->n) {
        memcpy(rows->candidates, candidates, rows->n * sizeof *candidates);
        memcpy(rows->job, job, rows->n * sizeof *job);
        memcpy(rows->column, column, rows->n * sizeof *column);
    }
    return CALM_OK;
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const place_of_id *)a)->id, y = ((const place_of_id *)b)->id;
    return (x > y) - (x < y);
}

static calm_status sort_ids(calm_ctx *ctx, growing *rows)
{
    const size_t n = rows->units->n_jobs;
    CALM_TRY(CALM_NEW(ctx, ctx->out, rows->ids, n));
    for (size_t j = 0; j < n; j++)
        rows->ids[j] = (place_of_id){rows->units->jobs[j].id, j};
    qsort(rows->ids, n, sizeof *rows->ids, by_id);
    return CALM_OK;
}

static calm_status add_candidate(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                                 const calm_value *values)
{
    growing *rows = user;
    (void)n, (void)names;
    if (!values)
        return CALM_OK;
    const place_of_id wanted = {values[0].integer, 0};
    const place_of_id *found = bsearch(&wanted, rows->ids, rows->units->n_jobs, sizeof wanted, by_id);
    if (!found)
        return CALM_OK;    /* of a job of another model */
    CALM_TRY(grow(ctx, rows));
    calm_inspect_candidate *candidate = &rows->candidates[rows->n];
    *candidate = (calm_inspect_candidate){.id = values[1].integer, .metric = real_of(&values[6]),
                                          .tie = real_of(&values[7]), .bits = real_of(&values[8]),
                                          .algorithm_id = values[9].integer};
    CALM_TRY(text_of(ctx, &values[2], &candidate->key));
    CALM_TRY(text_of(ctx, &values[3], &candidate->algorithm));
    CALM_TRY(text_of(ctx, &values[4], &candidate->scheme));
    CALM_TRY(text_of(ctx, &values[5], &candidate->failure));
    candidate->key = or_empty(candidate->key);
    candidate->algorithm = or_empty(candidate->algorithm);
    candidate->scheme = or_empty(candidate->scheme);
    rows->job[rows->n] = found->at;
    return find_column(ctx, rows->units, candidate, &rows->column[rows->n++]);
}

/* ---- columns ---- */

static const char *name_of(const calm_json *algorithm)
{
    const bool object = calm_json_typeof(algorithm) == CALM_JSON_OBJECT;
    return calm_json_string(object ? calm_json_get(algorithm, "name") : algorithm, "");
}

/* Place of a column in the recipe: scheme after scheme, each with its algorithms; those not in it come last. */
static void set_order(const calm_json *recipe, calm_inspect_column *column, size_t found)
{
    const calm_json *algorithms = calm_json_get(recipe, "algorithms"), *schemes = calm_json_get(recipe, "schemes");
    const size_t n_algorithms = calm_json_size(algorithms), n_schemes = calm_json_size(schemes);
    size_t a = 0, s = 0;
    while (a < n_algorithms && strcmp(name_of(calm_json_at(algorithms, a)), column->algorithm) != 0)
        a++;
    while (s < n_schemes && strcmp(calm_json_string(calm_json_at(schemes, s), ""), column->scheme) != 0)
        s++;
    column->order = a < n_algorithms ? s * n_algorithms + a : (n_schemes + 1) * (n_algorithms + 1) + found;
}

static bool has_budget(const calm_json *owner)
{
    const calm_json *budget = calm_json_get(owner, "budget");
    return calm_json_size(budget) > 0 || isfinite(calm_json_number(budget, NAN));
}

/* What else decided than scores: a budget, and what calm select was asked. */
static calm_status read_selection(calm_ctx *ctx, const calm_json *recipe, calm_inspect_units *units)
{
    const calm_json *select = calm_json_get(recipe, "select"), *forbid = calm_json_get(select, "forbid");
    units->budget = has_budget(recipe) || has_budget(select);
    CALM_TRY(CALM_NEW(ctx, ctx->out, units->forbid, calm_json_size(forbid)));
    for (size_t i = 0; i < calm_json_size(forbid); i++) {
        char *word;
        CALM_TRY(calm_strf(ctx, ctx->out, &word, "%s", calm_json_string(calm_json_at(forbid, i), "")));
        units->forbid[units->n_forbid++] = word;
    }
    return CALM_OK;
}

/* Sort the columns, name them; place [n_columns] is where each has come to. */
static calm_status name_columns(calm_ctx *ctx, calm_inspect_units *units, size_t *place)
{
    calm_json *recipe = NULL;
    bool several = false;
    calm_status status;
    if (calm_json_parse(ctx, "recipe", units->recipe, strlen(units->recipe), &recipe) != CALM_OK)
        calm_ctx_forgive(ctx);    /* it only says the order */
    status = read_selection(ctx, recipe, units);
    for (size_t c = 0; c < units->n_columns; c++) {
        set_order(recipe, &units->columns[c], c);
        several |= strcmp(units->columns[c].scheme, units->columns[0].scheme) != 0;
    }
    calm_json_free(recipe);
    CALM_TRY(status);
    for (size_t c = 0; c < units->n_columns; c++) {
        place[c] = 0;
        for (size_t other = 0; other < units->n_columns; other++)
            place[c] += units->columns[other].order < units->columns[c].order ||
                        (units->columns[other].order == units->columns[c].order && other < c);
    }
    calm_inspect_column *sorted;
    CALM_TRY(CALM_NEW(ctx, ctx->out, sorted, units->n_columns));
    for (size_t c = 0; c < units->n_columns; c++) {
        calm_inspect_column *column = &sorted[place[c]];
        char *name;
        *column = units->columns[c];
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s%s%s", column->algorithm, several ? " " : "",
                           several ? column->scheme : ""));
        column->name = name;
    }
    units->columns = sorted;
    return CALM_OK;
}

static calm_status fill_cells(calm_ctx *ctx, calm_inspect_units *units, const growing *rows, const size_t *place)
{
    const calm_inspect_candidate **cells;
    size_t n;
    if (!calm_size_mul(&n, units->n_jobs, units->n_columns))
        return calm_fail(ctx, CALM_ENOMEM, "run %lld: too many candidates", (long long)units->run);
    CALM_TRY(CALM_NEW(ctx, ctx->out, cells, n));
    for (size_t j = 0; j < units->n_jobs; j++)
        units->jobs[j].cells = cells + j * units->n_columns;
    for (size_t i = 0; i < rows->n; i++)
        units->jobs[rows->job[i]].cells[place[rows->column[i]]] = &rows->candidates[i];
    for (size_t u = 0; u < units->n; u++) {
        calm_inspect_unit *unit = &units->units[u];
        for (size_t j = unit->first; j < unit->first + unit->n; j++)
            unit->seen |= units->jobs[j].decided;
        for (size_t c = 0; c < units->n_columns; c++) {
            const calm_inspect_candidate *cell = units->jobs[unit->first].cells[c];
            unit->seen |= cell != NULL;
            if (cell && units->jobs[unit->first].decided && cell->id == units->jobs[unit->first].chosen)
                unit->chosen = c;
        }
    }
    return CALM_OK;
}

calm_status calm_inspect_units_read(calm_ctx *ctx, calm_store *store, int64_t run, const char *metric,
                                    calm_inspect_units *out)
{
    growing rows = {.units = out};
    size_t *place;
    CALM_TRY(read_run(ctx, store, run, metric, out));
    CALM_TRY(read_jobs(ctx, store, out));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->columns, COLUMNS_MAX));
    const calm_value params[] = {calm_value_int(run), calm_value_text(out->unit), calm_value_text(out->metric),
                                 calm_value_text(out->tie)};
    CALM_TRY(sort_ids(ctx, &rows));
    if (out->n_jobs)
        CALM_TRY(calm_store_query(ctx, store, candidates_sql, params, 4, add_candidate, &rows));
    CALM_TRY(CALM_NEW(ctx, ctx->out, place, out->n_columns));
    CALM_TRY(name_columns(ctx, out, place));
    return fill_cells(ctx, out, &rows, place);
}

/* ---- names ---- */

const char *calm_inspect_short(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '.'), at = at ? at + 1 : NULL)
        if (*at >= '0' && *at <= '9')
            return at;
    return name;
}

static bool named(const char *name, const char *word)
{
    return strcmp(name, word) == 0 || strcmp(calm_inspect_short(name), word) == 0;
}

calm_status calm_inspect_unit_find(calm_ctx *ctx, const calm_inspect_units *units, const char *name, size_t *out)
{
    const char *near = NULL, *shown;
    for (*out = 0; *out < units->n; ++*out)
        if (named(units->units[*out].name, name))
            return CALM_OK;
    for (*out = 0; *out < units->n; ++*out)
        for (size_t j = units->units[*out].first; j < units->units[*out].first + units->units[*out].n; j++)
            if (named(units->jobs[j].name, name))
                return CALM_OK;
    const char **names;
    const size_t n = 2 * (units->n + units->n_jobs);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n));
    for (size_t i = 0; i < n / 2; i++) {
        names[2 * i] = i < units->n ? units->units[i].name : units->jobs[i - units->n].name;
        names[2 * i + 1] = calm_inspect_short(names[2 * i]);
    }
    near = calm_nearest(name, names, n);
    CALM_TRY(calm_inspect_printable(ctx, near ? near : units->n ? units->units[0].name : "", &shown));
    return calm_fail(ctx, CALM_ENOTFOUND, "run %lld has no unit \"%s\"%s%s%s", (long long)units->run, name,
                     near ? "; did you mean \"" : units->n ? "; it has " : "", shown,
                     near ? "\"?" : units->n > 1 ? " and others" : "");
}

calm_status calm_inspect_unit_params(calm_ctx *ctx, const calm_inspection *in, calm_value params[3])
{
    calm_inspect_units units;
    size_t u;
    params[0] = params[1] = params[2] = (calm_value){.type = CALM_VALUE_NULL};
    if (!in->query->unit)
        return CALM_OK;
    if (!in->run)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: there is no run with a unit \"%s\"", calm_store_path(in->store),
                         in->query->unit);
    CALM_TRY(read_run(ctx, in->store, in->run, NULL, &units));
    CALM_TRY(read_jobs(ctx, in->store, &units));
    CALM_TRY(calm_inspect_unit_find(ctx, &units, in->query->unit, &u));
    const calm_inspect_job *first = &units.jobs[units.units[u].first];
    params[0] = calm_value_int(first->block_id);
    params[1] = calm_value_int(first->position);
    params[2] = calm_value_int(first[units.units[u].n - 1].position);
    return CALM_OK;
}

/* ---- scores ---- */

const char *calm_inspect_failure(const calm_inspect_units *units, const calm_inspect_unit *unit, size_t column)
{
    const char *failure = NULL;
    for (size_t j = unit->first; j < unit->first + unit->n && !failure; j++)
        if (units->jobs[j].cells[column])
            failure = units->jobs[j].cells[column]->failure;
    return failure;
}

/* Does "gptq w3a16_g128" name this algorithm at this scheme? */
static bool names_both(const char *word, const char *algorithm, const char *scheme)
{
    const size_t n = strlen(algorithm);
    return strncmp(word, algorithm, n) == 0 && word[n] == ' ' && strcmp(word + n + 1, scheme) == 0;
}

bool calm_inspect_forbidden(const calm_inspect_units *units, const calm_inspect_unit *unit, size_t column)
{
    const calm_inspect_column *at = &units->columns[column];
    for (size_t i = 0; i < units->n_forbid; i++) {
        const char *word = units->forbid[i];
        if (strcmp(word, at->algorithm) == 0 || names_both(word, at->algorithm, at->scheme))
            return true;
        for (size_t j = unit->first; word[0] == '#' && j < unit->first + unit->n; j++)
            if (units->jobs[j].cells[column] && units->jobs[j].cells[column]->id == strtoll(word + 1, NULL, 10))
                return true;
    }
    return false;
}

double calm_inspect_times(const char *metric, double value, double least)
{
    if (isnan(value) || isnan(least))
        return NAN;
    if (value == least)
        return 1;
    if (metric && strstr(metric, "log_"))
        return exp(value - least);
    return 1 + (value - least) / fabs(least);
}

double calm_inspect_least(const calm_inspect_units *units, const calm_inspect_unit *unit)
{
    double least = NAN;
    for (size_t c = 0; c < units->n_columns; c++) {
        const calm_inspect_candidate *cell = units->jobs[unit->first].cells[c];
        if (cell && isfinite(cell->metric) && !calm_inspect_failure(units, unit, c))
            least = fmin(least, cell->metric);
    }
    return least;
}

/* ---- the rule again ---- */

static bool find_rule(const char *name, calm_rule *out)
{
    for (*out = CALM_RULE_TOKEN; name && *out <= CALM_RULE_ARGMAX; ++*out)
        if (strcmp(calm_rule_name(*out), name) == 0)
            return true;
    return false;
}

calm_status calm_inspect_choose(calm_ctx *ctx, const calm_inspect_units *units, const calm_inspect_unit *unit,
                                size_t *out, char **reason)
{
    const bool limited = units->budget && unit->chosen != CALM_INSPECT_NONE;
    const char *within = limited ? units->columns[unit->chosen].scheme : NULL;
    calm_contender *contenders;
    calm_rule rule;
    size_t *columns, n = 0, alive = 0, scored = 0, winner;
    *out = CALM_INSPECT_NONE;
    if (!find_rule(units->rule, &rule) || !units->metric)
        return calm_strf(ctx, ctx->out, reason, "this program has no rule \"%s\" of \"%s\"", or_empty(units->rule),
                         or_empty(units->metric));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, contenders, units->n_columns));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, columns, units->n_columns));
    for (size_t c = 0; c < units->n_columns; c++) {
        const calm_inspect_candidate *cell = units->jobs[unit->first].cells[c];
        if (!cell || calm_inspect_forbidden(units, unit, c) ||
            (within && strcmp(within, units->columns[c].scheme) != 0))
            continue;
        const char *failure = calm_inspect_failure(units, unit, c);
        columns[n] = c;
        contenders[n++] = (calm_contender){cell->key, units->columns[c].name, failure, cell->metric, cell->tie};
        alive += !failure;
        scored += !failure && isfinite(cell->metric);
        *out = failure ? *out : c;
    }
    if (n == 1 && alive)
        return calm_strf(ctx, ctx->out, reason, "the only candidate");
    *out = CALM_INSPECT_NONE;
    if (!scored)
        return calm_strf(ctx, ctx->out, reason, "%s", !n      ? "it has no candidate"
                                                      : alive ? "no candidate has the score"
                                                              : "every candidate failed");
    CALM_TRY(calm_choose(ctx, rule, units->metric, contenders, n, &winner, reason));
    *out = columns[winner];
    return CALM_OK;
}
