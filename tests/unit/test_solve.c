/* Choices from rows: against brute force, and every wish that a user may have. */
#include "ptq/plan/solve.h"

#include <stdio.h>

#include "tests/support/small_pool.h"

/* A word that is typed as the pool has it. */
#define WORD(text) {text, text}

static const calm_requests nothing = {.budget = NAN};

/* ---- against brute force ---- */

TEST(the_rule_alone)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        bench b;
        calm_solution found;
        make(seed, &b);
        ck_ok(calm_solve(ctx, &b.pool, &nothing, &found));
        ck_assert_uint_eq(b.pool.n_units, N_JOBS);
        for (size_t j = 0; j < N_JOBS; j++)
            ck_assert_uint_eq(found.choice[j], plain_winner(&b, j, 0, N_ENTRIES));
    }
}
END_OF_TEST

static void check_budget(bench *b, double budget, bool probed)
{
    const calm_requests requests = {.budget = budget};
    calm_solution found;
    double least = INFINITY, bits;
    size_t option[N_JOBS];
    for (size_t code = 0; code < N_PLANS; code++) {
        nth_plan(code, option);
        const double loss = plain_loss(b, option, probed, &bits);
        least = bits <= budget + 1e-9 ? fmin(least, loss) : least;
    }
    ck_ok(calm_solve(ctx, &b->pool, &requests, &found));
    schemes_of(&found, option);
    for (size_t j = 0; j < N_JOBS; j++) {
        ck_assert_uint_eq(found.choice[j], plain_winner(b, j, option[j] * N_ALGORITHMS, N_ALGORITHMS));
    }
    /* Six losses are summed in another order: a few units in the last place. */
    ck_near(plain_loss(b, option, probed, &bits), least, 1e-14 * (1 + least));
    ck_assert_msg(bits <= budget + 1e-9, "%g bits of %g", bits, budget);
    ck_near(found.bits_per_weight, bits, 1e-12);
    ck_assert_int_eq(found.unprobed > 0, !probed);
}

TEST(budgets_against_every_plan)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        bench b;
        make(seed, &b);
        for (double budget = 3; budget <= 5; budget += 0.25)
            check_budget(&b, budget, true);
        row(&b, 2, 0)->probe = row(&b, 2, 1)->probe = NAN;    /* one unit without a probe: no probe is used */
        for (double budget = 3; budget <= 5; budget += 0.5)
            check_budget(&b, budget, false);
    }
}
END_OF_TEST

/* The same errors as logarithms, or as roots with the root of the factor: the same near ties, sums of losses and
 * plans. */
static void check_written(const char *metric, double (*write)(double), double shortlist)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int probed = 0; probed < 2; probed++) {
            bench plain, other;
            make(seed, &plain);
            make(seed, &other);
            other.pool.metric = metric;
            other.pool.shortlist = shortlist;
            row(&plain, 2, 0)->probe = row(&plain, 2, 1)->probe = probed ? 0.3 : NAN;
            row(&other, 2, 0)->probe = row(&other, 2, 1)->probe = probed ? 0.3 : NAN;
            for (size_t i = 0; i < N_JOBS * N_ENTRIES; i++)
                other.rows[i].metric = write(other.rows[i].metric);
            for (double budget = 3; budget <= 5; budget += 0.25) {
                const calm_requests requests = {.budget = budget};
                calm_solution a, b;
                ck_ok(calm_solve(ctx, &plain.pool, &requests, &a));
                ck_ok(calm_solve(ctx, &other.pool, &requests, &b));
                for (size_t u = 0; u < N_JOBS; u++)
                    ck_assert_uint_eq(a.choice[u], b.choice[u]);
                /* log and exp, or root and square, round once each: a few units in the last place. */
                ck_near(a.total.loss, b.total.loss, 1e-13 * a.total.loss);
            }
        }
}

TEST(budgets_of_a_logarithm)
{
    check_written("log_rel_mse", log, 1.05);
}
END_OF_TEST

TEST(budgets_of_an_absolute_error)
{
    check_written("rel_mae", sqrt, sqrt(1.05));
    check_written("delta_rel_mae", sqrt, sqrt(1.05));
}
END_OF_TEST

/* The probe of an entry that is no option any more still gives the cost of the unit's score. */
TEST(a_probe_of_another_entry)
{
    bench b;
    calm_solution found;
    const calm_word forbid[] = {WORD("rtn w2a16_g16")};
    const calm_requests requests = {.forbid = forbid, .n_forbid = 1, .budget = 4};
    make(1, &b);
    for (size_t j = 0; j < N_JOBS; j++)
        row(&b, j, 1)->probe = NAN;
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(found.unprobed, 0);
    ck_assert(strstr(found.reasons[0], "predicted KL") == found.reasons[0]);
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_ne(found.choice[j], 0);
}
END_OF_TEST

TEST(budgets_out_of_reach)
{
    bench b;
    calm_solution found;
    calm_requests requests = {.budget = 2.9};
    make(1, &b);
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG, "take from 3.0000 to 5.0000 bits per weight");
    requests.budget = 5.1;
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG, "take from 3.0000 to 5.0000");
    /* Pins change the range: 2/6 of the weights at 4 bits, 4/6 at 3. */
    const calm_pin pin = {"*.o", WORD("gptq w3a16_g16"), 1};
    requests = (calm_requests){.pins = &pin, .n_pins = 1, .budget = 3.2};
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG, "take from 3.3333 to 4.6667");
    requests.budget = 3.34;
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(found.choice[1], 3);
    ck_assert_str_eq(found.reasons[1], "pinned");
}
END_OF_TEST

/* ---- requests ---- */

static calm_solution solve_with(bench *b, const calm_word *forbid, size_t n_forbid, const calm_pin *pins,
                                size_t n_pins)
{
    const calm_requests requests = {
        .forbid = forbid, .n_forbid = n_forbid, .pins = pins, .n_pins = n_pins, .budget = NAN};
    calm_solution found;
    ck_ok(calm_solve(ctx, &b->pool, &requests, &found));
    return found;
}

TEST(forbidding)
{
    bench b;
    static const calm_word algorithm[] = {WORD("gptq")}, one[] = {WORD("gptq w4a16_g16"), WORD("rtn w4a16_g16")};
    make(3, &b);
    const calm_solution free_choice = solve_with(&b, NULL, 0, NULL, 0);
    const calm_solution without = solve_with(&b, algorithm, 1, NULL, 0), narrow = solve_with(&b, one, 2, NULL, 0);
    for (size_t j = 0; j < N_JOBS; j++) {
        ck_assert_str_eq(b.entries[without.choice[j]].algorithm, "rtn");
        ck_assert_uint_lt(b.entries[narrow.choice[j]].of_scheme, 2);
        ck_assert_uint_eq(narrow.choice[j], plain_winner(&b, j, 0, 4));
    }
    /* A forbidden candidate is left out where it competes, and nowhere else. */
    const char *number = test_format("#%lld", (long long)row(&b, 2, free_choice.choice[2])->id);
    const calm_word numbers[] = {WORD(number)};
    const calm_solution other = solve_with(&b, numbers, 1, NULL, 0);
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_int_eq(other.choice[j] == free_choice.choice[j], j != 2);
}
END_OF_TEST

TEST(pinning)
{
    bench b;
    make(4, &b);
    const calm_solution free_choice = solve_with(&b, NULL, 0, NULL, 0);
    const calm_pin pins[] = {{"model.layers.0.*", WORD("rtn w2a16_g16"), 1}, {"0.o", WORD("#12"), 1},
                                   {"model.layers.1.qkv", WORD("rtn"), 1}};
    const calm_solution found = solve_with(&b, NULL, 0, pins, 3);
    ck_assert_uint_eq(found.choice[0], 0);
    ck_assert_uint_eq(found.choice[1], 5);    /* candidate 12: the last entry of the second job */
    ck_assert_uint_eq(found.choice[2], 0);
    ck_assert_str_eq(found.reasons[0], "pinned");
    ck_assert_str_eq(b.entries[found.choice[3]].algorithm, "rtn");    /* the rule chooses within the width */
    ck_assert(strncmp(found.reasons[3], "pinned; least", 13) == 0);
    ck_assert_uint_eq(found.choice[4], free_choice.choice[4]);
    ck_assert_uint_eq(found.choice[5], free_choice.choice[5]);
}
END_OF_TEST

static void refuse(bench *b, const char *forbid, const char *unit, const char *candidate, const char *message)
{
    const calm_pin pin = {unit, WORD(candidate), 1};
    const calm_word word = WORD(forbid);
    const calm_requests requests = {.forbid = &word, .n_forbid = forbid != NULL, .pins = &pin,
                                      .n_pins = unit != NULL, .budget = NAN};
    calm_solution found;
    const calm_status status = strstr(message, "no such result") ? CALM_ENUMERIC : CALM_EARG;
    ck_fails(calm_solve(ctx, &b->pool, &requests, &found), status, message);
}

TEST(requests_that_name_nothing)
{
    bench b;
    make(5, &b);
    refuse(&b, "gptk", NULL, NULL,
           "`choice.forbid` gptk: no candidate has that name (did you mean \"gptq\"?); there are rtn w2a16_g16, ");
    refuse(&b, "gptq w3a16_g17", NULL, NULL, "did you mean \"gptq w3a16_g16\"?");
    refuse(&b, "zzzzzzzzzzzz", NULL, NULL, "no candidate has that name; there are");
    refuse(&b, "#0", NULL, NULL, "`choice.forbid` #0: the run has no such candidate");
    refuse(&b, "#37", NULL, NULL, "no such candidate");
    refuse(&b, "#1x", NULL, NULL, "no such candidate");
    refuse(&b, "#", NULL, NULL, "no such candidate");
    refuse(&b, "#99999999999999999999999", NULL, NULL, "no such candidate");
    refuse(&b, NULL, "model.layers.0.qvk", "gptq",
           "this run has no job of that name; did you mean \"model.layers.0.qkv\"?");
    refuse(&b, NULL, "nowhere*", "gptq", "no job of that name; they are like 0.qkv");
    refuse(&b, NULL, "[", "gptq", "no job of that name");
    refuse(&b, NULL, "*", "rtm", "did you mean \"rtn\"?");
    refuse(&b, NULL, "*.o", "#1", "that candidate is of model.layers.0.qkv, not of model.layers.0.o");
    refuse(&b, "gptq", "*.o", "gptq w2a16_g16", "`choice.forbid` leaves that out for model.layers.0.o");
    const calm_word all[] = {WORD("gptq"), WORD("rtn")};
    const calm_requests requests = {.forbid = all, .n_forbid = 2, .budget = NAN};
    calm_solution found;
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG,
             "`choice.forbid` leaves nothing for model.layers.0.qkv");
}
END_OF_TEST

/* ---- candidates that cannot win ---- */

TEST(failures)
{
    bench b;
    calm_solution found;
    make(6, &b);
    const size_t winner = plain_winner(&b, 1, 0, N_ENTRIES);
    row(&b, 1, winner)->failure = "not positive definite";
    row(&b, 1, winner)->blob = NULL;
    ck_ok(calm_solve(ctx, &b.pool, &nothing, &found));
    ck_assert_uint_ne(found.choice[1], winner);
    refuse(&b, NULL, "model.layers.0.o", b.entries[winner].name, "has no such result: not positive definite");
    for (size_t i = 0; i < N_ENTRIES; i++)
        row(&b, 1, i)->id = 0;    /* not tried */
    ck_fails(calm_solve(ctx, &b.pool, &nothing, &found), CALM_ENUMERIC, "model.layers.0.o: no candidate can be chosen");
    const calm_requests requests = {.budget = 4};
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_ENUMERIC,
             "model.layers.0.o: every candidate of every width");
}
END_OF_TEST

/* If a job of the unit failed, its entry is out for the whole unit. */
TEST(units_of_several_jobs)
{
    bench b;
    calm_solution found;
    make(7, &b);
    for (size_t j = 0; j < N_JOBS; j++)
        b.jobs[j].unit = test_format("model.layers.%zu", j / 3);
    b.pool.unit = CALM_UNIT_BLOCK;
    ck_ok(calm_pool_index(ctx, &b.pool));
    ck_ok(calm_solve(ctx, &b.pool, &nothing, &found));
    ck_assert_uint_eq(b.pool.n_units, 2);
    const size_t winner = plain_winner(&b, 3, 0, N_ENTRIES);
    ck_assert_uint_eq(found.choice[1], winner);
    row(&b, 5, winner)->failure = "late";
    ck_ok(calm_solve(ctx, &b.pool, &nothing, &found));
    ck_assert_uint_ne(found.choice[1], winner);
    refuse(&b, NULL, "model.layers.1", b.entries[winner].name, "has no such result: late");
}
END_OF_TEST

TEST(missing_scores)
{
    bench b;
    calm_solution found;
    make(8, &b);
    row(&b, 4, plain_winner(&b, 4, 0, N_ENTRIES))->metric = NAN;
    ck_ok(calm_solve(ctx, &b.pool, &nothing, &found));    /* it only loses, as in the run */
    b.pool.every = true;
    ck_fails(calm_solve(ctx, &b.pool, &nothing, &found), CALM_EARG, "model.layers.1.o: ");
    for (size_t i = 0; i < N_ENTRIES; i++)
        row(&b, 4, i)->metric = NAN;
    b.pool.every = false;
    ck_fails(calm_solve(ctx, &b.pool, &nothing, &found), CALM_EARG,
             "model.layers.1.o: no candidate has a cka_token; measure it");
    /* An expert may have seen too few tokens. */
    b.jobs[4].expert = true;
    row(&b, 4, 0)->failure = "dead";
    ck_ok(calm_solve(ctx, &b.pool, &nothing, &found));
    ck_assert_uint_eq(found.choice[4], 1);
    ck_assert(strstr(found.reasons[4], "too few scoring tokens"));
    const calm_requests requests = {.budget = 5};
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(found.unprobed, 0);    /* without scores: its narrowest option */
    ck_assert_uint_eq(b.entries[found.choice[4]].of_scheme, 0);
}
END_OF_TEST

/* ---- what a budget cannot buy ---- */

/* Returns the loss of a plan of gptq, option[j] being the number of a scheme; INFINITY if a unit's output is
 * constant. */
static double dead_loss(bench *b, const size_t *option, double *bits)
{
    double loss = 0, weights = 0;
    *bits = 0;
    for (size_t j = 0; j < N_JOBS; j++)
        weights += (double)(b->jobs[j].out * b->jobs[j].in);
    for (size_t j = 0; j < N_JOBS; j++) {
        loss += row(b, j, option[j] * N_ALGORITHMS + 1)->metric * (double)(b->jobs[j].out * b->jobs[j].in) / weights;
        *bits += job_bits(b, j, option[j]) / weights;
    }
    return loss;
}

/* Compares the plan of a budget with all 3^6; returns false if no possible plan fits. */
static bool check_dead(bench *b, double budget)
{
    static const calm_word rtn[] = {WORD("rtn")};
    const calm_requests requests = {.forbid = rtn, .n_forbid = 1, .budget = budget};
    calm_solution found;
    double least = INFINITY, bits;
    size_t option[N_JOBS];
    for (size_t code = 0; code < N_PLANS; code++) {
        nth_plan(code, option);
        const double loss = dead_loss(b, option, &bits);
        least = bits <= budget + 1e-9 ? fmin(least, loss) : least;
    }
    if (isinf(least)) {
        ck_fails(calm_solve(ctx, &b->pool, &requests, &found), CALM_EARG, "the given schemes take from");
        return false;
    }
    ck_ok(calm_solve(ctx, &b->pool, &requests, &found));
    schemes_of(&found, option);
    /* Six losses are summed in another order: a few units in the last place. */
    ck_near(dead_loss(b, option, &bits), least, 1e-14 * (1 + least));
    ck_assert_msg(bits <= budget + 1e-9, "%g bits of %g", bits, budget);
    return true;
}

/* A score of infinity means that the unit's output is constant: no plan has it, however cheap.  With one algorithm
 * no other candidate of the scheme hides it. */
TEST(dead_units_are_never_bought)
{
    size_t n_solved = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        bench b;
        make(seed, &b);
        for (size_t j = 0; j < N_JOBS; j++) {
            for (size_t i = 0; i < N_ENTRIES; i++)
                row(&b, j, i)->probe = NAN;
            /* All schemes of the unit but one may be dead. */
            for (size_t s = 0; s < N_SCHEMES; s++)
                if (s != (seed + j) % N_SCHEMES && calm_rng_uniform(seed, 9, j * N_SCHEMES + s) < 0.5)
                    row(&b, j, s * N_ALGORITHMS + 1)->metric = INFINITY;
        }
        for (double budget = 3; budget <= 5; budget += 0.25) {
            const bool solved = check_dead(&b, budget);
            n_solved += solved;
            n_refused += !solved;
        }
    }
    ck_assert_uint_gt(n_solved, 20);
    ck_assert_uint_gt(n_refused, 20);
}
END_OF_TEST

/* A probe of a dead option gives no cost for finite scores, and a pin is followed nevertheless. */
TEST(dead_units_probed_and_pinned)
{
    bench b;
    calm_solution found;
    static const calm_word rtn[] = {WORD("rtn")};
    const calm_pin pin = {"0.qkv", WORD("gptq w2a16_g16"), 1};
    calm_requests requests = {.forbid = rtn, .n_forbid = 1, .budget = 4};
    make(1, &b);
    row(&b, 0, 1)->metric = INFINITY;
    row(&b, 0, 3)->probe = 0.5;
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(found.unprobed, 0);
    ck_assert_uint_ne(found.choice[0], 1);
    requests.pins = &pin;
    requests.n_pins = 1;
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(found.choice[0], 1);
    /* If some scores are missing, their candidates lose, as without a budget. */
    row(&b, 1, 1)->metric = NAN;
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_ne(found.choice[1], 1);
    for (size_t s = 0; s < N_SCHEMES; s++)
        row(&b, 2, s * N_ALGORITHMS + 1)->metric = INFINITY;
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_ENUMERIC,
             "model.layers.0.down: every candidate of every width failed");
}
END_OF_TEST

static calm_status solve_scheme(bench *b, const calm_requests *requests, size_t scheme, calm_solution *found)
{
    calm_scope scope;
    ck_ok(calm_scope_open(ctx, &b->pool, requests, &scope));
    return calm_solve_scheme(ctx, &b->pool, &scope, scheme, found);
}

TEST(one_scheme_throughout)
{
    bench b;
    calm_solution found;
    make(9, &b);
    ck_ok(solve_scheme(&b, &nothing, 1, &found));
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_eq(found.choice[j], plain_winner(&b, j, 2, 2));
    ck_near(found.bits_per_weight, 4, 1e-12);
    /* Pinned units keep their pins, in a plan of uniform width and in one of a single entry. */
    const calm_pin pin = {"*.o", WORD("gptq w4a16_g16"), 0};
    const calm_requests requests = {.pins = &pin, .n_pins = 1, .budget = NAN};
    ck_ok(solve_scheme(&b, &requests, 1, &found));
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_eq(found.choice[j], j % 3 == 1 ? 5 : plain_winner(&b, j, 2, 2));
    calm_scope scope;
    ck_ok(calm_scope_open(ctx, &b.pool, &requests, &scope));
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 0, &found));
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_eq(found.choice[j], j % 3 == 1 ? 5 : 0);
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_str_eq(found.reasons[1], "pinned by the recipe");
    row(&b, 0, 2)->failure = row(&b, 0, 3)->failure = "dead";
    ck_fails(solve_scheme(&b, &nothing, 1, &found), CALM_ENUMERIC, "model.layers.0.qkv");
}
END_OF_TEST

/* A uniform plan with one failed candidate has the rule's candidate of the same scheme there. */
TEST(failed_candidates_of_a_uniform_plan)
{
    bench b;
    calm_scope scope;
    calm_solution found;
    make(10, &b);
    ck_ok(calm_scope_open(ctx, &b.pool, &nothing, &scope));
    row(&b, 4, 3)->failure = "not positive definite";
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 3, &found));
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_eq(found.choice[j], j == 4 ? 2 : 3);
    ck_assert_str_eq(found.substituted, "no candidate in 1 of 6 units: model.layers.1.o (not positive definite), "
                                        "there rtn w3a16_g16");
    ck_near(found.bits_per_weight, 4, 1e-12);
    row(&b, 0, 3)->failure = row(&b, 1, 3)->failure = "late";
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 3, &found));
    ck_assert_str_eq(found.substituted, "no candidate in 3 of 6 units, first model.layers.0.qkv (late), there rtn "
                                        "w3a16_g16");
    /* Without another candidate of the scheme there is no such plan, and its failure says why. */
    row(&b, 1, 2)->failure = "late too";
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 3, &found));
    ck_assert_uint_eq(found.choice[1], 3);
    /* An entry that failed everywhere is no plan, although others could replace it in every unit. */
    for (size_t j = 0; j < N_JOBS; j++)
        row(&b, j, 5)->failure = "dead";
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 5, &found));
    for (size_t j = 0; j < N_JOBS; j++)
        ck_assert_uint_eq(found.choice[j], 5);
    ck_assert_ptr_null(found.substituted);
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 4, &found));
    ck_assert_ptr_null(found.substituted);
    /* Pinned units are not substituted, and do not count for the entry. */
    const calm_pin pin = {"0.*", WORD("gptq w2a16_g16"), 0};
    const calm_requests requests = {.pins = &pin, .n_pins = 1, .budget = NAN};
    ck_ok(calm_scope_open(ctx, &b.pool, &requests, &scope));
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 3, &found));
    ck_assert_uint_eq(found.choice[0], 1);
    ck_assert_uint_eq(found.choice[4], 2);
    ck_assert(strncmp(found.substituted, "no candidate in 1 of 6 units: model.layers.1.o", 46) == 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("solve", (const TTest *[]){
        the_rule_alone, budgets_against_every_plan, budgets_of_a_logarithm, budgets_of_an_absolute_error,
        a_probe_of_another_entry, budgets_out_of_reach, forbidding, pinning,
        requests_that_name_nothing, failures, units_of_several_jobs, missing_scores,
        dead_units_are_never_bought, dead_units_probed_and_pinned, one_scheme_throughout,
        failed_candidates_of_a_uniform_plan, NULL});
}
