/* A run that only chooses. */
#include "cli/select_run.h"

#include <math.h>
#include <string.h>

#include "cli/recipe.h"
#include "ptq/base/sha256.h"

/* ---- what is asked for ---- */

/* The place of a word in "a|b|c", which is short. */
static bool find_word(const char *word, const char *const *names, size_t n, int *out)
{
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(word, names[i]) == 0) {
            *out = (int)i;
            return true;
        }
    return false;
}

static calm_status unknown_word(calm_ctx *ctx, const calm_stored_run *run, const char *what, const char *word)
{
    return calm_fail(ctx, CALM_EFORMAT, "run %lld has the %s \"%s\", which this calm does not know; say --%s",
                     (long long)run->id, what, word ? word : "", what);
}

/* Unit, rule and metric: of the options, else of the run; the metric of another unit's choice may not be one of
 * this. */
static calm_status resolve_how(calm_ctx *ctx, const calm_select_options *o, const calm_stored_run *run,
                               calm_pool_how *out)
{
    static const char *const rules[] = {"token", "argmax"};
    const char *units[CALM_N_UNITS];
    int unit = o->unit, rule = o->rule;
    for (calm_unit u = 0; u < CALM_N_UNITS; u++)
        units[u] = calm_unit_name(u);
    if (unit == CALM_AS_IN_RUN && !find_word(run->unit, units, CALM_N_UNITS, &unit))
        return unknown_word(ctx, run, "unit", run->unit);
    if (rule == CALM_AS_IN_RUN && !find_word(run->rule, rules, 2, &rule))
        return unknown_word(ctx, run, "rule", run->rule);
    *out = (calm_pool_how){.unit = (calm_unit)unit, .rule = (calm_rule)rule};
    if (o->metric)
        return calm_score_need(ctx, out->unit, o->metric, &out->point, &out->score);
    if (run->metric && calm_score_find(out->unit, run->metric, &out->point, &out->score))
        return CALM_OK;
    if (o->unit == CALM_AS_IN_RUN)
        return unknown_word(ctx, run, "metric", run->metric);
    calm_score_find(out->unit, rule == CALM_RULE_ARGMAX ? "cka" : "cka_token", &out->point, &out->score);
    return CALM_OK;
}

/* Lists of wishes as they grow. */
typedef struct wish_list {
    const char **forbid;
    calm_solve_pin *pins;
    size_t n_forbid, n_pins;
} wish_list;

static calm_status new_list(calm_ctx *ctx, const calm_select_options *o, const calm_stored_run *run, wish_list *out)
{
    const calm_json *before = calm_json_get(run->recipe, "select");
    calm_solve_pin *own;
    size_t n_own;
    CALM_TRY(calm_stored_pins(ctx, run, &own, &n_own));
    const size_t n_forbid = calm_json_size(calm_json_get(before, "forbid")) + (o->forbid ? strlen(o->forbid) + 1 : 0);
    const size_t n_pins = calm_json_size(calm_json_get(before, "pin")) + (o->pin ? strlen(o->pin) + 1 : 0) + n_own;
    *out = (wish_list){0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->forbid, n_forbid + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->pins, n_pins + 1));
    memcpy(out->pins, own, n_own * sizeof *own);
    out->n_pins = n_own;
    return CALM_OK;
}

/* What the run itself was asked, when it is a selection too. */
static void adopt_wishes(const calm_json *before, wish_list *list)
{
    const calm_json *forbid = calm_json_get(before, "forbid"), *pins = calm_json_get(before, "pin");
    for (size_t i = 0; i < calm_json_size(forbid); i++) {
        const char *word = calm_json_string(calm_json_at(forbid, i), NULL);
        if (word)
            list->forbid[list->n_forbid++] = word;
    }
    for (size_t i = 0; i < calm_json_size(pins); i++) {
        const calm_solve_pin pin = {calm_json_string(calm_json_get(calm_json_at(pins, i), "unit"), NULL),
                                    calm_json_string(calm_json_get(calm_json_at(pins, i), "candidate"), NULL), false};
        if (pin.unit && pin.candidate)
            list->pins[list->n_pins++] = pin;
    }
}

static calm_status add_wishes(calm_ctx *ctx, const calm_select_options *o, wish_list *list)
{
    char *item;
    for (const char *at = o->forbid; at && *at;) {
        CALM_TRY(calm_list_next(ctx, &at, &item));
        list->forbid[list->n_forbid++] = item;
    }
    for (const char *at = o->pin; at && *at;) {
        CALM_TRY(calm_list_next(ctx, &at, &item));
        char *sign = strchr(item, '=');
        if (!sign || sign == item || !sign[1])
            return calm_fail(ctx, CALM_EARG, "--pin %s: expected UNIT=CANDIDATE, as model.layers.0.qkv=gptq", item);
        *sign = 0;
        list->pins[list->n_pins++] = (calm_solve_pin){item, sign + 1, false};
    }
    return CALM_OK;
}

/* Of the options, else of the selection that the run is, else of its recipe; a run may have compared several. */
static calm_status resolve_budget(calm_ctx *ctx, const calm_select_options *o, const calm_stored_run *run, double *out)
{
    const calm_json *before = calm_json_get(calm_json_get(run->recipe, "select"), "budget");
    const calm_json *budgets = calm_json_get(run->recipe, "budget");
    *out = o->budget;
    if (!isnan(o->budget))
        return CALM_OK;
    *out = calm_json_number(before ? before : calm_json_at(budgets, 0), NAN);
    if (!before && calm_json_size(budgets) > 1)
        return calm_fail(ctx, CALM_EARG, "run %lld compared %zu budgets and chose for none: say which, as --budget %g",
                         (long long)run->id, calm_json_size(budgets), *out);
    return CALM_OK;
}

/* Of the options, else of the selection that the run is, else of its recipe; in a format that the run was written in,
 * where the target reads one. */
static calm_status resolve_target(calm_ctx *ctx, const calm_select_options *o, const calm_stored_run *run,
                                  calm_solve_wishes *out)
{
    const calm_json *before = calm_json_get(calm_json_get(run->recipe, "select"), "target");
    const char *name = calm_json_string(before ? before : calm_json_get(run->recipe, "target"), "any");
    CALM_TRY(calm_engine_parse(ctx, o->target ? o->target : name, &out->target));
    calm_formats formats;
    char *format;
    CALM_TRY(calm_formats_of_recipe(ctx, run->recipe, &formats));
    CALM_TRY(calm_formats_read_by(ctx, &formats, out->target, &format));
    out->format = format;
    out->tie = calm_formats_tie(&formats);
    return CALM_OK;
}

static calm_status resolve_wishes(calm_ctx *ctx, const calm_select_options *o, const calm_stored_run *run,
                                  calm_solve_wishes *out)
{
    const calm_json *before = calm_json_get(run->recipe, "select");
    wish_list list;
    CALM_TRY(new_list(ctx, o, run, &list));
    adopt_wishes(before, &list);
    CALM_TRY(add_wishes(ctx, o, &list));
    *out = (calm_solve_wishes){.forbid = list.forbid, .n_forbid = list.n_forbid, .pins = list.pins,
                               .n_pins = list.n_pins};
    CALM_TRY(resolve_target(ctx, o, run, out));
    return resolve_budget(ctx, o, run, &out->budget);
}

/* ---- choosing ---- */

bool calm_selected_differs(const calm_selected *s, size_t unit)
{
    bool differs = false;
    for (size_t job = s->solution.begin[unit]; job < s->solution.begin[unit + 1]; job++)
        differs |= s->before[job] != SIZE_MAX && s->before[job] != s->solution.choice[unit];
    return differs;
}

static void compare(calm_selected *s)
{
    double bits = 0, weights = 0;
    for (size_t u = 0; u < s->solution.n_units; u++)
        s->n_changed += calm_selected_differs(s, u);
    for (size_t job = 0; job < s->pool.n_jobs; job++) {
        weights += (double)s->pool.jobs[job].out * (double)s->pool.jobs[job].in;
        bits += s->before[job] == SIZE_MAX
                    ? NAN : calm_solve_bits(&s->pool, job, job + 1, &s->pool.entries[s->before[job]].scheme);
    }
    s->bits_before = bits / weights;
}

static void warn(calm_ctx *ctx, const calm_selected *s)
{
    const char *prefix = calm_json_string(calm_json_get(calm_json_get(s->parent.recipe, "calibration"), "prefix"), "");
    if (strcmp(prefix, "quantized") == 0 && s->n_changed)
        calm_log(ctx, CALM_LOG_WARNING,
                 "run %lld scored each block behind the choices of those before it: after another choice the scores of "
                 "later blocks are of another model", (long long)s->parent.id);
    if (s->solution.unprobed)
        calm_log(ctx, CALM_LOG_WARNING,
                 "%zu of %zu units have no probe in the store: what a unit costs the model is taken to be its %s times "
                 "its share of the weights, a guess; calm quantize with --budget probes them",
                 s->solution.unprobed, s->solution.n_units, s->pool.metric);
}

/* All that is read, of one moment of the store. */
static calm_status read_and_solve(calm_ctx *ctx, const calm_select_options *o, calm_store *store,
                                  calm_solve_wishes *wishes, calm_selected *out)
{
    calm_pool_how how;
    char *remedy;
    CALM_TRY(calm_stored_run_read(ctx, store, o->run, &out->parent));
    CALM_TRY(resolve_how(ctx, o, &out->parent, &how));
    CALM_TRY(resolve_wishes(ctx, o, &out->parent, wishes));
    CALM_TRY(calm_stored_pool(ctx, store, &out->parent, &how, &out->pool));
    const char *metric = out->pool.metric;
    CALM_TRY(calm_strf(ctx, ctx->out, &remedy, "calm quantize with --unit %s --metric %s measures it",
                       calm_unit_name(how.unit), metric));
    out->pool.remedy = remedy;
    out->pool.every = strcmp(calm_unit_name(how.unit), out->parent.unit) != 0 || !out->parent.metric ||
                      strcmp(metric, out->parent.metric) != 0;
    out->budget = wishes->budget;
    out->target = wishes->target;
    CALM_TRY(calm_stored_choice(ctx, &out->parent, &out->pool, &out->before));
    CALM_TRY(calm_solve(ctx, &out->pool, wishes, &out->solution));
    compare(out);
    return CALM_OK;
}

/* ---- keeping ---- */

/* The member "select" of the recipe; `run` 0: without it, for the key. */
static calm_json *select_json(const calm_selected *s, const calm_solve_wishes *wishes, int64_t run)
{
    calm_json *root = calm_json_new_object(), *forbid = calm_json_new_array(), *pins = calm_json_new_array();
    if (run)
        calm_json_set_int(root, "run", run);
    calm_json_set_string(root, "unit", calm_unit_name(s->pool.unit));
    calm_json_set_string(root, "rule", calm_rule_name(s->pool.rule));
    calm_json_set_string(root, "metric", s->pool.metric);
    if (!isnan(wishes->budget))
        calm_json_set_number(root, "budget", wishes->budget);
    const char *own = calm_json_string(calm_json_get(s->parent.recipe, "target"), "any");
    if (strcmp(calm_engine_name(wishes->target), own) != 0)    /* else the recipe says it */
        calm_json_set_string(root, "target", calm_engine_name(wishes->target));
    for (size_t i = 0; i < wishes->n_forbid; i++)
        calm_json_add_string(forbid, wishes->forbid[i]);
    for (size_t i = 0; i < wishes->n_pins; i++) {
        if (wishes->pins[i].of_recipe)    /* it is in the recipe already */
            continue;
        calm_json *pin = calm_json_new_object();
        calm_json_set_string(pin, "unit", wishes->pins[i].unit);
        calm_json_set_string(pin, "candidate", wishes->pins[i].candidate);
        calm_json_add(pins, pin);
    }
    calm_json_set(root, "forbid", forbid);
    calm_json_set(root, "pin", pins);
    return root;
}

/* Append a JSON value in one line; it is freed. */
static calm_status write_json(calm_ctx *ctx, calm_json *value, calm_text *out)
{
    const calm_status status = calm_json_write(ctx, value, 0, out);
    calm_json_free(value);
    return status;
}

/* Of the parent, the options and what came of them: the same again is the same run. */
static calm_status make_key(calm_ctx *ctx, const calm_selected *s, const calm_solve_wishes *wishes,
                            char key[CALM_SHA256_HEX])
{
    calm_text options;
    calm_sha256 sha;
    calm_text_init(&options);
    const calm_status status = write_json(ctx, select_json(s, wishes, 0), &options);
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-select-1");
    calm_sha256_field(&sha, CALM_VERSION);
    calm_sha256_field(&sha, s->parent.key);
    calm_sha256_field(&sha, options.data ? options.data : "");
    for (size_t u = 0; u < s->solution.n_units; u++)
        for (size_t job = s->solution.begin[u]; job < s->solution.begin[u + 1]; job++)
            calm_sha256_field(&sha, calm_solve_at(&s->pool, job, s->solution.choice[u])->key);
    calm_text_clear(&options);
    const calm_status hashed = calm_sha256_finish(ctx, &sha, key);
    return status != CALM_OK ? status : hashed;
}

static calm_status put_choices(calm_ctx *ctx, calm_store *store, const calm_selected *s)
{
    for (size_t u = 0; u < s->solution.n_units; u++)
        for (size_t job = s->solution.begin[u]; job < s->solution.begin[u + 1]; job++) {
            const size_t entry = s->solution.choice[u];
            bool disagrees;
            const char *advice = calm_stored_advice(&s->pool, job, entry, &disagrees);
            const calm_store_choice choice = {.run_id = s->run, .job_id = s->pool.jobs[job].id,
                                              .candidate_id = calm_solve_at(&s->pool, job, entry)->id,
                                              .unit = s->pool.jobs[job].unit, .reason = s->solution.reasons[u],
                                              .advice = advice, .disagrees = disagrees};
            CALM_TRY(calm_store_choice_put(ctx, store, &choice));
        }
    return CALM_OK;
}

static calm_status put_run(calm_ctx *ctx, calm_store *store, const calm_select_options *o, const char *key,
                           const char *recipe, calm_selected *s)
{
    const calm_store_run run = {.key = key, .model_id = s->parent.model_id, .calibration_id = s->parent.calibration_id,
                                .command = o->command, .recipe = recipe, .unit = calm_unit_name(s->pool.unit),
                                .rule = calm_rule_name(s->pool.rule), .metric = s->pool.metric, .version = CALM_VERSION,
                                .n_threads = ctx->n_threads};
    char *reason;
    CALM_TRY(calm_strf(ctx, ctx->out, &reason, "chosen anew from the candidates of run %lld: %zu of %zu units differ%s%s",
                       (long long)s->parent.id, s->n_changed, s->solution.n_units, s->solution.cost ? "; " : "",
                       s->solution.cost ? s->solution.cost : ""));
    CALM_TRY(calm_store_run_begin(ctx, store, &run, &s->run, NULL));
    CALM_TRY(calm_store_run_pool(ctx, store, s->run, s->parent.id));
    CALM_TRY(put_choices(ctx, store, s));
    const calm_store_outcome outcome = {.status = "finished", .result = "hybrid", .reason = reason,
                                        .bits_per_weight = s->solution.bits_per_weight};
    return calm_store_run_end(ctx, store, s->run, &outcome);
}

static calm_status find_or_put(calm_ctx *ctx, calm_store *store, const calm_select_options *o,
                               const calm_solve_wishes *wishes, calm_selected *s)
{
    char key[CALM_SHA256_HEX];
    calm_value known;
    calm_text recipe;
    CALM_TRY(make_key(ctx, s, wishes, key));
    const calm_value param = calm_value_text(key);
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT max(id) FROM run WHERE key = ?1 AND status = 'finished'", &param,
                                  1, &known, 1));
    s->found = known.type == CALM_VALUE_INTEGER;
    s->run = s->found ? known.integer : 0;
    if (s->found)
        return CALM_OK;
    calm_json *json = calm_json_copy(s->parent.recipe);
    calm_json_set(json, "select", select_json(s, wishes, s->parent.id));
    calm_text_init(&recipe);
    calm_status status = write_json(ctx, json, &recipe);
    if (status == CALM_OK)
        status = put_run(ctx, store, o, key, recipe.data, s);
    calm_text_clear(&recipe);
    return status;
}

static calm_status keep(calm_ctx *ctx, const calm_select_options *o, const calm_solve_wishes *wishes, calm_selected *s)
{
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = o->command, .wait_seconds = -1};
    calm_store *store;
    CALM_TRY(calm_store_open(ctx, o->store, &how, &store));
    calm_status status = calm_store_begin(ctx, store);
    if (status == CALM_OK)
        status = find_or_put(ctx, store, o, wishes, s);
    if (status == CALM_OK)
        status = calm_store_commit(ctx, store);
    calm_store_close(store);
    return status;
}

calm_status calm_select(calm_ctx *ctx, const calm_select_options *o, calm_selected *out)
{
    calm_solve_wishes wishes;
    calm_store *store;
    *out = (calm_selected){.budget = NAN};
    CALM_TRY(calm_store_open(ctx, o->store, NULL, &store));
    calm_status status = calm_store_begin(ctx, store);
    if (status == CALM_OK)
        status = read_and_solve(ctx, o, store, &wishes, out);
    calm_store_rollback(store);
    calm_store_close(store);
    CALM_TRY(status);
    warn(ctx, out);
    return o->dry_run ? CALM_OK : keep(ctx, o, &wishes, out);
}

void calm_selected_clear(calm_selected *selected)
{
    calm_stored_run_clear(&selected->parent);
}
