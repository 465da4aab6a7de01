/* Recipe files: structure, then names. */
#include "cli/recipe_check.h"

#include <string.h>

#include "cli/run_pool.h"
#include "cli/recipe_file.h"
#include "ptq/base/file.h"
#include "ptq/model/arch.h"

/* A fault is a failure that is not the end: note it and go on.  Running out of memory is the end. */
static calm_status note(calm_ctx *ctx, calm_status status, const char *pointer, calm_json_fault *faults, size_t *n)
{
    char *message;
    if (status == CALM_OK || status == CALM_ENOMEM)
        return status;
    char said[CALM_MESSAGE_MAX];
    memcpy(said, ctx->message, sizeof said);
    calm_ctx_forgive(ctx);
    if (*n == CALM_SCHEMA_FAULTS)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &message, "%s", said));
    faults[(*n)++] = (calm_json_fault){pointer, message};
    return CALM_OK;
}

/* Is there such a model, as far as names say?  The hub is not asked. */
static calm_status check_model(calm_ctx *ctx, const char *name)
{
    calm_named_model model;
    const char *hub;
    if (!name)
        return calm_fail(ctx, CALM_EARG, "--model is missing");
    CALM_TRY(calm_resolve_hub_name(ctx, name, &hub));
    if (hub && !calm_is_path(name))
        return CALM_OK;
    CALM_TRY(calm_resolve_model(ctx, name, true, &model));
    return calm_is_directory(model.dir) ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory", model.dir);
}

static calm_status check_text(calm_ctx *ctx, const char *path)
{
    return !path || calm_path_exists(path) ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file", path);
}

/* Widths and the pool; the rest of the names are about it. */
static calm_status check_pool(calm_ctx *ctx, const calm_quantize_options *o, calm_recipe *recipe, calm_json_fault *faults,
                              size_t *n)
{
    const size_t before = *n;
    const char *schemes = o->recipe.scheme, *algorithms = o->recipe.algorithms;
    if (!schemes)
        schemes = o->budget ? CALM_BUDGET_SCHEMES : calm_recipe_scheme_of_bits(o->recipe.bits);
    if (!schemes)
        return note(ctx, calm_fail(ctx, CALM_EARG, "--bits %lld: expected 2, 3, 4 or 8", o->recipe.bits), "/schemes",
                    faults, n);
    CALM_TRY(note(ctx, calm_recipe_schemes(ctx, schemes, recipe), "/schemes", faults, n));
    if (*n > before)
        return CALM_OK;
    if (!algorithms)
        algorithms = o->budget ? CALM_BUDGET_POOL : calm_recipe_default_pool(recipe);
    return note(ctx, calm_recipe_algorithms(ctx, algorithms, recipe), "/algorithms", faults, n);
}

/* One gate after the other, so that each has its place. */
static calm_status check_gates(calm_ctx *ctx, const calm_quantize_options *o, int encoder, calm_json_fault *faults,
                               size_t *n)
{
    const char *at = o->gates;
    const bool several = o->budget && strchr(o->budget, ',');
    for (size_t i = 0; at; i++) {
        char *text, *pointer;
        calm_gate gate;
        CALM_TRY(calm_list_next(ctx, &at, &text));
        if (!text)
            break;
        CALM_TRY(calm_strf(ctx, ctx->out, &pointer, "/gates/%zu", i));
        calm_status status = calm_gate_parse(ctx, text, &gate);
        if (status == CALM_OK)
            status = calm_gates_check(ctx, &gate, 1, !o->no_eval, encoder, several);
        CALM_TRY(note(ctx, status, pointer, faults, n));
    }
    return CALM_OK;
}

/* Pins against the units of the model. */
static calm_status check_pins(calm_ctx *ctx, const calm_pipeline *p)
{
    calm_scope scope;
    calm_pool pool;
    CALM_TRY(calm_pool_of_run(ctx, p, &p->recipe->selection, &pool));
    return calm_run_check_pins(ctx, p, &pool, &scope);
}

/* Pins and gates against the layout and the kind of a model that lies here; no weight is read. */
static calm_status check_model_here(calm_ctx *ctx, const calm_quantize_options *o, calm_recipe *recipe,
                                    calm_json_fault *faults, size_t *n)
{
    const char *hub;
    calm_pipeline p = {.recipe = recipe};
    CALM_TRY(calm_resolve_hub_name(ctx, o->recipe.model, &hub));
    if (hub && !calm_is_path(o->recipe.model))
        return CALM_OK;
    CALM_TRY(calm_resolve_model(ctx, o->recipe.model, true, &recipe->model));
    if (note(ctx, calm_model_open(ctx, recipe->model.dir, &p.model), "/model", faults, n) != CALM_OK || !p.model)
        return ctx->status;
    const calm_config *config = calm_model_config(p.model);
    const size_t end = recipe->last_block < 0 ? config->n_blocks : (size_t)recipe->last_block + 1;
    p.first_block = (size_t)recipe->first_block;
    p.end_block = end;
    calm_status status = CALM_OK;
    if (p.end_block > config->n_blocks)
        status = note(ctx, calm_fail(ctx, CALM_EARG, "the model has blocks 0 to %zu", config->n_blocks - 1), "/blocks",
                      faults, n);
    else
        status = note(ctx, check_pins(ctx, &p), "/choice/pins", faults, n);
    if (status == CALM_OK && !*n)
        status = note(ctx, calm_run_restrict(ctx, &p), "/target", faults, n);
    if (status == CALM_OK && !*n)
        status = note(ctx, calm_run_check_budgets(ctx, &p), "/choice/budget", faults, n);
    if (status == CALM_OK)
        status = check_gates(ctx, o, config->arch->encoder, faults, n);
    calm_model_close(p.model);
    return status;
}

calm_status calm_recipe_check_names(calm_ctx *ctx, const calm_quantize_options *o, calm_json_fault *faults, size_t *n)
{
    calm_recipe recipe = {.last_block = -1, .prefix = (calm_prefix)o->recipe.prefix, .light = o->effort == 1};
    const calm_recipe_options *r = &o->recipe;
    const size_t before = *n;
    CALM_TRY(note(ctx, check_model(ctx, r->model), "/model", faults, n));
    const size_t model = *n;
    CALM_TRY(check_pool(ctx, o, &recipe, faults, n));
    const bool pool = *n == model;
    CALM_TRY(note(ctx, calm_quantize_budgets(ctx, o, &recipe), "/choice/budget", faults, n));
    CALM_TRY(note(ctx, calm_quantize_formats(ctx, o, &recipe.formats), "/formats", faults, n));
    CALM_TRY(note(ctx, calm_quantize_target(ctx, o, &recipe), "/target", faults, n));
    if (pool) {
        CALM_TRY(note(ctx, calm_recipe_select(ctx, (calm_unit)o->unit, (calm_rule)o->rule, o->metric, &recipe),
                      "/choice/metric", faults, n));
        if (o->forbid)
            CALM_TRY(note(ctx, calm_recipe_forbid(ctx, o->forbid, &recipe), "/choice/forbid", faults, n));
        if (o->pins)
            CALM_TRY(note(ctx, calm_recipe_pins(ctx, o->pins, &recipe), "/choice/pins", faults, n));
    }
    CALM_TRY(note(ctx, calm_recipe_blocks(ctx, r, &recipe), "/blocks", faults, n));
    CALM_TRY(check_gates(ctx, o, -1, faults, n));
    CALM_TRY(note(ctx, check_text(ctx, r->calib), "/calibration/text", faults, n));
    CALM_TRY(note(ctx, check_text(ctx, r->tokens), "/calibration/tokens", faults, n));
    CALM_TRY(note(ctx, check_text(ctx, o->no_eval ? NULL : r->eval_text), "/evaluation/text", faults, n));
    if (r->tokens && (r->calib || r->special))
        CALM_TRY(note(ctx, calm_fail(ctx, CALM_EARG, "takes the place of text and special"), "/calibration/tokens", faults,
                      n));
    if (*n == before)
        CALM_TRY(note(ctx, calm_quantize_check_choice(ctx, o, &recipe), "/choice", faults, n));
    return *n > before ? CALM_OK : check_model_here(ctx, o, &recipe, faults, n);
}

static calm_status check_document(calm_ctx *ctx, const calm_json *document, const char *path, calm_json_fault **faults,
                                  size_t *n)
{
    calm_json *schema;
    calm_quantize_options opts = {0};
    CALM_TRY(calm_recipe_schema_read(ctx, &schema));
    const calm_status status = calm_json_schema_faults(ctx, schema, document, faults, n);
    calm_json_free(schema);
    if (status != CALM_OK || *n)
        return status;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *faults, CALM_SCHEMA_FAULTS));
    CALM_TRY(calm_options_init(ctx, calm_quantize_table, &opts));
    CALM_TRY(note(ctx, calm_recipe_file_apply(ctx, document, path, NULL, &opts, NULL), "", *faults, n));
    return *n ? CALM_OK : calm_recipe_check_names(ctx, &opts, *faults, n);
}

calm_status calm_recipe_check_file(calm_ctx *ctx, const char *path, calm_json_fault **faults, size_t *n)
{
    calm_json *document;
    *n = 0;
    CALM_TRY(calm_json_read(ctx, path, CALM_RECIPE_BYTES, &document));
    const calm_status status = check_document(ctx, document, path, faults, n);
    calm_json_free(document);
    return status;
}
