/* Schemes: names, canonical form, bits per weight. */
#include "ptq/quant/scheme.h"
#include "tests/support/harness.h"

static void check_name(const char *given, const char *canonical)
{
    calm_scheme scheme;
    char name[CALM_SCHEME_NAME_MAX];
    ck_ok(calm_scheme_parse(ctx, given, &scheme));
    calm_scheme_name(&scheme, name);
    ck_assert_str_eq(name, canonical);
}

TEST(names_round_trip)
{
    static const char *const names[] = {"w4a16_g128",
                                        "w4a16_g128_asym",
                                        "w4a16_g128_or32_asym",
                                        "w4a8_g128_orrow_f16s",
                                        "w8a16",
                                        "w8a8",
                                        "w4a8_g64",
                                        "w4a4_g32_f16s",
                                        "w3a16_g128",
                                        "w2a16_g64_asym_f16s",
                                        "w8a8_asymact",
                                        "w4a4_g128_asymact",
                                        "w4a8_g64_asym_asymact_f16s",
                                        "w8a8_vllmact",
                                        "w4a8_g64_asym_asymact_vllmact_f16s",
                                        "float"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_name(names[i], names[i]);
    for (int i = 1; i < CALM_N_FAMILIES; i++) {
        const char *family = calm_scheme_family(&(calm_scheme){.family = i})->name;
        check_name(family, family);
    }
    check_name("fp8a16_f16s", "fp8a16_f16s");
    check_name("fp8_blocka16_f16s", "fp8_blocka16_f16s");
    check_name("nvfp4a16", "nvfp4a16");
    check_name("w4a16_asym_g128", "w4a16_g128_asym");
    check_name("w4a8_f16s_asymact_g128", "w4a8_g128_asymact_f16s");
    check_name("w8a8_symact", "w8a8");
    check_name("w8a8_vllmact_asymact", "w8a8_asymact_vllmact");
    check_name("w8a8_g16777216_asym_asymact_vllmact_f16s", "w8a8_g16777216_asym_asymact_vllmact_f16s");
    check_name("w8a8_asymact_symact", "w8a8");
    check_name("w4a16_f16s_g16777216_asym", "w4a16_g16777216_asym_f16s");
}
END_OF_TEST

TEST(fields)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, "w3a8_g64_asym_f16s", &scheme));
    ck_assert_int_eq(scheme.bits, 3);
    ck_assert_int_eq(scheme.act_bits, 8);
    ck_assert_uint_eq(scheme.group, 64);
    ck_assert(!scheme.symmetric);
    ck_assert_int_eq(scheme.scale_dtype, CALM_F16);
    ck_ok(calm_scheme_parse(ctx, "w4a16", &scheme));
    ck_assert_int_eq(scheme.act_bits, 0);
    ck_assert(!scheme.act_asymmetric);
    ck_ok(calm_scheme_parse(ctx, "w8a8_asymact", &scheme));
    ck_assert(scheme.symmetric && scheme.act_asymmetric && scheme.act_rule == CALM_ACT_RULE_COMPRESSED_TENSORS);
    ck_ok(calm_scheme_parse(ctx, "w8a8_vllmact", &scheme));
    ck_assert(scheme.act_rule == CALM_ACT_RULE_VLLM && !scheme.act_asymmetric);
    ck_ok(calm_scheme_parse(ctx, "w8a8_static", &scheme));
    ck_assert(scheme.act_rule == CALM_ACT_RULE_STATIC && scheme.act_bits == 8 && !scheme.act_asymmetric);
    ck_ok(calm_scheme_parse(ctx, "w4a16", &scheme));
    ck_assert_uint_eq(scheme.group, 0);
    ck_assert(scheme.symmetric);
    ck_assert_int_eq(scheme.scale_dtype, CALM_BF16);
    ck_ok(calm_scheme_parse(ctx, "nvfp4a16", &scheme));
    ck_assert_int_eq(scheme.family, CALM_FAMILY_NVFP4);
    ck_assert_int_eq(scheme.bits, 4);
    ck_assert_uint_eq(scheme.group, 16);
    ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 64) == 4.5 && !calm_scheme_folds(&scheme));
    ck_ok(calm_scheme_parse(ctx, "fp8_blocka16", &scheme));
    ck_assert(scheme.group == 128 && calm_scheme_rows(&scheme) == 128 && !calm_scheme_folds(&scheme) &&
              !scheme.act_bits);
    /* 2 x 3 blocks of 16 bits over 200 x 300 weights. */
    ck_assert_double_eq_tol(calm_scheme_bits_per_weight(&scheme, 200, 300), 8 + 96.0 / 60000, 1e-12);
    ck_ok(calm_scheme_parse(ctx, "fp8_block", &scheme));
    ck_assert(scheme.act_rule == CALM_ACT_RULE_FP8_GROUPS && scheme.act_bits == 8);
    ck_ok(calm_scheme_parse(ctx, "fp8_static_f16s", &scheme));
    ck_assert(scheme.act_rule == CALM_ACT_RULE_FP8_STATIC && scheme.family == CALM_FAMILY_FP8 && scheme.act_bits == 8 &&
              scheme.scale_dtype == CALM_F16);
    ck_ok(calm_scheme_parse(ctx, "fp8_tensor_static", &scheme));
    ck_assert(scheme.act_rule == CALM_ACT_RULE_FP8_STATIC && calm_scheme_is_whole(&scheme) &&
              calm_scheme_is_fp8(&scheme) && !calm_scheme_folds(&scheme) && scheme.scale_dtype == CALM_BF16);
    /* One scale of 16 bits over 200 x 300 weights. */
    ck_assert_double_eq_tol(calm_scheme_bits_per_weight(&scheme, 200, 300), 8 + 16.0 / 60000, 1e-12);
    ck_ok(calm_scheme_parse(ctx, "w4afp8_g128", &scheme));
    ck_assert(scheme.act_rule == CALM_ACT_RULE_FP8 && scheme.family == 0 && scheme.act_bits == 8 && scheme.bits == 4 &&
              scheme.group == 128 && !scheme.act_asymmetric);
    ck_ok(calm_scheme_parse(ctx, "q4_1", &scheme));
    ck_assert(calm_scheme_rows(&scheme) == 1);
    ck_assert(calm_scheme_has_mins(&scheme) && !calm_scheme_is_plain(&scheme) && scheme.scale_dtype == CALM_F16);
    ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 64) == 5);
}
END_OF_TEST

/* Presets of llm-compressor have the same values; w4a16 in small letters is calm's own. */
TEST(presets)
{
    static const char *const pairs[][2] = {
        {"W4A16", "w4a16_g128"}, {"W4a16", "w4a16_g128"}, {"w4a16", "w4a16"}, {"W4A16_ASYM", "w4a16_g128_asym"},
        {"W8A8", "w8a8"}, {"int8", "w8a8"}, {"W8A16", "w8a16_g128"}, {"W4A8", "w4a8_g128"}, {"FP8_DYNAMIC", "fp8"},
        {"fp8_dynamic", "fp8"}, {"FP8_BLOCK", "fp8_block"}, {"NVFP4", "nvfp4"}, {"NvFp4a16", "nvfp4a16"},
        {"MXFP4", "mxfp4"}, {"MXFP4A16", "mxfp4a16"}, {"fp8", "fp8"},
        {"W4AFP8", "w4afp8_g128"}, {"w4afp8", "w4afp8"}, {"FP8", "fp8_tensor_static"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        calm_scheme scheme;
        char name[CALM_SCHEME_NAME_MAX];
        ck_ok(calm_scheme_parse(ctx, pairs[i][0], &scheme));
        calm_scheme_name(&scheme, name);
        ck_assert_str_eq(name, pairs[i][1]);
    }
}
END_OF_TEST

/* A fallback group replaces one that does not divide the columns, and has the plain name. */
TEST(groups_that_do_not_divide)
{
    static const struct {
        const char *name;
        size_t in;
        const char *stored;
        bool divides;
    } rows[] = {{"w4a16_g64_or32", 128, "w4a16_g64", true},  {"w4a16_g64_or32", 96, "w4a16_g32", true},
                {"w4a16_g64_or32", 40, "w4a16_g32", false},  {"w4a16_g64_orrow_asym", 40, "w4a16_asym", true},
                {"w4a16_g64_or32_actorder", 96, "w4a16_g32_actorder", true},
                {"w4a16_g64_orrow_actorder", 96, "w4a16", true},
                {"w4a16_g64", 96, "w4a16_g64", false},       {"w4a16", 97, "w4a16", true},
                {"fp8_block", 100, "fp8_block", false},      {"fp8_blocka16", 100, "fp8_blocka16", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_scheme scheme;
        char name[CALM_SCHEME_NAME_MAX];
        ck_ok(calm_scheme_parse(ctx, rows[i].name, &scheme));
        const calm_scheme stored = calm_scheme_for(&scheme, rows[i].in);
        calm_scheme_name(&stored, name);
        ck_assert_str_eq(name, rows[i].stored);
        ck_assert_int_eq(calm_scheme_divides(&scheme, rows[i].in), rows[i].divides);
        ck_assert(calm_scheme_bits_per_weight(&scheme, 8, rows[i].in) ==
                  calm_scheme_bits_per_weight(&stored, 8, rows[i].in));
    }
    calm_scheme unused;
    ck_fails(calm_scheme_parse(ctx, "w4a16_or32", &unused), CALM_EARG, "_or follows a group");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g32_or32", &unused), CALM_EARG, "a smaller number of columns");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g32_orcolumn", &unused), CALM_EARG, "or row");
}
END_OF_TEST

TEST(bad_names)
{
    calm_scheme scheme;
    ck_fails(calm_scheme_parse(ctx, "", &scheme), CALM_EARG, "expected w<bits>a<bits>");
    ck_fails(calm_scheme_parse(ctx, "int4", &scheme), CALM_EARG, "examples: w4a16_g128");
    ck_fails(calm_scheme_parse(ctx, "w4", &scheme), CALM_EARG, "expected w<bits>a<bits>");
    ck_fails(calm_scheme_parse(ctx, "w5a16", &scheme), CALM_EARG, "2, 3, 4 or 8 bits");
    ck_fails(calm_scheme_parse(ctx, "nvfp4a1", &scheme), CALM_EARG, "or one of fp8");
    ck_fails(calm_scheme_parse(ctx, "mxfp4_f16s", &scheme), CALM_EARG, "nothing comes after its name");
    ck_fails(calm_scheme_parse(ctx, "fp8a16_g128", &scheme), CALM_EARG, "or one of fp8");
    ck_fails(calm_scheme_parse(ctx, "w4a6", &scheme), CALM_EARG, "4, 8 or 16 bits");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g", &scheme), CALM_EARG, "number of columns");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g0", &scheme), CALM_EARG, "number of columns");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g99999999999999999999", &scheme), CALM_EARG, "");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g128x", &scheme), CALM_EARG, "after the bits");
    ck_fails(calm_scheme_parse(ctx, "w4a16_as", &scheme), CALM_EARG, "after the bits");
    ck_fails(calm_scheme_parse(ctx, "w4a16_", &scheme), CALM_EARG, "after the bits");
    ck_fails(calm_scheme_parse(ctx, "w8a8_asymac", &scheme), CALM_EARG, "after the bits");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g128_asymact", &scheme), CALM_EARG, "keeps them in float");
    ck_fails(calm_scheme_parse(ctx, "w4a16_symact", &scheme), CALM_EARG, "keeps them in float");
    ck_fails(calm_scheme_parse(ctx, "w4a16_vllmact", &scheme), CALM_EARG, "keeps them in float");
    ck_fails(calm_scheme_parse(ctx, "w4a16_actorder", &scheme), CALM_EARG, "_actorder needs groups");
    ck_fails(calm_scheme_parse(ctx, "w4a8_g128_actorder", &scheme), CALM_EARG, "and float activations");
    ck_fails(calm_scheme_parse(ctx, "w4a16_g128_actorde", &scheme), CALM_EARG, "after the bits");
    ck_fails(calm_scheme_parse(ctx, "w8a8_vllm", &scheme), CALM_EARG, "after the bits");
    ck_fails(calm_scheme_parse(ctx, "w8a16_static", &scheme), CALM_EARG, "keeps them in float");
    ck_fails(calm_scheme_parse(ctx, "w4a4_g128_static", &scheme), CALM_EARG, "symmetric activations of 8 bits");
    ck_fails(calm_scheme_parse(ctx, "w8a8_asymact_static", &scheme), CALM_EARG, "symmetric activations of 8 bits");
    ck_fails(calm_scheme_parse(ctx, "w8a8_vllmact_static", &scheme), CALM_EARG, "symmetric activations of 8 bits");
}
END_OF_TEST

TEST(names_that_say_the_range)
{
    ck_assert(calm_scheme_says_range("w8a8_asymact"));
    ck_assert(calm_scheme_says_range("w4a8_g64_symact_f16s"));
    ck_assert(calm_scheme_says_range("w8a8_static"));
    ck_assert(!calm_scheme_says_range("w8a8"));
    ck_assert(!calm_scheme_says_range("w8a8_vllmact"));
    ck_assert(!calm_scheme_says_range("w4a8_g64_asym"));
}
END_OF_TEST

TEST(groups_and_bits)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, "w4a16_g128", &scheme));
    ck_assert_uint_eq(calm_scheme_groups(&scheme, 256), 2);
    ck_assert_uint_eq(calm_scheme_groups(&scheme, 257), 3);
    ck_assert_uint_eq(calm_scheme_groups(&scheme, 1), 1);
    ck_assert_uint_eq(calm_scheme_group_size(&scheme, 256), 128);
    ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 256) == 4.125);
    ck_ok(calm_scheme_parse(ctx, "w4a16_g128_asym", &scheme));
    ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 256) == 4.15625);
    ck_ok(calm_scheme_parse(ctx, "w8a8", &scheme));
    ck_assert_uint_eq(calm_scheme_groups(&scheme, 1000), 1);
    ck_assert_uint_eq(calm_scheme_group_size(&scheme, 1000), 1000);
    ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 64) == 8.25);
    ck_ok(calm_scheme_parse(ctx, "float", &scheme));
    ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 64) == 16);
}
END_OF_TEST

int main(void)
{
    return run_tests("scheme", (const TTest *[]){names_round_trip, fields, presets, groups_that_do_not_divide,
                                                 bad_names, names_that_say_the_range,
                                                 groups_and_bits, NULL});
}
