/* Learned blocks, found by key as candidates are. */
#include <string.h>

#include "store/store_impl.h"

static calm_status put_learned(calm_ctx *ctx, calm_store *store, const calm_store_learned *l, const int64_t *candidates,
                               const int64_t *starts, size_t n, int64_t *id)
{
    CALM_TRY(calm_store_row_put(ctx, store, "learned", 1,
        CALM_STORE_CELLS(CELL_T(l, key), CELL_ID(l, block_id), CELL_ID(l, calibration_id), CELL_T(l, learner),
                   CELL_T(l, kept), CELL_T(l, blob), CELL_I(l, blob_bytes), CELL_R(l, loss_before),
                   CELL_R(l, loss_after), CELL_I(l, changed), CELL_R(l, seconds)), id));
    CALM_TRY(calm_sql_run(ctx, store->sql, "DELETE FROM learned_candidate WHERE learned_id = ?1",
                          CALM_BIND(CALM_I(*id))));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_store_row_put(ctx, store, "learned_candidate", 0,
            CALM_STORE_CELLS({"learned_id", CALM_I(*id)}, {"candidate_id", CALM_ID(candidates[i])},
                       {"start_id", CALM_ID(starts[i])}), NULL));
    return CALM_OK;
}

calm_status calm_store_learned_put(calm_ctx *ctx, calm_store *store, const calm_store_learned *learned,
                                   const int64_t *candidates, const int64_t *starts, size_t n, int64_t *id)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(put_learned(ctx, store, learned, candidates, starts, n, id));
    return calm_store_commit(ctx, store);
}

calm_status calm_store_learned_find(calm_ctx *ctx, calm_store *store, const char *key, calm_store_learned *out,
                                    int64_t *id)
{
    CALM_SCOPED_ROWS(row);
    *id = 0;
    memset(out, 0, sizeof *out);
    CALM_TRY(calm_sql_first(ctx, store->sql,
                            "SELECT id, key, block_id, calibration_id, learner, kept, blob, blob_bytes, loss_before,"
                            " loss_after, changed, seconds FROM learned WHERE key = ?1",
                            CALM_BIND(CALM_T(key)), &row));
    if (!calm_sql_next(ctx, store->sql, row))
        return ctx->status;
    return CALM_SQL_READ(ctx, row, 0, CALM_TO(id), CALM_TO(&out->key), CALM_TO(&out->block_id),
                         CALM_TO(&out->calibration_id), CALM_TO(&out->learner), CALM_TO(&out->kept),
                         CALM_TO(&out->blob), CALM_TO(&out->blob_bytes), CALM_TO(&out->loss_before),
                         CALM_TO(&out->loss_after), CALM_TO(&out->changed), CALM_TO(&out->seconds));
}

calm_status calm_store_run_learned(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t learned_id)
{
    return calm_store_row_put(ctx, store, "run_learned", 2,
        CALM_STORE_CELLS({"run_id", CALM_ID(run_id)}, {"learned_id", CALM_ID(learned_id)}), NULL);
}
