/* Chains: text to parts, canonical form, presets, errors. */
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
    ck_assert_str_eq(canonical, "hls@1(signed=true,rounds=8)+gptq@1(order=none,groups=static,damp=0.01)");
    ck_assert_str_eq(calm_algorithm_canonical(parsed("rtn")), "absmax@1+nearest@1");
    ck_assert_str_eq(calm_algorithm_canonical(parsed(" smooth( alpha = 0.75 ) + absmax + nearest( ) + ls + mkq(rounds=2)")),
                     "smooth@1(alpha=0.75)+absmax@1+nearest@1+ls@1(damp=0.01)+mkq@1(rounds=2,damp=0.01)");
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
                     "ls@1(signed=false,rounds=8)+nearest@1+ls@1(damp=0.01)");
    ck_assert_str_eq(calm_algorithm_canonical(parsed("absmax+nearest+mkq+ls")),
                     "absmax@1+nearest@1+mkq@1(rounds=4,damp=0.01)+ls@1(damp=0.01)");
}
END_OF_TEST

TEST(capabilities)
{
    ck_assert_uint_eq(calm_algorithm_caps(parsed("rtn")), 0);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("mkq")), CALM_NEEDS_GRAM);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("smoothquant")), CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE);
    ck_assert_uint_eq(calm_algorithm_caps(parsed("smoothquant-gptq")),
                      CALM_NEEDS_ABSMAX | CALM_SETS_IN_SCALE | CALM_NEEDS_GRAM);
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

TEST(wrong_order)
{
    calm_algorithm *a;
    ck_fails(calm_algorithm_parse(ctx, "nearest+absmax", &a), CALM_EARG, "expected a grid (or a transform), found the rounding \"nearest\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax+smooth+nearest", &a), CALM_EARG, "expected a rounding, found the transform \"smooth\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax+nearest+gptq", &a), CALM_EARG, "expected a refit, found the rounding \"gptq\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax+nearest+ls+nearest", &a), CALM_EARG, "expected a refit");
    ck_fails(calm_algorithm_parse(ctx, "gptq(damp=0.02)", &a), CALM_EARG, "expected a grid");
    ck_fails(calm_algorithm_parse(ctx, "absmax", &a), CALM_EARG, "ends without a rounding");
    ck_fails(calm_algorithm_parse(ctx, "smooth", &a), CALM_EARG, "ends without a grid and a rounding");
}
END_OF_TEST

TEST(wrong_words)
{
    calm_algorithm *a;
    ck_fails(calm_algorithm_parse(ctx, "gptk", &a), CALM_EARG, "did you mean \"gptq\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax+neerest", &a), CALM_EARG, "did you mean \"nearest\"");
    ck_fails(calm_algorithm_parse(ctx, "xyzzy-plugh", &a), CALM_EARG, "calm algorithms");
    ck_fails(calm_algorithm_parse(ctx, "", &a), CALM_EARG, "nothing is called \"\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax++nearest", &a), CALM_EARG, "nothing is called \"\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(dampp=1)", &a), CALM_EARG, "did you mean \"damp\"");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(damp=7)", &a), CALM_EARG, "outside");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(damp=x)", &a), CALM_EARG, "expected a number");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(order=up)", &a), CALM_EARG, "activation|none");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(damp)", &a), CALM_EARG, "expected option=value");
    ck_fails(calm_algorithm_parse(ctx, "absmax(p=1)+nearest", &a), CALM_EARG, "it takes none");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(damp=0.1", &a), CALM_EARG, "parentheses");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq)", &a), CALM_EARG, "parentheses");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(damp=0.1)x", &a), CALM_EARG, "parentheses");
    ck_fails(calm_algorithm_parse(ctx, "absmax+gptq(groups=sequential)", &a), CALM_EARG, "needs order=none");
    ck_fails(calm_algorithm_parse(ctx, "absmax+nearest+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls+ls", &a), CALM_EARG, "more than 16");
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
                                                place_decides_between_two_kinds, capabilities,
                                                every_preset_parses_to_itself, wrong_order, wrong_words,
                                                part_names_are_unique_in_their_kind, NULL});
}
