/* Reading anything: queries that users and reports write. */
#include <string.h>

#include "store/store_impl.h"

calm_status calm_store_query(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                             size_t n_params, calm_store_row_fn *fn, void *user)
{
    CALM_SCOPED_SCRATCH(ctx);
    return calm_sql_query(ctx, store->sql, sql, params, n_params, fn, user);
}

typedef struct each_row {
    calm_store_each_fn *fn;
    void *user;
} each_row;

static calm_status pass_row(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    const each_row *each = user;
    (void)n;
    (void)names;
    return values ? each->fn(ctx, each->user, values) : CALM_OK;
}

calm_status calm_store_each(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                            size_t n_params, calm_store_each_fn *fn, void *user)
{
    return calm_store_query(ctx, store, sql, params, n_params, pass_row, &(each_row){fn, user});
}

typedef struct first_row {
    calm_value *values;
    size_t n_values;
    bool found;
} first_row;

static calm_status keep_first(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                              const calm_value *values)
{
    first_row *row = user;
    (void)names;
    if (n != row->n_values)
        return calm_fail(ctx, CALM_EARG, "the query has %zu columns, expected %zu", n, row->n_values);
    if (!values || row->found)
        return CALM_OK;
    row->found = true;
    for (size_t i = 0; i < n; i++) {
        char *copy = NULL;
        row->values[i] = values[i];
        if (values[i].type != CALM_VALUE_TEXT && values[i].type != CALM_VALUE_BLOB)
            continue;
        CALM_TRY(CALM_NEW(ctx, ctx->out, copy, values[i].n_bytes + 1));
        if (values[i].n_bytes)
            memcpy(copy, values[i].text, values[i].n_bytes);
        row->values[i].text = copy;
    }
    return CALM_OK;
}

calm_status calm_store_query_one(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                                 size_t n_params, calm_value *values, size_t n_values)
{
    first_row row = {values, n_values, false};
    CALM_TRY(calm_store_query(ctx, store, sql, params, n_params, keep_first, &row));
    return row.found ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND, "%s: no such row", store->path);
}
