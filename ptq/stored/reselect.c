/* A run that only chooses (calm select).
 *
 * Scores and candidates are in the store, so another choice needs no model and takes milliseconds.  The choice is
 * stored as a separate run with the candidates of its parent, whose rows are never changed. */
#include "ptq/stored/stored_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/choose/choose.h"
#include "ptq/recipe/words.h"
#include "ptq/base/sha256.h"

/* ---- resolving the options ---- */

/* Fails for a stored word that this version of calm does not know, because a newer calm wrote it. */
static calm_status unknown_word(calm_ctx *ctx, const calm_stored_run *run, const char *what, const char *word)
{
    return calm_fail(ctx, CALM_EFORMAT, "run %lld has the %s \"%s\", which this calm does not know; say `choice.%s`",
                     (long long)run->id, what, word ? word : "", what);
}

/* Resolves unit, rule with its shortlist, and metric: the options', else the run's.  The run's metric is replaced by
 * the rule's default if the new unit does not have it (delta_cka of jobs). */
static calm_status resolve_query(calm_ctx *ctx, const calm_reselect_options *o, const calm_stored_run *run,
                                 calm_pool_query *out)
{
    calm_point point;
    int score;
    *out = (calm_pool_query){.unit = (calm_unit)o->unit, .rule = (calm_choice_rule)o->rule};
    if (o->unit == CALM_AS_IN_RUN && !calm_stored_run_unit(run, &out->unit))
        return unknown_word(ctx, run, "unit", run->unit);
    if (o->rule == CALM_AS_IN_RUN && !calm_stored_run_rule(run, &out->rule))
        return unknown_word(ctx, run, "rule", run->rule);
    if (o->shortlist > 0 && out->rule == CALM_CHOICE_RULE_ARGMAX)
        return calm_fail(ctx, CALM_EARG, "`choice.shortlist` %g: the rule argmax%s takes the least score and has no "
                         "shortlist; ask for `choice.rule` token too", o->shortlist,
                         o->rule == CALM_AS_IN_RUN ? " of the run" : "");
    out->shortlist = o->shortlist > 0 ? o->shortlist : calm_stored_run_shortlist(run);
    if (o->metric)
        CALM_TRY(calm_score_need(ctx, out->unit, o->metric, &point, &score));
    else if ((!run->metric || !calm_score_find(out->unit, run->metric, &point, &score)) && o->unit == CALM_AS_IN_RUN)
        return unknown_word(ctx, run, "metric", run->metric);
    else if (!run->metric || !calm_score_find(out->unit, run->metric, &point, &score))
        calm_score_find(out->unit, calm_choice_rule_metric(out->rule), &point, &score);
    out->metric = calm_score_name(point, score);
    return CALM_OK;
}

/* Resolves bits per weight: the options', else the stored ones.  Fails for a run that compared several budgets, which
 * chose for none of them. */
static calm_status resolve_budget(calm_ctx *ctx, const calm_reselect_options *o, const calm_stored_run *run,
                                  double *out)
{
    const bool before = calm_json_get(calm_json_get(run->recipe, "select"), "budget") != NULL;
    const size_t n = calm_json_size(calm_json_get(run->recipe, "budget"));
    *out = o->budget;
    if (!isnan(o->budget))
        return CALM_OK;
    CALM_TRY(calm_stored_run_budget(ctx, run, out));
    if (!before && n > 1)
        return calm_fail(ctx, CALM_EARG,
                         "run %lld compared %zu budgets and chose for none: say which, as `choice.budget` %g",
                         (long long)run->id, n, *out);
    return CALM_OK;
}

/* Resolves the engine: the options', else the stored selection's, else the recipe's; and the run's format that the
 * engine reads, if there is one, because limits depend on the format. */
static calm_status resolve_target(calm_ctx *ctx, const calm_reselect_options *o, const calm_stored_run *run,
                                  calm_requests *out)
{
    const calm_json *before = calm_json_get(calm_json_get(run->recipe, "select"), "target");
    const char *name = calm_json_string(before ? before : calm_json_get(run->recipe, "target"), "any");
    CALM_TRY(calm_engine_parse(ctx, o->engine ? o->engine : name, &out->engine));
    calm_formats formats;
    char *format;
    CALM_TRY(calm_formats_of_recipe(ctx, run->recipe, &formats));
    CALM_TRY(calm_formats_read_by(ctx, &formats, out->engine, &format));
    out->format = format;
    out->tie = calm_formats_tie(&formats);
    return CALM_OK;
}

/* Collects the run's requests, and then those of the options.  Pins of later rounds win over earlier ones; forbidden
 * entries stay forbidden. */
static calm_status resolve_requests(calm_ctx *ctx, const calm_reselect_options *o, const calm_stored_run *run,
                                    calm_requests *out)
{
    /* Space for the options' requests in both lists. */
    const size_t room = o->forbid.n > o->pins.n ? o->forbid.n : o->pins.n;
    calm_word *forbid;
    calm_pin *pins;
    CALM_TRY(calm_stored_run_requests(ctx, run, room, &forbid, &pins, out));
    const int round = 1 + (out->n_pins ? pins[out->n_pins - 1].round : 0);
    CALM_TRY(calm_words_parse(ctx, &o->forbid, forbid, &out->n_forbid));
    CALM_TRY(calm_pins_parse(ctx, &o->pins, round, pins, &out->n_pins));
    CALM_TRY(resolve_target(ctx, o, run, out));
    out->act_budget = o->act_budget;
    if (!(o->act_budget > 0))
        CALM_TRY(calm_stored_run_act_budget(ctx, run, &out->act_budget));
    return resolve_budget(ctx, o, run, &out->budget);
}

/* ---- choosing ---- */

/* A unit of this selection may contain several units of the parent with different entries, so jobs are compared. */
bool calm_reselected_differs(const calm_reselected *s, size_t unit)
{
    bool differs = false;
    const calm_pool *pool = &s->stored.pool;
    for (size_t job = pool->unit_begin[unit]; job < pool->unit_begin[unit + 1]; job++)
        differs |= s->before[job] != SIZE_MAX && s->before[job] != s->solution.choice[unit];
    return differs;
}

/* Counts the changed units, and computes the bits of the parent's choices: NaN if it did not decide a job. */
static void compare(calm_reselected *s)
{
    const calm_pool *pool = &s->stored.pool;
    double bits = 0;
    for (size_t u = 0; u < pool->n_units; u++)
        s->n_changed += calm_reselected_differs(s, u);
    for (size_t job = 0; job < pool->n_jobs; job++)
        bits += s->before[job] == SIZE_MAX
                    ? NAN : calm_pool_bits(pool, job, job + 1, &pool->entries[s->before[job]].scheme);
    s->bits_before = bits / calm_pool_weights(pool, 0, pool->n_jobs);
}

/* Warns about scores that were measured under assumptions which the new choice breaks. */
static void warn(calm_ctx *ctx, const calm_reselected *s)
{
    const char *prefix = calm_json_string(calm_json_get(calm_json_get(s->parent.recipe, "calibration"), "prefix"), "");
    if (*prefix && strcmp(prefix, "float") != 0 && s->n_changed)
        calm_log(ctx, CALM_LOG_WARNING,
                 "run %lld scored each block behind the choices of those before it: after another choice the scores of "
                 "later blocks are of another model", (long long)s->parent.id);
    if (strcmp(calm_json_string(calm_json_get(s->parent.recipe, "learn"), "none"), "none") != 0)
        calm_log(ctx, CALM_LOG_WARNING,
                 "run %lld learned on from its own choices: this selection is of plain candidates; calm quantize with "
                 "these choices as pins learns on from them", (long long)s->parent.id);
    if (s->solution.unprobed)
        calm_log(ctx, CALM_LOG_WARNING,
                 "%zu of %zu units have no probe in the store: calm guesses a unit's effect on the model from its %s "
                 "times its share of the weights; calm quantize with `choice.budget` probes them",
                 s->solution.unprobed, s->stored.pool.n_units, s->stored.pool.metric);
}

/* Closes the store at the end of a scope; rolls an open transaction back. */
static void close_store(calm_store **store)
{
    calm_store_close(*store);
}

/* Reads everything in one transaction and chooses: a run that writes meanwhile is seen either completely or not at
 * all. */
static calm_status read_and_solve(calm_ctx *ctx, const calm_reselect_options *o, calm_requests *requests,
                                  calm_reselect_size *size, calm_reselected *out)
{
    calm_pool *pool = &out->stored.pool;
    calm_pool_query query;
    CALM_SCOPED(calm_store *, close_store) store = NULL;
    CALM_TRY(calm_store_open(ctx, o->store, NULL, &store));
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(calm_stored_run_read(ctx, store, o->run, &out->parent));
    CALM_TRY(resolve_query(ctx, o, &out->parent, &query));
    CALM_TRY(resolve_requests(ctx, o, &out->parent, requests));
    CALM_TRY(calm_pool_of_store(ctx, store, &out->parent, &query, &out->stored));
    CALM_TRY(calm_reselected_size(ctx, o, &out->parent, pool, requests, size));
    out->size = size->file ? size->file->asked : NULL;
    CALM_TRY(calm_strf(ctx, ctx->out, &pool->remedy,
                       "calm quantize with `choice.unit` %s `choice.metric` %s measures it",
                       calm_unit_name(query.unit), query.metric));
    /* The parent's own metric is complete; another score may exist for only some candidates, which is an error. */
    pool->every = strcmp(calm_unit_name(query.unit), out->parent.unit) != 0 || !out->parent.metric ||
                  strcmp(query.metric, out->parent.metric) != 0;
    out->budget = requests->budget;
    out->act_budget = requests->act_budget;
    out->engine = requests->engine;
    /* Before solving: fails if the parent's choices contradict its pool. */
    CALM_TRY(calm_stored_run_entries(ctx, &out->parent, &out->stored, &out->before));
    CALM_TRY(calm_solve(ctx, pool, requests, &out->solution));
    compare(out);
    return CALM_OK;
}

/* ---- storing ---- */

/* Returns the recipe's member "select" with all resolved requests, so that this run can be selected from again; run 0:
 * without the parent, for the key. */
static calm_json *select_json(const calm_reselected *s, const calm_requests *requests, const calm_reselect_size *size,
                              int64_t run)
{
    const char *target = calm_engine_name(requests->engine);
    /* The recipe has this target already. */
    const bool own = strcmp(target, calm_json_string(calm_json_get(s->parent.recipe, "target"), "any")) == 0;
    const bool lists = s->stored.pool.rule == CALM_CHOICE_RULE_TOKEN;
    calm_json *forbid = calm_json_new_array(), *pins = calm_json_new_array();
    for (size_t i = 0; i < requests->n_forbid; i++)
        calm_json_add_string(forbid, requests->forbid[i].said);
    for (size_t i = 0; i < requests->n_pins; i++) {
        const calm_pin *pin = &requests->pins[i];
        if (pin->round == 0)    /* in the recipe already */
            continue;
        calm_json_add(pins, CALM_OBJECT(CALM_KV("unit", pin->unit), CALM_KV("candidate", pin->candidate.said),
                                        CALM_KV("round", pin->round > 1 ? calm_json_of_int(pin->round) : NULL)));
    }
    return CALM_OBJECT(CALM_KV("run", run ? calm_json_of_int(run) : NULL),
                       CALM_KV("unit", calm_unit_name(s->stored.pool.unit)),
                       CALM_KV("rule", calm_choice_rule_name(s->stored.pool.rule)),
                       CALM_KV("shortlist", lists ? calm_json_of_number(s->stored.pool.shortlist) : NULL),
                       CALM_KV("metric", s->stored.pool.metric),
                       CALM_KV("budget",
                               isfinite(requests->budget) ? calm_json_of_number(requests->budget) : NULL),
                       CALM_KV("size", size->file_bytes ? calm_json_of_size(size->file_bytes) : NULL),
                       CALM_KV("file_bits", size->file_bits > 0 ? calm_json_of_number(size->file_bits) : NULL),
                       CALM_KV("act_budget",
                               requests->act_budget > 0 ? calm_json_of_number(requests->act_budget) : NULL),
                       CALM_KV("target", own ? NULL : calm_json_of_string(target)), CALM_KV("forbid", forbid),
                       CALM_KV("pin", pins));
}

/* Computes the key of parent, options and chosen candidates, so that the same selection is the same run.  The
 * candidates count because a later calm quantize may add scores, after which the same options choose otherwise. */
static calm_status make_key(calm_ctx *ctx, const calm_reselected *s, const calm_requests *requests,
                            const calm_reselect_size *size, char key[CALM_SHA256_HEX])
{
    const calm_pool *pool = &s->stored.pool;
    CALM_SCOPED_JSON(select);
    const char *options;
    calm_sha256 sha;
    select = select_json(s, requests, size, 0);
    CALM_TRY(calm_json_text(ctx, select, &options));
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-select-1");
    calm_sha256_field(&sha, CALM_VERSION);
    calm_sha256_field(&sha, s->parent.key);
    calm_sha256_field(&sha, options);
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t job = pool->unit_begin[u]; job < pool->unit_begin[u + 1]; job++)
            calm_sha256_field(&sha, calm_pool_cell_at(pool, job, s->solution.choice[u])->key);
    return calm_sha256_finish(ctx, &sha, key);
}

/* Stores the run, its candidates, choices and end in the caller's transaction, so that readers see a finished run. */
static calm_status put_run(calm_ctx *ctx, calm_store *store, const calm_reselect_options *o, const char *key,
                           const char *recipe, calm_reselected *s)
{
    const calm_store_run run = {.key = key, .model_id = s->parent.model_id, .calibration_id = s->parent.calibration_id,
                                .command = o->command, .recipe = recipe, .unit = calm_unit_name(s->stored.pool.unit),
                                .rule = calm_choice_rule_name(s->stored.pool.rule), .metric = s->stored.pool.metric,
                                .version = CALM_VERSION,
                                .n_threads = ctx->n_threads};
    char *reason;
    CALM_TRY(calm_strf(ctx, ctx->out, &reason,
                       "chosen anew from the candidates of run %lld: %zu of %zu units differ%s%s",
                       (long long)s->parent.id, s->n_changed, s->stored.pool.n_units, s->solution.cost ? "; " : "",
                       s->solution.cost ? s->solution.cost : ""));
    CALM_TRY(calm_store_run_begin(ctx, store, &run, &s->run, NULL));
    CALM_TRY(calm_store_run_pool(ctx, store, s->run, s->parent.id));
    CALM_TRY(calm_choices_put(ctx, store, s->run, &s->stored.pool, &s->solution));
    const calm_store_outcome outcome = {.status = "finished", .result = "hybrid", .reason = reason,
                                        .bits_per_weight = s->solution.bits_per_weight};
    return calm_store_run_end(ctx, store, s->run, &outcome);
}

/* Called in the writer's transaction: of two equal selections at the same time the second finds the first. */
static calm_status find_or_put(calm_ctx *ctx, calm_store *store, const calm_reselect_options *o,
                               const calm_requests *requests, const calm_reselect_size *size,
                               calm_reselected *s)
{
    char key[CALM_SHA256_HEX];
    const char *recipe;
    calm_value known;
    CALM_SCOPED_JSON(json);
    CALM_TRY(make_key(ctx, s, requests, size, key));
    const calm_value param = calm_value_text(key);
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT max(id) FROM run WHERE key = ?1 AND status = 'finished'", &param,
                                  1, &known, 1));
    s->found = known.type == CALM_VALUE_INTEGER;
    s->run = s->found ? known.integer : 0;
    if (s->found)
        return CALM_OK;
    /* The run has its parent's resolved recipe, with a new "select" that contains the requests of earlier ones. */
    json = calm_json_copy(s->parent.recipe);
    calm_json_set(json, "select", select_json(s, requests, size, s->parent.id));
    /* calm assemble reads them: embedding and head are part of the size. */
    if (size->file) {
        calm_json_set_string(json, "embed_scheme", size->embed);
        calm_json_set_string(json, "head_scheme", size->head);
    }
    CALM_TRY(calm_json_text(ctx, json, &recipe));
    return put_run(ctx, store, o, key, recipe, s);
}

/* Opens the store again, for writing: choosing held no lock.  If another program (calm gc) has removed rows meanwhile,
 * a foreign key fails and nothing is stored. */
static calm_status keep(calm_ctx *ctx, const calm_reselect_options *o, const calm_requests *requests,
                        const calm_reselect_size *size, calm_reselected *s)
{
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = o->command, .wait_seconds = -1};
    CALM_SCOPED(calm_store *, close_store) store = NULL;
    CALM_TRY(calm_store_open(ctx, o->store, &how, &store));
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(find_or_put(ctx, store, o, requests, size, s));
    return calm_store_commit(ctx, store);
}

calm_status calm_reselect(calm_ctx *ctx, const calm_reselect_options *o, calm_reselected *out)
{
    calm_requests requests;
    calm_reselect_size size;
    *out = (calm_reselected){.budget = NAN};
    CALM_TRY(read_and_solve(ctx, o, &requests, &size, out));
    warn(ctx, out);
    return o->dry_run ? CALM_OK : keep(ctx, o, &requests, &size, out);
}

void calm_reselected_clear(calm_reselected *selected)
{
    calm_stored_run_clear(&selected->parent);
}
