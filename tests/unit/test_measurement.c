/* Measures of both kinds (predictions, embeddings): their loss, and paired comparisons. */
#include "ptq/state/measurement.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

TEST(the_loss_is_of_the_kind)
{
    const calm_measure predictions = {CALM_STORE_PREDICTIONS, .predictions = {.kl = 0.25, .nll = 3, .top1 = 0.5}};
    const calm_measure embeddings = {CALM_STORE_EMBEDDINGS,
                                     .embeddings = {.cosine = 0.75, .error = 3, .spearman = 0.5}};
    const calm_measure alone = {CALM_STORE_PREDICTIONS, .predictions = {.kl = NAN}};
    ck_assert(calm_measure_loss(&predictions) == 0.25);
    ck_assert(calm_measure_loss(&embeddings) == 0.25);
    ck_assert(isnan(calm_measure_loss(&alone)));
}
END_OF_TEST

TEST(paired_comparison_of_equal_windows)
{
    /* KL of b minus that of a is 1, 3, 2 in windows of 10 tokens.  Per token .1, .3, .2: mean .2, standard deviation
     * .1, error .1 / sqrt 3. */
    calm_eval_window wa[] = {{10, 0, 1, 0, 0}, {10, 0, 1, 0, 0}, {10, 0, 2, 0, 0}};
    calm_eval_window wb[] = {{10, 0, 2, 0, 0}, {10, 0, 4, 0, 0}, {10, 0, 4, 0, 0}};
    const calm_measure a = {CALM_STORE_PREDICTIONS, .predictions = {.windows = wa}};
    const calm_measure b = {CALM_STORE_PREDICTIONS, .predictions = {.windows = wb}};
    double delta, se;
    calm_measure_compare(&a, &b, 3, &delta, &se);
    ck_near(delta, 0.2, 1e-15);
    ck_near(se, 0.1 / sqrt(3), 1e-15);
    calm_measure_compare(&b, &a, 3, &delta, &se);
    ck_near(delta, -0.2, 1e-15);
    calm_measure_compare(&a, &b, 1, &delta, &se);
    ck_near(delta, 0.1, 1e-15);
    ck_assert(isnan(se));
}
END_OF_TEST

/* JSON lines give documents of any length.  Tokens have equal weight, as in the table's mean KL, so both have one
 * sign. */
TEST(paired_comparison_of_unequal_windows)
{
    /* KL of b minus that of a is -6, 1, 1 over 100, 4 and 4 tokens: -4 / 108 over all.  Equal weights of windows
     * would give (-.06 + .25 + .25) / 3 > 0. */
    calm_eval_window wa[] = {{100, 0, 20, 0, 0}, {4, 0, 1, 0, 0}, {4, 0, 1, 0, 0}};
    calm_eval_window wb[] = {{100, 0, 14, 0, 0}, {4, 0, 2, 0, 0}, {4, 0, 2, 0, 0}};
    const calm_measure a = {CALM_STORE_PREDICTIONS, .predictions = {.kl = 22.0 / 108, .windows = wa}};
    const calm_measure b = {CALM_STORE_PREDICTIONS, .predictions = {.kl = 18.0 / 108, .windows = wb}};
    double delta, se;
    calm_measure_compare(&a, &b, 3, &delta, &se);
    ck_near(delta, -4.0 / 108, 1e-15);
    ck_near(delta, calm_measure_loss(&b) - calm_measure_loss(&a), 1e-15);
    /* d = -6 + 400/108, and 1 + 16/108 twice: their sum is 0; the error is sqrt(3/2 sum d^2) / 108. */
    const double d0 = -6 + 400.0 / 108, d1 = 1 + 16.0 / 108;
    ck_near(se, sqrt(1.5 * (d0 * d0 + 2 * d1 * d1)) / 108, 1e-15);
}
END_OF_TEST

/* The estimated error against the spread of the estimate over many texts with windows of unequal lengths. */
TEST(the_error_is_that_of_the_ratio)
{
    enum { TEXTS = 4000, WINDOWS = 64 };
    calm_eval_window wa[WINDOWS], wb[WINDOWS];
    double sum = 0, squares = 0, errors = 0;
    for (uint64_t t = 0; t < TEXTS; t++) {
        const calm_measure a = {CALM_STORE_PREDICTIONS, .predictions = {.windows = wa}};
        const calm_measure b = {CALM_STORE_PREDICTIONS, .predictions = {.windows = wb}};
        double delta, se;
        for (uint64_t w = 0; w < WINDOWS; w++) {
            /* 2 to 129 tokens; the window's level in addition to noise of its tokens. */
            const size_t n = 2 + (size_t)(128 * calm_rng_uniform(1, t, w));
            const double level = calm_rng_uniform(2, t, w) - 0.4, noise = calm_rng_uniform(3, t, w) - 0.5;
            wa[w] = (calm_eval_window){.tokens = n, .kl = 1};
            wb[w] = (calm_eval_window){.tokens = n, .kl = 1 + level * (double)n + noise * sqrt((double)n)};
        }
        calm_measure_compare(&a, &b, WINDOWS, &delta, &se);
        sum += delta;
        squares += delta * delta;
        errors += se * se;
    }
    const double spread = squares / TEXTS - (sum / TEXTS) * (sum / TEXTS);
    /* The variance of TEXTS draws is known to sqrt(2 / TEXTS) = 2.2 %, four times that is 9 %; the estimator's bias
     * is of order 1 / WINDOWS = 1.6 %. */
    ck_near(errors / TEXTS, spread, 0.11 * spread);
}
END_OF_TEST

TEST(paired_comparison_of_embeddings)
{
    /* 1 - cosine of b minus that of a is 0.25, 0.5, 0 per sentence: mean 0.25, standard deviation 0.25.  The errors
     * would give the other sign. */
    calm_embedding_distance da[] = {{9, 1}, {9, 0.75}, {9, 0.5}}, db[] = {{1, 0.75}, {1, 0.25}, {1, 0.5}};
    const calm_measure a = {CALM_STORE_EMBEDDINGS, .embeddings = {.n = 3, .each = da}};
    const calm_measure b = {CALM_STORE_EMBEDDINGS, .embeddings = {.n = 3, .each = db}};
    double delta, se;
    calm_measure_compare(&a, &b, 3, &delta, &se);
    ck_near(delta, 0.25, 1e-15);
    ck_near(se, 0.25 / sqrt(3), 1e-15);
}
END_OF_TEST

/* Joined measures are those of all windows: means, and values per window. */
TEST(parts_are_joined)
{
    calm_eval_window one[] = {{10, 20, 1, 8, 0}, {30, 40, 5, 20, 0}}, two[] = {{40, 20, 2, 30, 0}};
    const calm_measure a = {CALM_STORE_PREDICTIONS, .predictions = {.windows = one}};
    const calm_measure b = {CALM_STORE_PREDICTIONS, .predictions = {.windows = two}};
    calm_measure all;
    ck_ok(calm_measure_join(ctx, &a, 2, &b, 1, &all));
    ck_near(calm_measure_loss(&all), 0.1, 1e-15);
    ck_near(all.predictions.nll, 1, 1e-15);
    ck_near(all.predictions.top1, 58.0 / 80, 1e-15);
    ck_assert_uint_eq(all.predictions.tokens, 80);
    ck_assert(memcmp(&all.predictions.windows[1], &one[1], sizeof *one) == 0);
    ck_assert(memcmp(&all.predictions.windows[2], &two[0], sizeof *two) == 0);
    calm_embedding_distance first[] = {{1, 0.75}, {2, 0.25}}, second[] = {{3, 0.5}};
    const calm_measure c = {CALM_STORE_EMBEDDINGS, .embeddings = {.n = 2, .pairs = 1, .spearman = 1, .each = first}};
    const calm_measure d = {CALM_STORE_EMBEDDINGS, .embeddings = {.n = 1, .spearman = NAN, .each = second}};
    ck_ok(calm_measure_join(ctx, &c, 2, &d, 1, &all));
    ck_near(calm_measure_loss(&all), 0.5, 1e-15);
    ck_near(all.embeddings.error, 2, 1e-15);
    ck_near(all.embeddings.cosine_min, 0.25, 0);
    ck_near(all.embeddings.each[2].cosine, 0.5, 0);
    ck_assert_uint_eq(all.embeddings.n, 3);
    /* Cosines between sentences of different parts are unknown. */
    ck_assert(isnan(all.embeddings.spearman) && all.embeddings.pairs == 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("measure", (const TTest *[]){the_loss_is_of_the_kind, paired_comparison_of_equal_windows,
                                                  paired_comparison_of_unequal_windows,
                                                  the_error_is_that_of_the_ratio,
                                                  paired_comparison_of_embeddings, parts_are_joined, NULL});
}
