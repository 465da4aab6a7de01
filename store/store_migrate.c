/* Stores of older versions: copied, then migrated. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "store/store_impl.h"

#define MOST_COPIES 1000

/* ---- the copy ---- */

/* Returns the first unused name of PATH.v3.bak, PATH.v3.bak.2 ... */
static calm_status free_name(calm_ctx *ctx, const char *path, int64_t version, char **out)
{
    for (int i = 1; i <= MOST_COPIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, ".%d", i);
        CALM_TRY(calm_strf(ctx, ctx->scratch, out, "%s.v%lld.bak%s", path, (long long)version, number));
        if (!calm_path_exists(*out))
            return CALM_OK;
    }
    return calm_fail(ctx, CALM_EIO, "%s: there are %d copies of this store's version %lld next to it", path,
                     MOST_COPIES, (long long)version);
}

static calm_status sync_file(calm_ctx *ctx, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        calm_fail_errno(ctx, errno, "%s: cannot write", path);
    if (fd >= 0)
        close(fd);
    return ctx->status;
}

/* Copies the database, including the content of its -wal file. */
static calm_status write_copy(calm_ctx *ctx, const char *path, const char *to)
{
    CALM_SCOPED_SQL(sql);
    CALM_TRY(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    CALM_TRY(calm_sql_run(ctx, sql, "VACUUM INTO ?1", CALM_BIND(CALM_T(to))));
    return sync_file(ctx, to);
}

static calm_status rename_copy(calm_ctx *ctx, const char *from, const char *to)
{
    char *folder;
    CALM_TRY(calm_path_parent(ctx, to, &folder));
    if (rename(from, to) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot rename to it", to);
    return calm_sync_directory(ctx, folder);
}

calm_status calm_store_back_up(calm_ctx *ctx, const char *path, int64_t version)
{
    char *name, *temporary, words[CALM_MESSAGE_MAX];
    CALM_TRY(free_name(ctx, path, version, &name));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &temporary, "%s.bak.new", path));
    calm_sql_remove(ctx, temporary, true);
    if (write_copy(ctx, path, temporary) == CALM_OK && rename_copy(ctx, temporary, name) == CALM_OK) {
        calm_log(ctx, CALM_LOG_WARNING,
                 "%s: a store of version %lld, brought up to version %d; a copy of it is kept: %s", path,
                 (long long)version, calm_store_version(), name);
        return CALM_OK;
    }
    const calm_status status = ctx->status;
    snprintf(words, sizeof words, "%s", ctx->message);
    calm_ctx_clear_failure(ctx);
    calm_sql_remove(ctx, temporary, true);
    return calm_fail(
        ctx, status,
        "%s: a store of version %lld cannot be copied to %s, which is done before it is brought up to date: "
        "nothing was changed (%s)",
        path, (long long)version, name, words);
}

/* ---- tables whose form changed ---- */

/* Moves the rows of changed tables into temporary tables former_NAME and drops the tables; for a table that `version`
 * did not have, the temporary table is empty.  A table comes before the tables that it refers to, so that no foreign
 * key loses its row. */
static calm_status set_aside(calm_ctx *ctx, calm_sql *sql, int64_t version)
{
    size_t n;
    const calm_store_former *formers = calm_store_formers(&n);
    for (size_t i = 0; i < n; i++) {
        const calm_store_former *f = &formers[i];
        char *script;
        if (version >= f->until)
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &script, "CREATE TEMP TABLE former_%s (%s)", f->name, f->columns));
        CALM_TRY(calm_sql_script(ctx, sql, script));
        if (version < f->since)
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &script, "INSERT INTO temp.former_%s SELECT %s FROM main.%s;"
                           "DROP TABLE main.%s", f->name, f->columns, f->name, f->name));
        CALM_TRY(calm_sql_script(ctx, sql, script));
    }
    return CALM_OK;
}

/* Copies rows of versions up to 4 into today's tables.  The table `encoding` had rows only for the final evaluation of
 * a run with an encoder.  For other evaluations its values are computed: a window was one sentence, with 1 - cosine in
 * kl, and all pairs of the first 2048 sentences were ranked. */
#define TAKEN_BACK 5    /* the first version that needs no such copy */
static const char take_back[] =
    "INSERT INTO evaluation (id, key, model_id, subject, text_name, text_digest, window_tokens, n_windows, created_at,"
    " kind, tokens, nll, ppl, kl, top1)"
    " SELECT id, key, model_id, subject, text_name, text_digest, window_tokens, n_windows, created_at, 'predictions',"
    " tokens, nll, ppl, kl, top1 FROM temp.former_evaluation"
    " WHERE model_id NOT IN (SELECT model_id FROM block WHERE kind = 'encoder');"

    "INSERT INTO evaluation (id, key, model_id, subject, text_name, text_digest, window_tokens, n_windows, created_at,"
    " kind, pairs, error, cosine, cosine_min, spearman)"
    " SELECT e.id, e.key, e.model_id, e.subject, e.text_name, e.text_digest, e.window_tokens, e.n_windows,"
    " e.created_at, 'embeddings', coalesce(c.pairs, min(e.n_windows, 2048) * (min(e.n_windows, 2048) - 1) / 2), e.nll,"
    " coalesce(c.cosine, 1 - e.kl), coalesce(c.cosine_min, w.cosine_min), e.top1 FROM temp.former_evaluation e"
    " LEFT JOIN temp.former_encoding c ON c.evaluation_id = e.id"
    " LEFT JOIN (SELECT evaluation_id, 1 - max(kl) AS cosine_min FROM temp.former_evaluation_window"
    " GROUP BY evaluation_id) w ON w.evaluation_id = e.id"
    " WHERE e.model_id IN (SELECT model_id FROM block WHERE kind = 'encoder');"

    "INSERT INTO evaluation_window (evaluation_id, number, tokens, nll, kl, top1)"
    " SELECT w.evaluation_id, w.number, w.tokens, w.nll, w.kl, w.top1 FROM temp.former_evaluation_window w"
    " JOIN evaluation e ON e.id = w.evaluation_id AND e.kind = 'predictions';"
    "INSERT INTO evaluation_window (evaluation_id, number, error, cosine)"
    " SELECT w.evaluation_id, w.number, w.nll, 1 - w.kl FROM temp.former_evaluation_window w"
    " JOIN evaluation e ON e.id = w.evaluation_id AND e.kind = 'embeddings';"

    "INSERT INTO run_evaluation (run_id, role, subject, evaluation_id, delta_kl, delta_one_minus_cosine, delta_se)"
    " SELECT v.run_id, v.role, v.subject, v.evaluation_id, iif(e.kind = 'predictions', v.delta_kl, NULL),"
    " iif(e.kind = 'embeddings', v.delta_kl, NULL), v.delta_se FROM temp.former_run_evaluation v"
    " JOIN evaluation e ON e.id = v.evaluation_id;"

    "INSERT INTO ablation (run_id, subject, kind, unit, metric, rule, bits, seconds, differs, failure, evaluation_id,"
    " delta_kl, delta_one_minus_cosine, delta_se)"
    " SELECT a.run_id, a.subject, a.kind, a.unit, a.metric, a.rule, a.bits, a.seconds, a.differs, a.failure,"
    " a.evaluation_id, iif(e.kind = 'predictions', a.delta_kl, NULL), iif(e.kind = 'embeddings', a.delta_kl, NULL),"
    " a.delta_se FROM temp.former_ablation a LEFT JOIN evaluation e ON e.id = a.evaluation_id;"

    "DROP TABLE temp.former_ablation; DROP TABLE temp.former_run_evaluation; DROP TABLE temp.former_encoding;"
    "DROP TABLE temp.former_evaluation_window; DROP TABLE temp.former_evaluation;";

/* Copies the stages of version 8; older versions have none. */
#define STAGES_TAKEN_BACK 9
static const char take_stages_back[] =
    "INSERT INTO run_stage (run_id, position, stage, seconds, cpu_seconds)"
    " SELECT run_id, position, stage, seconds, cpu_seconds FROM temp.former_run_stage;"
    "DROP TABLE temp.former_run_stage;";

/* ---- today's schema ---- */

/* Runs the statements that a query to `model` returns for objects of kind `type`, each with the object's name, except
 * those for objects that the file has. */
static calm_status run_each(calm_ctx *ctx, calm_sql *sql, calm_sql *model, const char *query, const char *type)
{
    CALM_SCOPED_ROWS(rows);
    CALM_TRY(calm_sql_first(ctx, model, query, CALM_BIND(CALM_T(type)), &rows));
    while (calm_sql_next(ctx, model, rows)) {
        const char *text;
        int64_t there;
        const calm_value name = calm_sql_value(rows, 0);
        CALM_TRY(calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master WHERE name = ?1", CALM_BIND(name),
                                 &there));
        CALM_TRY(calm_sql_text(ctx, rows, 1, &text));
        CALM_TRY(there ? CALM_OK : calm_sql_script(ctx, sql, text));
    }
    return ctx->status;
}

/* Gives no name, so that all of the schema's views are dropped; views that a user added stay. */
static const char drop[] = "SELECT NULL, printf('DROP VIEW IF EXISTS \"%w\"', name) FROM sqlite_master WHERE type = ?1";
static const char add[] = "SELECT name, sql FROM sqlite_master WHERE type = ?1 AND sql IS NOT NULL ORDER BY rowid";

/* Migrates within an open transaction; `model` is an empty store of today's schema. */
static calm_status bring_up(calm_ctx *ctx, calm_sql *sql, calm_sql *model, const char *path, int64_t version)
{
    char *pragma;
    /* Old tables first, because `encoding` was a table and is a view today. */
    CALM_TRY(set_aside(ctx, sql, version));
    CALM_TRY(run_each(ctx, sql, model, drop, "view"));
    CALM_TRY(run_each(ctx, sql, model, add, "table"));
    CALM_TRY(version < TAKEN_BACK ? calm_sql_script(ctx, sql, take_back) : CALM_OK);
    CALM_TRY(version < STAGES_TAKEN_BACK ? calm_sql_script(ctx, sql, take_stages_back) : CALM_OK);
    CALM_TRY(run_each(ctx, sql, model, add, "index"));
    CALM_TRY(run_each(ctx, sql, model, add, "view"));
    CALM_TRY(calm_store_check(ctx, sql, path, calm_store_version()));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &pragma, "PRAGMA user_version = %d", calm_store_version()));
    return calm_sql_script(ctx, sql, pragma);
}

calm_status calm_store_migrate(calm_ctx *ctx, calm_sql *sql, const char *path, int64_t version)
{
    CALM_SCOPED_SQL(model);
    CALM_TRY(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &model));
    CALM_TRY(calm_sql_script(ctx, model, calm_store_schema()));
    /* After a failure the caller closes `sql`, which rolls back. */
    CALM_TRY(calm_sql_script(ctx, sql, "SAVEPOINT migrate"));
    CALM_TRY(bring_up(ctx, sql, model, path, version));
    return calm_sql_script(ctx, sql, "RELEASE migrate");
}
