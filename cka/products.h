/* Private to cka/: the reference, the three inner products behind every CKA, and the two ways to compute them.
 *
 *   K = Yc Yc^T   L = Zc Zc^T = s^2 K + D   Z = s Y + E   D = s (Yc Ec^T + Ec Yc^T) + Ec Ec^T     all [n, n]
 *
 * s is a scale near the least-squares fit of Z by Y.  CKA does not depend on the scale of Z, but E does: with s Y
 * subtracted, D holds only what changes the CKA. */
#pragma once

#include "cka/cka.h"

/* The row sets that are scored: all rows; the rows that cka_drop keeps; all rows divided by the float row's norm, at
 * least an eighth of the median norm. */
typedef enum calm_rowset { CALM_ROWS_ALL, CALM_ROWS_KEPT, CALM_ROWS_TOKEN, CALM_N_ROWSETS } calm_rowset;

/* The inner products <K, K>, <K, D>, <D, D>. */
typedef struct calm_products {
    double kk, kd, dd;
} calm_products;

struct calm_score_ref {
    const float *y;                   /* [n, d] borrowed                                                       */
    size_t n, d, n_kept;
    size_t *order;                    /* [n] row numbers: the kept rows in order, then the dropped ones        */
    double *norm2;                    /* [n] |y_t|^2                                                           */
    double *share;                    /* [n] weight of each token in means over tokens; 1 without weights      */
    double shares;                    /* sum of share                                                          */
    double *weight;                   /* [n] sqrt(share) / |y_t| with a floor: cka_token multiplies rows by it */
    double *kept;                     /* [n] 1 for a kept row, 0 for a dropped one                             */
    double *diagonal;                 /* [n] |y_t - mean|^2, the diagonal of K over all rows                   */
    double *mean[CALM_N_ROWSETS];     /* [d] column means of each rowset                                       */
    double spread, spread_kept;       /* sum of |y - mean|^2 over all and over kept rows                       */
    double abs_sum;                   /* sum |y|                                                               */
    double kk[CALM_N_ROWSETS];        /* <K, K>                                                                */
    bool by_rows;                     /* n x n form (products_rows.c), else d x d form (products_columns.c)    */
    double *k[CALM_N_ROWSETS];        /* d x d form: Yc^T Yc [d, d]; n x n form: Yc Yc^T [n, n], ALL = KEPT    */
    double *shift;                    /* [n] n x n form: row means of k[KEPT], which centre it for all rows    */
    double shift_mean;                /* mean of shift                                                         */
};

/* A candidate that is being scored: Z = s Y + E. */
typedef struct calm_error {
    const float *z;                   /* [n, d] borrowed                                                       */
    double s;
    double *mean[CALM_N_ROWSETS];     /* [d] column means of E over each rowset                                */
} calm_error;

/* Returns 1 - cos(a, b) for b = s' a + x, from the inner products aa, ab, bb and those of the remainder x, ax = <a, x>,
 * xx = <x, x>.  x is known more accurately than <a, b>: 1 - cos = sin^2 / (1 + cos), sin^2 = (<x,x> - <a,x>^2 /
 * <a,a>) / <b,b> is accurate for any size of x, and no number near 1 is subtracted from 1.  aa and bb must be
 * positive. */
double calm_angle_loss(double aa, double ab, double bb, double ax, double xx);

/* Rounds a fitted scale to 11 bits: its product with a float is then exact in double, and any value near the fit will
 * do. */
double calm_short_scale(double fit);

/* Is Z constant by the rule of cka.h, and Y not? */
bool calm_products_constant(calm_products p, double s);

/* Returns 1 - CKA from the three products, with cka.h's special cases for constants. */
double calm_cka_loss(calm_products p, double s);

/* Returns the debiased products: <., .> becomes h(., .) of docs/method.md section 3, which is bilinear in K and D.
 *   k, d  [n] the diagonals of K and D.  n >= 4. */
calm_products calm_debias(calm_products p, const double *k, const double *d, size_t n);

/* Compute ref->k and ref->kk (and ref->shift) in the d x d or the n x n form, in ctx->out. */
calm_status calm_columns_prepare(calm_ctx *ctx, calm_score_ref *ref);
calm_status calm_rows_prepare(calm_ctx *ctx, calm_score_ref *ref);

/* Return the bytes that these leave in ctx->out, and their peak bytes of ctx->scratch. */
size_t calm_columns_prepare_bytes(size_t d);
size_t calm_columns_prepare_scratch_bytes(size_t d);
size_t calm_rows_prepare_bytes(size_t n);
size_t calm_rows_prepare_scratch_bytes(size_t n);

/* Returns <a, b> of two matrices with n values. */
double calm_products_inner(const double *a, const double *b, size_t n);

/* Returns <K, D> and <D, D> from A = Yc^T Yc, C = Yc^T Ec, B = Ec^T Ec [d, d], with <K, K> = kk.  Reads the upper
 * triangle of B and fills in the lower one. */
calm_products calm_columns_combine(const double *a, const double *c, double *b, size_t d, double s, double kk);

/* Compute the products of each rowset; temporaries in ctx->scratch. */
calm_status calm_columns_products(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error,
                                  calm_products out[CALM_N_ROWSETS]);
calm_status calm_rows_products(calm_ctx *ctx, const calm_score_ref *ref, const calm_error *error,
                               calm_products out[CALM_N_ROWSETS]);

/* Return their peak bytes of ctx->scratch if cka_drop drops rows, which is the larger case. */
size_t calm_columns_products_scratch_bytes(size_t d);
size_t calm_rows_products_scratch_bytes(size_t n);
