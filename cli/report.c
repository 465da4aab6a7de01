/* The report of a finished run. */
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/print.h"
#include "ptq/run/summary.h"

static void set_value(calm_json *row, const char *key, const calm_value *value)
{
    if (value->type == CALM_VALUE_INTEGER)
        calm_json_set_int(row, key, value->integer);
    else if (value->type == CALM_VALUE_REAL)
        calm_json_set_number(row, key, value->real);
    else
        calm_json_set_string(row, key, value->type == CALM_VALUE_TEXT ? value->text : NULL);
}

/* The same row for programs. */
static calm_status add_unit_json(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                                 const calm_value *values)
{
    calm_json *row;
    (void)ctx;
    (void)names;
    if (!values)
        return CALM_OK;
    row = calm_json_new_object();
    for (size_t i = 0; i < n; i++)
        set_value(row, calm_summary_keys[i], &values[i]);
    calm_json_add(user, row);
    return CALM_OK;
}

/* Where massive activations begin (docs/method.md section 2), or that they do not. */
static calm_status print_emergence(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    static const char sql[] = "SELECT emergence_block, largest_growth, max_block_out FROM v_emergence "
                              "WHERE model = ?1 AND calibration = ?2";
    const calm_value params[] = {calm_value_int(r->model_id), calm_value_int(r->calibration_id)};
    calm_value row[3];
    CALM_TRY(calm_store_query_one(ctx, r->store, sql, params, 2, row, 3));
    calm_text_printf(out, "  activations  block outputs up to |x| = %.1f; ", calm_value_as_real(&row[2]));
    if (row[0].type == CALM_VALUE_INTEGER)
        calm_text_printf(out, "massive ones emerge in block %lld\n", (long long)row[0].integer);
    else
        calm_text_printf(out, "no block multiplies them by 10, so none emerge\n");
    return CALM_OK;
}

/* One row per budget: what holds within it, on the guard windows and on the test text. */
static calm_status print_pareto(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    calm_table table;
    calm_table_init(&table);
    calm_table_column(&table, "budget", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "bits", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "result", CALM_ALIGN_LEFT);
    calm_table_column(&table, r->encoder ? "guard 1 - cosine" : "guard KL", CALM_ALIGN_RIGHT);
    calm_table_column(&table, r->encoder ? "rel. error" : "perplexity", CALM_ALIGN_RIGHT);
    calm_table_column(&table, r->encoder ? "1 - cosine" : "KL to float", CALM_ALIGN_RIGHT);
    calm_table_column(&table, r->encoder ? "rank correlation" : "top-1 %", CALM_ALIGN_RIGHT);
    for (size_t i = 0; i < r->recipe->n_budgets; i++) {
        const calm_pareto *pareto = &r->pareto[i];
        const calm_trial *result = &pareto->trials[pareto->result], *test = &pareto->test;
        calm_table_format(&table, "%g", pareto->budget);
        calm_table_fixed(&table, result->bits_per_weight, 4);
        calm_table_text(&table, result->name);
        const calm_eval_result *predictions = &test->measure.predictions;
        const calm_embedding_result *embeddings = &test->measure.embeddings;
        calm_table_fixed(&table, result->id ? calm_measure_loss(&result->measure) : NAN, 5);
        calm_table_fixed(&table, !test->id ? NAN : r->encoder ? embeddings->error : predictions->ppl, 4);
        calm_table_fixed(&table, test->id ? calm_measure_loss(&test->measure) : NAN, 5);
        calm_table_fixed(&table, !test->id ? NAN : r->encoder ? embeddings->spearman : 100 * predictions->top1,
                         r->encoder ? 4 : 2);
    }
    const calm_status status = calm_table_write(ctx, &table, 2, out);
    calm_table_clear(&table);
    for (size_t i = 0; i < r->recipe->n_budgets; i++)
        calm_text_printf(out, "  %g: %s\n", r->pareto[i].budget, r->pareto[i].verdict);
    if (r->evaluates)
        calm_text_printf(out, "  test text: %s, %zu windows of %zu tokens\n", r->recipe->eval_name, r->eval.n,
                         r->eval.longest);
    calm_text_printf(out,
                     "\n  store        %s\n  time         %.1f s\n\n  next: the same command with one of the budgets "
                     "writes its checkpoint; nothing is computed again\n",
                     r->recipe->store, r->seconds);
    return status;
}

/* Print what was gathered, and release it. */
static calm_status finish_print(calm_ctx *ctx, calm_status status, calm_text *text)
{
    if (status == CALM_OK)
        status = calm_text_check(ctx, text);
    if (status == CALM_OK)
        fputs(text->data, stdout);
    calm_text_clear(text);
    return status;
}

calm_status calm_report_print(calm_ctx *ctx, const calm_result *r, const char *lock)
{
    const calm_recipe *recipe = r->recipe;
    calm_text text;
    calm_text_init(&text);
    calm_text_printf(&text, "\n");
    if (recipe->n_budgets > 1)
        return finish_print(ctx, print_pareto(ctx, r, &text), &text);
    calm_status status = calm_summary_tables(ctx, r, &text);
    if (status == CALM_OK)
        status = calm_summary_gates(ctx, r, &text);
    calm_summary_size(r, &text);
    if (status == CALM_OK)
        status = print_emergence(ctx, r, &text);
    calm_text_printf(&text, "  checkpoint   %s\n  store        %s\n  recipe       %s/calm_recipe.json\n",
                     recipe->output, recipe->store, recipe->output);
    if (lock)
        calm_text_printf(&text, "  lock         %s\n", lock);
    calm_text_printf(&text, "  time         %.1f s (%.1f %% of it scoring)%s\n", r->seconds,
                     100 * r->score_seconds / ctx->n_threads / r->seconds,
                     r->n_cached ? "; candidates of the store were used" : "");
    if (recipe->model.note)
        calm_text_printf(&text, "\n  %s\n", recipe->model.note);
    const char *calm = calm_program();
    calm_text_printf(&text, "\n  next: %s inspect %s\n        sqlite3 %s 'select * from v_choices'\n"
                            "        %s eval --model %s --reference %s --text FILE\n",
                     calm, recipe->store, recipe->store, calm, recipe->output, recipe->model.name);
    return finish_print(ctx, status, &text);
}

/* ---- JSON ---- */

static calm_json *predictions_json(const calm_eval_result *result)
{
    calm_json *row = calm_json_new_object();
    calm_json_set_int(row, "tokens", (int64_t)result->tokens);
    calm_json_set_number(row, "nll", result->nll);
    calm_json_set_number(row, "ppl", result->ppl);
    calm_json_set_number(row, "kl", result->kl);
    calm_json_set_number(row, "top1", result->top1);
    return row;
}

static calm_json *embeddings_json(const calm_embedding_result *result)
{
    calm_json *row = calm_json_new_object();
    calm_json_set_int(row, "sentences", (int64_t)result->n);
    calm_json_set_number(row, "error", result->error);
    calm_json_set_number(row, "cosine", result->cosine);
    calm_json_set_number(row, "cosine_min", result->cosine_min);
    calm_json_set_number(row, "spearman", result->spearman);
    return row;
}

static calm_json *measure_json(const calm_measure *measure)
{
    return measure->kind == CALM_STORE_EMBEDDINGS ? embeddings_json(&measure->embeddings)
                                                  : predictions_json(&measure->predictions);
}

static calm_json *trials_json(const calm_trial *trials, size_t n, bool encoder)
{
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < n; i++) {
        const calm_trial *trial = &trials[i];
        calm_json *object = trial->id ? measure_json(&trial->measure) : calm_json_new_object();
        calm_json_set_string(object, "name", trial->name);
        calm_json_set_bool(object, "complete", trial->id != 0);
        calm_json_set_string(object, "lacks", trial->missing);
        calm_json_set_number(object, "bits_per_weight", trial->bits_per_weight);
        calm_json_set_number(object, encoder ? "delta_one_minus_cosine" : "delta_kl", trial->delta);
        calm_json_set_number(object, "delta_se", trial->se);
        calm_json_add(rows, object);
    }
    return rows;
}

/* What the target cost a budget's hybrid, or a run without one. */
static void set_target(const calm_result *r, const calm_pareto *pareto, calm_json *root)
{
    if (!r->limits.takes)
        return;
    calm_json *target = calm_json_new_object();
    calm_json_set_string(target, "name", calm_engine_name(r->limits.target));
    calm_json_set_int(target, "held_back", pareto ? (int64_t)pareto->total.held : 0);
    calm_json_set_number(target, "loss", pareto ? pareto->total.loss : NAN);
    calm_json_set_number(target, "loss_unconstrained", pareto ? pareto->total.unconstrained : NAN);
    calm_json_set(root, "target", target);
}

static calm_json *budgets_json(const calm_result *r)
{
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < r->recipe->n_budgets; i++) {
        const calm_pareto *pareto = &r->pareto[i];
        const calm_trial *result = &pareto->trials[pareto->result];
        calm_json *row = calm_json_new_object();
        calm_json_set_number(row, "budget", pareto->budget);
        calm_json_set_number(row, "bits_per_weight", result->bits_per_weight);
        calm_json_set_string(row, "result", result->name);
        calm_json_set_string(row, "verdict", pareto->verdict);
        set_target(r, pareto, row);
        calm_json_set(row, "guard", trials_json(pareto->trials, pareto->n_trials, r->encoder));
        if (pareto->test.id)
            calm_json_set(row, "quantized", measure_json(&pareto->test.measure));
        calm_json_add(rows, row);
    }
    return rows;
}

/* Several budgets: no checkpoint, one row each. */
static calm_status print_budgets_json(calm_ctx *ctx, const calm_result *r)
{
    calm_json *root = calm_json_new_object();
    calm_json_set_int(root, "run", r->run_id);
    calm_json_set(root, "budgets", budgets_json(r));
    calm_json_set_string(root, "store", r->recipe->store);
    calm_json_set_number(root, "seconds", r->seconds);
    const calm_status status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}

static calm_json *gates_json(const calm_result *r)
{
    calm_json *gates = calm_json_new_array();
    for (size_t i = 0; i < r->recipe->n_gates; i++) {
        calm_json *row = calm_json_new_object();
        calm_json_set_string(row, "gate", r->recipe->gates[i].text);
        calm_json_set_number(row, "measured", r->gate_values[i]);
        calm_json_set_bool(row, "holds", calm_gate_holds(&r->recipe->gates[i], r->gate_values[i]));
        calm_json_add(gates, row);
    }
    return gates;
}

calm_status calm_report_json(calm_ctx *ctx, const calm_result *r, const char *lock)
{
    if (r->recipe->n_budgets > 1)
        return print_budgets_json(ctx, r);
    calm_json *root = calm_json_new_object(), *units = calm_json_new_array();
    calm_status status = calm_summary_units(ctx, r, add_unit_json, units);
    calm_json_set_int(root, "run", r->run_id);
    calm_json_set_string(root, "result", r->name);
    calm_json_set_string(root, "verdict", r->verdict);
    set_target(r, r->pareto, root);
    calm_json_set_number(root, "bits_per_weight", r->bits_per_weight);
    calm_json_set_int(root, "bytes_before", r->bytes_before);
    calm_json_set_int(root, "bytes_after", r->bytes_after);
    if (r->evaluates) {
        if (!r->encoder)
            calm_json_set(root, "float", measure_json(&r->eval_float));
        calm_json_set(root, "quantized", measure_json(&r->eval_result));
    }
    calm_json_set(root, "guard", trials_json(r->trials, r->guard.n ? r->n_trials : 0, r->encoder));
    calm_json_set(root, "units", units);
    if (r->recipe->n_gates)
        calm_json_set(root, "gates", gates_json(r));
    calm_json_set_string(root, "checkpoint", r->recipe->output);
    calm_json_set_string(root, "store", r->recipe->store);
    calm_json_set_string(root, "lock", lock);
    calm_json_set_int(root, "candidates_from_store", (int64_t)r->n_cached);
    calm_json_set_number(root, "seconds", r->seconds);
    calm_json_set_number(root, "score_seconds", r->score_seconds);
    if (status == CALM_OK)
        status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}
