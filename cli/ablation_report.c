/* Reports of an ablation: aligned tables, JSON, CSV and Markdown of the same rows (docs/ablation.md). */
#include "cli/ablation_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/print.h"
#include "ptq/base/file.h"
#include "ptq/export/export.h"

/* ---- tables for programs: every column, all digits ---- */

static void add_data_columns(calm_table *table, bool with_scheme, bool encoder)
{
    const char *const names[] = {"kind", "unit", "metric", "rule", "seed", "name", "plan", "bits",
                                 encoder ? "error" : "ppl", encoder ? "one_minus_cosine" : "kl",
                                 encoder ? "delta_one_minus_cosine" : "delta_kl", "delta_se",
                                 encoder ? "rank_correlation" : "top1", "units", "differs", "seconds", "failure"};
    if (with_scheme)
        calm_table_column(table, "scheme", CALM_ALIGN_LEFT);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        calm_table_column(table, names[i], CALM_ALIGN_LEFT);
}

static void add_count(calm_table *table, long long value)
{
    if (value < 0)
        calm_table_empty(table);
    else
        calm_table_int(table, value);
}

static void add_data_rows(const calm_ablation *of, bool with_scheme, calm_table *table)
{
    for (size_t i = 0; i < of->n_rows; i++) {
        const calm_ablation_row *row = &of->rows[i];
        const double values[] = {row->bits, of->encoder ? row->error : row->ppl, row->loss, row->delta, row->se,
                                 of->encoder ? row->spearman : row->top1};
        if (with_scheme)
            calm_table_text(table, of->scheme);
        calm_table_text(table, row->kind);
        calm_table_text(table, row->unit);
        calm_table_text(table, row->metric);
        calm_table_text(table, row->rule);
        add_count(table, row->seed);
        calm_table_text(table, row->name);
        add_count(table, row->plan);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            calm_table_fixed(table, values[v], 6);
        add_count(table, row->units);
        add_count(table, row->differs);
        calm_table_fixed(table, row->seconds, 3);
        calm_table_text(table, row->failure);
    }
}

/* ---- tables for people ---- */

static void add_signed(calm_table *table, double value, int digits)
{
    if (isnan(value))
        calm_table_empty(table);
    else
        calm_table_format(table, "%+.*f", digits, value);
}

/* All rows but those of seeds. */
static void rows_table(const calm_ablation *of, calm_table *table)
{
    calm_table_column(table, "kind", CALM_ALIGN_LEFT);
    calm_table_column(table, "choice", CALM_ALIGN_LEFT);
    calm_table_column(table, "bits", CALM_ALIGN_RIGHT);
    calm_table_column(table, of->encoder ? "rel. error" : "perplexity", CALM_ALIGN_RIGHT);
    calm_table_column(table, of->encoder ? "1 - cosine" : "KL", CALM_ALIGN_RIGHT);
    calm_table_column(table, "minus best uniform", CALM_ALIGN_RIGHT);
    calm_table_column(table, "+- std. error", CALM_ALIGN_RIGHT);
    calm_table_column(table, of->encoder ? "rank correlation" : "top-1 %", CALM_ALIGN_RIGHT);
    calm_table_column(table, "differs", CALM_ALIGN_RIGHT);
    calm_table_column(table, "seconds", CALM_ALIGN_RIGHT);
    calm_table_column(table, "failure", CALM_ALIGN_LEFT);
    for (size_t i = 0; i < of->n_rows - of->n_seed_rows; i++) {
        const calm_ablation_row *row = &of->rows[i];
        calm_table_text(table, row->kind);
        calm_table_text(table, row->name);
        calm_table_fixed(table, row->bits, 3);
        calm_table_fixed(table, of->encoder ? row->error : row->ppl, of->encoder ? 5 : 4);
        calm_table_fixed(table, row->loss, 5);
        add_signed(table, row->delta, 5);
        calm_table_fixed(table, row->se, 5);
        calm_table_fixed(table, of->encoder ? row->spearman : 100 * row->top1, of->encoder ? 4 : 2);
        if (row->differs < 0)
            calm_table_empty(table);
        else
            calm_table_format(table, "%lld of %lld", row->differs, row->units);
        calm_table_fixed(table, row->seconds, 1);
        calm_table_text(table, row->failure);
    }
    calm_table_drop_empty(table);
}

static void correlations_table(const calm_ablation *of, calm_table *table)
{
    calm_table_column(table, "unit", CALM_ALIGN_LEFT);
    calm_table_column(table, "score", CALM_ALIGN_LEFT);
    calm_table_column(table, "rank correlation with probe_kl", CALM_ALIGN_RIGHT);
    calm_table_column(table, "least agrees %", CALM_ALIGN_RIGHT);
    calm_table_column(table, "units", CALM_ALIGN_RIGHT);
    for (size_t i = 0; i < of->n_correlations; i++) {
        const calm_ablation_correlation *row = &of->correlations[i];
        calm_table_text(table, row->unit);
        calm_table_text(table, row->metric);
        calm_table_fixed(table, row->rho, 3);
        calm_table_fixed(table, 100 * row->hits, 1);
        calm_table_int(table, (int64_t)row->units);
    }
}

static void noise_table(const calm_ablation *of, calm_table *table)
{
    calm_table_column(table, "over seeds", CALM_ALIGN_LEFT);
    calm_table_column(table, "seeds", CALM_ALIGN_RIGHT);
    calm_table_column(table, of->encoder ? "mean 1 - cosine" : "mean KL", CALM_ALIGN_RIGHT);
    calm_table_column(table, "std. deviation", CALM_ALIGN_RIGHT);
    calm_table_column(table, "mean minus best uniform", CALM_ALIGN_RIGHT);
    calm_table_column(table, "its std. deviation", CALM_ALIGN_RIGHT);
    for (size_t i = 0; i < of->n_noise; i++) {
        const calm_ablation_noise *row = &of->noise[i];
        calm_table_text(table, row->name);
        calm_table_int(table, (int64_t)row->n);
        calm_table_fixed(table, row->mean, 5);
        calm_table_fixed(table, row->sd, 5);
        add_signed(table, row->delta_mean, 5);
        calm_table_fixed(table, row->delta_sd, 5);
    }
}

/* One table in the form that is wanted. */
static calm_status put_table(calm_ctx *ctx, const calm_ablation *of, void (*fill)(const calm_ablation *, calm_table *),
                             bool markdown, calm_text *out)
{
    calm_table table;
    calm_table_init(&table);
    fill(of, &table);
    const calm_status status =
        markdown ? calm_table_write_markdown(ctx, &table, out) : calm_table_write(ctx, &table, 2, out);
    calm_table_clear(&table);
    calm_text_printf(out, "\n");
    return status;
}

/* Sentences about the activations: the block outputs, and what else has massive tokens. */
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
    CALM_TRY(put_table(ctx, of, rows_table, markdown, out));
    if (!isnan(of->float_ppl))
        calm_text_printf(out, "%sfloat: perplexity %.4f\n", indent, of->float_ppl);
    calm_text_printf(out, "%s%zu %s %zu tokens; all candidates took %.1f s to quantize, which every hybrid needs\n",
                     indent, of->windows, of->encoder ? "sentences of up to" : "windows of", of->window_tokens,
                     of->pool_seconds);
    put_massive(of, indent, out);
    calm_text_printf(out, "\n");
    if (of->n_correlations)
        CALM_TRY(put_table(ctx, of, correlations_table, markdown, out));
    return of->n_noise ? put_table(ctx, of, noise_table, markdown, out) : CALM_OK;
}

calm_status calm_ablation_report_print(calm_ctx *ctx, const calm_ablation_set *set)
{
    calm_text text;
    calm_text_init(&text);
    calm_text_printf(&text, "\n");
    calm_status status = CALM_OK;
    for (size_t i = 0; i < set->n && status == CALM_OK; i++)
        status = put_scheme(ctx, &set->of[i], false, &text);
    calm_text_printf(&text, "  store  %s\n  time   %.1f s\n\n  next: %s inspect %s ablation\n", set->recipe->store,
                     set->seconds, calm_program(), set->recipe->store);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        fputs(text.data, stdout);
    calm_text_clear(&text);
    return status;
}

/* ---- JSON ---- */

static calm_json *correlations_json(const calm_ablation *of)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < of->n_correlations; i++) {
        const calm_ablation_correlation *row = &of->correlations[i];
        calm_json *object = calm_json_new_object();
        calm_json_set_string(object, "unit", row->unit);
        calm_json_set_string(object, "metric", row->metric);
        calm_json_set_number(object, "rank_correlation", row->rho);
        calm_json_set_number(object, "least_agrees", row->hits);
        calm_json_set_int(object, "units", (int64_t)row->units);
        calm_json_add(list, object);
    }
    return list;
}

static calm_json *activations_json(const calm_ablation *of)
{
    calm_json *object = calm_json_new_object(), *list = calm_json_new_array();
    for (size_t i = 0; i < of->n_hooks; i++) {
        const calm_ablation_hooks *hook = &of->hooks[i];
        calm_json *row = calm_json_new_object();
        calm_json_set_string(row, "point", hook->point);
        calm_json_set_int(row, "tokens", hook->tokens);
        calm_json_set_int(row, "massive", hook->massive);
        calm_json_set_number(row, "ratio_max", hook->ratio_max);
        calm_json_set_number(row, "max_abs", hook->max_abs);
        calm_json_add(list, row);
    }
    calm_json_set(object, "hooks", list);
    calm_json_set_int(object, "scored_rows", of->scored_rows);
    calm_json_set_int(object, "dropped_rows", of->dropped_rows);
    return object;
}

static calm_json *noise_json(const calm_ablation *of)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < of->n_noise; i++) {
        const calm_ablation_noise *row = &of->noise[i];
        calm_json *object = calm_json_new_object();
        calm_json_set_string(object, "name", row->name);
        calm_json_set_int(object, "seeds", (int64_t)row->n);
        calm_json_set_number(object, "mean", row->mean);
        calm_json_set_number(object, "sd", row->sd);
        calm_json_set_number(object, "delta_mean", row->delta_mean);
        calm_json_set_number(object, "delta_sd", row->delta_sd);
        calm_json_add(list, object);
    }
    return list;
}

static calm_status scheme_json(calm_ctx *ctx, const calm_ablation *of, calm_json **out)
{
    calm_json *rows, *object;
    calm_table table;
    calm_table_init(&table);
    add_data_columns(&table, false, of->encoder);
    add_data_rows(of, false, &table);
    const calm_status status = calm_rows_json(ctx, &table, &rows);
    calm_table_clear(&table);
    CALM_TRY(status);
    object = calm_json_new_object();
    calm_json_set_string(object, "scheme", of->scheme);
    calm_json_set_number(object, "float_ppl", of->float_ppl);
    calm_json_set_string(object, "best_uniform", of->best);
    calm_json_set_int(object, "windows", (int64_t)of->windows);
    calm_json_set_int(object, "window_tokens", (int64_t)of->window_tokens);
    calm_json_set_number(object, "pool_seconds", of->pool_seconds);
    calm_json_set(object, "rows", rows);
    calm_json_set(object, "correlations", correlations_json(of));
    calm_json_set(object, "activations", activations_json(of));
    calm_json_set(object, "noise", noise_json(of));
    *out = object;
    return CALM_OK;
}

static calm_json *calibration_json(const calm_recipe *recipe)
{
    calm_json *object = calm_json_new_object();
    calm_json_set_string(object, "text", recipe->calib_name);
    calm_json_set_int(object, "samples", recipe->samples);
    calm_json_set_int(object, "seqlen", recipe->seqlen);
    calm_json_set_int(object, "seed", recipe->seed);
    calm_json_set_int(object, "score_windows", recipe->score_windows);
    calm_json_set_int(object, "probe_windows", recipe->probe_windows);
    return object;
}

/* Freed by the caller. */
static calm_status as_json(calm_ctx *ctx, const calm_ablation_set *set, calm_json **out)
{
    calm_json *root = calm_json_new_object(), *schemes = calm_json_new_array();
    calm_status status = CALM_OK;
    calm_json_set_string(root, "model", set->recipe->model.name);
    calm_json_set_string(root, "text", set->recipe->eval_name);
    calm_json_set(root, "calibration", calibration_json(set->recipe));
    for (size_t i = 0; i < set->n && status == CALM_OK; i++) {
        calm_json *scheme;
        status = scheme_json(ctx, &set->of[i], &scheme);
        if (status == CALM_OK)
            calm_json_add(schemes, scheme);
    }
    calm_json_set(root, "schemes", schemes);
    calm_json_set_string(root, "store", set->recipe->store);
    calm_json_set_number(root, "seconds", set->seconds);
    *out = root;
    return status;
}

calm_status calm_ablation_report_json(calm_ctx *ctx, const calm_ablation_set *set)
{
    calm_json *root;
    calm_status status = as_json(ctx, set, &root);
    if (status == CALM_OK)
        status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}

/* ---- files ---- */

static calm_status make_json(calm_ctx *ctx, const calm_ablation_set *set, calm_text *out)
{
    calm_json *root;
    calm_status status = as_json(ctx, set, &root);
    if (status == CALM_OK)
        status = calm_json_write(ctx, root, 2, out);
    calm_text_append(out, "\n", 1);
    calm_json_free(root);
    return status;
}

static calm_status make_csv(calm_ctx *ctx, const calm_ablation_set *set, calm_text *out)
{
    calm_table table;
    calm_table_init(&table);
    add_data_columns(&table, true, set->of[0].encoder);
    for (size_t i = 0; i < set->n; i++)
        add_data_rows(&set->of[i], true, &table);
    const calm_status status = calm_table_write_csv(ctx, &table, out);
    calm_table_clear(&table);
    return status;
}

static calm_status make_markdown(calm_ctx *ctx, const calm_ablation_set *set, calm_text *out)
{
    const calm_recipe *recipe = set->recipe;
    calm_status status = CALM_OK;
    calm_text_printf(out, "# %s: ways of choosing\n\nCalibration: %s, %lld windows of %lld tokens", recipe->model.name,
                     recipe->calib_name, recipe->samples, recipe->seqlen);
    if (recipe->seed >= 0)
        calm_text_printf(out, " drawn with seed %lld", recipe->seed);
    calm_text_printf(out, ", scored on %lld, probed on %lld. Measured on %s.\n\n", recipe->score_windows,
                     recipe->probe_windows, recipe->eval_name);
    for (size_t i = 0; i < set->n && status == CALM_OK; i++)
        status = put_scheme(ctx, &set->of[i], true, out);
    return status;
}

static calm_status write_file(calm_ctx *ctx, const calm_ablation_set *set, const char *dir, const char *name,
                              calm_status (*make)(calm_ctx *, const calm_ablation_set *, calm_text *))
{
    calm_text text;
    char *path;
    calm_text_init(&text);
    calm_status status = make(ctx, set, &text);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = calm_path_join(ctx, ctx->scratch, &path, dir, name);
    if (status == CALM_OK)
        status = calm_write_file(ctx, path, text.data, text.length);
    calm_text_clear(&text);
    return status;
}

calm_status calm_ablation_report_target(calm_ctx *ctx, const char *dir, bool force)
{
    char *file;
    if (!calm_path_exists(dir))
        return CALM_OK;
    if (!force)
        return calm_fail(ctx, CALM_EEXIST, "%s: exists already; give another --output, or --force to replace it", dir);
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &file, dir, "ablation.json"));
    if (!calm_path_exists(file) && rmdir(dir) != 0)
        return calm_fail(ctx, CALM_EARG, "%s: exists and holds no ablation.json; --force does not replace it", dir);
    return CALM_OK;
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
