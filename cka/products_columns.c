/* The d x d form of the products, for n > 2 d: sums over rows are small matrices.
 *
 *   A = Yc^T Yc   C = Yc^T Ec   B = Ec^T Ec      all [d, d]; with D = s (Yc Ec^T + Ec Yc^T) + Ec Ec^T:
 *   <K, D> = 2 s <A, C> + |C|^2
 *   <D, D> = 2 s^2 (<A, B> + <C, C^T>) + 4 s <C, B> + |B|^2
 *
 * Rows are centred and multiplied in chunks that fit the cache.  The sums over all rows are those over the kept rows,
 * plus the dropped rows, plus one row for the difference of the means.  There are only additions, so a massive token
 * that is dropped leaves no rounding error in the sums over kept rows. */
#include <math.h>
#include <string.h>

#include "cka/products.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"

enum { CHUNK = 256 };    /* rows; two chunks of d = 256 doubles are 1 MB */

typedef struct work {
    double *yc, *ec;    /* [CHUNK, d]                                              */
    double *c, *b;      /* [d, d] sums of yc^T ec and ec^T ec, b the upper triangle */
} work;

CALM_VECTORIZE
static void centre_row(const float *restrict y, const double *restrict mean, double weight, size_t d,
                       double *restrict out)
{
    for (size_t j = 0; j < d; j++)
        out[j] = weight * (double)y[j] - mean[j];
}

CALM_VECTORIZE
static void centre_error(const float *restrict y, const float *restrict z, const double *restrict mean, double weight,
                         double s, size_t d, double *restrict out)
{
    for (size_t j = 0; j < d; j++)
        out[j] = weight * ((double)z[j] - s * (double)y[j]) - mean[j];
}

/* Adds rows order[first .. last) of a rowset to a = Yc^T Yc (error NULL), or to w->c and w->b. */
static void add_rows(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error, calm_rowset set,
                     size_t first, size_t last, const work *w, double *a)
{
    size_t d = ref->d;
    for (size_t start = first; start < last; start += CHUNK) {
        size_t count = last - start < CHUNK ? last - start : CHUNK;
        for (size_t r = 0; r < count; r++) {
            size_t t = ref->order[start + r];
            double weight = set == CALM_ROWS_TOKEN ? ref->weight[t] : 1;
            centre_row(ref->y + t * d, ref->mean[set], weight, d, w->yc + r * d);
            if (error)
                centre_error(ref->y + t * d, error->z + t * d, error->mean[set], weight, error->s, d,
                             w->ec + r * d);
        }
        if (a) {
            calm_dproduct_upper(ctx, d, count, w->yc, d, a, d);
        } else {
            calm_dproduct_rows(ctx, CALM_PRODUCT_TN, d, d, count, w->yc, d, w->ec, d, 1, w->c, d);
            calm_dproduct_upper(ctx, d, count, w->ec, d, w->b, d);
        }
    }
}

/* Computes sqrt(n_kept) (mean of the kept rows - mean of all rows) as a row. */
static void mean_row(const calm_score_ref *ref, double *const mean[CALM_N_ROWSETS], double *row)
{
    double root = sqrt((double)ref->n_kept);
    for (size_t j = 0; j < ref->d; j++)
        row[j] = root * (mean[CALM_ROWS_KEPT][j] - mean[CALM_ROWS_ALL][j]);
}

double calm_products_inner(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

size_t calm_columns_prepare_bytes(size_t d)
{
    return CALM_N_ROWSETS * CALM_BYTES(double, d * d);
}

size_t calm_columns_prepare_scratch_bytes(size_t d)
{
    return CALM_BYTES(double, CHUNK * d);
}

size_t calm_columns_products_scratch_bytes(size_t d)
{
    return 2 * CALM_BYTES(double, CHUNK * d) + 2 * CALM_BYTES(double, d * d);
}

calm_status calm_columns_prepare(calm_ctx *ctx, calm_score_ref *ref)
{
    size_t d = ref->d, square;
    work w = {0};
    if (!calm_size_mul(&square, d, d))
        return calm_fail(ctx, CALM_ENOMEM, "score: %zu x %zu values", d, d);
    for (int set = 0; set < CALM_N_ROWSETS; set++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, ref->k[set], square));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.yc, CHUNK * d));

    add_rows(ctx, ref, NULL, CALM_ROWS_KEPT, 0, ref->n_kept, &w, ref->k[CALM_ROWS_KEPT]);
    memcpy(ref->k[CALM_ROWS_ALL], ref->k[CALM_ROWS_KEPT], square * sizeof(double));
    add_rows(ctx, ref, NULL, CALM_ROWS_ALL, ref->n_kept, ref->n, &w, ref->k[CALM_ROWS_ALL]);
    mean_row(ref, ref->mean, w.yc);
    calm_dsyrk_t(d, 1, 1, w.yc, d, 1, ref->k[CALM_ROWS_ALL], d);
    add_rows(ctx, ref, NULL, CALM_ROWS_TOKEN, 0, ref->n, &w, ref->k[CALM_ROWS_TOKEN]);
    for (int set = 0; set < CALM_N_ROWSETS; set++) {
        calm_dsymmetrize(d, ref->k[set], d);
        ref->kk[set] = calm_products_inner(ref->k[set], ref->k[set], square);
    }
    return CALM_OK;
}

calm_products calm_columns_combine(const double *a, const double *c, double *b, size_t d, double s, double kk)
{
    enum { TILE = 32 };    /* c is read by rows and by columns */
    double ab = 0, ac = 0, cc = 0, cct = 0, cb = 0, bb = 0;
    calm_dsymmetrize(d, b, d);
    for (size_t i0 = 0; i0 < d; i0 += TILE)
        for (size_t j0 = 0; j0 < d; j0 += TILE)
            for (size_t i = i0; i < i0 + TILE && i < d; i++)
                for (size_t j = j0; j < j0 + TILE && j < d; j++) {
                    double cij = c[i * d + j], bij = b[i * d + j], aij = a[i * d + j];
                    ab += aij * bij;
                    ac += aij * cij;
                    cc += cij * cij;
                    cct += cij * c[j * d + i];
                    cb += cij * bij;
                    bb += bij * bij;
                }
    return (calm_products){kk, 2 * s * ac + cc, 2 * s * s * (ab + cct) + 4 * s * cb + bb};
}

calm_status calm_columns_products(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error,
                                  calm_products out[CALM_N_ROWSETS])
{
    size_t d = ref->d;
    work w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.yc, CHUNK * d));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.ec, CHUNK * d));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.c, d * d));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.b, d * d));
    add_rows(ctx, ref, error, CALM_ROWS_KEPT, 0, ref->n_kept, &w, NULL);
    out[CALM_ROWS_KEPT] =
        calm_columns_combine(ref->k[CALM_ROWS_KEPT], w.c, w.b, d, error->s, ref->kk[CALM_ROWS_KEPT]);
    out[CALM_ROWS_ALL] = out[CALM_ROWS_KEPT];
    if (ref->n_kept < ref->n) {
        add_rows(ctx, ref, error, CALM_ROWS_ALL, ref->n_kept, ref->n, &w, NULL);
        mean_row(ref, ref->mean, w.yc);
        mean_row(ref, error->mean, w.ec);
        calm_dgemm_tn(d, d, 1, 1, w.yc, d, w.ec, d, 1, w.c, d);
        calm_dsyrk_t(d, 1, 1, w.ec, d, 1, w.b, d);
        out[CALM_ROWS_ALL] =
            calm_columns_combine(ref->k[CALM_ROWS_ALL], w.c, w.b, d, error->s, ref->kk[CALM_ROWS_ALL]);
    }
    memset(w.c, 0, d * d * sizeof(double));
    memset(w.b, 0, d * d * sizeof(double));
    add_rows(ctx, ref, error, CALM_ROWS_TOKEN, 0, ref->n, &w, NULL);
    out[CALM_ROWS_TOKEN] =
        calm_columns_combine(ref->k[CALM_ROWS_TOKEN], w.c, w.b, d, error->s, ref->kk[CALM_ROWS_TOKEN]);
    return CALM_OK;
}
