/* calm inspect STORE activations: shows the largest values, where they emerge, which tokens and positions carry them,
 * their INT8 error, how they depend on the windows, and all hook points. */
#include "cli/inspect/inspect_view.h"

#define OF_RUN "FROM run r JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id "

/* The largest values of all hook points.  A first token has the same value in every window, so all its windows share
 * one row, whose other columns are those of the largest value (SQLite takes bare columns from the row of min()). */
static const char maxima_sql[] =
    "SELECT block, point, max, times_median, channel, windows, window, position, token, hook FROM ("
    "  SELECT x.id, x.block, x.point, p.value AS max, abs(p.value) / nullif(x.q50, 0) AS times_median, p.channel, "
    "  count(DISTINCT p.window) AS windows, p.window, p.token AS position, p.text AS token, x.hook, "
    "  min(p.rank) "
    OF_RUN "JOIN activation_peak p ON p.activation_id = x.id WHERE r.id = ?1 "
    "GROUP BY x.id, p.channel, p.token, p.text) ORDER BY abs(max) DESC, id, channel, position LIMIT 10";

static const char peaks_sql[] =
    "SELECT x.block, x.point, p.value AS max, abs(p.value) / nullif(x.q50, 0) AS times_median, p.channel, p.window, "
    "p.token AS position, p.text AS token, t.text_before, t.text_after, x.hook "
    OF_RUN "JOIN activation_peak p ON p.activation_id = x.id "
    "LEFT JOIN token_context t ON t.calibration_id = r.calibration_id AND t.window = p.window AND t.token = p.token "
    "WHERE r.id = ?1 ORDER BY abs(p.value) DESC, x.id, p.rank LIMIT 100";

/* The view v_emergence for the windows of one run. */
static const char emergence_sql[] =
    "SELECT min(iif(growth >= 10, block, NULL)) AS emergence_block, max(growth) AS largest_growth, "
    "max(max_abs) AS max_block_out, count(*) AS blocks FROM (SELECT x.block, x.max_abs, "
    "  x.max_abs / nullif(lag(x.max_abs) OVER (ORDER BY x.block), 0) AS growth "
    OF_RUN "WHERE r.id = ?1 AND x.point = 'block_out')";

/* A peak is one of the stored largest values of a hook point; window and position are those of the token's largest
 * peak. */
static const char tokens_sql[] =
    "SELECT p.text AS token, count(*) AS peaks, 100.0 * count(*) / sum(count(*)) OVER () AS percent, "
    "count(DISTINCT p.activation_id) AS hooks, max(abs(p.value)) AS max, p.window, p.token AS position "
    OF_RUN "JOIN activation_peak p ON p.activation_id = x.id WHERE r.id = ?1 "
    "GROUP BY p.text ORDER BY peaks DESC, max(abs(p.value)) DESC, p.text LIMIT 20";

static const char activations_sql[] =
    "SELECT x.block, x.point, p.value AS max, p.channel, p.window, p.token AS position, p.text AS token, "
    "x.q50 AS median, abs(p.value) / nullif(x.q50, 0) AS times_median, x.q999, x.rms, x.mean, x.std, "
    "x.crest_median AS crest, x.crest_max, x.ratio_median, x.ratio_max, "
    "x.n_massive AS massive, x.n_tokens AS tokens, x.channels, x.hook "
    OF_RUN "LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1 "
    "WHERE r.id = ?1 ORDER BY x.block, x.id";

/* For each hook point, block by block, the most frequent position of its largest values in their windows. */
static const char positions_sql[] =
    "SELECT x.block, x.point, count(*) AS peaks, count(DISTINCT p.window) AS windows, "
    "100.0 * sum(p.token = 0) / count(*) AS first_percent, "
    "(SELECT o.token FROM activation_peak o WHERE o.activation_id = x.id "
    "  GROUP BY o.token ORDER BY count(*) DESC, o.token LIMIT 1) AS position, "
    "(SELECT 100.0 * count(*) / x.n FROM activation_peak o WHERE o.activation_id = x.id "
    "  GROUP BY o.token ORDER BY count(*) DESC, o.token LIMIT 1) AS percent, "
    "count(DISTINCT p.channel) AS channels, x.hook "
    "FROM run r JOIN (SELECT a.*, (SELECT count(*) FROM activation_peak q WHERE q.activation_id = a.id) AS n "
    "  FROM activation a) x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id "
    "JOIN activation_peak p ON p.activation_id = x.id WHERE r.id = ?1 GROUP BY x.id ORDER BY x.point, x.block, x.id";

static const char int8_sql[] =
    "SELECT x.block, x.point, x.hook, x.count, x.max_abs, x.mean_abs, x.rms, x.q999, x.histogram_first, x.histogram "
    OF_RUN "WHERE r.id = ?1 ORDER BY x.block, x.id";

static const char subsets_sql[] =
    "SELECT x.block, x.point, x.hook, p.value, p.window, c.n_windows "
    OF_RUN "JOIN activation_peak p ON p.activation_id = x.id JOIN calibration c ON c.id = x.calibration_id "
    "WHERE r.id = ?1 ORDER BY x.block, x.id, p.rank";

/* With several texts each has a calibration row, next to that of all: KEY/1, KEY/2, ... (ptq/state/store_rows.c). */
static const char texts_sql[] =
    "SELECT x.block, x.point, c.text_name AS text, p.value AS max, x.max_abs / nullif(w.max_abs, 0) AS share, "
    "p.channel, p.window, p.token AS position, p.text AS token, x.q50 AS median, "
    "abs(p.value) / nullif(x.q50, 0) AS times_median, x.q999, x.rms, x.crest_median AS crest, x.ratio_max, "
    "x.n_massive AS massive, x.n_tokens AS tokens, x.hook "
    "FROM run r JOIN calibration a ON a.id = r.calibration_id "
    "JOIN calibration c ON c.key > a.key || '/' AND c.key < a.key || '0' "
    "JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = c.id "
    "LEFT JOIN activation w ON w.model_id = r.model_id AND w.calibration_id = a.id AND w.hook = x.hook "
    "LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1 "
    "WHERE r.id = ?1 ORDER BY x.block, w.id, c.id";

const calm_inspect_list calm_inspect_activations[] = {
    {"maxima", "Largest values", .sql = maxima_sql, .n_params = 1},
    {"emergence", "Emergence: the first block whose output's maximum is 10 times the one before",
     .sql = emergence_sql, .n_params = 1, .fields = true},
    {"tokens", "Tokens that carry the largest values of each hook point", .sql = tokens_sql, .n_params = 1},
    {"positions", "Positions of the largest values of each hook point", .sql = positions_sql, .n_params = 1},
    {"int8", "INT8 with one scale: from the maximum, or clipped at the 99.9 % quantile", .sql = int8_sql,
     .fill = calm_inspect_int8},
    {"subsets", "The maximum over a half, a quarter and an eighth of the windows, as a share of that over all",
     .sql = subsets_sql, .fill = calm_inspect_subsets},
    {"texts", "Each text of several alone; share: of the maximum over all", .sql = texts_sql, .n_params = 1,
     .none = "one calibration text"},
    {"activations", "Hook points", .sql = activations_sql, .n_params = 1},
    {0},
};

const calm_inspect_list calm_inspect_peaks[] = {
    {"peaks", "The 100 largest values", .sql = peaks_sql, .n_params = 1},
    {0}};
