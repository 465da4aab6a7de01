/* cka/linear.c: equal to the metric cka of the outputs; constant inputs; what is refused. */
#include "cka/linear.h"

#include <stdio.h>

#include "cka/cka.h"
#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "ptq/calib/gram.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"

typedef struct problem {
    size_t n, in, out;
    float *x, *w, *q;
    double *gram, *sum;
} problem;

static float *floats(size_t count)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, count));
    return x;
}

/* Computes X^T X and the sums of the current rows. */
static void sums(problem *it)
{
    memset(it->gram, 0, it->in * it->in * sizeof *it->gram);
    memset(it->sum, 0, it->in * sizeof *it->sum);
    for (size_t t = 0; t < it->n; t++)
        for (size_t i = 0; i < it->in; i++) {
            it->sum[i] += it->x[t * it->in + i];
            for (size_t j = 0; j < it->in; j++)
                it->gram[i * it->in + j] += (double)it->x[t * it->in + i] * (double)it->x[t * it->in + j];
        }
}

static problem make(size_t n, size_t in, size_t out, double noise)
{
    problem it = {n, in, out, floats(n * in), floats(out * in), floats(out * in), NULL, NULL};
    ck_ok(CALM_NEW(ctx, ctx->out, it.gram, in * in));
    ck_ok(CALM_NEW(ctx, ctx->out, it.sum, in));
    for (size_t i = 0; i < n * in; i++)
        it.x[i] = (float)(calm_rng_normal(1, 1, i) + 0.1 * (double)(i % in % 7));
    for (size_t i = 0; i < in * out; i++) {
        it.w[i] = (float)calm_rng_normal(1, 2, i);
        it.q[i] = (float)(0.9 * it.w[i] + noise * calm_rng_normal(1, 3, i));
    }
    sums(&it);
    return it;
}

static calm_status prepare(const problem *it, calm_cka_linear_ref **ref)
{
    const calm_cka_input input = {.rows = it->n, .in = it->in, .gram = it->gram, .sum = it->sum};
    return calm_cka_linear_prepare(ctx, it->w, it->out, &input, ref);
}

static double loss_of(const problem *it)
{
    calm_cka_linear_ref *ref;
    double loss = -1;
    ck_ok(prepare(it, &ref));
    ck_ok(calm_cka_linear(ctx, ref, it->q, &loss));
    return loss;
}

/* Returns X W^T rounded to float32. */
static float *output(const problem *it, const float *w)
{
    float *y = floats(it->n * it->out);
    for (size_t t = 0; t < it->n; t++)
        for (size_t o = 0; o < it->out; o++) {
            double sum = 0;
            for (size_t j = 0; j < it->in; j++)
                sum += (double)it->x[t * it->in + j] * (double)w[o * it->in + j];
            y[t * it->out + o] = (float)sum;
        }
    return y;
}

/* calm_score() reads outputs rounded to float32: Y and Z each change by at most 2^-24 of their magnitude, which is
 * within 4 times their spread here, and the angle (whose square is twice the loss) by at most twice the sum of both. */
TEST(equals_the_score_of_the_outputs)
{
    static const size_t shapes[][3] = {{50, 8, 30}, {50, 30, 8}, {30, 40, 40}, {600, 12, 12}, {12, 33, 65}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (double noise = 1e-5; noise < 2; noise *= 10) {
            problem it = make(shapes[s][0], shapes[s][1], shapes[s][2], noise);
            calm_score_ref *ref;
            calm_scores scores;
            ck_ok(calm_score_prepare(ctx, output(&it, it.w), it.n, it.out, &ref));
            ck_ok(calm_score(ctx, ref, output(&it, it.q), &scores));
            ck_near(sqrt(loss_of(&it)), sqrt(scores.value[CALM_METRIC_CKA]), 16 * 0x1p-24);
            calm_arena_clear(ctx->out);
        }
}
END_OF_TEST

TEST(a_rescaled_copy_has_no_loss)
{
    for (size_t in = 8; in <= 32; in += 24) {
        problem it = make(50, in, 16, 0);
        for (size_t i = 0; i < it.in * it.out; i++)
            it.q[i] = -0.5f * it.w[i];    /* exact */
        ck_assert(loss_of(&it) == 0);
        for (size_t i = 0; i < it.in * it.out; i++)
            it.q[i] = 0.7f * it.w[i];    /* rounded: an angle of 2^-24 */
        ck_assert(loss_of(&it) <= 0x1p-48);
    }
}
END_OF_TEST

TEST(constants)
{
    for (size_t in = 6; in <= 24; in += 18) {
        problem it = make(40, in, 12, 0.1);
        float *w = it.w;
        it.q = floats(in * 12);    /* constant output */
        ck_assert(loss_of(&it) == 1);
        it.w = floats(in * 12);
        ck_assert(loss_of(&it) == 0);
        it.q = w;
        ck_assert(loss_of(&it) == 1);

        /* Q reads only a constant input, for which another order of sums would leave some rounding. */
        it.w = w;
        it.q = floats(in * 12);
        for (size_t t = 0; t < it.n; t++)
            it.x[t * in + 2] = 1000.1f;
        sums(&it);
        it.gram[2 * in + 2] *= 1 + 0x1p-46;
        for (size_t o = 0; o < it.out; o++)
            it.q[o * in + 2] = (float)(o + 1);
        ck_assert(loss_of(&it) == 1);
    }
}
END_OF_TEST

/* Returns the loss with a Gram matrix as calibration sums it: float32 products of 512 rows, added in double. */
static double calibrated_loss(problem *it)
{
    enum { PARTS = 8 };
    size_t row_begin[PARTS + 1];
    for (size_t p = 0; p <= PARTS; p++)
        row_begin[p] = p * it->n / PARTS;
    const calm_gram_job job = {it->gram, it->x, it->n, it->in, row_begin, PARTS, NULL};
    sums(it);
    memset(it->gram, 0, it->in * it->in * sizeof *it->gram);
    ck_ok(calm_gram_add(ctx, &job, 1));
    calm_dsymmetrize(it->in, it->gram, it->in);
    return loss_of(it);
}

/* W reads only input 0, and Q a little of another input too.  If input 0 is constant, W's output is and Q's is not:
 * the loss is 1, whatever float32 products leave of the constant.  If it varies by 2^-7 of its mean, a variance of
 * 2^-14 and four times the bound of cka/linear.h, both outputs are nearly equal and the loss is nearly 0. */
TEST(inputs_are_constant_by_the_rounding_of_float_products)
{
    for (size_t in = 6; in <= 24; in += 18) {
        problem it = make(8 * 512, in, 12, 0);
        memset(it.w, 0, in * 12 * sizeof *it.w);
        memset(it.q, 0, in * 12 * sizeof *it.q);
        for (size_t o = 0; o < 12; o++) {
            it.w[o * in] = it.q[o * in] = (float)(o + 1);
            it.q[o * in + 1] = o % 2 ? 0x1p-8f : -0x1p-8f;
        }
        for (double value = 1.1; value < 1000; value *= 1.7) {
            for (size_t t = 0; t < it.n; t++)
                it.x[t * in] = (float)value;
            ck_assert(calibrated_loss(&it) == 1);
            for (size_t t = 0; t < it.n; t++)
                it.x[t * in] = (float)(value * (1 + 0x1p-7 * calm_rng_normal(3, 1, t)));
            ck_assert(calibrated_loss(&it) < 0.5);
        }
    }
}
END_OF_TEST

/* Wide enough for products that are cut into pieces, in both forms of the sums. */
TEST(same_bytes_for_every_number_of_threads)
{
    static const int threads[] = {2, 4, 16};
    static const size_t shapes[][2] = {{512, 500}, {700, 400}};    /* inputs, outputs */
    calm_linalg_setup();
    for (size_t s = 0; s < 2; s++) {
        problem it = make(64, shapes[s][0], shapes[s][1], 0.1);
        ctx->n_threads = 1;
        const double alone = loss_of(&it);
        ck_assert(alone > 0);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            ctx->n_threads = threads[t];
            const double loss = loss_of(&it);
            ck_assert(memcmp(&loss, &alone, sizeof loss) == 0);
        }
        ctx->n_threads = 1;
    }
}
END_OF_TEST

TEST(what_is_refused)
{
    for (size_t in = 6; in <= 24; in += 18) {
        problem it = make(40, in, 12, 0.1);
        calm_cka_linear_ref *ref;
        double loss;
        it.n = 1;
        ck_fails(prepare(&it, &ref), CALM_EARG, "1 rows");
        ck_assert_ptr_null(ref);
        it.n = 40;
        it.gram[in + 3] = NAN;
        ck_fails(prepare(&it, &ref), CALM_ENUMERIC, "at row 1, column 3");
        it.gram[in + 3] = 1e308;
        it.gram[0] = 1e308;
        ck_fails(prepare(&it, &ref), CALM_ENUMERIC, "overflow");
        sums(&it);
        it.sum[4] = INFINITY;
        ck_fails(prepare(&it, &ref), CALM_ENUMERIC, "the sum of input 4 is inf");
        sums(&it);
        it.w[in + 1] = INFINITY;
        ck_fails(prepare(&it, &ref), CALM_ENUMERIC, "the float weights hold inf at row 1, column 1");
        it.w[in + 1] = 1;
        ck_ok(prepare(&it, &ref));
        it.q[2 * in + 5] = NAN;
        ck_fails(calm_cka_linear(ctx, ref, it.q, &loss), CALM_ENUMERIC, "at row 2, column 5");
        ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
    }
}
END_OF_TEST

/* Each allocation fails once, and is reported. */
TEST(failing_allocations)
{
    for (size_t in = 6; in <= 24; in += 18) {
        problem it = make(40, in, 12, 0.1);
        calm_cka_linear_ref *ref;
        double loss;
        for (long i = 1; i <= 5; i++) {    /* ref, c, diagonal, t; the first temporary */
            calm_arena *arena = i < 5 ? ctx->out : ctx->scratch;
            arena->fail_in = i < 5 ? i : 1;
            ck_fails(prepare(&it, &ref), CALM_ENOMEM, "");
            ck_assert_ptr_null(ref);
            arena->fail_in = 0;
        }
        ck_ok(prepare(&it, &ref));
        for (long i = 1; i <= 5; i++) {
            ctx->scratch->fail_in = i;
            ck_fails(calm_cka_linear(ctx, ref, it.q, &loss), CALM_ENOMEM, "");
            ctx->scratch->fail_in = 0;
        }
        ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
    }
}
END_OF_TEST

/* Prints the seconds of a job's second candidate for CALM_TEST_TIMES="OUTxIN", and the rate of such a product. */
TEST(times)
{
    size_t out, in;
    const char *wanted = getenv("CALM_TEST_TIMES");
    if (!wanted || sscanf(wanted, "%zux%zu", &out, &in) != 2) {
        puts("SKIP: a part: times (CALM_TEST_TIMES=OUTxIN)");
        return;
    }
    problem it = {.n = 64, .in = in, .out = out, .x = floats(64 * in), .w = floats(out * in), .q = floats(out * in)};
    calm_cka_linear_ref *ref;
    double *c, loss, at[4] = {calm_seconds()};
    ck_ok(CALM_NEW(ctx, ctx->out, it.gram, in * in));
    ck_ok(CALM_NEW(ctx, ctx->out, it.sum, in));
    ck_ok(CALM_NEW(ctx, ctx->out, c, in * in));
    for (size_t i = 0; i < out * in; i++) {
        it.w[i] = (float)calm_rng_normal(1, 2, i);
        it.q[i] = it.w[i] + (float)(1e-3 * calm_rng_normal(1, 3, i));
    }
    for (size_t i = 0; i < in; i++)
        it.gram[i * in + i] = 64;
    at[0] = calm_seconds();
    ck_ok(prepare(&it, &ref));
    at[1] = calm_seconds();
    ck_ok(calm_cka_linear(ctx, ref, it.q, &loss));
    at[1] -= at[0];
    at[0] = calm_seconds();
    ck_ok(calm_cka_linear(ctx, ref, it.q, &loss));
    at[2] = calm_seconds();
    calm_dgemm_nn(in, in, in, 1, it.gram, in, it.gram, in, 0, c, in);
    at[3] = calm_seconds();
    double i2 = (double)in * (double)in, o = (double)out;
    double flops = 2 * o * i2 + (double)in * fmin(2 * i2, 3 * o * o);
    printf("%zu x %zu: prepare %.4f s, candidate %.4f s (%.1f Gflop/s), dgemm %.1f Gflop/s, loss %g\n", out, in,
           at[1], at[2] - at[0], flops / (at[2] - at[0]) * 1e-9,
           2 * i2 * (double)in / (at[3] - at[2]) * 1e-9, loss);
}
END_OF_TEST

/* The same bits for a matrix that is already divided, whatever its diagonal holds; and for one whose rows are all
 * zero. */
TEST(other_forms_of_the_matrix)
{
    static double diagonal[32];
    for (size_t in = 8; in <= 32; in += 24) {
        const problem it = make(50, in, 16, 0.1);
        const calm_cka_input divided = {.rows = it.n, .in = in, .gram = it.gram, .diagonal = diagonal, .sum = it.sum};
        const double expected = loss_of(&it);
        calm_cka_linear_ref *ref;
        double loss;
        for (size_t i = 0; i < in * in; i++)
            it.gram[i] /= 50;
        for (size_t j = 0; j < in; j++) {
            diagonal[j] = it.gram[j * in + j];
            it.gram[j * in + j] *= 1.01;
        }
        ck_ok(calm_cka_linear_prepare(ctx, it.w, it.out, &divided, &ref));
        ck_ok(calm_cka_linear(ctx, ref, it.q, &loss));
        ck_assert(loss == expected && loss > 0);

        problem dead = it;
        dead.x = floats(it.n * in);
        sums(&dead);
        const calm_cka_input none = {.rows = it.n, .in = in, .sum = it.sum};
        ck_ok(calm_cka_linear_prepare(ctx, it.w, it.out, &none, &ref));
        ck_ok(calm_cka_linear(ctx, ref, it.q, &loss));
        ck_assert(loss == loss_of(&dead));
    }
}
END_OF_TEST

/* By inputs and by outputs; blocks of M C smaller than 512, and of 512. */
TEST(memory)
{
    static const size_t sizes[][2] = {{30, 20}, {20, 30}, {300, 300}, {40, 300}, {600, 560}};    /* out, in */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t out = sizes[i][0], in = sizes[i][1];
        const problem it = make(40, in, out, 0.1);
        const calm_cka_input input = {.rows = it.n, .in = in, .gram = it.gram, .sum = it.sum};
        calm_cka_linear_ref *ref;
        double loss;
        ck_memory(calm_cka_linear_prepare(ctx, it.w, out, &input, &ref), calm_cka_linear_prepare_bytes(out, in),
                  calm_cka_linear_prepare_scratch_bytes(out, in));
        ck_ok(calm_cka_linear_prepare(ctx, it.w, out, &input, &ref));
        ck_memory(calm_cka_linear(ctx, ref, it.q, &loss), 0, calm_cka_linear_scratch_bytes(out, in));
    }
}
END_OF_TEST

int main(void)
{
    calm_linalg_setup();
    return run_tests("cka_linear", (const TTest *[]){equals_the_score_of_the_outputs, a_rescaled_copy_has_no_loss,
                                                     constants,
                                                     inputs_are_constant_by_the_rounding_of_float_products,
                                                     same_bytes_for_every_number_of_threads, what_is_refused,
                                                     failing_allocations, times, other_forms_of_the_matrix, memory,
                                                     NULL});
}
