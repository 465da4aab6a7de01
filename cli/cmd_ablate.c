/* calm ablate: measures every way of choosing on the same windows. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ablation_report.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/kernels.h"
#include "cli/progress.h"
#include "cli/report_page/report_page.h"
#include "ptq/base/output.h"
#include "ptq/base/threads.h"
#include "ptq/recipe/resolve.h"

#define SCHEMES "w4a16_g128,w3a16_g128,w2a16_g64,w4a4_g128"
#define MAX_SEEDS 64

typedef struct options {
    calm_common common;
    calm_recipe_spec spec;
    calm_words schemes, metrics;
    const char *seeds, *output, *report;
    calm_numbers shortlists;
    int input_scales;
    bool brief, no_probes, force, json;
} options;

static const calm_option table[] = {
    CALM_OPT("schemes", schemes, WORDS,
             "number formats, an experiment each (default: those of --scheme or --bits, or " SCHEMES ")",
             .metavar = "LIST", .basic = true),
    CALM_OPT("eval-samples", spec.eval_samples, INT, "windows of the text to evaluate on; 0 = all", .fallback = "200",
             .min = 0, .max = 1 << 24, .metavar = "N"),
    CALM_OPT("text", spec.eval_text, STRING, "the same as --eval-text", .metavar = "FILE"),
    CALM_OPT("shortlists", shortlists, NUMBERS, "also hybrids by the rule token with each of these factors as the "
             "shortlist: 1.05,2,4", .min = 1, .max = CALM_SHORTLIST_MAX, .metavar = "LIST"),
    CALM_OPT("brief", brief, BOOL, "only uniform runs, the recipe's hybrid and --shortlists"),
    CALM_OPT("metrics", metrics, WORDS, "only hybrids of jobs by these scores, under every rule, and no random "
             "plans",
             .metavar = "LIST"),
    CALM_OPT("seeds", seeds, STRING, "also uniform runs, the recipe's hybrid and --shortlists on calibration "
             "windows drawn with each of these seeds: 1,2,3", .metavar = "LIST", .basic = true),
    CALM_OPT("input-scales", input_scales, ENUM, "smoothing scales. folded: only those that fold into a layer; "
             "norms: also after norms that a residual reads too (encoders); free: everywhere; no checkpoint can "
             "hold the last two", .values = CALM_INPUT_SCALES_NAMES, .fallback = "folded",
             .metavar = CALM_INPUT_SCALES_NAMES),
    CALM_OPT("no-probes", no_probes, BOOL, "leave out the probes of single units, which take most of the time: no "
             "oracle, no rank correlations", .basic = true),
    CALM_OPT("output", output, STRING, "directory for ablation.md, ablation.csv and ablation.json", .metavar = "DIR",
             .key = 'o', .basic = true),
    CALM_OPT("report", report, STRING, "write the page of calm report, with all schemes, to this file",
             .metavar = "FILE"),
    CALM_OPT_FORCE,
    CALM_OPT("json", json, BOOL, "print the result as JSON", .basic = true),
    CALM_OPT_COMMON,
    {0},
};

/* Parses "1,2,3": different integers from 0. */
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
        if (end == at || *at < '0' || *at > '9' || (*end && *end != ',') || errno || known
            || plan->n_seeds == MAX_SEEDS)
            return calm_fail(ctx, CALM_EARG, "--seeds %s: expected up to %d different whole numbers: 1,2,3", list,
                             MAX_SEEDS);
        seeds[plan->n_seeds++] = seed;
        at = end;
        if (!*at)
            return CALM_OK;
    }
}

/* Checks that metrics are different scores of a job's output. */
static calm_status check_metrics(calm_ctx *ctx, const calm_words *metrics)
{
    calm_point point;
    int score;
    for (size_t i = 0; i < metrics->n; i++) {
        CALM_TRY(calm_score_need(ctx, CALM_UNIT_JOB, metrics->of[i], &point, &score));
        if (score >= CALM_N_METRICS)
            return calm_fail(ctx, CALM_EARG, "--metrics %s: expected scores of outputs, as cka_token or rel_mae",
                             metrics->of[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(metrics->of[k], metrics->of[i]) == 0)
                return calm_fail(ctx, CALM_EARG, "--metrics: %s is there twice; expected different scores",
                                 metrics->of[i]);
    }
    return CALM_OK;
}

/* Checks that factors differ, because each has its rows. */
static calm_status check_shortlists(calm_ctx *ctx, const calm_numbers *factors)
{
    for (size_t i = 0; i < factors->n; i++)
        for (size_t k = 0; k < i; k++)
            if (factors->of[k] == factors->of[i])
                return calm_fail(ctx, CALM_EARG, "--shortlists: %g is there twice; expected different factors, as "
                                 "1.05,2,4", factors->of[i]);
    return CALM_OK;
}

/* Resolves the recipe of one scheme; NULL: the spec's scheme.  An ablation writes no checkpoint, so the recipe has no
 * output and no document. */
static calm_status resolve_one(calm_ctx *ctx, const options *o, const char *scheme, const calm_events *events,
                               calm_recipe *recipe)
{
    calm_recipe_spec *spec;
    CALM_TRY(CALM_NEW(ctx, ctx->out, spec, 1));    /* it outlives the recipe */
    *spec = o->spec;
    if (scheme) {
        spec->schemes = (calm_words){0};
        CALM_TRY(calm_words_add(ctx, &spec->schemes, scheme));
    }
    CALM_TRY(calm_recipe_resolve(ctx, spec, events, recipe));
    recipe->output = NULL;
    recipe->document = NULL;
    if (!o->brief && recipe->score_windows) {
        recipe->unscored = false;    /* the table shows scores of a single candidate too */
        recipe->score_points = o->metrics.n ? 1u << CALM_POINT_JOB : (1u << CALM_N_POINTS) - 1;
        recipe->want_cka_linear = !o->metrics.n;
    }
    recipe->input_scales = (calm_input_scales)o->input_scales;
    return CALM_OK;
}

/* Keeps an explicit symmetric range, which calm_scheme_name drops, so that an encoder does not get its asymmetric
 * default. */
static calm_status name_scheme(calm_ctx *ctx, const calm_recipe *all, size_t i, char **out)
{
    const bool symmetric = all->act_range_explicit[i] && !all->schemes[i].act_asymmetric;
    return calm_strf(ctx, ctx->out, out, "%s%s", CALM_SCHEME_NAME(&all->schemes[i]), symmetric ? "_symact" : "");
}

static calm_status resolve_each(calm_ctx *ctx, const options *o, const calm_words *schemes, const calm_events *events,
                                calm_recipe **recipes, size_t *n)
{
    calm_recipe all;
    char *scheme;
    CALM_TRY(calm_recipe_schemes(ctx, schemes, &all));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *recipes, all.n_schemes));
    for (*n = 0; *n < all.n_schemes; ++*n) {
        CALM_TRY(name_scheme(ctx, &all, *n, &scheme));
        CALM_TRY(resolve_one(ctx, o, scheme, events, &(*recipes)[*n]));
    }
    return CALM_OK;
}

static calm_status resolve(calm_ctx *ctx, const options *o, const calm_events *events, calm_recipe **recipes, size_t *n)
{
    calm_words schemes = o->schemes.n ? o->schemes : o->spec.schemes;
    if (!o->spec.model)
        return calm_fail(ctx, CALM_EARG,
                         "calm ablate: --model is missing; try: calm ablate --model qwen --schemes w4a4_g128");
    if (o->schemes.n && o->spec.schemes.n)
        return calm_fail(ctx, CALM_EARG, "--schemes replaces --scheme; give one");
    if (o->spec.prefix != CALM_PREFIX_FLOAT)
        return calm_fail(ctx, CALM_EARG, "calm ablate chooses in many ways from the same candidates; it has no "
                         "--prefix quantized or asymmetric");
    if (!schemes.n && o->spec.bits == 4)
        CALM_TRY(calm_words_split(ctx, SCHEMES, &schemes));
    if (schemes.n)
        return resolve_each(ctx, o, &schemes, events, recipes, n);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *recipes, 1));
    *n = 1;
    return resolve_one(ctx, o, NULL, events, *recipes);
}

/* Writes one page for the runs of all schemes. */
static calm_status write_page(calm_ctx *ctx, const calm_ablation_set *set, const char *path)
{
    int64_t *runs;
    CALM_TRY(CALM_NEW(ctx, ctx->out, runs, set->n));
    for (size_t i = 0; i < set->n; i++)
        runs[i] = set->of[i].run_id;
    return calm_report_page_save(ctx, set->recipe->store, runs, set->n, path);
}

/* Checks that no output replaces an input; all experiments have the same inputs. */
static calm_status check_outputs(calm_ctx *ctx, const options *o, const calm_recipe *recipe)
{
    calm_words inputs;
    CALM_TRY(calm_recipe_inputs(ctx, recipe, &inputs));
    if (o->output)
        CALM_TRY(calm_output_apart(ctx, o->output, &inputs));
    return o->report ? calm_output_apart(ctx, o->report, &inputs) : CALM_OK;
}

/* Runs all experiments in order; results are in `keep`. */
static calm_status ablate(calm_ctx *ctx, const options *o, calm_ablation_plan *plan, calm_arena *keep,
                          calm_progress *progress)
{
    const double begun = calm_seconds();
    calm_ablation_set set = {0};
    calm_recipe *recipes;
    calm_ablation *of;
    plan->options.events = calm_progress_events(progress);
    CALM_TRY(resolve(ctx, o, &plan->options.events, &recipes, &set.n));
    CALM_TRY(check_outputs(ctx, o, recipes));
    CALM_TRY(CALM_NEW(ctx, keep, of, set.n));
    if (recipes->model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipes->model.note);
    for (size_t i = 0; i < set.n; i++)
        CALM_TRY(calm_ablation_check(ctx, &recipes[i]));
    calm_progress_add_run(progress);
    calm_interrupt_resumes(recipes->store);
    for (size_t i = 0; i < set.n; i++)
        CALM_TRY(calm_ablate(ctx, &recipes[i], plan, keep, &of[i]));
    calm_progress_end(ctx, progress);
    set.recipe = recipes;
    set.of = of;
    set.seconds = calm_seconds() - begun;
    if (o->output)
        CALM_TRY(calm_ablation_report_write(ctx, &set, o->output));
    if (o->report)
        CALM_TRY(write_page(ctx, &set, o->report));
    return o->json ? calm_ablation_report_json(ctx, &set) : calm_ablation_report_print(ctx, &set);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_ablation_plan plan = {.probes = !o->no_probes && !o->brief, .brief = o->brief, .metrics = o->metrics,
                               .shortlists = o->shortlists.of, .n_shortlists = o->shortlists.n,
                               .options = {.command = o->common.command}};
    calm_progress progress;
    CALM_SCOPED_ARENA(keep);
    CALM_TRY(parse_seeds(ctx, o->seeds, &plan));
    CALM_TRY(calm_kernels_pin(ctx, NULL));
    CALM_TRY(check_shortlists(ctx, &o->shortlists));
    CALM_TRY(check_metrics(ctx, &o->metrics));
    if (o->output)
        CALM_TRY(calm_output_folder(ctx, o->output, o->force, NULL));
    if (o->report)
        CALM_TRY(calm_report_page_target(ctx, o->report, o->force, true, NULL));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    ablate(ctx, o, &plan, &keep, &progress);
    return calm_progress_end(ctx, &progress);
}

const calm_command calm_cmd_ablate = {
    .name = "ablate",
    .summary = "compare all ways of choosing: scores, units, rules, oracle, chance",
    .description =
        "Measures uniform runs, the hybrids of every score, unit and rule, the oracle of single-unit probes and "
        "random choices on the same windows, and says which score predicts a unit's loss best.  The store keeps all "
        "results, so the same command computes nothing twice.",
    .examples = "  calm ablate --model qwen --schemes w4a4_g128\n"
                "  calm ablate --model qwen --output evidence --seeds 1,2,3\n"
                "  calm ablate --model qwen --schemes w3a16_g128 --no-probes --eval-samples 24\n"
                "  calm ablate --model qwen --schemes w4a4_g128 --brief --shortlists 1.05,2,4\n",
    .spec = CALM_SPEC_SHARED,
    .spec_at = offsetof(options, spec),
    CALM_COMMAND_PARTS,
};
