/* calm inspect STORE: shows plain lists, one query each.
 *
 * The queries read the tables, not the views v_*, which round their figures.  Each finds its rows by primary keys;
 * none scans the rows of all runs. */
#include "cli/inspect/inspect_view.h"

/* ---- queries: ?1 is the run ---- */

/* Restricts rows to --unit: jobs ?3 .. ?4 of block ?2; NULL: all. */
#define OF_UNIT " AND (?2 IS NULL OR (j.block_id = ?2 AND j.position BETWEEN ?3 AND ?4))"

/* Excludes jobs that another run of the model made by grouping linears differently (--split-v). */
#define OF_RUN                                                                                               \
    " AND (c.run_id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM choice oc JOIN job o ON o.id = oc.job_id "      \
    "WHERE oc.run_id = r.id AND o.block_id = j.block_id AND ("                                               \
    "instr(' ' || o.linears || ' ', ' ' || j.linears || ' ') OR "                                            \
    "instr(' ' || j.linears || ' ', ' ' || o.linears || ' '))))"

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
    "SELECT r.id AS run, m.name AS model, r.status, " CALM_INSPECT_RESULT
    ", r.bits_per_weight, r.bytes_before, r.bytes_after, "
    OF_TEST("ppl", "'float'") " AS ppl_float, " OF_TEST("ppl", "r.result") " AS ppl_result, "
    OF_TEST("kl", "r.result") " AS kl_result, " OF_TEST("cosine", "r.result") " AS cosine_result, "
    "(SELECT count(*) FROM run_candidate c WHERE c.run_id = r.id) AS candidates, "
    "(SELECT count(*) FROM choice c WHERE c.run_id = r.id) AS choices, r.started_at AS started, r.ended_at AS ended, "
    "r.command, r.reason "
    "FROM run r JOIN model m ON m.id = r.model_id WHERE ?1 IN (0, r.id) ORDER BY r.id";

static const char blocks_sql[] =
    "SELECT b.number AS block, b.name, j.role AS job, j.sublayer, j.out_features AS \"out\", j.in_features AS \"in\", "
    "j.out_features * j.in_features AS weights, a.name AS algorithm, k.scheme, k.bits_per_weight AS bits, j.linears "
    "FROM run r JOIN block b ON b.model_id = r.model_id JOIN job j ON j.block_id = b.id "
    "LEFT JOIN choice c ON c.run_id = r.id AND c.job_id = j.id LEFT JOIN candidate k ON k.id = c.candidate_id "
    "LEFT JOIN algorithm a ON a.id = k.algorithm_id WHERE r.id = ?1" OF_UNIT OF_RUN " ORDER BY b.number, j.position";

static const char candidates_sql[] =
    "SELECT b.number AS block, j.role AS job, a.name AS algorithm, k.scheme, coalesce(c.candidate_id = k.id, 0) AS "
    "chosen, " SCORE_COLUMNS ", k.bits_per_weight AS bits, k.damp, k.seconds, k.id AS candidate, k.failure, a.chain "
    "FROM run_candidate rc JOIN run r ON r.id = rc.run_id JOIN candidate k ON k.id = rc.candidate_id "
    "JOIN algorithm a ON a.id = k.algorithm_id JOIN job j ON j.id = k.job_id JOIN block b ON b.id = j.block_id "
    "LEFT JOIN choice c ON c.run_id = rc.run_id AND c.job_id = k.job_id" SCORES
    " WHERE rc.run_id = ?1" OF_UNIT " ORDER BY b.number, j.position, s2.value IS NULL, s2.value, a.name, k.id";

static const char scores_sql[] =
    "SELECT b.number AS block, j.role AS job, a.name AS algorithm, k.scheme, s.unit, s.metric, s.value, k.id AS "
    "candidate "
    "FROM run_candidate rc JOIN candidate k ON k.id = rc.candidate_id JOIN score s ON s.candidate_id = k.id "
    "JOIN algorithm a ON a.id = k.algorithm_id JOIN job j ON j.id = k.job_id JOIN block b ON b.id = j.block_id "
    "WHERE rc.run_id = ?1" OF_UNIT " ORDER BY b.number, j.position, a.name, k.scheme, s.unit, s.metric";

static const char choices_sql[] =
    "SELECT b.number AS block, j.role AS job, coalesce(a.name, 'float') AS algorithm, k.scheme, " SCORE_COLUMNS
    ", k.bits_per_weight AS bits, p.value AS activation_max, p.channel, p.window, p.token AS position, "
    "p.text AS token, x.crest_median AS crest, c.advice, c.disagrees, c.unit, c.reason "
    "FROM choice c JOIN run r ON r.id = c.run_id JOIN job j ON j.id = c.job_id JOIN block b ON b.id = j.block_id "
    "LEFT JOIN candidate k ON k.id = c.candidate_id LEFT JOIN algorithm a ON a.id = k.algorithm_id" SCORES
    " LEFT JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id AND x.hook = "
    "j.input_hook LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1 "
    "WHERE c.run_id = ?1" OF_UNIT " ORDER BY b.number, j.position";

static const char evaluations_sql[] =
    "SELECT v.role, " CALM_INSPECT_SUBJECT
    ", e.ppl, e.nll, e.kl, e.top1, v.delta_kl, e.error, e.cosine, e.cosine_min, e.spearman, "
    "v.delta_one_minus_cosine, v.delta_se, e.tokens, e.n_windows AS windows, e.window_tokens, e.text_name AS text "
    "FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id WHERE v.run_id = ?1 "
    "AND " CALM_INSPECT_ONCE " ORDER BY v.role, coalesce(e.kl, 1 - e.cosine), v.subject";

static const char ablation_sql[] =
    "SELECT a.run_id AS run, a.kind, a.subject, a.unit, a.metric, a.rule, a.bits, e.ppl, e.nll, e.kl, a.delta_kl, "
    "e.error, 1 - e.cosine AS one_minus_cosine, a.delta_one_minus_cosine, a.delta_se, e.top1, e.spearman, "
    "a.differs AS changed_units, a.seconds, a.failure "
    "FROM ablation a LEFT JOIN evaluation e ON e.id = a.evaluation_id WHERE ?1 IN (0, a.run_id) "
    "ORDER BY a.run_id, coalesce(e.kl, 1 - e.cosine) IS NULL, coalesce(e.kl, 1 - e.cosine), a.subject";

/* Leaves out a figure that needs a scan of all candidates if there are too many to scan in a moment. */
#define UP_TO_MANY(subquery) "iif((SELECT count(*) FROM candidate) <= 100000, (" subquery "), NULL)"

static const char store_sql[] =
    "SELECT user_version AS version, (SELECT count(*) FROM model) AS models, (SELECT count(*) FROM run) AS runs, "
    "(SELECT count(*) FROM candidate) AS candidates, "
    UP_TO_MANY("SELECT count(*) FROM candidate WHERE failure IS NOT NULL") " AS failed, "
    UP_TO_MANY("SELECT count(*) FROM score") " AS scores, (SELECT count(*) FROM activation) AS activations, "
    UP_TO_MANY("SELECT sum(blob_bytes) FROM (SELECT DISTINCT blob, blob_bytes FROM candidate)") " AS blob_bytes "
    "FROM pragma_user_version WHERE ?1 IS NOT NULL";

static const char models_sql[] =
    "SELECT m.id, m.name, m.architecture, m.dtype, m.n_params AS parameters, m.n_blocks AS blocks, m.hidden_size, "
    "m.vocab_size, m.bytes, m.path FROM model m WHERE ?1 = 0 OR m.id = (SELECT model_id FROM run WHERE id = ?1) ORDER "
    "BY m.id";

static const char calibrations_sql[] =
    "SELECT c.id, c.n_windows AS windows, c.window_tokens, c.n_tokens AS tokens, c.seed, c.score_windows, "
    "e.emergence_block, c.text_name AS text FROM calibration c "
    "LEFT JOIN v_emergence e ON e.calibration = c.id WHERE ?1 = 0 OR c.id = (SELECT calibration_id FROM run WHERE id = "
    "?1) OR instr(c.key, (SELECT a.key || '/' FROM run r JOIN calibration a ON a.id = r.calibration_id WHERE r.id = "
    "?1)) = 1 ORDER BY c.id";

static const char brief_runs_sql[] =
    "SELECT r.id AS run, m.name AS model, r.status, " CALM_INSPECT_RESULT ", r.bits_per_weight, "
    OF_TEST("ppl", "'float'") " AS ppl_float, " OF_TEST("ppl", "r.result") " AS ppl_result, "
    OF_TEST("kl", "r.result") " AS kl_result, " OF_TEST("cosine", "r.result") " AS cosine_result, "
    "r.started_at AS started, r.command "
    "FROM run r JOIN model m ON m.id = r.model_id WHERE ?1 IN (0, r.id) ORDER BY r.id";

/* ---- parts of calm report ---- */

static const char inputs_sql[] =
    "SELECT j.name AS job, j.input_hook AS hook, j.out_features AS \"out\", j.in_features AS \"in\", j.linears "
    "FROM run r JOIN block b ON b.model_id = r.model_id JOIN job j ON j.block_id = b.id "
    "LEFT JOIN choice c ON c.run_id = r.id AND c.job_id = j.id WHERE r.id = ?1" OF_RUN " ORDER BY b.number, j.position";

static const char experts_sql[] =
    "SELECT b.number AS block, j.role AS job, e.tokens, a.name AS algorithm, k.score_rows "
    "FROM run r JOIN block b ON b.model_id = r.model_id JOIN job j ON j.block_id = b.id "
    "JOIN expert e ON e.job_id = j.id AND e.calibration_id = r.calibration_id "
    "LEFT JOIN choice c ON c.run_id = r.id AND c.job_id = j.id LEFT JOIN candidate k ON k.id = c.candidate_id "
    "LEFT JOIN algorithm a ON a.id = k.algorithm_id WHERE r.id = ?1" OF_RUN " ORDER BY b.number, j.position";

static const char learned_sql[] =
    "SELECT b.number AS block, d.loss_before, d.loss_after, d.changed, d.kept, d.seconds, d.learner "
    "FROM run_learned l JOIN learned d ON d.id = l.learned_id JOIN block b ON b.id = d.block_id "
    "WHERE l.run_id = ?1 ORDER BY b.number";

/* Only windows of the float model and the result: a guard has as many windows for every uniform run. */
static const char windows_sql[] =
    "SELECT " CALM_INSPECT_SUBJECT ", w.number AS window, w.tokens, w.nll, w.kl, w.top1, w.error, w.cosine "
    "FROM run r JOIN run_evaluation v ON v.run_id = r.id AND v.role = 'test' AND v.subject IN ('float', r.result) "
    "JOIN evaluation_window w ON w.evaluation_id = v.evaluation_id WHERE r.id = ?1 ORDER BY v.subject, w.number";

#define OF_TEST_RESULT                                                                                                 \
    "FROM run r JOIN run_evaluation v ON v.run_id = r.id AND v.role = 'test' AND v.subject = r.result "

static const char quantiles_sql[] =
    "SELECT d.share, d.kl " OF_TEST_RESULT "JOIN divergence_quantile d ON d.evaluation_id = v.evaluation_id "
    "WHERE r.id = ?1 ORDER BY d.share";

static const char positions_sql[] =
    "SELECT d.first_position, d.last_position, d.tokens, d.kl " OF_TEST_RESULT
    "JOIN divergence_position d ON d.evaluation_id = v.evaluation_id WHERE r.id = ?1 ORDER BY d.first_position";

static const char worst_sql[] =
    "SELECT d.kl, d.nll_float, d.nll, d.text_before, d.text, d.best_float, d.best, d.window, d.token AS position "
    OF_TEST_RESULT "JOIN divergence_token d ON d.evaluation_id = v.evaluation_id WHERE r.id = ?1 ORDER BY d.rank";

/* Runs with a figure; if there are too many, the newest. */
static const char model_runs_sql[] =
    "SELECT r.id AS run, " CALM_INSPECT_RESULT
    ", r.bits_per_weight AS bits, r.bytes_after, " OF_TEST("ppl", "r.result") " AS ppl, "
    OF_TEST("kl", "r.result") " AS kl, " OF_TEST("cosine", "r.result") " AS cosine, "
    OF_TEST("text_name", "r.result") " AS text, " OF_TEST("n_windows", "r.result") " AS windows "
    "FROM run x JOIN run r ON r.model_id = x.model_id WHERE x.id = ?1 AND r.status = 'finished' "
    "AND coalesce(kl, cosine) IS NOT NULL ORDER BY r.id DESC LIMIT 200";

/* ---- views ---- */

const calm_inspect_list calm_inspect_runs[] = {{"runs", "runs", .sql = runs_sql, .n_params = 1}, {0}};
const calm_inspect_list calm_inspect_evaluations[] = {
    {"evaluations", "evaluations", .sql = evaluations_sql, .n_params = 1}, {0}};
/* The name of a plan contains unit, score and rule. */
const calm_inspect_list calm_inspect_ablation[] = {
    {"ablation", "ablation", .sql = ablation_sql, .n_params = 1, .none = "No run of calm ablate.",
     .brief = "run|subject|ppl|kl|delta_kl|error|one_minus_cosine|delta_one_minus_cosine|delta_se|"
              "spearman|changed_units|failure"},
    {0},
};
const calm_inspect_list calm_inspect_blocks[] = {{"blocks", "blocks", .sql = blocks_sql, .n_params = 4}, {0}};
const calm_inspect_list calm_inspect_candidates[] = {
    {"candidates", "candidates", .sql = candidates_sql, .n_params = 4}, {0}};
const calm_inspect_list calm_inspect_scores[] = {{"scores", "scores", .sql = scores_sql, .n_params = 4}, {0}};
const calm_inspect_list calm_inspect_choices[] = {{"choices", "choices", .sql = choices_sql, .n_params = 4}, {0}};
const calm_inspect_list calm_inspect_summary[] = {
    {"store", "Store", .sql = store_sql, .n_params = 1, .fields = true},
    {"models", "Models", .sql = models_sql, .n_params = 1},
    {"calibrations", "Calibrations", .sql = calibrations_sql, .n_params = 1},
    {"runs", "Runs", .sql = brief_runs_sql, .n_params = 1},
    {0},
};
const calm_inspect_list calm_inspect_parts[] = {
    {"inputs", "Jobs and their inputs", .sql = inputs_sql, .n_params = 1},
    {"experts", "Experts", .sql = experts_sql, .n_params = 1},
    {"learned", "Learned blocks", .sql = learned_sql, .n_params = 1},
    {"windows", "Windows of the test", .sql = windows_sql, .n_params = 1},
    {"quantiles", "KL of the test's tokens", .sql = quantiles_sql, .n_params = 1},
    {"positions", "KL by position in the window", .sql = positions_sql, .n_params = 1},
    {"worst", "Tokens of greatest KL", .sql = worst_sql, .n_params = 1},
    {0},
};
const calm_inspect_list calm_inspect_model_runs[] = {
    {"model_runs", "Runs of the model", .sql = model_runs_sql, .n_params = 1}, {0}};
