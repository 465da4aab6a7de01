/* calm inspect STORE diff: shows the differences between two runs, ?1 and ?2; jobs with the same block and role
 * match. */
#include <string.h>

#include "cli/inspect/inspect_recipe.h"
#include "cli/inspect/inspect_view.h"

/* ---- single facts of each run ---- */

static const char run_sql[] =
    "SELECT m.name AS model, m.digest AS model_digest, r.status, " CALM_INSPECT_RESULT
    ", r.reason AS verdict, r.unit, r.rule, "
    "r.metric, r.bits_per_weight, r.bytes_before, r.bytes_after, r.command, r.version "
    "FROM run r JOIN model m ON m.id = r.model_id WHERE r.id = ?1";

static const char calibration_sql[] =
    "SELECT c.text_name AS text, c.n_windows AS windows, c.window_tokens, c.n_tokens AS tokens, c.seed, "
    "c.score_windows, c.text_digest, c.tokens_digest, c.key FROM run r LEFT JOIN calibration c ON c.id = "
    "r.calibration_id WHERE r.id = ?1";

#define FACTS_MAX ((size_t)16)

/* One row of texts in ctx->out. */
typedef struct facts {
    const char *names[FACTS_MAX], *values[FACTS_MAX];
    size_t n;
} facts;

static calm_status keep_facts(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    facts *row = user;
    for (size_t i = 0; i < n && i < FACTS_MAX; i++) {
        char *text = NULL;
        if (!values)
            CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", names[i]));
        else if (values[i].type == CALM_VALUE_TEXT)
            CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", values[i].text));
        else if (values[i].type == CALM_VALUE_INTEGER)
            CALM_TRY(calm_strf(ctx, ctx->out, &text, "%lld", (long long)values[i].integer));
        else if (values[i].type == CALM_VALUE_REAL)
            CALM_TRY(calm_strf(ctx, ctx->out, &text, "%.15g", values[i].real));
        *(values ? &row->values[i] : &row->names[i]) = text;
    }
    row->n = n < FACTS_MAX ? n : FACTS_MAX;
    return CALM_OK;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static calm_status add_facts(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table)
{
    const calm_value first = calm_value_int(in->run), second = calm_value_int(in->other);
    facts a = {.n = 0}, b = {.n = 0};
    calm_table_columns(table, "name|first|second");
    CALM_TRY(calm_store_query(ctx, in->store, list->sql, &first, 1, keep_facts, &a));
    CALM_TRY(calm_store_query(ctx, in->store, list->sql, &second, 1, keep_facts, &b));
    for (size_t i = 0; i < a.n; i++) {
        if (!same(a.values[i], b.values[i]))
            CALM_CELLS(table, CALM_TEXT(a.names[i]), CALM_TEXT(a.values[i]), CALM_TEXT(b.values[i]));
    }
    return CALM_OK;
}

/* ---- recipes ---- */

static calm_status add_value(calm_ctx *ctx, void *user, const char *pointer, const char *first, const char *second)
{
    (void)ctx;
    if (!same(first, second))
        CALM_CELLS(user, CALM_TEXT(pointer), CALM_TEXT(first), CALM_TEXT(second));
    return CALM_OK;
}

static calm_status read_recipe(calm_ctx *ctx, calm_inspection *in, const char *sql, int64_t run, calm_json **out)
{
    const calm_value param = calm_value_int(run);
    calm_value text;
    char *name;
    CALM_TRY(calm_store_query_one(ctx, in->store, sql, &param, 1, &text, 1));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "the recipe of run %lld", (long long)run));
    return text.type == CALM_VALUE_TEXT ? calm_json_parse(ctx, name, text.text, text.n_bytes, out) : CALM_OK;
}

static calm_status add_recipes(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table)
{
    CALM_SCOPED_JSON(first);
    CALM_SCOPED_JSON(second);
    calm_table_columns(table, "pointer|first|second");
    CALM_TRY(read_recipe(ctx, in, list->sql, in->run, &first));
    CALM_TRY(read_recipe(ctx, in, list->sql, in->other, &second));
    return calm_inspect_walk(ctx, first, second, add_value, table);
}

/* ---- lists of both ---- */

static const char environment_sql[] =
    "SELECT name, max(iif(run_id = ?1, value, NULL)) AS first, max(iif(run_id = ?2, value, NULL)) AS second "
    "FROM environment WHERE run_id IN (?1, ?2) GROUP BY name "
    "HAVING max(iif(run_id = ?1, value, NULL)) IS NOT max(iif(run_id = ?2, value, NULL)) ORDER BY name";

/* The chosen algorithm and scheme; the chain instead if the two runs mean different chains by one name. */
#define LABEL(a, k, c, other)                                                                                \
    "iif(" c ".run_id IS NULL, NULL, coalesce(" a ".name || ' ' || " k ".scheme || "                         \
    "iif(" a ".name = " other ".name AND " a ".id <> " other ".id, ' ' || " a ".chain, ''), 'float'))"

/* The same job in the model of another run. */
#define SAME_JOB(run)                                                                                        \
    "JOIN block b ON b.id = j.block_id "                                                                     \
    "LEFT JOIN block ob ON ob.model_id = (SELECT model_id FROM run WHERE id = " run ") AND ob.number = b.number " \
    "LEFT JOIN job oj ON oj.block_id = ob.id AND oj.role = j.role "                                          \
    "LEFT JOIN choice o ON o.run_id = " run " AND o.job_id = oj.id "

#define CANDIDATES                                                                                           \
    "LEFT JOIN candidate k ON k.id = c.candidate_id LEFT JOIN algorithm a ON a.id = k.algorithm_id "         \
    "LEFT JOIN candidate ok ON ok.id = o.candidate_id LEFT JOIN algorithm oa ON oa.id = ok.algorithm_id "

static const char choices_sql[] =
    "SELECT block, job, first, second, unit FROM ("
    "SELECT b.number AS block, j.role AS job, j.position, " LABEL("a", "k", "c", "oa") " AS first, "
    LABEL("oa", "ok", "o", "a") " AS second, c.unit AS unit, "
    "a.id IS NOT oa.id OR k.scheme IS NOT ok.scheme OR o.run_id IS NULL AS differs "
    "FROM choice c JOIN job j ON j.id = c.job_id " SAME_JOB("?2") CANDIDATES "WHERE c.run_id = ?1 "
    "UNION ALL "
    "SELECT b.number, j.role, j.position, NULL, " LABEL("a", "k", "c", "oa") ", c.unit, o.run_id IS NULL "
    "FROM choice c JOIN job j ON j.id = c.job_id " SAME_JOB("?1") CANDIDATES "WHERE c.run_id = ?2"
    ") WHERE differs ORDER BY block, position, job";

/* Scores of the chosen candidates by the metric of either run, at the unit of both runs, else at jobs. */
static const char scores_sql[] =
    "SELECT b.number AS block, j.role AS job, s.metric, s.value AS first, t.value AS second, "
    "t.value - s.value AS difference "
    "FROM run x JOIN run y ON y.id = ?2 JOIN choice c ON c.run_id = x.id JOIN job j ON j.id = c.job_id "
    "JOIN block b ON b.id = j.block_id JOIN block ob ON ob.model_id = y.model_id AND ob.number = b.number "
    "JOIN job oj ON oj.block_id = ob.id AND oj.role = j.role JOIN choice o ON o.run_id = y.id AND o.job_id = oj.id "
    "JOIN score s ON s.candidate_id = c.candidate_id AND s.unit = iif(x.unit = y.unit, x.unit, 'job') "
    "JOIN score t ON t.candidate_id = o.candidate_id AND t.unit = s.unit AND t.metric = s.metric "
    "WHERE x.id = ?1 AND s.value <> t.value AND iif(?3 IS NULL, s.metric IN (x.metric, y.metric, 'log_rel_mse'), "
    "s.metric = ?3) ORDER BY b.number, j.position, s.metric";

#define SIDE(column, run) "max(iif(v.run_id = " run ", e." column ", NULL))"

/* The results of both runs share a row, whatever their plans are. */
#define PLAN "iif(v.role = 'test' AND v.subject = r.result, 'result', " CALM_INSPECT_NAME("v.run_id", "v.subject") ")"

static const char evaluations_sql[] =
    "SELECT v.role, " PLAN " AS subject, " SIDE("ppl", "?1") " AS ppl_first, " SIDE("ppl", "?2") " AS ppl_second, "
    SIDE("kl", "?1") " AS kl_first, " SIDE("kl", "?2") " AS kl_second, " SIDE("top1", "?1") " AS top1_first, "
    SIDE("top1", "?2") " AS top1_second, " SIDE("cosine", "?1") " AS cosine_first, "
    SIDE("cosine", "?2") " AS cosine_second, "
    "count(*) = 2 AND count(DISTINCT coalesce(e.text_digest, e.text_name) || ' ' || e.n_windows || ' ' || "
    "e.window_tokens || ' ' || coalesce(e.tokens, '')) = 1 AS same_text "
    "FROM run_evaluation v JOIN run r ON r.id = v.run_id JOIN evaluation e ON e.id = v.evaluation_id "
    "WHERE v.run_id IN (?1, ?2) AND " CALM_INSPECT_ONCE " GROUP BY 1, 2 ORDER BY 1, 2";

const calm_inspect_list calm_inspect_diff[] = {
    {"run", "Run", run_sql, 1, "no difference", false, NULL, add_facts},
    {"recipe", "Recipe", "SELECT recipe FROM run WHERE id = ?1", 1, "no difference", false, NULL, add_recipes},
    {"calibration", "Calibration", calibration_sql, 1, "no difference", false, NULL, add_facts},
    {"environment", "Environment", environment_sql, 2, "no difference", false, NULL, NULL},
    {"choices", "Choices", choices_sql, 2, "no difference", false, NULL, NULL},
    {"scores", "Scores of what was chosen", scores_sql, 3, "no difference", false, NULL, NULL},
    {"evaluations", "Evaluations", evaluations_sql, 2, "none", false, NULL, NULL},
    {0},
};
