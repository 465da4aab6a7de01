/* Recipes and runs through calm.h. */
#include <math.h>
#include <strings.h>

#include "ptq/api/library.h"
#include "ptq/recipe/resolve.h"
#include "ptq/recipe/shipped.h"
#include "ptq/forecast/forecast.h"
#include "ptq/stored/stored.h"
#include "ptq/lock/lock.h"
#include "ptq/tensor/linalg.h"
#include "store/gc.h"

#define NO_OUTCOME                                                                                                     \
    (calm_outcome)                                                                                                     \
    {                                                                                                                  \
        .bits_per_weight = NAN, .ppl_float = NAN, .ppl = NAN, .kl = NAN, .top1 = NAN, .cosine = NAN, .error = NAN,     \
        .spearman = NAN, .seconds = NAN                                                                                \
    }

/* ---- recipes ---- */

calm_status calm_spec_new(calm_ctx *ctx, calm_recipe_spec **out)
{
    CALM_ENTER(ctx, out);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, 1));
    return calm_spec_init(ctx, *out);
}

calm_status calm_spec_load(calm_ctx *ctx, calm_recipe_spec *spec, const char *path)
{
    CALM_ENTER(ctx, spec && path);
    return calm_recipe_file_apply(ctx, path, spec);
}

/* Resolves a spec into ctx->out.  Refuses `kernels`, for which the command line restarts the program. */
static calm_status resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe **out)
{
    calm_recipe *recipe;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe, 1));
    CALM_TRY(calm_recipe_resolve(ctx, spec, calm_library_events(ctx), recipe));
    if (recipe->kernels && strcasecmp(recipe->kernels, calm_linalg_kernels()) != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "`kernels` %s: this process has loaded %s; start it with OPENBLAS_CORETYPE=%s",
                         recipe->kernels, calm_linalg_kernels(), recipe->kernels);
    *out = recipe;
    return CALM_OK;
}

calm_status calm_spec_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json)
{
    const calm_recipe *recipe;
    CALM_SCOPED_JSON(root);
    CALM_ENTER(ctx, spec && json);
    CALM_TRY(resolve(ctx, spec, &recipe));
    root = calm_recipe_json(recipe);
    return calm_json_text(ctx, root, json);
}

/* ---- runs ---- */

calm_status calm_forecast_run(calm_ctx *ctx, const calm_recipe_spec *spec, calm_needs *out)
{
    const calm_recipe *recipe;
    calm_forecast forecast;
    CALM_ENTER(ctx, spec && out);
    CALM_TRY(resolve(ctx, spec, &recipe));
    CALM_TRY(calm_forecast_make(ctx, recipe, NULL, NULL, &forecast));
    *out = (calm_needs){.seconds = forecast.seconds, .memory_bytes = (double)forecast.memory.peak,
                        .store_bytes = forecast.store_bytes, .bytes_before = forecast.bytes_before,
                        .bytes_after = forecast.bytes_after, .bits_per_weight = forecast.bits_per_weight,
                        .n_candidates = forecast.n_candidates};
    return CALM_OK;
}

static void take_figures(const calm_result *result, calm_outcome *out)
{
    if (!result->evaluates)
        return;
    if (result->eval_result.kind == CALM_STORE_EMBEDDINGS) {
        const calm_embedding_result *found = &result->eval_result.embeddings;
        out->cosine = found->cosine;
        out->error = found->error;
        out->spearman = found->spearman;
        return;
    }
    const calm_eval_result *found = &result->eval_result.predictions;
    out->ppl_float = result->eval_float.predictions.ppl;
    out->ppl = found->ppl;
    out->kl = found->kl;
    out->top1 = found->top1;
}

/* Copies the result to *out; names are in ctx->out, as the run was. */
static calm_status take_result(calm_ctx *ctx, const calm_result *result, calm_outcome *out)
{
    CALM_TRY(calm_result_label(ctx, result, result->name, &out->result));
    out->run = result->run_id;
    out->verdict = result->verdict;
    out->bits_per_weight = result->bits_per_weight;
    out->bytes_before = result->bytes_before;
    out->bytes_after = result->bytes_after;
    out->n_cached = result->n_cached;
    out->seconds = result->seconds;
    return CALM_OK;
}

calm_status calm_quantize(calm_ctx *ctx, const calm_recipe_spec *spec, const char *lock, calm_outcome *out)
{
    CALM_SCOPED(calm_locked_run, calm_locked_run_close) run = {0};
    const calm_recipe *recipe;
    CALM_ENTER(ctx, spec && out);
    *out = NO_OUTCOME;
    CALM_TRY(resolve(ctx, spec, &recipe));
    const calm_run_options how = {.command = "calm_quantize", .events = *calm_library_events(ctx)};
    CALM_TRY(calm_locked_run_start(ctx, spec, recipe, &how, NULL, &run));
    CALM_TRY(take_result(ctx, calm_run_result(run.run), out));
    take_figures(calm_run_result(run.run), out);
    out->store = recipe->store;
    out->output = recipe->output;
    if (lock && run.lock) {
        if (calm_lock_write(ctx, run.lock, lock) != CALM_OK) {
            calm_run_failed(ctx, run.run);
            return ctx->status;
        }
        out->lock = lock;
    }
    return calm_gates_verdict(ctx, calm_run_result(run.run));
}

/* Converts a given name to its index in `names`, or NULL to "as in the run". */
static calm_status pick(calm_ctx *ctx, const char *key, const char *names, const char *name, int *out)
{
    *out = name ? calm_option_value_index(names, name) : CALM_AS_IN_RUN;
    if (name && *out < 0)
        return calm_fail(ctx, CALM_EARG, "`%s` %s: expected %s", key, name, names);
    return CALM_OK;
}

static calm_status select_options(calm_ctx *ctx, const calm_select_request *request, calm_reselect_options *out)
{
    *out = (calm_reselect_options){.store = request->store,
                                   .run = request->run,
                                   .metric = request->metric,
                                   .budget = request->budget > 0 ? request->budget : NAN,
                                   .act_budget = request->act_budget,
                                   .shortlist = request->shortlist,
                                   .engine = request->engine,
                                   .dry_run = request->dry_run,
                                   .command = "calm_select"};
    for (size_t i = 0; i < request->n_forbid; i++)
        CALM_TRY(calm_words_add(ctx, &out->forbid, request->forbid[i]));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->pins.of, request->n_pins));
    for (; out->pins.n < request->n_pins; out->pins.n++)
        out->pins.of[out->pins.n] = (calm_pair){request->pins[2 * out->pins.n], request->pins[2 * out->pins.n + 1]};
    CALM_TRY(pick(ctx, "choice.unit", CALM_UNIT_NAMES, request->unit, &out->unit));
    return pick(ctx, "choice.rule", CALM_CHOICE_RULE_NAMES, request->rule, &out->rule);
}

/* Returns the name of the choice: the entry of all units, or "hybrid". */
static const char *selected_name(const calm_reselected *selected)
{
    const calm_pool *pool = &selected->stored.pool;
    for (size_t unit = 1; unit < pool->n_units; unit++)
        if (selected->solution.choice[unit] != selected->solution.choice[0])
            return "hybrid";
    return pool->entries[selected->solution.choice[0]].name;
}

calm_status calm_select(calm_ctx *ctx, const calm_select_request *request, calm_outcome *out)
{
    calm_reselect_options options;
    CALM_SCOPED(calm_reselected, calm_reselected_clear) selected = {0};
    CALM_ENTER(ctx, request && request->store && out && (request->forbid || !request->n_forbid) &&
                        (request->pins || !request->n_pins));
    *out = NO_OUTCOME;
    CALM_TRY(select_options(ctx, request, &options));
    CALM_TRY(calm_reselect(ctx, &options, &selected));
    out->run = selected.run;
    out->store = request->store;
    out->result = selected_name(&selected);
    out->bits_per_weight = selected.solution.bits_per_weight;
    out->n_changed = selected.n_changed;
    return CALM_OK;
}

calm_status calm_assemble(calm_ctx *ctx, const calm_assemble_request *request, calm_outcome *out)
{
    CALM_SCOPED(calm_assembly, calm_assembly_close) assembly = {0};
    CALM_ENTER(ctx, request && request->store && request->output && out && (request->formats || !request->n_formats));
    *out = NO_OUTCOME;
    calm_assemble_options options = {.store = request->store, .run = request->run, .output = request->output,
                                     .model = request->model, .hybrid = request->hybrid, .force = request->force,
                                     .command = "calm_assemble", .events = *calm_library_events(ctx)};
    for (size_t i = 0; i < request->n_formats; i++)
        CALM_TRY(calm_words_add(ctx, &options.formats, request->formats[i]));
    CALM_TRY(calm_reassemble(ctx, &options, &assembly));
    CALM_TRY(take_result(ctx, &assembly.result, out));
    out->run = request->run;
    out->store = request->store;
    out->output = request->output;
    return CALM_OK;
}

calm_status calm_gc(calm_ctx *ctx, const calm_gc_request *request, calm_gc_outcome *out)
{
    calm_gc_result freed;
    CALM_ENTER(ctx, request && request->store && out && (request->drop || !request->n_drop));
    const calm_gc_plan plan = {.drop = request->drop, .n_drop = request->n_drop, .keep = request->keep,
                               .dry_run = request->dry_run};
    CALM_TRY(calm_store_gc_file(ctx, request->store, "calm_gc", &plan, &freed));
    *out = (calm_gc_outcome){.n_dropped = freed.n_dropped, .n_kept = freed.n_kept, .rows = freed.rows,
                             .blob_bytes = freed.beside_bytes, .bytes_before = freed.bytes_before,
                             .bytes_after = freed.bytes_after};
    return CALM_OK;
}

static calm_status verify_lock(calm_ctx *ctx, const calm_verify_request *request, const calm_json *lock,
                               calm_verified *out)
{
    const char *kernels = calm_lock_kernels(lock);
    const calm_verify_options options = {.output = request->output, .model = request->model, .store = request->store,
                                         .work = request->work ? request->work : "calm-out", .memory = request->memory,
                                         .command = "calm_verify", .events = *calm_library_events(ctx)};
    if (!request->output && kernels && strcasecmp(kernels, calm_linalg_kernels()) != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: was written with the kernels %s, this process has loaded %s; start it with "
                         "OPENBLAS_CORETYPE=%s",
                         request->lock, kernels, calm_linalg_kernels(), kernels);
    return calm_lock_verify(ctx, request->lock, lock, &options, out);
}

calm_status calm_verify(calm_ctx *ctx, const calm_verify_request *request, calm_verification *out)
{
    calm_verified verified;
    CALM_SCOPED_JSON(lock);
    CALM_ENTER(ctx, request && request->lock && out);
    *out = (calm_verification){0};
    CALM_TRY(calm_lock_read(ctx, request->lock, &lock));
    CALM_TRY(verify_lock(ctx, request, lock, &verified));
    *out = (calm_verification){verified.differences.checked, verified.differences.n, verified.differences.items};
    if (out->n_differences)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu of %zu things differ from the lock", request->lock,
                         out->n_differences, out->n_checked);
    return CALM_OK;
}
