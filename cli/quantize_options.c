/* Options of `calm quantize` become a recipe. */
#include "cli/quantize_options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/memory_plan.h"
#include "cli/recipe_file.h"
#include "ptq/base/file.h"
#include "ptq/base/sha256.h"
#include "ptq/hybrid/export.h"

#define MAX_BUDGETS 64

const calm_option calm_quantize_table[] = {
    CALM_QUANTIZE_OPTIONS("checkpoint to write (default calm-out/MODEL-SCHEME)"),
    {.name = "dry-run",
     .help = "say what the run would need - memory, disk, time, size - and do nothing else",
     .offset = offsetof(calm_quantize_options, dry_run),
     .type = CALM_OPTION_BOOL},
    {.name = "force",
     .help = "replace the output directory",
     .offset = offsetof(calm_quantize_options, force),
     .type = CALM_OPTION_BOOL,
     .key = 'f'},
    {.name = "lock",
     .help = "digests of inputs and outputs, for calm verify (default: beside the recipe file, else beside the output)",
     .offset = offsetof(calm_quantize_options, lock),
     .type = CALM_OPTION_STRING,
     .metavar = "FILE"},
    {.name = "locked",
     .help = "do not write the lock: what it says must come out, else exit status 3",
     .offset = offsetof(calm_quantize_options, locked),
     .type = CALM_OPTION_BOOL},
    {.name = "json",
     .help = "print the report as JSON",
     .offset = offsetof(calm_quantize_options, json),
     .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(calm_quantize_options),
    {0},
};

/* The last part of the model's name, for the output's name. */
static const char *base_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

calm_status calm_quantize_budgets(calm_ctx *ctx, const calm_quantize_options *o, calm_recipe *recipe)
{
    if (!o->budget)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->budgets, MAX_BUDGETS));
    for (const char *at = o->budget;; at++) {
        char *end;
        const double bits = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(bits > 0 && bits <= 32) || recipe->n_budgets == MAX_BUDGETS)
            return calm_fail(ctx, CALM_EARG, "--budget %s: expected bits per weight, or up to %d of them: 2.5,3,3.5",
                             o->budget, MAX_BUDGETS);
        recipe->budgets[recipe->n_budgets++] = bits;
        at = end;
        if (!*at)
            break;
    }
    qsort(recipe->budgets, recipe->n_budgets, sizeof *recipe->budgets, compare_numbers);
    return CALM_OK;
}

calm_status calm_quantize_check_choice(calm_ctx *ctx, const calm_quantize_options *o, const calm_recipe *recipe)
{
    if (recipe->light && recipe->selection.unit != CALM_UNIT_JOB)
        return calm_fail(ctx, CALM_EARG, "--effort light decides job by job; it has no --unit %s",
                         calm_unit_name(recipe->selection.unit));
    if (recipe->n_budgets && recipe->prefix == CALM_PREFIX_QUANTIZED)
        return calm_fail(ctx, CALM_EARG, "--budget decides over all blocks together; it has no --prefix quantized");
    if (recipe->n_budgets && recipe->selection.score == CALM_SCORE_PROBE_KL)
        return calm_fail(ctx, CALM_EARG, "--budget probes one width of each unit itself; it has no --metric probe_kl");
    if (!recipe->n_budgets && recipe->n_schemes > 1)
        return calm_fail(ctx, CALM_EARG, "--scheme %s: several widths compete under --budget BITS alone",
                         o->recipe.scheme);
    if (recipe->n_budgets && recipe->n_schemes == 1)
        return calm_fail(ctx, CALM_EARG, "--budget needs several widths to choose from: --scheme " CALM_BUDGET_SCHEMES);
    return CALM_OK;
}

static calm_status resolve_output(calm_ctx *ctx, const calm_quantize_options *o, calm_recipe *recipe)
{
    char scheme[CALM_SCHEME_NAME_MAX], *output;
    recipe->output = o->output;
    if (recipe->output)
        return CALM_OK;
    calm_scheme_name(&recipe->schemes[0], scheme);
    if (recipe->n_budgets)
        snprintf(scheme, sizeof scheme, "%g-bits", recipe->budgets[0]);
    CALM_TRY(calm_strf(ctx, ctx->out, &output, "calm-out/%s-%s", base_name(o->recipe.model), scheme));
    recipe->output = output;
    return CALM_OK;
}

calm_status calm_quantize_formats(calm_ctx *ctx, const calm_quantize_options *o, calm_formats *out)
{
    *out = (calm_formats){0};
    if (o->formats)
        CALM_TRY(calm_formats_parse(ctx, o->formats, out));
    out->options.asymmetric = true;    /* the scheme's name asks for it */
    out->options.gguf_pre = o->gguf_pre;
    out->options.gguf_float = (calm_export_float)o->gguf_float;
    return o->max_shard_size ? calm_memory_plan_parse(ctx, o->max_shard_size, &out->options.max_shard_bytes) : CALM_OK;
}

calm_status calm_quantize_target(calm_ctx *ctx, const calm_quantize_options *o, calm_recipe *recipe)
{
    char *format = NULL;
    if (o->target) {
        CALM_TRY(calm_target_parse(ctx, o->target, &recipe->target));
        CALM_TRY(calm_formats_read_by(ctx, &recipe->formats, recipe->target, &format));
    }
    recipe->target_format = format;
    recipe->target_tie = calm_tie_both(calm_target_tie(recipe->target, format), calm_formats_tie(&recipe->formats));
    return CALM_OK;
}

/* A file is the one that the recipe was made with. */
static calm_status check_digest(calm_ctx *ctx, const char *path, const char *expected)
{
    char found[CALM_SHA256_HEX];
    if (!expected)
        return CALM_OK;
    CALM_TRY(calm_sha256_file(ctx, path, found));
    if (strcmp(found, expected) != 0)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: the recipe expects SHA-256 %s, found %s; it is another file than the "
                                              "recipe was made with", path, expected, found);
    return CALM_OK;
}

static calm_status check_demanded(calm_ctx *ctx, const calm_demanded *demanded, const calm_recipe *recipe)
{
    char *path;
    for (size_t i = 0; i < demanded->n_files; i++) {
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, recipe->model.dir, demanded->files[i]));
        CALM_TRY(check_digest(ctx, path, demanded->sha256[i]));
    }
    CALM_TRY(check_digest(ctx, recipe->calib_path, demanded->calib_sha256));
    return recipe->eval_path ? check_digest(ctx, recipe->eval_path, demanded->eval_sha256) : CALM_OK;
}

calm_status calm_quantize_read_recipe(calm_ctx *ctx, calm_quantize_options *opts)
{
    char *path;
    calm_json *document;
    if (!opts->recipe_file)
        return CALM_OK;
    CALM_TRY(calm_recipe_file_find(ctx, opts->recipe_file, &path));
    CALM_TRY(calm_recipe_file_read(ctx, path, &document));
    calm_json *overrides = calm_json_new_object();
    calm_text text;
    char *copy;
    calm_text_init(&text);
    calm_status status = calm_recipe_file_apply(ctx, document, path, opts->common.given, opts, overrides);
    if (status == CALM_OK)
        status = calm_json_write(ctx, overrides, 0, &text);
    if (status == CALM_OK && calm_json_size(overrides)) {
        status = calm_strf(ctx, ctx->out, &copy, "%s", text.data);
        opts->overrides = copy;
    }
    calm_text_clear(&text);
    calm_json_free(overrides);
    calm_json_free(document);
    return status;
}

/* The recipe file that says what these options do, as text in ctx->out. */
static calm_status write_document(calm_ctx *ctx, const calm_quantize_options *o, const char **out)
{
    calm_json *json;
    calm_text text;
    char *copy = NULL;
    CALM_TRY(calm_recipe_file_json(ctx, o, &json));
    calm_text_init(&text);
    calm_status status = calm_json_write(ctx, json, 0, &text);
    if (status == CALM_OK)
        status = calm_strf(ctx, ctx->out, &copy, "%s", text.data);
    calm_text_clear(&text);
    calm_json_free(json);
    *out = copy;
    return status;
}

calm_status calm_quantize_resolve(calm_ctx *ctx, const calm_quantize_options *o, calm_recipe *recipe)
{
    const bool budget = o->budget != NULL;
    calm_gate *gates = NULL;
    size_t n_gates = 0;
    calm_formats formats;
    if (!o->recipe.model)
        return calm_fail(ctx, CALM_EARG, "calm quantize: --model is missing; try: calm quantize --model qwen --bits 4");
    if (o->gates)
        CALM_TRY(calm_gates_parse(ctx, o->gates, &gates, &n_gates));
    CALM_TRY(calm_gates_check(ctx, gates, n_gates, !o->no_eval, -1, o->budget && strchr(o->budget, ',')));
    CALM_TRY(calm_quantize_formats(ctx, o, &formats));
    CALM_TRY(calm_recipe_resolve(ctx, &o->recipe, budget && !o->recipe.scheme ? CALM_BUDGET_SCHEMES : NULL,
                                 budget && !o->recipe.algorithms ? CALM_BUDGET_POOL : NULL, o->common.quiet, recipe));
    recipe->keep_hybrid = o->keep_hybrid;
    recipe->force = o->force;
    recipe->light = o->effort == 1;
    recipe->gates = gates;
    recipe->n_gates = n_gates;
    recipe->kernels = o->kernels;
    recipe->formats = formats;
    recipe->overrides = o->overrides;
    CALM_TRY(calm_quantize_target(ctx, o, recipe));
    CALM_TRY(calm_quantize_budgets(ctx, o, recipe));
    CALM_TRY(calm_recipe_select(ctx, (calm_unit)o->unit, (calm_rule)o->rule, o->metric, recipe));
    CALM_TRY(calm_quantize_check_choice(ctx, o, recipe));
    if (o->forbid)
        CALM_TRY(calm_recipe_forbid(ctx, o->forbid, recipe));
    if (o->pins)
        CALM_TRY(calm_recipe_pins(ctx, o->pins, recipe));
    if (!o->no_eval)
        CALM_TRY(calm_recipe_evaluate(ctx, &o->recipe, recipe));
    CALM_TRY(check_demanded(ctx, &o->demanded, recipe));
    CALM_TRY(write_document(ctx, o, &recipe->document));
    return resolve_output(ctx, o, recipe);
}
