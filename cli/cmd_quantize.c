/* calm quantize: a float checkpoint in, a smaller one out, with the evidence. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/pipeline.h"
#include "cli/recipe_options.h"
#include "cli/report.h"

/* Widths that share a budget by default. */
#define BUDGET_SCHEMES "w2a16_g64,w3a16_g128,w4a16_g128,w8a16"
#define BUDGET_POOL "gptq,gptq-hls,mkq-full"
#define MAX_BUDGETS 64

typedef struct options {
    calm_common common;
    calm_recipe_options recipe;
    const char *metric, *budget, *output;
    int unit, rule, effort;
    bool keep_hybrid, no_eval, force, json, dry_run;
} options;

static const calm_option table[] = {
    CALM_RECIPE_OPTIONS(options),
    {.name = "budget",
     .help = "bits per weight that the widths of --scheme share; several, as 2.5,3,3.5, give a table",
     .offset = offsetof(options, budget),
     .type = CALM_OPTION_STRING,
     .metavar = "BITS"},
    {.name = "unit",
     .help = "what gets one choice",
     .offset = offsetof(options, unit),
     .type = CALM_OPTION_ENUM,
     .values = CALM_UNIT_NAMES,
     .fallback = "job",
     .metavar = CALM_UNIT_NAMES},
    {.name = "effort",
     .help = "light: do not try to smooth inputs without outliers",
     .offset = offsetof(options, effort),
     .type = CALM_OPTION_ENUM,
     .values = "full|light",
     .fallback = "full",
     .metavar = "full|light"},
    {.name = "rule",
     .help = "token: near ties by relative error; argmax: CALM as published",
     .offset = offsetof(options, rule),
     .type = CALM_OPTION_ENUM,
     .values = CALM_RULE_NAMES,
     .fallback = "token",
     .metavar = "token|argmax"},
    {.name = "metric",
     .help = "score that the rule reads (default cka_token; cka with --rule argmax)",
     .offset = offsetof(options, metric),
     .type = CALM_OPTION_STRING,
     .metavar = "NAME"},
    {.name = "keep-hybrid",
     .help = "the hybrid is the result even when a uniform run is better",
     .offset = offsetof(options, keep_hybrid),
     .type = CALM_OPTION_BOOL},
    {.name = "no-eval", .help = "skip the evaluation", .offset = offsetof(options, no_eval), .type = CALM_OPTION_BOOL},
    {.name = "output",
     .help = "checkpoint to write (default calm-out/MODEL-SCHEME)",
     .offset = offsetof(options, output),
     .type = CALM_OPTION_STRING,
     .metavar = "DIR",
     .key = 'o'},
    {.name = "dry-run",
     .help = "say what the run would need - memory, disk, time, size - and do nothing else",
     .offset = offsetof(options, dry_run),
     .type = CALM_OPTION_BOOL},
    {.name = "force",
     .help = "replace the output directory",
     .offset = offsetof(options, force),
     .type = CALM_OPTION_BOOL,
     .key = 'f'},
    {.name = "json", .help = "print the report as JSON", .offset = offsetof(options, json), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
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

/* "3.5" or "2.5,3.0,3.5", rising. */
static calm_status resolve_budgets(calm_ctx *ctx, const options *o, calm_recipe *recipe)
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

/* What does not go together. */
static calm_status check_choice(calm_ctx *ctx, const options *o, const calm_recipe *recipe)
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
        return calm_fail(ctx, CALM_EARG, "--budget needs several widths to choose from: --scheme " BUDGET_SCHEMES);
    return CALM_OK;
}

static calm_status resolve_output(calm_ctx *ctx, const options *o, calm_recipe *recipe)
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

static calm_status resolve(calm_ctx *ctx, const options *o, calm_recipe *recipe)
{
    const bool budget = o->budget != NULL;
    if (!o->recipe.model)
        return calm_fail(ctx, CALM_EARG, "calm quantize: --model is missing; try: calm quantize --model qwen --bits 4");
    CALM_TRY(calm_recipe_resolve(ctx, &o->recipe, budget && !o->recipe.scheme ? BUDGET_SCHEMES : NULL,
                                 budget && !o->recipe.algorithms ? BUDGET_POOL : NULL, o->common.quiet, recipe));
    recipe->keep_hybrid = o->keep_hybrid;
    recipe->force = o->force;
    recipe->light = o->effort == 1;
    CALM_TRY(resolve_budgets(ctx, o, recipe));
    CALM_TRY(calm_recipe_select(ctx, (calm_unit)o->unit, (calm_rule)o->rule, o->metric, recipe));
    CALM_TRY(check_choice(ctx, o, recipe));
    if (!o->no_eval)
        CALM_TRY(calm_recipe_evaluate(ctx, &o->recipe, recipe));
    return resolve_output(ctx, o, recipe);
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_recipe recipe;
    calm_pipeline pipeline;
    calm_progress progress;
    char *command;
    (void)args;
    (void)n_args;
    CALM_TRY(resolve(ctx, o, &recipe));
    if (o->dry_run)
        return calm_dry_run(ctx, &recipe, o->json);
    CALM_TRY(calm_strf(ctx, ctx->out, &command, "calm quantize --model %s --output %s", o->recipe.model, recipe.output));
    calm_progress_init(&progress, o->common.quiet);
    ctx->log = calm_progress_log;
    ctx->log_user = &progress;
    if (recipe.model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe.model.note);
    if (recipe.scheme_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe.scheme_note);
    calm_status status = calm_pipeline_run(ctx, &recipe, command, &progress, &pipeline);
    if (status == CALM_OK)
        status = o->json ? calm_report_json(ctx, &pipeline) : calm_report_print(ctx, &pipeline);
    calm_pipeline_close(&pipeline);
    ctx->log = NULL;
    return status;
}

const calm_command calm_cmd_quantize = {
    .name = "quantize",
    .summary = "quantize a checkpoint, choosing the best algorithm per layer",
    .description =
        "Runs several algorithms on every job of every block, scores each by CKA and error against the float output, "
        "chooses per job, and writes a compressed-tensors checkpoint.  Everything it computed is kept in the "
        "store, so the next run goes on from there: interrupted, killed or out of disk, start the same command again.  "
        "The output's name never stands for half a checkpoint.",
    .examples = "  calm quantize --model qwen --bits 4\n"
                "  calm quantize --model /models/Qwen3-0.6B --scheme w4a16_g64 --output out --store out.db\n"
                "  calm quantize --model qwen --bits 4 --algorithms gptq          (a uniform run)\n"
                "  calm quantize --model qwen --scheme w4a4_g128 --algorithms rtn,gptq,smoothquant,mkq\n",
    .options = table,
    .opts_size = sizeof(options),
    .run = run,
};
