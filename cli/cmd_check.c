/* calm check: will engines take a quantized checkpoint? */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/print.h"
#include "ptq/check/check.h"

#define MOST_LINES 20 /* findings of one rule that are printed unless all are asked for */

typedef struct options {
    calm_common common;
    int target;
    bool json, list, all;
} options;

static const calm_option table[] = {
    {.name = "target", .help = "the engine that is to load it; any: what holds for every engine",
     .offset = offsetof(options, target), .type = CALM_OPTION_ENUM, .fallback = "any",
     .values = CALM_CHECK_ENGINE_NAMES, .key = 't'},
    {.name = "list", .help = "print the rules instead: what each says, and what engines do",
     .offset = offsetof(options, list), .type = CALM_OPTION_BOOL},
    {.name = "all", .help = "print every finding, not only the first twenty of a rule",
     .offset = offsetof(options, all), .type = CALM_OPTION_BOOL},
    {.name = "json",
     .help = "print {path, target, format, tensors, linears, quantized, bytes, errors, warnings, notes, findings: "
             "[{rule, severity, where, what, title, engines, behaviour, remedy}]}", .offset = offsetof(options, json),
     .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

/* ---- the rules ---- */

static calm_status list_rules(calm_ctx *ctx, bool json)
{
    calm_table rows;
    calm_json *list;
    size_t n;
    const calm_check_rule_info *rules = calm_check_rules(&n);
    char engines[64];
    calm_table_init(&rows);
    calm_table_column(&rows, "rule", CALM_ALIGN_LEFT);
    calm_table_column(&rows, "severity", CALM_ALIGN_LEFT);
    calm_table_column(&rows, "engines", CALM_ALIGN_LEFT);
    calm_table_column(&rows, "title", CALM_ALIGN_LEFT);
    if (json) {
        calm_table_column(&rows, "asked", CALM_ALIGN_LEFT);
        calm_table_column(&rows, "behaviour", CALM_ALIGN_LEFT);
        calm_table_column(&rows, "remedy", CALM_ALIGN_LEFT);
    }
    for (size_t i = 0; i < n; i++) {
        calm_table_text(&rows, rules[i].id);
        calm_table_text(&rows, calm_severity_name(rules[i].severity));
        calm_table_text(&rows, calm_check_engines(rules[i].engines, engines));
        calm_table_text(&rows, rules[i].title);
        if (json) {
            calm_table_bool(&rows, rules[i].asked);
            calm_table_text(&rows, rules[i].behaviour);
            calm_table_text(&rows, rules[i].remedy);
        }
    }
    calm_status status = json ? calm_rows_json(ctx, &rows, &list) : calm_print_table(ctx, &rows, stdout);
    if (json && status == CALM_OK) {
        status = calm_print_json(ctx, list);
        calm_json_free(list);
    }
    calm_table_clear(&rows);
    return status;
}

/* ---- the findings ---- */

static calm_json *finding_json(const calm_finding *finding)
{
    char engines[64];
    calm_json *out = calm_json_new_object();
    calm_json_set_string(out, "rule", finding->rule->id);
    calm_json_set_string(out, "severity", calm_severity_name(finding->rule->severity));
    calm_json_set_string(out, "where", finding->where);
    calm_json_set_string(out, "what", finding->what);
    calm_json_set_string(out, "title", finding->rule->title);
    calm_json_set_string(out, "engines", calm_check_engines(finding->rule->engines, engines));
    calm_json_set_string(out, "behaviour", finding->rule->behaviour);
    calm_json_set_string(out, "remedy", finding->rule->remedy);
    return out;
}

static const char *target_name(const options *o, char text[32])
{
    const char *at = CALM_CHECK_ENGINE_NAMES;
    for (int i = 0; i < o->target; i++)
        at = strchr(at, '|') + 1;
    snprintf(text, 32, "%.*s", (int)strcspn(at, "|"), at);
    return text;
}

static calm_status print_json(calm_ctx *ctx, const char *path, const options *o, const calm_check_report *report)
{
    char target[32];
    calm_json *root = calm_json_new_object(), *list = calm_json_new_array();
    calm_json_set_string(root, "path", path);
    calm_json_set_string(root, "target", target_name(o, target));
    calm_json_set_string(root, "format", report->format);
    calm_json_set_int(root, "tensors", (int64_t)report->n_tensors);
    calm_json_set_int(root, "linears", (int64_t)report->n_linears);
    calm_json_set_int(root, "quantized", (int64_t)report->n_quantized);
    calm_json_set_int(root, "bytes", (int64_t)report->bytes);
    calm_json_set_int(root, "errors", (int64_t)report->n_severity[CALM_SEVERITY_ERROR]);
    calm_json_set_int(root, "warnings", (int64_t)report->n_severity[CALM_SEVERITY_WARNING]);
    calm_json_set_int(root, "notes", (int64_t)report->n_severity[CALM_SEVERITY_NOTE]);
    for (size_t i = 0; i < report->n; i++)
        calm_json_add(list, finding_json(&report->findings[i]));
    calm_json_set(root, "findings", list);
    const calm_status status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
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

static void write_findings(calm_text *text, const calm_check_report *report, bool all)
{
    for (size_t i = 0; i < report->n; i++) {
        size_t before = 0, after = 0;
        for (size_t k = 0; k < i && before <= MOST_LINES; k++)
            before += report->findings[k].rule == report->findings[i].rule;
        if (all || before < MOST_LINES) {
            write_finding(text, &report->findings[i]);
            continue;
        }
        for (size_t k = i; k < report->n && before == MOST_LINES; k++)
            after += report->findings[k].rule == report->findings[i].rule;
        if (before == MOST_LINES)
            calm_text_printf(text, "%s %s ... and %zu more (--all)\n", report->findings[i].rule->id,
                             calm_severity_name(report->findings[i].rule->severity), after);
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
    calm_text text;
    calm_text_init(&text);
    write_findings(&text, report, o->all);
    calm_text_printf(&text, "%s: %s, %zu tensors, %zu of %zu linears quantized, %.1f MB: ", path,
                     report->format ? report->format : "no quantization that calm knows", report->n_tensors,
                     report->n_quantized, report->n_linears, (double)report->bytes / 1e6);
    if (errors + warnings + notes == 0)
        calm_text_printf(&text, "nothing found\n");
    else
        calm_text_printf(&text, "%zu error%s, %zu warning%s, %zu note%s\n", errors, plural(errors), warnings,
                         plural(warnings), notes, plural(notes));
    if (calm_text_check(ctx, &text) == CALM_OK && fwrite(text.data, 1, text.length, stdout) != text.length)
        calm_fail_errno(ctx, errno, "standard output: cannot write");
    calm_text_clear(&text);
    return ctx->status;
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_check_report report;
    if (o->list)
        return list_rules(ctx, o->json);
    if (n_args == 0)
        return calm_fail(ctx, CALM_EARG, "calm check: what is to be checked? A directory or a .gguf file, or --list");
    CALM_TRY(calm_check(ctx, args[0], (calm_check_engine)o->target, &report));
    CALM_TRY(o->json ? print_json(ctx, args[0], o, &report) : print_text(ctx, args[0], o, &report));
    const size_t faults = report.n_severity[CALM_SEVERITY_ERROR] + report.n_severity[CALM_SEVERITY_WARNING];
    if (faults)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu finding%s", args[0], faults, plural(faults));
    return CALM_OK;
}

const calm_command calm_cmd_check = {
    .name = "check",
    .summary = "say what engines will not take of a quantized checkpoint",
    .arguments = "DIR|FILE.gguf",
    .description =
        "Reads a quantized directory (compressed-tensors, GPTQ, AWQ, MLX; calm's or not) or a GGUF file as engines "
        "read "
        "it, and prints one line for each thing that they would fail on or read otherwise: the rule, where, what was "
        "found, and what to do.",
    .examples = "  calm check ./Qwen3-0.6B-W4A16\n"
                "  calm check ./Qwen3-0.6B-W4A16 --target vllm\n"
                "  calm check model.gguf --json\n"
                "  calm check --list                    the rules\n\n"
                "Exit status 0: nothing, or notes alone; 3: errors or warnings; 1: it cannot\n"
                "be read at all.  docs/check.md says for each rule what engines do.\n",
    .options = table,
    .opts_size = sizeof(options),
    .min_args = 0,
    .max_args = 1,
    .run = run,
};
