/* Rotations: Hadamard matrices by Sylvester's and Paley's constructions, and random orthogonal matrices. */
#include "ptq/tensor/rotation.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/vector.h"

/* Philox streams of a seed; those of signs are the last. */
enum { STREAM_CORE, STREAM_SIGNS };

/* Maximum rows of a Paley C; a random C with the odd part's rows is cheaper than a larger one. */
#define PALEY_MOST ((size_t)1024)

/* ---- Paley's constructions ---- */

static bool is_prime(size_t q)
{
    for (size_t d = 2; d * d <= q; d++)
        if (q % d == 0)
            return false;
    return q > 1;
}

/* Returns the prime from which Paley's constructions make a Hadamard matrix of `order` rows, a multiple of 4, or 0. */
static size_t paley_prime(size_t order, bool *second)
{
    *second = false;
    if (is_prime(order - 1))    /* 3 modulo 4 */
        return order - 1;
    *second = true;
    const size_t q = order / 2 - 1;
    return q % 4 == 1 && is_prime(q) ? q : 0;
}

/* Returns the Legendre symbol of a modulo the odd prime q: 0, 1 for squares, -1 for others. */
static int legendre(size_t a, size_t q)
{
    /* Euler's criterion; q is below PALEY_MOST, so no product overflows. */
    size_t power = 1;
    for (size_t base = a % q, e = (q - 1) / 2; e; e /= 2, base = base * base % q)
        power = e % 2 ? power * base % q : power;
    return a % q == 0 ? 0 : power == 1 ? 1 : -1;
}

/* Returns element (i, j) of the conference matrix [q + 1, q + 1], which has zeros on the diagonal and orthogonal
 * rows: the symbols of i - j with a border of ones, or of -1 in the first column for q = 3 modulo 4. */
static int conference(size_t i, size_t j, size_t q)
{
    if (i == j)
        return 0;
    if (i == 0 || j == 0)
        return j == 0 && q % 4 == 3 ? -1 : 1;
    return legendre(i + q - j, q);
}

/* Fills a Hadamard matrix.  The first construction is S + I for the skew S of q = 3 modulo 4; the second replaces
 * each element c of the symmetric matrix by c [1 1; 1 -1], a zero by [1 -1; -1 -1]. */
static void fill_paley(size_t order, double *core)
{
    static const double block[2][2] = {{1, 1}, {1, -1}}, zero[2][2] = {{1, -1}, {-1, -1}};
    bool second;
    const size_t q = paley_prime(order, &second);
    for (size_t i = 0; i < order; i++)
        for (size_t j = 0; j < order; j++) {
            const int c = second ? conference(i / 2, j / 2, q) : conference(i, j, q);
            core[i * order + j] = !second ? (i == j ? 1 : c) : c ? c * block[i % 2][j % 2] : zero[i % 2][j % 2];
        }
}

/* ---- random orthogonal matrices ---- */

/* Fills an orthogonal matrix by Gram-Schmidt on rows of normal numbers.  Each row has two passes: the first leaves
 * the errors of cancellation, the second a few units in the last place. */
static void fill_random(size_t order, uint64_t seed, double *core)
{
    for (size_t i = 0; i < order; i++) {
        double *row = core + i * order;
        for (size_t j = 0; j < order; j++)
            row[j] = calm_rng_normal(seed, STREAM_CORE, i * order + j);
        for (int pass = 0; pass < 2; pass++) {
            for (size_t k = 0; k < i; k++) {
                const double *before = core + k * order, dot = calm_vec_ddot(order, row, before);
                for (size_t j = 0; j < order; j++)
                    row[j] -= dot * before[j];
            }
            const double length = sqrt(calm_vec_ddot(order, row, row));
            for (size_t j = 0; j < order; j++)
                row[j] /= length;
        }
    }
}

/* ---- rotations ---- */

/* Returns the rows of the matrix C for a width, and whether C is a Hadamard matrix. */
static size_t core_rows(size_t n, bool *hadamard)
{
    size_t odd = n;
    bool second;
    *hadamard = true;
    while (odd % 2 == 0 && odd)
        odd /= 2;
    /* Use the smallest Hadamard matrix whose rows are the odd part times a power of two. */
    for (size_t order = 4 * odd; odd > 1 && order <= PALEY_MOST && n % order == 0; order *= 2)
        if (paley_prime(order, &second))
            return order;
    *hadamard = odd == 1;
    return odd;
}

calm_rotation calm_rotation_hadamard(size_t n)
{
    return (calm_rotation){.n = n, .order = 1, .hadamard = true, .scale = 1 / sqrt((double)n)};
}

calm_status calm_rotation_init(calm_ctx *ctx, size_t n, uint64_t seed, uint64_t stream, calm_rotation *out)
{
    double *core, *signs;
    *out = calm_rotation_hadamard(n);
    const size_t order = out->order = core_rows(n, &out->hadamard);
    /* The rows of a random C have length 1 already. */
    out->scale = 1 / sqrt((double)(out->hadamard ? n : n / order));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, signs, n));
    for (size_t i = 0; i < n; i++)
        signs[i] = calm_rng_uniform(seed, STREAM_SIGNS + stream, i) < 0.5 ? -1 : 1;
    out->signs = signs;
    if (order == 1)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, core, order * order));
    if (out->hadamard)
        fill_paley(order, core);
    else
        fill_random(order, seed, core);
    out->core = core;
    return CALM_OK;
}

/* Computes x [order, inner] = C^T x, with temporary memory of the same size. */
static void apply_core(const calm_rotation *r, size_t inner, double *room, double *x)
{
    memset(room, 0, r->order * inner * sizeof *room);
    for (size_t i = 0; i < r->order; i++)
        for (size_t j = 0; j < r->order; j++) {
            const double c = r->core[i * r->order + j];
            for (size_t k = 0; k < inner; k++)
                room[j * inner + k] += c * x[i * inner + k];
        }
    memcpy(x, room, r->order * inner * sizeof *room);
}

/* Applies the fast Hadamard transform to x [2^a, width], by sums and differences. */
static void apply_hadamard(size_t rows, size_t width, double *x)
{
    for (size_t half = width; half < rows * width; half *= 2)
        for (size_t begin = 0; begin < rows * width; begin += 2 * half)
            for (size_t k = begin; k < begin + half; k++) {
                const double a = x[k], b = x[k + half];
                x[k] = a + b;
                x[k + half] = a - b;
            }
}

calm_status calm_rotation_apply(calm_ctx *ctx, const calm_rotation *r, size_t outer, size_t inner, double *x)
{
    CALM_SCOPED_SCRATCH(ctx);
    double *room = NULL;
    const size_t each = r->n * inner, core = r->order * inner;
    if (r->core)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, room, core));
    for (size_t o = 0; o < outer; o++, x += each) {
        for (size_t i = 0; i < each; i++)
            x[i] *= r->signs ? r->signs[i / inner] * r->scale : r->scale;
        for (size_t at = 0; r->core && at < each; at += core)
            apply_core(r, inner, room, x + at);
        apply_hadamard(r->n / r->order, core, x);
    }
    return CALM_OK;
}

calm_status calm_rotation_apply_rows(calm_ctx *ctx, const calm_rotation *r, size_t rows, size_t columns, float *x)
{
    CALM_SCOPED_SCRATCH(ctx);
    double *row;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, columns));
    for (size_t t = 0; t < rows; t++, x += columns) {
        for (size_t i = 0; i < columns; i++)
            row[i] = (double)x[i];
        CALM_TRY(calm_rotation_apply(ctx, r, columns / r->n, 1, row));
        for (size_t i = 0; i < columns; i++)
            x[i] = (float)row[i];
    }
    return CALM_OK;
}
