/* cka_linear against its definition on the rows: outputs X W^T and X Q^T, their centred n x n Gram matrices, plain
 * loops in long double.
 *
 * The oracle computes 1 - CKA directly, with compensated sums over n^2 terms, which leaves an error of some units of
 * 2^-63.  calm reads X^T X in double, with an error of n 2^-53 of the mean square, which column means make up to
 * 2^12 times the variance; its own sums add as much again.  With n = 300 that is 300 * 2^-53 * 2^12, below 2e-10;
 * RELATIVE, 1e-8, leaves room for both.  The part of <D, D> along K, at most ((1 + noise)^2 - 1)^2 of <K, K>,
 * cancels and leaves the rounding of sums in double: 2^-50 of it, absolute. */
#include "tests/support/harness.h"

#include "cka/linear.h"
#include "tests/support/normals.h"

#define RELATIVE 1e-8L
#define ABSOLUTE 0x1p-58L
#define ALONG 0x1p-50L

typedef long double real;

/* Returns K = Yc Yc^T [n, n] of Y = X W^T [n, out]. */
static real *gram_of_output(const float *x, const float *w, size_t n, size_t in, size_t out)
{
    real *y, *k;
    ck_ok(CALM_NEW(ctx, ctx->scratch, y, n * out));
    ck_ok(CALM_NEW(ctx, ctx->scratch, k, n * n));
    for (size_t o = 0; o < out; o++) {
        real mean = 0;
        for (size_t i = 0; i < n; i++) {
            real sum = 0;    /* a register: memory would be stored and loaded at every step */
            for (size_t j = 0; j < in; j++)
                sum += (real)x[i * in + j] * w[o * in + j];
            y[i * out + o] = sum;
            mean += sum / (real)n;
        }
        for (size_t i = 0; i < n; i++)
            y[i * out + o] -= mean;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l <= i; l++) {
            real sum = 0;
            for (size_t o = 0; o < out; o++)
                sum += y[i * out + o] * y[l * out + o];
            k[i * n + l] = k[l * n + i] = sum;
        }
    return k;
}

static real inner(const real *k, const real *l, size_t n)
{
    real sum = 0, lost = 0;
    for (size_t i = 0; i < n * n; i++) {    /* Kahan's compensated sum */
        real term = k[i] * l[i] - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    return sum;
}

static real expected(const float *x, const float *w, const float *q, size_t n, size_t in, size_t out)
{
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    const real *k = gram_of_output(x, w, n, in, out), *l = gram_of_output(x, q, n, in, out);
    real loss = 1 - inner(k, l, n) / (sqrtl(inner(k, k, n)) * sqrtl(inner(l, l, n)));
    calm_arena_rewind(ctx->scratch, mark);
    return loss;
}

static double loss_of(const float *x, const float *w, const float *q, size_t n, size_t in, size_t out)
{
    double *gram, *sum, loss;
    calm_cka_linear_ref *ref;
    ck_ok(CALM_NEW(ctx, ctx->out, gram, in * in));
    ck_ok(CALM_NEW(ctx, ctx->out, sum, in));
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < in; i++) {
            sum[i] += x[t * in + i];
            for (size_t j = 0; j < in; j++)
                gram[i * in + j] += (double)x[t * in + i] * (double)x[t * in + j];
        }
    ck_ok(calm_cka_linear_prepare(ctx, w, out, &(calm_cka_input){.rows = n, .in = in, .gram = gram, .sum = sum}, &ref));
    ck_ok(calm_cka_linear(ctx, ref, q, &loss));
    return loss;
}

/* Properties of the input, and what is done to W in addition to noise.  Column means, up to 4 times `mean`, leave
 * every variance above 2^-16 of the mean square, below which calm takes an input for constant. */
typedef struct recipe {
    const char *name;
    double massive, mean, outlier, scale;    /* factor of rows 0 and 3; of column means; of column 1; of Q */
    size_t constant;                         /* every `constant`-th column is constant; 0: none                  */
} recipe;

static const recipe recipes[] = {
    {"plain", 1, 0, 1, 1, 0},     {"massive rows", 200, 0, 1, 1, 0},   {"shifted", 1, 10, 1, 1, 0},
    {"outlier", 1, 0, 100, 1, 0}, {"shrunk", 1, 0, 1, 0.77, 0},        {"negated", 1, 1, 1, -2, 0},
    {"constant", 1, 3, 1, 1, 3},  {"all of it", 60, 5, 50, 0.9, 4},
};

/* {rows, inputs, outputs}: both forms of the Gram matrix, several chunks of 256 rows and blocks of 512, fewer rows
 * than inputs. */
static const size_t shapes[][3] = {{4, 2, 1},   {6, 1, 3},   {40, 16, 16},  {300, 7, 40},  {64, 40, 7},
                                   {5, 40, 40}, {9, 40, 13}, {20, 24, 530}, {20, 530, 24}, {12, 530, 500}};

static void make(const recipe *r, const size_t shape[3], double noise, float *x, float *w, float *q)
{
    const size_t n = shape[0], in = shape[1], out = shape[2];
    const double *normals = test_normals(3, 1, n * in);
    for (size_t i = 0; i < n * in; i++) {
        size_t t = i / in, j = i % in;
        double value = normals[i] * (t == 0 || t == 3 ? r->massive : 1) * (j == 1 ? r->outlier : 1);
        x[i] = (float)(r->constant && j % r->constant == 2 ? r->mean : value + r->mean * (double)(j % 5));
    }
    normals = test_normals(3, 2, in * out);
    for (size_t i = 0; i < in * out; i++)
        w[i] = (float)normals[i];
    normals = test_normals(3, 3, in * out);
    for (size_t i = 0; i < in * out; i++)
        q[i] = (float)(r->scale * (w[i] + noise * normals[i]));
}

TEST(agrees_with_its_definition)
{
    real least = 1, most = 0;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (double noise = 1e-5; noise < 2; noise *= shapes[s][2] < 500 ? 10 : 100) {
                const size_t n = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
                float *x, *w, *q;
                calm_arena_clear(ctx->out);
                ck_ok(CALM_NEW(ctx, ctx->out, x, n * in));
                ck_ok(CALM_NEW(ctx, ctx->out, w, in * out));
                ck_ok(CALM_NEW(ctx, ctx->out, q, in * out));
                make(&recipes[r], shapes[s], noise, x, w, q);
                real want = expected(x, w, q, n, in, out);
                const real along = powl(noise * (2 + noise), 2);
                double found = loss_of(x, w, q, n, in, out);
                ck_assert_msg(fabsl(found - want) <= ABSOLUTE + ALONG * along + RELATIVE * want,
                              "%s, %zu rows, %zu inputs, %zu outputs, noise %g: %.17g, expected %.17Lg",
                              recipes[r].name, n, in, out, noise, found, want);
                if (in > 1 && out > 1) {    /* with one input only scales remain */
                    least = fminl(least, want);
                    most = fmaxl(most, want);
                }
            }
    ck_assert(least < 1e-9L && most > 0.1L);
}
END_OF_TEST

int main(void)
{
    return run_tests("cka_linear_oracle", (const TTest *[]){agrees_with_its_definition, NULL});
}
