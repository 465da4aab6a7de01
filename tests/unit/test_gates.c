/* Gates: what is parsed, what is refused before a run, and which gates hold. */
#include "ptq/recipe/gates.h"

#include "tests/support/harness.h"

static calm_gate parse(const char *text)
{
    calm_gate gate;
    ck_ok(calm_gate_parse(ctx, text, &gate));
    return gate;
}

TEST(blanks_do_not_matter)
{
    static const char *const texts[] = {"ppl_ratio <= 1.05", "ppl_ratio<=1.05", "  ppl_ratio  <=\t1.05 "};
    for (size_t i = 0; i < 3; i++) {
        const calm_gate gate = parse(texts[i]);
        ck_assert_str_eq(gate.text, "ppl_ratio <= 1.05");
        ck_assert_int_eq(gate.op, CALM_GATE_LE);
        ck_near(gate.bound, 1.05, 0);
    }
}
END_OF_TEST

TEST(operators_hold_at_and_beside_the_bound)
{
    static const struct {
        const char *gate;
        bool below, at, above;
    } rows[] = {{"kl <= 2", true, true, false}, {"kl < 2", true, false, false},
                {"kl >= 2", false, true, true}, {"kl > 2", false, false, true}};
    for (size_t i = 0; i < 4; i++) {
        const calm_gate gate = parse(rows[i].gate);
        ck_assert_int_eq(calm_gate_holds(&gate, 1.999), rows[i].below);
        ck_assert_int_eq(calm_gate_holds(&gate, 2), rows[i].at);
        ck_assert_int_eq(calm_gate_holds(&gate, 2.001), rows[i].above);
        ck_assert(!calm_gate_holds(&gate, NAN));
    }
}
END_OF_TEST

TEST(every_figure_is_known)
{
    static const char *const names[] = {"ppl", "ppl_float", "ppl_ratio", "kl", "top1", "bits", "bytes", "size_ratio",
                                        "cosine", "cosine_min", "spearman", "error"};
    ck_assert_uint_eq(sizeof names / sizeof *names, CALM_N_FIGURES);
    for (calm_figure figure = 0; figure < CALM_N_FIGURES; figure++)
        ck_assert_int_eq(parse(test_format("%s > 0", names[figure])).figure, figure);
}
END_OF_TEST

TEST(what_is_no_gate_is_refused)
{
    static const char *const wrong[][2] = {
        {"ppl_rato <= 1", "did you mean ppl_ratio?"}, {"", "nothing measured"}, {"<= 1", "nothing measured"},
        {"ppl = 3", "expected NAME OP NUMBER"},       {"ppl == 3", "expected NAME OP NUMBER"},
        {"ppl", "expected NAME OP NUMBER"},           {"ppl <=", "expected NAME OP NUMBER"},
        {"ppl <= x", "expected NAME OP NUMBER"},      {"ppl <= 3 4", "expected NAME OP NUMBER"},
        {"ppl <= nan", "expected NAME OP NUMBER"},    {"ppl <= inf", "expected NAME OP NUMBER"},
        {"ppl => 3", "expected NAME OP NUMBER"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        calm_gate gate;
        ck_fails(calm_gate_parse(ctx, wrong[i][0], &gate), CALM_EARG, wrong[i][1]);
    }
}
END_OF_TEST

TEST(what_a_run_does_not_measure_is_refused)
{
    calm_gate *gates;
    size_t n;
    ck_ok(calm_gates_parse(ctx, &(calm_words){(const char *[]){"bits <= 4.5", "ppl_ratio <= 1.05"}, 2}, &gates, &n));
    ck_assert_uint_eq(n, 2);
    ck_ok(calm_gates_check(ctx, gates, n, true, 0, false));
    ck_ok(calm_gates_check(ctx, gates, n, true, -1, false));
    ck_ok(calm_gates_check(ctx, gates, 1, false, 1, false));
    ck_fails(calm_gates_check(ctx, gates, n, false, 0, false), CALM_EARG,
             "\"ppl_ratio <= 1.05\": this run does not evaluate");
    ck_fails(calm_gates_check(ctx, gates, n, true, 1, false), CALM_EARG, "an encoder");
    ck_fails(calm_gates_check(ctx, gates, n, true, 0, true), CALM_EARG, "several budgets");
    ck_ok(calm_gates_parse(ctx, &(calm_words){(const char *[]){"cosine >= 0.99"}, 1}, &gates, &n));
    ck_ok(calm_gates_check(ctx, gates, n, true, 1, false));
    ck_fails(calm_gates_check(ctx, gates, n, true, 0, false), CALM_EARG, "a decoder");
}
END_OF_TEST

int main(void)
{
    return run_tests("gates", (const TTest *[]){blanks_do_not_matter, operators_hold_at_and_beside_the_bound,
                                                every_figure_is_known, what_is_no_gate_is_refused,
                                                what_a_run_does_not_measure_is_refused, NULL});
}
