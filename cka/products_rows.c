/* The n x n form of the products, for n <= 2 d: one matrix product serves every rowset.
 *
 *   D = E F^T + F E^T, F = s Y + E/2           for rows that are not centred
 *   D of a rowset = H W D W H                  W = diag(row factors), H = I - 11^T/m centres
 *   K of all rows = H K' H                     K' has rows minus the mean of the kept rows; for these it is K
 *
 * Centring D afterwards loses only digits by the ratio of the mean to the spread, and E enters D once; K is computed
 * from centred rows.  Cost 2 n^2 d flops and some passes over n^2 elements, compared with 6 n d^2 in the d x d form. */
#include "cka/products.h"
#include "ptq/base/scope.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"
#include "ptq/tensor/vector.h"

enum { CHUNK = 256, LANES = 8 };    /* columns multiplied at a time; fixed lanes of a sum */

/* A rowset as factors of rows, and its K. */
typedef struct rowset {
    const double *factor;    /* [n] factor of each row; 0 for a row outside the set          */
    const double *member;    /* [n] 1 for a row of the set, else 0                           */
    size_t m;                /* number of rows of the set                                    */
    const double *k;         /* [n, n]                                                       */
    const double *shift;     /* [n] row means to subtract from rows and columns of k         */
    double shift_mean;       /* mean of shift, to add again                                  */
} rowset;

/* Computes ref->k[set] = Yc Yc^T of all rows, centred by the column means of `set`. */
static calm_status gram(calm_ctx *ctx, calm_score_ref *ref, calm_rowset set)
{
    size_t n = ref->n, d = ref->d, square;
    if (!calm_size_mul(&square, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "score: %zu x %zu values", n, n);
    CALM_SCOPED_SCRATCH(ctx);
    double *yc;
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->k[set], square));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, yc, n * CHUNK));
    for (size_t first = 0; first < d; first += CHUNK) {
        size_t count = d - first < CHUNK ? d - first : CHUNK;
        for (size_t t = 0; t < n; t++) {
            double weight = set == CALM_ROWS_TOKEN ? ref->weight[t] : 1;
            for (size_t j = 0; j < count; j++)
                yc[t * count + j] = weight * (double)ref->y[t * d + first + j] - ref->mean[set][first + j];
        }
        calm_dproduct_rows(ctx, CALM_PRODUCT_NT, n, n, count, yc, count, yc, count, 1, ref->k[set], n);
    }
    return CALM_OK;
}

/* Computes D [n, n] of rows that are not centred. */
static calm_status difference(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error, double *out)
{
    enum { TILE = 32 };
    size_t n = ref->n, d = ref->d;
    double *e, *f;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, e, n * CHUNK));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, f, n * CHUNK));
    for (size_t first = 0; first < d; first += CHUNK) {
        size_t count = d - first < CHUNK ? d - first : CHUNK;
        for (size_t t = 0; t < n; t++)
            for (size_t j = 0; j < count; j++) {
                double sy = error->s * (double)ref->y[t * d + first + j];
                e[t * count + j] = (double)error->z[t * d + first + j] - sy;
                f[t * count + j] = sy + e[t * count + j] / 2;
            }
        calm_dproduct_rows(ctx, CALM_PRODUCT_NT, n, n, count, e, count, f, count, first > 0, out, n);
    }
    for (size_t i0 = 0; i0 < n; i0 += TILE)
        for (size_t j0 = 0; j0 <= i0; j0 += TILE)
            for (size_t i = i0; i < i0 + TILE && i < n; i++)
                for (size_t j = j0; j < j0 + TILE && j <= i; j++)
                    out[i * n + j] = out[j * n + i] = out[i * n + j] + out[j * n + i];
    return CALM_OK;
}

/* Adds <K, D> and <D, D> of row i, both centred, D by its row means `mean` and their mean `grand`. */
CALM_VECTORIZE
static void row_products(const rowset *set, const double *restrict difference_row, const double *restrict k_row,
                         const double *restrict mean, double grand, size_t i, size_t n, double *kd, double *dd)
{
    double kd_lane[LANES] = {0}, dd_lane[LANES] = {0};
    double fi = set->factor[i], less = mean[i] - grand, k_less = set->shift[i] - set->shift_mean;
    const double *restrict factor = set->factor, *restrict member = set->member, *restrict shift = set->shift;
    for (size_t j = 0; j < n; j++) {
        double x = member[j] * (fi * factor[j] * difference_row[j] - mean[j] - less);
        kd_lane[j % LANES] += x * (k_row[j] - shift[j] - k_less);
        dd_lane[j % LANES] += x * x;
    }
    for (int l = 0; l < LANES; l++) {
        *kd += kd_lane[l];
        *dd += dd_lane[l];
    }
}

/* Returns the products of one rowset from D of rows that are not centred; mean [n] is a temporary. */
static calm_products products(const rowset *set, const double *difference, size_t n, double kk, double *mean)
{
    calm_products p = {kk, 0, 0};
    double grand = 0;
    for (size_t i = 0; i < n; i++) {
        mean[i] = set->factor[i] * calm_vec_ddot(n, set->factor, difference + i * n) / (double)set->m;
        grand += mean[i] / (double)set->m;
    }
    for (size_t i = 0; i < n; i++)
        if (set->member[i] > 0)
            row_products(set, difference + i * n, set->k + i * n, mean, grand, i, n, &p.kd, &p.dd);
    return p;
}

/* Returns the bytes of rowset_of. */
static size_t rowset_bytes(size_t n)
{
    return 2 * CALM_BYTES(double, n);
}

static calm_status rowset_of(calm_ctx *ctx, const calm_score_ref *ref, calm_rowset which, rowset *out)
{
    double *zeros, *ones;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, zeros, ref->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, ones, ref->n));
    for (size_t i = 0; i < ref->n; i++)
        ones[i] = 1;
    *out = (rowset){ones, ones, ref->n, ref->k[CALM_ROWS_KEPT], ref->shift, ref->shift_mean};
    if (which == CALM_ROWS_KEPT)
        *out = (rowset){ref->kept, ref->kept, ref->n_kept, ref->k[CALM_ROWS_KEPT], zeros, 0};
    if (which == CALM_ROWS_TOKEN)
        *out = (rowset){ref->weight, ones, ref->n, ref->k[CALM_ROWS_TOKEN], zeros, 0};
    return CALM_OK;
}

size_t calm_rows_prepare_bytes(size_t n)
{
    return CALM_BYTES(double, n) + 2 * CALM_BYTES(double, n * n);
}

size_t calm_rows_prepare_scratch_bytes(size_t n)
{
    return calm_size_max(CALM_BYTES(double, n * CHUNK), CALM_N_ROWSETS * rowset_bytes(n));
}

size_t calm_rows_products_scratch_bytes(size_t n)
{
    return CALM_BYTES(double, n * n) + CALM_BYTES(double, n) + 2 * CALM_BYTES(double, n * CHUNK) +
           CALM_N_ROWSETS * rowset_bytes(n);
}

calm_status calm_rows_prepare(calm_ctx *ctx, calm_score_ref *ref)
{
    size_t n = ref->n;
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->shift, n));
    CALM_TRY(gram(ctx, ref, CALM_ROWS_KEPT));
    CALM_TRY(gram(ctx, ref, CALM_ROWS_TOKEN));
    ref->k[CALM_ROWS_ALL] = ref->k[CALM_ROWS_KEPT];
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += ref->k[CALM_ROWS_ALL][i * n + j];
        ref->shift[i] = sum / (double)n;
        ref->shift_mean += sum / (double)n / (double)n;
    }
    for (int which = 0; which < CALM_N_ROWSETS; which++) {
        rowset set;
        CALM_TRY(rowset_of(ctx, ref, (calm_rowset)which, &set));
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                double k = set.k[i * n + j] - set.shift[i] - set.shift[j] + set.shift_mean;
                sum += set.member[i] * set.member[j] * k * k;
            }
        ref->kk[which] = sum;
    }
    return CALM_OK;
}

calm_status calm_rows_products(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error,
                               calm_products out[CALM_N_ROWSETS])
{
    double *d_matrix, *mean;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, d_matrix, ref->n * ref->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, mean, ref->n));
    CALM_TRY(difference(ctx, ref, error, d_matrix));
    for (int which = 0; which < CALM_N_ROWSETS; which++) {
        rowset set;
        if (which == CALM_ROWS_KEPT && ref->n_kept == ref->n) {
            out[which] = out[CALM_ROWS_ALL];
            continue;
        }
        CALM_TRY(rowset_of(ctx, ref, (calm_rowset)which, &set));
        out[which] = products(&set, d_matrix, ref->n, ref->kk[which], mean);
    }
    return CALM_OK;
}
