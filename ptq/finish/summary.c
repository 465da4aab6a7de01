/* Summary: tables of a result, for reports and cards.
 *
 * The table of units is read from the run's rows in the store, so that a reassembly, which has no scores in memory,
 * writes the same card. */
#include "ptq/finish/finish.h"

#include <string.h>

#include "ptq/plan/requests.h"
#include "ptq/text/table.h"

/* ---- units ---- */

/* One row per job, with the position of its largest activation.  LEFT JOINs, because a float job has no candidate, and
 * a job without statistics no activation. */
static const char units_sql[] =
    "SELECT c.unit, j.name, coalesce(a.name, 'float'), s1.value, s2.value, s3.value, p.value, p.text, p.channel, "
    "p.window, p.token,"
    " x.crest_median, k.bits_per_weight, coalesce(c.advice || CASE WHEN c.disagrees THEN ' (differs)' ELSE '' END, "
    "''), c.reason FROM choice c JOIN run r ON r.id = c.run_id JOIN job j ON j.id = c.job_id JOIN block b ON b.id = "
    "j.block_id LEFT JOIN candidate k ON k.id = c.candidate_id LEFT JOIN algorithm a ON a.id = k.algorithm_id"
    " LEFT JOIN score s1 ON s1.candidate_id = k.id AND s1.unit = r.unit AND s1.metric = 'cka'"
    " LEFT JOIN score s2 ON s2.candidate_id = k.id AND s2.unit = r.unit AND s2.metric = 'cka_token'"
    " LEFT JOIN score s3 ON s3.candidate_id = k.id AND s3.unit = r.unit AND s3.metric = 'rel_mse'"
    " LEFT JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id AND x.hook = "
    "j.input_hook"
    " LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1"
    " WHERE c.run_id = ?1 ORDER BY b.number, j.position";

/* The columns of units_sql, in order. */
enum {
    UNIT, JOB, ALGORITHM, CKA, CKA_TOKEN, REL_MSE, PEAK, PEAK_TEXT, CHANNEL,
    WINDOW, POSITION, CREST, BITS, ADVICE, REASON
};

/* The same columns as JSON keys. */
const char *const calm_summary_keys[CALM_SUMMARY_COLUMNS] = {
    "unit", "job", "algorithm", "one_minus_cka", "one_minus_cka_token", "rel_mse", "activation_max", "token",
    "channel", "window", "position", "crest", "bits", "advice", "reason"};

calm_status calm_summary_units(calm_ctx *ctx, const calm_result *r, calm_store_row_fn *fn, void *user)
{
    const calm_value run = calm_value_int(r->run_id);
    return calm_store_query(ctx, r->store, units_sql, &run, 1, fn, user);
}

/* The table of units while rows are added. */
typedef struct units_rows {
    calm_table *table;
    bool bits;    /* true: jobs have different bits, so there is a column for them */
} units_rows;

/* Adds a row: the choice, its scores, and the job's input.  Experts are too many for a row each; the shared expert has
 * rows, because its jobs are named "shared_expert". */
static calm_status add_unit(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    const units_rows *rows = user;
    calm_table *table = rows->table;
    (void)ctx;
    (void)n;
    (void)names;
    if (!values || strstr(values[JOB].text, ".experts."))
        return CALM_OK;
    CALM_CELLS(table, CALM_TEXT(calm_unit_short_name(values[JOB].text)), CALM_TEXT(values[ALGORITHM].text),
               CALM_SCIENTIFIC(calm_value_as_real(&values[CKA]), 2),
               CALM_SCIENTIFIC(calm_value_as_real(&values[CKA_TOKEN]), 2),
               CALM_SCIENTIFIC(calm_value_as_real(&values[REL_MSE]), 2),
               CALM_FIXED(calm_value_as_real(&values[PEAK]), 2));
    /* The token's text, window and position. */
    if (values[PEAK].type == CALM_VALUE_NULL)
        CALM_CELLS(table, CALM_EMPTY);
    else
        calm_table_format(table, "\"%s\" %lld:%lld, channel %lld",
                          values[PEAK_TEXT].text ? values[PEAK_TEXT].text : "?", (long long)values[WINDOW].integer,
                          (long long)values[POSITION].integer, (long long)values[CHANNEL].integer);
    CALM_CELLS(table, CALM_FIXED(calm_value_as_real(&values[CREST]), 1));
    if (rows->bits)
        CALM_CELLS(table, CALM_FIXED(calm_value_as_real(&values[BITS]), 3));
    calm_table_text(table, values[ADVICE].text);
    return CALM_OK;
}

/* Leaves out columns that would be empty: bits with one scheme, advice if activations stay float. */
static calm_status units_table(calm_ctx *ctx, const calm_result *r, calm_table *table)
{
    units_rows rows = {table, r->recipe->n_schemes > 1};
    calm_table_column(table, r->recipe->selection.unit == CALM_UNIT_JOB ? "unit" : "job", CALM_ALIGN_LEFT);
    calm_table_columns(table, "algorithm|#1-CKA|#1-CKA token|#rel. error");
    calm_table_column(table, "max |x|", CALM_ALIGN_RIGHT);
    calm_table_columns(table, "at token, window:position|#crest");
    if (rows.bits)
        calm_table_column(table, "bits", CALM_ALIGN_RIGHT);
    calm_table_column(table, r->recipe->schemes[0].act_bits ? "advice" : "", CALM_ALIGN_LEFT);
    return calm_summary_units(ctx, r, add_unit, &rows);
}

/* Notes that the table shows the hybrid, if the guard chose a uniform run instead. */
static void write_replaced(const calm_result *r, calm_text *out)
{
    const calm_trial *taken = r->trial;
    for (size_t i = 0; !taken && r->name && i < r->n_trials; i++)
        taken = strcmp(r->trials[i].name, r->name) == 0 ? &r->trials[i] : NULL;
    if (taken && strcmp(taken->key, r->trials[0].key) != 0)
        calm_text_printf(out, "  these are the units' own choices by score; the guard, below, took %s for all of "
                         "them\n", taken->name);
}

/* ---- experts ---- */

/* One row per block, kind of job and chosen algorithm, because the 128 experts of a block mostly have few different
 * ones.  A job is named "experts.7.down"; the text after the number is its kind. */
static const char experts_sql[] = "SELECT block, replace(substr(job, instr(substr(job, 9), '.') + 9), '.', ''), "
                                  "algorithm, count(*), min(tokens), max(tokens)"
                                  " FROM v_experts WHERE run = ?1 GROUP BY 1, 2, 3 ORDER BY 1, 2 DESC, 4 DESC";

/* Adds one row of experts_sql: texts and numbers, then counts. */
static calm_status add_experts(calm_ctx *ctx, void *user, const calm_value *values)
{
    calm_table *table = user;
    (void)ctx;
    CALM_CELLS(table, CALM_INT(values[0].integer), CALM_TEXT(values[1].text), CALM_TEXT(values[2].text),
               CALM_INT(values[3].integer), CALM_INT(values[4].integer), CALM_INT(values[5].integer));
    return CALM_OK;
}

/* Writes the table of experts by kind, with the least tokens that one got: scores of few tokens mean little. */
static calm_status write_experts(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    const calm_value run = calm_value_int(r->run_id);
    CALM_SCOPED_TABLE(table);
    if (!r->n_experts)
        return CALM_OK;
    calm_table_columns(&table, "#block|experts' job|algorithm|#experts|#fewest tokens|#most");
    CALM_TRY(calm_store_each(ctx, r->store, experts_sql, &run, 1, add_experts, &table));
    CALM_TRY(calm_table_write(ctx, &table, 2, out));
    calm_text_printf(out,
                     "  \"rtn for X\": fewer than %zu tokens were routed to the expert, so X was not run on it\n\n",
                     calm_recipe_least_tokens(r->recipe));
    return CALM_OK;
}

/* ---- guard and evaluation ---- */

/* Adds the guard's figures of a trial: its loss, its difference from the hybrid's, and another figure. */
static void guard_cells(const calm_measure *measure, double delta, double se, calm_table *table)
{
    const bool encoder = measure->kind == CALM_STORE_EMBEDDINGS;
    CALM_CELLS(table, CALM_FIXED(calm_measure_loss(measure), 5), CALM_SIGNED(delta, 5), CALM_FIXED(se, 5),
               CALM_FIXED(encoder ? measure->embeddings.spearman : measure->predictions.ppl, 4));
}

/* The guard's trials, the hybrid first, and below them the trials that were compared on more windows.  A trial without
 * an evaluation was not measured: a candidate of it failed, or there were no windows. */
static calm_status guard_table(calm_ctx *ctx, const calm_result *r, calm_table *table)
{
    const char **names;
    char *text;
    CALM_TRY(calm_trial_labels(ctx, r->trials, r->n_trials, &names));
    calm_table_columns(table, r->encoder ? "guard windows|#1 - cosine|#minus first|#+- std. error|#rank correlation"
                                         : "guard windows|#KL|#minus first|#+- std. error|#perplexity");
    for (size_t i = 0; i < r->n_trials; i++) {
        const calm_trial *trial = &r->trials[i];
        if (!names[i])
            continue;
        calm_table_text(table, names[i]);
        if (trial->id)
            guard_cells(&trial->measure, trial->delta, trial->se, table);
        else
            CALM_CELLS(table, CALM_TEXT(NULL), CALM_TEXT(trial->missing ? "a job failed" : NULL), CALM_TEXT(NULL),
                       CALM_TEXT(NULL));
    }
    for (size_t i = 0; i < r->n_trials; i++) {
        const calm_trial_more *more = &r->trials[i].more;
        if (!more->windows || !names[i])
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "%s, %zu windows", names[i], more->windows));
        calm_table_text(table, text);
        guard_cells(&more->measure, more->delta, more->se, table);
    }
    return CALM_OK;
}

/* Float model and result on the evaluation's text, on which no choice depends.  An encoder predicts no tokens: sentence
 * embeddings are compared. */
static calm_status evaluation_table(calm_ctx *ctx, const calm_result *r, calm_table *table)
{
    const char *name;
    const calm_embedding_result *embeddings = &r->eval_result.embeddings;
    const calm_eval_result *result = &r->eval_result.predictions;
    CALM_TRY(calm_result_label(ctx, r, r->name, &name));
    if (r->encoder) {
        calm_table_columns(table, "test text|#cosine to float|#least|#rel. error|#rank correlation");
        CALM_CELLS(table, CALM_TEXT(name), CALM_FIXED(embeddings->cosine, 6),
                   CALM_FIXED(embeddings->cosine_min, 6),
                   CALM_FIXED(embeddings->error, 6), CALM_FIXED(embeddings->spearman, 6));
        return CALM_OK;
    }
    double kl, error;
    /* The float model's divergence from itself is 0 in every window, so the difference is the result's divergence. */
    calm_measure_compare(&r->eval_float, &r->eval_result, r->eval.n, &kl, &error);
    calm_table_columns(table, "test text|#perplexity|#KL to float|#+- std. error|#top-1 %");
    CALM_CELLS(table, CALM_TEXT("float"), CALM_FIXED(r->eval_float.predictions.ppl, 4), CALM_FIXED(0, 5),
               CALM_TEXT(NULL), CALM_TEXT(NULL));
    CALM_CELLS(table, CALM_TEXT(name), CALM_FIXED(result->ppl, 4), CALM_FIXED(result->kl, 5),
               CALM_FIXED(error, 5), CALM_FIXED(100 * result->top1, 2));
    return CALM_OK;
}

/* Columns that are left out in a narrow terminal. */
static const char *const less_of_units[] = {"1-CKA token", "at token, window:position",
                                            "1-CKA token|at token, window:position|crest"};

calm_status calm_summary_tables(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    CALM_SCOPED_TABLE(units);
    CALM_SCOPED_TABLE(guard);
    CALM_SCOPED_TABLE(evaluation);
    CALM_TRY(units_table(ctx, r, &units));
    calm_table_drop_empty(&units);
    CALM_TRY(calm_table_narrow(ctx, &units, 2, less_of_units, sizeof less_of_units / sizeof *less_of_units));
    CALM_TRY(calm_table_write(ctx, &units, 2, out));
    write_replaced(r, out);
    calm_text_printf(out, "\n");
    CALM_TRY(write_experts(ctx, r, out));
    if (r->guard.n) {
        CALM_TRY(guard_table(ctx, r, &guard));
        calm_table_drop_empty(&guard);
        CALM_TRY(calm_table_write(ctx, &guard, 2, out));
    }
    /* Below the table, because reasons do not fit into a column: why a trial has no figures, or has substituted
     * candidates. */
    for (size_t i = 0; i < r->n_trials && r->guard.n; i++)
        if (r->trials[i].missing)
            calm_text_printf(out, "  no %s: %s\n", r->trials[i].name, r->trials[i].missing);
        else if (r->trials[i].substituted)
            calm_text_printf(out, "  %s: %s\n", r->trials[i].name, r->trials[i].substituted);
    calm_text_printf(out, "  %s\n\n", r->verdict);
    if (r->evaluates) {
        CALM_TRY(evaluation_table(ctx, r, &evaluation));
        CALM_TRY(calm_table_write(ctx, &evaluation, 2, out));
        calm_text_printf(out, "  %s, %zu windows of %zu tokens\n\n", r->recipe->eval_name, r->eval.n, r->eval.longest);
    }
    return CALM_OK;
}

/* Appends which of several formats the figures are of. */
static void put_formats(const calm_result *r, calm_text *out)
{
    const calm_exporter *first = calm_formats_at(&r->recipe->formats, 0);
    if (!r->measured || r->measured == first)
        calm_text_printf(out, "  figures      size and losses are of the first format, %s\n", first->name);
    else
        calm_text_printf(out, "  figures      size is of the first format, %s; losses are of %s\n", first->name,
                         r->measured->name);
}

void calm_summary_size(const calm_result *r, calm_text *out)
{
    calm_text_printf(out, "  result       ");
    calm_summary_result(r, out);
    calm_text_printf(out, "\n  scheme       ");
    calm_summary_schemes(r, out);
    calm_text_printf(out, ", %.3f bits per weight with scales (the quantized linears)\n", r->bits_per_weight);
    if (r->tables)
        calm_text_printf(out, "  tables       %s\n", r->tables);
    if (r->recipe->kv_cache)
        calm_text_printf(out, "  kv cache     fp8, a scale for the keys and one for the values of each block\n");
    if (r->recipe->rotate)
        calm_text_printf(out, "  rotation     %s, seed %lld\n", calm_rotate_name(r->recipe->rotate),
                         r->recipe->rotate_seed);
    if (calm_formats_count(&r->recipe->formats) > 1)
        put_formats(r, out);
    /* The whole checkpoint with all float tensors, which saves less than the bits per weight promise. */
    calm_text_printf(out, "  size         %.2f MiB -> %.2f MiB (%.1f %%)\n", (double)r->bytes_before / 1048576.0,
                     (double)r->bytes_after / 1048576.0, 100.0 * (double)r->bytes_after / (double)r->bytes_before);
}

/* Appends the effect of tuning. */
static void print_tuning(const calm_result *r, calm_text *out)
{
    const calm_learned_facts *facts = &r->tuned;
    const double tuned = (double)(facts->n - facts->kept);
    if (!facts->n)
        return;
    if (facts->kept == facts->n)
        calm_text_printf(out, "  tuning       no step lowered the divergence of the held-out windows (%.1f s)\n",
                         facts->seconds);
    else
        calm_text_printf(out, "  tuning       %s of %zu blocks in %.1f s: %s %.5f -> %.5f on held-out "
                         "calibration windows\n", r->encoder ? "scales, norms and biases" : "scales and norms",
                         facts->n, facts->seconds, r->encoder ? "1 - cosine" : "KL", facts->before / tuned,
                         facts->after / tuned);
}

void calm_summary_learning(const calm_result *r, double seconds, calm_text *out)
{
    const calm_learned_facts *facts = &r->learned;
    const size_t learned = facts->n - facts->kept;
    if (calm_recipe_orders(r->recipe))    /* learners support only groups of neighbouring columns */
        return;
    if (!r->recipe->learn && facts->operations)
        calm_text_printf(out,
                         "  learning     --learn blocks continues from here in about %.0f s; on the bundled model it "
                         "takes 20 to 45 %% off the KL\n", seconds);
    else if (facts->operations && !learned)
        calm_text_printf(out, "  learning     all blocks stayed as they were\n");
    else if (facts->operations)
        calm_text_printf(out,
                         "  learning     %zu of %zu blocks in %.1f s: mean loss %.5f -> %.5f, %.1f %% of the codes "
                         "changed\n", learned, facts->n, facts->seconds, facts->before / (double)learned,
                         facts->after / (double)learned, 100.0 * (double)facts->changed / (double)facts->codes);
    print_tuning(r, out);
}

/* Appends one line per gate of the recipe. */
calm_status calm_summary_gates(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    CALM_SCOPED_TABLE(table);
    if (!r->recipe->n_gates || !r->gate_values)    /* a run that failed earlier has no values */
        return CALM_OK;
    calm_table_columns(&table, "gate|#measured|holds");
    for (size_t i = 0; i < r->recipe->n_gates; i++) {
        calm_table_text(&table, r->recipe->gates[i].text);
        /* In the format of calm_gates_verdict's message. */
        calm_table_format(&table, "%.6g", r->gate_values[i]);
        calm_table_text(&table, calm_gate_holds(&r->recipe->gates[i], r->gate_values[i]) ? "yes" : "no");
    }
    CALM_TRY(calm_table_write(ctx, &table, 2, out));
    calm_text_printf(out, "\n");
    return CALM_OK;
}

