/* cka_linear from the covariance of the input.
 *
 * With Q = s W + E, the products of products.h (divided by N^2, which cancels in CKA) are traces:
 *
 *   A = W^T W   M = s (W^T E + E^T W) + E^T E = F^T E + E^T F,  F = s W + E/2        all [I, I]
 *   <K, K> = tr(A C A C)   <K, D> = tr(A C M C)   <D, D> = tr(M C M C)
 *
 * by inputs: T = C A C once per job, then <K, D> = <T, M> and <D, D> = <M C, (M C)^T>, block by block;
 * by outputs, if there are fewer of them: W C W^T, W C E^T and E C E^T [O, O] replace Yc^T Yc, Yc^T Ec, Ec^T Ec of
 * products_columns.c.  M is never computed as the difference of two large matrices, so it keeps its digits. */
#include "cka/linear.h"

#include <math.h>

#include "cka/products.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"

enum {
    CHUNK = 256,    /* rows widened to double at a time */
    BLOCK = 512,    /* of M C, by rows and columns      */
};

/* A variance of at most this share of the mean square may be the rounding error of float32 products.  A sum of n equal
 * squares is rounded at every step by up to 2^-24 of its value, always in one direction within a binade: by n / 2 times
 * 2^-24 in the end, 2^-16 for the 512 rows of a product.  (OpenBLAS's kernels reach 2^-18.) */
#define CONSTANT_INPUT 0x1p-16

struct calm_cka_linear_ref {
    const float *w;          /* [out, in] borrowed                                   */
    size_t out, in;
    bool by_inputs;
    double *c, *diagonal;    /* [in, in] covariance; [in] its diagonal               */
    double *t;               /* by inputs: C A C [in, in]; by outputs: W C [out, in] */
    double *a;               /* by outputs: W C W^T [out, out]                       */
    double kk, spread;       /* <K, K>; sum over all weights of C_jj w^2             */
};

/* ---- rows ---- */

/* Computes rows first .. first + n - 1 of E = Q - s W and, unless f is NULL, of F = s W + E/2. */
static void error_rows(const calm_cka_linear_ref *ref, const float *q, double s, size_t first, size_t n, double *e,
                       double *f)
{
    const float *w = ref->w + first * ref->in;
    q += first * ref->in;
    for (size_t i = 0; i < n * ref->in; i++) {
        double sw = s * (double)w[i];
        e[i] = (double)q[i] - sw;
        if (f)
            f[i] = sw + e[i] / 2;
    }
}

static void widen(const float *x, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i];
}

static size_t rows_at(const calm_cka_linear_ref *ref, size_t first)
{
    return ref->out - first < CHUNK ? ref->out - first : CHUNK;
}

/* Returns the sum over all weights of C_jj w q. */
static double weighted(const calm_cka_linear_ref *ref, const float *q)
{
    double sum = 0;
    for (size_t o = 0; o < ref->out; o++)
        for (size_t j = 0; j < ref->in; j++)
            sum += ref->diagonal[j] * (double)ref->w[o * ref->in + j] * (double)q[o * ref->in + j];
    return sum;
}

static calm_status check_weights(calm_ctx *ctx, const calm_cka_linear_ref *ref, const char *what, const float *x)
{
    for (size_t i = 0; i < ref->out * ref->in; i++)
        if (!isfinite(x[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "cka_linear: the %s weights hold %f at row %zu, column %zu", what,
                             (double)x[i], i / ref->in, i % ref->in);
    return CALM_OK;
}

/* ---- once per job ---- */

static calm_status check_input(calm_ctx *ctx, const calm_cka_input *input)
{
    for (size_t j = 0; j < input->in; j++)
        if (!isfinite(input->sum[j]))
            return calm_fail(ctx, CALM_ENUMERIC, "cka_linear: the sum of input %zu is %f", j, input->sum[j]);
    for (size_t i = 0; input->gram && i < input->in * input->in; i++)
        if (!isfinite(input->gram[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "cka_linear: the Gram matrix holds %f at row %zu, column %zu",
                             input->gram[i], i / input->in, i % input->in);
    return CALM_OK;
}

/* Returns H_ij = [X^T X / N]_ij. */
static double mean_product(const calm_cka_input *input, size_t i, size_t j)
{
    if (!input->gram)
        return 0;
    if (!input->diagonal)
        return input->gram[i * input->in + j] / (double)input->rows;
    return i == j ? input->diagonal[i] : input->gram[i * input->in + j];
}

/* Computes C = H - mean mean^T; rows and columns of constant inputs are 0. */
static void covariance(const calm_cka_input *input, double *c)
{
    const size_t in = input->in;
    const double n = (double)input->rows;
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < in; j++)
            c[i * in + j] = mean_product(input, i, j) - input->sum[i] / n * (input->sum[j] / n);
    for (size_t j = 0; j < in; j++) {
        if (c[j * in + j] > CONSTANT_INPUT * mean_product(input, j, j))
            continue;
        for (size_t i = 0; i < in; i++)
            c[i * in + j] = c[j * in + i] = 0;
    }
}

/* Computes T = C A C and <K, K> = <T, A>. */
static calm_status prepare_by_inputs(calm_ctx *ctx, calm_cka_linear_ref *ref)
{
    const size_t in = ref->in;
    double *rows, *a, *ac;
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->t, in * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, a, in * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, ac, in * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows, CHUNK * in));
    for (size_t first = 0; first < ref->out; first += CHUNK) {
        widen(ref->w + first * in, rows_at(ref, first) * in, rows);
        calm_dproduct_upper(ctx, in, rows_at(ref, first), rows, in, a, in);
    }
    calm_dsymmetrize(in, a, in);
    calm_dproduct_rows(ctx, CALM_PRODUCT_NN, in, in, in, a, in, ref->c, in, 0, ac, in);
    calm_dproduct_rows(ctx, CALM_PRODUCT_NN, in, in, in, ref->c, in, ac, in, 0, ref->t, in);
    ref->kk = calm_products_inner(ref->t, a, in * in);
    return CALM_OK;
}

/* Computes T = W C, A = T W^T and <K, K> = |A|^2. */
static calm_status prepare_by_outputs(calm_ctx *ctx, calm_cka_linear_ref *ref)
{
    const size_t in = ref->in, out = ref->out;
    double *rows;
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->t, out * in));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->a, out * out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows, CHUNK * in));
    for (size_t first = 0; first < out; first += CHUNK) {
        const size_t n = rows_at(ref, first);
        widen(ref->w + first * in, n * in, rows);
        calm_dproduct_rows(ctx, CALM_PRODUCT_NN, n, in, in, rows, in, ref->c, in, 0, ref->t + first * in, in);
    }
    for (size_t first = 0; first < out; first += CHUNK) {
        const size_t n = rows_at(ref, first);
        widen(ref->w + first * in, n * in, rows);
        calm_dproduct_rows(ctx, CALM_PRODUCT_NT, first + n, n, in, ref->t, in, rows, in, 0, ref->a + first,
                           out);
    }
    calm_dsymmetrize(out, ref->a, out);
    ref->kk = calm_products_inner(ref->a, ref->a, out * out);
    return CALM_OK;
}

/* Is the form by inputs cheaper?  In addition to 2 O I^2 flops, a candidate costs 2 I^3 by inputs, 3 O^2 I by outputs.
 * */
static bool is_by_inputs(size_t out, size_t in)
{
    return 2 * (double)in * (double)in <= 3 * (double)out * (double)out;
}

size_t calm_cka_linear_prepare_bytes(size_t out, size_t in)
{
    const size_t inputs = CALM_BYTES(double, in * in);
    return CALM_BYTES(calm_cka_linear_ref, 1) + inputs + CALM_BYTES(double, in) +
           (is_by_inputs(out, in) ? inputs : CALM_BYTES(double, out * in) + CALM_BYTES(double, out * out));
}

size_t calm_cka_linear_prepare_scratch_bytes(size_t out, size_t in)
{
    return CALM_BYTES(double, CHUNK * in) + (is_by_inputs(out, in) ? 2 * CALM_BYTES(double, in * in) : 0);
}

calm_status calm_cka_linear_prepare(calm_ctx *ctx, const float *w, size_t out, const calm_cka_input *input,
                                    calm_cka_linear_ref **made)
{
    const size_t in = input->in;
    size_t square, cells, outputs;
    calm_cka_linear_ref *ref;
    *made = NULL;
    if (input->rows < 2 || in == 0 || out == 0)
        return calm_fail(ctx, CALM_EARG, "cka_linear: %zu rows, %zu inputs, %zu outputs; expected at least 2, 1 and 1",
                         input->rows, in, out);
    if (!calm_size_mul(&square, in, in) || !calm_size_mul(&cells, out, in) || !calm_size_mul(&outputs, out, out))
        return calm_fail(ctx, CALM_ENOMEM, "cka_linear: %zu x %zu values", out, in);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref, 1));
    *ref = (calm_cka_linear_ref){.w = w, .out = out, .in = in, .by_inputs = is_by_inputs(out, in)};
    CALM_TRY(check_input(ctx, input));
    CALM_TRY(check_weights(ctx, ref, "float", ref->w));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->c, square));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ref->diagonal, in));
    covariance(input, ref->c);
    for (size_t j = 0; j < in; j++)
        ref->diagonal[j] = ref->c[j * in + j];
    ref->spread = weighted(ref, ref->w);
    CALM_TRY(ref->by_inputs ? prepare_by_inputs(ctx, ref) : prepare_by_outputs(ctx, ref));
    if (!isfinite(ref->kk))
        return calm_fail(ctx, CALM_ENUMERIC, "cka_linear: the float weights' products overflow");
    *made = ref;
    return CALM_OK;
}

/* ---- a candidate ---- */

/* Computes m [n, n] += m^T. */
static void add_transpose(double *m, size_t n)
{
    enum { TILE = 32 };
    for (size_t i0 = 0; i0 < n; i0 += TILE)
        for (size_t j0 = i0; j0 < n; j0 += TILE)
            for (size_t i = i0; i < i0 + TILE && i < n; i++)
                for (size_t j = j0 > i ? j0 : i; j < j0 + TILE && j < n; j++)
                    m[i * n + j] = m[j * n + i] = m[i * n + j] + m[j * n + i];
}

/* Computes tr(M C M C), the sum of (M C)_ij (M C)_ji, over pairs of blocks. */
static calm_status trace_square(calm_ctx *ctx, const double *m, const double *c, size_t n, double *out)
{
    const size_t side = calm_size_min(n, BLOCK);
    double *upper, *lower;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, upper, side * side));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, lower, side * side));
    *out = 0;
    for (size_t i0 = 0; i0 < n; i0 += BLOCK)
        for (size_t j0 = i0; j0 < n; j0 += BLOCK) {
            const size_t ni = n - i0 < BLOCK ? n - i0 : BLOCK, nj = n - j0 < BLOCK ? n - j0 : BLOCK;
            double sum = 0;
            calm_dproduct_rows(ctx, CALM_PRODUCT_NN, ni, nj, n, m + i0 * n, n, c + j0, n, 0, upper, nj);
            const double *other = upper;
            if (j0 > i0) {
                calm_dproduct_rows(ctx, CALM_PRODUCT_NN, nj, ni, n, m + j0 * n, n, c + i0, n, 0, lower, ni);
                other = lower;
            }
            for (size_t i = 0; i < ni; i++)
                for (size_t j = 0; j < nj; j++)
                    sum += upper[i * nj + j] * other[j * ni + i];
            *out += j0 > i0 ? 2 * sum : sum;
        }
    return CALM_OK;
}

static calm_status products_by_inputs(calm_ctx *ctx, const calm_cka_linear_ref *ref, const float *q, double s,
                                      calm_products *p)
{
    const size_t in = ref->in;
    double *m, *e, *f;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, m, in * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, e, CHUNK * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, f, CHUNK * in));
    for (size_t first = 0; first < ref->out; first += CHUNK) {
        const size_t n = rows_at(ref, first);
        error_rows(ref, q, s, first, n, e, f);
        calm_dproduct_rows(ctx, CALM_PRODUCT_TN, in, in, n, f, in, e, in, 1, m, in);
    }
    add_transpose(m, in);
    p->kk = ref->kk;
    p->kd = calm_products_inner(ref->t, m, in * in);
    return trace_square(ctx, m, ref->c, in, &p->dd);
}

static calm_status products_by_outputs(calm_ctx *ctx, const calm_cka_linear_ref *ref, const float *q, double s,
                                       calm_products *p)
{
    const size_t in = ref->in, out = ref->out;
    double *wce, *ece, *e, *ec, *other;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, wce, out * out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, ece, out * out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, e, CHUNK * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, ec, CHUNK * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, other, CHUNK * in));
    for (size_t first = 0; first < out; first += CHUNK) {
        const size_t n = rows_at(ref, first);
        error_rows(ref, q, s, first, n, e, NULL);
        calm_dproduct_rows(ctx, CALM_PRODUCT_NN, n, in, in, e, in, ref->c, in, 0, ec, in);
        calm_dproduct_rows(ctx, CALM_PRODUCT_NT, out, n, in, ref->t, in, e, in, 0, wce + first, out);
        for (size_t next = first; next < out; next += CHUNK) {
            error_rows(ref, q, s, next, rows_at(ref, next), other, NULL);
            calm_dproduct_rows(ctx, CALM_PRODUCT_NT, n, rows_at(ref, next), in, ec, in, other, in, 0,
                               ece + first * out + next, out);
        }
    }
    *p = calm_columns_combine(ref->a, wce, ece, out, s, ref->kk);
    return CALM_OK;
}

size_t calm_cka_linear_scratch_bytes(size_t out, size_t in)
{
    const size_t side = calm_size_min(in, BLOCK), rows = CALM_BYTES(double, CHUNK * in);
    return is_by_inputs(out, in) ? CALM_BYTES(double, in * in) + 2 * rows + 2 * CALM_BYTES(double, side * side)
                                 : 2 * CALM_BYTES(double, out * out) + 3 * rows;
}

calm_status calm_cka_linear(calm_ctx *ctx, const calm_cka_linear_ref *ref, const float *q, double *loss)
{
    calm_products p;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(check_weights(ctx, ref, "candidate's", q));
    /* The fit of Z by Y with only the diagonal of C; calm_cka_loss accounts for the remaining scale. */
    const double s = ref->spread > 0 ? calm_short_scale(weighted(ref, q) / ref->spread) : 1;
    CALM_TRY((ref->by_inputs ? products_by_inputs : products_by_outputs)(ctx, ref, q, s, &p));
    if (!isfinite(s) || !isfinite(p.kd) || !isfinite(p.dd))
        return calm_fail(ctx, CALM_ENUMERIC, "cka_linear: the candidate's products overflow");
    *loss = calm_cka_loss(p, s);
    return CALM_OK;
}
