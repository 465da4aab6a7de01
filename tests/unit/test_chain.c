/* Chains: from text to parts, the canonical form, presets, errors. */
#include "algorithms/part.h"
#include "tests/support/harness.h"

static calm_algorithm *parsed(const char *text)
{
    calm_algorithm *algorithm;
    ck_ok(calm_algorithm_parse(ctx, text, &algorithm));
    return algorithm;
}

TEST(canonical_has_every_option_and_revision)
{
    const char *canonical = calm_algorithm_canonical(parsed("hls(signed=true)+gptq(order=none)"));
    ck_assert_str_eq(canonical, "hls@2(signed=true,rounds=8,weights=diagonal)+"
                                "gptq@2(order=none,groups=static,damp=0.01)");
    ck_assert_str_eq(calm_algorithm_canonical(parsed("rtn")), "absmax@1+nearest@1");
    canonical = calm_algorithm_canonical(parsed(" smooth( alpha = 0.75 ) + absmax + nearest( ) + ls + mkq(rounds=2)"));
    ck_assert_str_eq(canonical, "smooth@3(alpha=0.75)+absmax@1+nearest@1+ls@3(damp=0.01)+mkq@5(rounds=2,damp=0.01)");
}
END_OF_TEST

TEST(names)
{
    ck_assert_str_eq(calm_algorithm_name(parsed("gptq-hls")), "gptq-hls");
    ck_assert_str_eq(calm_algorithm_name(parsed("absmax+gptq(damp=0.01)")), "gptq");
    ck_assert_str_eq(calm_algorithm_name(parsed("smooth(alpha=0.75)+hls(rounds=8, signed=true)+gptq(damp=1e-2)")),
                     "smooth(alpha=0.75)+hls(signed=true)+gptq");
}
END_OF_TEST

TEST(place_decides_between_two_kinds)
{
    ck_assert_str_eq(calm_algorithm_canonical(parsed("ls+nearest+ls")),
                     "ls@2(signed=false,rounds=8)+nearest@1+ls@3(damp=0.01)");
    ck_assert_str_eq(calm_algorithm_canonical(parsed("absmax+nearest+mkq+ls")),
                     "absmax@1+nearest@1+mkq@5(rounds=4,damp=0.01)+ls@3(damp=0.01)");
}
END_OF_TEST

TEST(capabilities)
{
    ck_assert_uint_eq(calm_algorithm_caps(parsed("rtn")), 0);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("mkq")), CALM_NEEDS_GRAM);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("smoothquant")), CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("smoothquant-gptq")),
                      CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE | CALM_NEEDS_GRAM | CALM_NEEDS_INVERSE);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("awq")), CALM_NEEDS_SUMS | CALM_SETS_IN_SCALE | CALM_NEEDS_GRAM);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("smoothquant-actfit")),
                      CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE | CALM_NEEDS_GRAM | CALM_NEEDS_INVERSE |
                          CALM_NEEDS_SAMPLES | CALM_FITS_INPUT);
}
END_OF_TEST

/* A refit that sets input scales does not smooth outliers. */
TEST(what_smooths)
{
    static const char *const smoothing[] = {"smoothquant", "awq", "smoothquant-actfit"};
    static const char *const others[] = {"rtn", "actfit", "mkq-full", "absmax+nearest+channel"};
    for (size_t i = 0; i < sizeof smoothing / sizeof *smoothing; i++)
        ck_assert(calm_algorithm_smooths(parsed(smoothing[i])));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert(!calm_algorithm_smooths(parsed(others[i])));
    ck_assert(calm_algorithm_caps(parsed("absmax+nearest+channel")) & CALM_SETS_IN_SCALE);
}
END_OF_TEST

TEST(every_preset_parses_to_itself)
{
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i++) {
        calm_algorithm *by_name = parsed(presets[i].name), *by_chain = parsed(presets[i].chain);
        ck_assert_str_eq(calm_algorithm_name(by_name), presets[i].name);
        ck_assert_str_eq(calm_algorithm_name(by_chain), presets[i].name);
        ck_assert_str_eq(calm_algorithm_canonical(by_name), calm_algorithm_canonical(by_chain));
    }
}
END_OF_TEST

static void refused(const char *text, const char *message)
{
    calm_algorithm *algorithm;
    ck_fails(calm_algorithm_parse(ctx, text, &algorithm), CALM_EARG, message);
}

/* Checks whether a and b are the same on jobs that absorb input scales, and on others; all have biases. */
static void check_agree(const char *a, const char *b, bool absorbing, bool other)
{
    for (int turn = 0; turn < 2; turn++) {
        const calm_algorithm *one = parsed(turn ? b : a), *two = parsed(turn ? a : b);
        ck_assert_msg(calm_algorithm_agrees(one, two, true, true) == absorbing, "%s, %s", a, b);
        ck_assert_msg(calm_algorithm_agrees(one, two, false, true) == other, "%s, %s", a, b);
    }
}

TEST(chains_agree_where_scaling_is_skipped)
{
    check_agree("rtn", "absmax+nearest", true, true);
    check_agree("rtn", "smoothquant", false, true);
    check_agree("smoothquant", "smooth(alpha=0.75)+absmax+nearest", false, true);
    check_agree("smooth+awq+absmax+nearest", "rtn", false, true);
    check_agree("mkq-full", "smooth+hls(signed=true,weights=inverse)+gptq+mkq+restarts+bias", false, true);
    check_agree("mkq-full", "smoothquant-gptq", false, false);    /* it corrects no biases */
    check_agree("actfit", "smoothquant-actfit", false, true);
    check_agree("awq", "mse+nearest", false, true);
    check_agree("awq", "rtn", false, false);
    check_agree("gptq-hls", "smoothquant-gptq", false, false);
    check_agree("gptq", "absmax+gptq(damp=0.02)", false, false);
    check_agree("gptq-hls", "mkq-full", false, false);
    /* The same name of another kind: ls is a grid and a refit. */
    check_agree("ls+nearest", "absmax+nearest+ls", false, false);
}
END_OF_TEST

TEST(chains_agree_where_biases_are_not_there)
{
    const calm_algorithm *plain = parsed("hls(signed=true)+gptq+mkq"), *with = parsed("hls(signed=true)+gptq+mkq+bias");
    const calm_algorithm *smooth = parsed("smooth+hls(signed=true)+gptq+mkq+bias");
    for (int absorbs = 0; absorbs < 2; absorbs++) {
        ck_assert(calm_algorithm_agrees(plain, with, absorbs, false));
        ck_assert(!calm_algorithm_agrees(plain, with, absorbs, true));
        ck_assert(calm_algorithm_agrees(plain, smooth, absorbs, false) == !absorbs);
        ck_assert(calm_algorithm_agrees(with, smooth, absorbs, true) == !absorbs);
    }
}
END_OF_TEST

/* Kept rows are not needed if inputs stay float, or if no bias is corrected. */
TEST(needs_of_a_job)
{
    calm_scheme w4a16, w4a4;
    ck_ok(calm_scheme_parse(ctx, "w4a16_g16", &w4a16));
    ck_ok(calm_scheme_parse(ctx, "w4a4_g16", &w4a4));
    const calm_algorithm *with = parsed("absmax+gptq+bias");
    ck_assert_uint_eq(calm_algorithm_needs(with, &w4a4, true), CALM_NEEDS_GRAM | CALM_NEEDS_SAMPLES);
    ck_assert_uint_eq(calm_algorithm_needs(with, &w4a4, false), CALM_NEEDS_GRAM);
    ck_assert_uint_eq(calm_algorithm_needs(with, &w4a16, true), CALM_NEEDS_GRAM);
    ck_assert_uint_eq(calm_algorithm_needs(parsed("actfit"), &w4a4, false), CALM_NEEDS_GRAM | CALM_NEEDS_SAMPLES);
    ck_assert(calm_algorithm_is_preset(parsed("gptq")) && calm_algorithm_is_preset(parsed("absmax+nearest")));
    ck_assert(!calm_algorithm_is_preset(with));
}
END_OF_TEST

TEST(wrong_order)
{
    refused("nearest+absmax", "expected a grid (or a transform), found the rounding \"nearest\"");
    refused("absmax+smooth+nearest", "expected a rounding, found the transform \"smooth\"");
    refused("absmax+nearest+gptq", "expected a refit, found the rounding \"gptq\"");
    refused("absmax+nearest+ls+nearest", "expected a refit");
    refused("gptq(damp=0.02)", "a grid before the rounding \"gptq\"; did you mean absmax+gptq(damp=0.02)?");
    refused("absmax+awq+nearest", "expected a rounding, found the transform \"awq\"");
    refused("awq+cd", "expected a grid (or a transform), found the rounding \"cd\"");
    refused("absmax+nearest+cd", "expected a refit, found the rounding \"cd\"");
    refused("absmax+hls+nearest", "expected a rounding, found the grid \"hls\"");
    refused("absmax+mkq", "expected a rounding, found the refit \"mkq\"");
    refused("absmax+nearest+actfit", "expected a refit, found the transform \"actfit\"");
    refused("actfit+smooth+absmax+nearest", "smooth comes after actfit");
    refused("smooth+actfit+awq+absmax+nearest", "awq comes after actfit");
    refused("actfit+actfit+absmax+nearest", "must be the last transform");
    refused("smooth+actfit", "ends without a grid and a rounding");
    refused("absmax", "ends without a rounding");
    refused("smooth", "ends without a grid and a rounding");
}
END_OF_TEST

TEST(wrong_words)
{
    refused("gptk", "did you mean \"gptq\"");
    refused("absmax+neerest", "did you mean \"nearest\"");
    refused("xyzzy-plugh", "calm algorithms");
    refused("mse+rtn", "\"rtn\" is a whole chain, absmax+nearest");
    refused("rtn(damp=1)", "whole chain");
    refused("", "nothing is called \"\"");
    refused("absmax++nearest", "nothing is called \"\"");
    refused("absmax+gptq(dampp=1)", "did you mean \"damp\"");
    refused("absmax+gptq(damp=7)", "outside");
    refused("absmax+gptq(damp=x)", "expected a number");
    refused("absmax+gptq(order=up)", "activation|none");
    refused("absmax+gptq(damp)", "expected option=value");
    refused("absmax(p=1)+nearest", "it takes none");
    refused("awq(ratio=0.5)+mse+nearest", "it takes none");
    refused("actfit(lambda=0)+absmax+nearest", "outside");
    refused("actfit(lamda=0.1)+absmax+nearest", "did you mean \"lambda\"");
    refused("absmax+cd(sweeps=0)", "outside");
    refused("absmax+cd(sweeps=1.5)", "expected");
    refused("actft", "did you mean \"actfit\"");
    refused("absmax+gptq(damp=0.1", "parentheses");
    refused("absmax+gptq)", "parentheses");
    refused("absmax+gptq(damp=0.1)x", "parentheses");
    refused("absmax+gptq(groups=sequential)", "needs order=none");
    refused("absmax+nearest+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls", "more than 16");
}
END_OF_TEST

TEST(part_names_are_unique_in_their_kind)
{
    size_t n;
    const calm_part *const *parts = calm_parts(&n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_ge(parts[i]->revision, 1);
        ck_assert_str_ne(parts[i]->summary, "");
        ck_assert_uint_eq(strspn(parts[i]->name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(parts[i]->name));
        for (size_t k = 0; k < i; k++)
            ck_assert(parts[i]->kind != parts[k]->kind || strcmp(parts[i]->name, parts[k]->name) != 0);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("chain", (const TTest *[]){canonical_has_every_option_and_revision, names,
                                                place_decides_between_two_kinds, capabilities, what_smooths,
                                                every_preset_parses_to_itself,
                                                chains_agree_where_scaling_is_skipped,
                                                chains_agree_where_biases_are_not_there,
                                                needs_of_a_job, wrong_order, wrong_words,
                                                part_names_are_unique_in_their_kind, NULL});
}
