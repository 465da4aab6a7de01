/* Restores a stored run at the point before its export.
 *
 * The store has the decisions of the run and the codes of every candidate; the float model has everything that stays
 * float.  The state of the run is restored from both as far as exporters, card and gates read it: recipe, pool,
 * candidates, plan, measurements.  Rows are untrusted: every name and number is checked against the model before it is
 * used as an index. */
#include "ptq/stored/stored_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/finish/finish.h"
#include "ptq/state/state.h"
#include "ptq/learn/learn.h"
#include "ptq/base/output.h"
#include "ptq/export/export.h"
#include "ptq/plan/key.h"
#include "ptq/quant/qblob.h"
#include "store/blob.h"

/* ---- the run's recipe, as far as plan and report read it ---- */

/* Restores entries and schemes with the numbers of the stored pool, to which trials and plans refer. */
static calm_status restore_pool(calm_ctx *ctx, calm_assembly *a)
{
    const calm_pool *pool = &a->stored.pool;
    calm_recipe *recipe = &a->recipe;
    recipe->n_pool = pool->n_entries;
    recipe->n_schemes = pool->n_schemes;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->pool, pool->n_entries));
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->schemes, pool->n_schemes));
    /* Without algorithms: nothing is quantized again, and this version of calm may lack the algorithm. */
    for (size_t i = 0; i < pool->n_entries; i++) {
        const calm_pool_entry *entry = &pool->entries[i];
        recipe->pool[i] = (calm_entry){.scheme = entry->scheme, .of_scheme = entry->of_scheme, .name = entry->name};
        recipe->schemes[entry->of_scheme] = entry->scheme;
    }
    return CALM_OK;
}

/* Restores the names of the calibration texts, recipe.calib_name. */
static calm_status restore_texts(calm_ctx *ctx, const calm_json *texts, calm_recipe *recipe)
{
    calm_words names = {0};
    recipe->calib_name = calm_json_string(texts, "?");    /* a single text is not a list */
    if (calm_json_typeof(texts) != CALM_JSON_ARRAY)
        return CALM_OK;
    for (size_t i = 0; i < calm_json_size(texts); i++)
        CALM_TRY(calm_words_add(ctx, &names, calm_json_string(calm_json_at(texts, i), "?")));
    return calm_recipe_texts_name(ctx, &names, &recipe->calib_name);
}

/* Returns the dtype of the run's products; a resolved recipe has none for float32. */
static calm_operands operands_of(const calm_json *calibration)
{
    const char *name = calm_json_string(calm_json_get(calibration, "dtype"), "f32");
    const int found = calm_option_value_index(CALM_OPERANDS_NAMES, name);
    return found < 0 ? CALM_OPERANDS_F32 : (calm_operands)found;
}

/* Restores what card and report show.  Texts are borrowed from the run's JSON, which lives until
 * calm_assembly_close. */
static calm_status restore_recipe(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a)
{
    const calm_json *json = a->run.recipe, *calibration = calm_json_get(json, "calibration");
    const calm_json *choice = calm_json_get(json, "choice");
    a->recipe.model.name = calm_json_string(calm_json_get(json, "model"), a->run.model_name);
    a->recipe.operands = operands_of(calibration);
    a->recipe.score_windows = calm_json_int(calm_json_get(choice, "score_windows"), 0);
    a->recipe.unscored = !calm_json_bool(calm_json_get(choice, "scored"), true);
    a->recipe.eval_name = calm_json_string(calm_json_get(calm_json_get(json, "evaluation"), "text"), "?");
    a->recipe.least_tokens = calm_json_int(calm_json_get(choice, "expert_tokens"), 0);
    a->recipe.split_v = calm_json_bool(calm_json_get(json, "split_v"), false);
    a->recipe.kv_cache = calm_json_typeof(calm_json_get(json, "kv_cache")) == CALM_JSON_STRING;
    a->recipe.output = o->output;
    a->recipe.store = o->store;
    a->recipe.force = o->force;
    a->recipe.last_block = -1;    /* the plan contains which jobs stay float */
    return restore_texts(ctx, calm_json_get(calibration, "text"), &a->recipe);
}

/* Restores how the run chose, which names the units and, for a plan "all SCHEME", decides each unit's entry.  Fails for
 * a metric or unit of another version. */
static calm_status restore_selection(calm_ctx *ctx, calm_assembly *a, calm_pool_query *query)
{
    const calm_stored_run *run = &a->run;
    calm_selection *selection = &a->recipe.selection;
    *query = (calm_pool_query){.metric = run->metric, .shortlist = calm_stored_run_shortlist(run)};
    if (!calm_stored_run_rule(run, &query->rule))
        query->rule = CALM_CHOICE_RULE_TOKEN;    /* the result is a uniform run, and nothing is chosen */
    if (!calm_stored_run_unit(run, &query->unit) || !run->metric ||
        !calm_score_find(query->unit, run->metric, &selection->point, &selection->score))
        return calm_fail(ctx, CALM_EFORMAT, "run %lld chose by \"%s\" of a %s, which this calm does not know",
                         (long long)run->id, run->metric ? run->metric : "", run->unit);
    selection->unit = query->unit;
    selection->rule = query->rule;
    selection->shortlist = query->shortlist;
    return CALM_OK;
}

/* ---- the model ---- */

/* Restores the run's rotation of the model. */
static calm_status restore_rotation(calm_ctx *ctx, calm_assembly *a)
{
    const char *name = calm_json_string(calm_json_get(a->run.recipe, "rotate"), "none");
    const calm_json *seed = calm_json_get(a->run.recipe, "rotate_seed");
    a->recipe.rotate_seed = calm_json_int(seed, 0);
    if (seed)    /* another seed would rotate the model otherwise */
        CALM_TRY(calm_json_expect(ctx, seed, CALM_JSON_INT, "run %lld: \"rotate_seed\" of its recipe",
                                  (long long)a->run.id));
    if (calm_rotate_find(name, &a->recipe.rotate))
        return CALM_OK;
    return calm_fail(ctx, CALM_EFORMAT, "run %lld rotated the model by \"%s\", which this calm does not know",
                     (long long)a->run.id, name);
}

/* Opens the float model, and checks by the digest of its configuration and weights that it is the run's.  It may have
 * been renamed or moved. */
static calm_status open_model(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a)
{
    const long long run = (long long)a->run.id;
    char model_key[CALM_SHA256_HEX];
    const char *dir = o->model ? o->model : a->run.model_path;
    if (!dir || !calm_is_directory(dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: the float model of run %lld is not there%s",
                         dir ? dir : "(unknown)", run, o->model ? "" : "; say where it is: `model` DIR");
    a->recipe.model.dir = (char *)(uintptr_t)dir;
    CALM_TRY(calm_recipe_how(ctx, a->run.recipe, &a->recipe.how));
    if (o->adapter)
        a->recipe.how.adapter = o->adapter;
    CALM_TRY(restore_rotation(ctx, a));
    CALM_TRY(calm_inputs_open_model(ctx, &a->in));
    if (calm_model_is_quantized(a->in.model))
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: is quantized already; run %lld is assembled from the float model", dir, run);
    CALM_TRY(calm_key_model(ctx, a->in.model, model_key));
    if (strcmp(model_key, a->run.model_digest) != 0)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: not the model of run %lld: its digest is %s, the run's is %s", dir,
                         run, model_key, a->run.model_digest);
    /* All blocks: blocks outside of the run have no candidates and stay float in every plan. */
    a->in.end_block = calm_model_config(a->in.model)->n_blocks;
    calm_inputs_describe(&a->in, &a->result);
    return CALM_OK;
}

/* ---- jobs and candidates ---- */

/* Copies a digest or a key of the store, which is untrusted: it becomes part of a path, and the target has this
 * length. */
static calm_status copy_digest(calm_ctx *ctx, const char *job, const char *from, char to[CALM_SHA256_HEX])
{
    if (!from || strlen(from) != CALM_SHA256_HEX - 1)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the store has \"%s\" where a digest is expected", job,
                         from ? from : "");
    memcpy(to, from, CALM_SHA256_HEX);
    return CALM_OK;
}

/* Restores a candidate, to which plans point, from a cell of the pool.  Without a row the run skipped it. */
static calm_status restore_candidate(calm_ctx *ctx, calm_assembly *a, size_t of_pool, size_t job, size_t entry)
{
    const calm_pool_cell *row = calm_pool_cell_at(&a->stored.pool, of_pool, entry);
    calm_candidate *candidate = calm_candidate_at(&a->in, job, entry);
    const char *name = a->stored.pool.jobs[of_pool].name;
    candidate->id = row->id;
    candidate->blob_bytes = (size_t)row->blob_bytes;
    candidate->failure = row->id ? row->failure : CALM_NOT_TRIED;
    if (row->id)
        CALM_TRY(copy_digest(ctx, name, row->key, candidate->key));
    return candidate->failure ? CALM_OK : copy_digest(ctx, name, row->blob, candidate->blob);
}

/* Fills a->places with the layout's job of each job of the store.  Both are in the model's order, so one pass is
 * enough; roles and shapes must agree, because codes are decoded by them. */
static calm_status match_jobs(calm_ctx *ctx, calm_assembly *a)
{
    const calm_layout *layout = calm_model_layout(a->in.model);
    size_t at = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, a->places, a->stored.pool.n_jobs));
    for (size_t j = 0; j < a->stored.pool.n_jobs; j++, at++) {
        const calm_pool_job *job = &a->stored.pool.jobs[j];
        while (at < layout->n_jobs && strcmp(layout->jobs[at].name, job->name) != 0)
            at++;
        if (at == layout->n_jobs || strcmp(layout->jobs[at].role, job->role) != 0 || layout->jobs[at].out != job->out ||
            layout->jobs[at].in != job->in)
            return calm_fail(ctx, CALM_EFORMAT, "%s: job %s [%zu, %zu] of the store is none of the model's",
                             a->recipe.store, job->name, job->out, job->in);
        a->places[j] = at;
    }
    return CALM_OK;
}

/* Restores all candidates.  Jobs without candidates keep zeros: no plan quantizes them. */
static calm_status restore_candidates(calm_ctx *ctx, calm_assembly *a)
{
    const size_t n_jobs = calm_model_layout(a->in.model)->n_jobs;
    /* No overflow: both lists are in memory, and a stored pool has at most a thousand entries. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, a->in.candidates, n_jobs * a->stored.pool.n_entries));
    for (size_t j = 0; j < a->stored.pool.n_jobs; j++)
        for (size_t entry = 0; entry < a->stored.pool.n_entries; entry++)
            CALM_TRY(restore_candidate(ctx, a, j, a->places[j], entry));
    return CALM_OK;
}

/* ---- the plan ---- */

/* Restores the scope of the recipe's requests: uniform runs leave pinned units as they are pinned, and forbidden
 * entries neither belong to a plan of one scheme nor replace a failed entry.  Requests of later selections applied only
 * to their choice. */
static calm_status restore_scope(calm_ctx *ctx, calm_assembly *a)
{
    calm_requests requests;
    calm_word *forbid;
    calm_pin *pins;
    CALM_TRY(calm_stored_run_requests(ctx, &a->run, 0, &forbid, &pins, &requests));
    if (calm_json_get(a->run.recipe, "select"))    /* the choices of a selection are stored */
        requests.n_forbid = 0;
    while (requests.n_pins && pins[requests.n_pins - 1].round > 0)    /* pins of a selection */
        requests.n_pins--;
    return calm_scope_open(ctx, &a->stored.pool, &requests, &a->scope);
}

/* Expands of_job [n_jobs of the pool] to choice [n_jobs of the layout]; SIZE_MAX and all other jobs mean float. */
static calm_status spread(calm_ctx *ctx, const calm_assembly *a, const size_t *of_job, size_t **choice)
{
    CALM_TRY(calm_choice_uniform(ctx, &a->in, CALM_STAYS_FLOAT, choice));
    for (size_t j = 0; j < a->stored.pool.n_jobs; j++)
        (*choice)[a->places[j]] = of_job[j] == SIZE_MAX ? CALM_STAYS_FLOAT : of_job[j];
    return CALM_OK;
}

/* Restores a uniform plan: one entry, or "all w3a16_g128", each unit's entry at that scheme; pinned units as pinned. */
static calm_status spread_uniform(calm_ctx *ctx, const calm_assembly *a, size_t entry, bool scheme, size_t **choice,
                                  calm_solution *solution)
{
    const calm_pool *pool = &a->stored.pool;
    size_t *of_job;
    CALM_TRY(scheme ? calm_solve_scheme(ctx, pool, &a->scope, pool->entries[entry].of_scheme, solution)
                    : calm_solve_uniform(ctx, pool, &a->scope, entry, solution));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, of_job, pool->n_jobs));
    /* All jobs of a unit have the same entry. */
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t j = pool->unit_begin[u]; j < pool->unit_begin[u + 1]; j++)
            of_job[j] = solution->choice[u];
    return spread(ctx, a, of_job, choice);
}

/* Restores the choices of the run.  Every job with candidates must have one: an interrupted run may have chosen for
 * only some units. */
static calm_status spread_hybrid(calm_ctx *ctx, const calm_assembly *a, size_t **choice)
{
    size_t *of_job;
    CALM_TRY(calm_stored_run_entries(ctx, &a->run, &a->stored, &of_job));
    for (size_t j = 0; j < a->stored.pool.n_jobs; j++)
        if (of_job[j] == SIZE_MAX)
            return calm_fail(ctx, CALM_EARG,
                             "run %lld chose nothing for %s; calm select %lld --store %s makes a plan of it",
                             (long long)a->run.id, a->stored.pool.jobs[j].name, (long long)a->run.id, a->recipe.store);
    return spread(ctx, a, of_job, choice);
}

/* Removes one kind of learning from the end of a result's name [*length]; returns true if it was there. */
static bool cut_suffix(const char *name, const char *suffix, size_t *length)
{
    const size_t n = strlen(suffix);
    if (*length < n || strncmp(name + *length - n, suffix, n) != 0)
        return false;
    *length -= n;
    return true;
}

/* Restores the plan of a name: "hybrid", "all SCHEME" (under a budget, each unit's entry at that scheme), or an entry.
 * `solution` is unchanged for the hybrid. */
static calm_status spread_named(calm_ctx *ctx, const calm_assembly *a, const char *name, size_t **choice,
                                calm_solution *solution)
{
    if (strcmp(name, "hybrid") == 0)
        return spread_hybrid(ctx, a, choice);
    for (size_t i = 0; i < a->stored.pool.n_entries; i++) {
        const calm_pool_entry *entry = &a->stored.pool.entries[i];
        if (strcmp(name, entry->name) == 0)
            return spread_uniform(ctx, a, i, false, choice, solution);
        if (strncmp(name, "all ", 4) == 0 && strcmp(name + 4, entry->scheme_name) == 0)
            return spread_uniform(ctx, a, i, true, choice, solution);
    }
    return calm_fail(ctx, CALM_EFORMAT, "%s: the result of run %lld, \"%s\", is none of its candidates",
                     a->recipe.store, (long long)a->run.id, name);
}

/* Names the plan to write: the run's result, or with --hybrid its choices even if the guard preferred a uniform run, as
 * the card then says. */
static calm_status name_result(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a)
{
    const calm_stored_run *run = &a->run;
    a->result.name = o->hybrid ? "hybrid" : run->result;
    a->result.verdict = run->reason ? run->reason : "";
    if (o->hybrid && run->result && strcmp(run->result, "hybrid") != 0)
        CALM_TRY(calm_strf(ctx, ctx->out, &a->result.verdict,
                           "the hybrid as asked (--hybrid); the result of the run was %s", run->result));
    if (a->result.name)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG,
                     "run %lld (%s) has no result; --hybrid writes its choices, calm select %lld --store %s chooses "
                     "again", (long long)run->id, run->status, (long long)run->id, a->recipe.store);
}

/* ---- blobs ---- */

/* Returns the name of a job of the plan, by its place in the layout. */
static const char *job_of(const calm_assembly *a, const calm_plan_job *job)
{
    return calm_model_layout(a->in.model)->jobs[job - a->result.plan.jobs].name;
}

/* Explains a missing or damaged blob: which one, of what, and how to get it back.  Other failures (no memory, no space)
 * are returned as they are. */
static calm_status blame(calm_ctx *ctx, const calm_assembly *a, const calm_plan_job *job, calm_status status)
{
    const calm_candidate *candidate = job->source;
    char message[CALM_MESSAGE_MAX];
    if (status != CALM_EFORMAT && status != CALM_ENOTFOUND)
        return status;
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, status,
                     "%s: %s, blob %s: %.500s; calm quantize with the recipe of run %lld computes it again",
                     job_of(a, job), job->entry_name, candidate->blob, message, (long long)a->run.id);
}

static calm_status get_blob(calm_ctx *ctx, const calm_assembly *a, const char *digest, calm_qjob *out)
{
    CALM_SCOPED_MAPPING(map);
    CALM_TRY(calm_blob_get(ctx, calm_store_blobs(a->in.store), digest, &map));
    return calm_qblob_decode(ctx, digest, map.data, map.bytes, out);
}

/* A calm_plan_fetch_fn; the assembly must not move until it is closed. */
static calm_status fetch(void *user, calm_ctx *ctx, const calm_plan_job *job, calm_qjob *out)
{
    const calm_assembly *a = user;
    return blame(ctx, a, job, get_blob(ctx, a, ((const calm_candidate *)job->source)->blob, out));
}

/* Checks before anything is written that every candidate's blob exists with its size, which is cheap; the content is
 * checked when it is read. */
static calm_status check_blobs(calm_ctx *ctx, const calm_assembly *a)
{
    for (size_t j = 0; j < a->stored.pool.n_jobs; j++) {
        const calm_plan_job *job = &a->result.plan.jobs[a->places[j]];
        const calm_candidate *candidate = job->source;
        if (!job->quantized)
            continue;
        if (candidate->failure)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s was chosen and has no result: %s", a->stored.pool.jobs[j].name,
                             job->entry_name, candidate->failure);
        if (!calm_blob_present(calm_store_blobs(a->in.store), candidate->blob, candidate->blob_bytes))
            return blame(ctx, a, job, calm_fail(ctx, CALM_ENOTFOUND, "it is not in %s, or has another size",
                                                calm_store_blobs(a->in.store)));
    }
    return CALM_OK;
}

/* ---- learned blocks ---- */

/* A calm_plan_vectors_fn; see `fetch`. */
static calm_status fetch_vectors(void *user, calm_ctx *ctx, const void *source, calm_vectors *out)
{
    const calm_assembly *a = user;
    const calm_learned *learned = source;
    CALM_SCOPED_MAPPING(map);
    CALM_TRY(calm_blob_get(ctx, calm_store_blobs(a->in.store), learned->blob, &map));
    return calm_vectors_decode(ctx, learned->blob, map.data, map.bytes, out);
}

/* Replaces the blocks of the plan that the run learned or tuned. */
static calm_status plan_learned(calm_ctx *ctx, calm_assembly *a, bool tuned)
{
    const calm_plan plain = a->result.plan;
    calm_learned **blocks;
    CALM_TRY(calm_learned_of_store(ctx, a->in.store, a->run.id, a->in.model, &plain, tuned, &blocks));
    CALM_TRY(calm_plan_learn(ctx, &a->in, &plain, blocks, &a->result.plan));
    a->result.plan.vectors = fetch_vectors;
    for (size_t b = 0; b < calm_model_config(a->in.model)->n_blocks; b++)
        if (blocks[b] && !calm_blob_present(calm_store_blobs(a->in.store), blocks[b]->blob, blocks[b]->blob_bytes))
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: the norms of learned block %zu, blob %s, are not there; calm "
                             "quantize with the recipe of run %lld learns it again", a->recipe.store, b,
                             blocks[b]->blob, (long long)a->run.id);
    return CALM_OK;
}

/* ---- measurements, for the card ---- */

/* Adds a trial of the guard, unless it needs more bits than the budget, because such plans were not measured.  The
 * trial is written first and counted afterwards, so that the next one overwrites a trial that is too large. */
static calm_status add_trial(calm_ctx *ctx, calm_assembly *a, const char *name, double budget, double act_budget,
                             size_t widths)
{
    calm_solution solution = {0};
    size_t *choice;
    CALM_TRY(spread_named(ctx, a, name, &choice, &solution));
    CALM_TRY(calm_trial_new(ctx, &a->in, name, choice, &a->result.trials[a->result.n_trials]));
    if ((isnan(budget) || solution.bits <= calm_budget_bits(&a->stored.pool, budget)) &&
        (act_budget <= 0 || solution.act_bits <= calm_budget_bits(&a->stored.pool, act_budget)))
        calm_trial_append(a->result.trials, widths, &a->result.n_trials);
    return CALM_OK;
}

/* Lists the trials of the run's guard in its order, for the card: the hybrid; under a budget one per scheme; every
 * entry. */
static calm_status list_trials(calm_ctx *ctx, calm_assembly *a, bool sized)
{
    double budget = NAN, act_budget = 0;
    char name[CALM_SCHEME_NAME_MAX], *text;
    CALM_TRY(calm_stored_run_budget(ctx, &a->run, &budget));
    CALM_TRY(calm_stored_run_act_budget(ctx, &a->run, &act_budget));
    CALM_TRY(CALM_NEW(ctx, ctx->out, a->result.trials, 1 + a->stored.pool.n_schemes + a->stored.pool.n_entries + 1));
    CALM_TRY(add_trial(ctx, a, "hybrid", NAN, 0, 0));
    for (size_t i = 0; i < a->stored.pool.n_schemes && (!isnan(budget) || act_budget > 0 || sized); i++) {
        calm_scheme_name(&a->recipe.schemes[i], name);
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "all %s", name));
        const calm_status status = add_trial(ctx, a, text, budget, act_budget, 0);
        if (status == CALM_ENUMERIC)    /* a unit has no entry at that scheme */
            calm_ctx_clear_failure(ctx);
        else
            CALM_TRY(status);
    }
    const size_t widths = a->result.n_trials;
    for (size_t i = 0; i < a->stored.pool.n_entries; i++)
        CALM_TRY(add_trial(ctx, a, a->stored.pool.entries[i].name, budget, act_budget, widths));
    return a->learned ? calm_trial_of_plan(ctx, &a->in, a->result.name, &a->result.plan,
                                           &a->result.trials[a->result.n_trials++]) : CALM_OK;
}

/* Restores the run's measurements for the card.  A selection (calm select) has measured nothing, so its card has no
 * tables. */
static calm_status restore_measured(calm_ctx *ctx, calm_assembly *a)
{
    const calm_value params[] = {calm_value_int(a->run.id), calm_value_int(a->run.calibration_id)};
    const bool sized = calm_json_get(a->run.recipe, "size") || calm_json_get(a->run.recipe, "file_bits");
    calm_value row[3];
    CALM_TRY(calm_store_query_one(ctx, a->in.store, "SELECT (SELECT count(*) FROM run_evaluation WHERE run_id = ?1 AND"
                                  " role = 'guard'), n_windows, n_tokens FROM calibration WHERE id = ?2", params, 2,
                                  row, 3));
    /* Counts become size_t: a negative one would be huge. */
    if (row[1].integer < 0 || row[1].integer > INT32_MAX || row[2].integer < 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld has %lld calibration windows", a->recipe.store,
                         (long long)a->run.id, (long long)row[1].integer);
    a->result.calib = (calm_window_facts){.n = (size_t)row[1].integer, .tokens = (size_t)row[2].integer};
    if (row[0].integer)
        CALM_TRY(list_trials(ctx, a, sized));
    CALM_TRY(calm_assembly_figures(ctx, a));
    /* Plans that are too large for the file were not measured. */
    for (size_t i = 1, n = sized ? a->result.n_trials : 0; i < n; i++) {
        a->result.n_trials = i == 1 ? 1 : a->result.n_trials;
        if (a->result.trials[i].id)
            a->result.trials[a->result.n_trials++] = a->result.trials[i];
    }
    return CALM_OK;
}

/* ---- the steps ---- */

/* Cheap steps first: the output, the rows, then the model, whose digest reads all its bytes.  The store is opened for
 * reading, so a run may write to it meanwhile. */
static calm_status restore(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a)
{
    calm_pool_query query;
    char *blobs;
    CALM_TRY(calm_strf(ctx, ctx->out, &blobs, "%s.blobs", o->store));
    const calm_words inputs = {(const char *[]){o->store, blobs, o->model}, 3};
    CALM_TRY(calm_export_destination(ctx, o->output, o->force, &inputs));
    CALM_TRY(calm_store_open(ctx, o->store, NULL, &a->in.store));
    a->result.store = a->in.store;
    CALM_TRY(calm_stored_run_read(ctx, a->in.store, o->run, &a->run));
    CALM_TRY(restore_recipe(ctx, o, a));
    /* The path of the run's model is known only now. */
    CALM_TRY(calm_output_apart(ctx, o->output, &(calm_words){(const char *[]){a->recipe.model.dir}, 1}));
    /* The formats in the options, else those of the run. */
    CALM_TRY(o->formats.n ? calm_formats_parse(ctx, &o->formats, &a->recipe.formats)
                          : calm_formats_of_recipe(ctx, a->run.recipe, &a->recipe.formats));
    a->recipe.formats.options = o->export;
    if (!o->export.embed && !o->export.head)    /* else the run's schemes */
        CALM_TRY(calm_formats_parse_outer(ctx, calm_json_string(calm_json_get(a->run.recipe, "embed_scheme"), NULL),
                                          calm_json_string(calm_json_get(a->run.recipe, "head_scheme"), NULL),
                                          &a->recipe.formats.options));
    CALM_TRY(restore_selection(ctx, a, &query));
    CALM_TRY(name_result(ctx, o, a));
    CALM_TRY(calm_pool_of_store(ctx, a->in.store, &a->run, &query, &a->stored));
    a->stored.pool.remedy = "calm quantize measures it";
    CALM_TRY(restore_pool(ctx, a));
    CALM_TRY(restore_scope(ctx, a));
    a->result.run_id = a->run.id;
    /* A selection has its parent's document, which lacks its choices: they are in "select" of the resolved recipe. */
    const calm_json *document = calm_json_get(a->run.recipe, "document");
    a->document = document && !calm_json_get(a->run.recipe, "select") ? document : a->run.recipe;
    return open_model(ctx, o, a);
}

/* Reads the calibration windows if a format needs them. */
static calm_status read_windows(calm_ctx *ctx, calm_assembly *a)
{
    bool quantizes, reads;
    CALM_TRY(calm_outputs_quantize_head(ctx, &a->in, &a->result.plan, &quantizes));
    CALM_TRY(calm_outer_stored_algorithm(ctx, a->run.recipe, &a->recipe.formats, &a->head.algorithm));
    CALM_TRY(calm_outer_fit_reads(ctx, &a->head, &reads));
    reads &= quantizes;
    if (!reads && !calm_formats_want_importance(&a->recipe.formats) && !a->recipe.kv_cache)
        return CALM_OK;
    CALM_TRY(calm_stored_run_windows(ctx, a->in.store, &a->run, a->in.model, a->recipe.model.dir, &a->in.calib));
    return reads ? calm_outer_fit_collect(ctx, a->in.model, &a->in.calib, &a->head) : CALM_OK;
}

/* Builds and checks the plan before the first byte is written. */
static calm_status plan(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a)
{
    calm_solution solution;
    size_t *choice;
    char *start;
    CALM_TRY(match_jobs(ctx, a));
    CALM_TRY(restore_candidates(ctx, a));
    size_t length = strlen(a->result.name);
    const bool tuned = cut_suffix(a->result.name, CALM_TUNED_SUFFIX, &length);
    a->learned = cut_suffix(a->result.name, CALM_LEARNED_SUFFIX, &length) || tuned;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &start, "%.*s", (int)length, a->result.name));
    CALM_TRY(spread_named(ctx, a, start, &choice, &solution));
    CALM_TRY(calm_plan_of_choice(ctx, &a->in, choice, &a->result.plan));
    /* A run's fetch function would advise to run the same command again, which does not compute blobs here. */
    a->result.plan.fetch = fetch;
    a->result.plan.user = a;
    if (a->learned)
        CALM_TRY(plan_learned(ctx, a, tuned));
    CALM_TRY(calm_assembly_recompute(ctx, o, a));
    CALM_TRY(check_blobs(ctx, a));
    CALM_TRY(calm_formats_note_files(ctx, &a->recipe.formats, a->in.model));
    CALM_TRY(calm_formats_check(ctx, &a->recipe.formats, a->in.model, &a->result.plan));
    CALM_TRY(restore_measured(ctx, a));
    return read_windows(ctx, a);
}

/* Restores the gates of the run's recipe for the card.  They apply to the measured result; a hybrid that is written
 * instead, or a selection, has no figures. */
static calm_status restore_gates(calm_ctx *ctx, calm_assembly *a)
{
    const calm_json *gates = calm_json_get(a->run.recipe, "gates");
    calm_words words = {0};
    if (!a->run.result || strcmp(a->run.result, a->result.name) != 0 || calm_json_get(a->run.recipe, "select"))
        return CALM_OK;
    for (size_t i = 0; i < calm_json_size(gates); i++)
        CALM_TRY(calm_words_add(ctx, &words, calm_json_string(calm_json_at(gates, i), "")));
    return calm_gates_parse(ctx, &words, &a->recipe.gates, &a->recipe.n_gates);
}

/* Computes the gates of the card (calm_written_fn).  They are shown, not enforced: the run's verdict is in the
 * store. */
static calm_status judge(calm_ctx *ctx, void *user, const char *dir)
{
    (void)dir;
    return calm_gates_measure(ctx, user);
}

calm_status calm_reassemble(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *out)
{
    *out = (calm_assembly){.in.recipe = &out->recipe, .result.recipe = &out->recipe};
    CALM_TRY(restore(ctx, o, out));
    CALM_SCOPED_OPERANDS(ctx, calm_recipe_operands(&out->recipe));
    CALM_TRY(plan(ctx, o, out));
    CALM_TRY(restore_gates(ctx, out));
    const calm_checkpoint checkpoint = {.in = &out->in, .result = &out->result, .events = &o->events,
                                        .fit = &out->head,
                                        .recipe = out->document, .written = judge, .user = &out->result};
    CALM_TRY(calm_checkpoint_write(ctx, &checkpoint));
    return calm_assembly_record(ctx, o, out);
}

void calm_assembly_close(calm_assembly *assembly)
{
    calm_inputs_close(&assembly->in);
    calm_stored_run_clear(&assembly->run);
}
