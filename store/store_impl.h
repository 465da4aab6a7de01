/* Private parts of the store; only store_*.c include this file. */
#pragma once

#include "store/sql.h"
#include "store/gc.h"
#include "store/store.h"

struct calm_store {
    calm_sql *sql;
    char *path, *blobs;    /* heap */
    int lock;              /* descriptor of the locked .lock file; -1 when reading */
    int depth;             /* open transactions */
    const calm_store_relay *relay;    /* receives the rows that are put, or NULL */
    struct calm_store *next_writer;   /* of store_writers.c */
};

/* Add the store to those that this process writes, or remove it, if it is there (store_writers.c). */
void calm_store_writers_add(calm_store *store);
void calm_store_writers_remove(const calm_store *store);

/* Marks runs that nobody continues: those of status `running` become `interrupted`. */
calm_status calm_store_end_runs(calm_ctx *ctx, calm_sql *sql);

/* Takes the writer's lock of the database at `path` (store_lock.c); *fd stays open until calm_store_unlock.
 * CALM_EBUSY names the holder. */
calm_status calm_store_lock(calm_ctx *ctx, const char *path, const calm_store_how *how, int *fd);

/* Releases the lock; -1 is allowed. */
void calm_store_unlock(int fd);

/* A column and its value. */
typedef struct calm_store_cell {
    const char *column;
    calm_value value;
} calm_store_cell;

/* The cell whose column has the name of a struct's member, with the member's value. */
#define CELL_T(of, member) {#member, CALM_T((of)->member)}
#define CELL_I(of, member) {#member, CALM_I((of)->member)}
#define CELL_R(of, member) {#member, CALM_R((of)->member)}
#define CELL_ID(of, member) {#member, CALM_ID((of)->member)}
#define CELL_INDEX(of, member) {#member, calm_value_index((of)->member)}

/* Cells for the call below: CALM_STORE_CELLS(CELL_ID(verdict, run_id), {"subject", CALM_T(subject)}). */
#define CALM_STORE_CELLS(...)                                                                                      \
    (const calm_store_cell[]){__VA_ARGS__}, sizeof((const calm_store_cell[]){__VA_ARGS__}) / sizeof(calm_store_cell)

/* Inserts a row, or updates the row with the same key, which is the first `n_keys` of cells [n]; 0: inserts only
 * (store_row.c).  *id is the row's id, old or new; id NULL: the table has no ids. */
calm_status calm_store_row_put(calm_ctx *ctx, calm_store *store, const char *table, size_t n_keys,
                               const calm_store_cell *cells, size_t n, int64_t *id);

/* Compares the database at `path` with the schema of `version` (store_schema.c).  CALM_EFORMAT names the first object
 * that is missing or differs from the schema.  Other failures are those of SQL. */
calm_status calm_store_check(calm_ctx *ctx, calm_sql *sql, const char *path, int64_t version);

/* Copies the store of an older `version` at `path` to PATH.v<version>.bak, or .bak.2 ... if that exists, completely or
 * not at all, and logs a warning (store_migrate.c).  The caller holds the lock.  A failure's message says that nothing
 * was changed. */
calm_status calm_store_back_up(calm_ctx *ctx, const char *path, int64_t version);

/* A table of schema versions since <= v < until that differs from today's schema, or is not in it. */
typedef struct calm_store_former {
    const char *name, *columns;    /* columns in order, joined by ", " */
    int64_t since, until;
} calm_store_former;

/* Returns all former tables, each before the tables that it refers to; *n is their number (store_schema.c). */
const calm_store_former *calm_store_formers(size_t *n);

/* Migrates a store of an older `version` in one transaction: copies changed tables into new ones, creates all views
 * again and whatever is missing, and compares the result with today's schema; a failure changes nothing. */
calm_status calm_store_migrate(calm_ctx *ctx, calm_sql *sql, const char *path, int64_t version);

/* Does the work of calm_store_gc_file on an open store: open for writing, or for reading if it is a dry run. */
calm_status calm_store_gc(calm_ctx *ctx, calm_store *store, const calm_gc_plan *plan, calm_gc_result *out);

/* Returns an index as a value; a negative index gives NULL. */
calm_value calm_value_index(int64_t index);
