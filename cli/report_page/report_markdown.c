/* Summarizes one or two runs as Markdown, for the summary of a CI job and comments on merge requests. */
#include <math.h>
#include <string.h>

#include "cli/report_page/report_page.h"
#include "ptq/text/table.h"

#define CHANGED_MAX ((size_t)20)    /* largest number of listed units whose choices differ */

/* ---- values ---- */

static const calm_json *row_of(const calm_json *run, const char *section)
{
    return calm_json_at(calm_json_get(run, section), 0);
}

static const char *text_of(const calm_json *row, const char *key)
{
    return calm_json_string(calm_json_get(row, key), "");
}

static double number_of(const calm_json *row, const char *key)
{
    return calm_json_number(calm_json_get(row, key), NAN);
}

/* Returns the evaluation of a role and a subject; NULL: none. */
static const calm_json *evaluation_of(const calm_json *run, const char *role, const char *subject)
{
    const calm_json *list = calm_json_get(run, "evaluations");
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *row = calm_json_at(list, i);
        if (strcmp(text_of(row, "role"), role) == 0 && strcmp(text_of(row, "subject"), subject) == 0)
            return row;
    }
    return NULL;
}

/* Appends an untrusted text as one line of Markdown, without markup, links or mentions. */
static void put_plain(const char *text, calm_text *out)
{
    CALM_SCOPED_TEXT(shown);
    calm_table_printable(text, &shown, NULL);
    for (const char *at = shown.data ? shown.data : ""; *at; at++) {
        if (*at == '@' || *at == '&' || *at == '<' || *at == '>')
            calm_text_printf(out, "&#%d;", *at);
        else
            calm_text_printf(out, strchr("\\`*_[]|#~", *at) ? "\\%c" : "%c", *at);
    }
}

/* ---- tables ---- */

/* Appends a table, if it has rows, after an empty line. */
static calm_status put_table(calm_ctx *ctx, const char *title, const calm_table *table, calm_text *out)
{
    if (!calm_table_rows(table))
        return CALM_OK;
    calm_text_printf(out, "\n%s\n\n", title);
    return calm_table_write_markdown(ctx, table, out);
}

static calm_status put_figures(calm_ctx *ctx, const calm_json *run, calm_text *out)
{
    const calm_json *row = row_of(run, "run"), *loss = calm_json_get(run, "loss");
    const calm_json *before = evaluation_of(run, "test", "float");
    const calm_json *after = evaluation_of(run, "test", text_of(row, "result"));
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "|#float|#result");
    if (isfinite(number_of(row, "bytes_after")))    /* a selection writes no checkpoint */
        CALM_CELLS(&table, CALM_TEXT("size, MiB"), CALM_FIXED(number_of(row, "bytes_before") / 1048576, 2),
                   CALM_FIXED(number_of(row, "bytes_after") / 1048576, 2));
    CALM_CELLS(&table, CALM_TEXT("bits per weight"), CALM_EMPTY, CALM_FIXED(number_of(row, "bits_per_weight"), 3));
    if (isfinite(number_of(after, "ppl")))
        CALM_CELLS(&table, CALM_TEXT("perplexity"), CALM_FIXED(number_of(before, "ppl"), 4),
                   CALM_FIXED(number_of(after, "ppl"), 4));
    if (isfinite(number_of(loss, "mean"))) {
        const bool encoder = strcmp(text_of(loss, "name"), "kl") != 0;
        CALM_CELLS(&table, CALM_TEXT(encoder ? "1 - cosine" : "KL to float"), CALM_EMPTY);
        calm_table_format(&table, isfinite(number_of(loss, "se")) ? "%.5f +- %.5f" : "%.5f", number_of(loss, "mean"),
                          number_of(loss, "se"));
    }
    if (isfinite(number_of(after, "top1")))
        CALM_CELLS(&table, CALM_TEXT("top-1, %"), CALM_EMPTY, CALM_FIXED(100 * number_of(after, "top1"), 2));
    CALM_TRY(put_table(ctx, "**Result**", &table, out));
    if (!after)
        calm_text_printf(out, "\nNothing was evaluated on a test text.\n");
    return CALM_OK;
}

/* Appends the headings of the guard's table, which compares other plans with the plan of the choices; if that plan is
 * uniform, it has the uniform run's name. */
static void put_headings(const calm_json *run, calm_text *out)
{
    const calm_json *list = calm_json_get(run, "evaluations");
    const char *base = "the hybrid";
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *row = calm_json_at(list, i);
        if (strcmp(text_of(row, "role"), "guard") == 0 && isnan(number_of(row, "delta_se")) &&
            strcmp(text_of(row, "subject"), "hybrid") != 0 && !strchr(text_of(row, "subject"), '|'))
            base = text_of(row, "subject");
    }
    calm_text_printf(out, "plan|#loss|#minus %s's|#standard error", base);
}

static calm_status put_guard(calm_ctx *ctx, const calm_json *run, calm_text *out)
{
    const calm_json *list = calm_json_get(run, "evaluations");
    CALM_SCOPED_TABLE(table);
    CALM_SCOPED_TEXT(headings);
    put_headings(run, &headings);
    CALM_TRY(calm_text_check(ctx, &headings));
    calm_table_columns(&table, headings.data);
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *row = calm_json_at(list, i);
        const bool encoder = isfinite(number_of(row, "cosine")), more = strcmp(text_of(row, "role"), "guard_more") == 0;
        if (!more && strcmp(text_of(row, "role"), "guard") != 0)
            continue;
        /* Evaluations are sorted by role, so those on more windows come last. */
        if (more)
            calm_table_format(&table, "%s, %.0f windows", text_of(row, "subject"), number_of(row, "windows"));
        else
            calm_table_text(&table, text_of(row, "subject"));
        CALM_CELLS(&table,
                   CALM_FIXED(encoder ? 1 - number_of(row, "cosine") : number_of(row, "kl"), 5),
                   CALM_SIGNED(number_of(row, encoder ? "delta_one_minus_cosine" : "delta_kl"), 5),
                   CALM_FIXED(number_of(row, "delta_se"), 5));
    }
    return put_table(ctx, "**Guard** on held-out windows", &table, out);
}

static calm_status put_gates(calm_ctx *ctx, const calm_json *run, calm_text *out)
{
    const calm_json *list = calm_json_get(run, "gates");
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "gate|#measured|holds");
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *row = calm_json_at(list, i);
        CALM_CELLS(&table, CALM_TEXT(text_of(row, "gate")), CALM_NUMBER(number_of(row, "measured")),
                   CALM_TEXT(calm_json_bool(calm_json_get(row, "holds"), false) ? "yes" : "**no**"));
    }
    return put_table(ctx, "**Gates**", &table, out);
}

static calm_status put_chosen(calm_ctx *ctx, const calm_json *run, calm_text *out)
{
    const calm_json *list = calm_json_get(run, "chosen");
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "algorithm|scheme|#jobs|#weights");
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *row = calm_json_at(list, i);
        CALM_CELLS(&table, CALM_TEXT(text_of(row, "algorithm")), CALM_TEXT(text_of(row, "scheme")),
                   CALM_INT(calm_json_int(calm_json_get(row, "jobs"), 0)),
                   CALM_INT(calm_json_int(calm_json_get(row, "weights"), 0)));
    }
    return put_table(ctx, "**Chosen** by the rule", &table, out);
}

/* ---- runs ---- */

static calm_status put_run(calm_ctx *ctx, const calm_json *run, calm_text *out)
{
    const calm_json *row = row_of(run, "run");
    calm_text_printf(out, "### calm run %lld: ", (long long)calm_json_int(calm_json_get(row, "run"), 0));
    put_plain(text_of(row, "model"), out);
    calm_text_printf(out, ", ");
    put_plain(text_of(row, "status"), out);
    calm_text_printf(out, "\n\n");
    /* The verdict names the plan and says why; a run without a verdict has only the plan's name. */
    const char *text = *text_of(row, "verdict") ? text_of(row, "verdict") : text_of(row, "result");
    if (*text)
        calm_text_printf(out, "Result: ");
    put_plain(text, out);
    calm_text_printf(out, "\n");
    CALM_TRY(put_figures(ctx, run, out));
    CALM_TRY(put_gates(ctx, run, out));
    CALM_TRY(put_guard(ctx, run, out));
    CALM_TRY(put_chosen(ctx, run, out));
    if (*text_of(row, "command")) {
        calm_text_printf(out, "\nCommand: ");
        put_plain(text_of(row, "command"), out);
        calm_text_printf(out, "\n");
    }
    return CALM_OK;
}

static calm_status put_diff(calm_ctx *ctx, const calm_json *diff, calm_text *out)
{
    const calm_json *list = calm_json_get(diff, "choices");
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "#block|job|first|second");
    for (size_t i = 0; i < calm_json_size(list) && i < CHANGED_MAX; i++) {
        const calm_json *row = calm_json_at(list, i);
        CALM_CELLS(&table, CALM_INT(calm_json_int(calm_json_get(row, "block"), 0)), CALM_TEXT(text_of(row, "job")),
                   CALM_TEXT(text_of(row, "first")), CALM_TEXT(text_of(row, "second")));
    }
    calm_text_printf(out, "\n### What differs\n\n%zu choices, %zu values of the recipe, %zu of the environment.\n",
                     calm_json_size(list), calm_json_size(calm_json_get(diff, "recipe")),
                     calm_json_size(calm_json_get(diff, "environment")));
    return put_table(ctx, calm_json_size(list) > CHANGED_MAX ? "**Choices**, the first 20" : "**Choices**", &table,
                     out);
}

calm_status calm_report_page_markdown(calm_ctx *ctx, const calm_json *data, calm_text *out)
{
    const calm_json *runs = calm_json_get(data, "runs"), *diff = calm_json_get(data, "diff");
    if (!calm_json_size(runs)) {
        put_plain(text_of(data, "store"), out);
        calm_text_printf(out, ": the store has no runs.\n");
    }
    for (size_t i = 0; i < calm_json_size(runs); i++) {
        calm_text_printf(out, "%s", i ? "\n" : "");
        CALM_TRY(put_run(ctx, calm_json_at(runs, i), out));
    }
    if (calm_json_typeof(diff) == CALM_JSON_OBJECT)
        CALM_TRY(put_diff(ctx, diff, out));
    return calm_text_check(ctx, out);
}
