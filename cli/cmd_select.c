/* calm select: choose anew from stored scores. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/progress.h"
#include "ptq/recipe/model_names.h"
#include "ptq/run/reselect.h"
#include "cli/print.h"

typedef struct options {
    calm_common common;
    const char *store, *metric, *target;
    calm_words forbid;
    calm_pairs pins;
    double budget;
    int unit, rule;
    bool dry_run, json, csv;
} options;

static const calm_option table[] = {
    {.name = "store", .help = "SQLite file of candidates, scores and choices", .offset = offsetof(options, store),
     .type = CALM_OPTION_STRING, .fallback = "calm-out/calm.db", .metavar = "FILE", .key = 's'},
    {.name = "budget", .help = "bits per weight that the widths of the run share (default: as in the run)",
     .offset = offsetof(options, budget), .type = CALM_OPTION_DOUBLE, .min = 0.1, .max = 32, .metavar = "BITS"},
    {.name = "metric", .help = "score that the rule reads (default: as in the run)",
     .offset = offsetof(options, metric), .type = CALM_OPTION_STRING, .metavar = "NAME"},
    {.name = "rule", .help = "token: near ties by relative error; argmax: CALM as published",
     .offset = offsetof(options, rule), .type = CALM_OPTION_ENUM, .values = "run|" CALM_CHOICE_RULE_NAMES,
     .fallback = "run", .metavar = CALM_CHOICE_RULE_NAMES},
    {.name = "unit", .help = "what gets one choice", .offset = offsetof(options, unit), .type = CALM_OPTION_ENUM,
     .values = "run|" CALM_UNIT_NAMES, .fallback = "run", .metavar = CALM_UNIT_NAMES},
    {.name = "forbid",
     .help = "leave out an algorithm (gptq, mkq*), one at a scheme (\"gptq w3a16_g128\") or a candidate (#123)",
     .offset = offsetof(options, forbid), .type = CALM_OPTION_WORDS, .metavar = "CAND"},
    {.name = "pin", .help = "decide a unit, by name or pattern (model.layers.0.*=gptq); a name counts more than a "
                            "pattern",
     .offset = offsetof(options, pins), .type = CALM_OPTION_PAIRS, .metavar = "UNIT=CAND"},
    {.name = "target", .help = "engine whose kernels must take the plan (default: as in the run; any lifts it)",
     .offset = offsetof(options, target), .type = CALM_OPTION_STRING, .metavar = CALM_ENGINE_NAMES},
    {.name = "dry-run", .help = "print the plan and write nothing", .offset = offsetof(options, dry_run),
     .type = CALM_OPTION_BOOL},
    {.name = "json", .help = "print the plan as JSON", .offset = offsetof(options, json), .type = CALM_OPTION_BOOL},
    {.name = "csv", .help = "print the units as CSV", .offset = offsetof(options, csv), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

/* ---- the plan as a table ---- */

/* What the parent chose for a unit: one entry, "mixed" where its jobs differ, nothing where it chose nothing. */
static const char *name_before(const calm_reselected *s, size_t unit)
{
    const size_t begin = s->stored.pool.unit_begin[unit], first = s->before[begin];
    for (size_t job = begin; job < s->stored.pool.unit_begin[unit + 1]; job++)
        if (s->before[job] != first)
            return "mixed";
    return first == SIZE_MAX ? NULL : s->stored.pool.entries[first].name;
}

/* `all`: for programs, with every column in every row. */
static void fill_table(const calm_reselected *s, bool all, calm_table *out)
{
    calm_table_column(out, "unit", CALM_ALIGN_LEFT);
    calm_table_column(out, "candidate", CALM_ALIGN_LEFT);
    calm_table_column(out, s->stored.pool.metric, CALM_ALIGN_RIGHT);
    calm_table_column(out, "bits", CALM_ALIGN_RIGHT);
    calm_table_column(out, all ? "before" : "instead of", CALM_ALIGN_LEFT);
    if (all) {
        calm_table_column(out, "changed", CALM_ALIGN_LEFT);
        calm_table_column(out, "reason", CALM_ALIGN_LEFT);
    }
    for (size_t u = 0; u < s->stored.pool.n_units; u++) {
        const size_t begin = s->stored.pool.unit_begin[u], entry = s->solution.choice[u];
        const calm_pool_job *job = &s->stored.pool.jobs[begin];
        const bool differs = calm_reselected_differs(s, u);
        calm_table_text(out, job->unit);
        calm_table_text(out, s->stored.pool.entries[entry].name);
        calm_table_scientific(out, calm_pool_at(&s->stored.pool, begin, entry)->metric, 2);
        calm_table_fixed(out, calm_scheme_bits_per_weight(&s->stored.pool.entries[entry].scheme, job->out, job->in), 3);
        calm_table_text(out, all || differs ? name_before(s, u) : NULL);
        if (all) {
            calm_table_bool(out, differs);
            calm_table_text(out, s->solution.reasons[u]);
        }
    }
}

static void print_summary(const options *o, const calm_reselected *s)
{
    const long long parent = (long long)s->parent.id, run = (long long)s->run;
    printf("\n  changed      %zu of %zu units against run %lld\n", s->n_changed, s->stored.pool.n_units, parent);
    printf("  bits         %.4f per weight", s->solution.bits_per_weight);
    if (!isnan(s->budget))
        printf(" within %g", s->budget);
    if (!isnan(s->bits_before))
        printf("; run %lld chose %.4f", parent, s->bits_before);
    printf("\n");
    if (s->solution.cost)
        printf("  %s\n", s->solution.cost);
    if (!run) {
        printf("  run          none: --dry-run\n");
        return;
    }
    printf("  run          %lld%s\n\n  next: %s assemble %lld --output DIR --store %s\n", run,
           s->found ? ", where this selection was kept before" : "", calm_program(), run, o->store);
}

static calm_status print_json(calm_ctx *ctx, const calm_reselected *s, const calm_table *units)
{
    calm_json *root = calm_json_new_object(), *rows;
    calm_status status = calm_rows_json(ctx, units, &rows);
    if (s->run)
        calm_json_set_int(root, "run", s->run);
    else
        calm_json_set(root, "run", calm_json_new_null());
    calm_json_set_bool(root, "found", s->found);
    calm_json_set_int(root, "parent", s->parent.id);
    calm_json_set_string(root, "unit", calm_unit_name(s->stored.pool.unit));
    calm_json_set_string(root, "rule", calm_choice_rule_name(s->stored.pool.rule));
    calm_json_set_string(root, "metric", s->stored.pool.metric);
    calm_json_set_number(root, "budget", s->budget);
    calm_json_set_number(root, "bits_per_weight", s->solution.bits_per_weight);
    calm_json_set_number(root, "bits_per_weight_before", s->bits_before);
    calm_json_set_int(root, "changed", (int64_t)s->n_changed);
    if (s->solution.cost) {
        calm_json *target = calm_json_new_object();
        calm_json_set_string(target, "name", calm_engine_name(s->target));
        calm_json_set_int(target, "held_back", (int64_t)s->solution.total.held);
        calm_json_set_number(target, "loss", s->solution.total.loss);
        calm_json_set_number(target, "loss_unconstrained", s->solution.total.unconstrained);
        calm_json_set(root, "target", target);
    }
    if (status == CALM_OK) {
        calm_json_set(root, "units", rows);
        status = calm_print_json(ctx, root);
    }
    calm_json_free(root);
    return status;
}

static calm_status print_csv(calm_ctx *ctx, const calm_table *units)
{
    calm_text text;
    calm_text_init(&text);
    calm_status status = calm_table_write_csv(ctx, units, &text);
    if (status == CALM_OK && fwrite(text.data, 1, text.length, stdout) != text.length)
        status = calm_fail(ctx, CALM_EIO, "standard output: cannot write");
    calm_text_clear(&text);
    return status;
}

static calm_status print(calm_ctx *ctx, const options *o, const calm_reselected *s)
{
    calm_table units;
    calm_status status;
    calm_table_init(&units);
    fill_table(s, o->json || o->csv, &units);
    if (o->json) {
        status = print_json(ctx, s, &units);
    } else if (o->csv) {
        status = print_csv(ctx, &units);
    } else {
        calm_table_drop_empty(&units);
        status = calm_print_table(ctx, &units, stdout);
        if (status == CALM_OK)
            print_summary(o, s);
    }
    calm_table_clear(&units);
    return status;
}

/* ---- the command ---- */

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_reselect_options how = {.store = o->store, .unit = o->unit - 1, .rule = o->rule - 1, .metric = o->metric,
                               .budget = o->budget > 0 ? o->budget : NAN, .forbid = o->forbid, .pins = o->pins,
                               .target = o->target, .dry_run = o->dry_run};
    calm_reselected selected;
    calm_progress progress;
    char *command;
    (void)n_args;
    if (o->json && o->csv)
        return calm_fail(ctx, CALM_EARG, "calm select: --json and --csv are two ways of printing; give one");
    CALM_TRY(calm_stored_run_number(ctx, "select", args[0], &how.run));
    CALM_TRY(calm_strf(ctx, ctx->out, &command, "calm select %lld --store %s", (long long)how.run, o->store));
    how.command = command;
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_status status = calm_reselect(ctx, &how, &selected);
    calm_progress_end(ctx, &progress);
    if (status == CALM_OK)
        status = print(ctx, o, &selected);
    calm_reselected_clear(&selected);
    return status;
}

const calm_command calm_cmd_select = {
    .name = "select",
    .summary = "choose anew from the scores of a run, without the model",
    .arguments = "RUN",
    .description = "Chooses again among the candidates that RUN considered - by another rule, metric, unit or budget, "
                   "without some of them, with units decided beforehand - and keeps the plan as a run of its own.  "
                   "Scores are read from the store; neither the model nor a candidate is touched.  Without options the "
                   "choices are RUN's.",
    .examples = "  calm select 3 --metric rel_mse\n"
                "  calm select 3 --forbid smoothquant --forbid mkq\n"
                "  calm select 3 --pin model.layers.0.qkv=gptq --pin '*.down=#123'\n"
                "  calm select 3 --budget 3.5 --dry-run\n"
                "  calm select 3 --target vllm\n"
                "  calm assemble 4 --output out       the checkpoint of the new plan\n",
    .options = table,
    .opts_size = sizeof(options),
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
