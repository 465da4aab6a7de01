/* Activation statistics: one hook point with its histogram and its largest values. */
#include "ptq/base/text.h"
#include "store/store_impl.h"

/* The histogram without its empty ends; returns its first bin. */
static size_t print_bins(const calm_store_activation *a, calm_text *out)
{
    size_t first = 0, end = a->n_bins;
    while (first < end && a->histogram[first] == 0)
        first++;
    while (end > first && a->histogram[end - 1] == 0)
        end--;
    calm_text_printf(out, "[");
    for (size_t i = first; i < end; i++)
        calm_text_printf(out, "%s%llu", i > first ? "," : "", (unsigned long long)a->histogram[i]);
    calm_text_printf(out, "]");
    return first;
}

static calm_status put_row(calm_ctx *ctx, calm_store *store, const calm_store_activation *a, int64_t *id)
{
    CALM_SCOPED_TEXT(bins);
    const size_t first = print_bins(a, &bins);
    CALM_TRY(calm_text_check(ctx, &bins));
    return calm_store_row_put(ctx, store, "activation", 0,
        CALM_STORE_CELLS(CELL_ID(a, model_id), CELL_ID(a, calibration_id), CELL_T(a, hook), CELL_T(a, point),
                   CELL_INDEX(a, block), CELL_I(a, channels), CELL_I(a, count), CELL_I(a, zeros),
                   CELL_I(a, n_tokens), CELL_I(a, n_massive), CELL_R(a, mean), CELL_R(a, std), CELL_R(a, mean_abs),
                   CELL_R(a, rms), CELL_R(a, min), CELL_R(a, max), CELL_R(a, max_abs), CELL_R(a, q25),
                   CELL_R(a, q50), CELL_R(a, q75), CELL_R(a, q90), CELL_R(a, q99), CELL_R(a, q999),
                   CELL_R(a, peak_median), CELL_R(a, ratio_median), CELL_R(a, ratio_max), CELL_R(a, ratio_mean),
                   CELL_R(a, ratio_std), CELL_R(a, crest_median), CELL_R(a, crest_max),
                   {"histogram_first", CALM_I((int64_t)first)}, {"histogram", CALM_T(bins.data)}), id);
}

static calm_status put_activation(calm_ctx *ctx, calm_store *store, const calm_store_activation *a)
{
    int64_t id;
    /* The old row takes its peaks along. */
    CALM_TRY(calm_sql_run(ctx, store->sql,
                          "DELETE FROM activation WHERE model_id = ?1 AND calibration_id = ?2 AND hook = ?3",
                          CALM_BIND(CALM_ID(a->model_id), CALM_ID(a->calibration_id), CALM_T(a->hook))));
    CALM_TRY(put_row(ctx, store, a, &id));
    for (size_t i = 0; i < a->n_peaks; i++) {
        const calm_store_peak *p = &a->peaks[i];
        CALM_TRY(calm_store_row_put(ctx, store, "activation_peak", 0,
            CALM_STORE_CELLS({"activation_id", CALM_I(id)}, {"rank", CALM_I((int64_t)i + 1)}, CELL_R(p, value),
                       CELL_I(p, window), CELL_I(p, token), CELL_I(p, channel), CELL_T(p, text)), NULL));
    }
    return CALM_OK;
}

calm_status calm_store_activation_put(calm_ctx *ctx, calm_store *store, const calm_store_activation *activation)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(put_activation(ctx, store, activation));
    CALM_TRY(calm_store_commit(ctx, store));
    return store->relay ? store->relay->activation(ctx, store->relay->user, activation) : CALM_OK;
}

calm_status calm_store_activation_exists(calm_ctx *ctx, calm_store *store, int64_t model_id, int64_t calibration_id,
                                         const char *hook, bool *exists)
{
    return calm_sql_exists(ctx, store->sql,
                           "SELECT 1 FROM activation WHERE model_id = ?1 AND calibration_id = ?2"
                           " AND (?3 IS NULL OR hook = ?3)",
                           CALM_BIND(CALM_ID(model_id), CALM_ID(calibration_id), CALM_T(hook)), exists);
}

calm_status calm_store_context_exists(calm_ctx *ctx, calm_store *store, int64_t calibration_id, int64_t window,
                                      int64_t token, bool *exists)
{
    return calm_sql_exists(ctx, store->sql,
                           "SELECT 1 FROM token_context WHERE calibration_id = ?1 AND window = ?2"
                           " AND token = ?3",
                           CALM_BIND(CALM_ID(calibration_id), CALM_I(window), CALM_I(token)), exists);
}

calm_status calm_store_context_put(calm_ctx *ctx, calm_store *store, int64_t calibration_id, int64_t window,
                                   int64_t token, const char *before, const char *after)
{
    CALM_TRY(calm_store_row_put(ctx, store, "token_context", 3,
        CALM_STORE_CELLS({"calibration_id", CALM_ID(calibration_id)}, {"window", CALM_I(window)},
                   {"token", CALM_I(token)}, {"text_before", CALM_T(before)}, {"text_after", CALM_T(after)}), NULL));
    return store->relay ? store->relay->context(ctx, store->relay->user, window, token, before, after) : CALM_OK;
}
