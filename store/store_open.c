/* Opening a store: what the file is, making a new one.  Its tables: store_schema.c.  Older ones: store_migrate.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "store/blob.h"
#include "store/store_impl.h"

#define APPLICATION_ID 0x63616c6d    /* "calm"; as in schema.sql */
#define PAGE_MIN 512    /* bytes of SQLite's smallest page: no database is smaller */

/* ---- what is in the file ---- */

/* Is this our schema in our version?  *empty: a database without anything in it, as an interrupted creation by
 * another tool or `touch` leaves it; *older: its version when that is an earlier one, to be migrated; else 0. */
static calm_status inspect(calm_ctx *ctx, calm_sql *sql, const char *path, bool *empty, int64_t *older)
{
    int64_t application, version, objects;
    *empty = false;
    *older = 0;
    CALM_TRY(calm_sql_number(ctx, sql, "PRAGMA application_id", CALM_NONE, &application));
    CALM_TRY(calm_sql_number(ctx, sql, "PRAGMA user_version", CALM_NONE, &version));
    CALM_TRY(calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master", CALM_NONE, &objects));
    if (application == 0 && objects == 0) {
        /* SQLite takes a few stray bytes for an empty database and would write over them. */
        struct stat info;
        *empty = stat(path, &info) == 0 && (info.st_size == 0 || info.st_size >= PAGE_MIN);
        return *empty ? CALM_OK : calm_sql_no_store(ctx, path);
    }
    if (application != APPLICATION_ID)
        return calm_fail(ctx, CALM_EFORMAT, "%s: a database of another program, not a calm store", path);
    if (version > calm_store_version())
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: written by a newer calm: store version %lld, this program knows versions up to %d", path,
                         (long long)version, calm_store_version());
    if (version < 1)
        return calm_fail(ctx, CALM_EFORMAT, "%s: store version %lld, expected %d", path, (long long)version,
                         calm_store_version());
    *older = version < calm_store_version() ? version : 0;
    return calm_store_check(ctx, sql, path, version);
}

/* Inspect the file without changing it: *fresh when there is nothing, so that a store can be made there. */
static calm_status look(calm_ctx *ctx, const char *path, bool *fresh, int64_t *older)
{
    CALM_SCOPED_SQL(sql);
    *older = 0;
    *fresh = !calm_path_exists(path);
    if (*fresh)
        return CALM_OK;
    CALM_TRY(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    return inspect(ctx, sql, path, fresh, older);
}

/* ---- a new store ---- */

static calm_status fill(calm_ctx *ctx, const char *temporary)
{
    CALM_SCOPED_SQL(sql);
    CALM_TRY(calm_sql_open(ctx, temporary, CALM_SQL_CREATE, &sql));
    CALM_TRY(calm_sql_script(ctx, sql, "SAVEPOINT calm"));
    CALM_TRY(calm_sql_script(ctx, sql, calm_store_schema()));
    CALM_TRY(calm_sql_script(ctx, sql, "RELEASE calm"));
    /* Into the file itself, whose -wal does not come along. */
    return calm_sql_script(ctx, sql, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* Make a store under another name and rename it, so that a half-made one never has its name.  The caller
 * holds the lock and has seen that nothing is there; what older files of that name left behind would be replayed
 * into the new one, so it goes. */
static calm_status create(calm_ctx *ctx, const char *path)
{
    char *temporary;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &temporary, "%s.new", path));
    calm_sql_remove(ctx, temporary, true);
    if (fill(ctx, temporary) == CALM_OK) {
        calm_sql_remove(ctx, path, false);
        if (rename(temporary, path) != 0)
            calm_fail_errno(ctx, errno, "%s: cannot rename to it", path);
    }
    if (ctx->status != CALM_OK)
        calm_sql_remove(ctx, temporary, true);
    return ctx->status;
}

/* ---- open and close ---- */

static calm_status open_for_reading(calm_ctx *ctx, calm_store *store)
{
    bool empty;
    int64_t older;
    CALM_TRY(calm_sql_open(ctx, store->path, CALM_SQL_READ, &store->sql));
    CALM_TRY(inspect(ctx, store->sql, store->path, &empty, &older));
    if (older)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: written by an older calm; the next calm quantize with --store %s brings it up to date",
                         store->path, store->path);
    return empty ? calm_fail(ctx, CALM_ENOTFOUND, "%s: an empty file, not a calm store", store->path) : CALM_OK;
}

static calm_status open_for_writing(calm_ctx *ctx, calm_store *store, const calm_store_how *how)
{
    bool fresh;
    int64_t older;
    /* Once before the lock, so that nothing is written next to a file that is not ours; and once under it. */
    CALM_TRY(look(ctx, store->path, &fresh, &older));
    CALM_TRY(calm_store_lock(ctx, store->path, how, &store->lock));
    CALM_TRY(look(ctx, store->path, &fresh, &older));
    if (fresh)
        CALM_TRY(create(ctx, store->path));
    if (older)
        CALM_TRY(calm_store_back_up(ctx, store->path, older));
    CALM_TRY(calm_sql_open(ctx, store->path, CALM_SQL_WRITE, &store->sql));
    if (older)
        CALM_TRY(calm_store_migrate(ctx, store->sql, store->path, older));
    CALM_TRY(calm_store_end_runs(ctx, store->sql));
    CALM_TRY(calm_blob_sweep(ctx, store->blobs));
    calm_store_writers_add(store);
    return CALM_OK;
}

static calm_status open_in_memory(calm_ctx *ctx, calm_store *store, const calm_store_how *how)
{
    store->relay = how->relay;
    CALM_TRY(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &store->sql));
    return calm_sql_script(ctx, store->sql, calm_store_schema());
}

static calm_status open_as(calm_ctx *ctx, calm_store *store, const calm_store_how *how)
{
    if (how && how->mode == CALM_STORE_RELAY)
        return open_in_memory(ctx, store, how);
    return how && how->mode == CALM_STORE_WRITE ? open_for_writing(ctx, store, how) : open_for_reading(ctx, store);
}

/* The file of a store: one store has one lock and one folder of blobs, by whichever link it is opened.  A device would
 * be replaced by a file.  SQLite takes ":memory:" and "file:..." for something else than files of these names. */
static calm_status find_file(calm_ctx *ctx, const char *path, char **out)
{
    CALM_TRY(calm_path_target(ctx, path, out));
    if (calm_path_is_special(*out))
        return calm_fail(ctx, CALM_EARG, "%s: a device or a pipe; expected the file of a store, calm.db", path);
    return **out == ':' || strncmp(*out, "file:", 5) == 0 ? calm_strf(ctx, ctx->scratch, out, "./%s", *out) : CALM_OK;
}

calm_status calm_store_open(calm_ctx *ctx, const char *path, const calm_store_how *how, calm_store **out)
{
    char *end;
    CALM_SCOPED_SCRATCH(ctx);
    *out = NULL;
    CALM_TRY(find_file(ctx, path, &end));
    calm_store *store = calloc(1, sizeof *store);
    if (!store)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    store->lock = -1;
    store->path = strdup(end);
    if (asprintf(&store->blobs, "%s.blobs", end) < 0)
        store->blobs = NULL;
    const calm_status status = !store->path || !store->blobs ? calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path)
                                                             : open_as(ctx, store, how);
    if (status == CALM_OK)
        *out = store;
    else
        calm_store_close(store);
    return status;
}

void calm_store_close(calm_store *store)
{
    if (!store)
        return;
    calm_store_writers_remove(store);
    /* SQLite rolls back what is open. */
    calm_sql_close(store->sql);
    calm_store_unlock(store->lock);
    free(store->path);
    free(store->blobs);
    free(store);
}

const char *calm_store_path(const calm_store *store)
{
    return store->path;
}

const char *calm_store_blobs(const calm_store *store)
{
    return store->blobs;
}
