/* calm inspect STORE rate: shows sizes of runs against their losses, and the runs that no other beats.
 *
 * Only runs that were measured on the same windows of the same text compare, so each such test has its front. */
#include "cli/inspect/inspect_view.h"

#define SAME_TEST                                                                                                      \
    "q.model_id = p.model_id AND q.text_key IS p.text_key AND q.windows = p.windows AND "                             \
    "q.window_tokens = p.window_tokens"

/* The schemes that a budget chose, from narrow to wide; if the store has no choices, the schemes that competed. */
#define CHOSEN                                                                                                         \
    "(SELECT group_concat(s.scheme, ', ') FROM (SELECT DISTINCT k.scheme FROM choice c "                              \
    "JOIN candidate k ON k.id = c.candidate_id WHERE c.run_id = r.id ORDER BY k.bits_per_weight, k.scheme) s)"
#define COMPETED "(SELECT group_concat(value, ', ') FROM json_each(r.recipe, '$.schemes'))"

/* Runs with a size and a figure of the result; the front minimises size and `loss`. */
#define POINTS                                                                                                         \
    "WITH point AS MATERIALIZED (SELECT r.id AS run, r.model_id, m.name AS model, " CALM_INSPECT_RESULT ", "          \
    "coalesce(json_extract(r.recipe, '$.scheme'), " CHOSEN ", " COMPETED ") AS scheme, "                              \
    "json_extract(r.recipe, '$.format') AS format, r.bits_per_weight, r.bytes_after AS bytes, e.kl, "                 \
    "1 - e.cosine AS one_minus_cosine, coalesce(e.kl, 1 - e.cosine) AS loss, e.ppl, e.top1, e.n_windows AS windows, " \
    "e.window_tokens, e.text_name AS text, coalesce(e.text_digest, e.text_name) AS text_key "                         \
    "FROM run r JOIN model m ON m.id = r.model_id "                                                                   \
    "JOIN run_evaluation v ON v.run_id = r.id AND v.role = 'test' AND v.subject = r.result "                          \
    "JOIN evaluation e ON e.id = v.evaluation_id WHERE r.status = 'finished' AND r.bytes_after IS NOT NULL) "

static const char rate_sql[] =
    POINTS
    "SELECT p.model, p.run, p.result, p.scheme, p.bytes, p.kl, p.one_minus_cosine, p.ppl, "
    "NOT EXISTS (SELECT 1 FROM point q WHERE " SAME_TEST " AND q.bytes <= p.bytes AND q.loss <= p.loss AND "
    "(q.bytes < p.bytes OR q.loss < p.loss)) AS front, p.bits_per_weight, p.top1, p.format, p.windows, "
    "p.window_tokens, p.text "
    "FROM point p WHERE p.loss IS NOT NULL AND (?1 = 0 OR EXISTS (SELECT 1 FROM point q WHERE q.run = ?1 AND " SAME_TEST
    ")) ORDER BY p.model, p.text_key, p.windows, p.window_tokens, p.bytes, p.loss, p.run";

const calm_inspect_list calm_inspect_rate[] = {
    {"rate", "rate", .sql = rate_sql, .n_params = 1,
     .none = "No finished run has both a size and a KL or cosine on a test text."},
    {0},
};
