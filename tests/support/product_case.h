/* A matrix product with padded rows, and the same sums in double. */
#ifndef CALM_TESTS_PRODUCT_CASE_H
#define CALM_TESTS_PRODUCT_CASE_H

#include "ptq/base/rng.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/product.h"
#include "tests/support/harness.h"

/* Returns a matrix of random values below 1/2 in absolute value. */
static inline float *random_matrix(size_t n, uint64_t stream)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(calm_rng_uniform(3, stream, i) - 0.5);
    return x;
}

typedef struct product_case {
    calm_product_form form;
    size_t m, n, k, lda, ldb, ldc;
    float beta;
    const float *a, *b, *start; /* operands, and C before the product */
    float *c;                   /* C [m, ldc], a copy of `start`      */
} product_case;

static inline product_case new_product(calm_product_form form, size_t m, size_t n, size_t k, float beta)
{
    const bool ta = form == CALM_PRODUCT_TN, tb = form == CALM_PRODUCT_NT;
    product_case p = {form, m, n, k, (ta ? m : k) + 3, (tb ? k : n) + 5, n + 7, beta, NULL, NULL, NULL, NULL};
    p.a = random_matrix((ta ? k : m) * p.lda, 1);
    p.b = random_matrix((tb ? n : k) * p.ldb, 2);
    p.start = random_matrix(m * p.ldc, 3);
    p.c = random_matrix(m * p.ldc, 3);
    return p;
}

/* Checks that C is the product of the operands rounded to `dtype`, plus beta times `start`, within `error`, and that
 * the padding is unchanged. */
static inline void ck_product(const product_case *p, calm_dtype dtype, double error)
{
    const bool ta = p->form == CALM_PRODUCT_TN, tb = p->form == CALM_PRODUCT_NT;
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->ldc; j++) {
            const double start = (double)p->start[i * p->ldc + j];
            double sum = (double)p->beta * start;
            for (size_t l = 0; j < p->n && l < p->k; l++)
                sum += (double)calm_dtype_round(dtype, p->a[ta ? l * p->lda + i : i * p->lda + l]) *
                       (double)calm_dtype_round(dtype, p->b[tb ? j * p->ldb + l : l * p->ldb + j]);
            ck_near(p->c[i * p->ldc + j], j < p->n ? sum : start, error);
        }
}

#endif
