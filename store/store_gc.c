/* Collecting: the ids of doomed rows are put into temporary tables, which also works in a store that is open for
 * reading; a collection deletes the rows that a dry run counts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "store/blob.h"
#include "store/store_impl.h"

/* ---- doomed rows ---- */

#define SET(name) "DROP TABLE IF EXISTS temp." name "; CREATE TEMP TABLE " name " (id INTEGER PRIMARY KEY);"

static const char make_sets[] = SET("gc_kept") SET("gc_run") SET("gc_needed") SET("gc_candidate") SET("gc_algorithm")
    SET("gc_activation") SET("gc_evaluation") SET("gc_calibration") SET("gc_model") SET("gc_block") SET("gc_job")
    SET("gc_learned")
    "DROP TABLE IF EXISTS temp.gc_pair; CREATE TEMP TABLE gc_pair (model_id INTEGER, calibration_id INTEGER);";

#define DOOMED(name, from, unless) "INSERT INTO gc_" name " SELECT id FROM " from " WHERE NOT (" unless ");"
#define UNFINISHED "SELECT * FROM run WHERE id IN temp.gc_kept AND status <> 'finished'"

/* After gc_kept: fills gc_needed with the needed candidates, then the other tables with all rows that are not needed.
 * In older stores the candidates of an unfinished run are known only by its model and calibration. */
static const char fill_sets[] =
    DOOMED("run", "run", "id IN temp.gc_kept")
    "INSERT INTO gc_needed SELECT candidate_id FROM run_candidate WHERE run_id IN temp.gc_kept"
    " UNION SELECT candidate_id FROM choice WHERE run_id IN temp.gc_kept AND candidate_id IS NOT NULL"
    " UNION SELECT k.id FROM (" UNFINISHED ") r JOIN block b ON b.model_id = r.model_id JOIN job j ON j.block_id = b.id"
    " JOIN candidate k ON k.job_id = j.id WHERE r.calibration_id IS NULL OR k.calibration_id = r.calibration_id"
    " UNION SELECT c.candidate_id FROM run_learned l JOIN learned_candidate c ON c.learned_id = l.learned_id"
    " WHERE l.run_id IN temp.gc_kept"
    " UNION SELECT c.start_id FROM run_learned l JOIN learned_candidate c ON c.learned_id = l.learned_id"
    " WHERE l.run_id IN temp.gc_kept;"
    DOOMED("learned", "learned", "id IN (SELECT learned_id FROM run_learned WHERE run_id IN temp.gc_kept)")
    DOOMED("candidate", "candidate", "id IN temp.gc_needed")
    DOOMED("algorithm", "algorithm",
           "id IN (SELECT k.algorithm_id FROM gc_needed n JOIN candidate k ON k.id = n.id)")
    "INSERT INTO gc_pair SELECT model_id, calibration_id FROM run WHERE id IN temp.gc_kept"
    " UNION SELECT b.model_id, k.calibration_id FROM gc_needed n JOIN candidate k ON k.id = n.id"
    " JOIN job j ON j.id = k.job_id JOIN block b ON b.id = j.block_id;"
    /* Each of several texts has its own calibration, KEY/1, KEY/2, ..., next to that of all. */
    "INSERT INTO gc_pair SELECT p.model_id, t.id FROM gc_pair p JOIN calibration c ON c.id = p.calibration_id"
    " JOIN calibration t ON t.key > c.key || '/' AND t.key < c.key || '0';"
    "INSERT INTO gc_activation SELECT a.id FROM activation a WHERE NOT EXISTS (SELECT 1 FROM gc_pair p WHERE"
    " p.model_id = a.model_id AND (p.calibration_id IS NULL OR p.calibration_id = a.calibration_id));"
    DOOMED("evaluation", "evaluation",
           "id IN (SELECT evaluation_id FROM run_evaluation WHERE run_id IN temp.gc_kept UNION SELECT evaluation_id"
           " FROM ablation WHERE run_id IN temp.gc_kept AND evaluation_id IS NOT NULL)"
           " OR model_id IN (SELECT model_id FROM (" UNFINISHED "))")
    DOOMED("calibration", "calibration",
           "id IN (SELECT calibration_id FROM gc_pair WHERE calibration_id IS NOT NULL) OR id IN (SELECT calibration_id"
           " FROM activation WHERE id NOT IN temp.gc_activation)")
    DOOMED("model", "model",
           "id IN (SELECT model_id FROM gc_pair) OR id IN (SELECT model_id FROM evaluation WHERE id NOT IN"
           " temp.gc_evaluation)")
    "INSERT INTO gc_block SELECT id FROM block WHERE model_id IN temp.gc_model;"
    "INSERT INTO gc_job SELECT id FROM job WHERE block_id IN temp.gc_block;";

/* Every table, each before the tables that it refers to, and the condition of its doomed rows. */
static const struct kind {
    const char *table, *doomed;
} kinds[] = {
    {"gate", "run_id IN temp.gc_run"},
    {"environment", "run_id IN temp.gc_run"},
    {"run_stage", "run_id IN temp.gc_run"},
    {"artifact", "run_id IN temp.gc_run"},
    {"ablation", "run_id IN temp.gc_run"},
    {"run_evaluation", "run_id IN temp.gc_run"},
    {"choice", "run_id IN temp.gc_run"},
    {"run_candidate", "run_id IN temp.gc_run"},
    {"run_learned", "run_id IN temp.gc_run"},
    {"learned_candidate", "learned_id IN temp.gc_learned"},
    {"learned", "id IN temp.gc_learned"},
    {"run", "id IN temp.gc_run"},
    {"score", "candidate_id IN temp.gc_candidate"},
    {"candidate", "id IN temp.gc_candidate"},
    {"algorithm", "id IN temp.gc_algorithm"},
    {"evaluation_window", "evaluation_id IN temp.gc_evaluation"},
    {"divergence_quantile", "evaluation_id IN temp.gc_evaluation"},
    {"divergence_position", "evaluation_id IN temp.gc_evaluation"},
    {"divergence_token", "evaluation_id IN temp.gc_evaluation"},
    {"evaluation", "id IN temp.gc_evaluation"},
    {"activation_peak", "activation_id IN temp.gc_activation"},
    {"activation", "id IN temp.gc_activation"},
    {"token_context", "calibration_id IN temp.gc_calibration"},
    {"expert", "job_id IN temp.gc_job OR calibration_id IN temp.gc_calibration"},
    {"calibration", "id IN temp.gc_calibration"},
    {"job", "id IN temp.gc_job"},
    {"block", "id IN temp.gc_block"},
    {"model", "id IN temp.gc_model"},
};
/* Files are counted after the tables. */
enum { N_TABLES = sizeof kinds / sizeof *kinds, GUARD = N_TABLES, BLOB, N_KINDS };

/* Reads the ids of a table, in ctx->out. */
static calm_status read_ids(calm_ctx *ctx, calm_sql *sql, const char *of, const int64_t **out, size_t *n_out)
{
    char *query;
    int64_t n, *ids;
    size_t at = 0;
    CALM_SCOPED_ROWS(row);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &query, "SELECT count(*) FROM %s", of));
    CALM_TRY(calm_sql_number(ctx, sql, query, CALM_NONE, &n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ids, (size_t)n));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &query, "SELECT id FROM %s ORDER BY id", of));
    CALM_TRY(calm_sql_first(ctx, sql, query, CALM_NONE, &row));
    while (calm_sql_next(ctx, sql, row) && at < (size_t)n)
        ids[at++] = calm_sql_int(row, 0);
    *out = ids, *n_out = at;
    return ctx->status;
}

static calm_status no_such_run(calm_ctx *ctx, calm_store *store, int64_t run)
{
    const int64_t *ids;
    size_t n;
    CALM_SCOPED_TEXT(there);
    CALM_TRY(read_ids(ctx, store->sql, "run", &ids, &n));
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&there, "%s%lld", i ? ", " : "", (long long)ids[i]);
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld to drop; it has %s", store->path, (long long)run,
                     there.data ? there.data : "no runs");
}

static calm_status find_doomed(calm_ctx *ctx, calm_store *store, const calm_gc_plan *plan)
{
    CALM_TRY(calm_sql_script(ctx, store->sql, make_sets));
    for (size_t i = 0; i < plan->n_drop; i++) {
        int64_t there;
        CALM_TRY(calm_sql_number(ctx, store->sql, "SELECT count(*) FROM run WHERE id = ?1",
                                 CALM_BIND(CALM_I(plan->drop[i])), &there));
        if (!there)
            return no_such_run(ctx, store, plan->drop[i]);
    }
    CALM_TRY(calm_sql_run(ctx, store->sql, "INSERT INTO gc_kept SELECT id FROM run ORDER BY id DESC LIMIT ?1",
                          CALM_BIND(CALM_I(plan->keep))));
    for (size_t i = 0; i < plan->n_drop; i++)
        CALM_TRY(calm_sql_run(ctx, store->sql, "DELETE FROM temp.gc_kept WHERE id = ?1",
                              CALM_BIND(CALM_I(plan->drop[i]))));
    return calm_sql_script(ctx, store->sql, fill_sets);
}

/* ---- counts ---- */

/* Returns the SQL expression of a row's bytes: "coalesce(length(CAST(name AS BLOB)), 0) + ..." over the columns. */
static calm_status size_expression(calm_ctx *ctx, calm_sql *sql, const char *table, const char **out)
{
    CALM_SCOPED_ROWS(row);
    *out = NULL;
    CALM_TRY(calm_sql_first(
        ctx, sql,
        "SELECT group_concat(CASE type WHEN 'TEXT' THEN printf('coalesce(length(CAST(\"%w\" AS BLOB)), 0)'"
        ", name) ELSE printf('8 * (\"%w\" IS NOT NULL)', name) END, ' + ') FROM pragma_table_info(?1)",
        CALM_BIND(CALM_T(table)), &row));
    return calm_sql_next(ctx, sql, row) ? calm_sql_text(ctx, row, 0, out) : ctx->status;
}

static calm_status count_kind(calm_ctx *ctx, calm_sql *sql, const struct kind *kind, calm_gc_kind *out)
{
    const char *size;
    char *query;
    CALM_SCOPED_ROWS(row);
    out->kind = kind->table;
    CALM_TRY(size_expression(ctx, sql, kind->table, &size));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &query, "SELECT count(*), coalesce(sum(%s), 0) FROM %s WHERE %s", size,
                       kind->table, kind->doomed));
    CALM_TRY(calm_sql_first(ctx, sql, query, CALM_NONE, &row));
    return calm_sql_next(ctx, sql, row) ? CALM_SQL_READ(ctx, row, 0, CALM_TO(&out->rows), CALM_TO(&out->bytes))
                                        : ctx->status;
}

static calm_status delete_rows(calm_ctx *ctx, calm_store *store)
{
    for (size_t i = 0; i < N_TABLES; i++) {
        char *text;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "DELETE FROM main.%s WHERE %s", kinds[i].table, kinds[i].doomed));
        CALM_TRY(calm_sql_run(ctx, store->sql, text, CALM_NONE));
    }
    return CALM_OK;
}

/* ---- blobs ---- */

#define DIGITS (CALM_SHA256_HEX - 1)

typedef struct blobs {
    char (*kept)[DIGITS];    /* [n_kept] digests that rows name, sorted */
    size_t n_kept;
    const char *root;
    bool dry_run;
    calm_gc_kind *counted;
} blobs;

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, DIGITS);
}

/* Reads the digests of the blobs that kept rows name, and ignores values that are not digests. */
static calm_status read_kept(calm_ctx *ctx, calm_sql *sql, blobs *it)
{
    int64_t n;
    CALM_SCOPED_ROWS(row);
    CALM_TRY(calm_sql_number(ctx, sql, "SELECT (SELECT count(*) FROM candidate) + (SELECT count(*) FROM learned)",
                             CALM_NONE, &n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->kept, (size_t)n));
    CALM_TRY(calm_sql_first(ctx, sql,
                            "SELECT blob FROM candidate WHERE blob IS NOT NULL AND id NOT IN temp.gc_candidate"
                            " UNION ALL SELECT blob FROM learned WHERE id NOT IN temp.gc_learned",
                            CALM_NONE, &row));
    while (calm_sql_next(ctx, sql, row) && it->n_kept < (size_t)n) {
        const calm_value digest = calm_sql_value(row, 0);
        if (digest.type == CALM_VALUE_TEXT && digest.n_bytes == DIGITS)
            memcpy(it->kept[it->n_kept++], digest.text, DIGITS);
    }
    if (it->n_kept)
        qsort(it->kept, it->n_kept, DIGITS, by_digest);
    return ctx->status;
}

static calm_status judge_blob(calm_ctx *ctx, void *user, const char *digest, size_t n_bytes)
{
    blobs *it = user;
    if (it->n_kept && bsearch(digest, it->kept, it->n_kept, DIGITS, by_digest))
        return CALM_OK;
    if (!it->dry_run)
        CALM_TRY(calm_blob_remove(ctx, it->root, digest));
    it->counted->rows++;
    it->counted->bytes += (int64_t)n_bytes;
    return CALM_OK;
}

/* ---- files ---- */

static int64_t file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

/* Removes the guard's hidden states unless a kept run is unfinished and may continue with them. */
static calm_status collect_guard(calm_ctx *ctx, calm_store *store, bool dry_run, calm_gc_kind *counted)
{
    static const char *const ends[] = {CALM_STORE_GUARD, CALM_STORE_GUARD_NEW};
    int64_t unfinished;
    CALM_TRY(calm_sql_number(ctx, store->sql, "SELECT count(*) FROM (" UNFINISHED ")", CALM_NONE, &unfinished));
    for (size_t i = 0; !unfinished && i < sizeof ends / sizeof *ends; i++) {
        char *path;
        struct stat info;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s%s", store->path, ends[i]));
        if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        counted->rows++;
        counted->bytes += (int64_t)info.st_size;
        CALM_TRY(dry_run ? CALM_OK : calm_remove_tree(ctx, path));
    }
    return CALM_OK;
}

/* Checks the disk space for a compaction, which writes the remaining pages twice: to a temporary file and to the -wal.
 * Sets *note if there is too little. */
static calm_status has_room(calm_ctx *ctx, calm_store *store, const char **note)
{
    int64_t pages, unused, page;
    struct statvfs room;
    CALM_TRY(calm_sql_number(ctx, store->sql, "PRAGMA page_count", CALM_NONE, &pages));
    CALM_TRY(calm_sql_number(ctx, store->sql, "PRAGMA freelist_count", CALM_NONE, &unused));
    CALM_TRY(calm_sql_number(ctx, store->sql, "PRAGMA page_size", CALM_NONE, &page));
    const double needed = 2.0 * (double)(pages - unused) * (double)page;
    if (statvfs(store->path, &room) == 0 && (double)room.f_bavail * (double)room.f_frsize < needed)
        CALM_TRY(calm_strf(
            ctx, ctx->out, note,
            "not compacted: that takes %.1f MB next to the store, %.1f MB are free; %.1f MB in it are free for "
            "new rows",
            needed / 1e6, (double)room.f_bavail * (double)room.f_frsize / 1e6, (double)unused * (double)page / 1e6));
    return CALM_OK;
}

/* Compacts the database file.  A failure is only a note, because the rows are already removed and their space in the
 * file serves new rows. */
static calm_status compact(calm_ctx *ctx, calm_store *store, const char **note)
{
    int64_t unused, held;
    char message[CALM_MESSAGE_MAX];
    CALM_TRY(calm_sql_number(ctx, store->sql, "PRAGMA freelist_count", CALM_NONE, &unused));
    CALM_TRY(unused ? has_room(ctx, store, note) : CALM_OK);
    if (*note)
        return CALM_OK;
    if ((!unused || calm_sql_script(ctx, store->sql, "VACUUM") == CALM_OK) &&
        calm_sql_number(ctx, store->sql, "PRAGMA wal_checkpoint(TRUNCATE)", CALM_NONE, &held) == CALM_OK) {
        *note = held ? "somebody reads the store: the file shrinks when it is opened for writing the next time" : NULL;
        return CALM_OK;
    }
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_clear_failure(ctx);
    return calm_strf(ctx, ctx->out, note, "not compacted: %s", message);
}

/* ---- collection ---- */

static calm_status collect_rows(calm_ctx *ctx, calm_store *store, const calm_gc_plan *plan, calm_gc_kind *counted,
                                calm_gc_result *out)
{
    CALM_TRY(find_doomed(ctx, store, plan));
    for (size_t i = 0; i < N_TABLES; i++)
        CALM_TRY(count_kind(ctx, store->sql, &kinds[i], &counted[i]));
    CALM_TRY(read_ids(ctx, store->sql, "temp.gc_run", &out->dropped, &out->n_dropped));
    CALM_TRY(read_ids(ctx, store->sql, "temp.gc_kept", &out->kept, &out->n_kept));
    return plan->dry_run ? CALM_OK : delete_rows(ctx, store);
}

calm_status calm_store_gc(calm_ctx *ctx, calm_store *store, const calm_gc_plan *plan, calm_gc_result *out)
{
    calm_gc_kind *counted;
    CALM_SCOPED_SCRATCH(ctx);
    memset(out, 0, sizeof *out);
    CALM_TRY(CALM_NEW(ctx, ctx->out, counted, N_KINDS));
    counted[GUARD].kind = "guard";
    counted[BLOB].kind = "blob";
    out->kinds = counted, out->n_kinds = N_KINDS;
    out->bytes_before = out->bytes_after = file_bytes(store->path);
    /* Temporary data in files, because a compaction is as large as the store; and rows on disk before a blob is
     * removed. */
    CALM_TRY(calm_sql_script(ctx, store->sql, "PRAGMA temp_store = FILE; PRAGMA synchronous = FULL"));
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(collect_rows(ctx, store, plan, counted, out));
    CALM_TRY(calm_store_commit(ctx, store));
    blobs it = {.root = store->blobs, .dry_run = plan->dry_run, .counted = &counted[BLOB]};
    CALM_TRY(read_kept(ctx, store->sql, &it));
    CALM_TRY(calm_blob_walk(ctx, store->blobs, judge_blob, &it));
    CALM_TRY(collect_guard(ctx, store, plan->dry_run, &counted[GUARD]));
    for (size_t i = 0; i < N_TABLES; i++)
        out->rows += counted[i].rows;
    out->beside_bytes = counted[GUARD].bytes + counted[BLOB].bytes;
    if (plan->dry_run)
        return CALM_OK;
    CALM_TRY(compact(ctx, store, &out->note));
    out->bytes_after = file_bytes(store->path);
    return CALM_OK;
}

calm_status calm_store_gc_file(calm_ctx *ctx, const char *path, const char *command, const calm_gc_plan *plan,
                               calm_gc_result *out)
{
    const calm_store_how how = {.mode = plan->dry_run ? CALM_STORE_READ : CALM_STORE_WRITE, .command = command};
    struct stat info;
    calm_store *store;
    /* Opening for writing would create a store. */
    if (!calm_path_exists(path))
        return calm_store_open(ctx, path, NULL, &store);
    if (stat(path, &info) == 0 && info.st_size == 0)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: an empty file, not a calm store", path);
    CALM_TRY(calm_store_open(ctx, path, &how, &store));
    const calm_status status = calm_store_gc(ctx, store, plan, out);
    calm_store_close(store);
    return status;
}
