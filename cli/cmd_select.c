/* calm select: chooses again from stored scores. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/progress.h"
#include "ptq/stored/stored.h"
#include "cli/print.h"

typedef struct options {
    calm_common common;
    const char *store, *metric, *target;
    calm_words forbid;
    calm_pairs pins;
    double budget, act_budget, shortlist, file_bits;
    const char *size;
    int unit, rule;
    bool dry_run, json, csv;
} options;

static const calm_option table[] = {
    CALM_OPT_STORE,
    CALM_OPT("budget", budget, DOUBLE, "mean bits per weight, for which the schemes of the run compete (default: "
             "the run's)",
             .min = 0.1, .max = 32, .metavar = "BITS", .basic = true),
    CALM_OPT("size", size, STRING, "largest size of the file in the run's format (default: the run's)",
             .metavar = "SIZE", .basic = true),
    CALM_OPT("bits-per-weight", file_bits, DOUBLE, "as --size, in bits per weight over all tensors of the file",
             .min = 0.1, .max = 32, .metavar = "BITS"),
    CALM_OPT("act-budget", act_budget, DOUBLE, "mean bits of activations, for which the schemes of the run compete "
             "(default: the run's)", .min = 1, .max = 16, .metavar = "BITS"),
    CALM_OPT("metric", metric, STRING, "score that the rule reads (default: as in the run)", .metavar = "NAME",
             .basic = true),
    CALM_OPT("rule", rule, ENUM, "argmax: the candidate with the least score; token: among candidates within "
             "--shortlist of the least score, the one with the least log_rel_mse",
             .values = "run|" CALM_CHOICE_RULE_NAMES, .fallback = "run",
             .metavar = CALM_CHOICE_RULE_NAMES, .basic = true),
    CALM_OPT("shortlist", shortlist, DOUBLE, "--rule token: candidates up to this factor of the least score compete "
             "(default: the run's)", .min = 1, .max = CALM_SHORTLIST_MAX, .metavar = "FACTOR"),
    CALM_OPT("unit", unit, ENUM, "what gets one algorithm: a job, a sublayer or a block",
             .values = "run|" CALM_UNIT_NAMES, .fallback = "run",
             .metavar = CALM_UNIT_NAMES, .basic = true),
    CALM_OPT("forbid", forbid, WORDS, "never choose an algorithm (gptq, mkq*), an algorithm at a scheme (\"gptq "
             "w3a16_g128\") or a candidate (#123)", .metavar = "CAND", .basic = true),
    CALM_OPT("pin", pins, PAIRS, "give a unit, by name or pattern, this candidate (model.layers.0.*=gptq); a name "
             "has priority over a pattern", .metavar = "UNIT=CAND", .basic = true),
    CALM_OPT("target", target, STRING, "engine whose kernels must run the plan (default: as in the run; any: no "
             "engine)",
             .metavar = CALM_ENGINE_NAMES, .basic = true),
    CALM_OPT("dry-run", dry_run, BOOL, "print the plan and write nothing", .basic = true),
    CALM_OPT("json", json, BOOL, "print the plan as JSON", .basic = true),
    CALM_OPT("csv", csv, BOOL, "print the units as CSV"),
    CALM_OPT_COMMON,
    {0},
};

/* ---- the plan as a table ---- */

/* Returns the parent run's choice for a unit: an entry, "mixed" if its jobs differ, "" if there is none. */
static const char *name_before(const calm_reselected *s, size_t unit)
{
    const size_t begin = s->stored.pool.unit_begin[unit], first = s->before[begin];
    for (size_t job = begin; job < s->stored.pool.unit_begin[unit + 1]; job++)
        if (s->before[job] != first)
            return "mixed";
    return first == SIZE_MAX ? NULL : s->stored.pool.entries[first].name;
}

/* `all`: every column in every row, for programs. */
static void fill_table(const calm_reselected *s, bool all, calm_table *out)
{
    char headings[256];
    snprintf(headings, sizeof headings, "unit|candidate|#%s|#bits|instead of", s->stored.pool.metric);
    calm_table_columns(out, all ? "unit|candidate|#score|#bits|parent_candidate|changed|reason" : headings);
    for (size_t u = 0; u < s->stored.pool.n_units; u++) {
        const size_t begin = s->stored.pool.unit_begin[u], entry = s->solution.choice[u];
        const calm_pool_job *job = &s->stored.pool.jobs[begin];
        const bool differs = calm_reselected_differs(s, u);
        const calm_scheme *scheme = calm_pool_scheme(job, &s->stored.pool.entries[entry].scheme);
        const double bits = calm_scheme_bits_per_weight(scheme, job->out, job->in);
        CALM_CELLS(out, CALM_TEXT(job->unit), CALM_TEXT(s->stored.pool.entries[entry].name),
                   CALM_SCIENTIFIC(calm_pool_cell_at(&s->stored.pool, begin, entry)->metric, 2), CALM_FIXED(bits, 3),
                   CALM_TEXT(all || differs ? name_before(s, u) : NULL));
        if (all)
            CALM_CELLS(out, CALM_BOOL(differs), CALM_TEXT(s->solution.reasons[u]));
    }
}

static void print_summary(const options *o, const calm_reselected *s)
{
    const long long parent = (long long)s->parent.id, run = (long long)s->run;
    printf("\n  changed      %zu of %zu units against run %lld\n", s->n_changed, s->stored.pool.n_units, parent);
    printf("  bits         %.4f per weight", s->solution.bits_per_weight);
    if (isfinite(s->budget))
        printf(" within %g", s->budget);
    if (s->size)    /* "`choice.size` 3000000B" */
        printf(" in a file of at most%s%s", strrchr(s->size, '`') + 1, strchr(s->size, '_') ? " bits per weight" : "");
    if (!isnan(s->bits_before))
        printf("; run %lld chose %.4f", parent, s->bits_before);
    printf("\n");
    if (s->act_budget > 0)
        printf("  activations  %.4f bits within %g\n", s->solution.mean_act_bits, s->act_budget);
    if (s->solution.cost)
        printf("  %s\n", s->solution.cost);
    if (!run) {
        printf("  run          none: --dry-run\n");
        return;
    }
    CALM_SCOPED_TEXT(store);
    calm_print_word(&store, o->store);
    printf("  run          %lld%s\n\n  next: %s assemble %lld --output DIR --store %s\n", run,
           s->found ? ", where this selection was kept before" : "", calm_program(), run, store.data ? store.data : "");
}

static calm_status print_json(calm_ctx *ctx, const calm_reselected *s, calm_table *units)
{
    const calm_pool *pool = &s->stored.pool;
    calm_json *target = NULL;
    if (s->solution.cost)
        target = CALM_OBJECT(CALM_KV("name", calm_engine_name(s->engine)),
                             CALM_KV("constrained_units", s->solution.total.held),
                             CALM_KV("loss", s->solution.total.loss),
                             CALM_KV("loss_unconstrained", s->solution.total.unconstrained));
    return calm_print_json(
        ctx, CALM_OBJECT(CALM_KV("run", s->run ? calm_json_of_int(s->run) : calm_json_new_null()),
                         CALM_KV("already_stored", s->found), CALM_KV("parent", s->parent.id),
                         CALM_KV("unit", calm_unit_name(pool->unit)),
                         CALM_KV("rule", calm_choice_rule_name(pool->rule)),
                         CALM_KV("shortlist", pool->rule == CALM_CHOICE_RULE_TOKEN ? pool->shortlist : NAN),
                         CALM_KV("metric", pool->metric),
                         CALM_KV("budget", isfinite(s->budget) ? s->budget : NAN),
                         CALM_KV("act_budget", s->act_budget > 0 ? s->act_budget : NAN),
                         CALM_KV("act_bits", s->solution.mean_act_bits),
                         CALM_KV("bits_per_weight", s->solution.bits_per_weight),
                         CALM_KV("parent_bits_per_weight", s->bits_before), CALM_KV("changed_units", s->n_changed),
                         CALM_KV("target", target), CALM_KV("units", calm_rows_json(ctx, units))));
}

static calm_status print(calm_ctx *ctx, const options *o, const calm_reselected *s)
{
    CALM_SCOPED_TABLE(units);
    fill_table(s, o->json || o->csv, &units);
    if (o->json)
        return print_json(ctx, s, &units);
    if (o->csv)
        return calm_print_csv(ctx, &units, stdout);
    calm_table_drop_empty(&units);
    CALM_TRY(calm_print_table(ctx, &units, stdout));
    print_summary(o, s);
    return CALM_OK;
}

/* ---- the command ---- */

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_reselect_options how = {.store = o->store, .unit = o->unit - 1, .rule = o->rule - 1, .metric = o->metric,
                               .budget = o->budget > 0 ? o->budget : NAN, .act_budget = o->act_budget,
                               .file_bits = o->file_bits, .shortlist = o->shortlist, .forbid = o->forbid,
                               .pins = o->pins, .engine = o->target, .dry_run = o->dry_run,
                               .command = o->common.command};
    CALM_SCOPED(calm_reselected, calm_reselected_clear) selected = {0};
    calm_progress progress;
    if (o->json && o->csv)
        return calm_fail(ctx, CALM_EARG, "calm select: --json and --csv exclude each other; give one");
    if ((o->size != NULL) + (o->file_bits > 0) + (o->budget > 0) > 1)
        return calm_fail(ctx, CALM_EARG, "calm select: --size, --bits-per-weight and --budget exclude each other; "
                         "give one");
    if (o->size)
        CALM_TRY(calm_size_parse_file(ctx, "choice.size", o->size, &how.file_bytes));
    CALM_TRY(calm_stored_run_number(ctx, "select", o->common.args.of[0], &how.run));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_reselect(ctx, &how, &selected);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return print(ctx, o, &selected);
}

const calm_command calm_cmd_select = {
    .name = "select",
    .summary = "choose again from the scores of a run, without the model",
    .arguments = "RUN",
    .description =
        "Chooses again among the candidates of RUN - by another rule, metric, unit or budget, without some "
        "candidates, with pinned units - and stores the plan as a new run.  It reads only stored scores; --size "
        "also reads the headers of the model.  Without options the plan is that of RUN.",
    .examples = "  calm select 3 --metric rel_mse\n"
                "  calm select 3 --rule token --shortlist 4\n"
                "  calm select 3 --forbid smoothquant --forbid mkq\n"
                "  calm select 3 --pin model.layers.0.qkv=gptq --pin '*.down=#123'\n"
                "  calm select 3 --budget 3.5 --dry-run\n"
                "  calm select 3 --target vllm\n"
                "  calm assemble 4 --output out       the checkpoint of the new plan\n",
    .min_args = 1,
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
