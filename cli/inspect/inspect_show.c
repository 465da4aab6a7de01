/* calm inspect STORE show: shows all facts of one run. */
#include "cli/inspect/inspect_recipe.h"
#include "cli/inspect/inspect_view.h"

static const char run_sql[] =
    "SELECT r.id AS run, m.name AS model, r.status, " CALM_INSPECT_RESULT ", r.reason AS verdict, "
    "r.unit, r.rule, r.metric, "
    "r.bits_per_weight, r.bytes_before, r.bytes_after, 1.0 * r.bytes_after / nullif(r.bytes_before, 0) AS size_ratio, "
    "(SELECT count(*) FROM run_candidate c WHERE c.run_id = r.id) AS candidates, "
    "(SELECT count(*) FROM run_candidate c JOIN candidate k ON k.id = c.candidate_id WHERE c.run_id = r.id AND "
    "  k.failure IS NOT NULL) AS failed, "
    "(SELECT count(*) FROM choice c WHERE c.run_id = r.id) AS choices, r.command, r.version, r.n_threads AS threads, "
    "r.attempts, r.started_at AS started, r.ended_at AS ended, r.key "
    "FROM run r JOIN model m ON m.id = r.model_id WHERE r.id = ?1";

static const char model_sql[] =
    "SELECT m.name, m.path, m.architecture, m.dtype, m.n_params AS parameters, m.n_blocks AS blocks, m.hidden_size, "
    "m.vocab_size, m.bytes, m.digest FROM run r JOIN model m ON m.id = r.model_id WHERE r.id = ?1";

static const char calibration_sql[] =
    "SELECT c.text_name AS text, c.n_windows AS windows, c.window_tokens, c.n_tokens AS tokens, c.seed, "
    "c.score_windows, CASE WHEN json_valid(r.recipe) THEN coalesce(json_extract(r.recipe, '$.calibration.weight'), "
    "'none') END AS weight, c.text_digest, c.tokens_digest, c.key "
    "FROM run r JOIN calibration c ON c.id = r.calibration_id WHERE r.id = ?1";

static const char environment_sql[] = "SELECT name, value FROM environment WHERE run_id = ?1 ORDER BY name";

static const char chosen_sql[] =
    "SELECT coalesce(a.name, 'float') AS algorithm, k.scheme, count(*) AS jobs, "
    "sum(j.out_features * j.in_features) AS weights FROM choice c JOIN job j ON j.id = c.job_id "
    "LEFT JOIN candidate k ON k.id = c.candidate_id LEFT JOIN algorithm a ON a.id = k.algorithm_id WHERE c.run_id = ?1 "
    "GROUP BY 1, 2 ORDER BY jobs DESC, 1, 2";

static const char evaluations_sql[] =
    "SELECT v.role, " CALM_INSPECT_SUBJECT
    ", e.ppl, e.nll, e.kl, e.top1, v.delta_kl, e.error, e.cosine, e.cosine_min, e.spearman, "
    "v.delta_one_minus_cosine, v.delta_se, e.tokens, e.n_windows AS windows, e.text_name AS text "
    "FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id WHERE v.run_id = ?1 "
    "AND " CALM_INSPECT_ONCE " ORDER BY v.role, coalesce(e.kl, 1 - e.cosine), v.subject";

static const char gates_sql[] = "SELECT gate, value AS measured, holds FROM gate WHERE run_id = ?1 ORDER BY position";

static const char stages_sql[] =
    "SELECT stage, round(seconds, 3) AS seconds, round(cpu_seconds, 3) AS cpu_seconds, "
    "round(forecast_seconds, 3) AS forecast_seconds FROM run_stage WHERE run_id = ?1 ORDER BY position";

static const char artifacts_sql[] =
    "SELECT path, role, bytes, sha256 FROM artifact WHERE run_id = ?1 ORDER BY path";

static calm_status add_value(calm_ctx *ctx, void *user, const char *pointer, const char *first, const char *second)
{
    (void)ctx, (void)second;
    CALM_CELLS(user, CALM_TEXT(pointer), CALM_TEXT(first));
    return CALM_OK;
}

/* Adds rows of pointer and value; the JSON has the recipe itself. */
static calm_status add_recipe(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table)
{
    const calm_value run = calm_value_int(in->run);
    calm_json **json = &in->sections[in->n_sections - 1].json;
    calm_value text;
    calm_table_columns(table, "pointer|value");
    if (!in->run)
        return CALM_OK;
    CALM_TRY(calm_store_query_one(ctx, in->store, list->sql, &run, 1, &text, 1));
    if (text.type != CALM_VALUE_TEXT)
        return CALM_OK;
    CALM_TRY(calm_json_parse(ctx, "the run's recipe", text.text, text.n_bytes, json));
    return calm_inspect_walk(ctx, *json, NULL, add_value, table);
}

const calm_inspect_list calm_inspect_show[] = {
    {"run", "Run", run_sql, 1, "none", true, NULL, NULL},
    {"model", "Model", model_sql, 1, "none", true, NULL, NULL},
    {"calibration", "Calibration", calibration_sql, 1, "none", true, NULL, NULL},
    {"recipe", "Recipe, resolved", "SELECT recipe FROM run WHERE id = ?1", 1, NULL, false, NULL, add_recipe},
    {"environment", "Environment", environment_sql, 1, "none", false, NULL, NULL},
    {"chosen", "Chosen", chosen_sql, 1, "none", false, NULL, NULL},
    {"evaluations", "Evaluations", evaluations_sql, 1, "none", false, NULL, NULL},
    {"gates", "Gates", gates_sql, 1, "none", false, NULL, NULL},
    {"stages", "Time by stage", stages_sql, 1, "none", false, NULL, NULL},
    {"artifacts", "Artifacts", artifacts_sql, 1, "none", false, NULL, NULL},
    {0},
};
