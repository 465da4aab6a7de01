/* Stores of older versions: kept as a copy, then brought up to date. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "store/store_impl.h"

#define MOST_COPIES 1000

/* ---- the copy ---- */

/* The first name that nothing has: PATH.v3.bak, PATH.v3.bak.2 ... */
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
    return calm_fail(ctx, CALM_EIO, "%s: there are %d copies of this store's version %lld beside it", path, MOST_COPIES,
                     (long long)version);
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

/* All that the database holds, what waits in its -wal too. */
static calm_status write_copy(calm_ctx *ctx, const char *path, const char *to)
{
    calm_sql *sql;
    CALM_TRY(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    calm_status status = calm_sql_run(ctx, sql, "VACUUM INTO ?1", CALM_BIND(CALM_T(to)));
    calm_sql_close(sql);
    return status == CALM_OK ? sync_file(ctx, to) : status;
}

static calm_status rename_copy(calm_ctx *ctx, const char *from, const char *to)
{
    char *folder;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &folder, "%s", to));
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (rename(from, to) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot rename to it", to);
    return calm_sync_directory(ctx, slash ? folder : ".");
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
    calm_ctx_forgive(ctx);
    calm_sql_remove(ctx, temporary, true);
    return calm_fail(
        ctx, status,
        "%s: a store of version %lld cannot be copied to %s, which is done before it is brought up to date: "
        "nothing was changed (%s)",
        path, (long long)version, name, words);
}

/* ---- today's schema ---- */

/* Make everything of kind `type` that today's schema has and the file lacks. */
static calm_status add_missing(calm_ctx *ctx, calm_sql *sql, calm_sql *model, const char *type)
{
    calm_statement *rows;
    CALM_TRY(calm_sql_first(ctx, model,
                            "SELECT name, sql FROM sqlite_master WHERE type = ?1 AND sql IS NOT NULL ORDER BY rowid",
                            CALM_BIND(CALM_T(type)), &rows));
    while (ctx->status == CALM_OK && calm_sql_next(ctx, model, rows)) {
        const char *text;
        int64_t there = 0;
        calm_value name = calm_sql_value(rows, 0);
        calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master WHERE name = ?1", CALM_BIND(name), &there);
        if (ctx->status == CALM_OK && !there && calm_sql_text(ctx, rows, 1, &text) == CALM_OK)
            calm_sql_script(ctx, sql, text);
    }
    calm_sql_end(rows);
    return ctx->status;
}

/* Views that a user added stay. */
static calm_status drop_views(calm_ctx *ctx, calm_sql *sql, calm_sql *model)
{
    calm_statement *rows;
    CALM_TRY(calm_sql_first(ctx, model,
                            "SELECT printf('DROP VIEW IF EXISTS \"%w\"', name) FROM sqlite_master WHERE type = 'view'",
                            CALM_NONE, &rows));
    while (ctx->status == CALM_OK && calm_sql_next(ctx, model, rows)) {
        const char *text;
        if (calm_sql_text(ctx, rows, 0, &text) == CALM_OK)
            calm_sql_script(ctx, sql, text);
    }
    calm_sql_end(rows);
    return ctx->status;
}

calm_status calm_store_migrate(calm_ctx *ctx, calm_sql *sql, const char *path)
{
    static const char *const types[] = {"table", "index", "view"};
    const char *difference = NULL;
    calm_sql *model;
    calm_text version;
    CALM_TRY(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &model));
    calm_text_init(&version);
    calm_text_printf(&version, "PRAGMA user_version = %d", calm_store_version());
    calm_status status = calm_sql_script(ctx, model, calm_store_schema());
    if (status == CALM_OK)
        status = calm_sql_script(ctx, sql, "SAVEPOINT migrate");
    if (status == CALM_OK)
        status = drop_views(ctx, sql, model);
    for (size_t i = 0; i < sizeof types / sizeof *types && status == CALM_OK; i++)
        status = add_missing(ctx, sql, model, types[i]);
    if (status == CALM_OK)
        status = calm_store_difference(ctx, sql, calm_store_version(), &difference);
    if (status == CALM_OK && difference)
        status = calm_fail(ctx, CALM_EFORMAT, "%s: damaged store: \"%s\" is missing or was changed", path, difference);
    if (status == CALM_OK)
        status = calm_sql_script(ctx, sql, version.data);
    if (status == CALM_OK)
        status = calm_sql_script(ctx, sql, "RELEASE migrate");
    calm_text_clear(&version);
    calm_sql_close(model);
    return status;
}
