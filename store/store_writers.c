/* The stores that this process writes.  When a signal ends the process, another thread than the one that writes marks
 * their runs, over a second connection. */
#include <pthread.h>

#include "store/store_impl.h"

/* Milliseconds to wait for a transaction of the thread that writes; after that the next writer marks the run. */
#define WAIT "1000"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static calm_store *first;

void calm_store_writers_add(calm_store *store)
{
    pthread_mutex_lock(&guard);
    store->next_writer = first;
    first = store;
    pthread_mutex_unlock(&guard);
}

void calm_store_writers_remove(const calm_store *store)
{
    pthread_mutex_lock(&guard);
    for (calm_store **at = &first; *at; at = &(*at)->next_writer)
        if (*at == store) {
            *at = store->next_writer;
            break;
        }
    pthread_mutex_unlock(&guard);
}

calm_status calm_store_end_runs(calm_ctx *ctx, calm_sql *sql)
{
    return calm_sql_run(ctx, sql, "UPDATE run SET status = 'interrupted' WHERE status = 'running'", CALM_NONE);
}

static void end_runs_at(const char *path)
{
    CALM_SCOPED_ARENA(out);
    CALM_SCOPED_ARENA(scratch);
    CALM_SCOPED_SQL(sql);
    calm_ctx own;
    calm_ctx_init(&own, &out, &scratch);
    if (calm_sql_open(&own, path, CALM_SQL_WRITE, &sql) == CALM_OK &&
        calm_sql_script(&own, sql, "PRAGMA busy_timeout = " WAIT) == CALM_OK)
        calm_store_end_runs(&own, sql);
}

void calm_store_interrupted(void)
{
    pthread_mutex_lock(&guard);
    for (const calm_store *store = first; store; store = store->next_writer)
        end_runs_at(store->path);
    pthread_mutex_unlock(&guard);
}
