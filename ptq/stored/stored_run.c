/* Reads runs from the store.
 *
 * A run's recipe is the JSON of its resolved recipe, with members "document" (the recipe file) and, for a selection,
 * "select".  Older runs have fewer members, so each has a fallback. */
#include "ptq/stored/stored_impl.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/recipe/words.h"

/* ---- the run ---- */

calm_status calm_stored_run_number(calm_ctx *ctx, const char *owner, const char *word, int64_t *run)
{
    char *end;
    errno = 0;
    const long long value = strtoll(word, &end, 10);
    /* strtoll would accept spaces and signs. */
    if (!isdigit((unsigned char)word[0]) || *end || errno || value < 1)
        return calm_fail(ctx, CALM_EARG, "calm %s: RUN \"%s\": expected a number from 1; see calm inspect", owner,
                         word);
    *run = value;
    return CALM_OK;
}

/* The message has the newest run, which users most often mean. */
static calm_status no_such_run(calm_ctx *ctx, calm_store *store, int64_t run)
{
    calm_value newest;
    calm_ctx_clear_failure(ctx);    /* the failure of the query without a row */
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT max(id) FROM run", NULL, 0, &newest, 1));
    if (newest.type != CALM_VALUE_INTEGER)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld; it has no runs", calm_store_path(store),
                         (long long)run);
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld; the newest is %lld", calm_store_path(store), (long long)run,
                     (long long)newest.integer);
}

calm_status calm_stored_run_read(calm_ctx *ctx, calm_store *store, int64_t run, calm_stored_run *out)
{
    static const char sql[] =
        "SELECT r.model_id, r.calibration_id, r.bits_per_weight, r.bytes_after, r.key, r.status, r.unit, r.rule,"
        " r.metric, r.result, r.reason, r.recipe, m.digest, m.name, m.path"
        " FROM run r JOIN model m ON m.id = r.model_id WHERE r.id = ?1";
    const calm_value id = calm_value_int(run);
    calm_value v[15];
    *out = (calm_stored_run){.id = run};
    const calm_status status = calm_store_query_one(ctx, store, sql, &id, 1, v, 15);
    if (status == CALM_ENOTFOUND)
        return no_such_run(ctx, store, run);
    CALM_TRY(status);
    /* SQLite allows any type in a cell: a value of another type is read as 0, NaN or NULL. */
    out->model_id = calm_value_as_int(&v[0]);
    out->calibration_id = calm_value_as_int(&v[1]);
    out->bits_per_weight = calm_value_as_real(&v[2]);
    out->bytes_after = calm_value_as_int(&v[3]);
    /* In the order of the columns after the numbers. */
    const char **const texts[] = {&out->key, &out->status, &out->unit, &out->rule, &out->metric, &out->result,
                                  &out->reason, &out->recipe_text, &out->model_digest, &out->model_name,
                                  &out->model_path};
    for (size_t i = 0; i < 11; i++)
        *texts[i] = calm_value_as_string(&v[4 + i]);
    /* The schema requires these texts; a store that was edited by hand may lack them. */
    if (!out->key || !out->status || !out->unit || !out->recipe_text || !out->model_digest || !out->model_name)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld is incomplete: a text is missing", calm_store_path(store),
                         (long long)run);
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s: recipe of run %lld", calm_store_path(store), (long long)run));
    CALM_TRY(calm_json_parse(ctx, name, out->recipe_text, strlen(out->recipe_text), &out->recipe));
    if (calm_json_typeof(out->recipe) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected an object", name);
    return CALM_OK;
}

/* Texts are in ctx->out; only the parsed recipe is on the heap. */
void calm_stored_run_clear(calm_stored_run *run)
{
    calm_json_free(run->recipe);
    run->recipe = NULL;
}

/* A selection has no environment, but another run with its calibration has one; the kernel family is in the
 * calibration's key, so it is the same. */
calm_status calm_stored_run_kernels(calm_ctx *ctx, calm_store *store, int64_t run, const char **out)
{
    static const char sql[] =
        "SELECT max(e.value) FROM run r JOIN run s ON s.id = r.id OR s.calibration_id = r.calibration_id"
        " JOIN environment e ON e.run_id = s.id AND e.name = 'kernels' WHERE r.id = ?1";
    const calm_value id = calm_value_int(run);
    calm_value value;
    CALM_TRY(calm_store_query_one(ctx, store, sql, &id, 1, &value, 1));
    *out = calm_value_as_string(&value);
    return CALM_OK;
}

/* ---- the run's requests ---- */

/* After false, *unit is CALM_N_UNITS, which is no unit. */
bool calm_stored_run_unit(const calm_stored_run *run, calm_unit *unit)
{
    for (*unit = 0; *unit < CALM_N_UNITS; ++*unit)
        if (strcmp(run->unit, calm_unit_name(*unit)) == 0)
            return true;
    return false;
}

calm_status calm_stored_run_bits(calm_ctx *ctx, const calm_stored_run *run, const char *key, const calm_json *value,
                                 double most, double *out)
{
    if (!value)
        return CALM_OK;
    CALM_TRY(calm_json_expect(ctx, value, CALM_JSON_REAL, "run %lld: \"%s\" of its recipe", (long long)run->id, key));
    *out = calm_json_number(value, 0);
    if (!(*out > 0 && *out <= most))
        return calm_fail(ctx, CALM_EFORMAT, "run %lld: \"%s\" of its recipe: expected a number above 0 and up to %g, "
                         "found %g", (long long)run->id, key, most, *out);
    return CALM_OK;
}

calm_status calm_stored_run_budget(calm_ctx *ctx, const calm_stored_run *run, double *out)
{
    const calm_json *before = calm_json_get(calm_json_get(run->recipe, "select"), "budget");
    const calm_json *list = calm_json_get(run->recipe, "budget");
    /* A selection has one budget, a run a list of them. */
    if (!before && list)
        CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "run %lld: \"budget\" of its recipe",
                                  (long long)run->id));
    return calm_stored_run_bits(ctx, run, "budget", before ? before : calm_json_at(list, 0), CALM_BUDGET_MAX, out);
}

calm_status calm_stored_run_act_budget(calm_ctx *ctx, const calm_stored_run *run, double *out)
{
    const calm_json *before = calm_json_get(calm_json_get(run->recipe, "select"), "act_budget");
    return calm_stored_run_bits(ctx, run, "act_budget", before ? before : calm_json_get(run->recipe, "act_budget"),
                                CALM_ACT_BUDGET_MAX, out);
}

bool calm_stored_run_rule(const calm_stored_run *run, calm_choice_rule *rule)
{
    for (*rule = CALM_CHOICE_RULE_TOKEN; run->rule && *rule <= CALM_CHOICE_RULE_ARGMAX; ++*rule)
        if (strcmp(run->rule, calm_choice_rule_name(*rule)) == 0)
            return true;
    return false;
}

/* The store is untrusted: with a factor below 1 the least score would not be in its shortlist. */
double calm_stored_run_shortlist(const calm_stored_run *run)
{
    const calm_json *before = calm_json_get(calm_json_get(run->recipe, "select"), "shortlist");
    const calm_json *own = calm_json_get(calm_json_get(run->recipe, "choice"), "shortlist");
    /* A run with rule argmax has no factor: for the rule token it gets the default of a new recipe. */
    const bool argmax = run->rule && strcmp(run->rule, calm_choice_rule_name(CALM_CHOICE_RULE_ARGMAX)) == 0;
    const double unsaid = argmax ? CALM_SHORTLIST_DEFAULT : CALM_SHORTLIST_UNSAID;
    const double factor = calm_json_number(before ? before : own, unsaid);
    return factor >= 1 && factor <= CALM_SHORTLIST_MAX ? factor : unsaid;
}

/* Adds "forbid", an array of texts.  Of the recipe's own, only numbers of candidates are added (`numbers`): entries
 * that it forbids by name are not in its pool, so the name would be an error. */
static calm_status add_forbidden(calm_ctx *ctx, const calm_json *words, bool numbers, calm_word *forbid, size_t *n)
{
    for (size_t i = 0; i < calm_json_size(words); i++) {
        const char *word = calm_json_string(calm_json_at(words, i), NULL);
        if (word && (!numbers || word[0] == '#'))
            CALM_TRY(calm_word_parse(ctx, word, &forbid[(*n)++]));
    }
    return CALM_OK;
}

/* Adds "pins" of the recipe, an object by unit, as round 0. */
static calm_status add_own_pins(calm_ctx *ctx, const calm_json *object, calm_pin *pins, size_t *n)
{
    const calm_json *value;
    const char *unit;
    void *iter = NULL;
    while (calm_json_typeof(object) == CALM_JSON_OBJECT && calm_json_next(object, &iter, &unit, &value))
        CALM_TRY(calm_pins_add(ctx, unit, calm_json_string(value, NULL), 0, pins, n));
    return CALM_OK;
}

/* Adds "pin" of selections, an array with rounds.  Rounds must rise, because pins are sorted by round; a lower number
 * is read as the round before it. */
static calm_status add_later_pins(calm_ctx *ctx, const calm_json *array, calm_pin *pins, size_t *n)
{
    int round = 1;
    for (size_t i = 0; i < calm_json_size(array); i++) {
        const calm_json *at = calm_json_at(array, i);
        const char *unit = calm_json_string(calm_json_get(at, "unit"), NULL);
        const char *candidate = calm_json_string(calm_json_get(at, "candidate"), NULL);
        const int64_t said = calm_json_int(calm_json_get(at, "round"), 1);
        round = said > round && said < INT_MAX ? (int)said : round;
        CALM_TRY(calm_pins_add(ctx, unit, candidate, round, pins, n));
    }
    return CALM_OK;
}

calm_status calm_stored_run_requests(calm_ctx *ctx, const calm_stored_run *run, size_t room, calm_word **forbid,
                                 calm_pin **pins, calm_requests *out)
{
    const calm_json *choice = calm_json_get(run->recipe, "choice"), *select = calm_json_get(run->recipe, "select");
    const calm_json *own_forbid = calm_json_get(choice, "forbid"), *own_pins = calm_json_get(choice, "pins");
    const calm_json *later_forbid = calm_json_get(select, "forbid"), *later_pins = calm_json_get(select, "pin");
    *out = (calm_requests){.budget = NAN};
    /* Sizes of the JSON are upper bounds: members that are no texts are skipped. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, *forbid, calm_json_size(own_forbid) + calm_json_size(later_forbid) + room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *pins, calm_json_size(own_pins) + calm_json_size(later_pins) + room));
    CALM_TRY(add_forbidden(ctx, own_forbid, true, *forbid, &out->n_forbid));
    CALM_TRY(add_forbidden(ctx, later_forbid, false, *forbid, &out->n_forbid));
    CALM_TRY(add_own_pins(ctx, own_pins, *pins, &out->n_pins));
    CALM_TRY(add_later_pins(ctx, later_pins, *pins, &out->n_pins));
    out->forbid = *forbid;
    out->pins = *pins;
    return CALM_OK;
}
