/* calm check: finds what engines would refuse or misread in a quantized checkpoint. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/pull.h"
#include "ptq/check/check.h"
#include "ptq/model/model.h"
#include "ptq/plan/engines.h"

#define MOST_LINES 20    /* largest number of lines per rule without --all */
#define MOST_NAMES 4     /* largest number of places that one line names   */

typedef struct options {
    calm_common common;
    calm_model_how how;
    int target;
    bool json, list, all;
} options;

static const calm_option table[] = {
    CALM_OPT("target", target, ENUM, "the engine that is to load the checkpoint; any: rules that hold for every "
             "engine",
             .fallback = "any", .values = CALM_CHECK_ENGINE_NAMES, .key = 't'),
    CALM_OPT("list", list, BOOL, "print the rules instead: what each checks, and what engines do"),
    CALM_OPT("all", all, BOOL, "print every finding, also more than twenty of a rule"),
    CALM_OPT_ACCEPT,
    CALM_OPT("json", json, BOOL, "print {path, target, format, tensors, linears, quantized_linears, bytes, errors, "
             "warnings, notes, findings: [{rule, severity, where, found, title, engines, hardware, behaviour, "
             "remedy}]}"),
    CALM_OPT_COMMON,
    {0},
};

/* ---- the rules ---- */

static calm_status list_rules(calm_ctx *ctx, bool json)
{
    CALM_SCOPED_TABLE(rows);
    size_t n;
    const calm_check_rule_info *rules = calm_check_rules(&n);
    char engines[64];
    calm_table_columns(&rows, json ? "rule|severity|engines|title|target_only|behaviour|remedy"
                                   : "rule|severity|engines|title");
    for (size_t i = 0; i < n; i++) {
        CALM_CELLS(&rows, CALM_TEXT(rules[i].id), CALM_TEXT(calm_severity_name(rules[i].severity)),
                   CALM_TEXT(calm_check_engines(rules[i].engines, engines)), CALM_TEXT(rules[i].title));
        if (json)
            CALM_CELLS(&rows, CALM_BOOL(rules[i].asked), CALM_TEXT(rules[i].behaviour), CALM_TEXT(rules[i].remedy));
    }
    return json ? calm_print_json(ctx, calm_rows_json(ctx, &rows)) : calm_print_table(ctx, &rows, stdout);
}

/* ---- the findings ---- */

/* `hardware` goes with rules that need --target: they hold for the devices of the engine's table. */
static calm_json *finding_json(const calm_finding *finding, const char *hardware)
{
    char engines[64];
    const calm_check_rule_info *rule = finding->rule;
    return CALM_OBJECT(CALM_KV("rule", rule->id), CALM_KV("severity", calm_severity_name(rule->severity)),
                       CALM_KV("where", finding->where), CALM_KV("found", finding->what), CALM_KV("title", rule->title),
                       CALM_KV("engines", calm_check_engines(rule->engines, engines)),
                       CALM_KV("hardware", rule->asked ? hardware : "every device"),
                       CALM_KV("behaviour", rule->behaviour), CALM_KV("remedy", rule->remedy));
}

static calm_status print_json(calm_ctx *ctx, const char *path, const options *o, const calm_check_report *report)
{
    const char *target = calm_check_engine_name((calm_check_engine)o->target),
               *hardware = calm_engine_hardware(calm_engine_find(target));
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < report->n; i++)
        calm_json_add(list, finding_json(&report->findings[i], hardware));
    return calm_print_json(
        ctx, CALM_OBJECT(CALM_KV("path", path), CALM_KV("target", target),
                         CALM_KV("format", report->format), CALM_KV("tensors", report->n_tensors),
                         CALM_KV("linears", report->n_linears), CALM_KV("quantized_linears", report->n_quantized),
                         CALM_KV("bytes", report->bytes), CALM_KV("errors", report->n_severity[CALM_SEVERITY_ERROR]),
                         CALM_KV("warnings", report->n_severity[CALM_SEVERITY_WARNING]),
                         CALM_KV("notes", report->n_severity[CALM_SEVERITY_NOTE]), CALM_KV("findings", list)));
}

/* "CT002 error quantization_config: title: what; remedy" */
static void write_finding(calm_text *text, const calm_finding *finding)
{
    calm_text_printf(text, "%s %s ", finding->rule->id, calm_severity_name(finding->rule->severity));
    calm_table_printable(finding->where, text, NULL);
    calm_text_printf(text, ": %s: ", finding->rule->title);
    calm_table_printable(finding->what, text, NULL);
    calm_text_printf(text, "; %s\n", finding->rule->remedy);
}

/* "model.layers.*.mlp" of "model.layers.12.mlp": replaces numbers in the name of a place. */
static void write_pattern(calm_text *text, const char *where)
{
    for (const char *at = where; *at;) {
        const size_t digits = strspn(at, "0123456789");
        const bool number = digits && at > where && at[-1] == '.' && at[digits] == '.';
        calm_text_printf(text, number ? "*" : "%.*s", (int)calm_size_max(digits, 1), at);
        at += calm_size_max(digits, 1);
    }
}

/* Are two findings equal except for the place? */
static bool is_same(const calm_finding *a, const calm_finding *b)
{
    return a->rule == b->rule && strcmp(a->what, b->what) == 0;
}

/* Writes one line for `n` equal findings: their number and the names of the first places. */
static void write_group(calm_text *text, const calm_check_report *report, size_t first, size_t n)
{
    const calm_finding *one = &report->findings[first];
    CALM_SCOPED_TEXT(names);
    CALM_SCOPED_TEXT(name);
    CALM_SCOPED_TEXT(seen);
    size_t more = 0;
    for (size_t i = first; i < report->n; i++) {
        if (!is_same(one, &report->findings[i]))
            continue;
        calm_text_clear(&name);
        write_pattern(&name, report->findings[i].where);
        if (calm_text_listed(seen.data, '\n', name.data))
            continue;
        calm_text_printf(&seen, "%s\n", name.data);
        if (more++ < MOST_NAMES)
            calm_text_printf(&names, "%s%s", names.data ? ", " : "", name.data);
    }
    calm_text_printf(text, "%s %s %zu %s (", one->rule->id, calm_severity_name(one->rule->severity), n,
                     strncmp(one->rule->id, "TG", 2) == 0 ? "linears" : "places");
    calm_table_printable(names.data, text, NULL);
    calm_text_printf(text, more > MOST_NAMES ? ", ...): %s: " : "): %s: ", one->rule->title);
    calm_table_printable(one->what, text, NULL);
    calm_text_printf(text, "; %s\n", one->rule->remedy);
}

/* Equal findings about several places share one line, at the position of the first. */
static void write_findings(calm_text *text, const calm_check_report *report, bool all)
{
    const calm_check_rule_info *rule = NULL;
    size_t lines = 0;
    for (size_t i = 0; i < report->n; i++) {
        const calm_finding *one = &report->findings[i];
        size_t before = 0, n = 1;
        for (size_t k = 0; k < i && !all && !before; k++)
            before += is_same(one, &report->findings[k]);
        if (before)
            continue;
        lines = one->rule == rule ? lines + 1 : 1;
        rule = one->rule;
        for (size_t k = i + 1; k < report->n && !all && lines <= MOST_LINES; k++)
            n += is_same(one, &report->findings[k]);
        if (all || lines <= MOST_LINES)
            n == 1 ? write_finding(text, one) : write_group(text, report, i, n);
        else if (lines == MOST_LINES + 1)
            calm_text_printf(text, "%s %s ... and more (--all)\n", rule->id, calm_severity_name(rule->severity));
    }
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static calm_status print_text(calm_ctx *ctx, const char *path, const options *o, const calm_check_report *report)
{
    const size_t errors = report->n_severity[CALM_SEVERITY_ERROR], warnings = report->n_severity[CALM_SEVERITY_WARNING],
                 notes = report->n_severity[CALM_SEVERITY_NOTE];
    CALM_SCOPED_TEXT(text);
    write_findings(&text, report, o->all);
    calm_text_printf(&text, "%s: %s, %zu tensors, %zu of %zu linears quantized, %.1f MB: ", path,
                     report->format ? report->format : "no quantization that calm knows", report->n_tensors,
                     report->n_quantized, report->n_linears, (double)report->bytes / 1e6);
    if (errors + warnings + notes == 0)
        calm_text_printf(&text, "nothing found\n");
    else
        calm_text_printf(&text, "%zu error%s, %zu warning%s, %zu note%s\n", errors, plural(errors), warnings,
                         plural(warnings), notes, plural(notes));
    return calm_print_folded(ctx, &text);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_check_report report;
    if (o->list)
        return list_rules(ctx, o->json);
    if (!o->common.args.n)
        return calm_fail(ctx, CALM_EARG, "calm check: expected a directory or a .gguf file, or --list");
    const char *path = o->common.args.of[0], *dir;
    CALM_TRY(calm_find_checkpoint(ctx, path, o->common.quiet, &dir));
    CALM_TRY(calm_check_accepting(ctx, dir, (calm_check_engine)o->target, &o->how.accept_keys, &report));
    CALM_TRY(o->json ? print_json(ctx, path, o, &report) : print_text(ctx, path, o, &report));
    const size_t faults = report.n_severity[CALM_SEVERITY_ERROR] + report.n_severity[CALM_SEVERITY_WARNING];
    return faults ? calm_fail(ctx, CALM_EMISMATCH, "%s: %zu finding%s", path, faults, plural(faults)) : CALM_OK;
}

const calm_command calm_cmd_check = {
    .name = "check",
    .summary = "say what engines would refuse or misread in a quantized checkpoint",
    .arguments = "DIR|FILE.gguf",
    .description =
        "Reads a quantized directory (compressed-tensors, GPTQ, AWQ, MLX; from calm or another tool) or a GGUF file "
        "as engines read it, and prints a line for each fault on which an engine fails or reads other weights: the "
        "rule, the place, what is wrong, and what to do.",
    .examples = "  calm check ./Qwen3-0.6B-W4A16\n"
                "  calm check ./Qwen3-0.6B-W4A16 --target vllm\n"
                "  calm check model.gguf --json\n"
                "  calm check --list                    the rules\n\n"
                "Exit status 0: nothing, or only notes; 3: errors or warnings; 1: calm cannot\n"
                "read it.  docs/check.md says for each rule what engines do.\n",
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
