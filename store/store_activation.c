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

#define COLUMNS                                                                                              \
    "model_id, calibration_id, hook, point, block, channels, count, zeros, n_tokens, n_massive, mean, std,"  \
    " mean_abs, rms, min, max, max_abs, q25, q50, q75, q90, q99, q999, peak_median, ratio_median, ratio_max," \
    " ratio_mean, ratio_std, crest_median, crest_max, histogram_first, histogram"

static calm_status put_row(calm_ctx *ctx, calm_store *store, const calm_store_activation *a, int64_t *id)
{
    size_t first, end;
    calm_text bins;
    calm_value none = {.type = CALM_VALUE_NULL};
    trim(a, &first, &end);
    calm_text_init(&bins);
    print_bins(a, first, end, &bins);
    calm_status status = calm_text_check(ctx, &bins);
    if (status == CALM_OK)
        status = calm_sql_number(
            ctx, store->sql,
            "INSERT INTO activation (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,"
            " ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)"
            " RETURNING id",
            CALM_BIND(CALM_ID(a->model_id), CALM_ID(a->calibration_id), CALM_T(a->hook), CALM_T(a->point),
                      a->block < 0 ? none : CALM_I(a->block), CALM_I(a->channels), CALM_I(a->count),
                      CALM_I(a->zeros), CALM_I(a->n_tokens), CALM_I(a->n_massive), CALM_R(a->mean), CALM_R(a->std),
                      CALM_R(a->mean_abs), CALM_R(a->rms), CALM_R(a->min), CALM_R(a->max), CALM_R(a->max_abs),
                      CALM_R(a->q25), CALM_R(a->q50), CALM_R(a->q75), CALM_R(a->q90), CALM_R(a->q99),
                      CALM_R(a->q999), CALM_R(a->peak_median), CALM_R(a->ratio_median), CALM_R(a->ratio_max),
                      CALM_R(a->ratio_mean), CALM_R(a->ratio_std), CALM_R(a->crest_median), CALM_R(a->crest_max),
                      CALM_I((int64_t)first), CALM_T(bins.data)),
            id);
    calm_text_clear(&bins);
    return status;
}

static calm_status put_peaks(calm_ctx *ctx, calm_store *store, const calm_store_activation *a, int64_t id)
{
    for (size_t i = 0; i < a->n_peaks; i++) {
        const calm_store_peak *p = &a->peaks[i];
        CALM_TRY(calm_sql_run(ctx, store->sql,
                              "INSERT INTO activation_peak (activation_id, rank, value, window, token, channel, text)"
                              " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                              CALM_BIND(CALM_I(id), CALM_I((int64_t)i + 1), CALM_R(p->value), CALM_I(p->window),
                                        CALM_I(p->token), CALM_I(p->channel), CALM_T(p->text))));
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
