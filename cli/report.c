/* The report of a finished run. */
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/table.h"
#include "ptq/model/arch.h"

/* ---- units ---- */

/* One row per unit, with the places of the activation maxima as the store knows them. */
static const char units_sql[] =
    "SELECT c.unit, j.name, coalesce(a.name, 'float'), s1.value, s2.value, s3.value, p.value, p.text, p.channel, p.window, "
    "p.token,"
    " x.crest_median, k.bits_per_weight, coalesce(c.advice || CASE WHEN c.disagrees THEN ' (differs)' ELSE '' END, ''), c.reason"
    " FROM choice c JOIN run r ON r.id = c.run_id JOIN job j ON j.id = c.job_id JOIN block b ON b.id = j.block_id"
    " LEFT JOIN candidate k ON k.id = c.candidate_id LEFT JOIN algorithm a ON a.id = k.algorithm_id"
    " LEFT JOIN score s1 ON s1.candidate_id = k.id AND s1.unit = r.unit AND s1.metric = 'cka'"
    " LEFT JOIN score s2 ON s2.candidate_id = k.id AND s2.unit = r.unit AND s2.metric = 'cka_token'"
    " LEFT JOIN score s3 ON s3.candidate_id = k.id AND s3.unit = r.unit AND s3.metric = 'rel_mse'"
    " LEFT JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id AND x.hook = "
    "j.input_hook"
    " LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1"
    " WHERE c.run_id = ?1 ORDER BY b.number, j.position";

enum { UNIT, JOB, ALGORITHM, CKA, CKA_TOKEN, REL_MSE, PEAK, PEAK_TEXT, CHANNEL, WINDOW, POSITION, CREST, BITS, ADVICE, REASON };

static double number(const calm_value *value)
{
    return value->type == CALM_VALUE_REAL      ? value->real
           : value->type == CALM_VALUE_INTEGER ? (double)value->integer
                                               : NAN;
}

/* "model.layers.0.qkv" without what all rows share. */
static const char *short_unit(const char *unit)
{
    for (const char *at = unit; at; at = strchr(at, '.'), at = at ? at + 1 : NULL)
        if (*at >= '0' && *at <= '9')
            return at;
    return unit;
}

/* The table of units as it grows. */
typedef struct units_rows {
    calm_table *table;
    bool bits;    /* jobs differ in their bits */
} units_rows;

/* A row for people: what was chosen, how near it is, what its input looks like. */
static calm_status add_unit(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    const units_rows *rows = user;
    calm_table *table = rows->table;
    (void)ctx;
    (void)n;
    (void)names;
    if (!values)
        return CALM_OK;
    calm_table_text(table, short_unit(values[JOB].text));
    calm_table_text(table, values[ALGORITHM].text);
    calm_table_scientific(table, number(&values[CKA]), 2);
    calm_table_scientific(table, number(&values[CKA_TOKEN]), 2);
    calm_table_scientific(table, number(&values[REL_MSE]), 2);
    calm_table_fixed(table, number(&values[PEAK]), 2);
    if (values[PEAK].type == CALM_VALUE_NULL)
        calm_table_empty(table);
    else
        calm_table_format(table, "\"%s\" %lld:%lld, channel %lld",
                          values[PEAK_TEXT].text ? values[PEAK_TEXT].text : "?", (long long)values[WINDOW].integer,
                          (long long)values[POSITION].integer, (long long)values[CHANNEL].integer);
    calm_table_fixed(table, number(&values[CREST]), 1);
    if (rows->bits)
        calm_table_fixed(table, number(&values[BITS]), 3);
    calm_table_text(table, values[ADVICE].text);
    return CALM_OK;
}

static bool is_expert(const char *unit)
{
    return strstr(unit, ".experts.") != NULL;
}

/* Experts are too many for a row each. */
static calm_status add_dense_unit(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                                  const calm_value *values)
{
    return values && is_expert(values[JOB].text) ? CALM_OK : add_unit(ctx, user, n, names, values);
}

static calm_status units_table(calm_ctx *ctx, const calm_pipeline *p, calm_table *table)
{
    const calm_value run = calm_value_int(p->run_id);
    units_rows rows = {table, p->recipe->n_schemes > 1};
    calm_table_column(table, p->recipe->selection.unit == CALM_UNIT_JOB ? "unit" : "job", CALM_ALIGN_LEFT);
    calm_table_column(table, "algorithm", CALM_ALIGN_LEFT);
    calm_table_column(table, "1-CKA", CALM_ALIGN_RIGHT);
    calm_table_column(table, "1-CKA token", CALM_ALIGN_RIGHT);
    calm_table_column(table, "rel. error", CALM_ALIGN_RIGHT);
    calm_table_column(table, "max |x|", CALM_ALIGN_RIGHT);
    calm_table_column(table, "at token, window:position", CALM_ALIGN_LEFT);
    calm_table_column(table, "crest", CALM_ALIGN_RIGHT);
    if (rows.bits)
        calm_table_column(table, "bits", CALM_ALIGN_RIGHT);
    calm_table_column(table, p->recipe->schemes[0].act_bits ? "advice" : "", CALM_ALIGN_LEFT);
    return calm_store_query(ctx, p->store, units_sql, &run, 1, add_dense_unit, &rows);
}

/* ---- experts ---- */

/* One row per block, kind of job and chosen algorithm. */
static const char experts_sql[] = "SELECT block, replace(substr(job, instr(substr(job, 9), '.') + 9), '.', ''), "
                                  "algorithm, count(*), min(tokens), max(tokens)"
                                  " FROM v_experts WHERE run = ?1 GROUP BY 1, 2, 3 ORDER BY 1, 2 DESC, 4 DESC";

static calm_status add_experts(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    calm_table *table = user;
    (void)ctx;
    (void)n;
    (void)names;
    if (!values)
        return CALM_OK;
    calm_table_int(table, values[0].integer);
    calm_table_text(table, values[1].text);
    calm_table_text(table, values[2].text);
    for (size_t i = 3; i < 6; i++)
        calm_table_int(table, values[i].integer);
    return CALM_OK;
}

static calm_status write_experts(calm_ctx *ctx, const calm_pipeline *p, calm_text *out)
{
    const calm_value run = calm_value_int(p->run_id);
    calm_table table;
    if (!calm_model_config(p->model)->moe.n_experts)
        return CALM_OK;
    calm_table_init(&table);
    calm_table_column(&table, "block", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "experts' job", CALM_ALIGN_LEFT);
    calm_table_column(&table, "algorithm", CALM_ALIGN_LEFT);
    calm_table_column(&table, "experts", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "fewest tokens", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "most", CALM_ALIGN_RIGHT);
    calm_status status = calm_store_query(ctx, p->store, experts_sql, &run, 1, add_experts, &table);
    if (status == CALM_OK)
        status = calm_table_write(ctx, &table, 2, out);
    calm_table_clear(&table);
    calm_text_printf(out,
                     "  \"rtn for X\": fewer than %zu tokens were routed to the expert, so X was not run on it\n\n",
                     calm_recipe_least_tokens(p->recipe));
    return status;
}

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
    static const char *const keys[] = {"unit", "job", "algorithm", "cka", "cka_token", "rel_mse", "activation_max", "token",
                                       "channel", "window", "position", "crest", "bits", "advice", "reason"};
    calm_json *row;
    (void)ctx;
    (void)names;
    if (!values)
        return CALM_OK;
    row = calm_json_new_object();
    for (size_t i = 0; i < n; i++)
        set_value(row, keys[i], &values[i]);
    calm_json_add(user, row);
    return CALM_OK;
}

/* ---- guard and evaluation ---- */

/* Names of the recipe's schemes. */
static void print_schemes(const calm_pipeline *p, calm_text *out)
{
    char name[CALM_SCHEME_NAME_MAX];
    for (size_t i = 0; i < p->recipe->n_schemes; i++) {
        calm_scheme_name(&p->recipe->schemes[i], name);
        calm_text_printf(out, "%s%s", i ? ", " : "", name);
    }
}

static void guard_table(const calm_pipeline *p, calm_table *table)
{
    calm_table_column(table, "guard windows", CALM_ALIGN_LEFT);
    calm_table_column(table, calm_pipeline_encodes(p) ? "1 - cosine" : "KL", CALM_ALIGN_RIGHT);
    calm_table_column(table, "minus hybrid", CALM_ALIGN_RIGHT);
    calm_table_column(table, "+- std. error", CALM_ALIGN_RIGHT);
    calm_table_column(table, calm_pipeline_encodes(p) ? "rank correlation" : "perplexity", CALM_ALIGN_RIGHT);
    for (size_t i = 0; i < p->n_trials; i++) {
        const calm_trial *trial = &p->trials[i];
        calm_table_text(table, trial->name);
        calm_table_fixed(table, trial->id ? trial->eval.kl : NAN, 5);
        if (trial->id && !isnan(trial->delta))
            calm_table_format(table, "%+.5f", trial->delta);
        else
            calm_table_text(table, trial->lacks ? "a job failed" : NULL);
        calm_table_fixed(table, trial->id ? trial->se : NAN, 5);
        calm_table_fixed(table, !trial->id ? NAN : calm_pipeline_encodes(p) ? trial->eval.top1 : trial->eval.ppl, 4);
    }
}

/* An encoder's sentence embeddings. */
static void encoding_table(const calm_pipeline *p, calm_table *table)
{
    const calm_embedding_result *e = &p->eval_encoding;
    calm_table_column(table, "test text", CALM_ALIGN_LEFT);
    calm_table_column(table, "cosine to float", CALM_ALIGN_RIGHT);
    calm_table_column(table, "least", CALM_ALIGN_RIGHT);
    calm_table_column(table, "rel. error", CALM_ALIGN_RIGHT);
    calm_table_column(table, "rank correlation", CALM_ALIGN_RIGHT);
    calm_table_text(table, p->result_name);
    calm_table_fixed(table, e->cosine, 6);
    calm_table_fixed(table, e->cosine_min, 6);
    calm_table_fixed(table, e->error, 6);
    calm_table_fixed(table, e->spearman, 6);
}

static void evaluation_table(const calm_pipeline *p, calm_table *table)
{
    if (calm_pipeline_encodes(p)) {
        encoding_table(p, table);
        return;
    }
    calm_table_column(table, "test text", CALM_ALIGN_LEFT);
    calm_table_column(table, "perplexity", CALM_ALIGN_RIGHT);
    calm_table_column(table, "KL to float", CALM_ALIGN_RIGHT);
    calm_table_column(table, "top-1 %", CALM_ALIGN_RIGHT);
    calm_table_text(table, "float");
    calm_table_fixed(table, p->eval_float.ppl, 4);
    calm_table_fixed(table, 0, 5);
    calm_table_empty(table);
    calm_table_text(table, p->result_name);
    calm_table_fixed(table, p->eval_result.ppl, 4);
    calm_table_fixed(table, p->eval_result.kl, 5);
    calm_table_fixed(table, 100 * p->eval_result.top1, 2);
}

/* Units, guard and evaluation, each as far as the run has it. */
static calm_status write_tables(calm_ctx *ctx, const calm_pipeline *p, calm_text *out)
{
    calm_table units, guard, evaluation;
    calm_table_init(&units);
    calm_table_init(&guard);
    calm_table_init(&evaluation);
    calm_status status = units_table(ctx, p, &units);
    if (status == CALM_OK)
        status = calm_table_write(ctx, &units, 2, out);
    calm_text_printf(out, "\n");
    if (status == CALM_OK)
        status = write_experts(ctx, p, out);
    if (status == CALM_OK && p->guard.n) {
        guard_table(p, &guard);
        status = calm_table_write(ctx, &guard, 2, out);
    }
    for (size_t i = 0; i < p->n_trials && p->guard.n; i++)
        if (p->trials[i].lacks)
            calm_text_printf(out, "  no %s: %s\n", p->trials[i].name, p->trials[i].lacks);
    calm_text_printf(out, "  %s\n\n", p->verdict);
    if (status == CALM_OK && p->evaluates) {
        evaluation_table(p, &evaluation);
        status = calm_table_write(ctx, &evaluation, 2, out);
        calm_text_printf(out, "  %s, %zu windows of %zu tokens\n\n", p->recipe->eval_name, p->eval.n, p->eval.longest);
    }
    calm_table_clear(&units);
    calm_table_clear(&guard);
    calm_table_clear(&evaluation);
    return status;
}

/* How often each algorithm was chosen: "mkq-full 20, gptq-hls 4". */
static void print_counts(const calm_pipeline *p, calm_text *out)
{
    size_t listed = 0;
    for (size_t a = 0; a < p->recipe->n_pool; a++) {
        const char *name = p->recipe->pool[a].name;
        size_t n = 0;
        for (size_t i = 0; i < p->result.n_jobs; i++)
            n += p->result.jobs[i].algorithm && strcmp(p->result.jobs[i].algorithm, name) == 0;
        if (n)
            calm_text_printf(out, "%s%s %zu", listed++ ? ", " : "", name, n);
    }
}

/* Where massive activations begin (docs/method.md section 2), or that they do not. */
static calm_status print_emergence(calm_ctx *ctx, const calm_pipeline *p, calm_text *out)
{
    static const char sql[] = "SELECT emergence_block, largest_growth, max_block_out FROM v_emergence "
                              "WHERE model = ?1 AND calibration = ?2";
    const calm_value params[] = {calm_value_int(p->model_id), calm_value_int(p->calibration_id)};
    calm_value row[3];
    CALM_TRY(calm_store_query_one(ctx, p->store, sql, params, 2, row, 3));
    calm_text_printf(out, "  activations  block outputs up to |x| = %.1f; ", number(&row[2]));
    if (row[0].type == CALM_VALUE_INTEGER)
        calm_text_printf(out, "massive ones emerge in block %lld\n", (long long)row[0].integer);
    else
        calm_text_printf(out, "no block multiplies them by 10, so none emerge\n");
    return CALM_OK;
}

static void print_size(const calm_pipeline *p, calm_text *out)
{
    size_t n_units = 0;
    for (size_t job = 0, end; job < p->result.n_jobs; job = end) {
        size_t begin;
        calm_layout_unit(calm_model_layout(p->model), p->recipe->selection.unit, job, &begin, &end);
        n_units += p->result.jobs[job].quantized;
    }
    calm_text_printf(out, "  result       %s: ", p->result_name);
    print_counts(p, out);
    calm_text_printf(out, " (%zu units)\n  scheme       ", n_units);
    print_schemes(p, out);
    calm_text_printf(out, ", %.3f bits per weight with scales (the quantized linears)\n", p->bits_per_weight);
    calm_text_printf(out, "  size         %.2f MiB -> %.2f MiB (%.1f %%)\n", (double)p->bytes_before / 1048576.0,
                     (double)p->bytes_after / 1048576.0, 100.0 * (double)p->bytes_after / (double)p->bytes_before);
}

/* One line per gate of the recipe. */
static calm_status write_gates(calm_ctx *ctx, const calm_pipeline *p, calm_text *out)
{
    calm_table table;
    if (!p->recipe->n_gates || !p->gate_values)
        return CALM_OK;
    calm_table_init(&table);
    calm_table_column(&table, "gate", CALM_ALIGN_LEFT);
    calm_table_column(&table, "measured", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "holds", CALM_ALIGN_LEFT);
    for (size_t i = 0; i < p->recipe->n_gates; i++) {
        calm_table_text(&table, p->recipe->gates[i].text);
        calm_table_format(&table, "%.6g", p->gate_values[i]);
        calm_table_text(&table, calm_gate_holds(&p->recipe->gates[i], p->gate_values[i]) ? "yes" : "no");
    }
    const calm_status status = calm_table_write(ctx, &table, 2, out);
    calm_table_clear(&table);
    calm_text_printf(out, "\n");
    return status;
}

/* One row per budget: what holds within it, on the guard windows and on the test text. */
static calm_status print_pareto(calm_ctx *ctx, const calm_pipeline *p, calm_text *out)
{
    calm_table table;
    calm_table_init(&table);
    calm_table_column(&table, "budget", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "bits", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "result", CALM_ALIGN_LEFT);
    calm_table_column(&table, "guard KL", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "perplexity", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "KL to float", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "top-1 %", CALM_ALIGN_RIGHT);
    for (size_t i = 0; i < p->recipe->n_budgets; i++) {
        const calm_pareto *pareto = &p->pareto[i];
        const calm_trial *result = &pareto->trials[pareto->result], *test = &pareto->test;
        calm_table_format(&table, "%g", pareto->budget);
        calm_table_fixed(&table, result->bits_per_weight, 4);
        calm_table_text(&table, result->name);
        calm_table_fixed(&table, result->id ? result->eval.kl : NAN, 5);
        calm_table_fixed(&table, test->id ? test->eval.ppl : NAN, 4);
        calm_table_fixed(&table, test->id ? test->eval.kl : NAN, 5);
        calm_table_fixed(&table, test->id ? 100 * test->eval.top1 : NAN, 2);
    }
    const calm_status status = calm_table_write(ctx, &table, 2, out);
    calm_table_clear(&table);
    for (size_t i = 0; i < p->recipe->n_budgets; i++)
        calm_text_printf(out, "  %g: %s\n", p->pareto[i].budget, p->pareto[i].verdict);
    if (p->evaluates)
        calm_text_printf(out, "  test text: %s, %zu windows of %zu tokens\n", p->recipe->eval_name, p->eval.n,
                         p->eval.longest);
    calm_text_printf(out, "\n  store        %s\n  time         %.1f s\n\n  next: the same command with one of the budgets "
                          "writes its checkpoint; nothing is computed again\n", p->recipe->store, p->seconds);
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

calm_status calm_report_print(calm_ctx *ctx, const calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    calm_text text;
    calm_text_init(&text);
    calm_text_printf(&text, "\n");
    if (recipe->n_budgets > 1)
        return finish_print(ctx, print_pareto(ctx, p, &text), &text);
    calm_status status = write_tables(ctx, p, &text);
    if (status == CALM_OK)
        status = write_gates(ctx, p, &text);
    print_size(p, &text);
    if (status == CALM_OK)
        status = print_emergence(ctx, p, &text);
    calm_text_printf(&text, "  checkpoint   %s\n  store        %s\n  recipe       %s/calm_recipe.json\n",
                     recipe->output, recipe->store, recipe->output);
    if (recipe->lock)
        calm_text_printf(&text, "  lock         %s\n", recipe->lock);
    calm_text_printf(&text, "  time         %.1f s (%.1f %% of it scoring)%s\n", p->seconds,
                     100 * p->score_seconds / ctx->n_threads / p->seconds,
                     p->n_cached ? "; candidates of the store were used" : "");
    if (recipe->model.note)
        calm_text_printf(&text, "\n  %s\n", recipe->model.note);
    const char *calm = calm_program();
    calm_text_printf(&text, "\n  next: %s inspect %s\n        sqlite3 %s 'select * from v_choices'\n"
                            "        %s eval --model %s --reference %s --text FILE\n",
                     calm, recipe->store, recipe->store, calm, recipe->output, recipe->model.name);
    return finish_print(ctx, status, &text);
}

/* ---- JSON ---- */

static calm_json *evaluation_json(const calm_eval_result *result)
{
    calm_json *row = calm_json_new_object();
    calm_json_set_int(row, "tokens", (int64_t)result->tokens);
    calm_json_set_number(row, "nll", result->nll);
    calm_json_set_number(row, "ppl", result->ppl);
    calm_json_set_number(row, "kl", result->kl);
    calm_json_set_number(row, "top1", result->top1);
    return row;
}

static calm_json *encoding_json(const calm_embedding_result *result)
{
    calm_json *row = calm_json_new_object();
    calm_json_set_int(row, "sentences", (int64_t)result->n);
    calm_json_set_number(row, "error", result->error);
    calm_json_set_number(row, "cosine", result->cosine);
    calm_json_set_number(row, "cosine_min", result->cosine_min);
    calm_json_set_number(row, "spearman", result->spearman);
    return row;
}

static calm_json *trials_json(const calm_trial *trials, size_t n)
{
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < n; i++) {
        const calm_trial *trial = &trials[i];
        calm_json *object = trial->id ? evaluation_json(&trial->eval) : calm_json_new_object();
        calm_json_set_string(object, "name", trial->name);
        calm_json_set_bool(object, "complete", trial->id != 0);
        calm_json_set_string(object, "lacks", trial->lacks);
        calm_json_set_number(object, "bits_per_weight", trial->bits_per_weight);
        calm_json_set_number(object, "delta_kl", trial->delta);
        calm_json_set_number(object, "delta_se", trial->se);
        calm_json_add(rows, object);
    }
    return rows;
}

/* What the target cost a budget's hybrid, or a run without one. */
static void set_target(const calm_pipeline *p, const calm_pareto *pareto, calm_json *root)
{
    if (!p->constraint.takes)
        return;
    calm_json *target = calm_json_new_object();
    calm_json_set_string(target, "name", calm_engine_name(p->constraint.target));
    calm_json_set_int(target, "held_back", pareto ? (int64_t)pareto->total.held : 0);
    calm_json_set_number(target, "loss", pareto ? pareto->total.loss : NAN);
    calm_json_set_number(target, "loss_unconstrained", pareto ? pareto->total.unconstrained : NAN);
    calm_json_set(root, "target", target);
}

static calm_json *budgets_json(const calm_pipeline *p)
{
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < p->recipe->n_budgets; i++) {
        const calm_pareto *pareto = &p->pareto[i];
        const calm_trial *result = &pareto->trials[pareto->result];
        calm_json *row = calm_json_new_object();
        calm_json_set_number(row, "budget", pareto->budget);
        calm_json_set_number(row, "bits_per_weight", result->bits_per_weight);
        calm_json_set_string(row, "result", result->name);
        calm_json_set_string(row, "verdict", pareto->verdict);
        set_target(p, pareto, row);
        calm_json_set(row, "guard", trials_json(pareto->trials, pareto->n_trials));
        if (pareto->test.id)
            calm_json_set(row, "quantized", evaluation_json(&pareto->test.eval));
        calm_json_add(rows, row);
    }
    return rows;
}

/* Several budgets: no checkpoint, one row each. */
static calm_status print_budgets_json(calm_ctx *ctx, const calm_pipeline *p)
{
    calm_json *root = calm_json_new_object();
    calm_json_set_int(root, "run", p->run_id);
    calm_json_set(root, "budgets", budgets_json(p));
    calm_json_set_string(root, "store", p->recipe->store);
    calm_json_set_number(root, "seconds", p->seconds);
    const calm_status status = calm_json_print(ctx, root);
    calm_json_free(root);
    return status;
}

static calm_json *gates_json(const calm_pipeline *p)
{
    calm_json *gates = calm_json_new_array();
    for (size_t i = 0; i < p->recipe->n_gates; i++) {
        calm_json *row = calm_json_new_object();
        calm_json_set_string(row, "gate", p->recipe->gates[i].text);
        calm_json_set_number(row, "measured", p->gate_values[i]);
        calm_json_set_bool(row, "holds", calm_gate_holds(&p->recipe->gates[i], p->gate_values[i]));
        calm_json_add(gates, row);
    }
    return gates;
}

calm_status calm_report_json(calm_ctx *ctx, const calm_pipeline *p)
{
    if (p->recipe->n_budgets > 1)
        return print_budgets_json(ctx, p);
    calm_json *root = calm_json_new_object(), *units = calm_json_new_array();
    const calm_value run = calm_value_int(p->run_id);
    calm_status status = calm_store_query(ctx, p->store, units_sql, &run, 1, add_unit_json, units);
    calm_json_set_int(root, "run", p->run_id);
    calm_json_set_string(root, "result", p->result_name);
    calm_json_set_string(root, "verdict", p->verdict);
    set_target(p, p->pareto, root);
    calm_json_set_number(root, "bits_per_weight", p->bits_per_weight);
    calm_json_set_int(root, "bytes_before", p->bytes_before);
    calm_json_set_int(root, "bytes_after", p->bytes_after);
    if (p->evaluates) {
        if (!calm_pipeline_encodes(p))
            calm_json_set(root, "float", evaluation_json(&p->eval_float));
        calm_json_set(root, "quantized", calm_pipeline_encodes(p) ? encoding_json(&p->eval_encoding)
                                                                  : evaluation_json(&p->eval_result));
    }
    calm_json_set(root, "guard", trials_json(p->trials, p->guard.n ? p->n_trials : 0));
    calm_json_set(root, "units", units);
    if (p->recipe->n_gates)
        calm_json_set(root, "gates", gates_json(p));
    calm_json_set_string(root, "checkpoint", p->recipe->output);
    calm_json_set_string(root, "store", p->recipe->store);
    calm_json_set_string(root, "lock", p->recipe->lock);
    calm_json_set_int(root, "candidates_from_store", (int64_t)p->n_cached);
    calm_json_set_number(root, "seconds", p->seconds);
    calm_json_set_number(root, "score_seconds", p->score_seconds);
    if (status == CALM_OK)
        status = calm_json_print(ctx, root);
    calm_json_free(root);
    return status;
}

/* ---- model card ---- */

calm_status calm_report_card(calm_ctx *ctx, const calm_pipeline *p, calm_text *out)
{
    const calm_config *config = calm_model_config(p->model);
    const calm_selection *selection = &p->recipe->selection;
    calm_text_printf(out, "---\nlibrary_name: transformers\ntags:\n");
    for (size_t i = 0; i < calm_formats_count(&p->recipe->formats); i++) {
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(&p->recipe->formats, i), &name));
        calm_text_printf(out, "- %s\n", name);
    }
    calm_text_printf(out, "- calm\n---\n\n# %s, ", p->recipe->model.name);
    print_schemes(p, out);
    calm_text_printf(out, "\n\n");
    calm_text_printf(out, "Quantized by calm %s from a %s of %zu blocks in %s.  Format: ", CALM_VERSION,
                     calm_model_class(p->model), config->n_blocks, calm_dtype_name(config->dtype));
    CALM_TRY(calm_formats_describe(ctx, &p->recipe->formats, out));
    calm_text_printf(out, "## Size\n\n```\n");
    print_size(p, out);
    calm_text_printf(
        out,
        "```\n\n## Plan and evidence\n\nOne algorithm per unit, chosen by %s on %zu calibration tokens of %s "
        "(%zu windows).\n\n```\n",
        calm_score_name(selection->point, selection->score), p->calib.begin[p->calib.n], p->recipe->calib_name, p->calib.n);
    CALM_TRY(write_tables(ctx, p, out));
    CALM_TRY(write_gates(ctx, p, out));
    calm_text_printf(out, "```\n\nThe same run again: `calm quantize --recipe calm_recipe.json`.\n");
    return calm_text_check(ctx, out);
}
