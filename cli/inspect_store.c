/* calm inspect STORE: rows of the store, the same for people (a table) and for programs.
 *
 * The queries read the tables, not the views v_*: those round for people. */
#include "cli/inspect.h"

#include <string.h>

#include "store/store.h"

/* One list of rows.  Its query has one parameter: ?1 is the run. */
typedef struct section {
    const char *key;      /* of the JSON member */
    const char *title;    /* of the summary     */
    const char *sql;
} section;

/* One WHAT.  `every` shows all runs unless one is named; else the newest is meant. */
typedef struct view {
    const char *name;
    bool every;
    const section *sections;
    size_t n_sections;
} view;

/* ---- queries ---- */

#define OF_TEST(column, subject_)                                                                            \
    "(SELECT e." column " FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id"                 \
    "  WHERE v.run_id = r.id AND v.role = 'test' AND v.subject = " subject_ ")"

#define SCORE(alias, metric_)                                                                                \
    " LEFT JOIN score " alias " ON " alias ".candidate_id = k.id AND " alias ".unit = r.unit AND "           \
    alias ".metric = '" metric_ "'"

#define SCORES SCORE("s1", "cka") SCORE("s2", "cka_token") SCORE("s3", "rel_mse") SCORE("s4", "log_rel_mse")
#define SCORE_COLUMNS                                                                                        \
    "s1.value AS one_minus_cka, s2.value AS one_minus_cka_token, s3.value AS rel_mse, s4.value AS log_rel_mse"

static const char runs_sql[] =
    "SELECT r.id AS run, m.name AS model, r.status, r.result, r.bits_per_weight, r.bytes_before, r.bytes_after, "
    OF_TEST("ppl", "'float'") " AS ppl_float, " OF_TEST("ppl", "r.result") " AS ppl_result, "
    OF_TEST("kl", "r.result") " AS kl_result, "
    "(SELECT count(*) FROM run_candidate c WHERE c.run_id = r.id) AS candidates, "
    "(SELECT count(*) FROM choice c WHERE c.run_id = r.id) AS choices, r.started_at AS started, r.ended_at AS ended, "
    "r.command, r.reason "
    "FROM run r JOIN model m ON m.id = r.model_id WHERE ?1 IN (0, r.id) ORDER BY r.id";

static const char blocks_sql[] =
    "SELECT b.number AS block, b.name, j.role AS job, j.sublayer, j.out_features AS \"out\", j.in_features AS \"in\", "
    "j.out_features * j.in_features AS weights, a.name AS algorithm, k.scheme, k.bits_per_weight AS bits, j.linears "
    "FROM run r JOIN block b ON b.model_id = r.model_id JOIN job j ON j.block_id = b.id "
    "LEFT JOIN choice c ON c.run_id = r.id AND c.job_id = j.id LEFT JOIN candidate k ON k.id = c.candidate_id "
    "LEFT JOIN algorithm a ON a.id = k.algorithm_id WHERE r.id = ?1 ORDER BY b.number, j.position";

static const char candidates_sql[] =
    "SELECT b.number AS block, j.role AS job, a.name AS algorithm, k.scheme, coalesce(c.candidate_id = k.id, 0) AS "
    "chosen, " SCORE_COLUMNS ", k.bits_per_weight AS bits, k.damp, k.seconds, k.id AS candidate, k.failure, a.chain "
    "FROM run_candidate rc JOIN run r ON r.id = rc.run_id JOIN candidate k ON k.id = rc.candidate_id "
    "JOIN algorithm a ON a.id = k.algorithm_id JOIN job j ON j.id = k.job_id JOIN block b ON b.id = j.block_id "
    "LEFT JOIN choice c ON c.run_id = rc.run_id AND c.job_id = k.job_id" SCORES
    " WHERE rc.run_id = ?1 ORDER BY b.number, j.position, s2.value IS NULL, s2.value, a.name";

static const char scores_sql[] =
    "SELECT b.number AS block, j.role AS job, a.name AS algorithm, k.scheme, s.unit, s.metric, s.value, k.id AS "
    "candidate "
    "FROM run_candidate rc JOIN candidate k ON k.id = rc.candidate_id JOIN score s ON s.candidate_id = k.id "
    "JOIN algorithm a ON a.id = k.algorithm_id JOIN job j ON j.id = k.job_id JOIN block b ON b.id = j.block_id "
    "WHERE rc.run_id = ?1 ORDER BY b.number, j.position, a.name, k.scheme, s.unit, s.metric";

static const char choices_sql[] =
    "SELECT b.number AS block, j.role AS job, coalesce(a.name, 'float') AS algorithm, k.scheme, " SCORE_COLUMNS
    ", k.bits_per_weight AS bits, p.value AS activation_max, p.channel, p.window, p.token AS position, "
    "p.text AS token, x.crest_median AS crest, c.advice, c.disagrees, c.unit, c.reason "
    "FROM choice c JOIN run r ON r.id = c.run_id JOIN job j ON j.id = c.job_id JOIN block b ON b.id = j.block_id "
    "LEFT JOIN candidate k ON k.id = c.candidate_id LEFT JOIN algorithm a ON a.id = k.algorithm_id" SCORES
    " LEFT JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id AND x.hook = "
    "j.input_hook "
    "LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1 "
    "WHERE c.run_id = ?1 ORDER BY b.number, j.position";

static const char activations_sql[] =
    "SELECT x.block, x.point, p.value AS max, p.channel, p.window, p.token AS position, p.text AS token, "
    "x.q50 AS median, x.q999, x.rms, x.mean, x.std, x.crest_median AS crest, x.crest_max, x.ratio_median, x.ratio_max, "
    "x.n_massive AS massive, x.n_tokens AS tokens, x.channels, x.hook "
    "FROM run r JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id "
    "LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1 "
    "WHERE r.id = ?1 ORDER BY x.block, x.id";

static const char evaluations_sql[] =
    "SELECT v.role, v.subject, e.ppl, e.nll, e.kl, e.top1, v.delta_kl, v.delta_se, e.tokens, e.n_windows AS windows, "
    "e.window_tokens, e.text_name AS text "
    "FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id WHERE v.run_id = ?1 ORDER BY v.role, e.kl, "
    "v.subject";

static const char ablation_sql[] =
    "SELECT a.run_id AS run, a.kind, a.subject, a.unit, a.metric, a.rule, a.bits, e.ppl, e.nll, e.kl, a.delta_kl, "
    "a.delta_se, e.top1, a.differs, a.seconds, a.failure "
    "FROM ablation a LEFT JOIN evaluation e ON e.id = a.evaluation_id WHERE ?1 IN (0, a.run_id) "
    "ORDER BY a.run_id, e.kl IS NULL, e.kl, a.subject";

static const char store_sql[] =
    "SELECT user_version AS version, (SELECT count(*) FROM model) AS models, (SELECT count(*) FROM run) AS runs, "
    "(SELECT count(*) FROM candidate) AS candidates, (SELECT count(*) FROM candidate WHERE failure IS NOT NULL) AS "
    "failed, "
    "(SELECT count(*) FROM score) AS scores, (SELECT count(*) FROM activation) AS activations, "
    "(SELECT sum(blob_bytes) FROM (SELECT DISTINCT blob, blob_bytes FROM candidate)) AS blob_bytes "
    "FROM pragma_user_version WHERE ?1 IS NOT NULL";

static const char models_sql[] =
    "SELECT m.id, m.name, m.architecture, m.dtype, m.n_params AS parameters, m.n_blocks AS blocks, m.hidden_size, "
    "m.vocab_size, m.bytes, m.path FROM model m WHERE ?1 = 0 OR m.id = (SELECT model_id FROM run WHERE id = ?1) ORDER "
    "BY m.id";

static const char calibrations_sql[] =
    "SELECT c.id, c.n_windows AS windows, c.window_tokens, c.n_tokens AS tokens, c.seed, c.score_windows, "
    "e.emergence_block, c.text_name AS text FROM calibration c "
    "LEFT JOIN v_emergence e ON e.calibration = c.id WHERE ?1 = 0 OR c.id = (SELECT calibration_id FROM run WHERE id = "
    "?1) "
    "ORDER BY c.id";

static const char brief_runs_sql[] =
    "SELECT r.id AS run, m.name AS model, r.status, r.result, r.bits_per_weight, "
    OF_TEST("ppl", "'float'") " AS ppl_float, " OF_TEST("ppl", "r.result") " AS ppl_result, "
    OF_TEST("kl", "r.result") " AS kl_result, r.started_at AS started, r.command "
    "FROM run r JOIN model m ON m.id = r.model_id WHERE ?1 IN (0, r.id) ORDER BY r.id";

static const section summary_sections[] = {
    {"store", "Store", store_sql},
    {"models", "Models", models_sql},
    {"calibrations", "Calibrations", calibrations_sql},
    {"runs", "Runs", brief_runs_sql},
};
#define SECTION(what) static const section what##_sections[] = {{#what, #what, what##_sql}}
SECTION(runs);
SECTION(blocks);
SECTION(candidates);
SECTION(scores);
SECTION(choices);
SECTION(activations);
SECTION(evaluations);
SECTION(ablation);

#define VIEW(what, every) {#what, every, what##_sections, sizeof what##_sections / sizeof *what##_sections}
static const view views[] = {
    VIEW(summary, true), VIEW(runs, true), VIEW(blocks, false), VIEW(candidates, false), VIEW(scores, false),
    VIEW(choices, false), VIEW(activations, false), VIEW(evaluations, false), VIEW(ablation, true),
};
#define N_VIEWS (sizeof views / sizeof *views)

/* ---- columns: how numbers are shown; everything else is text ---- */

typedef enum style { STYLE_INT, STYLE_BOOL, STYLE_FIXED, STYLE_SCIENTIFIC } style;

typedef struct column {
    const char *name;
    style style;
    int digits;
} column;

static const column numeric[] = {
    {"run", STYLE_INT, 0},
    {"block", STYLE_INT, 0},
    {"candidate", STYLE_INT, 0},
    {"version", STYLE_INT, 0},
    {"models", STYLE_INT, 0},
    {"runs", STYLE_INT, 0},
    {"candidates", STYLE_INT, 0},
    {"failed", STYLE_INT, 0},
    {"scores", STYLE_INT, 0},
    {"activations", STYLE_INT, 0},
    {"choices", STYLE_INT, 0},
    {"id", STYLE_INT, 0},
    {"blob_bytes", STYLE_INT, 0},
    {"bytes", STYLE_INT, 0},
    {"bytes_before", STYLE_INT, 0},
    {"bytes_after", STYLE_INT, 0},
    {"parameters", STYLE_INT, 0},
    {"blocks", STYLE_INT, 0},
    {"hidden_size", STYLE_INT, 0},
    {"vocab_size", STYLE_INT, 0},
    {"windows", STYLE_INT, 0},
    {"window_tokens", STYLE_INT, 0},
    {"tokens", STYLE_INT, 0},
    {"seed", STYLE_INT, 0},
    {"score_windows", STYLE_INT, 0},
    {"out", STYLE_INT, 0},
    {"in", STYLE_INT, 0},
    {"weights", STYLE_INT, 0},
    {"channel", STYLE_INT, 0},
    {"channels", STYLE_INT, 0},
    {"window", STYLE_INT, 0},
    {"position", STYLE_INT, 0},
    {"massive", STYLE_INT, 0},
    {"chosen", STYLE_BOOL, 0},
    {"differs", STYLE_INT, 0},
    {"disagrees", STYLE_BOOL, 0},
    {"bits", STYLE_FIXED, 3},
    {"bits_per_weight", STYLE_FIXED, 3},
    {"log_rel_mse", STYLE_FIXED, 3},
    {"ppl", STYLE_FIXED, 4},
    {"ppl_float", STYLE_FIXED, 4},
    {"ppl_result", STYLE_FIXED, 4},
    {"nll", STYLE_FIXED, 5},
    {"kl", STYLE_FIXED, 5},
    {"kl_result", STYLE_FIXED, 5},
    {"delta_kl", STYLE_FIXED, 5},
    {"delta_se", STYLE_FIXED, 5},
    {"top1", STYLE_FIXED, 4},
    {"seconds", STYLE_FIXED, 2},
    {"activation_max", STYLE_FIXED, 2},
    {"max", STYLE_FIXED, 2},
    {"median", STYLE_FIXED, 4},
    {"q999", STYLE_FIXED, 3},
    {"rms", STYLE_FIXED, 4},
    {"mean", STYLE_FIXED, 4},
    {"std", STYLE_FIXED, 4},
    {"crest", STYLE_FIXED, 1},
    {"crest_max", STYLE_FIXED, 1},
    {"ratio_median", STYLE_FIXED, 1},
    {"ratio_max", STYLE_FIXED, 1},
    {"damp", STYLE_SCIENTIFIC, 1},
    {"one_minus_cka", STYLE_SCIENTIFIC, 2},
    {"one_minus_cka_token", STYLE_SCIENTIFIC, 2},
    {"rel_mse", STYLE_SCIENTIFIC, 2},
    {"value", STYLE_SCIENTIFIC, 3},
};

static const column *find_column(const char *name)
{
    for (size_t i = 0; i < sizeof numeric / sizeof *numeric; i++)
        if (strcmp(numeric[i].name, name) == 0)
            return &numeric[i];
    return NULL;
}

static void add_value(calm_table *table, const column *how, const calm_value *value)
{
    const double number = value->type == CALM_VALUE_INTEGER ? (double)value->integer : value->real;
    if (value->type == CALM_VALUE_TEXT)
        calm_table_text(table, value->text);
    else if (value->type != CALM_VALUE_INTEGER && value->type != CALM_VALUE_REAL)
        calm_table_empty(table);
    else if (how && how->style == STYLE_BOOL)
        calm_table_bool(table, value->integer != 0);
    else if (how && how->style == STYLE_FIXED)
        calm_table_fixed(table, number, how->digits);
    else if (how && how->style == STYLE_SCIENTIFIC)
        calm_table_scientific(table, number, how->digits);
    else if (value->type == CALM_VALUE_INTEGER)
        calm_table_int(table, value->integer);
    else
        calm_table_fixed(table, number, 4);
}

static calm_status add_row(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    calm_table *table = user;
    (void)ctx;
    for (size_t i = 0; i < n; i++) {
        const column *how = find_column(names[i]);
        if (values)
            add_value(table, how, &values[i]);
        else
            calm_table_column(table, names[i], how && how->style != STYLE_BOOL ? CALM_ALIGN_RIGHT : CALM_ALIGN_LEFT);
    }
    return CALM_OK;
}

/* ---- printing ---- */

static calm_status read_section(calm_ctx *ctx, calm_store *store, const section *at, int64_t run, calm_table *table)
{
    const calm_value param = calm_value_int(run);
    return calm_store_query(ctx, store, at->sql, &param, 1, add_row, table);
}

static calm_status print_json(calm_ctx *ctx, calm_store *store, const view *shown, int64_t run)
{
    calm_json *root = calm_json_new_object(), *rows;
    calm_status status = CALM_OK;
    for (size_t i = 0; i < shown->n_sections && status == CALM_OK; i++) {
        calm_table table;
        calm_table_init(&table);
        status = read_section(ctx, store, &shown->sections[i], run, &table);
        if (status == CALM_OK)
            status = calm_table_json(ctx, &table, &rows);
        if (status == CALM_OK)
            calm_json_set(root, shown->sections[i].key, rows);
        calm_table_clear(&table);
    }
    if (status == CALM_OK)
        status = calm_json_print(ctx, root);
    calm_json_free(root);
    return status;
}

/* "Run 3: qwen, finished" above rows of one run. */
static calm_status write_run(calm_ctx *ctx, calm_store *store, int64_t run, calm_text *out)
{
    calm_value row[2];
    const calm_value param = calm_value_int(run);
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT m.name, r.status FROM run r JOIN model m ON m.id = r.model_id "
                                              "WHERE r.id = ?1", &param, 1, row, 2));
    calm_text_printf(out, "Run %lld: %s, %s\n\n", (long long)run, row[0].text, row[1].text);
    return CALM_OK;
}

static calm_status write_section(calm_ctx *ctx, calm_store *store, const section *at, bool titled, int64_t run,
                                 calm_text *out)
{
    calm_table table;
    calm_table_init(&table);
    calm_status status = read_section(ctx, store, at, run, &table);
    if (titled)
        calm_text_printf(out, "%s\n", at->title);
    if (status == CALM_OK && at->sql == store_sql) {
        status = calm_table_write_fields(ctx, &table, 2, out);
    } else if (status == CALM_OK) {
        calm_table_drop_empty(&table);
        status = calm_table_write(ctx, &table, titled ? 2 : 0, out);
    }
    calm_table_clear(&table);
    return status;
}

static calm_status print_text(calm_ctx *ctx, calm_store *store, const view *shown, int64_t run)
{
    calm_text text;
    const bool titled = shown->n_sections > 1;
    calm_text_init(&text);
    calm_status status = shown->every || run == 0 ? CALM_OK : write_run(ctx, store, run, &text);
    for (size_t i = 0; i < shown->n_sections && status == CALM_OK; i++) {
        if (i)
            calm_text_append(&text, "\n", 1);
        status = write_section(ctx, store, &shown->sections[i], titled, run, &text);
    }
    return calm_inspect_print(ctx, &text);
}

/* ---- the command's part ---- */

static calm_status find_view(calm_ctx *ctx, const char *path, const char *what, const view **out)
{
    const char *names[N_VIEWS];
    for (size_t i = 0; i < N_VIEWS; i++) {
        names[i] = views[i].name;
        if (strcmp(names[i], what ? what : "summary") == 0) {
            *out = &views[i];
            return CALM_OK;
        }
    }
    return calm_inspect_unknown(ctx, path, what, names, N_VIEWS);
}

/* The run that is meant; 0: all of them, or there is none. */
static calm_status find_run(calm_ctx *ctx, calm_store *store, const view *shown, int64_t asked, int64_t *run)
{
    calm_value row[3];
    const calm_value param = calm_value_int(asked);
    CALM_TRY(calm_store_query_one(
        ctx, store, "SELECT coalesce(max(id), 0), count(*), coalesce(sum(id = ?1), 0) FROM run", &param, 1, row, 3));
    if (asked && row[2].integer == 0)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld; it has %lld, the newest is %lld",
                         calm_store_path(store), (long long)asked, (long long)row[1].integer,
                         (long long)row[0].integer);
    *run = asked || shown->every ? asked : row[0].integer;
    return CALM_OK;
}

calm_status calm_inspect_store(calm_ctx *ctx, const char *path, const calm_inspect_query *query)
{
    const view *shown = NULL;
    calm_store *store;
    int64_t run = 0;
    CALM_TRY(find_view(ctx, path, query->what, &shown));
    CALM_TRY(calm_store_open(ctx, path, NULL, &store));
    calm_status status = find_run(ctx, store, shown, query->run, &run);
    if (status == CALM_OK)
        status = query->json ? print_json(ctx, store, shown, run) : print_text(ctx, store, shown, run);
    calm_store_close(store);
    return status;
}
