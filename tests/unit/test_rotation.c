/* Rotations: orthogonal for every width, Hadamard if there is such a matrix, equal along either axis, determined by
 * the seed. */
#include "ptq/tensor/rotation.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define U 0x1p-53

/* Widths of models and heads, and some without a Hadamard matrix of Paley: 7, 43, 172. */
static const size_t widths[] = {1, 2, 7, 8, 12, 20, 24, 28, 36, 40, 43, 48, 56, 60, 64, 72, 80, 96, 128, 172, 256};
#define N_WIDTHS (sizeof widths / sizeof *widths)

/* Returns Q [n, n]: the rotated rows of the identity. */
static double *matrix(const calm_rotation *rotation)
{
    const size_t n = rotation->n;
    double *q;
    ck_ok(CALM_NEW(ctx, ctx->out, q, n * n));
    for (size_t i = 0; i < n; i++)
        q[i * n + i] = 1;
    ck_ok(calm_rotation_apply(ctx, rotation, n, 1, q));
    return q;
}

/* Computed rows of Q have errors of a few units in the last place of each element, random cores those of
 * orthogonalising twice (a small multiple of sqrt(order) order units); sums of n products of rows of length 1 add n
 * u. */
TEST(every_width_is_orthogonal)
{
    for (size_t k = 0; k < N_WIDTHS; k++) {
        const size_t n = widths[k];
        calm_rotation rotation;
        ck_ok(calm_rotation_init(ctx, n, 3, 5, &rotation));
        const bool hadamard = rotation.hadamard;
        const double order = (double)rotation.order;
        const double *q = matrix(&rotation);
        const double tolerance = ((double)n + 8 + (hadamard ? 0 : 8 * order * sqrt(order))) * U;
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t t = 0; t < n; t++)
                    sum += q[i * n + t] * q[j * n + t];
                ck_near(sum, i == j, tolerance);
                if (hadamard)    /* one product by the scale, and its rounding */
                    ck_near(fabs(q[i * n + j]) * sqrt((double)n), 1, 4 * U);
            }
    }
}
END_OF_TEST

/* Paley's matrices hold only 1 and -1, so products of their rows are exact. */
TEST(cores_are_hadamard)
{
    size_t n_paley = 0;
    for (size_t n = 4; n <= 256; n += 4) {
        calm_rotation rotation;
        ck_ok(calm_rotation_init(ctx, n, 0, 0, &rotation));
        const bool hadamard = rotation.hadamard;
        const size_t order = rotation.order;
        ck_assert_uint_eq(n % order, 0);
        for (size_t i = 0; hadamard && order > 1 && i < order; i++)
            for (size_t j = 0; j < order; j++) {
                double sum = 0;
                for (size_t t = 0; t < order; t++)
                    sum += rotation.core[i * order + t] * rotation.core[j * order + t];
                ck_assert_double_eq(sum, i == j ? (double)order : 0);
                ck_assert_double_eq(fabs(rotation.core[i * order + j]), 1);
            }
        n_paley += hadamard && order > 1;
    }
    ck_assert_uint_gt(n_paley, 40);    /* of 64 multiples of 4, 7 of them powers of two */
    static const size_t cases[][2] = {{1536, 12}, {3584, 28}, {172, 43}};    /* first, second construction; none */
    for (size_t i = 0; i < 3; i++) {
        calm_rotation rotation;
        ck_ok(calm_rotation_init(ctx, cases[i][0], 0, 0, &rotation));
        ck_assert_uint_eq(rotation.order, cases[i][1]);
        ck_assert_int_eq(rotation.hadamard, i < 2);
    }
}
END_OF_TEST

/* Sylvester's matrix in closed form: (-1)^(bits that i and j share). */
TEST(hadamard_is_sylvesters)
{
    const calm_rotation rotation = calm_rotation_hadamard(32);
    const double *q = matrix(&rotation);
    for (size_t i = 0; i < 32; i++)
        for (size_t j = 0; j < 32; j++)
            ck_near(q[i * 32 + j], (__builtin_popcountl(i & j) % 2 ? -1 : 1) / sqrt(32), U);
}
END_OF_TEST

/* x [5, n, 3] along its middle axis against the product with Q; each element is a sum of n products, of which the
 * fast transform rounds at most log2 n + order + 2 times. */
TEST(middle_axis)
{
    for (size_t k = 0; k < N_WIDTHS; k++) {
        const size_t n = widths[k];
        calm_rotation rotation;
        double *x, *y;
        ck_ok(calm_rotation_init(ctx, n, 1, 2, &rotation));
        ck_ok(CALM_NEW(ctx, ctx->out, x, 5 * n * 3));
        ck_ok(CALM_NEW(ctx, ctx->out, y, 5 * n * 3));
        for (size_t i = 0; i < 5 * n * 3; i++)
            x[i] = y[i] = calm_rng_normal(9, k, i);
        ck_ok(calm_rotation_apply(ctx, &rotation, 5, 3, y));
        const double *q = matrix(&rotation);
        for (size_t o = 0; o < 5; o++)
            for (size_t j = 0; j < n; j++)
                for (size_t c = 0; c < 3; c++) {
                    double sum = 0, size = 0;
                    for (size_t i = 0; i < n; i++) {
                        const double term = x[(o * n + i) * 3 + c] * q[i * n + j];
                        sum += term;
                        size += fabs(term);
                    }
                    ck_near(y[(o * n + j) * 3 + c], sum, (2 * (double)n + 16) * U * size);
                }
        ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
    }
}
END_OF_TEST

static bool same_signs(const calm_rotation *a, const calm_rotation *b)
{
    return memcmp(a->signs, b->signs, a->n * sizeof *a->signs) == 0;
}

TEST(seeds)
{
    calm_rotation a, again, stream, seed;
    ck_ok(calm_rotation_init(ctx, 43, 1, 0, &a));
    ck_ok(calm_rotation_init(ctx, 43, 1, 0, &again));
    ck_ok(calm_rotation_init(ctx, 43, 1, 1, &stream));
    ck_ok(calm_rotation_init(ctx, 43, 2, 0, &seed));
    const size_t core = 43 * 43 * sizeof *a.core;
    ck_assert(same_signs(&a, &again) && memcmp(a.core, again.core, core) == 0);
    ck_assert(!same_signs(&a, &stream) && memcmp(a.core, stream.core, core) == 0);
    ck_assert(!same_signs(&a, &seed) && memcmp(a.core, seed.core, core) != 0);
}
END_OF_TEST

TEST(failing_allocations)
{
    calm_rotation rotation;
    double x[12] = {1};
    for (long i = 1; i <= 2; i++) {    /* signs, core */
        ctx->out->fail_in = i;
        ck_fails(calm_rotation_init(ctx, 12, 0, 0, &rotation), CALM_ENOMEM, "");
        ctx->out->fail_in = 0;
    }
    ck_ok(calm_rotation_init(ctx, 12, 0, 0, &rotation));
    ctx->scratch->fail_in = 1;
    ck_fails(calm_rotation_apply(ctx, &rotation, 1, 1, x), CALM_ENOMEM, "");
    ctx->scratch->fail_in = 0;
}
END_OF_TEST

int main(void)
{
    return run_tests("rotation", (const TTest *[]){every_width_is_orthogonal, cores_are_hadamard,
                                                   hadamard_is_sylvesters, middle_axis, seeds, failing_allocations,
                                                   NULL});
}
