/* The order of stages. */
#include "ptq/run/run_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/choose/choose.h"
#include "ptq/estimate/estimate.h"
#include "ptq/finish/finish.h"
#include "ptq/learn/learn.h"
#include "ptq/state/environment.h"
#include "ptq/state/run_pool.h"
#include "ptq/state/work.h"
#include "ptq/base/file.h"
#include "ptq/base/memory.h"
#include "ptq/base/message.h"
#include "ptq/base/threads.h"
#include "ptq/export/export.h"
#include "ptq/arch/kind.h"
#include "ptq/plan/key.h"

/* With this many calibration rows per input channel the loss is within 5 % of its limit (docs/method.md section 6). */
#define ROWS_PER_INPUT 16

/* Finds the blocks that the recipe names, and the algorithms for experts with too little data and for the head. */
static calm_status choose_blocks(calm_ctx *ctx, calm_run *p)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    calm_algorithm *fallback, *outer;
    p->in.first_block = (size_t)p->in.recipe->first_block;
    /* `blocks` of the recipe is inclusive, end_block is not. */
    p->in.end_block = p->in.recipe->last_block < 0 ? n_blocks : (size_t)p->in.recipe->last_block + 1;
    if (p->in.end_block > n_blocks || p->in.first_block >= p->in.end_block)
        return calm_fail(ctx, CALM_EARG, "`blocks` %lld-%lld: the model has blocks 0 to %zu", p->in.recipe->first_block,
                         p->in.recipe->last_block, n_blocks - 1);
    CALM_TRY(calm_inputs_keep_float(ctx, &p->in));
    /* Rounding to nearest needs only the weights. */
    CALM_TRY(calm_algorithm_parse(ctx, "rtn", &fallback));
    p->fallback = fallback;
    p->choosing->head.algorithm = calm_recipe_head_algorithm(p->in.recipe);
    CALM_TRY(calm_outer_algorithm(ctx, p->choosing->head.algorithm, &outer));
    p->outer = outer;
    return CALM_OK;
}

static calm_status open_inputs(calm_ctx *ctx, calm_run *p)
{
    CALM_TRY(calm_inputs_open_model(ctx, &p->in));
    if (calm_model_is_quantized(p->in.model))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: is quantized already, as %s; give calm the float checkpoint, or "
                         "write one: calm dequantize %s -o DIR", p->in.recipe->model.dir,
                         calm_model_format(p->in.model), p->in.recipe->model.dir);
    CALM_TRY(choose_blocks(ctx, p));
    if (p->in.recipe->sensitivity == CALM_SENSITIVITY_GRADIENT && calm_inputs_encode(&p->in))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: `choice.sensitivity` gradient is of predictions, which an "
                         "encoder has not; take probe", p->in.recipe->model.dir);
    if (p->in.recipe->sensitivity == CALM_SENSITIVITY_GRADIENT)
        CALM_TRY(calm_kinds_need_back(ctx, calm_model_config(p->in.model), "`choice.sensitivity` gradient"));
    CALM_TRY(calm_inputs_check_weight(ctx, &p->in));
    CALM_TRY(calm_inputs_check_learn(ctx, &p->in));
    CALM_TRY(calm_inputs_open_imatrix(ctx, &p->in));
    calm_inputs_note_biases(ctx, &p->in);
    CALM_TRY(calm_inputs_open_tokenizer(ctx, &p->in));
    /* Without a tokenizer the text cannot be read; the run continues without its evaluation. */
    p->result.evaluates = p->in.recipe->eval_path && p->in.tokenizer;
    CALM_TRY(calm_inputs_read_windows(ctx, &p->in));
    CALM_TRY(calm_run_work_cut_scoring(ctx, &p->in));
    CALM_TRY(calm_inputs_check_prefix(ctx, &p->in));
    calm_inputs_note_row_weight(ctx, &p->in);
    calm_inputs_describe(&p->in, &p->result);
    /* One rotary table serves all windows except those of the evaluation, which has a separate one. */
    const size_t longest = calm_size_max(p->in.calib.longest, p->in.guard.longest);
    return calm_rope_init(ctx, calm_model_config(p->in.model), longest, &p->rope);
}

static calm_status check_schemes(calm_ctx *ctx, calm_run *p)
{
    size_t *choice, first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        /* A format's limits depend on scheme and shape: checking one entry per scheme is enough. */
        if (entry && p->in.recipe->pool[entry].of_scheme == p->in.recipe->pool[entry - 1].of_scheme)
            continue;
        if (!p->in.recipe->pool[entry].scheme.bits)    /* a float scheme in all jobs is no plan */
            continue;
        CALM_TRY(calm_choice_uniform(ctx, &p->in, entry, &choice));
        for (size_t job = first; job < end; job++)    /* the plan lacks jobs that the target excludes */
            if (!calm_run_takes(p, job, p->in.recipe->pool[entry].of_scheme))
                choice[job] = CALM_STAYS_FLOAT;
        CALM_TRY(calm_plan_of_choice(ctx, &p->in, choice, &p->result.plan));
        CALM_TRY(calm_formats_check(ctx, &p->in.recipe->formats, p->in.model, &p->result.plan));
        CALM_TRY(calm_formats_check_target(ctx, &p->in.recipe->formats, p->in.recipe->engine, p->in.model,
                                           &p->result.plan));
    }
    return CALM_OK;
}

/* Fails, before any work, if the exporter would fail at the end. */
static calm_status check_export(calm_ctx *ctx, calm_run *p)
{
    CALM_SCOPED_TEXT(said);
    calm_said_once once = {ctx->log, ctx->log_user, &said};
    CALM_TRY(calm_formats_note_files(ctx, &p->in.recipe->formats, p->in.model));
    /* The checks of each scheme log the same notes about tokenizer and model: log them once. */
    CALM_SCOPED_LOG(ctx, ctx->log ? calm_log_once : NULL, &once);
    return check_schemes(ctx, p);
}

/* Warns if many weights are fitted to few rows: least squares would fit the noise of the rows (docs/method.md section
 * 6). */
static void warn_of_few_rows(calm_ctx *ctx, const calm_run *p)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t *begin = p->in.calib.begin, rows = begin[p->in.calib.n] - begin[calm_inputs_held_windows(&p->in)];
    size_t first, end, widest = 0;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first; job < end; job++)
        if (layout->jobs[job].in > widest && layout->jobs[job].expert < 0 && !calm_inputs_keeps(&p->in, job))
            widest = layout->jobs[job].in;
    /* Experts are not counted: their rows depend on the routing, and with few rows they have a fallback. */
    if (rows / ROWS_PER_INPUT < widest && (calm_recipe_caps(p->in.recipe) & CALM_NEEDS_GRAM))
        calm_log(ctx, CALM_LOG_WARNING,
                 "%zu calibration tokens for linears with %zu inputs: with fewer than %d per input results get worse "
                 "(more `calibration.samples`)",
                 rows, widest, ROWS_PER_INPUT);
}

/* Warns before the work if the store would fill the disk. */
static calm_status warn_of_little_disk(calm_ctx *ctx, const calm_run *p)
{
    double running, kept, left;
    char *place;
    CALM_SCOPED_SCRATCH(ctx);
    calm_forecast_store(p, &running, &kept);
    running += (double)p->memory.spill_bytes;
    CALM_TRY(calm_path_existing(ctx, p->in.recipe->store, &place));
    if (calm_disk_free(place, &left) && left < running)
        calm_log(ctx, CALM_LOG_WARNING, "%s: %.1f MB of disk are free, and the run may write %.1f MB there: give "
                 "`store` another disk, or make room", place, left / 1e6, running / 1e6);
    return CALM_OK;
}

/* Types that replace others in a GGUF file: the first place, and "q4_k as q5_0, q6_k as q8_0". */
typedef struct fallbacks {
    calm_text first, pairs;
} fallbacks;

static void clear_fallbacks(fallbacks *note)
{
    calm_text_clear(&note->first);
    calm_text_clear(&note->pairs);
}

/* Adds that one type replaces another; places with the same types are added once. */
static void add_fallback(fallbacks *note, const char *where, size_t in, const calm_scheme *asked,
                         const calm_scheme *stored)
{
    char pair[2 * CALM_SCHEME_NAME_MAX + 8], a[CALM_SCHEME_NAME_MAX], b[CALM_SCHEME_NAME_MAX];
    calm_scheme plain = *asked;
    plain.group_else = 0;    /* the type's name without its replacement */
    snprintf(pair, sizeof pair, " %s as %s", calm_scheme_type_name(&plain, a), calm_scheme_type_name(stored, b));
    if (calm_scheme_same(&plain, stored) || calm_text_listed(note->pairs.data, ',', pair))
        return;
    if (!note->pairs.data)
        calm_text_printf(&note->first, "%s: %zu does not divide its %zu inputs; stored there and in others like it:",
                         where, calm_scheme_block(asked), in);
    calm_text_printf(&note->pairs, "%s%s", note->pairs.data ? "," : "", pair);
}

/* Adds the types of embedding and head in every format.  A size limit chooses among types that fit, unless the user
 * gave them. */
static calm_status add_table_fallbacks(calm_ctx *ctx, const calm_run *p, size_t scheme, fallbacks *note)
{
    const calm_formats *formats = &p->in.recipe->formats;
    calm_plan plan;
    CALM_SCOPED_RESULTS(ctx);
    if (p->choosing->file && !formats->options.embed && !formats->options.head)
        return CALM_OK;
    CALM_TRY(calm_run_plan_of_scheme(ctx, p, scheme, &plan));
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        calm_outer_plan outer;
        CALM_TRY(calm_formats_outer(ctx, formats, calm_formats_at(formats, i), p->in.model, &plan, &outer));
        for (calm_outer t = 0; t < CALM_N_OUTERS; t++)
            if (outer.scheme[t].bits)
                add_fallback(note, calm_outer_name(t), calm_model_config(p->in.model)->hidden, &outer.asked[t],
                             &outer.scheme[t]);
    }
    return CALM_OK;
}

/* Logs, in one note, the types that replace others because super-blocks do not divide the rows. */
static calm_status note_fallbacks(calm_ctx *ctx, const calm_run *p)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    CALM_SCOPED(fallbacks, clear_fallbacks) note = {0};
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t i = 0; i < p->in.recipe->n_schemes; i++) {
        for (size_t job = first; job < end; job++) {
            const calm_job_ref *ref = &layout->jobs[job];
            const calm_scheme asked = calm_scheme_at(&p->in.recipe->schemes[i], &ref->place),
                              stored = calm_scheme_for(&asked, ref->in);
            if (!calm_inputs_keeps(&p->in, job))
                add_fallback(&note, ref->name, ref->in, &asked, &stored);
        }
        if (p->in.recipe->schemes[i].bits)
            CALM_TRY(add_table_fallbacks(ctx, p, i, &note));
    }
    CALM_TRY(calm_text_check(ctx, &note.first));
    CALM_TRY(calm_text_check(ctx, &note.pairs));
    if (note.pairs.data)
        calm_log(ctx, CALM_LOG_INFO, "%s%s", note.first.data, note.pairs.data);
    return CALM_OK;
}

/* Logs how many windows scores and probes use if there are few windows. */
static void note_held_windows(calm_ctx *ctx, const calm_run *p)
{
    const size_t held = calm_inputs_held_windows(&p->in), n = p->in.calib.n;
    const long long scored = p->in.recipe->score_windows, probed = p->in.recipe->probe_windows;
    if (scored == 0)
        return;
    if (held && p->in.recipe->unscored)
        calm_log(ctx, CALM_LOG_INFO, "%zu of %zu calibration windows are held out, so that the codes are those of a "
                 "run that scores several algorithms (`calibration.score_samples` 0 fits all)", held, n);
    else if (held == 0)
        calm_log(ctx, CALM_LOG_INFO,
                 "%zu calibration windows are too few to hold some out: candidates are scored on what they are fitted "
                 "to", n);
    else if (held < (size_t)(scored > probed ? scored : probed))
        calm_log(ctx, CALM_LOG_INFO,
                 "%zu of %zu calibration windows, a quarter, are held out for scores and probes, which ask for %lld "
                 "and %lld", held, n, scored, probed);
}

static void note_scored_tokens(calm_ctx *ctx, const calm_run *p)
{
    if (p->in.score_tokens && calm_inputs_scored_windows(&p->in))
        calm_log(ctx, CALM_LOG_INFO, "candidates are scored on the first %zu tokens of each of %zu windows, so that "
                 "scores are a small part of the run (`calibration.score_samples`: on whole windows)",
                 p->in.score_tokens, p->in.scoring.n);
}

/* ---- the whole line ---- */

static calm_status run_key(calm_ctx *ctx, const calm_run *p, char key[CALM_SHA256_HEX])
{
    CALM_SCOPED_TEXT(recipe);
    calm_sha256 sha;
    /* Command line and document are left out: the same recipe written in another way is the same run. */
    CALM_TRY(calm_run_recipe_text(ctx, p->in.recipe, false, &recipe));
    calm_sha256_init(&sha);
    /* A run with the same key continues a stopped run.  Another version of calm may choose otherwise, so it counts. */
    calm_sha256_field(&sha, "calm-run-1");
    calm_sha256_field(&sha, CALM_VERSION);
    calm_sha256_field(&sha, p->calib_key);
    calm_sha256_field(&sha, recipe.data);
    return calm_sha256_finish(ctx, &sha, key);
}

static calm_status begin_run(calm_ctx *ctx, calm_run *p)
{
    const calm_selection *selection = &p->in.recipe->selection;
    CALM_SCOPED_TEXT(recipe);
    CALM_TRY(run_key(ctx, p, p->key));
    CALM_TRY(calm_run_recipe_text(ctx, p->in.recipe, true, &recipe));
    const calm_store_run run = {.key = p->key, .model_id = p->result.model_id,
                                .calibration_id = p->result.calibration_id, .command = p->command,
                                .recipe = recipe.data, .unit = calm_unit_name(selection->unit),
                                .rule = calm_choice_rule_name(selection->rule),
                                .metric = calm_score_name(selection->point, selection->score),
                                .version = CALM_VERSION, .n_threads = ctx->n_threads};
    return calm_store_run_begin(ctx, p->in.store, &run, &p->result.run_id, &p->resumed);
}

/* Allocates a run of a recipe in ctx->out. */
static calm_status new_run(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options, calm_run **out)
{
    *out = NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, 1));
    /* NaN: the bits are unknown until a plan is exported. */
    **out = (calm_run){.in.recipe = recipe, .result.bits_per_weight = NAN, .arena = ctx->out,
                       .account = ctx->memory, .command = options->command, .events = options->events,
                       .cluster = options->cluster, .several = options->cluster != NULL};
    CALM_TRY(CALM_NEW(ctx, ctx->out, (*out)->ranks, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, (*out)->result.pool_seconds, recipe->n_pool));
    return calm_choosing_open(ctx, *out);
}

/* Opens the inputs and makes all checks that need no work. */
static calm_status open_all(calm_ctx *ctx, calm_run *p)
{
    /* Several budgets write no checkpoint. */
    if (p->in.recipe->output && p->in.recipe->n_budgets < 2) {
        calm_words inputs;
        CALM_TRY(calm_recipe_inputs(ctx, p->in.recipe, &inputs));
        CALM_TRY(calm_export_destination(ctx, p->in.recipe->output, p->in.recipe->force, &inputs));
    }
    CALM_TRY(open_inputs(ctx, p));
    const size_t n_jobs = calm_model_layout(p->in.model)->n_jobs;
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->in.candidates, n_jobs * p->in.recipe->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->job_ids, n_jobs));
    CALM_TRY(calm_choice_uniform(ctx, &p->in, CALM_STAYS_FLOAT, &p->choice));
    /* Before the export is checked: calm_run_restrict removes schemes that no job can have, perhaps from a copy of the
     * recipe. */
    CALM_TRY(calm_run_restrict(ctx, p));
    CALM_TRY(calm_run_file_open(ctx, p));
    p->result.recipe = p->in.recipe;
    p->result.limits = p->scope.limits;
    CALM_TRY(calm_gates_check(ctx, p->in.recipe->gates, p->in.recipe->n_gates, p->result.evaluates,
                              calm_inputs_encode(&p->in), p->in.recipe->n_budgets > 1));
    CALM_TRY(check_export(ctx, p));
    CALM_TRY(calm_learning_estimate(ctx, p));
    CALM_TRY(calm_run_check_budgets(ctx, p));
    CALM_TRY(calm_act_budget_check(ctx, &p->pool, &p->scope, p->in.recipe->act_budget));
    /* Notes come last: a run that a check above refuses has none. */
    warn_of_few_rows(ctx, p);
    CALM_TRY(note_fallbacks(ctx, p));
    note_held_windows(ctx, p);
    note_scored_tokens(ctx, p);
    p->choosing->streams = calm_forecast_follows(p);
    CALM_TRY(calm_memory_plan_apply(ctx, p, &p->memory));
    CALM_TRY(warn_of_little_disk(ctx, p));
    calm_memory_note(ctx, &p->held.open);
    return CALM_OK;
}

calm_status calm_run_open(calm_ctx *ctx, const calm_recipe *recipe, calm_run **out)
{
    const calm_run_options options = {.command = NULL};
    CALM_TRY(new_run(ctx, recipe, &options, out));
    (*out)->in.only_look = true;
    return open_all(ctx, *out);
}

static calm_status open_and_name(calm_ctx *ctx, calm_run *p)
{
    CALM_SCOPED_TIME(&p->result.times, CALM_TIME_READ);
    CALM_TRY(open_all(ctx, p));
    CALM_TRY(calm_key_model(ctx, p->in.model, p->model_key));
    return calm_run_calibration_key(ctx, p);
}

static calm_status prepare(calm_ctx *ctx, calm_run *p)
{
    open_and_name(ctx, p);
    CALM_SCOPED_TIME(&p->result.times, CALM_TIME_STORE);
    CALM_TRY(calm_division_check(ctx, p));    /* fails if this or another rank failed */
    CALM_TRY(calm_division_open_store(ctx, p));
    p->result.store = p->in.store;
    /* One transaction for the rows of model, blocks and jobs: thousands of small ones would each wait for the disk. */
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    CALM_TRY(calm_run_register(ctx, p));
    CALM_TRY(calm_store_commit(ctx, p->in.store));
    CALM_TRY(begin_run(ctx, p));
    return calm_environment_put(ctx, p->in.store, p->result.run_id);
}

static calm_status choose_and_guard(calm_ctx *ctx, calm_run *p)
{
    /* Other scores are computed with the candidates; probe_kl needs whole models, so it waits for all of them. */
    if (p->in.recipe->selection.score == CALM_SCORE_PROBE_KL)
        CALM_TRY(calm_run_probe_all(ctx, p, p->in.recipe->selection.unit));
    CALM_TRY(calm_run_choose(ctx, p));
    return calm_run_guard(ctx, p);
}

/* Runs a stage, whose time counts as `time`, except for the time of stages within it. */
static calm_status timed(calm_ctx *ctx, calm_run *p, calm_time_stage time, calm_status (*stage)(calm_ctx *, calm_run *))
{
    CALM_SCOPED_TIME(&p->result.times, time);
    return stage(ctx, p);
}

/* A calm_stages_fn: measures the model as given, as the baseline of a rotated model. */
static calm_status measure_baseline(calm_ctx *ctx, calm_run *p, void *user)
{
    CALM_TRY(timed(ctx, p, CALM_TIME_GUARD, choose_and_guard));
    calm_baseline_record(p, user);
    return calm_verdict_add(ctx, "measured for the comparison with a rotated model", &p->result.verdict);
}

/* Runs the stages after the candidates; user: the baseline of a rotated model, or NULL. */
static calm_status run_stages(calm_ctx *ctx, calm_run *p, void *user)
{
    calm_baseline *baseline = user;
    CALM_TRY(timed(ctx, p, CALM_TIME_GUARD, p->in.recipe->n_budgets ? calm_run_spend : choose_and_guard));
    if (baseline && baseline->verdict)    /* the baseline has won, and this is its run */
        CALM_TRY(calm_verdict_add(ctx, baseline->verdict, &p->result.verdict));
    else if (baseline)
        CALM_TRY(calm_baseline_judge(ctx, p, baseline));
    if (baseline && baseline->better && p->in.recipe->rotate != CALM_ROTATE_NONE)
        return CALM_OK;    /* the rotated model has lost, and nothing is written */
    /* Several budgets: their results are compared, none is written. */
    if (p->in.recipe->n_budgets > 1) {
        CALM_TRY(timed(ctx, p, CALM_TIME_LEARNING, calm_run_learn));
        p->result.verdict = "several budgets were compared";
        return timed(ctx, p, CALM_TIME_EVALUATION, calm_run_test_budgets);
    }
    calm_recompute_mark(&p->result.plan);
    CALM_TRY(calm_recompute_marked(ctx, p));
    CALM_TRY(timed(ctx, p, CALM_TIME_LEARNING, calm_run_learn));
    CALM_TRY(timed(ctx, p, CALM_TIME_EXPORT, calm_run_export));
    return calm_drop_rejected_codes(ctx, p);
}

static calm_status run_all(calm_ctx *ctx, calm_run *p, calm_stages_fn *stages, void *user)
{
    CALM_TRY(prepare(ctx, p));
    CALM_TRY(calm_run_blocks(ctx, p));
    /* All later stages need all candidates, and rank 0 runs them. */
    if (calm_cluster_rank(p->cluster) != 0)
        return calm_division_serve(ctx, p);
    CALM_TRY(stages(ctx, p, user));
    CALM_TRY(calm_division_account(ctx, p));
    return calm_run_end(ctx, p, "finished");
}

/* Fails if a run of the recipe would fail before its work.  Logs nothing: the run itself does. */
static calm_status look_at(calm_ctx *ctx, const calm_recipe *recipe)
{
    calm_run *run;
    CALM_SCOPED_SILENCE(ctx);
    const calm_status status = calm_run_open(ctx, recipe, &run);
    calm_run_close(&run);
    return status;
}

calm_status calm_run_quantize(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options, calm_run **out)
{
    calm_baseline baseline;
    *out = NULL;
    if (!calm_rotation_is_judged(ctx, recipe, calm_cluster_ranks(options->cluster)))
        return calm_run_stages(ctx, recipe, options, run_stages, NULL, out);
    /* A rotation that is refused fails here, before the baseline takes its time. */
    CALM_TRY(look_at(ctx, recipe));
    CALM_TRY(calm_baseline_of(ctx, recipe, &baseline));
    CALM_TRY(calm_run_stages(ctx, baseline.recipe, options, measure_baseline, &baseline, out));
    calm_run_close(out);
    CALM_TRY(calm_run_stages(ctx, recipe, options, run_stages, &baseline, out));
    if (!baseline.better)
        return CALM_OK;
    calm_run_close(out);
    /* Candidates and measurements of the baseline are in the store. */
    return calm_run_stages(ctx, baseline.recipe, options, run_stages, &baseline, out);
}

calm_status calm_run_stages(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                            calm_stages_fn *stages, void *user, calm_run **out)
{
    const double begun = calm_seconds();
    CALM_SCOPED_OPERANDS(ctx, calm_recipe_operands(recipe));
    CALM_TRY(new_run(ctx, recipe, options, out));
    calm_times_begin(&(*out)->result.times);
    (*out)->choosing->drops = stages == run_stages;
    /* After a failure *out is still the run: its row says why, and the caller closes it. */
    const calm_status status = run_all(ctx, *out, stages, user);
    if (status != CALM_OK)
        calm_run_failed(ctx, *out);
    calm_times_settle(&(*out)->result.times);
    (*out)->result.seconds = calm_seconds() - begun;
    return status;
}

/* Does what `prepare` does, for an existing run of the store. */
static calm_status recall(calm_ctx *ctx, calm_run *p, int64_t run_id, const char *const *keys, size_t n)
{
    CALM_TRY(open_and_name(ctx, p));
    CALM_TRY(calm_division_open_store(ctx, p));
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    CALM_TRY(calm_run_register(ctx, p));
    CALM_TRY(calm_store_commit(ctx, p->in.store));
    p->result.run_id = run_id;
    return calm_recompute_keys(ctx, p, keys, n);
}

calm_status calm_run_recompute(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                               int64_t run_id, const char *const *keys, size_t n)
{
    CALM_SCOPED(calm_run *, calm_run_close) run = NULL;
    CALM_SCOPED_OPERANDS(ctx, calm_recipe_operands(recipe));
    CALM_TRY(new_run(ctx, recipe, options, &run));
    return recall(ctx, run, run_id, keys, n);
}

const calm_result *calm_run_result(const calm_run *run)
{
    return &run->result;
}

void calm_run_close(calm_run **run)
{
    if (!*run)
        return;
    /* The memory limit belongs to the context, whose next run must begin without one. */
    calm_memory_set_limit((*run)->account, 0);
    calm_cluster_receive((*run)->cluster, NULL);
    calm_learn_share_close(&(*run)->learn_share);
    calm_guard_rows_close(*run);
    calm_inputs_close(&(*run)->in);
    (*run)->result.store = NULL;
    *run = NULL;
}
