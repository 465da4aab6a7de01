/* cka/score.c with products_columns.c and products_rows.c: properties of the metrics, in the d x d form (n > 2 d)
 * and in the n x n form. */
#include "tests/support/harness.h"

#include <float.h>

#include "cka/cka.h"
#include "ptq/base/rng.h"
#include "ptq/base/threads.h"

/* Shapes of the first and the second form. */
static const size_t shapes[][2] = {{150, 19}, {24, 40}};
enum { N_SHAPES = 2 };

#define UNIT 0x1p-24

static float *copy(const float *x, size_t count)
{
    float *y;
    ck_ok(CALM_NEW(ctx, ctx->out, y, count));
    memcpy(y, x, count * sizeof *x);
    return y;
}

static float *random_matrix(uint64_t stream, size_t count, double size)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, count));
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(size * calm_rng_normal(7, stream, i));
    return x;
}

static calm_scores score(const float *y, const float *z, size_t n, size_t d)
{
    calm_score_ref *ref;
    calm_scores scores;
    ck_ok(calm_score_prepare(ctx, y, n, d, &ref));
    ck_ok(calm_score(ctx, ref, z, &scores));
    for (int i = 0; i < CALM_N_METRICS; i++)
        ck_assert_msg(isfinite(scores.value[i]), "%s is %g", calm_metric_name((calm_metric)i), scores.value[i]);
    ck_assert_uint_eq(scores.n_rows, n);
    return scores;
}

static const calm_metric similarities[] = {CALM_METRIC_CKA, CALM_METRIC_CKA_DEBIASED, CALM_METRIC_CKA_TOKEN,
                                           CALM_METRIC_CKA_DROP};
enum { N_SIMILARITIES = 4 };

TEST(equal_outputs_lose_nothing)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *y = random_matrix(1, n * d, 1);
        for (size_t j = 0; j < d; j++)
            y[j] *= 300;    /* a massive first row, so that rows are dropped too */
        y[d] = y[d + 1] = 0;
        calm_scores scores = score(y, copy(y, n * d), n, d);
        ck_assert_uint_eq(scores.n_dropped, 1);
        for (int i = 0; i < CALM_N_METRICS; i++)
            if (i == CALM_METRIC_LOG_REL_MSE)
                ck_near(scores.value[i], log(0x1p-64), 1e-12);
            else
                ck_assert_msg(scores.value[i] == 0, "%s is %g", calm_metric_name((calm_metric)i), scores.value[i]);
    }
}
END_OF_TEST

TEST(a_dead_output_loses_everything)
{
    for (int shape = 0; shape < N_SHAPES; shape++)
        for (int value = 0; value < 3; value++) {
            size_t n = shapes[shape][0], d = shapes[shape][1];
            float *y = random_matrix(1, n * d, 1), *z = copy(y, n * d);
            for (size_t i = 0; i < n * d; i++)
                z[i] = value == 0 ? 0 : value == 1 ? 0.1f : 1e4f * (float)(i % d + 1);
            calm_scores scores = score(y, z, n, d);
            ck_assert(scores.value[CALM_METRIC_CKA] == 1);
            ck_assert(scores.value[CALM_METRIC_CKA_DEBIASED] == 1);
            ck_assert(scores.value[CALM_METRIC_CKA_DROP] == 1);
            if (value == 0) {
                ck_assert(scores.value[CALM_METRIC_CKA_TOKEN] == 1);
                ck_assert(scores.value[CALM_METRIC_COSINE] == 1);
            }
        }
}
END_OF_TEST

TEST(a_constant_float_output_gives_no_nan)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *zeros = random_matrix(1, n * d, 0), *z = random_matrix(2, n * d, 1);
        calm_scores scores = score(zeros, z, n, d);
        for (int i = 0; i < N_SIMILARITIES; i++)
            ck_assert(scores.value[similarities[i]] == (similarities[i] == CALM_METRIC_CKA_TOKEN ? 0 : 1));
        ck_assert(scores.value[CALM_METRIC_REL_MSE] == 0x1p64);
        scores = score(zeros, zeros, n, d);
        for (int i = 0; i < CALM_N_METRICS; i++)
            ck_assert(i == CALM_METRIC_LOG_REL_MSE || scores.value[i] == 0);
    }
}
END_OF_TEST

/* Returns a bound of a CKA's loss if Z = s Y + E and |E| <= share |s Y|, all norms being Frobenius'.  L = s^2 K + D
 * with K = Yc Yc^T and |D| <= 2 s |Yc|_2 |E|, where |Yc|_2^2 <= |K|, and 1 - cos(K, L) <= (|D| / |s^2 K|)^2 / 2.  The
 * token metric divides rows by their norms, in Y and E.  The debiased one projects K and D: U-centring is a
 * projection. */
static double loss_bound(const float *y, size_t n, size_t d, calm_metric metric, double share)
{
    double *yc, *k, *row, mean = 0, size = 0, of_k = 0, of_centred = 0, total = 0;
    ck_ok(CALM_NEW(ctx, ctx->out, yc, n * d));
    ck_ok(CALM_NEW(ctx, ctx->out, k, n * n));
    ck_ok(CALM_NEW(ctx, ctx->out, row, n));
    for (size_t t = 0; t < n; t++) {
        double norm2 = 0;
        for (size_t j = 0; j < d; j++)
            norm2 += (double)y[t * d + j] * (double)y[t * d + j];
        for (size_t j = 0; j < d; j++)
            yc[t * d + j] = (double)y[t * d + j] / (metric == CALM_METRIC_CKA_TOKEN ? sqrt(norm2) : 1);
        size += metric == CALM_METRIC_CKA_TOKEN ? 1 : norm2;
    }
    for (size_t j = 0; j < d; j++, mean = 0) {
        for (size_t t = 0; t < n; t++)
            mean += yc[t * d + j] / (double)n;
        for (size_t t = 0; t < n; t++)
            yc[t * d + j] -= mean;
    }
    for (size_t t = 0; t < n; t++)
        for (size_t u = 0; u < n; u++) {
            for (size_t j = 0; j < d; j++)
                k[t * n + u] += yc[t * d + j] * yc[u * d + j];
            of_k += k[t * n + u] * k[t * n + u];
            row[t] += t == u ? 0 : k[t * n + u];
            total += t == u ? 0 : k[t * n + u];
        }
    const double m = (double)n - 2;
    for (size_t t = 0; t < n; t++)
        for (size_t u = 0; u < n; u++)
            of_centred += t == u ? 0 : pow(k[t * n + u] - (row[t] + row[u]) / m + total / ((m + 1) * m), 2);
    return 2 * share * share * size * sqrt(of_k) / (metric == CALM_METRIC_CKA_DEBIASED ? of_centred : of_k);
}

/* CKA does not depend on scale; what is left is float32's rounding of 0.8 y, a share of 2^-24, which enters the errors
 * directly and similarities squared.  Sums in double add 2^-53 per term, of 0.04 for the angle between rows. */
TEST(a_rescaled_output_is_seen_by_the_error_only)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *y = random_matrix(1, n * d, 1), *z = copy(y, n * d);
        for (size_t i = 0; i < n * d; i++)
            z[i] = 0.8f * y[i];
        calm_scores scores = score(y, z, n, d);
        const double lost = 1 - (double)0.8f, terms = (double)(n + 3 * d + 8), error = 0.8 * UNIT + terms * 0x1p-53;
        for (int i = 0; i < N_SIMILARITIES; i++)
            ck_assert_double_le(scores.value[similarities[i]], loss_bound(y, n, d, similarities[i], UNIT));
        ck_assert_double_gt(scores.value[CALM_METRIC_REL_MSE], 0.03);
        ck_near(scores.value[CALM_METRIC_REL_MAE], lost, error);
        ck_near(scores.value[CALM_METRIC_LOG_REL_MSE], 2 * log(lost), 2 * error / (lost - error));
        ck_assert_double_le(scores.value[CALM_METRIC_COSINE], UNIT * UNIT / 2 + 0.04 * terms * 0x1p-53);
        for (size_t i = 0; i < n * d; i++)
            z[i] = -4 * y[i];
        scores = score(y, z, n, d);
        /* -4 y is exact, and so is the scale found for it.  Only the means of z - y and of 5 y round, by n + 4 times
         * 2^-53 of the mean |5 y| each, which is 10 / 4 of |4 y|. */
        const double share = 2.5 * (double)(n + 4) * 0x1p-53;
        for (int i = 0; i < N_SIMILARITIES; i++)
            ck_assert_double_le(scores.value[similarities[i]], loss_bound(y, n, d, similarities[i], share));
        ck_near(scores.value[CALM_METRIC_COSINE], 2, terms * 0x1p-53);
    }
}
END_OF_TEST

/* Y + c has the same similarity as Y.  Values are multiples of 1/512, so that the shift is exact. */
TEST(column_means_do_not_enter)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *y = random_matrix(1, n * d, 1), *e = random_matrix(2, n * d, 0.01), *z = copy(y, n * d);
        float *far_y = copy(y, n * d), *far_z = copy(y, n * d);
        for (size_t i = 0; i < n * d; i++) {
            y[i] = roundf(y[i] * 512) / 512;
            z[i] = y[i] + roundf(e[i] * 512) / 512;
            far_y[i] = y[i] + 5000;
            far_z[i] = z[i] + 4000;
            ck_assert((double)far_y[i] == (double)y[i] + 5000);    /* 13 integer bits and 9 fraction bits: exact */
            ck_assert((double)far_z[i] == (double)z[i] + 4000);
        }
        calm_scores near = score(y, z, n, d), far = score(far_y, far_z, n, d);
        double cka = near.value[CALM_METRIC_CKA], debiased = near.value[CALM_METRIC_CKA_DEBIASED];
        ck_assert_double_gt(cka, 1e-6);
        ck_near(far.value[CALM_METRIC_CKA], cka, 1e-7 * cka);
        ck_near(far.value[CALM_METRIC_CKA_DEBIASED], debiased, 1e-6 * debiased);
    }
}
END_OF_TEST

/* A massive first token that every candidate keeps hides the others from cka, but not from cka_token and cka_drop. */
TEST(a_massive_row_hides_the_text_from_cka_only)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *y = random_matrix(1, n * d, 1), *e = random_matrix(2, n * d, 0.2), *z = copy(y, n * d);
        for (size_t i = 0; i < n * d; i++)
            z[i] = y[i] + e[i];
        calm_scores plain = score(y, z, n, d);
        for (size_t j = 0; j < d; j++)
            z[j] = y[j] *= 1000;
        calm_scores massive = score(y, z, n, d);
        ck_assert_uint_eq(plain.n_dropped, 0);
        ck_assert_uint_eq(massive.n_dropped, 1);
        ck_assert_double_lt(massive.value[CALM_METRIC_CKA], 1e-3 * plain.value[CALM_METRIC_CKA]);
        for (int i = 2; i < N_SIMILARITIES; i++)
            ck_assert_double_gt(massive.value[similarities[i]], 0.8 * plain.value[CALM_METRIC_CKA]);
        calm_scores without = score(y + d, z + d, n - 1, d);
        double expected = without.value[CALM_METRIC_CKA];
        ck_near(massive.value[CALM_METRIC_CKA_DROP], expected, 1e-12 * expected);
        ck_assert(plain.value[CALM_METRIC_CKA_DROP] == plain.value[CALM_METRIC_CKA]);
    }
}
END_OF_TEST

/* A row of tiny norm, such as that of a sink token, must not decide by an error as small as the others'.  A row's
 * error counts with the square of its weight, so a row at the floor counts as 64 rows of median norm: 1 + 64/n times
 * the loss without it, and a factor of 2 for the variation of random rows. */
TEST(a_tiny_row_does_not_hide_the_text)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *y = random_matrix(1, n * d, 1), *e = random_matrix(2, n * d, 0.01), *z = copy(y, n * d);
        for (size_t j = 0; j < d; j++)
            y[j] *= 1e-4f;
        for (size_t i = 0; i < n * d; i++)
            z[i] = y[i] + e[i];
        const double without = score(y + d, z + d, n - 1, d).value[CALM_METRIC_CKA_TOKEN];
        const double with = score(y, z, n, d).value[CALM_METRIC_CKA_TOKEN];
        ck_assert_msg(with <= 2 * (1 + 64.0 / (double)n) * without, "%zu x %zu: %g, without the row %g", n, d, with,
                      without);
    }
}
END_OF_TEST

TEST(values_that_are_not_finite_are_rejected_with_their_place)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int shape = 0; shape < N_SHAPES; shape++)
        for (int i = 0; i < 3; i++) {
            size_t n = shapes[shape][0], d = shapes[shape][1], used;
            float *y = random_matrix(1, n * d, 1), *z = copy(y, n * d);
            calm_score_ref *ref;
            calm_scores scores;
            ck_ok(calm_score_prepare(ctx, y, n, d, &ref));
            used = ctx->scratch->used_bytes;
            z[3 * d + 2] = bad[i];
            ck_fails(calm_score(ctx, ref, z, &scores), CALM_ENUMERIC, "row 3, column 2");
            ck_assert_uint_eq(ctx->scratch->used_bytes, used);
            ck_fails(calm_score_prepare(ctx, z, n, d, &ref), CALM_ENUMERIC, "float output");
            ck_assert_ptr_null(ref);
        }
}
END_OF_TEST

TEST(the_largest_and_smallest_floats_give_finite_scores)
{
    const float sizes[] = {FLT_MAX, 1, 1e-38f, 1e-44f};
    for (int shape = 0; shape < N_SHAPES; shape++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++) {
                size_t n = shapes[shape][0], d = shapes[shape][1];
                float *y = random_matrix(1, n * d, 1), *z = random_matrix(2, n * d, 1);
                for (size_t i = 0; i < n * d; i++) {
                    y[i] = fmaxf(fminf(y[i], 1), -1) * sizes[a];
                    z[i] = fmaxf(fminf(z[i], 1), -1) * sizes[b];
                }
                calm_scores scores = score(y, z, n, d);
                for (int i = 0; i < CALM_N_METRICS; i++)
                    ck_assert_double_ge(scores.value[i], i == CALM_METRIC_LOG_REL_MSE ? log(0x1p-64) : 0);
                ck_assert_double_le(scores.value[CALM_METRIC_CKA], 1);
            }
}
END_OF_TEST

TEST(four_rows_are_enough_and_three_are_not)
{
    float *y = random_matrix(1, 4 * 3, 1), *z = random_matrix(2, 4 * 3, 1);
    calm_score_ref *ref;
    score(y, z, 4, 3);
    score(y, z, 4, 1);
    ck_fails(calm_score_prepare(ctx, y, 3, 3, &ref), CALM_EARG, "3 rows of 3 columns");
    ck_fails(calm_score_prepare(ctx, y, 4, 0, &ref), CALM_EARG, "4 rows of 0 columns");
}
END_OF_TEST

TEST(every_failing_allocation_is_reported)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        float *y = random_matrix(1, n * d, 1), *z = random_matrix(2, n * d, 1);
        calm_arena *arenas[] = {ctx->out, ctx->scratch};
        int failures = 0;
        for (int arena = 0; arena < 2; arena++)
            for (int k = 1;; k++) {
                calm_score_ref *ref;
                calm_scores scores;
                size_t used = ctx->scratch->used_bytes;
                arenas[arena]->fail_in = k;
                calm_status status = calm_score_prepare(ctx, y, n, d, &ref);
                if (status == CALM_OK)
                    status = calm_score(ctx, ref, z, &scores);
                arenas[arena]->fail_in = 0;
                ck_assert_uint_eq(ctx->scratch->used_bytes, used);
                if (status == CALM_OK)
                    break;
                ck_assert_int_eq(status, CALM_ENOMEM);
                calm_ctx_clear_failure(ctx);
                failures++;
            }
        ck_assert_int_gt(failures, 15);
    }
}
END_OF_TEST

typedef struct batch {
    const calm_score_ref *ref;
    float *z[8];
    calm_scores scores[8];
} batch;

static calm_status score_one(calm_ctx *task, size_t index, void *user)
{
    batch *work = user;
    return calm_score(task, work->ref, work->z[index], &work->scores[index]);
}

TEST(one_thread_and_four_give_the_same_bytes)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        size_t n = shapes[shape][0], d = shapes[shape][1];
        calm_score_ref *ref;
        ck_ok(calm_score_prepare(ctx, random_matrix(1, n * d, 1), n, d, &ref));
        batch one = {.ref = ref}, four = {.ref = ref};
        for (size_t i = 0; i < 8; i++)
            one.z[i] = four.z[i] = random_matrix(2 + i, n * d, 1);
        ctx->n_threads = 1;
        ck_ok(calm_parallel_for(ctx, 8, score_one, &one));
        ctx->n_threads = 4;
        ck_ok(calm_parallel_for(ctx, 8, score_one, &four));
        ck_assert_mem_eq(one.scores, four.scores, sizeof one.scores);
    }
}
END_OF_TEST

/* Both forms, with dropped rows, so that all sets of rows differ. */
TEST(memory)
{
    static const size_t sizes[][2] = {{150, 19}, {39, 19}, {40, 19}, {24, 40}, {700, 300}, {300, 200}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i][0], d = sizes[i][1];
        float *y = random_matrix(1, n * d, 1);
        const float *z = random_matrix(2, n * d, 1);
        calm_score_ref *ref;
        calm_scores scores;
        for (size_t j = 0; j < d; j++)
            y[j] *= 300;
        ck_memory(calm_score_prepare(ctx, y, n, d, &ref), calm_score_prepare_bytes(n, d),
                  calm_score_prepare_scratch_bytes(n, d));
        ck_ok(calm_score_prepare(ctx, y, n, d, &ref));
        ck_memory(calm_score(ctx, ref, z, &scores), 0, calm_score_scratch_bytes(n, d));
        ck_assert_uint_eq(scores.n_dropped, 1);
    }
    /* The form changes there, and the other form needs less. */
    ck_assert_uint_eq(calm_score_square_rows(19), 39);
    ck_assert_uint_lt(calm_score_prepare_bytes(40, 19), calm_score_prepare_bytes(39, 19));
    ck_assert_uint_lt(calm_score_scratch_bytes(40, 19), calm_score_scratch_bytes(39, 19));
}
END_OF_TEST

int main(void)
{
    return run_tests("score",
                     (const TTest *[]){equal_outputs_lose_nothing, a_dead_output_loses_everything,
                                       a_constant_float_output_gives_no_nan,
                                       a_rescaled_output_is_seen_by_the_error_only, column_means_do_not_enter,
                                       a_massive_row_hides_the_text_from_cka_only, a_tiny_row_does_not_hide_the_text,
                                       values_that_are_not_finite_are_rejected_with_their_place,
                                       the_largest_and_smallest_floats_give_finite_scores,
                                       four_rows_are_enough_and_three_are_not, every_failing_allocation_is_reported,
                                       one_thread_and_four_give_the_same_bytes, memory, NULL});
}
