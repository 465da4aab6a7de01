/* SQL: the part of SQLite that the store uses, with calm's errors; only sql.c includes sqlite3.h.
 *
 * Statements are prepared once and found by their text, so `text` should be a literal.  Every failure names the file:
 * SQLITE_FULL -> CALM_ENOSPC, BUSY and LOCKED -> CALM_EBUSY, NOTADB and CORRUPT -> CALM_EFORMAT, CONSTRAINT and wrong
 * SQL -> CALM_EARG, NOMEM -> CALM_ENOMEM, everything else CALM_EIO. */
#pragma once

#include "ptq/base/scope.h"
#include "store/store.h"

typedef struct calm_sql calm_sql;              /* a connection */
typedef struct sqlite3_stmt calm_statement;    /* a prepared statement, owned by its connection */

typedef enum calm_sql_mode {
    CALM_SQL_READ,      /* the file must exist; a store on a read-only medium opens too */
    CALM_SQL_WRITE,     /* the file must exist; foreign keys on, WAL, a commit survives the death of the process */
    CALM_SQL_CREATE,    /* like WRITE; makes the file when absent */
} calm_sql_mode;

/* Opens `path` (":memory:" with CREATE) and reads its first page, so that a file that is not a database fails here. */
calm_status calm_sql_open(calm_ctx *ctx, const char *path, calm_sql_mode mode, calm_sql **out);
void calm_sql_close(calm_sql *sql);

/* Fails with CALM_EFORMAT and the one message for files that are not a store. */
calm_status calm_sql_no_store(calm_ctx *ctx, const char *path);

/* Removes the -wal, -shm and -journal files of the database at `path`, and with `itself` the database; skips files that
 * do not exist or cannot be removed.  A failed allocation leaves CALM_ENOMEM in ctx. */
void calm_sql_remove(calm_ctx *ctx, const char *path, bool itself);

/* Parameters for the calls below: CALM_BIND(CALM_T(name), CALM_I(count)); CALM_NONE for none. */
#define CALM_BIND(...)                                                                                       \
    (const calm_value[]){__VA_ARGS__}, sizeof((const calm_value[]){__VA_ARGS__}) / sizeof(calm_value)
#define CALM_NONE NULL, 0
#define CALM_I(x) calm_value_int(x)
#define CALM_R(x) calm_value_real(x)    /* NaN gives NULL */
#define CALM_T(x) calm_value_text(x)    /* NULL gives NULL */
#define CALM_ID(x) calm_value_id(x)     /* 0 gives NULL */
calm_value calm_value_id(int64_t id);          /* 0 gives NULL */

/* Runs a script of several statements without parameters or results. */
calm_status calm_sql_script(calm_ctx *ctx, calm_sql *sql, const char *script);

/* Runs one statement to its end, ignoring rows. */
calm_status calm_sql_run(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params, size_t n_params);

/* Runs one statement; *out is the integer in the first column of its first row, 0 if there is no row. */
calm_status calm_sql_number(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                            size_t n_params, int64_t *out);

/* Does one statement give a row? */
calm_status calm_sql_exists(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                            size_t n_params, bool *out);

/* Iterate over rows:  calm_sql_first(...);  while (calm_sql_next(ctx, sql, s)) ...;  then ctx->status says whether it
 * failed.  calm_sql_end, which also takes NULL, must come before the connection is closed or the same text is used
 * again; CALM_SCOPED_ROWS(s) calls it. */
calm_status calm_sql_first(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                           size_t n_params, calm_statement **out);
bool calm_sql_next(calm_ctx *ctx, calm_sql *sql, calm_statement *statement);
void calm_sql_end(calm_statement *statement);

/* Declare `calm_sql *name = NULL`, closed at the end of the scope; `calm_statement *name = NULL`, ended there. */
#define CALM_SCOPED_SQL(name) CALM_SCOPED(calm_sql, calm_sql_release) *name = NULL
#define CALM_SCOPED_ROWS(name) CALM_SCOPED(calm_statement, calm_sql_leave) *name = NULL
static inline void calm_sql_release(calm_sql **sql)
{
    calm_sql_close(*sql);
}
static inline void calm_sql_leave(calm_statement **statement)
{
    calm_sql_end(*statement);
}

/* Return a column of the current row.  text: a copy in ctx->out, NULL for NULL; value: valid until the next step. */
int64_t calm_sql_int(calm_statement *statement, int column);
calm_status calm_sql_text(calm_ctx *ctx, calm_statement *statement, int column, const char **out);
calm_value calm_sql_value(calm_statement *statement, int column);

/* Reads columns `first`, first + 1, ...: CALM_SQL_READ(ctx, row, 0, CALM_TO(&id), CALM_TO(&out->name)).  The pointer's
 * type selects the conversion: int64_t and string as calm_sql_int and calm_sql_text, double with NaN for NULL. */
typedef struct calm_sql_target {
    calm_value_type type;
    void *at;
} calm_sql_target;
#define CALM_SQL_READ(ctx, row, first, ...)                                                                        \
    calm_sql_read((ctx), (row), (first), (const calm_sql_target[]){__VA_ARGS__, {0}})
#define CALM_TO(pointer)                                                                                           \
    {_Generic((pointer), int64_t *: CALM_VALUE_INTEGER, double *: CALM_VALUE_REAL, const char **: CALM_VALUE_TEXT), \
     (pointer)}
calm_status calm_sql_read(calm_ctx *ctx, calm_statement *statement, int first, const calm_sql_target *targets);

/* Returns the number of rows that the last statement changed. */
int64_t calm_sql_changes(calm_sql *sql);

/* Undoes the innermost SAVEPOINT `calm`; does nothing if SQLite has already rolled back everything. */
void calm_sql_undo(calm_sql *sql);

/* Runs one SELECT written by a user; refuses everything that could write, attach or change settings (CALM_EARG).
 * See calm_store_query for `fn`. */
calm_status calm_sql_query(calm_ctx *ctx, calm_sql *sql, const char *text, const calm_value *params,
                           size_t n_params, calm_store_row_fn *fn, void *user);
