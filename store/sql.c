/* SQL: connections, cached statements and errors over SQLite. */
#include "store/sql.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"

#define BUSY_MILLISECONDS 10000
#define N_CACHED 64

struct calm_sql {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *cache[N_CACHED];
    size_t n_cached;
};

/* ---- errors ---- */

/* The errno of a file that could not be created in this thread's last operation; 0: none.  SQLite then tries to open
 * the file for reading, and would only report why that failed. */
static _Thread_local int refused;

/* The errno of other failures, from SQLite's log: "os_unix.c:38112: (28) full_fsync(...) - ...". */
static _Thread_local int logged;

static void read_log(void *user, int code, const char *line)
{
    int reason;
    (void)user;
    const char *at = (code & 0xff) == SQLITE_IOERR ? strstr(line, ": (") : NULL;
    if (at && sscanf(at, ": (%d)", &reason) == 1)
        logged = reason;
}

static int open_noting(const char *path, int flags, int mode)
{
    const int fd = open(path, flags, mode);
    if (fd < 0 && (flags & O_CREAT) && errno != EINTR)
        refused = errno;
    return fd;
}

static void listen_to_system(void)
{
    sqlite3_config(SQLITE_CONFIG_LOG, read_log, NULL);
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (vfs && vfs->iVersion >= 3 && vfs->xSetSystemCall)
        vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_noting);
}

/* Returns the errno of a failure; 0: not known. */
static int system_reason(sqlite3 *db, int code)
{
    const int kind = code & 0xff;
    if (kind == SQLITE_CANTOPEN && refused)
        return refused;
    if (!db || (kind != SQLITE_IOERR && kind != SQLITE_CANTOPEN))
        return 0;
    const int last = sqlite3_system_errno(db);
    return last || kind == SQLITE_CANTOPEN ? last : logged;
}

static calm_status status_of(int code, int reason)
{
    static const calm_status known[] = {
        [SQLITE_FULL] = CALM_ENOSPC,     [SQLITE_BUSY] = CALM_EBUSY,     [SQLITE_LOCKED] = CALM_EBUSY,
        [SQLITE_NOTADB] = CALM_EFORMAT,  [SQLITE_CORRUPT] = CALM_EFORMAT, [SQLITE_NOMEM] = CALM_ENOMEM,
        [SQLITE_CONSTRAINT] = CALM_EARG, [SQLITE_ERROR] = CALM_EARG,     [SQLITE_AUTH] = CALM_EARG,
        [SQLITE_RANGE] = CALM_EARG,      [SQLITE_MISMATCH] = CALM_EARG,  [SQLITE_TOOBIG] = CALM_EARG,
        [SQLITE_INTERRUPT] = CALM_EINTERRUPTED};
    const size_t kind = code & 0xff;
    if (kind < sizeof known / sizeof *known && known[kind] != CALM_OK)
        return known[kind];
    /* A full disk is SQLITE_IOERR when SQLite extends its shared memory or syncs. */
    return reason == ENOSPC || reason == EDQUOT ? CALM_ENOSPC : CALM_EIO;
}

static calm_status fail(calm_ctx *ctx, calm_sql *sql, int code)
{
    const char *words = sql->db ? sqlite3_errmsg(sql->db) : sqlite3_errstr(code);
    const int reason = system_reason(sql->db, code);
    char why[128];
    if (!reason)
        return calm_fail(ctx, status_of(code, 0), "%s: %s", sql->path, words);
    return calm_fail(ctx, status_of(code, reason), "%s: %s (%s)", sql->path, words,
                     strerror_r(reason, why, sizeof why));
}

/* ---- values ---- */

calm_value calm_value_int(int64_t integer)
{
    return (calm_value){.type = CALM_VALUE_INTEGER, .integer = integer};
}

calm_value calm_value_real(double real)
{
    return (calm_value){.type = isnan(real) ? CALM_VALUE_NULL : CALM_VALUE_REAL, .real = real};
}

calm_value calm_value_text(const char *text)
{
    return (calm_value){.type = text ? CALM_VALUE_TEXT : CALM_VALUE_NULL, .text = text,
                        .n_bytes = text ? strlen(text) : 0};
}

int64_t calm_value_as_int(const calm_value *value)
{
    return value->type == CALM_VALUE_INTEGER ? value->integer : 0;
}

double calm_value_as_real(const calm_value *value)
{
    return value->type == CALM_VALUE_REAL      ? value->real
           : value->type == CALM_VALUE_INTEGER ? (double)value->integer
                                               : NAN;
}

const char *calm_value_as_string(const calm_value *value)
{
    return value->type == CALM_VALUE_TEXT ? value->text : NULL;
}

calm_status calm_value_copy(calm_ctx *ctx, const calm_value *value, const char **out)
{
    char *copy = NULL;
    if (value->type == CALM_VALUE_TEXT)
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", value->text));
    *out = copy;
    return CALM_OK;
}

calm_value calm_value_id(int64_t id)
{
    return (calm_value){.type = id ? CALM_VALUE_INTEGER : CALM_VALUE_NULL, .integer = id};
}

/* ---- connections ---- */

/* Prints "file:PATH?immutable=1", with the special characters of a URI as %XX. */
static calm_status immutable_uri(calm_ctx *ctx, const char *path, calm_text *uri)
{
    calm_text_printf(uri, "file:");
    for (const char *at = path; *at; at++)
        calm_text_printf(uri, strchr("%?#", *at) ? "%%%02X" : "%c", (unsigned char)*at);
    calm_text_printf(uri, "?immutable=1");
    return calm_text_check(ctx, uri);
}

static int open_and_touch(calm_sql *sql, const char *name, int flags)
{
    int code = sqlite3_open_v2(name, &sql->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(sql->db, BUSY_MILLISECONDS);
    if (code == SQLITE_OK)
        code = sqlite3_exec(sql->db, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL);
    return code;
}

/* Opens a database on a read-only medium.  In WAL mode even a reader needs a -shm file; if it cannot be created and
 * there is no -wal file, the database cannot change and is read as immutable. */
static calm_status open_immutable(calm_ctx *ctx, calm_sql *sql, int code)
{
    char *wal;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &wal, "%s-wal", sql->path));
    int primary = code & 0xff;
    if ((primary != SQLITE_CANTOPEN && primary != SQLITE_READONLY) || !calm_path_exists(sql->path) ||
        calm_path_exists(wal))
        return fail(ctx, sql, code);
    CALM_SCOPED_TEXT(uri);
    CALM_TRY(immutable_uri(ctx, sql->path, &uri));
    sqlite3_close(sql->db);
    sql->db = NULL;
    code = open_and_touch(sql, uri.data, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    return code == SQLITE_OK ? CALM_OK : fail(ctx, sql, code);
}

calm_status calm_sql_no_store(calm_ctx *ctx, const char *path)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: no store; expected a file that calm quantize has written as `store`",
                     path);
}

static calm_status connect(calm_ctx *ctx, calm_sql *sql, calm_sql_mode mode)
{
    static const int flags[] = {SQLITE_OPEN_READONLY, SQLITE_OPEN_READWRITE,
                                SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE};
    if (mode != CALM_SQL_CREATE && !calm_path_exists(sql->path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such store; `store` names another, and calm quantize makes one",
                         sql->path);
    if (calm_is_directory(sql->path))
        return calm_fail(ctx, CALM_EARG, "%s: a directory; expected the file of a store, calm.db", sql->path);
    int code = open_and_touch(sql, sql->path, flags[mode]);
    if (code == SQLITE_NOTADB)
        return calm_sql_no_store(ctx, sql->path);
    if (code != SQLITE_OK)
        return mode == CALM_SQL_READ ? open_immutable(ctx, sql, code) : fail(ctx, sql, code);
    if (mode == CALM_SQL_READ)
        return CALM_OK;
    return calm_sql_script(ctx, sql, "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;"
                                     "PRAGMA journal_mode = WAL; PRAGMA temp_store = MEMORY;");
}

/* Removes the -wal and -shm files that reading in WAL mode creates, and that only a writing connection removes when it
 * is the last to close.  If the -wal file has content, both files stay for the next writer. */
static void remove_leftovers(const char *path)
{
    calm_sql last = {0};
    struct stat wal;
    char *name;
    if (asprintf(&name, "%s-wal", path) < 0)
        return;
    if (stat(name, &wal) == 0 && wal.st_size == 0)
        open_and_touch(&last, path, SQLITE_OPEN_READWRITE);
    sqlite3_close(last.db);
    free(name);
}

calm_status calm_sql_open(calm_ctx *ctx, const char *path, calm_sql_mode mode, calm_sql **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    pthread_once(&once, listen_to_system);
    refused = logged = 0;
    calm_sql *sql = calloc(1, sizeof *sql);
    if (sql)
        sql->path = strdup(path);
    calm_status status = sql && sql->path ? connect(ctx, sql, mode)
                                          : calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    if (status == CALM_OK)
        *out = sql;
    else
        calm_sql_close(sql);
    return status;
}

void calm_sql_close(calm_sql *sql)
{
    if (!sql)
        return;
    for (size_t i = 0; i < sql->n_cached; i++)
        sqlite3_finalize(sql->cache[i]);
    const bool reads = sql->db && sqlite3_db_readonly(sql->db, "main") == 1;
    int code = sqlite3_close(sql->db);
    assert(code == SQLITE_OK);
    (void)code;
    if (reads)
        remove_leftovers(sql->path);
    free(sql->path);
    free(sql);
}

void calm_sql_remove(calm_ctx *ctx, const char *path, bool itself)
{
    static const char *const suffixes[] = {"-wal", "-shm", "-journal"};
    char *name;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (calm_strf(ctx, ctx->scratch, &name, "%s%s", path, suffixes[i]) == CALM_OK)
            unlink(name);
    if (itself)
        unlink(path);
}

/* ---- statements ---- */

static calm_status prepare(calm_ctx *ctx, calm_sql *sql, const char *text, sqlite3_stmt **out)
{
    for (size_t i = 0; i < sql->n_cached; i++)
        if (strcmp(sqlite3_sql(sql->cache[i]), text) == 0) {
            *out = sql->cache[i];
            assert(!sqlite3_stmt_busy(*out));
            return CALM_OK;
        }
    int code = sqlite3_prepare_v3(sql->db, text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    if (code != SQLITE_OK)
        return fail(ctx, sql, code);
    if (sql->n_cached == N_CACHED) {
        /* Drop the oldest.  The store's own statements fit, so this happens only in tests and tools. */
        sqlite3_finalize(sql->cache[0]);
        memmove(sql->cache, sql->cache + 1, (N_CACHED - 1) * sizeof sql->cache[0]);
        sql->n_cached--;
    }
    sql->cache[sql->n_cached++] = *out;
    return CALM_OK;
}

static int bind_one(sqlite3_stmt *statement, int index, const calm_value *value)
{
    switch (value->type) {
    case CALM_VALUE_INTEGER:
        return sqlite3_bind_int64(statement, index, value->integer);
    case CALM_VALUE_REAL:
        return sqlite3_bind_double(statement, index, value->real);
    case CALM_VALUE_TEXT:
        return sqlite3_bind_text64(statement, index, value->text, value->n_bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
    case CALM_VALUE_BLOB:
        return sqlite3_bind_blob64(statement, index, value->text, value->n_bytes, SQLITE_TRANSIENT);
    case CALM_VALUE_NULL:
        break;
    }
    return sqlite3_bind_null(statement, index);
}

static calm_status bind_all(calm_ctx *ctx, calm_sql *sql, sqlite3_stmt *statement, const calm_value *params,
                            size_t n_params)
{
    int expected = sqlite3_bind_parameter_count(statement);
    if ((size_t)expected != n_params)
        return calm_fail(ctx, CALM_EARG, "%s: %zu parameters, the statement takes %d", sql->path, n_params, expected);
    int code = SQLITE_OK;
    for (size_t i = 0; i < n_params && code == SQLITE_OK; i++)
        code = bind_one(statement, (int)i + 1, &params[i]);
    return code == SQLITE_OK ? CALM_OK : fail(ctx, sql, code);
}

calm_status calm_sql_script(calm_ctx *ctx, calm_sql *sql, const char *script)
{
    refused = logged = 0;
    int code = sqlite3_exec(sql->db, script, NULL, NULL, NULL);
    return code == SQLITE_OK ? CALM_OK : fail(ctx, sql, code);
}

calm_status calm_sql_first(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                           size_t n_params, calm_statement **out)
{
    *out = NULL;
    refused = logged = 0;
    CALM_TRY(prepare(ctx, sql, text, out));
    return bind_all(ctx, sql, *out, params, n_params);
}

bool calm_sql_next(calm_ctx *ctx, calm_sql *sql, calm_statement *statement)
{
    int code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        fail(ctx, sql, code);
    return code == SQLITE_ROW;
}

void calm_sql_end(calm_statement *statement)
{
    if (!statement)
        return;
    /* The result of reset repeats the failure of the last step, which was already reported. */
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

calm_status calm_sql_number(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                            size_t n_params, int64_t *out)
{
    CALM_SCOPED_ROWS(statement);
    *out = 0;
    CALM_TRY(calm_sql_first(ctx, sql, text, params, n_params, &statement));
    if (!calm_sql_next(ctx, sql, statement))
        return ctx->status;
    *out = sqlite3_column_int64(statement, 0);
    /* Step to the end, because an INSERT ... RETURNING is complete only then. */
    while (calm_sql_next(ctx, sql, statement))
        continue;
    return ctx->status;
}

calm_status calm_sql_run(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params, size_t n_params)
{
    int64_t ignored;
    return calm_sql_number(ctx, sql, text, params, n_params, &ignored);
}

calm_status calm_sql_exists(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                            size_t n_params, bool *out)
{
    CALM_SCOPED_ROWS(statement);
    *out = false;
    CALM_TRY(calm_sql_first(ctx, sql, text, params, n_params, &statement));
    *out = calm_sql_next(ctx, sql, statement);
    return ctx->status;
}

/* ---- columns ---- */

int64_t calm_sql_int(calm_statement *statement, int column)
{
    return sqlite3_column_int64(statement, column);
}

calm_status calm_sql_text(calm_ctx *ctx, calm_statement *statement, int column, const char **out)
{
    const calm_value text = calm_value_text((const char *)sqlite3_column_text(statement, column));
    return calm_value_copy(ctx, &text, out);
}

calm_value calm_sql_value(calm_statement *statement, int column)
{
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        return calm_value_int(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT:
        return calm_value_real(sqlite3_column_double(statement, column));
    case SQLITE_TEXT:
        return (calm_value){.type = CALM_VALUE_TEXT,
                            .text = (const char *)sqlite3_column_text(statement, column),
                            .n_bytes = (size_t)sqlite3_column_bytes(statement, column)};
    case SQLITE_BLOB:
        return (calm_value){.type = CALM_VALUE_BLOB, .text = sqlite3_column_blob(statement, column),
                            .n_bytes = (size_t)sqlite3_column_bytes(statement, column)};
    default:
        return (calm_value){.type = CALM_VALUE_NULL};
    }
}

calm_status calm_sql_read(calm_ctx *ctx, calm_statement *statement, int first, const calm_sql_target *targets)
{
    for (const calm_sql_target *to = targets; to->at; to++, first++)
        if (to->type == CALM_VALUE_INTEGER)
            *(int64_t *)to->at = calm_sql_int(statement, first);
        else if (to->type == CALM_VALUE_REAL)
            *(double *)to->at = sqlite3_column_type(statement, first) == SQLITE_NULL
                                    ? NAN
                                    : sqlite3_column_double(statement, first);
        else
            CALM_TRY(calm_sql_text(ctx, statement, first, to->at));
    return CALM_OK;
}

int64_t calm_sql_changes(calm_sql *sql)
{
    return sqlite3_changes64(sql->db);
}

void calm_sql_undo(calm_sql *sql)
{
    /* In autocommit mode no savepoint is open, because SQLite has rolled back by itself, as when the disk is full. */
    if (!sqlite3_get_autocommit(sql->db))
        sqlite3_exec(sql->db, "ROLLBACK TO calm; RELEASE calm", NULL, NULL, NULL);
}

/* ---- queries of users ---- */

static bool named(const char *name, const char *const *names)
{
    while (*names && sqlite3_stricmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

/* SQLite calls this for each action of a statement.  sqlite3_stmt_readonly finds statements that write to the database;
 * this function denies actions that sqlite3_stmt_readonly counts as reading. */
static int allow(void *user, int action, const char *first, const char *second, const char *database,
                 const char *trigger)
{
    static const char *const describing[] = {"table_info", "table_xinfo", "table_list", "index_list",
                                             "index_info", "index_xinfo", "foreign_key_list", NULL};
    static const char *const settings[] = {"user_version", "application_id", "journal_mode", "page_count",
                                           "page_size", NULL};
    (void)user, (void)database, (void)trigger;
    const bool denied = action == SQLITE_PRAGMA
                            ? !named(first, describing) && (second || !named(first, settings))
                            : action == SQLITE_ATTACH || action == SQLITE_DETACH || action == SQLITE_TRANSACTION
                                  || action == SQLITE_SAVEPOINT;
    return denied ? SQLITE_DENY : SQLITE_OK;
}

/* Prepares `text`, which must be one statement; the caller finalizes *out, also after a failure. */
static calm_status prepare_query(calm_ctx *ctx, calm_sql *sql, const char *text, sqlite3_stmt **out)
{
    const char *tail = text;
    sqlite3_stmt *more = NULL;
    int code = sqlite3_prepare_v2(sql->db, text, -1, out, &tail);
    if (code == SQLITE_AUTH)
        return calm_fail(ctx, CALM_EARG, "%s: only reading is allowed here: one SELECT", sql->path);
    if (code != SQLITE_OK)
        return fail(ctx, sql, code);
    if (!*out)
        return calm_fail(ctx, CALM_EARG, "%s: empty statement, expected a SELECT", sql->path);
    code = sqlite3_prepare_v2(sql->db, tail, -1, &more, NULL);
    if (code != SQLITE_OK || more)
        calm_fail(ctx, CALM_EARG, "%s: one statement expected, more follows: %.60s", sql->path, tail);
    else if (!sqlite3_stmt_readonly(*out) || sqlite3_column_count(*out) == 0)
        calm_fail(ctx, CALM_EARG, "%s: only reading is allowed here: one SELECT", sql->path);
    sqlite3_finalize(more);
    return ctx->status;
}

static void finalize(sqlite3_stmt **statement)
{
    sqlite3_finalize(*statement);
}

calm_status calm_sql_query(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                           size_t n_params, calm_store_row_fn *fn, void *user)
{
    CALM_SCOPED(sqlite3_stmt, finalize) *statement = NULL;
    const char **names;
    calm_value *values;
    sqlite3_set_authorizer(sql->db, allow, NULL);
    const calm_status prepared = prepare_query(ctx, sql, text, &statement);
    sqlite3_set_authorizer(sql->db, NULL, NULL);
    CALM_TRY(prepared);
    CALM_TRY(bind_all(ctx, sql, statement, params, n_params));
    const size_t n = (size_t)sqlite3_column_count(statement);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, values, n));
    for (size_t i = 0; i < n; i++)
        names[i] = sqlite3_column_name(statement, (int)i);
    CALM_TRY(fn(ctx, user, n, names, NULL));
    while (calm_sql_next(ctx, sql, statement)) {
        for (size_t i = 0; i < n; i++)
            values[i] = calm_sql_value(statement, (int)i);
        CALM_TRY(fn(ctx, user, n, names, values));
    }
    return ctx->status;
}
