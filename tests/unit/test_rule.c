/* Choice rules: near ties, the published rule, failures, and ties by order. */
#include "ptq/plan/rule.h"

#include "tests/support/harness.h"

static size_t winner(calm_choice_rule rule, const calm_contender *contenders, size_t n)
{
    size_t index = n;
    char *reason = NULL;
    ck_ok(calm_choose(ctx, rule, 1.05, "cka_token", contenders, n, &index, &reason));
    ck_assert_uint_lt(index, n);
    ck_assert_ptr_nonnull(reason);
    return index;
}

TEST(the_least_wins_when_no_other_is_near)
{
    const calm_contender c[] = {
        {"a", NULL, 2e-5, -9}, {"b", NULL, 1e-5, -1}, {"c", NULL, 1.06e-5, -9}};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 1);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_ARGMAX, c, 3), 1);
}
END_OF_TEST

TEST(near_ties_go_to_the_tie_metric)
{
    const calm_contender c[] = {
        {"a", NULL, 1.04e-5, -3}, {"b", NULL, 1e-5, -2}, {"c", NULL, 2e-5, -9}};
    size_t index;
    char *reason;
    ck_ok(calm_choose(ctx, CALM_CHOICE_RULE_TOKEN, 1.05, "cka_token", c, 3, &index, &reason));
    ck_assert_uint_eq(index, 0);
    ck_assert_msg(strstr(reason, "log_rel_mse of 2 within 1.05 of the least cka_token"), "%s", reason);
    ck_assert_msg(strstr(reason, "not the least itself"), "%s", reason);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_ARGMAX, c, 3), 1);
}
END_OF_TEST

TEST(the_bound_of_a_near_tie)
{
    calm_contender c[] = {{"a", NULL, 1.0, -1}, {"b", NULL, 1.05, -2}};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 2), 1);
    c[1].metric = nextafter(1.05, 2);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 2), 0);
    c[0].metric = c[1].metric = 0;    /* two perfect scores tie */
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 2), 1);
}
END_OF_TEST

/* A logarithm has no zero: 1.05 times the error adds log 1.05, for any value. */
TEST(near_ties_of_a_logarithm)
{
    static const char *const names[] = {"log_rel_mse", "delta_log_rel_mse"};
    static const double least[] = {-9, -0.01, 0, 0.01, 9};
    for (size_t i = 0; i < 5; i++)
        for (size_t m = 0; m < 2; m++)
            for (int near = 0; near < 2; near++) {
                /* log 1.05 = 0.0488; by the order of the shortlist's own metric the second would win. */
                const calm_contender c[] = {{"a", NULL, least[i], -1},
                                            {"b", NULL, least[i] + (near ? 0.0487 : 0.0489), -2}};
                size_t index;
                char *reason;
                ck_ok(calm_choose(ctx, CALM_CHOICE_RULE_TOKEN, 1.05, names[m], c, 2, &index, &reason));
                ck_assert_uint_eq(index, (size_t)near);
            }
    ck_near(calm_shortlist_bound("log_rel_mse", -9, 1.05), -9 + log(1.05), 1e-14);
    ck_near(calm_shortlist_bound("cka_token", 2, 1.05), 2.1, 1e-14);
    ck_near(calm_shortlist_bound("cka_debiased", -2.1, 1.05), -2, 1e-14);
}
END_OF_TEST

/* A larger factor gives a superset of the shortlist: at 1 only ties, at the largest all contenders. */
TEST(factors_of_the_shortlist)
{
    const calm_contender c[] = {{"a", NULL, 1e-5, -1}, {"b", NULL, 1e-5, -2}, {"c", NULL, 1.5e-5, -3},
                                {"d", NULL, 4e-5, -4}, {"e", NULL, 9.9, -5}};
    static const struct {
        double factor;
        size_t winner;
        const char *reason;
    } rows[] = {{1, 1, "least log_rel_mse of 2 within 1 of the least cka_token (not the least itself)"},
                {1.49, 1, "least log_rel_mse of 2 within 1.49 of the least cka_token (not the least itself)"},
                {1.51, 2, "least log_rel_mse of 3 within 1.51 of the least cka_token (not the least itself)"},
                {4.01, 3, "least log_rel_mse of 4 within 4.01 of the least cka_token (not the least itself)"},
                {CALM_SHORTLIST_MAX, 4,
                 "least log_rel_mse of 5 within 1e+06 of the least cka_token (not the least itself)"}};
    size_t index;
    char *reason;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_ok(calm_choose(ctx, CALM_CHOICE_RULE_TOKEN, rows[i].factor, "cka_token", c, 5, &index, &reason));
        ck_assert_uint_eq(index, rows[i].winner);
        ck_assert_str_eq(reason, rows[i].reason);
        ck_ok(calm_choose(ctx, CALM_CHOICE_RULE_ARGMAX, rows[i].factor, "cka_token", c, 5, &index, &reason));
        ck_assert_uint_eq(index, 0);
    }
    ck_near(calm_shortlist_bound("delta_log_rel_mse", -9, 4), -9 + log(4), 1e-14);
    ck_near(calm_shortlist_bound("cka_debiased", -2, 4), -0.5, 1e-14);
}
END_OF_TEST

/* cka_debiased may be negative: the least value is always on the shortlist. */
TEST(metrics_below_zero)
{
    calm_contender c[] = {{"a", NULL, -2, -4}, {"b", NULL, -4.2, -2}, {"c", NULL, -4.1, -3}};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 2);    /* on the shortlist: below -4.2 / 1.05 = -4 */
    c[2].metric = -3.9;
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 1);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_ARGMAX, c, 3), 1);
}
END_OF_TEST

/* The pool has the recipe's order: of equals the first wins. */
TEST(equal_values_go_to_the_first)
{
    calm_contender c[] = {{"a", NULL, 1e-5, -2}, {"b", NULL, 1e-5, -2}, {"c", NULL, 1e-5, -2}};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 0);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_ARGMAX, c, 3), 0);
    c[2].tie_metric = -3;
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 2);
    c[0].failure = "late";
    c[2].tie_metric = -2;
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 1);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_ARGMAX, c, 3), 1);
}
END_OF_TEST

TEST(what_is_not_finite_never_wins)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++)
        for (calm_choice_rule rule = CALM_CHOICE_RULE_TOKEN; rule <= CALM_CHOICE_RULE_ARGMAX; rule++) {
            const calm_contender c[] = {{"a", NULL, values[i], -9}, {"b", NULL, 5.0, 3}};
            ck_assert_uint_eq(winner(rule, c, 2), 1);
        }
}
END_OF_TEST

/* A candidate whose tie metric is NaN loses against any number, in either order. */
TEST(a_nan_tie_metric_loses)
{
    const calm_contender c[] = {{"a", NULL, 1.0, NAN}, {"b", NULL, 1.01, 3}, {"c", NULL, 1.02, NAN}};
    const calm_contender turned[] = {c[2], c[1], c[0]};
    const calm_contender last[] = {c[0], c[2], c[1]};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 3), 1);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, turned, 3), 1);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, last, 3), 2);
    const calm_contender none[] = {c[2], c[0]};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, none, 2), 0);    /* the first */
}
END_OF_TEST

TEST(failed_candidates_never_win)
{
    const calm_contender c[] = {{"a", "not positive definite", 0, -99}, {"b", NULL, 5.0, 3}};
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_TOKEN, c, 2), 1);
    ck_assert_uint_eq(winner(CALM_CHOICE_RULE_ARGMAX, c, 2), 1);
    const calm_contender all[] = {{"gptq", "not positive definite", 0, 0}, {"rtn", NULL, NAN, 0}};
    size_t index;
    char *reason;
    ck_fails(calm_choose(ctx, CALM_CHOICE_RULE_TOKEN, 1.05, "cka_token", all, 2, &index, &reason), CALM_ENUMERIC,
             "gptq: not positive definite; rtn: score is not finite");
    ck_fails(calm_choose(ctx, CALM_CHOICE_RULE_TOKEN, 1.05, "cka_token", NULL, 0, &index, &reason), CALM_ENUMERIC,
             "none was run");
}
END_OF_TEST

TEST(reasons)
{
    const calm_contender c[] = {{"a", NULL, 2.0, -9}, {"b", NULL, 1.0, -1}};
    size_t index;
    char *reason;
    ck_ok(calm_choose(ctx, CALM_CHOICE_RULE_TOKEN, 1.05, "cka_token", c, 2, &index, &reason));
    ck_assert_str_eq(reason, "least cka_token of 2, no other within 1.05");
    ck_ok(calm_choose(ctx, CALM_CHOICE_RULE_ARGMAX, 1.05, "cka", c, 2, &index, &reason));
    ck_assert_str_eq(reason, "least cka of 2");
}
END_OF_TEST

int main(void)
{
    return run_tests("rule", (const TTest *[]){the_least_wins_when_no_other_is_near, near_ties_go_to_the_tie_metric,
                                               the_bound_of_a_near_tie, near_ties_of_a_logarithm,
                                               factors_of_the_shortlist,
                                               metrics_below_zero,
                                               equal_values_go_to_the_first, what_is_not_finite_never_wins,
                                               a_nan_tie_metric_loses, failed_candidates_never_win, reasons, NULL});
}
