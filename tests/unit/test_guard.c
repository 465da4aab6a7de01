/* The guard's rule: on given figures, and how often it ships the worse of two plans. */
#include <stdio.h>

#include "ptq/base/rng.h"
#include "tests/support/run_rooms.h"
#include "tests/support/harness.h"

static calm_trial trial(double kl, double delta, double se)
{
    return (calm_trial){.id = 1, .delta = delta, .se = se,
                        .measure = {CALM_STORE_PREDICTIONS, .predictions = {.kl = kl}}};
}

TEST(the_least_loss_and_the_simpler_plan)
{
    /* The hybrid has .10.  A uniform run that is better by any amount is taken, and of several the best. */
    const calm_trial better[] = {trial(0.10, 0, 0), trial(0.09, -0.01, 0.5), trial(0.08, -0.02, 0.5)};
    ck_assert_uint_eq(calm_guard_pick(better, 2), 1);
    ck_assert_uint_eq(calm_guard_pick(better, 3), 2);
    /* Worse by at most an error: as good, and simpler. */
    const calm_trial near[] = {trial(0.10, 0, 0), trial(0.12, 0.02, 0.021), trial(0.11, 0.01, 0.0101)};
    ck_assert_uint_eq(calm_guard_pick(near, 2), 1);
    ck_assert_uint_eq(calm_guard_pick(near, 3), 2);
    /* Worse by more; not measured; or measured on one window, whose error is unknown. */
    ck_assert_uint_eq(calm_guard_least_uniform(near, 3), 2);
    const calm_trial worse[] = {trial(0.10, 0, 0), trial(0.12, 0.02, 0.0199), trial(0.11, 0.01, NAN)};
    ck_assert_uint_eq(calm_guard_pick(worse, 3), 0);
    ck_assert_uint_eq(calm_guard_least_uniform(worse, 3), 2);
    calm_trial missing[] = {trial(0.10, 0, 0), trial(0.01, -0.09, 0.001)};
    missing[1].id = 0;
    ck_assert_uint_eq(calm_guard_pick(missing, 2), 0);
    const calm_trial one[] = {trial(0.10, 0, 0), trial(0.09, -0.01, NAN)};
    ck_assert_uint_eq(calm_guard_pick(one, 2), 1);
    /* A uniform run that is worse within an error does not hide a better one. */
    const calm_trial both[] = {trial(0.10, 0, 0), trial(0.101, 0.001, 0.5), trial(0.099, -0.001, 0.0001)};
    ck_assert_uint_eq(calm_guard_pick(both, 3), 2);
}
END_OF_TEST

/* ---- how often the worse of two plans is shipped ---- */

enum { DRAWS = 1000, WINDOWS = 16, ALL = WINDOWS << CALM_GUARD_DOUBLINGS };

/* Results of a rule over all draws. */
typedef struct tally {
    size_t worse;       /* draws in which the truly worse plan was shipped                   */
    double regret;      /* mean true loss above the better plan, in true errors of 16 windows */
    size_t windows;     /* measured windows                                                  */
} tally;

/* The rules: BEFORE keeps the hybrid unless a uniform run is better by two errors; FIRST is the guard's on its first
 * windows; MORE measures more windows while simplicity alone decides. */
enum { BEFORE, FIRST, MORE, N_RULES };

/* Returns a normal number, by Box and Muller. */
static double normal(uint64_t stream, uint64_t index)
{
    const double u = calm_rng_uniform(11, stream, 2 * index), v = calm_rng_uniform(11, stream, 2 * index + 1);
    return sqrt(-2 * log(1 - u)) * cos(2 * acos(-1) * v);
}

/* Compares two plans on the first n windows. */
static void compare_on(calm_trial trials[2], size_t n)
{
    for (size_t i = 0; i < 2; i++) {
        calm_eval_result *of = &trials[i].measure.predictions;
        of->kl = 0;
        for (size_t w = 0; w < n; w++)
            of->kl += of->windows[w].kl / (double)(100 * n);
    }
    calm_measure_compare(&trials[0].measure, &trials[1].measure, n, &trials[1].delta, &trials[1].se);
}

/* Draws the windows of a guard: ALL of the hybrid, and of a uniform run whose true KL differs by `effect` true
 * standard errors.  The level of KL differs between windows far more than between plans, as between articles. */
static void draw(double effect, uint64_t stream, uint64_t d, calm_eval_window *of_hybrid, calm_eval_window *of_uniform)
{
    for (uint64_t w = 0; w < ALL; w++) {
        /* The first windows do not depend on the number of windows. */
        const uint64_t from = w < WINDOWS ? stream : stream + 100;
        const uint64_t at = w < WINDOWS ? d * WINDOWS + w : d * (ALL - WINDOWS) + w - WINDOWS;
        const double level = 20 * exp(normal(from, at * 2));
        of_hybrid[w] = (calm_eval_window){.tokens = 100, .kl = level};
        /* Differences per window have variance 1: the true error of the first windows is 1 / sqrt WINDOWS. */
        of_uniform[w] = (calm_eval_window){.tokens = 100,
                                           .kl = level + effect / sqrt(WINDOWS) + normal(from, at * 2 + 1)};
    }
}

/* Simulates DRAWS guards. */
static void simulate(double effect, uint64_t stream, tally tallies[N_RULES])
{
    calm_eval_window of_hybrid[ALL], of_uniform[ALL];
    calm_trial trials[2] = {trial(0, 0, 0), trial(0, 0, 0)};
    trials[0].measure.predictions.windows = of_hybrid;
    trials[1].measure.predictions.windows = of_uniform;
    for (uint64_t d = 0; d < DRAWS; d++) {
        size_t shipped[N_RULES], n = WINDOWS;
        draw(effect, stream, d, of_hybrid, of_uniform);
        compare_on(trials, n);
        shipped[BEFORE] = trials[1].delta < -2 * trials[1].se;
        shipped[FIRST] = calm_guard_pick(trials, 2);
        for (; n < ALL && calm_guard_pick(trials, 2) && trials[1].delta > 0; n *= 2)
            compare_on(trials, 2 * n);
        shipped[MORE] = calm_guard_pick(trials, 2);
        for (size_t r = 0; r < N_RULES; r++) {
            const bool worse = (shipped[r] == 1) == (effect > 0);
            tallies[r].worse += worse;
            tallies[r].regret += worse ? fabs(effect) / DRAWS : 0;
            tallies[r].windows += r == MORE ? n : WINDOWS;
        }
    }
}

/* It is unknown which plan is better, so both signs have equal weight. */
TEST(the_worse_of_two_is_shipped_less_often)
{
    static const double effects[] = {0.5, 1, 1.5, 2, 3};
    static const char *const names[] = {"two errors", "16 windows", "up to 64"};
    tally all[N_RULES] = {{0}};
    for (uint64_t i = 0; i < 5; i++) {
        tally of[2][N_RULES] = {{{0}}};
        for (uint64_t sign = 0; sign < 2; sign++)
            simulate(sign ? -effects[i] : effects[i], 10 + 2 * i + sign, of[sign]);
        for (size_t r = 0; r < N_RULES; r++) {
            printf("  true difference %3.1f errors, %s: worse shipped of %d  hybrid better: %3zu  uniform better: "
                   "%3zu\n", effects[i], names[r], DRAWS, of[0][r].worse, of[1][r].worse);
            for (size_t sign = 0; sign < 2; sign++) {
                all[r].worse += of[sign][r].worse;
                all[r].regret += of[sign][r].regret / 10;
                all[r].windows += of[sign][r].windows;
            }
        }
        /* Shipped wrongly with probability p in n draws: 4 sqrt(n p (1 - p)) either way, p(1 - p) <= 1/4.  t with 15
         * degrees of freedom is near the normal Phi: a better uniform run is not taken if delta > se, P(Z > 1 +
         * effect). */
        const double left = 0.5 * erfc((1 + effects[i]) / sqrt(2));
        ck_near((double)of[1][FIRST].worse / DRAWS, left, 4 * sqrt(0.25 / DRAWS));
        ck_near((double)of[0][BEFORE].worse / DRAWS, 0.5 * erfc((2 + effects[i]) / sqrt(2)), 4 * sqrt(0.25 / DRAWS));
        /* A better hybrid is replaced less often; in return a better uniform run may be dropped after more windows. */
        ck_assert_uint_lt(of[0][MORE].worse, of[0][FIRST].worse);
        ck_assert_uint_le(of[1][FIRST].worse, of[1][MORE].worse);
    }
    for (size_t r = 0; r < N_RULES; r++)
        printf("  all, %s: worse shipped in %.1f %%, mean loss above the better plan %.3f errors, %.1f windows\n",
               names[r], 100.0 * (double)all[r].worse / (10 * DRAWS), all[r].regret,
               (double)all[r].windows / (10 * DRAWS));
    /* 10,000 draws of each rule: the difference of two counts has a standard deviation below 100. */
    ck_assert_uint_lt(all[FIRST].worse + 400, all[BEFORE].worse);
    ck_assert(all[FIRST].regret < all[BEFORE].regret);
    ck_assert_uint_lt(all[MORE].worse + 400, all[FIRST].worse);
    ck_assert(all[MORE].regret < all[FIRST].regret);
}
END_OF_TEST

int main(void)
{
    return run_tests("guard", (const TTest *[]){the_least_loss_and_the_simpler_plan,
                                                the_worse_of_two_is_shipped_less_often, NULL});
}
