/* Pipeline: the order of stages, and what they share. */
#include "cli/pipeline.h"

#include <math.h>
#include <string.h>

#include "cli/environment.h"
#include "ptq/base/memory.h"
#include "ptq/base/threads.h"
#include "ptq/hybrid/export.h"
#include "ptq/hybrid/key.h"

/* Calibration rows per input channel that come within 5 % of the limit (docs/method.md section 6). */
#define ROWS_PER_INPUT 16

calm_candidate *calm_pipeline_candidate(const calm_pipeline *p, size_t job, size_t entry)
{
    return &p->candidates[job * p->recipe->n_pool + entry];
}

void calm_pipeline_jobs(const calm_pipeline *p, size_t *first, size_t *end)
{
    const calm_layout *layout = calm_model_layout(p->model);
    *first = layout->block_begin[p->first_block];
    *end = layout->block_begin[p->end_block];
}

/* ---- opening ---- */

calm_status calm_pipeline_read_windows(calm_ctx *ctx, const calm_pipeline *p, calm_windows *calib, calm_windows *guard)
{
    const calm_recipe *recipe = p->recipe;
    const calm_windows_options options = {.seqlen = (size_t)recipe->seqlen, .seed = recipe->seed,
                                          .samples = (size_t)(recipe->samples + recipe->guard_windows),
                                          .vocab = calm_model_config(p->model)->vocab, .special = recipe->special};
    calm_windows all;
    if (recipe->tokens) {
        calm_token_file file;
        CALM_TRY(calm_token_file_read(ctx, recipe->calib_path, options.vocab, &file));
        CALM_TRY(calm_windows_from_tokens(ctx, &file, &options, &all));
    } else {
        CALM_TRY(calm_pipeline_read_text(ctx, p, recipe->calib_path, &options, &all));
    }
    size_t n_guard = all.n > (size_t)recipe->samples ? all.n - (size_t)recipe->samples : 0;
    if (n_guard < (size_t)recipe->guard_windows) {
        /* A short text: an eighth of it guards, so that there is a guard at all. */
        const size_t share = all.n / 8 < (size_t)recipe->guard_windows ? all.n / 8 : (size_t)recipe->guard_windows;
        n_guard = n_guard > share ? n_guard : share;
        calm_log(ctx, CALM_LOG_WARNING, "%s has %zu windows of %lld tokens: %zu for calibration, %zu for the guard",
                 recipe->calib_name, all.n, recipe->seqlen, all.n - n_guard, n_guard);
    }
    CALM_TRY(calm_windows_slice(ctx, &all, 0, all.n - n_guard, calib));
    return calm_windows_slice(ctx, &all, all.n - n_guard, n_guard, guard);
}

/* The blocks that --blocks names, and what replaces methods that need data where there is too little. */
static calm_status choose_blocks(calm_ctx *ctx, calm_pipeline *p)
{
    const size_t n_blocks = calm_model_config(p->model)->n_blocks;
    calm_algorithm *fallback;
    p->first_block = (size_t)p->recipe->first_block;
    p->end_block = p->recipe->last_block < 0 ? n_blocks : (size_t)p->recipe->last_block + 1;
    if (p->end_block > n_blocks || p->first_block >= p->end_block)
        return calm_fail(ctx, CALM_EARG, "--blocks %lld-%lld: the model has blocks 0 to %zu", p->recipe->first_block,
                         p->recipe->last_block, n_blocks - 1);
    CALM_TRY(calm_algorithm_parse(ctx, "rtn", &fallback));
    p->fallback = fallback;
    return CALM_OK;
}

calm_status calm_pipeline_open_tokenizer(calm_ctx *ctx, calm_pipeline *p)
{
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, p->recipe->model.dir, "tokenizer.json"));
    const calm_status status = calm_tokenizer_open(ctx, path, &p->tokenizer);
    if (status == CALM_OK || !p->recipe->tokens)
        return status;
    calm_log(ctx, CALM_LOG_WARNING, "%s; the run goes on with the ids of %s%s", ctx->message, p->recipe->calib_path,
             p->recipe->eval_path ? ", without evaluation" : "");
    calm_ctx_forgive(ctx);
    return CALM_OK;
}

static calm_status open_inputs(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(calm_model_open(ctx, p->recipe->model.dir, &p->model));
    if (calm_model_is_quantized(p->model))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: is quantized already; give calm the float checkpoint",
                         p->recipe->model.dir);
    CALM_TRY(choose_blocks(ctx, p));
    CALM_TRY(calm_pipeline_open_tokenizer(ctx, p));
    p->evaluates = p->recipe->eval_path && p->tokenizer;
    CALM_TRY(calm_pipeline_read_windows(ctx, p, &p->calib, &p->guard));
    const size_t longest = p->calib.longest > p->guard.longest ? p->calib.longest : p->guard.longest;
    return calm_rope_init(ctx, calm_model_config(p->model), longest, &p->rope);
}

/* Refuse before any work what the exporter would refuse at the end. */
static calm_status check_export(calm_ctx *ctx, calm_pipeline *p)
{
    size_t *choice, first, end;
    calm_pipeline_jobs(p, &first, &end);
    for (size_t entry = 0; entry < p->recipe->n_pool; entry++) {
        if (entry && p->recipe->pool[entry].of_scheme == p->recipe->pool[entry - 1].of_scheme)
            continue;
        CALM_TRY(calm_pipeline_uniform(ctx, p, entry, &choice));
        for (size_t job = first; job < end; job++)    /* what the target keeps from a job is no plan */
            if (!calm_pipeline_takes(p, job, p->recipe->pool[entry].of_scheme))
                choice[job] = CALM_STAYS_FLOAT;
        CALM_TRY(calm_pipeline_plan(ctx, p, choice, &p->result));
        CALM_TRY(calm_formats_check(ctx, &p->recipe->formats, p->model, &p->result));
    }
    return CALM_OK;
}

/* Many weights from few rows: least squares would fit what the rows happen to be (docs/method.md section 6). */
static void warn_of_few_rows(calm_ctx *ctx, const calm_pipeline *p)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const size_t rows = p->calib.begin[p->calib.n];
    size_t first, end, widest = 0;
    calm_pipeline_jobs(p, &first, &end);
    for (size_t job = first; job < end; job++)
        widest = layout->jobs[job].in > widest && layout->jobs[job].expert < 0 ? layout->jobs[job].in : widest;
    if (rows / ROWS_PER_INPUT < widest && (calm_recipe_caps(p->recipe) & CALM_NEEDS_GRAM))
        calm_log(ctx, CALM_LOG_WARNING, "%zu calibration rows for %zu inputs: below %d rows per input results get worse "
                                        "(more --samples)", rows, widest, ROWS_PER_INPUT);
}

/* ---- the whole line ---- */

/* A member of `json` from its text; NULL: none. */
static calm_status add_member(calm_ctx *ctx, calm_json *json, const char *key, const char *text)
{
    calm_json *value;
    if (!text)
        return CALM_OK;
    CALM_TRY(calm_json_parse(ctx, key, text, strlen(text), &value));
    calm_json_set(json, key, value);
    return CALM_OK;
}

/* The recipe as the store keeps it: `all` with what the command line said instead of a recipe file and with the file that says
 * the same, which are not in the key. */
static calm_status recipe_text(calm_ctx *ctx, const calm_recipe *recipe, bool all, calm_text *out)
{
    calm_json *json = calm_recipe_json(recipe);
    calm_status status = all ? add_member(ctx, json, "overrides", recipe->overrides) : CALM_OK;
    if (status == CALM_OK && all)
        status = add_member(ctx, json, "document", recipe->document);
    if (status == CALM_OK)
        status = calm_json_write(ctx, json, 0, out);
    calm_json_free(json);
    return status;
}

static calm_status run_key(calm_ctx *ctx, const calm_pipeline *p, char key[CALM_SHA256_HEX])
{
    calm_text recipe;
    calm_sha256 sha;
    calm_text_init(&recipe);
    const calm_status status = recipe_text(ctx, p->recipe, false, &recipe);
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-run-1");
    calm_sha256_field(&sha, CALM_VERSION);
    calm_sha256_field(&sha, p->calib_key);
    calm_sha256_field(&sha, recipe.data ? recipe.data : "");
    const calm_status hashed = calm_sha256_finish(ctx, &sha, key);
    calm_text_clear(&recipe);
    return status != CALM_OK ? status : hashed;
}

static calm_status begin_run(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_selection *selection = &p->recipe->selection;
    calm_text recipe;
    char key[CALM_SHA256_HEX];
    CALM_TRY(run_key(ctx, p, key));
    calm_text_init(&recipe);
    calm_status status = recipe_text(ctx, p->recipe, true, &recipe);
    const calm_store_run run = {.key = key, .model_id = p->model_id, .calibration_id = p->calibration_id,
                                .command = p->command, .recipe = recipe.data,
                                .unit = calm_unit_name(selection->unit), .rule = calm_rule_name(selection->rule),
                                .metric = calm_score_name(selection->point, selection->score),
                                .version = CALM_VERSION, .n_threads = ctx->n_threads};
    if (status == CALM_OK)
        status = calm_store_run_begin(ctx, p->store, &run, &p->run_id, &p->resumed);
    calm_text_clear(&recipe);
    return status;
}

static calm_status end_run(calm_ctx *ctx, const calm_pipeline *p, const char *status)
{
    const calm_store_outcome outcome = {.status = status, .result = p->result_name,
                                        .reason = ctx->status == CALM_OK ? p->verdict : ctx->message,
                                        .bits_per_weight = p->bits_per_weight, .bytes_before = p->bytes_before,
                                        .bytes_after = p->bytes_after};
    return calm_store_run_end(ctx, p->store, p->run_id, &outcome);
}

void calm_pipeline_failed(calm_ctx *ctx, const calm_pipeline *p)
{
    calm_ctx quiet = *ctx;
    if (!p->store || !p->run_id)
        return;
    calm_store_rollback(p->store);    /* of what was under way: within it this row would go with it */
    end_run(&quiet, p, "failed");
    if (ctx->status == CALM_ENOSPC || ctx->status == CALM_EIO)
        calm_log(ctx, CALM_LOG_INFO, "what is done is in %s: the same command goes on from there", p->recipe->store);
}

static void clear(calm_pipeline *p, const calm_recipe *recipe, calm_arena *arena)
{
    memset(p, 0, sizeof *p);
    p->recipe = recipe;
    p->arena = arena;
    p->bits_per_weight = NAN;
}

/* Everything that can be refused before any work. */
static calm_status open_all(calm_ctx *ctx, calm_pipeline *p)
{
    size_t n_jobs;
    if (p->recipe->output && p->recipe->n_budgets < 2)
        CALM_TRY(calm_export_target(ctx, p->recipe->output, p->recipe->force));
    CALM_TRY(open_inputs(ctx, p));
    n_jobs = calm_model_layout(p->model)->n_jobs;
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->candidates, n_jobs * p->recipe->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->job_ids, n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->choice, n_jobs));
    for (size_t job = 0; job < n_jobs; job++)
        p->choice[job] = CALM_STAYS_FLOAT;
    CALM_TRY(calm_pipeline_pin(ctx, p));
    CALM_TRY(calm_pipeline_constrain(ctx, p));
    CALM_TRY(calm_gates_check(ctx, p->recipe->gates, p->recipe->n_gates, p->evaluates, calm_pipeline_encodes(p),
                              p->recipe->n_budgets > 1));
    CALM_TRY(check_export(ctx, p));
    CALM_TRY(calm_pipeline_check_budgets(ctx, p));
    warn_of_few_rows(ctx, p);
    CALM_TRY(calm_memory_plan_apply(ctx, p, &p->memory));
    calm_memory_plan_note(&p->held.open);
    return CALM_OK;
}

calm_status calm_pipeline_open(calm_ctx *ctx, const calm_recipe *recipe, calm_pipeline *out)
{
    clear(out, recipe, ctx->out);
    return open_all(ctx, out);
}

static calm_status prepare(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(open_all(ctx, p));
    CALM_TRY(calm_key_model(ctx, p->model, p->model_key));
    CALM_TRY(calm_pipeline_calibration_key(ctx, p));
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = p->command, .wait_seconds = -1};
    CALM_TRY(calm_make_parent(ctx, p->recipe->store));
    CALM_TRY(calm_store_open(ctx, p->recipe->store, &how, &p->store));
    CALM_TRY(calm_store_begin(ctx, p->store));
    CALM_TRY(calm_pipeline_register(ctx, p));
    CALM_TRY(calm_store_commit(ctx, p->store));
    CALM_TRY(begin_run(ctx, p));
    return calm_environment_put(ctx, p->store, p->run_id);
}

/* Several budgets: their results side by side, none written. */
static calm_status compare_budgets(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(calm_pipeline_share_bits(ctx, p));
    p->verdict = "several budgets were compared";
    return calm_pipeline_test_budgets(ctx, p);
}

/* What follows the candidates. */
static calm_status run_stages(calm_ctx *ctx, calm_pipeline *p, void *user)
{
    (void)user;
    if (p->recipe->n_budgets > 1)
        return compare_budgets(ctx, p);
    if (p->recipe->n_budgets) {
        CALM_TRY(calm_pipeline_share_bits(ctx, p));
    } else {
        if (p->recipe->selection.score == CALM_SCORE_PROBE_KL)
            CALM_TRY(calm_pipeline_probe_all(ctx, p, p->recipe->selection.unit));
        CALM_TRY(calm_pipeline_choose(ctx, p));
        CALM_TRY(calm_pipeline_guard(ctx, p));
    }
    return calm_pipeline_export(ctx, p);
}

static calm_status run_all(calm_ctx *ctx, calm_pipeline *p, calm_stages_fn *stages, void *user)
{
    CALM_TRY(prepare(ctx, p));
    CALM_TRY(calm_pipeline_blocks(ctx, p));
    CALM_TRY(stages(ctx, p, user));
    return end_run(ctx, p, "finished");
}

calm_status calm_pipeline_run(calm_ctx *ctx, const calm_recipe *recipe, const char *command, calm_progress *progress,
                              calm_pipeline *out)
{
    return calm_pipeline_stages(ctx, recipe, command, progress, run_stages, NULL, out);
}

calm_status calm_pipeline_stages(calm_ctx *ctx, const calm_recipe *recipe, const char *command, calm_progress *progress,
                                 calm_stages_fn *stages_fn, void *user, calm_pipeline *out)
{
    static const char *const stages[CALM_N_STAGES][2] = {
        [CALM_STAGE_CALIBRATE] = {"calibrate", "blocks"}, [CALM_STAGE_QUANTIZE] = {"quantize", "candidates"},
        [CALM_STAGE_SCORE] = {"score", "candidates"},     [CALM_STAGE_PROBE] = {"probe", "windows"},
        [CALM_STAGE_CHOOSE] = {"choose", "guard windows"}, [CALM_STAGE_ASSEMBLE] = {"assemble", "blocks"},   [CALM_STAGE_EVALUATE] = {"evaluate", "windows"},
    };
    const double begun = calm_seconds();
    clear(out, recipe, ctx->out);
    out->command = command;
    out->progress = progress;
    for (int s = 0; s < CALM_N_STAGES; s++)
        calm_progress_add(progress, stages[s][0], stages[s][1]);
    const calm_status status = run_all(ctx, out, stages_fn, user);
    if (status != CALM_OK)
        calm_pipeline_failed(ctx, out);
    calm_progress_end(progress);
    out->seconds = calm_seconds() - begun;
    return status;
}

void calm_pipeline_close(calm_pipeline *pipeline)
{
    calm_memory_set_limit(0);
    calm_store_close(pipeline->store);
    calm_tokenizer_close(pipeline->tokenizer);
    calm_model_close(pipeline->model);
    pipeline->store = NULL;
    pipeline->tokenizer = NULL;
    pipeline->model = NULL;
}
