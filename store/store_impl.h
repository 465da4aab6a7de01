/* The store's inside, shared by the store_*.c files alone. */
#ifndef CALM_STORE_STORE_IMPL_H
#define CALM_STORE_STORE_IMPL_H

#include "store/sql.h"
#include "store/store.h"

struct calm_store {
    calm_sql *sql;
    char *path, *blobs;    /* heap */
    int lock;              /* descriptor of the locked .lock file; -1 when reading */
};

/* Take the writer's lock of the database at `path` (store_lock.c); *fd stays open until calm_store_unlock.
 * CALM_EBUSY names the holder. */
calm_status calm_store_lock(calm_ctx *ctx, const char *path, const calm_store_how *how, int *fd);

/* Give the lock back; -1 is allowed. */
void calm_store_unlock(int fd);

/* *out, in ctx->out: the name of the first object of the schema that a store of `version` does not have, or has in
 * another form than it must; NULL: none (store_schema.c).  Fails as SQL does. */
calm_status calm_store_difference(calm_ctx *ctx, calm_sql *sql, int64_t version, const char **out);

/* Copy the store of an older `version` at `path` to PATH.v<version>.bak, or .bak.2 ... where that is taken, complete or
 * not at all, and say so in the log (store_migrate.c).  The caller holds the lock.  A failure says that nothing was
 * changed. */
calm_status calm_store_back_up(calm_ctx *ctx, const char *path, int64_t version);

/* Bring an older store up to date in one transaction.  Versions so far only added tables, indexes and views: views are
 * made anew, what is missing is made, and the result must be today's schema, or nothing changes. */
calm_status calm_store_migrate(calm_ctx *ctx, calm_sql *sql, const char *path);

#endif
