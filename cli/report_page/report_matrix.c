/* Makes the matrix of units and candidates, with scores and reasons, as compact JSON: a run has tens of thousands of
 * cells. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect/inspect_why.h"
#include "cli/report_page/report_page.h"
#include "ptq/text/unicode.h"

#define METRICS_MAX ((size_t)64)      /* largest number of different scores of a run */
#define SCORES_MAX ((size_t)120000)   /* with more scores in all cells the page shows only common ones */

/* Scores of all cells, by candidate id. */
typedef struct scores {
    int64_t *ids;                      /* [n] ascending    */
    double *values;                    /* [n][METRICS_MAX] */
    size_t n;
    const char *unit;                  /* unit of the scores to keep    */
    char names[METRICS_MAX][48];       /* [n_names] by first occurrence */
    size_t n_names;
} scores;

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static calm_status list_ids(calm_ctx *ctx, const calm_inspect_units *units, scores *out)
{
    const calm_pool *pool = &units->stored.pool;
    const size_t room = pool->n_units * pool->n_entries + 1;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, room));
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t e = 0; e < pool->n_entries; e++) {
            const calm_pool_cell *cell = calm_inspect_cell(units, u, e);
            if (cell)
                out->ids[out->n++] = cell->id;
        }
    qsort(out->ids, out->n, sizeof *out->ids, by_number);
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->values, (out->n + 1) * METRICS_MAX));
    for (size_t i = 0; i < out->n * METRICS_MAX; i++)
        out->values[i] = NAN;
    return CALM_OK;
}

/* Returns the number of a score's name; METRICS_MAX: too many names. */
static size_t find_name(scores *s, const char *name)
{
    for (size_t i = 0; i < s->n_names; i++)
        if (strcmp(s->names[i], name) == 0)
            return i;
    if (s->n_names == METRICS_MAX || strlen(name) >= sizeof s->names[0] ||
        calm_utf8_invalid_at(name, strlen(name)) < strlen(name))
        return METRICS_MAX;
    memcpy(s->names[s->n_names], name, strlen(name) + 1);
    return s->n_names++;
}

static double *values_of(const scores *s, int64_t id)
{
    const int64_t *at = bsearch(&id, s->ids, s->n, sizeof *s->ids, by_number);
    return at ? s->values + (size_t)(at - s->ids) * METRICS_MAX : NULL;
}

/* A row of calm_inspect_scores: block, job, algorithm, scheme, unit, metric, value, candidate. */
static calm_status add_score(calm_ctx *ctx, void *user, const calm_value *v)
{
    scores *s = user;
    (void)ctx;
    const char *unit = calm_value_as_string(&v[4]), *metric = calm_value_as_string(&v[5]);
    if (!unit || !metric || strcmp(unit, s->unit) != 0)
        return CALM_OK;
    double *values = values_of(s, calm_value_as_int(&v[7]));
    const size_t name = values ? find_name(s, metric) : METRICS_MAX;
    if (name < METRICS_MAX)
        values[name] = calm_value_as_real(&v[6]);
    return CALM_OK;
}

static calm_status read_scores(calm_ctx *ctx, const calm_inspection *in, const calm_inspect_units *units, scores *out)
{
    const calm_value params[] = {calm_value_int(in->run), {.type = CALM_VALUE_NULL}, {.type = CALM_VALUE_NULL},
                                 {.type = CALM_VALUE_NULL}};
    out->unit = units->run.unit;
    CALM_TRY(list_ids(ctx, units, out));
    return calm_store_each(ctx, in->store, calm_inspect_scores[0].sql, params, calm_inspect_scores[0].n_params,
                           add_score, out);
}

/* Is a score shown?  If there are too many for a page, only those that the rule reads and the common ones are. */
static bool is_shown(const scores *s, const calm_inspect_units *units, size_t name)
{
    static const char *const common[] = {"cka", "cka_token", "log_rel_mse", "probe_kl"};
    bool shown = s->n * s->n_names <= SCORES_MAX;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        shown |= strcmp(s->names[name], common[i]) == 0;
    return shown || (units->metric && strcmp(s->names[name], units->metric) == 0) ||
           strcmp(s->names[name], units->tie) == 0;
}

/* ---- texts that occur often, once ---- */

typedef struct phrases {
    calm_json *list, *numbers;    /* the texts; {text: its number} */
} phrases;

static void free_phrases(phrases *p)
{
    calm_json_free(p->numbers);
}

static calm_json *phrase(phrases *p, const char *text)
{
    int64_t number = calm_json_int(calm_json_get(p->numbers, text), -1);
    if (number < 0) {
        number = (int64_t)calm_json_size(p->list);
        calm_json_add_string(p->list, text);
        calm_json_set_int(p->numbers, text, number);
    }
    return calm_json_of_int(number);
}

/* ---- cells and units ---- */

/* State for writing all cells and units. */
typedef struct writing {
    const scores *scores;
    phrases *words;
    bool target;              /* the choice obeys an engine */
} writing;

/* Returns the state of a cell in one word; the page has a shape for each. */
static const char *state_of(const calm_inspect_judged *j, size_t entry)
{
    const char *failure = calm_inspect_failure(j->units, j->unit, entry);
    if (entry == j->units->chosen[j->unit])
        return "chosen";
    if (failure && strcmp(failure, CALM_NOT_TRIED) == 0)
        return "skipped";
    if (failure)
        return "failed";
    if (calm_inspect_forbidden(j->units, j->unit, entry))
        return "forbidden";
    if (calm_inspect_other_scheme(j->units, j->unit, entry))
        return "other_scheme";
    return isnan(calm_inspect_cell(j->units, j->unit, entry)->metric) ? "unscored" : "lost";
}

/* Returns how a unit's choice was made, in one word. */
static const char *decision_of(const calm_inspect_judged *j, bool target)
{
    const calm_stored_run_choice *choice = calm_inspect_chosen(j->units, j->unit);
    if (!choice->decided)
        return "none";
    if (!choice->candidate)
        return "float";
    if (choice->reason && strncmp(choice->reason, "pinned", 6) == 0)
        return "pinned";
    if (j->rule == CALM_INSPECT_NONE || j->units->chosen[j->unit] == j->rule)
        return j->units->budget ? "budget" : "rule";
    return target ? "held_back" : "other";
}

static calm_json *word(const char *text)
{
    CALM_SCOPED_TEXT(sound);
    if (!text)
        return calm_json_new_null();
    calm_utf8_repair(text, strlen(text), &sound);
    return calm_json_of_string(sound.data ? sound.data : "");
}

static calm_status cell_json(calm_ctx *ctx, const calm_inspect_judged *j, size_t entry, const writing *w,
                             calm_json **out)
{
    const scores *s = w->scores;
    const calm_pool *pool = &j->units->stored.pool;
    const calm_stored_run_cell *stored = &j->units->stored.cells[pool->unit_begin[j->unit] * pool->n_entries + entry];
    const calm_pool_cell *cell = calm_inspect_cell(j->units, j->unit, entry);
    const double *values = values_of(s, cell->id);
    const bool failed = calm_inspect_failure(j->units, j->unit, entry) != NULL;
    CALM_SCOPED_TEXT(sound);
    char *why;
    CALM_TRY(calm_inspect_reason(ctx, j, entry, &why));
    calm_utf8_repair(why, strlen(why), &sound);
    CALM_TRY(calm_text_check(ctx, &sound));
    calm_json *row = *out = calm_json_new_array();
    calm_json_add(row, calm_json_of_size(entry));
    calm_json_add(row, calm_json_of_int(cell->id));
    calm_json_add(row, phrase(w->words, state_of(j, entry)));
    calm_json_add(row, phrase(w->words, sound.data ? sound.data : ""));
    calm_json_add(row, calm_json_of_number(
                           failed ? NAN : calm_inspect_times(j->units->metric, cell->metric, j->least)));
    calm_json_add(row, calm_json_of_number(stored->bits_per_weight));
    for (size_t m = 0; m < s->n_names; m++)
        if (is_shown(s, j->units, m))
            calm_json_add(row, calm_json_of_number(values ? values[m] : NAN));
    return CALM_OK;
}

static calm_status unit_json(calm_ctx *ctx, const calm_inspect_judged *j, const char *rule_reason,
                             const writing *w, calm_json **out)
{
    const calm_inspect_units *units = j->units;
    const calm_pool *pool = &units->stored.pool;
    const calm_stored_run_choice *choice = calm_inspect_chosen(units, j->unit);
    const size_t begin = pool->unit_begin[j->unit], end = pool->unit_begin[j->unit + 1];
    const size_t chosen = units->chosen[j->unit];
    calm_json *jobs = calm_json_new_array(), *cells = calm_json_new_array(), *row;
    *out = CALM_OBJECT(
        CALM_KV("unit", word(calm_pool_unit(pool, j->unit))),
        CALM_KV("name", word(calm_unit_short_name(calm_pool_unit(pool, j->unit)))),
        CALM_KV("block", pool->jobs[begin].block), CALM_KV("weights", calm_pool_weights(pool, begin, end)),
        CALM_KV("decision", decision_of(j, w->target)),
        CALM_KV("chosen", chosen == CALM_INSPECT_NONE ? calm_json_new_null() : calm_json_of_size(chosen)),
        CALM_KV("reason", word(choice->reason)),
        CALM_KV("rule_choice", j->rule == CALM_INSPECT_NONE ? calm_json_new_null() : calm_json_of_size(j->rule)),
        CALM_KV("rule_reason", word(rule_reason)),
        CALM_KV("consistent", calm_inspect_consistent(units, j->unit, j->rule)),
        CALM_KV("advice", word(choice->advice)), CALM_KV("disagrees", choice->disagrees),
        CALM_KV("least", calm_inspect_least(units, j->unit, false)), CALM_KV("jobs", jobs), CALM_KV("cells", cells));
    for (size_t i = begin; i < end; i++)
        calm_json_add(jobs, word(pool->jobs[i].name));
    for (size_t e = 0; e < pool->n_entries; e++) {
        if (!calm_inspect_cell(units, j->unit, e))
            continue;
        CALM_TRY(cell_json(ctx, j, e, w, &row));
        calm_json_add(cells, row);
    }
    return CALM_OK;
}

/* ---- the whole ---- */

static calm_json *entries_json(const calm_pool *pool)
{
    calm_json *list = calm_json_new_array();
    for (size_t e = 0; e < pool->n_entries; e++)
        calm_json_add(list, CALM_OBJECT(CALM_KV("name", word(pool->entries[e].name)),
                                        CALM_KV("algorithm", word(pool->entries[e].algorithm)),
                                        CALM_KV("scheme", word(pool->entries[e].scheme_name)),
                                        CALM_KV("chain", word(pool->entries[e].chain))));
    return list;
}

static calm_json *columns_json(const scores *s, const calm_inspect_units *units)
{
    static const char *const fixed[] = {"entry", "candidate", "state", "reason", "times_least", "bits"};
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        calm_json_add_string(list, fixed[i]);
    for (size_t m = 0; m < s->n_names; m++)
        if (is_shown(s, units, m))
            calm_json_add_string(list, s->names[m]);
    return list;
}

static calm_status add_units(calm_ctx *ctx, const calm_inspect_units *units, const writing *w, calm_json *list)
{
    for (size_t u = 0; u < units->stored.pool.n_units; u++) {
        calm_inspect_judged j = {.units = units, .unit = u};
        const char *reason;
        calm_json *unit = NULL;
        if (!units->seen[u])
            continue;
        CALM_TRY(calm_inspect_choose(ctx, units, u, &j.rule, &reason));
        j.least = calm_inspect_least(units, u, true);
        const calm_status status = unit_json(ctx, &j, reason, w, &unit);
        calm_json_add(list, unit);
        CALM_TRY(status);
    }
    return CALM_OK;
}

/* Does the choice obey an engine?  A selection may name another engine than its parent run. */
static calm_status has_target(calm_ctx *ctx, const calm_stored_run *run, bool *out)
{
    CALM_SCOPED_JSON(recipe);    /* parsed again: the units have released it */
    CALM_TRY(calm_json_parse(ctx, "the run's recipe", run->recipe_text, strlen(run->recipe_text), &recipe));
    const calm_json *own = calm_json_get(calm_json_get(recipe, "select"), "target");
    *out = strcmp(calm_json_string(own ? own : calm_json_get(recipe, "target"), "any"), "any") != 0;
    return CALM_OK;
}

calm_status calm_report_page_matrix(calm_ctx *ctx, calm_inspection *in, calm_json **out)
{
    CALM_SCOPED(phrases, free_phrases) words = {.list = calm_json_new_array(), .numbers = calm_json_new_object()};
    calm_json *list = calm_json_new_array();
    calm_inspect_units units;
    scores *s;
    *out = CALM_OBJECT(CALM_KV("phrases", words.list), CALM_KV("units", list));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s, 1));
    CALM_TRY(calm_inspect_units_read(ctx, in->store, in->run, NULL, &units));
    CALM_TRY(read_scores(ctx, in, &units, s));
    calm_json_extend(*out, (const calm_json_member[]){
        CALM_KV("unit", word(units.run.unit)), CALM_KV("rule", word(units.rule)), CALM_KV("metric", word(units.metric)),
        CALM_KV("tie_metric", word(units.tie)), CALM_KV("all_scores", (bool)(s->n * s->n_names <= SCORES_MAX)),
        CALM_KV("shortlist", units.stored.pool.shortlist), CALM_KV("entries", entries_json(&units.stored.pool)),
        CALM_KV("columns", columns_json(s, &units)), {0}});
    writing w = {.scores = s, .words = &words};
    CALM_TRY(has_target(ctx, &units.run, &w.target));
    return add_units(ctx, &units, &w, list);
}
