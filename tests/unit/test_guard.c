/* The guard's rule: on figures that are given, and how often it ships the worse of two plans. */
#include <stdio.h>

#include "ptq/base/rng.h"
#include "ptq/run/run_impl.h"
#include "tests/support/harness.h"

static calm_trial trial(double kl, double delta, double se)
{
    return (calm_trial){.id = 1, .delta = delta, .se = se,
                        .measure = {CALM_STORE_PREDICTIONS, .predictions = {.kl = kl}}};
}

TEST(the_least_loss_and_the_simpler_plan)
{
    /* The hybrid has .10.  Better by any amount: taken; of several the least. */
    const calm_trial better[] = {trial(0.10, 0, 0), trial(0.09, -0.01, 0.5), trial(0.08, -0.02, 0.5)};
    ck_assert_uint_eq(calm_guard_pick(better, 2), 1);
    ck_assert_uint_eq(calm_guard_pick(better, 3), 2);
    /* Worse by no more than an error: as good and simpler. */
    const calm_trial near[] = {trial(0.10, 0, 0), trial(0.12, 0.02, 0.021), trial(0.11, 0.01, 0.0101)};
    ck_assert_uint_eq(calm_guard_pick(near, 2), 1);
    ck_assert_uint_eq(calm_guard_pick(near, 3), 2);
    /* Worse by more, not measured, or of one window, whose error is unknown. */
    const calm_trial worse[] = {trial(0.10, 0, 0), trial(0.12, 0.02, 0.0199), trial(0.11, 0.01, NAN)};
    ck_assert_uint_eq(calm_guard_pick(worse, 3), 0);
    calm_trial missing[] = {trial(0.10, 0, 0), trial(0.01, -0.09, 0.001)};
    missing[1].id = 0;
    ck_assert_uint_eq(calm_guard_pick(missing, 2), 0);
    const calm_trial one[] = {trial(0.10, 0, 0), trial(0.09, -0.01, NAN)};
    ck_assert_uint_eq(calm_guard_pick(one, 2), 1);
    /* A uniform run far within an error does not hide a better one. */
    const calm_trial both[] = {trial(0.10, 0, 0), trial(0.101, 0.001, 0.5), trial(0.099, -0.001, 0.0001)};
    ck_assert_uint_eq(calm_guard_pick(both, 3), 2);
}
END_OF_TEST

/* ---- how often the worse of two is shipped ---- */

enum { DRAWS = 1000, WINDOWS = 16 };

/* What a rule did over all draws. */
typedef struct tally {
    size_t worse;       /* draws in which the truly worse plan was shipped       */
    double regret;      /* mean true loss above the better plan, in true errors  */
} tally;

/* Normal by Box and Muller. */
static double normal(uint64_t stream, uint64_t index)
{
    const double u = calm_rng_uniform(11, stream, 2 * index), v = calm_rng_uniform(11, stream, 2 * index + 1);
    return sqrt(-2 * log(1 - u)) * cos(2 * acos(-1) * v);
}

/* DRAWS guards of a uniform run whose true KL differs from the hybrid's by `effect` true standard errors of a guard.
 * `scale` true: windows differ in level by far more than the plans do, as articles do. */
static void simulate(double effect, uint64_t stream, tally *before, tally *now)
{
    calm_eval_window of_hybrid[WINDOWS], of_uniform[WINDOWS];
    calm_trial trials[2] = {trial(0, 0, 0), trial(0, 0, 0)};
    trials[0].measure.predictions.windows = of_hybrid;
    trials[1].measure.predictions.windows = of_uniform;
    for (uint64_t d = 0; d < DRAWS; d++) {
        double sum[2] = {0};
        for (uint64_t w = 0; w < WINDOWS; w++) {
            const double level = 20 * exp(normal(stream, (d * WINDOWS + w) * 2));
            of_hybrid[w] = (calm_eval_window){.tokens = 100, .kl = level};
            /* Differences per window of variance 1: a guard's true error is 1 / sqrt WINDOWS. */
            of_uniform[w] = (calm_eval_window){
                .tokens = 100, .kl = level + effect / sqrt(WINDOWS) + normal(stream, (d * WINDOWS + w) * 2 + 1)};
            sum[0] += of_hybrid[w].kl;
            sum[1] += of_uniform[w].kl;
        }
        for (size_t i = 0; i < 2; i++)
            trials[i].measure.predictions.kl = sum[i] / (100 * WINDOWS);
        calm_measure_compare(&trials[0].measure, &trials[1].measure, WINDOWS, &trials[1].delta, &trials[1].se);
        /* The rule of before: the hybrid, unless a uniform run was better by two errors. */
        const size_t shipped[2] = {trials[1].delta < -2 * trials[1].se, calm_guard_pick(trials, 2)};
        tally *const of[2] = {before, now};
        for (size_t r = 0; r < 2; r++) {
            const bool worse = (shipped[r] == 1) == (effect > 0);
            of[r]->worse += worse;
            of[r]->regret += worse ? fabs(effect) / DRAWS : 0;
        }
    }
}

/* Neither plan is known to be the better one beforehand, so both signs count alike. */
TEST(the_worse_of_two_is_shipped_less_often)
{
    static const double effects[] = {0.5, 1, 1.5, 2, 3};
    tally before = {0}, now = {0};
    for (uint64_t i = 0; i < 5; i++) {
        tally of[2][2] = {0};
        for (uint64_t sign = 0; sign < 2; sign++)
            simulate(sign ? -effects[i] : effects[i], 10 + 2 * i + sign, &of[sign][0], &of[sign][1]);
        printf("  true difference %3.1f errors: worse shipped of %d  hybrid better: %3zu before, %3zu now;"
               "  uniform better: %3zu before, %3zu now\n", effects[i], DRAWS, of[0][0].worse, of[0][1].worse,
               of[1][0].worse, of[1][1].worse);
        for (size_t sign = 0; sign < 2; sign++) {
            before.worse += of[sign][0].worse;
            before.regret += of[sign][0].regret / 10;
            now.worse += of[sign][1].worse;
            now.regret += of[sign][1].regret / 10;
        }
        /* Shipped wrongly with probability p in n draws: 4 sqrt(n p (1 - p)) either way, p(1 - p) <= 1/4.  With t of 15
         * degrees of freedom near the normal Phi: a better uniform run is left when delta > se, P(Z > 1 + effect). */
        const double left = 0.5 * erfc((1 + effects[i]) / sqrt(2));
        ck_near((double)of[1][1].worse / DRAWS, left, 4 * sqrt(0.25 / DRAWS));
        ck_near((double)of[0][0].worse / DRAWS, 0.5 * erfc((2 + effects[i]) / sqrt(2)), 4 * sqrt(0.25 / DRAWS));
    }
    printf("  all: worse shipped in %.1f %% before, %.1f %% now; mean loss above the better plan %.3f errors before, "
           "%.3f now\n", 100.0 * (double)before.worse / (10 * DRAWS), 100.0 * (double)now.worse / (10 * DRAWS),
           before.regret, now.regret);
    /* 10,000 draws of either rule: the difference of the two counts has a standard deviation below 100. */
    ck_assert_uint_lt(now.worse + 400, before.worse);
    ck_assert(now.regret < before.regret);
}
END_OF_TEST

int main(void)
{
    return run_tests("guard", (const TTest *[]){the_least_loss_and_the_simpler_plan,
                                                the_worse_of_two_is_shipped_less_often, NULL});
}
