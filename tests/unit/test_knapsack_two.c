/* Knapsack with two budgets: against every choice, ties, refusals. */
#include "ptq/plan/knapsack_two.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

enum { UNITS = 6, OPTIONS = 4 };

typedef struct problem {
    calm_knapsack_option options[UNITS][OPTIONS];
    calm_knapsack_unit units[UNITS];
    size_t n;
} problem;

/* Makes a problem.  Losses are multiples of 1 / grain, so that choices tie; costs are small, so that sums meet. */
static problem *make(uint64_t seed, double grain)
{
    problem *p;
    ck_ok(CALM_NEW(ctx, ctx->out, p, 1));
    p->n = 1 + seed % UNITS;
    for (size_t u = 0; u < p->n; u++) {
        p->units[u] = (calm_knapsack_unit){1 + (size_t)(calm_rng_uniform(seed, 0, u) * OPTIONS), p->options[u]};
        for (size_t j = 0; j < p->units[u].n; j++) {
            const uint64_t at = u * OPTIONS + j;
            p->options[u][j] = (calm_knapsack_option){
                .cost = 1 + (uint64_t)(8 * calm_rng_uniform(seed, 1, at)),
                .second = 1 + (uint64_t)(8 * calm_rng_uniform(seed, 2, at)),
                .loss = floor(calm_rng_uniform(seed, 3, at) * grain) / grain - 0.25};
        }
    }
    return p;
}

/* Finds the best of all choices by the header's rule: loss, then cost. */
static bool best_of_all(const problem *p, uint64_t capacity, uint64_t second, uint64_t *best_cost, double *loss)
{
    size_t at[UNITS] = {0};
    bool any = false;
    for (;;) {
        uint64_t cost = 0, other = 0;
        double sum = 0;
        for (size_t u = 0; u < p->n; u++) {
            cost += p->options[u][at[u]].cost;
            other += p->options[u][at[u]].second;
            sum += p->options[u][at[u]].loss;
        }
        if (cost <= capacity && other <= second &&
            (!any || sum < *loss || (sum == *loss && cost < *best_cost))) {
            any = true;
            *loss = sum;
            *best_cost = cost;
        }
        size_t u = p->n;
        while (u-- > 0 && ++at[u] == p->units[u].n)
            at[u] = 0;
        if (u == SIZE_MAX)
            return any;
    }
}

TEST(against_every_choice)
{
    size_t n_solved = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        /* Multiples of 1/4 and of 2^-20 are summed exactly, so ties are exact. */
        const problem *p = make(seed, seed % 2 ? 4 : 0x1p20);
        for (uint64_t capacity = p->n; capacity <= 8 * p->n; capacity += 1 + p->n / 2)
            for (uint64_t second = p->n; second <= 8 * p->n; second += 1 + p->n / 2) {
                size_t choice[UNITS];
                uint64_t cost = 0;
                double loss = 0;
                calm_knapsack_total total;
                if (!best_of_all(p, capacity, second, &cost, &loss)) {
                    ck_assert_int_eq(calm_knapsack_two(ctx, p->units, p->n, capacity, second, choice, &total),
                                     CALM_EARG);
                    calm_ctx_clear_failure(ctx);
                    n_refused++;
                    continue;
                }
                ck_ok(calm_knapsack_two(ctx, p->units, p->n, capacity, second, choice, &total));
                ck_assert(total.loss == loss);
                ck_assert_uint_eq(total.cost, cost);
                ck_assert(total.second <= second);
                n_solved++;
            }
    }
    ck_assert_uint_gt(n_solved, 1000);
    ck_assert_uint_gt(n_refused, 1000);
}
END_OF_TEST

/* Only the budget of activations binds: weights cost the same everywhere, as in a pool of a4, a8 and a16. */
TEST(one_of_the_budgets_alone)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        problem *p = make(seed, 0x1p20);
        uint64_t cost = 0, least = 0;
        for (size_t u = 0; u < p->n; u++) {
            uint64_t low = UINT64_MAX;
            for (size_t j = 0; j < p->units[u].n; j++) {
                p->options[u][j].cost = 5;
                low = p->options[u][j].second < low ? p->options[u][j].second : low;
            }
            cost += 5;
            least += low;
        }
        size_t choice[UNITS];
        uint64_t expected = 0;
        double loss = 0;
        calm_knapsack_total total;
        ck_assert(best_of_all(p, cost, least + 2, &expected, &loss));
        ck_ok(calm_knapsack_two(ctx, p->units, p->n, UINT64_MAX >> 2, least + 2, choice, &total));
        ck_assert(total.loss == loss);
        ck_fails(calm_knapsack_two(ctx, p->units, p->n, UINT64_MAX >> 2, least - 1, choice, &total), CALM_EARG,
                 "the smallest plan needs");
    }
}
END_OF_TEST

/* The units of a model of 252 jobs: the plan for both budgets is no better than for either, and within both. */
TEST(many_units)
{
    enum { N = 252 };
    calm_knapsack_option *options;
    calm_knapsack_unit *units;
    size_t *choice;
    ck_ok(CALM_NEW(ctx, ctx->out, options, N * 9));
    ck_ok(CALM_NEW(ctx, ctx->out, units, N));
    ck_ok(CALM_NEW(ctx, ctx->out, choice, N));
    uint64_t weights = 0;
    for (size_t u = 0; u < N; u++) {
        static const uint64_t sizes[4] = {6291456, 4194304, 25165824, 12582912};
        weights += sizes[u % 4];
        units[u] = (calm_knapsack_unit){9, options + 9 * u};
        const double weight = calm_rng_uniform(5, 0, u), act = calm_rng_uniform(5, 1, u);
        for (size_t j = 0; j < 9; j++) {
            const double bits[3] = {2, 3, 4}, acts[3] = {4, 8, 16};
            options[9 * u + j] = (calm_knapsack_option){
                .cost = (uint64_t)bits[j / 3] * sizes[u % 4], .second = (uint64_t)acts[j % 3] * sizes[u % 4],
                .loss = weight * exp2(-2 * bits[j / 3]) + act * exp2(-2 * acts[j % 3])};
        }
    }
    calm_knapsack_total both, first, second;
    const uint64_t capacity = 3 * weights, other = 7 * weights;
    ck_ok(calm_knapsack_two(ctx, units, N, capacity, other, choice, &both));
    ck_ok(calm_knapsack_two(ctx, units, N, capacity, UINT64_MAX >> 2, choice, &first));
    ck_ok(calm_knapsack_two(ctx, units, N, UINT64_MAX >> 2, other, choice, &second));
    ck_assert(both.cost <= capacity && both.second <= other);
    ck_assert(both.loss >= first.loss && both.loss >= second.loss);
    ck_assert(first.second > other && second.cost > capacity);
}
END_OF_TEST

int main(void)
{
    return run_tests("knapsack_two",
                     (const TTest *[]){against_every_choice, one_of_the_budgets_alone, many_units, NULL});
}
