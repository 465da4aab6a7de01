/* The store's inside, shared by the store_*.c files alone. */
#pragma once

#include "store/sql.h"
#include "store/gc.h"
#include "store/store.h"

struct calm_store {
    calm_sql *sql;
    char *path, *blobs;    /* heap */
    int lock;              /* descriptor of the locked .lock file; -1 when reading */
    const calm_store_relay *relay;    /* NULL: what is put stays here */
};

/* Take the writer's lock of the database at `path` (store_lock.c); *fd stays open until calm_store_unlock.
 * CALM_EBUSY names the holder. */
calm_status calm_store_lock(calm_ctx *ctx, const char *path, const calm_store_how *how, int *fd);

/* Give the lock back; -1 is allowed. */
void calm_store_unlock(int fd);

/* A column and its value. */
typedef struct calm_store_cell {
    const char *column;
    calm_value value;
} calm_store_cell;

/* The column of a struct's member of that name. */
#define CELL_T(of, member) {#member, CALM_T((of)->member)}
#define CELL_I(of, member) {#member, CALM_I((of)->member)}
#define CELL_R(of, member) {#member, CALM_R((of)->member)}
#define CELL_ID(of, member) {#member, CALM_ID((of)->member)}
#define CELL_INDEX(of, member) {#member, calm_value_index((of)->member)}

/* Cells for the call below: CALM_STORE_CELLS(CELL_ID(verdict, run_id), {"subject", CALM_T(subject)}). */
#define CALM_STORE_CELLS(...)                                                                                      \
    (const calm_store_cell[]){__VA_ARGS__}, sizeof((const calm_store_cell[]){__VA_ARGS__}) / sizeof(calm_store_cell)

/* Insert a row, or update the one with the same key: the first `n_keys` of cells [n]; 0: insert only (store_row.c).
 * *id: number of the row, old or new; NULL: the table has none. */
calm_status calm_store_row_put(calm_ctx *ctx, calm_store *store, const char *table, size_t n_keys,
                               const calm_store_cell *cells, size_t n, int64_t *id);

/* Compare the database of `path` with the schema of `version` (store_schema.c).  CALM_EFORMAT names the first object
 * that is missing, or has another form than it must.  Else fails as SQL does. */
calm_status calm_store_check(calm_ctx *ctx, calm_sql *sql, const char *path, int64_t version);

/* Copy the store of an older `version` at `path` to PATH.v<version>.bak, or .bak.2 ... where that is taken, complete or
 * not at all, and say so in the log (store_migrate.c).  The caller holds the lock.  A failure says that nothing was
 * changed. */
calm_status calm_store_back_up(calm_ctx *ctx, const char *path, int64_t version);

/* A table that versions since <= v < until had in another form than today's schema, or that is gone. */
typedef struct calm_store_former {
    const char *name, *columns;    /* columns in order, joined by ", " */
    int64_t since, until;
} calm_store_former;

/* All of them, a table before those that it refers to; *n how many (store_schema.c). */
const calm_store_former *calm_store_formers(size_t *n);

/* Bring a store of an older `version` up to date in one transaction: tables whose form changed are made anew from
 * their rows, views are made anew, what is missing is made, and the result must be today's schema, or nothing
 * changes. */
calm_status calm_store_migrate(calm_ctx *ctx, calm_sql *sql, const char *path, int64_t version);

/* Collect.  The store is open for writing, or for reading when it is a dry run.
 * CALM_ENOTFOUND: a run to drop is not there; the message names those that are, and nothing was changed.  Other
 * failures before the rows have gone change nothing either; after that the rows are gone and another collection
 * continues. */
calm_status calm_store_gc(calm_ctx *ctx, calm_store *store, const calm_gc_plan *plan, calm_gc_result *out);

/* Negative gives NULL. */
calm_value calm_value_index(int64_t index);
