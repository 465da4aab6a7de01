/* Activation statistics: one hook point with its histogram and its largest values. */
#include "ptq/base/text.h"
#include "store/store_impl.h"

/* Bins [*first, *end): the histogram without its empty ends. */
static void trim(const calm_store_activation *a, size_t *first, size_t *end)
{
    *first = 0, *end = a->n_bins;
    while (*first < *end && a->histogram[*first] == 0)
        (*first)++;
    while (*end > *first && a->histogram[*end - 1] == 0)
        (*end)--;
}

static void print_bins(const calm_store_activation *a, size_t first, size_t end, calm_text *out)
{
    calm_text_printf(out, "[");
    for (size_t i = first; i < end; i++)
        calm_text_printf(out, "%s%llu", i > first ? "," : "", (unsigned long long)a->histogram[i]);
    calm_text_printf(out, "]");
}

static calm_status put_row(calm_ctx *ctx, calm_store *store, const calm_store_activation *a, int64_t *id)
{
    size_t first, end;
    calm_text bins;
    trim(a, &first, &end);
    calm_text_init(&bins);
    print_bins(a, first, end, &bins);
    calm_status status = calm_text_check(ctx, &bins);
    if (status == CALM_OK)
        status = calm_store_row_put(ctx, store, "activation", 0,
            CALM_STORE_CELLS(CELL_ID(a, model_id), CELL_ID(a, calibration_id), CELL_T(a, hook), CELL_T(a, point),
                       CELL_INDEX(a, block), CELL_I(a, channels), CELL_I(a, count), CELL_I(a, zeros),
                       CELL_I(a, n_tokens), CELL_I(a, n_massive), CELL_R(a, mean), CELL_R(a, std), CELL_R(a, mean_abs),
                       CELL_R(a, rms), CELL_R(a, min), CELL_R(a, max), CELL_R(a, max_abs), CELL_R(a, q25),
                       CELL_R(a, q50), CELL_R(a, q75), CELL_R(a, q90), CELL_R(a, q99), CELL_R(a, q999),
                       CELL_R(a, peak_median), CELL_R(a, ratio_median), CELL_R(a, ratio_max), CELL_R(a, ratio_mean),
                       CELL_R(a, ratio_std), CELL_R(a, crest_median), CELL_R(a, crest_max),
                       {"histogram_first", CALM_I((int64_t)first)}, {"histogram", CALM_T(bins.data)}), id);
    calm_text_clear(&bins);
    return status;
}

static calm_status put_peaks(calm_ctx *ctx, calm_store *store, const calm_store_activation *a, int64_t id)
{
    for (size_t i = 0; i < a->n_peaks; i++) {
        const calm_store_peak *p = &a->peaks[i];
        CALM_TRY(calm_store_row_put(ctx, store, "activation_peak", 0,
            CALM_STORE_CELLS({"activation_id", CALM_I(id)}, {"rank", CALM_I((int64_t)i + 1)}, CELL_R(p, value),
                       CELL_I(p, window), CELL_I(p, token), CELL_I(p, channel), CELL_T(p, text)), NULL));
    }
    return CALM_OK;
}

static calm_status put_activation(calm_ctx *ctx, calm_store *store, const calm_store_activation *a)
{
    int64_t id;
    /* The old row takes its peaks along. */
    CALM_TRY(calm_sql_run(ctx, store->sql,
                          "DELETE FROM activation WHERE model_id = ?1 AND calibration_id = ?2 AND hook = ?3",
                          CALM_BIND(CALM_ID(a->model_id), CALM_ID(a->calibration_id), CALM_T(a->hook))));
    CALM_TRY(put_row(ctx, store, a, &id));
    return put_peaks(ctx, store, a, id);
}

calm_status calm_store_activation_put(calm_ctx *ctx, calm_store *store, const calm_store_activation *activation)
{
    CALM_TRY(calm_store_begin(ctx, store));
    put_activation(ctx, store, activation);
    return calm_store_end(ctx, store);
}

calm_status calm_store_activation_exists(calm_ctx *ctx, calm_store *store, int64_t model_id, int64_t calibration_id,
                                         const char *hook, bool *exists)
{
    int64_t found;
    CALM_TRY(calm_sql_number(ctx, store->sql,
                             "SELECT EXISTS (SELECT 1 FROM activation WHERE model_id = ?1 AND calibration_id = ?2"
                             " AND (?3 IS NULL OR hook = ?3))",
                             CALM_BIND(CALM_ID(model_id), CALM_ID(calibration_id), CALM_T(hook)), &found));
    *exists = found != 0;
    return CALM_OK;
}
