/* Removes the blobs of a run's rejected candidates that nothing else in the store needs; their rows stay. */
#include "store/blob.h"
#include "store/store_impl.h"

static const char make_set[] =
    "DROP TABLE IF EXISTS temp.drop_kept; CREATE TEMP TABLE drop_kept (id INTEGER PRIMARY KEY);";

/* Selects the candidates of all runs that were chosen, learned, or the start of learning. */
static const char chosen[] =
    "INSERT OR IGNORE INTO temp.drop_kept SELECT candidate_id FROM choice WHERE candidate_id IS NOT NULL"
    " UNION SELECT candidate_id FROM learned_candidate UNION SELECT start_id FROM learned_candidate";

/* Selects all candidates of other runs that keep their candidates or are unfinished. */
static const char of_pools[] =
    "INSERT OR IGNORE INTO temp.drop_kept SELECT candidate_id FROM run_candidate WHERE run_id IN (SELECT id FROM run"
    " WHERE id <> ?1 AND (status <> 'finished' OR json_extract(recipe, '$.keep_candidates')))";

/* Selects the candidates of other runs' uniform results, which no rows list: by their algorithm, which follows "for" if
 * an expert had a substitute, or by the scheme of "all SCHEME". */
static const char of_results[] =
    "INSERT OR IGNORE INTO temp.drop_kept SELECT k.id FROM run r JOIN run_candidate rc ON rc.run_id = r.id"
    " JOIN candidate k ON k.id = rc.candidate_id JOIN algorithm a ON a.id = k.algorithm_id"
    " WHERE r.id <> ?1 AND r.status = 'finished' AND r.result <> 'hybrid'"
    " AND (replace(r.result, ',', ' ') || ' ' LIKE 'all ' || k.scheme || ' %'"
    " OR instr(replace(r.result, ',', ' ') || ' ',"
    " substr(a.name, iif(instr(a.name, ' for '), instr(a.name, ' for ') + 5, 1)) || ' ') = 1)";

/* Selects the blobs to remove; compares digests, because equal results share a blob. */
static const char losers[] =
    "SELECT DISTINCT k.blob, k.blob_bytes FROM run_candidate rc JOIN candidate k ON k.id = rc.candidate_id"
    " WHERE rc.run_id = ?1 AND k.blob IS NOT NULL AND k.blob NOT IN (SELECT blob FROM candidate WHERE blob IS NOT NULL"
    " AND id IN temp.drop_kept)";

calm_status calm_store_drop_rejected(calm_ctx *ctx, calm_store *store, int64_t run_id, const int64_t *keep,
                                   size_t n_keep, calm_store_dropped *out)
{
    CALM_SCOPED_ROWS(row);
    CALM_SCOPED_SCRATCH(ctx);
    *out = (calm_store_dropped){0};
    CALM_TRY(calm_sql_script(ctx, store->sql, make_set));
    CALM_TRY(calm_sql_run(ctx, store->sql, chosen, CALM_NONE));
    CALM_TRY(calm_sql_run(ctx, store->sql, of_pools, CALM_BIND(CALM_I(run_id))));
    CALM_TRY(calm_sql_run(ctx, store->sql, of_results, CALM_BIND(CALM_I(run_id))));
    for (size_t i = 0; i < n_keep; i++)
        CALM_TRY(calm_sql_run(ctx, store->sql, "INSERT OR IGNORE INTO temp.drop_kept VALUES (?1)",
                              CALM_BIND(CALM_I(keep[i]))));
    CALM_TRY(calm_sql_first(ctx, store->sql, losers, CALM_BIND(CALM_I(run_id)), &row));
    while (calm_sql_next(ctx, store->sql, row)) {
        const calm_value digest = calm_sql_value(row, 0);
        const int64_t bytes = calm_sql_int(row, 1);
        /* Skip a blob that is already removed, or damaged: the next run reports it. */
        if (digest.type != CALM_VALUE_TEXT || !calm_blob_present(store->blobs, digest.text, (size_t)bytes))
            continue;
        CALM_TRY(calm_blob_remove(ctx, store->blobs, digest.text));
        out->n++;
        out->bytes += bytes;
    }
    return ctx->status;
}
