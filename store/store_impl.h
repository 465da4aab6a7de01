/* The store's inside, shared by the store_*.c files and nobody else. */
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

#endif
