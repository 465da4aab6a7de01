/* Reports of an ablation: aligned tables, JSON, CSV and Markdown of the same rows (docs/ablation.md). */
#include "cli/ablation_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/print.h"
#include "ptq/base/file.h"
#include "ptq/export/export.h"

/* ---- tables for programs: every column, all digits ---- */

/* Encoders have other figures in the same columns. */
static void add_data_columns(calm_table *table, bool with_scheme, bool encoder)
{
    if (with_scheme)
        calm_table_columns(table, "scheme");
    calm_table_columns(table, encoder ? "kind|unit|metric|rule|seed|name|plan|bits|error|one_minus_cosine|"
                                        "delta_one_minus_cosine|delta_se|rank_correlation|units|changed_units|"
                                        "seconds|failure"
                                      : "kind|unit|metric|rule|seed|name|plan|bits|ppl|kl|"
                                        "delta_kl|delta_se|top1|units|changed_units|seconds|failure");
}

/* Below 0: unknown, an empty cell. */
static calm_cell count(long long value)
{
    return (calm_cell){.type = value < 0 ? CALM_CELL_EMPTY : CALM_CELL_INT, .integer = value};
}

static void add_data_rows(const calm_ablation *of, bool with_scheme, calm_table *table)
{
    for (size_t i = 0; i < of->n_rows; i++) {
        const calm_ablation_row *row = &of->rows[i];
        if (with_scheme)
            calm_table_text(table, of->scheme);
        CALM_CELLS(table, CALM_TEXT(row->kind), CALM_TEXT(row->unit), CALM_TEXT(row->metric), CALM_TEXT(row->rule),
                   count(row->seed), CALM_TEXT(row->name), count(row->plan), CALM_FIXED(row->bits, 6),
                   CALM_FIXED(of->encoder ? row->error : row->ppl, 6), CALM_FIXED(row->loss, 6),
                   CALM_FIXED(row->delta, 6), CALM_FIXED(row->se, 6),
                   CALM_FIXED(of->encoder ? row->spearman : row->top1, 6), count(row->units), count(row->differs),
                   CALM_FIXED(row->seconds, 3), CALM_TEXT(row->failure));
    }
}

/* ---- readable tables: rounded, empty columns left out ---- */

/* Is a row the first with its plan?  A row without a plan counts as first. */
static bool is_first(const calm_ablation *of, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (of->rows[index].plan >= 0 && of->rows[i].plan == of->rows[index].plan)
            return false;
    return true;
}

/* For a terminal: one row per plan, 80 columns wide; the files have all rows and columns. */
static void plans_table(const calm_ablation *of, calm_table *table)
{
    calm_table_columns(table, of->encoder ? "choice|#rel. error|#1 - cosine" : "choice|#perplexity|#KL");
    calm_table_columns(table, "#minus best|#+- s.e.|#differs|#seconds");
    for (size_t i = 0; i < of->n_rows - of->n_seed_rows; i++) {
        const calm_ablation_row *row = &of->rows[i];
        if (!is_first(of, i) || row->failure)
            continue;
        CALM_CELLS(table, CALM_TEXT(row->name), CALM_FIXED(of->encoder ? row->error : row->ppl, of->encoder ? 5 : 4),
                   CALM_FIXED(row->loss, 5), CALM_SIGNED(row->delta, 5), CALM_FIXED(row->se, 5));
        if (row->differs < 0)
            CALM_CELLS(table, CALM_EMPTY);
        else
            calm_table_format(table, "%lld of %lld", row->differs, row->units);
        CALM_CELLS(table, CALM_FIXED(row->seconds, 1));
    }
    calm_table_drop_empty(table);
}

/* Says why a plan does not exist; printed below the table, since reasons do not fit into a column. */
static void say_failure(const calm_ablation *of, size_t i, calm_text *line)
{
    if (of->rows[i].failure)
        calm_text_printf(line, "  no %s: %s", of->rows[i].name, of->rows[i].failure);
}

/* Lists the ways of choosing that led to the plan of a row. */
static void say_equal(const calm_ablation *of, size_t i, calm_text *line)
{
    for (size_t k = i + 1; k < of->n_rows - of->n_seed_rows && of->rows[i].plan >= 0 && is_first(of, i); k++)
        if (of->rows[k].plan == of->rows[i].plan)
            calm_text_printf(line, "%s%s%s %s", line->data ? "" : "  the plan of ",
                             line->data ? "" : of->rows[i].name, line->data ? "," : " is also that of",
                             of->rows[k].name);
}

/* Appends the remarks on each row, in lines that a terminal folds. */
static void put_lines(const calm_ctx *ctx, const calm_ablation *of,
                      void (*say)(const calm_ablation *, size_t, calm_text *), calm_text *out)
{
    for (size_t i = 0; i < of->n_rows - of->n_seed_rows; i++) {
        CALM_SCOPED_TEXT(line);
        say(of, i, &line);
        if (line.data)
            calm_table_fold(ctx, line.data, out);
    }
}

/* All rows except those of seeds. */
static void rows_table(const calm_ablation *of, calm_table *table)
{
    calm_table_columns(table, of->encoder ? "kind|choice|#bits|#rel. error|#1 - cosine|#minus best uniform|"
                                            "#+- std. error|#rank correlation|#differs|#seconds|failure"
                                          : "kind|choice|#bits|#perplexity|#KL|#minus best uniform|"
                                            "#+- std. error|#top-1 %|#differs|#seconds|failure");
    for (size_t i = 0; i < of->n_rows - of->n_seed_rows; i++) {
        const calm_ablation_row *row = &of->rows[i];
        CALM_CELLS(table, CALM_TEXT(row->kind), CALM_TEXT(row->name), CALM_FIXED(row->bits, 3),
                   CALM_FIXED(of->encoder ? row->error : row->ppl, of->encoder ? 5 : 4), CALM_FIXED(row->loss, 5),
                   CALM_SIGNED(row->delta, 5), CALM_FIXED(row->se, 5),
                   CALM_FIXED(of->encoder ? row->spearman : 100 * row->top1, of->encoder ? 4 : 2));
        if (row->differs < 0)
            CALM_CELLS(table, CALM_EMPTY);
        else
            calm_table_format(table, "%lld of %lld", row->differs, row->units);
        CALM_CELLS(table, CALM_FIXED(row->seconds, 1), CALM_TEXT(row->failure));
    }
    calm_table_drop_empty(table);
}

static void correlations_table(const calm_ablation *of, calm_table *table)
{
    calm_table_columns(table, "unit|score|#rank correlation with probe_kl|#least agrees %|#units");
    for (size_t i = 0; i < of->n_correlations; i++) {
        const calm_ablation_correlation *row = &of->correlations[i];
        CALM_CELLS(table, CALM_TEXT(row->unit), CALM_TEXT(row->metric), CALM_FIXED(row->rho, 3),
                   CALM_FIXED(100 * row->hits, 1), CALM_INT(row->units));
    }
}

static void noise_table(const calm_ablation *of, calm_table *table)
{
    calm_table_columns(table, of->encoder ? "over seeds|#seeds|#mean 1 - cosine|#std. deviation|"
                                            "#mean minus best uniform|#its std. deviation"
                                          : "over seeds|#seeds|#mean KL|#std. deviation|"
                                            "#mean minus best uniform|#its std. deviation");
    for (size_t i = 0; i < of->n_noise; i++) {
        const calm_ablation_noise *row = &of->noise[i];
        CALM_CELLS(table, CALM_TEXT(row->name), CALM_INT(row->n), CALM_FIXED(row->mean, 5), CALM_FIXED(row->sd, 5),
                   CALM_SIGNED(row->delta_mean, 5), CALM_FIXED(row->delta_sd, 5));
    }
}

/* Fills one table and appends it as Markdown or aligned text. */
static calm_status put_table(calm_ctx *ctx, const calm_ablation *of, void (*fill)(const calm_ablation *, calm_table *),
                             bool markdown, calm_text *out)
{
    static const char *const less[] = {"seconds", "differs|seconds"};
    CALM_SCOPED_TABLE(table);
    fill(of, &table);
    if (!markdown)
        CALM_TRY(calm_table_narrow(ctx, &table, 2, less, sizeof less / sizeof *less));
    CALM_TRY(markdown ? calm_table_write_markdown(ctx, &table, out) : calm_table_write(ctx, &table, 2, out));
    calm_text_printf(out, "\n");
    return CALM_OK;
}

/* Appends a sentence per hook point with massive activations, and always one for block outputs. */
static void put_massive(const calm_ablation *of, const char *indent, calm_text *out)
{
    for (size_t i = 0; i < of->n_hooks; i++) {
        const calm_ablation_hooks *hook = &of->hooks[i];
        if (hook->massive || strcmp(hook->point, "block_out") == 0)
            calm_text_printf(out, "%s%s: %lld massive of %lld tokens of all blocks; max |x| / median |x| up to %.0f\n",
                             indent, hook->point, hook->massive, hook->tokens, hook->ratio_max);
    }
    calm_text_printf(out, "%scka_drop left out %lld of %lld rows of all jobs\n", indent, of->dropped_rows,
                     of->scored_rows);
}

static calm_status put_scheme(calm_ctx *ctx, const calm_ablation *of, bool markdown, calm_text *out)
{
    const char *indent = markdown ? "- " : "  ";
    calm_text_printf(out, markdown ? "## %s\n\n" : "%s\n\n", of->scheme);
    CALM_TRY(put_table(ctx, of, markdown ? rows_table : plans_table, markdown, out));
    if (!markdown) {
        put_lines(ctx, of, say_failure, out);
        put_lines(ctx, of, say_equal, out);
    }
    CALM_SCOPED_TEXT(facts);
    if (!isnan(of->float_ppl))
        calm_text_printf(&facts, "%sfloat: perplexity %.4f\n", indent, of->float_ppl);
    calm_text_printf(&facts, "%s%zu %s %zu tokens; all candidates took %.1f s to quantize, which every hybrid needs\n",
                     indent, of->windows, of->encoder ? "sentences of up to" : "windows of", of->window_tokens,
                     of->pool_seconds);
    put_massive(of, indent, &facts);
    CALM_TRY(calm_text_check(ctx, &facts));
    if (markdown)
        calm_text_printf(out, "%s", facts.data);
    else
        calm_table_fold(ctx, facts.data, out);
    calm_text_printf(out, "\n");
    if (of->n_correlations)
        CALM_TRY(put_table(ctx, of, correlations_table, markdown, out));
    return of->n_noise ? put_table(ctx, of, noise_table, markdown, out) : CALM_OK;
}

calm_status calm_ablation_report_print(calm_ctx *ctx, const calm_ablation_set *set)
{
    CALM_SCOPED_TEXT(text);
    calm_text_printf(&text, "\n");
    for (size_t i = 0; i < set->n && ctx->status == CALM_OK; i++)
        put_scheme(ctx, &set->of[i], false, &text);
    calm_text_printf(&text, "  store  %s\n  time   %.1f s\n\n  next: %s inspect ", set->recipe->store, set->seconds,
                     calm_program());
    calm_print_word(&text, set->recipe->store);
    calm_text_printf(&text, " ablation\n");
    return calm_print_text(ctx, &text);
}

/* ---- JSON ---- */

static calm_json *correlations_json(const calm_ablation *of)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < of->n_correlations; i++) {
        const calm_ablation_correlation *row = &of->correlations[i];
        calm_json_add(list, CALM_OBJECT(CALM_KV("unit", row->unit), CALM_KV("metric", row->metric),
                                        CALM_KV("rank_correlation", row->rho), CALM_KV("best_agreement", row->hits),
                                        CALM_KV("units", row->units)));
    }
    return list;
}

static calm_json *activations_json(const calm_ablation *of)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < of->n_hooks; i++) {
        const calm_ablation_hooks *hook = &of->hooks[i];
        calm_json_add(list, CALM_OBJECT(CALM_KV("point", hook->point), CALM_KV("tokens", hook->tokens),
                                        CALM_KV("massive", hook->massive), CALM_KV("ratio_max", hook->ratio_max),
                                        CALM_KV("max_abs", hook->max_abs)));
    }
    return CALM_OBJECT(CALM_KV("hooks", list), CALM_KV("scored_rows", of->scored_rows),
                       CALM_KV("dropped_rows", of->dropped_rows));
}

static calm_json *noise_json(const calm_ablation *of)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < of->n_noise; i++) {
        const calm_ablation_noise *row = &of->noise[i];
        calm_json_add(list, CALM_OBJECT(CALM_KV("name", row->name), CALM_KV("seeds", row->n),
                                        CALM_KV("mean", row->mean), CALM_KV("sd", row->sd),
                                        CALM_KV("delta_mean", row->delta_mean), CALM_KV("delta_sd", row->delta_sd)));
    }
    return list;
}

static calm_json *scheme_json(calm_ctx *ctx, const calm_ablation *of)
{
    CALM_SCOPED_TABLE(table);
    add_data_columns(&table, false, of->encoder);
    add_data_rows(of, false, &table);
    return CALM_OBJECT(CALM_KV("scheme", of->scheme), CALM_KV("float_ppl", of->float_ppl),
                       CALM_KV("best_uniform", of->best), CALM_KV("windows", of->windows),
                       CALM_KV("window_tokens", of->window_tokens), CALM_KV("pool_seconds", of->pool_seconds),
                       CALM_KV("rows", calm_rows_json(ctx, &table)), CALM_KV("correlations", correlations_json(of)),
                       CALM_KV("activations", activations_json(of)), CALM_KV("noise", noise_json(of)));
}

static calm_json *calibration_json(const calm_recipe *recipe)
{
    return CALM_OBJECT(CALM_KV("text", recipe->calib_name), CALM_KV("windows", recipe->calib_windows),
                       CALM_KV("window_tokens", recipe->seqlen), CALM_KV("seed", recipe->seed),
                       CALM_KV("score_windows", recipe->score_windows),
                       CALM_KV("probe_windows", recipe->probe_windows));
}

/* The caller frees it; after a failure, which ctx holds, it is incomplete. */
static calm_json *set_json(calm_ctx *ctx, const calm_ablation_set *set)
{
    calm_json *schemes = calm_json_new_array();
    for (size_t i = 0; i < set->n; i++)
        calm_json_add(schemes, scheme_json(ctx, &set->of[i]));
    return CALM_OBJECT(CALM_KV("model", set->recipe->model.name), CALM_KV("text", set->recipe->eval_name),
                       CALM_KV("calibration", calibration_json(set->recipe)), CALM_KV("schemes", schemes),
                       CALM_KV("store", set->recipe->store), CALM_KV("seconds", set->seconds));
}

calm_status calm_ablation_report_json(calm_ctx *ctx, const calm_ablation_set *set)
{
    return calm_print_json(ctx, set_json(ctx, set));
}

/* ---- files ---- */

static calm_status make_json(calm_ctx *ctx, const calm_ablation_set *set, calm_text *out)
{
    CALM_SCOPED_JSON(root);
    root = set_json(ctx, set);
    CALM_TRY(ctx->status);
    CALM_TRY(calm_json_write(ctx, root, 2, out));
    calm_text_append(out, "\n", 1);
    return CALM_OK;
}

static calm_status make_csv(calm_ctx *ctx, const calm_ablation_set *set, calm_text *out)
{
    CALM_SCOPED_TABLE(table);
    add_data_columns(&table, true, set->of[0].encoder);
    for (size_t i = 0; i < set->n; i++)
        add_data_rows(&set->of[i], true, &table);
    return calm_table_write_csv(ctx, &table, out);
}

static calm_status make_markdown(calm_ctx *ctx, const calm_ablation_set *set, calm_text *out)
{
    const calm_recipe *recipe = set->recipe;
    calm_text_printf(out, "# %s: ways of choosing\n\nCalibration: %s, %lld windows of %lld tokens", recipe->model.name,
                     recipe->calib_name, recipe->calib_windows, recipe->seqlen);
    if (recipe->seed >= 0)
        calm_text_printf(out, " drawn with seed %lld", recipe->seed);
    calm_text_printf(out, ", scored on %lld, probed on %lld. Measured on %s.\n\n", recipe->score_windows,
                     recipe->probe_windows, recipe->eval_name);
    for (size_t i = 0; i < set->n; i++)
        CALM_TRY(put_scheme(ctx, &set->of[i], true, out));
    return CALM_OK;
}

static calm_status write_file(calm_ctx *ctx, const calm_ablation_set *set, const char *dir, const char *name,
                              calm_status (*make)(calm_ctx *, const calm_ablation_set *, calm_text *))
{
    CALM_SCOPED_TEXT(text);
    char *path;
    CALM_TRY(make(ctx, set, &text));
    CALM_TRY(calm_text_check(ctx, &text));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, name));
    return calm_write_file(ctx, path, text.data, text.length);
}

calm_status calm_ablation_report_write(calm_ctx *ctx, const calm_ablation_set *set, const char *dir)
{
    calm_export_place place;
    CALM_TRY(calm_export_begin(ctx, dir, &place));
    if (write_file(ctx, set, place.temporary, "ablation.md", make_markdown) != CALM_OK ||
        write_file(ctx, set, place.temporary, "ablation.csv", make_csv) != CALM_OK ||
        write_file(ctx, set, place.temporary, "ablation.json", make_json) != CALM_OK ||
        calm_export_commit(ctx, &place, dir) != CALM_OK)
        calm_export_abandon(ctx, &place);
    return ctx->status;
}
