/* A candidate's output against the float output: all metrics of CALM_METRIC_LIST.
 *
 * One pass over the rows gives the metrics that need no matrix, the column means of the error and the scale s; the
 * matrix products of products_columns.c or products_rows.c give the four CKAs.  Sums run in eight fixed lanes, then in
 * row order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cka/products.h"
#include "ptq/base/array.h"
#include "ptq/base/scope.h"
#include "ptq/base/simd.h"

enum { LANES = 8 };

/* cka_drop drops rows whose norm exceeds this multiple of the median norm (docs/method.md section 3). */
#define DROP_MEDIANS 6
/* cka_token divides a row by at least this share of the median norm. */
#define TOKEN_MEDIANS (1.0 / 8)

/* Limits of ratios of squares (cka.h). */
#define RATIO_MAX 0x1p64
#define RATIO_MIN 0x1p-64

/* ---- rows ---- */

/* Sums over one row, e = z - y. */
typedef struct row_sums {
    double ee, ye, zz, abs_e;
} row_sums;

static inline double lane_sum(const double lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Computes the sums of one row; adds e to column [d] and weight * e to token_column [d]. */
CALM_VECTORIZE
static void row_error(const float *restrict y, const float *restrict z, double weight, size_t d,
                      double *restrict column, double *restrict token_column, row_sums *out)
{
    double ee[LANES] = {0}, ye[LANES] = {0}, zz[LANES] = {0}, abs_e[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= d; j += LANES)
        for (int l = 0; l < LANES; l++) {
            double yj = y[j + l], zj = z[j + l], e = zj - yj;
            ee[l] += e * e;
            ye[l] += yj * e;
            zz[l] += zj * zj;
            abs_e[l] += fabs(e);
            column[j + l] += e;
            token_column[j + l] += weight * e;
        }
    for (int l = 0; j < d; j++, l++) {
        double yj = y[j], zj = z[j], e = zj - yj;
        ee[l] += e * e;
        ye[l] += yj * e;
        zz[l] += zj * zj;
        abs_e[l] += fabs(e);
        column[j] += e;
        token_column[j] += weight * e;
    }
    *out = (row_sums){lane_sum(ee), lane_sum(ye), lane_sum(zz), lane_sum(abs_e)};
}

/* Returns |y - mean|^2 of a row of Y. */
CALM_VECTORIZE
static double row_spread(const float *restrict y, const double *restrict mean, size_t d)
{
    double sum[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= d; j += LANES)
        for (int l = 0; l < LANES; l++) {
            double c = (double)y[j + l] - mean[j + l];
            sum[l] += c * c;
        }
    for (int l = 0; j < d; j++, l++) {
        double c = (double)y[j] - mean[j];
        sum[l] += c * c;
    }
    return lane_sum(sum);
}

/* Returns the row's entry of the diagonal of D: ec (2 s yc + ec), both centred over all rows. */
CALM_VECTORIZE
static double row_diagonal(const float *restrict y, const float *restrict z, const double *restrict y_mean,
                           const double *restrict e_mean, double s, size_t d)
{
    double sum[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= d; j += LANES)
        for (int l = 0; l < LANES; l++) {
            double e = (double)z[j + l] - s * (double)y[j + l] - e_mean[j + l];
            sum[l] += e * (2 * s * ((double)y[j + l] - y_mean[j + l]) + e);
        }
    for (int l = 0; j < d; j++, l++) {
        double e = (double)z[j] - s * (double)y[j] - e_mean[j];
        sum[l] += e * (2 * s * ((double)y[j] - y_mean[j]) + e);
    }
    return lane_sum(sum);
}

/* Fails, naming the first infinite or NaN value of a row whose sum of squares is not finite. */
static calm_status not_finite(calm_ctx *ctx, const char *what, const float *row, size_t t)
{
    size_t j = 0;
    while (isfinite(row[j]))
        j++;
    return calm_fail(ctx, CALM_ENUMERIC, "score: the %s output holds %f at row %zu, column %zu", what, (double)row[j],
                     t, j);
}

/* ---- the float output ---- */

/* Returns the median of n values; `sorted` [n] is a temporary. */
static double median(const double *x, size_t n, double *sorted)
{
    memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, calm_compare_doubles);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Computes row norms and shares, and the sum of |y|. */
static calm_status measure_rows(calm_ctx *ctx, calm_score_ref *ref, const float *weight)
{
    for (size_t t = 0; t < ref->n; t++) {
        ref->share[t] = weight ? (double)weight[t] * (double)weight[t] : 1;
        ref->shares += ref->share[t];
    }
    if (!(ref->shares > 0)) {
        for (size_t t = 0; t < ref->n; t++)
            ref->share[t] = 1;
        ref->shares = (double)ref->n;
    }
    for (size_t t = 0; t < ref->n; t++) {
        const float *y = ref->y + t * ref->d;
        double norm2 = 0, abs_sum = 0;
        for (size_t j = 0; j < ref->d; j++) {
            norm2 += (double)y[j] * (double)y[j];
            abs_sum += fabs((double)y[j]);
        }
        if (!isfinite(norm2))
            return not_finite(ctx, "float", y, t);
        ref->norm2[t] = norm2;
        ref->abs_sum += abs_sum;
    }
    return CALM_OK;
}

/* Computes the weights of rows in cka_token, and the rows that cka_drop keeps: those of norm at most DROP_MEDIANS
 * medians, at least half of all.  The divisor of cka_token has a floor because the values of a sink token are near
 * zero: divided by their own norm, the rounding errors of such rows would dominate the score. */
static calm_status split_rows(calm_ctx *ctx, calm_score_ref *ref)
{
    double *norm, *sorted;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, norm, ref->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, sorted, ref->n));
    for (size_t t = 0; t < ref->n; t++)
        norm[t] = sqrt(ref->norm2[t]);
    const double middle = median(norm, ref->n, sorted), limit = DROP_MEDIANS * middle;
    for (size_t t = 0; t < ref->n; t++) {
        const double divisor = fmax(norm[t], TOKEN_MEDIANS * middle);
        ref->weight[t] = divisor > 0 ? sqrt(ref->share[t]) / divisor : 0;
    }
    for (size_t t = 0; t < ref->n; t++)
        if (!(norm[t] > limit)) {
            ref->kept[t] = 1;
            ref->order[ref->n_kept++] = t;
        }
    size_t next = ref->n_kept;
    for (size_t t = 0; t < ref->n; t++)
        if (norm[t] > limit)
            ref->order[next++] = t;
    return CALM_OK;
}

/* Computes the column means of each rowset, and the spread of Y around them. */
static void measure_columns(calm_score_ref *ref)
{
    size_t n = ref->n, d = ref->d;
    double *all = ref->mean[CALM_ROWS_ALL], *kept = ref->mean[CALM_ROWS_KEPT], *token = ref->mean[CALM_ROWS_TOKEN];
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < d; j++) {
            double y = ref->y[t * d + j];
            all[j] += y;
            kept[j] += ref->kept[t] * y;
            token[j] += ref->weight[t] * y;
        }
    for (size_t j = 0; j < d; j++) {
        all[j] /= (double)n;
        kept[j] /= (double)ref->n_kept;
        token[j] /= (double)n;
    }
    for (size_t t = 0; t < n; t++) {
        ref->diagonal[t] = row_spread(ref->y + t * d, all, d);
        ref->spread += ref->diagonal[t];
        if (ref->kept[t] > 0)
            ref->spread_kept += row_spread(ref->y + t * d, kept, d);
    }
}

/* The n x n form costs 2 n^2 d flops and two matrices [n, n], the d x d form 6 n d^2 and three [d, d]. */
size_t calm_score_square_rows(size_t d)
{
    return 2 * d + 1;
}

static bool is_by_rows(size_t n, size_t d)
{
    return n <= calm_score_square_rows(d);
}

size_t calm_score_prepare_bytes(size_t n, size_t d)
{
    return CALM_BYTES(calm_score_ref, 1) + CALM_BYTES(size_t, n) + 5 * CALM_BYTES(double, n) +
           CALM_N_ROWSETS * CALM_BYTES(double, d) +
           (is_by_rows(n, d) ? calm_rows_prepare_bytes(n) : calm_columns_prepare_bytes(d));
}

/* The norms of split_rows stay allocated while the matrices are prepared. */
size_t calm_score_prepare_scratch_bytes(size_t n, size_t d)
{
    return 2 * CALM_BYTES(double, n) +
           (is_by_rows(n, d) ? calm_rows_prepare_scratch_bytes(n) : calm_columns_prepare_scratch_bytes(d));
}

calm_status calm_score_prepare(calm_ctx *ctx, const float *y, size_t n, size_t d, calm_score_ref **out)
{
    CALM_ENTER(ctx, y && out);
    return calm_score_prepare_weighted(ctx, y, n, d, NULL, out);
}

calm_status calm_score_prepare_weighted(calm_ctx *ctx, const float *y, size_t n, size_t d, const float *weight,
                                        calm_score_ref **out)
{
    *out = NULL;
    if (n < 4 || d == 0)
        return calm_fail(ctx, CALM_EARG, "score: %zu rows of %zu columns, expected at least 4 rows and 1 column", n, d);
    calm_score_ref *ref;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref, 1));
    *ref = (calm_score_ref){.y = y, .n = n, .d = d, .by_rows = is_by_rows(n, d)};
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->order, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->norm2, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->share, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->weight, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->kept, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->diagonal, n));
    for (int set = 0; set < CALM_N_ROWSETS; set++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, ref->mean[set], d));
    CALM_TRY(measure_rows(ctx, ref, weight));
    CALM_TRY(split_rows(ctx, ref));
    measure_columns(ref);
    CALM_TRY(ref->by_rows ? calm_rows_prepare(ctx, ref) : calm_columns_prepare(ctx, ref));
    *out = ref;
    return CALM_OK;
}

/* ---- a candidate ---- */

/* Sums over all rows for the metrics that need no matrix. */
typedef struct totals {
    double ee, abs_e, log_ratio, angle, kept_ye;
} totals;

/* Returns num / den with 0/0 = 0, at most RATIO_MAX. */
static double ratio(double num, double den)
{
    return num > 0 ? (num < den * RATIO_MAX ? num / den : RATIO_MAX) : 0;
}

/* Adds one row; `share` is its weight in means over tokens. */
static void add_row(totals *sum, double yy, const row_sums *row, double share, bool kept)
{
    sum->ee += row->ee;
    sum->abs_e += row->abs_e;
    sum->log_ratio += share * log(fmax(ratio(row->ee, yy), RATIO_MIN));
    if (yy > 0 && row->zz > 0)
        sum->angle += share * calm_angle_loss(yy, yy + row->ye, row->zz, row->ye, row->ee);
    else
        sum->angle += yy > 0 || row->zz > 0 ? share : 0;
    sum->kept_ye += kept ? row->ye : 0;
}

/* Sums over all rows; afterwards error->mean has the column sums of e = z - y, in ALL only those of dropped rows. */
static calm_status sum_rows(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error, totals *sum)
{
    for (size_t t = 0; t < ref->n; t++) {
        const float *y = ref->y + t * ref->d, *z = error->z + t * ref->d;
        bool kept = ref->kept[t] > 0;
        row_sums row;
        row_error(y, z, ref->weight[t], ref->d, error->mean[kept ? CALM_ROWS_KEPT : CALM_ROWS_ALL],
                  error->mean[CALM_ROWS_TOKEN], &row);
        if (!isfinite(row.zz))
            return not_finite(ctx, "candidate's", z, t);
        add_row(sum, ref->norm2[t], &row, ref->share[t], kept);
    }
    return CALM_OK;
}

/* Returns the scale that fits Y to Z over the kept rows, rounded to 11 bits: then z - s * y is exact except for its
 * last bits, and a candidate that does not shrink its output has s = 1. */
static double best_scale(const calm_score_ref *ref, const totals *sum, const double *kept_sums)
{
    if (!(ref->spread_kept > 0))
        return 1;
    double covariance = sum->kept_ye;
    for (size_t j = 0; j < ref->d; j++)
        covariance -= ref->mean[CALM_ROWS_KEPT][j] * kept_sums[j];
    return calm_short_scale(1 + covariance / ref->spread_kept);
}

/* Turns the column sums of z - y into the column means of E = z - s y. */
static void finish_means(const calm_score_ref *ref, calm_error *error)
{
    double *all = error->mean[CALM_ROWS_ALL], *kept = error->mean[CALM_ROWS_KEPT];
    double *token = error->mean[CALM_ROWS_TOKEN];
    double rest = 1 - error->s;
    for (size_t j = 0; j < ref->d; j++) {
        all[j] = (kept[j] + all[j]) / (double)ref->n + rest * ref->mean[CALM_ROWS_ALL][j];
        kept[j] = kept[j] / (double)ref->n_kept + rest * ref->mean[CALM_ROWS_KEPT][j];
        token[j] = token[j] / (double)ref->n + rest * ref->mean[CALM_ROWS_TOKEN][j];
    }
}

static calm_status debiased(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error, calm_products p,
                            double *out)
{
    double *diagonal;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, diagonal, ref->n));
    for (size_t t = 0; t < ref->n; t++)
        diagonal[t] = row_diagonal(ref->y + t * ref->d, error->z + t * ref->d, ref->mean[CALM_ROWS_ALL],
                                   error->mean[CALM_ROWS_ALL], error->s, ref->d);
    *out = calm_cka_loss(calm_debias(p, ref->diagonal, diagonal, ref->n), error->s);
    return CALM_OK;
}

size_t calm_score_scratch_bytes(size_t n, size_t d)
{
    return CALM_N_ROWSETS * CALM_BYTES(double, d) + CALM_BYTES(double, n) +
           (is_by_rows(n, d) ? calm_rows_products_scratch_bytes(n) : calm_columns_products_scratch_bytes(d));
}

calm_status calm_score(calm_ctx *ctx, const calm_score_ref *ref, const float *z, calm_scores *out)
{
    CALM_ENTER(ctx, ref && z && out);
    CALM_SCOPED_SCRATCH(ctx);
    calm_error error = {.z = z};
    calm_products p[CALM_N_ROWSETS];
    totals sum = {0};
    *out = (calm_scores){.n_rows = ref->n, .n_dropped = ref->n - ref->n_kept};
    for (int set = 0; set < CALM_N_ROWSETS; set++)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, error.mean[set], ref->d));
    CALM_TRY(sum_rows(ctx, ref, &error, &sum));
    error.s = best_scale(ref, &sum, error.mean[CALM_ROWS_KEPT]);
    finish_means(ref, &error);
    CALM_TRY((ref->by_rows ? calm_rows_products : calm_columns_products)(ctx, ref, &error, p));

    double *value = out->value;
    out->constant = calm_products_constant(p[CALM_ROWS_ALL], error.s);
    value[CALM_METRIC_CKA] = calm_cka_loss(p[CALM_ROWS_ALL], error.s);
    value[CALM_METRIC_CKA_TOKEN] = calm_cka_loss(p[CALM_ROWS_TOKEN], error.s);
    value[CALM_METRIC_CKA_DROP] = calm_cka_loss(p[CALM_ROWS_KEPT], error.s);
    CALM_TRY(debiased(ctx, ref, &error, p[CALM_ROWS_ALL], &value[CALM_METRIC_CKA_DEBIASED]));
    value[CALM_METRIC_REL_MSE] = ratio(sum.ee, ref->spread);
    value[CALM_METRIC_LOG_REL_MSE] = sum.log_ratio / ref->shares;
    value[CALM_METRIC_COSINE] = sum.angle / ref->shares;
    value[CALM_METRIC_REL_MAE] = ratio(sum.abs_e, ref->abs_sum);
    return CALM_OK;
}
