/* Measures: their loss, and paired comparisons, of both kinds. */
#include "ptq/run/measure.h"

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

TEST(paired_comparison_of_predictions)
{
    /* Per-token KL of b minus a per window: 0.1, 0.3, 0.2; mean 0.2, standard deviation 0.1, error 0.1 / sqrt 3. */
    calm_eval_window wa[] = {{10, 0, 1, 0, 0}, {20, 0, 1, 0, 0}, {5, 0, 2, 0, 0}};
    calm_eval_window wb[] = {{10, 0, 2, 0, 0}, {20, 0, 7, 0, 0}, {5, 0, 3, 0, 0}};
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

TEST(paired_comparison_of_embeddings)
{
    /* 1 - cosine of b minus that of a per sentence: 0.25, 0.5, 0; mean 0.25, standard deviation 0.25.  The errors would
     * give the other sign. */
    calm_embedding_distance da[] = {{9, 1}, {9, 0.75}, {9, 0.5}}, db[] = {{1, 0.75}, {1, 0.25}, {1, 0.5}};
    const calm_measure a = {CALM_STORE_EMBEDDINGS, .embeddings = {.n = 3, .each = da}};
    const calm_measure b = {CALM_STORE_EMBEDDINGS, .embeddings = {.n = 3, .each = db}};
    double delta, se;
    calm_measure_compare(&a, &b, 3, &delta, &se);
    ck_near(delta, 0.25, 1e-15);
    ck_near(se, 0.25 / sqrt(3), 1e-15);
}
END_OF_TEST

int main(void)
{
    return run_tests("measure", (const TTest *[]){the_loss_is_of_the_kind, paired_comparison_of_predictions,
                                                  paired_comparison_of_embeddings, NULL});
}
