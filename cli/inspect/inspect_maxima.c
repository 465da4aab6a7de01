/* calm inspect STORE activations: computes what the maxima of hook points mean, from their stored rows. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect/inspect_view.h"
#include "ptq/calib/activation.h"
#include "ptq/calib/maxima.h"

/* Reports a malformed row, which calm cannot have written. */
static calm_status damaged(calm_ctx *ctx, const calm_value *hook, const char *what)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: the store's %s", hook->type == CALM_VALUE_TEXT ? hook->text : "activation",
                     what);
}

/* ---- INT8 ---- */

/* Reads a stored histogram, which lacks its empty ends, into bins [CALM_ACT_BINS]; *total: sum of all bins. */
static calm_status read_histogram(calm_ctx *ctx, const calm_value *hook, const calm_value *first,
                                  const calm_value *text, uint64_t *bins, uint64_t *total)
{
    CALM_SCOPED_JSON(list);
    const int64_t begin = calm_value_as_int(first);
    memset(bins, 0, CALM_ACT_BINS * sizeof *bins);
    *total = 0;
    if (text->type != CALM_VALUE_TEXT)
        return CALM_OK;
    CALM_TRY(calm_json_parse(ctx, "histogram", text->text, text->n_bytes, &list));
    if (begin < 0 || begin > CALM_ACT_BINS || calm_json_size(list) > (size_t)(CALM_ACT_BINS - begin))
        return damaged(ctx, hook, "histogram has bins beyond the 512 of its scale");
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const int64_t count = calm_json_int(calm_json_at(list, i), -1);
        if (count < 0)
            return damaged(ctx, hook, "histogram has a bin that is no count");
        bins[(size_t)begin + i] = (uint64_t)count;
        *total += (uint64_t)count;
    }
    return CALM_OK;
}

static calm_status add_int8(calm_ctx *ctx, void *user, const calm_value *v)
{
    const calm_int8_error none = {NAN, NAN, NAN, NAN};
    calm_int8_error all = none, clip = none;
    uint64_t bins[CALM_ACT_BINS], total;
    CALM_TRY(read_histogram(ctx, &v[2], &v[8], &v[9], bins, &total));
    const calm_magnitudes x = {bins, (uint64_t)calm_value_as_int(&v[3]), calm_value_as_real(&v[4]),
                               calm_value_as_real(&v[5]), calm_value_as_real(&v[6])};
    const double limit = calm_value_as_real(&v[7]);
    if (total && x.count >= total && x.max_abs > 0 && x.mean_abs > 0 && x.rms > 0) {
        calm_int8_check(&x, x.max_abs, &all);
        if (limit > 0)
            calm_int8_check(&x, limit, &clip);
    }
    const calm_cell block = v[0].type == CALM_VALUE_INTEGER ? (calm_cell)CALM_INT(v[0].integer) : (calm_cell)CALM_EMPTY;
    CALM_CELLS(user, block, CALM_TEXT(calm_value_as_string(&v[1])), CALM_FIXED(x.max_abs, 2), CALM_FIXED(limit, 3),
               CALM_SCIENTIFIC(all.rel_mae, 2), CALM_SCIENTIFIC(clip.rel_mae, 2), CALM_SCIENTIFIC(all.rel_rmse, 2),
               CALM_SCIENTIFIC(clip.rel_rmse, 2), CALM_FIXED(all.sqnr, 1), CALM_FIXED(clip.sqnr, 1),
               CALM_FIXED(100 * clip.clipped, 3), CALM_TEXT(calm_value_as_string(&v[2])));
    return CALM_OK;
}

calm_status calm_inspect_int8(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table)
{
    const calm_value run = calm_value_int(in->run);
    calm_table_columns(table, "#block|point|#max|#q999|#rel_mae_max|#rel_mae_clip|#rel_rmse_max|#rel_rmse_clip|"
                              "#sqnr_max|#sqnr_clip|#clipped_percent|hook");
    return calm_store_each(ctx, in->store, list->sql, &run, 1, add_int8, table);
}

/* ---- subsets of the windows ---- */

/* Peaks of the current hook point. */
typedef struct hook_peaks {
    calm_table *table;
    char hook[256];
    calm_cell block;
    char point[64];
    double values[CALM_ACT_TOP];
    int64_t windows[CALM_ACT_TOP];
    size_t n, n_windows;
} hook_peaks;

/* Adds, for a half, a quarter and an eighth of the windows, the mean share of the maximum and its coefficient of
 * variation. */
static void put_subsets(hook_peaks *p)
{
    calm_subset_maximum of[3];
    if (!p->n)
        return;
    for (size_t i = 0; i < 3; i++) {
        const size_t m = p->n_windows >> (i + 1);
        calm_subset_maximum_of(p->values, p->windows, p->n, p->n_windows, m ? m : 1, &of[i]);
    }
    CALM_CELLS(p->table, p->block, CALM_TEXT(p->point), CALM_FIXED(p->values[0], 2),
               CALM_FIXED(of[0].mean / p->values[0], 4), CALM_FIXED(of[0].cv, 4),
               CALM_FIXED(of[1].mean / p->values[0], 4), CALM_FIXED(of[1].cv, 4),
               CALM_FIXED(of[2].mean / p->values[0], 4), CALM_FIXED(of[2].cv, 4),
               CALM_FIXED(100 * of[2].unknown, 2), CALM_INT((int64_t)p->n_windows), CALM_TEXT(p->hook));
    p->n = 0;
}

static calm_status add_peak(calm_ctx *ctx, void *user, const calm_value *v)
{
    hook_peaks *p = user;
    const char *hook = calm_value_as_string(&v[2]), *point = calm_value_as_string(&v[1]);
    const double value = fabs(calm_value_as_real(&v[3]));
    const int64_t window = calm_value_as_int(&v[4]), n_windows = calm_value_as_int(&v[5]);
    if (strncmp(p->hook, hook ? hook : "", sizeof p->hook - 1) != 0)
        put_subsets(p);
    if (p->n == CALM_ACT_TOP || window < 0 || window >= n_windows || (p->n && !(value <= p->values[p->n - 1])))
        return damaged(ctx, &v[2], "peaks are too many, not falling, or of a window that the calibration has not");
    p->block = v[0].type == CALM_VALUE_INTEGER ? (calm_cell)CALM_INT(v[0].integer) : (calm_cell)CALM_EMPTY;
    snprintf(p->hook, sizeof p->hook, "%s", hook ? hook : "");
    snprintf(p->point, sizeof p->point, "%s", point ? point : "");
    p->n_windows = (size_t)n_windows;
    p->windows[p->n] = window;
    p->values[p->n] = value;
    p->n += value > 0;    /* a hook point of zeros has no maximum */
    return CALM_OK;
}

calm_status calm_inspect_subsets(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table)
{
    const calm_value run = calm_value_int(in->run);
    hook_peaks peaks = {.table = table};
    calm_table_columns(table, "#block|point|#max|#half|#half_cv|#quarter|#quarter_cv|#eighth|#eighth_cv|"
                              "#unknown_percent|#windows|hook");
    CALM_TRY(calm_store_each(ctx, in->store, list->sql, &run, 1, add_peak, &peaks));
    put_subsets(&peaks);
    return CALM_OK;
}

/* ---- histograms ---- */

static calm_status add_histogram(calm_ctx *ctx, void *user, const calm_value *v)
{
    uint64_t bins[CALM_ACT_BINS], total;
    size_t first = 0, last = CALM_ACT_BINS;
    CALM_TRY(read_histogram(ctx, &v[0], &v[1], &v[2], bins, &total));
    const char *hook = calm_value_as_string(&v[0]);
    if (!total || !hook)
        return CALM_OK;
    while (!bins[first])
        first++;
    while (!bins[last - 1])
        last--;
    calm_json *counts = calm_json_new_array();
    for (size_t i = first; i < last; i++)
        calm_json_add(counts, calm_json_of_int((long long)bins[i]));
    calm_json_set(user, hook, CALM_OBJECT(CALM_KV("first", first), CALM_KV("counts", counts)));
    return CALM_OK;
}

/* Fills only the JSON, because only programs read histograms. */
static calm_status fill_histograms(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table)
{
    const calm_value run = calm_value_int(in->run);
    (void)table;
    calm_json *json = in->sections[in->n_sections - 1].json = calm_json_new_object();
    return calm_store_each(ctx, in->store, list->sql, &run, 1, add_histogram, json);
}

const calm_inspect_list calm_inspect_histograms[] = {
    {"histograms", "Histograms of |x|",
     .sql = "SELECT x.hook, x.histogram_first, x.histogram FROM run r JOIN activation x ON x.model_id = r.model_id AND "
            "x.calibration_id = r.calibration_id WHERE r.id = ?1 AND x.histogram IS NOT NULL ORDER BY x.block, x.id",
     .n_params = 1, .fill = fill_histograms},
    {0},
};
