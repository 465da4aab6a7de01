/* Prints the report of a finished run. */
#include "cli/report.h"

#include <math.h>
#include <stdio.h>

#include "cli/print.h"
#include "cli/stages.h"
#include "ptq/choose/choose.h"
#include "ptq/export/rotate.h"
#include "ptq/finish/finish.h"
#include "ptq/forecast/forecast.h"

static calm_json *value_json(const calm_value *value)
{
    if (value->type == CALM_VALUE_INTEGER)
        return calm_json_of_int(value->integer);
    if (value->type == CALM_VALUE_REAL)
        return calm_json_of_number(value->real);
    return calm_json_of_string(value->type == CALM_VALUE_TEXT ? value->text : NULL);
}

/* A calm_store_row_fn: adds a unit to an array. */
static calm_status add_unit_json(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                                 const calm_value *values)
{
    (void)ctx;
    (void)names;
    if (!values)
        return CALM_OK;
    calm_json *row = calm_json_new_object();
    for (size_t i = 0; i < n; i++)
        calm_json_set(row, calm_summary_keys[i], value_json(&values[i]));
    calm_json_add(user, row);
    return CALM_OK;
}

/* Prints the block where massive activations emerge (docs/method.md section 2), or that there is none. */
static calm_status print_emergence(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    static const char sql[] = "SELECT emergence_block, largest_growth, max_block_out FROM v_emergence "
                              "WHERE model = ?1 AND calibration = ?2";
    const calm_value params[] = {calm_value_int(r->model_id), calm_value_int(r->calibration_id)};
    calm_value row[3];
    if (r->recipe->score_windows == 0) {
        calm_text_printf(out,
                         "  scores       not scored, as --score-samples 0 says; the inputs were not measured either\n");
        return CALM_OK;
    }
    if (r->recipe->unscored && !r->n_experts && !calm_recipe_needs_rows(r->recipe)) {
        calm_text_printf(out, "  scores       one candidate per unit, which needs no data: not scored, nor were the "
                              "inputs measured (--score-samples N does both)\n");
        return CALM_OK;
    }
    if (r->recipe->unscored)
        calm_text_printf(out, "  scores       one candidate per unit: not scored (--score-samples N scores it)\n");
    CALM_TRY(calm_store_query_one(ctx, r->store, sql, params, 2, row, 3));
    calm_text_printf(out, "  activations  block outputs up to |x| = %.1f; ", calm_value_as_real(&row[2]));
    if (row[0].type == CALM_VALUE_INTEGER)
        calm_text_printf(out, "massive ones emerge in block %lld\n", (long long)row[0].integer);
    else
        calm_text_printf(out, "no block multiplies them by 10, so none emerge\n");
    return CALM_OK;
}

/* Says which windows of the text the figures use, if the run's cost limited them. */
static void print_share(const calm_result *r, calm_text *out)
{
    if (r->evaluates && r->recipe->eval_windows < 0 && r->eval.n < r->eval.available)
        calm_text_printf(out, "  evaluation   %zu of the text's %zu windows, spread over it (--eval-samples 0: all)\n",
                         r->eval.n, r->eval.available);
}

/* Prints a row per rank if there were several: its work and its idle time. */
static calm_status print_ranks(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    CALM_SCOPED_TABLE(table);
    if (!r->n_ranks)
        return CALM_OK;
    calm_table_columns(&table, "#rank|machine|#blocks|#in s|#waiting for rows|#for rank 0|#idle s|#idle %");
    for (size_t i = 0; i < r->n_ranks; i++) {
        const calm_rank_facts *facts = &r->ranks[i];
        CALM_CELLS(&table, CALM_INT((int64_t)i), CALM_TEXT(facts->host), CALM_INT((int64_t)facts->blocks),
                   CALM_FIXED(facts->block_seconds, 1), CALM_FIXED(facts->row_seconds, 1),
                   CALM_FIXED(facts->asked_seconds, 1), CALM_FIXED(facts->idle_seconds, 1),
                   CALM_FIXED(100 * facts->idle_seconds / r->divided_seconds, 1));
    }
    calm_text_printf(out, "\n");
    return calm_table_write(ctx, &table, 2, out);
}

/* Returns the name of a budget's result. */
static calm_status pareto_name(calm_ctx *ctx, const calm_pareto *pareto, const char **out)
{
    return calm_trial_label(ctx, pareto->trials, pareto->n_trials, &pareto->trials[0].plan,
                             pareto->trials[pareto->result].name, out);
}

/* Prints a row per budget: its result, measured on the guard windows and on the test text. */
static calm_status print_pareto(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, r->encoder ? "#budget|#bits|result|#guard 1 - cosine|#rel. error|#1 - cosine|"
                                            "#rank correlation"
                                          : "#budget|#bits|result|#guard KL|#perplexity|#KL to float|#top-1 %");
    for (size_t i = 0; i < r->recipe->n_budgets; i++) {
        const calm_pareto *pareto = &r->pareto[i];
        const calm_trial *result = &pareto->trials[pareto->result], *test = &pareto->test;
        const char *name;
        CALM_TRY(pareto_name(ctx, pareto, &name));
        calm_table_format(&table, "%g", pareto->budget);
        const calm_eval_result *predictions = &test->measure.predictions;
        const calm_embedding_result *embeddings = &test->measure.embeddings;
        const double error = r->encoder ? embeddings->error : predictions->ppl;
        const double agreement = r->encoder ? embeddings->spearman : 100 * predictions->top1;
        CALM_CELLS(&table, CALM_FIXED(result->bits_per_weight, 4), CALM_TEXT(name),
                   CALM_FIXED(result->id ? calm_measure_loss(&result->measure) : NAN, 5),
                   CALM_FIXED(test->id ? error : NAN, 4),
                   CALM_FIXED(test->id ? calm_measure_loss(&test->measure) : NAN, 5),
                   CALM_FIXED(test->id ? agreement : NAN, r->encoder ? 4 : 2));
    }
    CALM_TRY(calm_table_write(ctx, &table, 2, out));
    for (size_t i = 0; i < r->recipe->n_budgets; i++)
        calm_text_printf(out, "  %g: %s\n", r->pareto[i].budget, r->pareto[i].verdict);
    if (r->evaluates)
        calm_text_printf(out, "  test text: %s, %zu windows of %zu tokens\n", r->recipe->eval_name, r->eval.n,
                         r->eval.longest);
    print_share(r, out);
    calm_text_printf(out, "\n  store        %s\n  time         %.1f s\n", r->recipe->store, r->seconds);
    CALM_TRY(print_ranks(ctx, r, out));
    calm_text_printf(out, "\n  next: the same command with one of the budgets writes its checkpoint; nothing is "
                          "computed again\n");
    return CALM_OK;
}

calm_status calm_report_evaluation(calm_ctx *ctx, const calm_formats *formats, const char *output,
                                   const char *reference, const char *before, calm_text *out)
{
    char *folder;
    CALM_TRY(calm_outputs_checkpoint(ctx, formats, output, &folder));
    if (!folder)
        return CALM_OK;
    calm_text_printf(out, "%s%s eval --model ", before, calm_program());
    calm_print_word(out, folder);
    calm_text_printf(out, " --reference ");
    calm_print_word(out, reference);
    calm_text_printf(out, "\n");
    return CALM_OK;
}

void calm_report_assembly(const calm_assembly *a, calm_text *out)
{
    calm_text_printf(out, "  result       run %lld: ", (long long)a->run.id);
    calm_summary_result(&a->result, out);
    calm_text_printf(out, ", %.4f bits per weight\n", a->result.bits_per_weight);
}

/* A command that generates text by transformers. */
#define PIPELINE                                                                                                       \
    "python3 -c 'import sys, transformers as t; "                                                                      \
    "print(t.pipeline(\"text-generation\", sys.argv[1])(\"Hello\", max_new_tokens=16))'"

/* Which experts transformers reads depends on the family, as `calm check` says; it ignores transforms of inputs. */
static bool is_in_transformers(const calm_result *r, const char *format)
{
    const calm_engine *engine = calm_engine_find("transformers");
    if (calm_rotate_is_online(r->recipe->rotate))
        return false;
    for (size_t i = 0; i < r->plan.n_jobs; i++)
        if (r->layout->jobs[i].expert >= 0)
            return false;
    return calm_engine_reads(engine, format) && calm_outputs_taken(r, engine, format);
}

static void add_line(const char *command, const char *place, const char *behind, calm_text *out)
{
    calm_text_printf(out, "        %s ", command);
    calm_print_word(out, place);
    calm_text_printf(out, "%s\n", behind);
}

/* Appends lines for each format that holds a model: the command to check it, and for decoders commands that run it in
 * engines. */
static calm_status print_engines(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    const calm_recipe *recipe = r->recipe;
    const calm_formats *formats = &recipe->formats;
    char *check, *target = "";
    CALM_TRY(calm_strf(ctx, ctx->scratch, &check, "%s check", calm_program()));
    if (!calm_engine_is_any(recipe->engine))
        CALM_TRY(calm_strf(ctx, ctx->scratch, &target, " --target %s", calm_engine_name(recipe->engine)));
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        const calm_exporter *exporter = calm_formats_at(formats, i);
        char *place, *name;
        CALM_TRY(calm_format_name(ctx, exporter, &name));
        if (!exporter->serve)
            continue;
        CALM_TRY(calm_outputs_place(ctx, formats, exporter, recipe->output, &place));
        add_line(check, place, calm_engine_reads(recipe->engine, name) ? target : "", out);
        if (calm_outputs_served(r, name))
            add_line(exporter->serve, place, "", out);
        if (r->loads.generates && is_in_transformers(r, name))
            add_line(PIPELINE, place, "", out);
    }
    return CALM_OK;
}

calm_status calm_report_print(calm_ctx *ctx, const calm_result *r, const calm_forecast *forecast, const char *lock)
{
    const calm_recipe *recipe = r->recipe;
    CALM_SCOPED_TEXT(text);
    CALM_SCOPED_TEXT(folded);
    calm_text_printf(&text, "\n");
    if (recipe->n_budgets > 1) {
        CALM_TRY(print_pareto(ctx, r, &text));
        return calm_print_text(ctx, &text);
    }
    calm_summary_verdict(r, &text);
    calm_text_printf(&text, "\n");
    if (calm_summary_tables(ctx, r, &text) == CALM_OK)
        calm_summary_gates(ctx, r, &text);
    calm_summary_size(r, &text);
    if (r->pareto)
        calm_text_printf(&text, "  sensitivity  of units by %s, which predict a loss of %.5f\n",
                         recipe->sensitivity == CALM_SENSITIVITY_GRADIENT ? "gradients" : "probes",
                         r->pareto[0].total.loss);
    double seconds = 0;
    if (r->learned.operations > 0 && !recipe->learn && ctx->status == CALM_OK)
        calm_forecast_learning(ctx, r, &seconds);
    calm_summary_learning(r, seconds, &text);
    if (ctx->status == CALM_OK)
        print_emergence(ctx, r, &text);
    print_share(r, &text);
    calm_text_printf(&text, "  checkpoint   %s\n  store        %s\n  recipe       %s/calm_recipe.json\n",
                     recipe->output, recipe->store, recipe->output);
    if (lock)
        calm_text_printf(&text, "  lock         %s\n", lock);
    calm_text_printf(&text, "  time         %.1f s", r->seconds);
    if (r->score_seconds > 0)
        calm_text_printf(&text, " (%.1f %% of it scoring)", 100 * r->score_seconds / ctx->n_threads / r->seconds);
    calm_text_printf(&text, "%s\n", r->n_cached ? "; candidates of the store were used" : "");
    if (ctx->status == CALM_OK)
        calm_stages_print(ctx, r, forecast, &text);
    if (ctx->status == CALM_OK)
        print_ranks(ctx, r, &text);
    calm_text_printf(&text, "\n");
    calm_summary_verdict(r, &text);
    if (calm_text_check(ctx, &text) == CALM_OK)
        calm_table_fold(ctx, text.data, &folded);
    /* Commands stay on one line, so that users can copy them. */
    calm_text_clear(&text);
    calm_text_printf(&text, "\n  next: %s inspect ", calm_program());
    calm_print_word(&text, recipe->store);
    calm_text_printf(&text, "\n        %s report --store ", calm_program());
    calm_print_word(&text, recipe->store);
    calm_text_printf(&text, "\n");
    calm_report_evaluation(ctx, &recipe->formats, recipe->output, recipe->model.name, "        ", &text);
    if (ctx->status == CALM_OK)
        print_engines(ctx, r, &text);
    if (calm_text_check(ctx, &text) == CALM_OK)
        calm_text_printf(&folded, "%s", text.data);
    return calm_print_text(ctx, &folded);
}

/* ---- JSON ---- */

static calm_json *measure_json(const calm_measure *measure)
{
    const calm_eval_result *predictions = &measure->predictions;
    const calm_embedding_result *embeddings = &measure->embeddings;
    if (measure->kind == CALM_STORE_EMBEDDINGS)
        return CALM_OBJECT(CALM_KV("sentences", embeddings->n), CALM_KV("error", embeddings->error),
                           CALM_KV("cosine", embeddings->cosine), CALM_KV("cosine_min", embeddings->cosine_min),
                           CALM_KV("spearman", embeddings->spearman));
    return CALM_OBJECT(CALM_KV("tokens", predictions->tokens), CALM_KV("nll", predictions->nll),
                       CALM_KV("ppl", predictions->ppl), CALM_KV("kl", predictions->kl),
                       CALM_KV("top1", predictions->top1));
}

/* Returns a decoder's figures, with the standard error of the divergence. */
static calm_json *result_json(const calm_result *r)
{
    double kl, error;
    calm_measure_compare(&r->eval_float, &r->eval_result, r->eval.n, &kl, &error);
    return CALM_EXTEND(measure_json(&r->eval_result), CALM_KV("kl_se", error));
}

/* The guard's key for a loss minus the hybrid's. */
static const char *delta_name(bool encoder)
{
    return encoder ? "delta_one_minus_cosine" : "delta_kl";
}

/* NULL: the guard's first windows were enough. */
static calm_json *more_json(const calm_trial_more *more, bool encoder)
{
    return more->windows ? CALM_EXTEND(measure_json(&more->measure), CALM_KV("windows", more->windows),
                                       CALM_KV(delta_name(encoder), more->delta), CALM_KV("delta_se", more->se)) : NULL;
}

/* Returns the rows of the guard's table. */
static calm_json *trials_json(calm_ctx *ctx, const calm_trial *trials, size_t n, bool encoder)
{
    calm_json *rows = calm_json_new_array();
    const char **names;
    if (calm_trial_labels(ctx, trials, n, &names) != CALM_OK)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        const calm_trial *trial = &trials[i];
        if (!names[i])
            continue;
        calm_json *row = trial->id ? measure_json(&trial->measure) : calm_json_new_object();
        calm_json_add(rows, CALM_EXTEND(row, CALM_KV("name", names[i]), CALM_KV("complete", (bool)(trial->id != 0)),
                                        CALM_KV("missing", trial->missing),
                                        CALM_KV("substituted", trial->substituted),
                                        CALM_KV("bits_per_weight", trial->bits_per_weight),
                                        CALM_KV("act_bits", trial->act_bits),
                                        CALM_KV(delta_name(encoder), trial->delta),
                                        CALM_KV("delta_se", trial->se),
                                        CALM_KV("more", more_json(&trial->more, encoder))));
    }
    return rows;
}

/* Returns the cost of the target for a budget's hybrid (NULL: a run without a budget); NULL: no target. */
static calm_json *target_json(const calm_result *r, const calm_pareto *pareto)
{
    if (!r->limits.takes)
        return NULL;
    return CALM_OBJECT(CALM_KV("name", calm_engine_name(r->limits.engine)),
                       CALM_KV("constrained_units", pareto ? pareto->total.held : 0),
                       CALM_KV("loss", pareto ? pareto->total.loss : NAN),
                       CALM_KV("loss_unconstrained", pareto ? pareto->total.unconstrained : NAN));
}

/* Returns the predicted loss of a budget's hybrid and the predictor's name; pareto NULL: a run without a budget. */
static calm_json *sensitivity_json(const calm_result *r, const calm_pareto *pareto)
{
    const bool gradient = r->recipe->sensitivity == CALM_SENSITIVITY_GRADIENT;
    return pareto ? CALM_OBJECT(CALM_KV("by", gradient ? "gradient" : "probe"),
                                CALM_KV("predicted_loss", pareto->total.loss)) : NULL;
}

static calm_json *budgets_json(calm_ctx *ctx, const calm_result *r)
{
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < r->recipe->n_budgets; i++) {
        const calm_pareto *pareto = &r->pareto[i];
        const calm_trial *result = &pareto->trials[pareto->result];
        const char *name = result->name;
        pareto_name(ctx, pareto, &name);
        calm_json_add(rows, CALM_OBJECT(
            CALM_KV("budget", pareto->budget), CALM_KV("bits_per_weight", result->bits_per_weight),
            CALM_KV("result", name), CALM_KV("verdict", pareto->verdict),
            CALM_KV("sensitivity", sensitivity_json(r, pareto)), CALM_KV("target", target_json(r, pareto)),
            CALM_KV("guard", trials_json(ctx, pareto->trials, pareto->n_trials, r->encoder)),
            CALM_KV("quantized", pareto->test.id ? measure_json(&pareto->test.measure) : NULL)));
    }
    return rows;
}

static calm_json *gates_json(const calm_result *r)
{
    calm_json *gates = calm_json_new_array();
    for (size_t i = 0; i < r->recipe->n_gates; i++)
        calm_json_add(gates, CALM_OBJECT(CALM_KV("gate", r->recipe->gates[i].text),
                                         CALM_KV("measured", r->gate_values[i]),
                                         CALM_KV("holds", calm_gate_holds(&r->recipe->gates[i], r->gate_values[i]))));
    return gates;
}

static calm_json *learning_json(const calm_result *r)
{
    const calm_learned_facts *facts = &r->learned;
    const double learned = (double)(facts->n - facts->kept);
    if (!r->recipe->learner)
        return NULL;
    return CALM_OBJECT(CALM_KV("blocks", facts->n), CALM_KV("unchanged_blocks", facts->kept),
                       CALM_KV("loss_before", facts->before / learned), CALM_KV("loss_after", facts->after / learned),
                       CALM_KV("changed_codes", facts->changed), CALM_KV("codes", facts->codes),
                       CALM_KV("seconds", facts->seconds));
}

static calm_json *tuning_json(const calm_result *r)
{
    const calm_learned_facts *facts = &r->tuned;
    const double tuned = (double)(facts->n - facts->kept);
    if (!facts->n)
        return NULL;
    return CALM_OBJECT(CALM_KV("blocks", facts->n), CALM_KV("unchanged_blocks", facts->kept),
                       CALM_KV(r->encoder ? "one_minus_cosine_before" : "kl_before", facts->before / tuned),
                       CALM_KV(r->encoder ? "one_minus_cosine_after" : "kl_after", facts->after / tuned),
                       CALM_KV("seconds", facts->seconds));
}

/* NULL if there is one rank. */
static calm_json *ranks_json(const calm_result *r)
{
    calm_json *rows = r->n_ranks ? calm_json_new_array() : NULL;
    for (size_t i = 0; i < r->n_ranks; i++) {
        const calm_rank_facts *facts = &r->ranks[i];
        calm_json_add(rows, CALM_OBJECT(
            CALM_KV("rank", i), CALM_KV("host", facts->host), CALM_KV("blocks", facts->blocks),
            CALM_KV("block_seconds", facts->block_seconds), CALM_KV("row_seconds", facts->row_seconds),
            CALM_KV("asked_seconds", facts->asked_seconds), CALM_KV("idle_seconds", facts->idle_seconds),
            CALM_KV("idle_share", facts->idle_seconds / r->divided_seconds)));
    }
    return rows;
}

calm_status calm_report_json(calm_ctx *ctx, const calm_result *r, const calm_forecast *forecast, const char *lock)
{
    if (r->recipe->n_budgets > 1)    /* no checkpoint; a row per budget */
        return calm_print_json(ctx, CALM_OBJECT(CALM_KV("run", r->run_id), CALM_KV("budgets", budgets_json(ctx, r)),
                                                CALM_KV("store", r->recipe->store), CALM_KV("seconds", r->seconds),
                                                CALM_KV("stages", calm_stages_json(ctx, r, NULL)),
                                                CALM_KV("ranks", ranks_json(r))));
    const char *name;
    CALM_TRY(calm_result_label(ctx, r, r->name, &name));
    calm_json *units = calm_json_new_array(), *before = NULL, *after = NULL, *text = NULL;
    calm_summary_units(ctx, r, add_unit_json, units);
    if (r->evaluates) {
        before = r->encoder ? NULL : measure_json(&r->eval_float);
        after = r->encoder ? measure_json(&r->eval_result) : result_json(r);
        text = CALM_OBJECT(CALM_KV("text", r->recipe->eval_name), CALM_KV("windows", r->eval.n),
                           CALM_KV("available", r->eval.available));
    }
    return calm_print_json(ctx, CALM_OBJECT(
        CALM_KV("run", r->run_id), CALM_KV("result", name), CALM_KV("verdict", r->verdict),
        CALM_KV("sensitivity", sensitivity_json(r, r->pareto)), CALM_KV("target", target_json(r, r->pareto)),
        CALM_KV("bits_per_weight", r->bits_per_weight),
        CALM_KV("bytes_before", r->bytes_before), CALM_KV("bytes_after", r->bytes_after),
        CALM_KV("tables", r->tables), CALM_KV("float", before),
        CALM_KV("quantized", after), CALM_KV("evaluation", text),
        CALM_KV("guard", trials_json(ctx, r->trials, r->guard.n ? r->n_trials : 0, r->encoder)),
        CALM_KV("learning", learning_json(r)), CALM_KV("tuning", tuning_json(r)), CALM_KV("units", units),
        CALM_KV("gates", r->recipe->n_gates ? gates_json(r) : NULL),
        CALM_KV("checkpoint", r->recipe->output), CALM_KV("store", r->recipe->store), CALM_KV("lock", lock),
        CALM_KV("candidates_from_store", r->n_cached), CALM_KV("seconds", r->seconds),
        CALM_KV("score_seconds", r->score_seconds), CALM_KV("stages", calm_stages_json(ctx, r, forecast)),
        CALM_KV("ranks", ranks_json(r))));
}
