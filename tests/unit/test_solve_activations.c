/* Budgets of activation bits, alone and with one of weight bits: against every plan. */
#include "tests/support/small_pool.h"

/* ---- bits of activations ---- */

/* Makes the schemes a4, a8 and a16 with 3, 4 and 5 bits of weights in reverse: weights are cheapest where
 * activations are dearest. */
static void make_activations(uint64_t seed, bench *b)
{
    static const char *const names[N_SCHEMES] = {"w2a16_g16", "w3a8_g16", "w4a4_g16"};
    make(seed, b);
    for (size_t s = 0; s < N_SCHEMES; s++)
        ck_ok(calm_scheme_parse(ctx, names[s], &b->schemes[s]));
    for (size_t i = 0; i < N_ENTRIES; i++) {
        b->entries[i].scheme = b->schemes[i / N_ALGORITHMS];
        b->entries[i].scheme_name = names[i / N_ALGORITHMS];
    }
    /* Any order of losses, by score and share of weights. */
    for (size_t i = 0; i < N_JOBS * N_ENTRIES; i++) {
        b->rows[i].probe = NAN;
        b->rows[i].metric = 0.5 + calm_rng_uniform(seed, 7, i);
    }
}

static double mean_act_bits(const bench *b, const size_t *option)
{
    static const double bits[N_SCHEMES] = {16, 8, 4};
    double sum = 0, weights = 0;
    for (size_t j = 0; j < N_JOBS; j++) {
        sum += bits[option[j]] * (double)(b->jobs[j].out * b->jobs[j].in);
        weights += (double)(b->jobs[j].out * b->jobs[j].in);
    }
    return sum / weights;
}

/* Compares the plan for two budgets with all 3^6; returns false if none is within both. */
static bool check_two_budgets(bench *b, double budget, double act_budget)
{
    const calm_requests requests = {.budget = budget, .act_budget = act_budget};
    calm_solution found;
    double least = INFINITY, bits;
    size_t option[N_JOBS];
    for (size_t code = 0; code < N_PLANS; code++) {
        nth_plan(code, option);
        const double loss = plain_loss(b, option, false, &bits);
        if (bits <= budget + 1e-9 && mean_act_bits(b, option) <= act_budget + 1e-9)
            least = fmin(least, loss);
    }
    if (isinf(least)) {
        ck_fails(calm_solve(ctx, &b->pool, &requests, &found), CALM_EARG,
                 test_format("`choice.budget` %g and `choice.act_budget` %g: no choice is within both", budget,
                             act_budget));
        return false;
    }
    ck_ok(calm_solve(ctx, &b->pool, &requests, &found));
    schemes_of(&found, option);
    /* Six losses, each rounded to 2^-52 of the sum, in another order. */
    ck_near(plain_loss(b, option, false, &bits), least, 1e-14 * (1 + least));
    ck_assert(bits <= budget + 1e-9);
    ck_near(found.mean_act_bits, mean_act_bits(b, option), 1e-12);
    ck_assert(found.mean_act_bits <= act_budget + 1e-9);
    return true;
}

TEST(two_budgets_against_every_plan)
{
    size_t n_solved = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        bench b;
        make_activations(seed, &b);
        for (double budget = 3; budget <= 5; budget += 0.5)
            for (double act_budget = 4; act_budget <= 16; act_budget += 1.5) {
                const bool solved = check_two_budgets(&b, budget, act_budget);
                n_solved += solved;
                n_refused += !solved;
            }
    }
    ck_assert_uint_gt(n_solved, 100);
    ck_assert_uint_gt(n_refused, 100);
}
END_OF_TEST

/* Without the second budget every unit gets the best-scoring activations, which are the widest; with it they are
 * shared out. */
TEST(activations_alone)
{
    bench b;
    calm_solution found;
    calm_requests requests = {.budget = INFINITY, .act_budget = 8};
    make_activations(1, &b);
    for (size_t j = 0; j < N_JOBS; j++)    /* the more activation bits, the better */
        for (size_t i = 0; i < N_ENTRIES; i++)
            row(&b, j, i)->metric = (double)(1 + i / N_ALGORITHMS) * (1 + (double)j);
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert(found.mean_act_bits <= 8 && found.mean_act_bits > 7);
    requests.act_budget = 16;
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_eq(b.entries[found.choice[j]].of_scheme, 0);
    requests.act_budget = 3.9;
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG,
             "`choice.act_budget` 3.9: the given schemes take from 4.0000 to 16.0000 bits per activation");
    requests.budget = NAN;    /* it also holds without a budget of weights */
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG, "`choice.act_budget` 3.9");
}
END_OF_TEST

int main(void)
{
    return run_tests("solve_activations",
                     (const TTest *[]){two_budgets_against_every_plan, activations_alone, NULL});
}
