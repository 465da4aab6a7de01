/* calm ablate: every way of choosing, measured side by side. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ablation.h"
#include "cli/command.h"
#include "cli/recipe_options.h"
#include "ptq/base/threads.h"

#define SCHEMES "w4a16_g128,w3a16_g128,w2a16_g64,w4a4_g128"
#define MAX_SEEDS 64

typedef struct options {
    calm_common common;
    calm_recipe_options recipe;
    const char *schemes, *seeds, *output;
    int input_scales;
    bool no_probes, force, json;
} options;

static const calm_option table[] = {
    {.name = "schemes",
     .help = "number formats, an experiment each (default: those of --scheme or --bits, or " SCHEMES ")",
     .offset = offsetof(options, schemes),
     .type = CALM_OPTION_STRING,
     .metavar = "LIST",
     .list = true},
    CALM_RECIPE_OPTIONS_WITH(options, "200"),
    {.name = "text",
     .help = "the same as --eval-text",
     .offset = offsetof(options, recipe.eval_text),
     .type = CALM_OPTION_STRING,
     .metavar = "FILE"},
    {.name = "seeds",
     .help = "uniform runs and the default hybrid again, calibration windows drawn with each of these: 1,2,3",
     .offset = offsetof(options, seeds),
     .type = CALM_OPTION_STRING,
     .metavar = "LIST"},
    {.name = "input-scales",
     .help = "norms: also behind norms that a residual reads too (encoders); free: everywhere; no checkpoint holds those",
     .offset = offsetof(options, input_scales),
     .type = CALM_OPTION_ENUM,
     .values = CALM_INPUT_SCALES_NAMES,
     .fallback = "folded",
     .metavar = CALM_INPUT_SCALES_NAMES},
    {.name = "no-probes",
     .help = "leave out the probes of single units, which take longest: no oracle, no rank correlations",
     .offset = offsetof(options, no_probes),
     .type = CALM_OPTION_BOOL},
    {.name = "output",
     .help = "directory for ablation.md, ablation.csv and ablation.json",
     .offset = offsetof(options, output),
     .type = CALM_OPTION_STRING,
     .metavar = "DIR",
     .key = 'o'},
    {.name = "force",
     .help = "replace the output directory",
     .offset = offsetof(options, force),
     .type = CALM_OPTION_BOOL,
     .key = 'f'},
    {.name = "json", .help = "print the result as JSON", .offset = offsetof(options, json), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

/* "1,2,3": different whole numbers from 0. */
static calm_status parse_seeds(calm_ctx *ctx, const char *list, calm_ablation_plan *plan)
{
    long long *seeds;
    if (!list)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, seeds, MAX_SEEDS));
    plan->seeds = seeds;
    for (const char *at = list;; at++) {
        char *end;
        errno = 0;
        const long long seed = strtoll(at, &end, 10);
        bool known = false;
        for (size_t i = 0; i < plan->n_seeds; i++)
            known |= seeds[i] == seed;
        if (end == at || *at < '0' || *at > '9' || (*end && *end != ',') || errno || known || plan->n_seeds == MAX_SEEDS)
            return calm_fail(ctx, CALM_EARG, "--seeds %s: expected up to %d different whole numbers: 1,2,3", list, MAX_SEEDS);
        seeds[plan->n_seeds++] = seed;
        at = end;
        if (!*at)
            return CALM_OK;
    }
}

/* One recipe per scheme. */
static calm_status resolve_one(calm_ctx *ctx, const options *o, const char *scheme, calm_recipe *recipe)
{
    CALM_TRY(calm_recipe_resolve(ctx, &o->recipe, scheme, NULL, o->common.quiet, recipe));
    CALM_TRY(calm_recipe_select(ctx, CALM_UNIT_JOB, CALM_RULE_TOKEN, NULL, recipe));
    recipe->points = (1u << CALM_N_POINTS) - 1;
    recipe->linear = true;
    recipe->input_scales = (calm_input_scales)o->input_scales;
    return calm_recipe_evaluate(ctx, &o->recipe, recipe);
}

static calm_status resolve(calm_ctx *ctx, const options *o, calm_recipe **recipes, size_t *n)
{
    calm_recipe all;
    char name[CALM_SCHEME_NAME_MAX];
    const char *list = o->schemes ? o->schemes : o->recipe.scheme;
    *n = 0;
    if (!o->recipe.model)
        return calm_fail(ctx, CALM_EARG, "calm ablate: --model is missing; try: calm ablate --model qwen --schemes w4a4_g128");
    if (o->schemes && o->recipe.scheme)
        return calm_fail(ctx, CALM_EARG, "--schemes takes the place of --scheme");
    if (o->recipe.prefix == CALM_PREFIX_QUANTIZED)
        return calm_fail(ctx, CALM_EARG, "calm ablate chooses in many ways from the same candidates; it has no --prefix quantized");
    if (!list && o->recipe.bits == 4)
        list = SCHEMES;
    if (!list) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, *recipes, 1));
        *n = 1;
        return resolve_one(ctx, o, NULL, *recipes);
    }
    CALM_TRY(calm_recipe_schemes(ctx, list, &all));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *recipes, all.n_schemes));
    for (size_t i = 0; i < all.n_schemes; i++) {
        calm_scheme_name(&all.schemes[i], name);
        /* A range that the name says stays said: the encoder's default is for names that do not. */
        const bool symmetric = all.range_said[i] && !all.schemes[i].act_asymmetric;
        char *scheme;
        CALM_TRY(calm_strf(ctx, ctx->out, &scheme, "%s%s", name, symmetric ? "_symact" : ""));
        CALM_TRY(resolve_one(ctx, o, scheme, &(*recipes)[(*n)++]));
    }
    return CALM_OK;
}

/* What the name of the model has to say, once. */
static void say_note(calm_ctx *ctx, const options *o, const calm_recipe *recipe)
{
    calm_progress progress;
    if (!recipe->model.note)
        return;
    calm_progress_init(&progress, o->common.quiet);
    ctx->log = calm_progress_log;
    ctx->log_user = &progress;
    calm_log(ctx, CALM_LOG_INFO, "%s", recipe->model.note);
    ctx->log = NULL;
}

/* All experiments, one after the other; results in `keep`. */
static calm_status ablate(calm_ctx *ctx, const options *o, const calm_ablation_plan *plan, const calm_recipe *recipes,
                          size_t n, calm_arena *keep)
{
    const double begun = calm_seconds();
    calm_ablation *of;
    CALM_TRY(CALM_NEW(ctx, keep, of, n));
    say_note(ctx, o, recipes);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_ablation_check(ctx, &recipes[i], plan));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_ablate(ctx, &recipes[i], plan, keep, &of[i]));
    const calm_ablation_set set = {recipes, of, n, calm_seconds() - begun};
    if (o->output)
        CALM_TRY(calm_ablation_write(ctx, &set, o->output));
    return o->json ? calm_ablation_json(ctx, &set) : calm_ablation_print(ctx, &set);
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_ablation_plan plan = {.probes = !o->no_probes, .quiet = o->common.quiet};
    calm_recipe *recipes;
    calm_arena keep;
    size_t n;
    (void)args;
    (void)n_args;
    CALM_TRY(parse_seeds(ctx, o->seeds, &plan));
    if (o->output)
        CALM_TRY(calm_ablation_target(ctx, o->output, o->force));
    CALM_TRY(resolve(ctx, o, &recipes, &n));
    plan.command = o->common.command;
    calm_arena_init(&keep);
    const calm_status status = ablate(ctx, o, &plan, recipes, n, &keep);
    calm_arena_clear(&keep);
    return status;
}

const calm_command calm_cmd_ablate = {
    .name = "ablate",
    .summary = "compare every way of choosing: scores, units, rules, oracle, chance",
    .description =
        "Measures uniform runs, the hybrids of every score, unit and rule, the oracle of single-unit probes and random "
        "choices on the same windows, and says which score predicts what a unit costs.  Everything is kept in the store, "
        "so the same command again computes nothing twice.",
    .examples = "  calm ablate --model qwen --schemes w4a4_g128\n"
                "  calm ablate --model qwen --output evidence --seeds 1,2,3\n"
                "  calm ablate --model qwen --schemes w3a16_g128 --no-probes --eval-samples 24\n",
    .options = table,
    .opts_size = sizeof(options),
    .run = run,
};
