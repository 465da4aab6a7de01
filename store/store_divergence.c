/* Divergence of an evaluation: quantiles, by position, and the tokens where it is greatest. */
#include "store/store_impl.h"

static calm_status put_ranges(calm_ctx *ctx, calm_store *store, int64_t id, const calm_store_divergence *d)
{
    for (size_t i = 0; i < d->n_quantiles; i++) {
        const calm_store_quantile *q = &d->quantiles[i];
        CALM_TRY(calm_store_row_put(ctx, store, "divergence_quantile", 0,
            CALM_STORE_CELLS({"evaluation_id", CALM_I(id)}, CELL_R(q, share), CELL_R(q, kl)), NULL));
    }
    for (size_t i = 0; i < d->n_ranges; i++) {
        const calm_store_range *r = &d->ranges[i];
        CALM_TRY(calm_store_row_put(ctx, store, "divergence_position", 0,
            CALM_STORE_CELLS({"evaluation_id", CALM_I(id)}, CELL_I(r, first_position), CELL_I(r, last_position),
                       CELL_I(r, tokens), CELL_R(r, kl)), NULL));
    }
    return CALM_OK;
}

static calm_status put_divergence(calm_ctx *ctx, calm_store *store, int64_t id, const calm_store_divergence *d)
{
    static const char *const old[] = {"DELETE FROM divergence_quantile WHERE evaluation_id = ?1",
                                      "DELETE FROM divergence_position WHERE evaluation_id = ?1",
                                      "DELETE FROM divergence_token WHERE evaluation_id = ?1"};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        CALM_TRY(calm_sql_run(ctx, store->sql, old[i], CALM_BIND(CALM_I(id))));
    CALM_TRY(put_ranges(ctx, store, id, d));
    for (size_t i = 0; i < d->n_tokens; i++) {
        const calm_store_token *t = &d->tokens[i];
        CALM_TRY(calm_store_row_put(ctx, store, "divergence_token", 0,
            CALM_STORE_CELLS({"evaluation_id", CALM_I(id)}, {"rank", CALM_I((int64_t)i + 1)}, CELL_I(t, window),
                       CELL_I(t, token), CELL_R(t, kl), CELL_R(t, nll), CELL_R(t, nll_float), CELL_T(t, text_before),
                       CELL_T(t, text), CELL_T(t, best), CELL_T(t, best_float)), NULL));
    }
    return CALM_OK;
}

calm_status calm_store_divergence_put(calm_ctx *ctx, calm_store *store, int64_t evaluation_id,
                                      const calm_store_divergence *divergence)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(put_divergence(ctx, store, evaluation_id, divergence));
    return calm_store_commit(ctx, store);
}

calm_status calm_store_divergence_exists(calm_ctx *ctx, calm_store *store, int64_t evaluation_id, bool *exists)
{
    return calm_sql_exists(ctx, store->sql,
                           "SELECT 1 FROM divergence_quantile WHERE evaluation_id = ?1",
                           CALM_BIND(CALM_ID(evaluation_id)), exists);
}
