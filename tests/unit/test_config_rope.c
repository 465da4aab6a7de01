/* Rotary embeddings in config.json: the settings that each kind needs, where they may be, and what is refused. */
#include "ptq/arch/config.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N(array) (sizeof(array) / sizeof *(array))

#define LLAMA3 "\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4"
#define LONG   "\"rope_type\": \"longrope\", \"long_factor\": [1, 2, 3, 4], \"short_factor\": [1, 1, 1, 2]"

static calm_rope_config scaled(const char *family, const char *members)
{
    return config_with(family, "rope_scaling", test_format("{%s}", members)).rope[CALM_ROPE_GLOBAL];
}

static void refused(const char *members, calm_status expected, const char *words)
{
    config_refuses("llama", "rope_scaling", test_format("{%s}", members), expected, words);
    config_refuses("llama", "rope_parameters", test_format("{%s, \"rope_theta\": 10000}", members), expected, words);
}

/* head_dim 8, max_position_embeddings 512, rope_theta 10000 */
TEST(kinds)
{
    ck_assert(scaled("llama", "\"rope_type\": \"default\"").kind == CALM_ROPE_DEFAULT);
    ck_assert(scaled("llama", "\"type\": \"linear\", \"factor\": 2").factor == 2);
    ck_assert(scaled("llama", "\"type\": \"dynamic\", \"factor\": 2").kind == CALM_ROPE_DYNAMIC);
    calm_rope_config rope = scaled("llama", LLAMA3 ", \"original_max_position_embeddings\": 64");
    ck_assert(rope.kind == CALM_ROPE_LLAMA3 && rope.original == 64 && rope.low_freq == 1 && rope.high_freq == 4 &&
              rope.m == 1);
    ck_assert(scaled("llama", LLAMA3).original == 512);
    rope = scaled("llama", "\"type\": \"yarn\", \"factor\": 4");
    ck_assert(rope.kind == CALM_ROPE_YARN && rope.beta_fast == 32 && rope.beta_slow == 1 && rope.truncate &&
              rope.original == 512);
    rope = scaled("llama", LONG ", \"original_max_position_embeddings\": 32");
    ck_assert(rope.kind == CALM_ROPE_LONGROPE && rope.rotary == 8 && rope.long_factor[3] == 4 &&
              rope.short_factor[3] == 2);
    ck_assert(scaled("llama", "\"type\": \"linear\", \"rope_type\": \"default\"").kind ==
              CALM_ROPE_DEFAULT); /* the newer key */
}
END_OF_TEST

/* cos and sin are multiplied by m: 0.1 ln(factor) + 1 for yarn, sqrt(1 + ln(factor) / ln(original)) for longrope. */
TEST(attention_factors)
{
    ck_near(scaled("llama", "\"type\": \"yarn\", \"factor\": 4").m, 0.1 * log(4) + 1, 1e-15);
    ck_assert(scaled("llama", "\"type\": \"yarn\", \"factor\": 0.5").m == 1);
    ck_near(scaled("llama", "\"type\": \"yarn\", \"original_max_position_embeddings\": 64").m, 0.1 * log(8) + 1, 1e-15);
    ck_assert(scaled("llama", "\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.25").m == 1.25);
    ck_near(scaled("llama", "\"type\": \"yarn\", \"factor\": 4, \"mscale\": 0.5, \"mscale_all_dim\": 2").m,
            (0.05 * log(4) + 1) / (0.2 * log(4) + 1), 1e-15);
    ck_near(scaled("llama", "\"type\": \"yarn\", \"factor\": 4, \"mscale\": 0.5").m, 0.1 * log(4) + 1, 1e-15);
    ck_near(scaled("llama", LONG ", \"original_max_position_embeddings\": 32").m, sqrt(1 + log(16) / log(32)), 1e-15);
    ck_near(scaled("llama", LONG ", \"original_max_position_embeddings\": 32, \"factor\": 2").m,
            sqrt(1 + log(2) / log(32)), 1e-15);
    ck_assert(scaled("llama", LONG ", \"factor\": 1").m == 1);
    ck_assert(scaled("llama", LONG ", \"attention_factor\": 1.5").m == 1.5);
    ck_assert(scaled("llama", LONG ", \"original_max_position_embeddings\": 1, \"factor\": 2").m == 1); /* ln 1 = 0 */
}
END_OF_TEST

TEST(phi)
{
    const char *old = "{\"type\": \"yarn\", \"long_factor\": [1, 2, 3, 4], \"short_factor\": [1, 1, 1, 2]}";
    const calm_rope_config rope = config_with("phi3", "rope_scaling", old).rope[CALM_ROPE_GLOBAL];
    ck_assert(rope.kind == CALM_ROPE_LONGROPE && rope.original == 4096);
    ck_assert_uint_eq(config_with("phi3", "partial_rotary_factor", "0.5").rope[CALM_ROPE_GLOBAL].rotary, 4);
    /* An odd share: one channel more is rotated, with the angles of that number. */
    const calm_config odd = config_with("phi3", "partial_rotary_factor", "0.4");
    ck_assert_uint_eq(odd.rope[CALM_ROPE_GLOBAL].rotary, 4);
    ck_assert(odd.rope[CALM_ROPE_GLOBAL].odd && !config_with("phi3", "partial_rotary_factor", "0.5").rope[0].odd);
    config_refuses("glm4", "rope_parameters",
                   "{\"rope_type\": \"yarn\", \"factor\": 2, \"partial_rotary_factor\": 0.4}",
                   CALM_EFORMAT, "rotary embedding of 3 of head_dim 8 channels");
    config_refuses("phi3", "partial_rotary_factor", "0", CALM_EFORMAT, "rotary embedding of 0");
    config_refuses("phi3", "partial_rotary_factor", "1.5", CALM_EFORMAT, "partial_rotary_factor");
    config_refuses("phi3", "partial_rotary_factor", "-0.5", CALM_EFORMAT, "partial_rotary_factor");
    config_refuses("phi3", "partial_rotary_factor", "\"1\"", CALM_EFORMAT, "partial_rotary_factor");
    config_refuses("phi3", "original_max_position_embeddings", "0", CALM_EFORMAT, "original_max_position_embeddings");
    config_refuses("llama", "partial_rotary_factor", "0.5", CALM_EUNSUPPORTED, "partial_rotary_factor");
    config_with("llama", "partial_rotary_factor", "1.0");
}
END_OF_TEST

TEST(kinds_that_are_not_known)
{
    refused("\"type\": \"ntk\", \"factor\": 2", CALM_EUNSUPPORTED, "rope_type \"ntk\"");
    refused("\"rope_type\": \"proportional\"", CALM_EUNSUPPORTED, "rope_type \"proportional\"");
    refused("\"rope_type\": 3", CALM_EFORMAT, "rope_type");
    refused("\"rope_type\": \"default\", \"mrope_section\": [2, 1, 1]", CALM_EUNSUPPORTED,
            "\"mrope_section\" is not known");
    refused("\"rope_type\": \"linear\", \"factor\": 2, \"alpha\": 8", CALM_EUNSUPPORTED, "\"alpha\" is not known");
    config_with("llama", "rope_scaling", "{\"rope_type\": \"default\", \"alpha\": null, \"finetuned\": false}");
    config_refuses("llama", "rope_scaling", "\"linear\"", CALM_EFORMAT, "rope settings: expected an object");
    config_refuses("llama", "rope_scaling", "2", CALM_EFORMAT, "rope settings: expected an object");
    config_refuses("llama", "rope_parameters", "[1]", CALM_EFORMAT, "rope settings: expected an object");
}
END_OF_TEST

TEST(numbers_out_of_range)
{
    static const char *const thetas[] = {"0", "-10000", "0.5", "1e300", "\"big\"", "true"};
    for (size_t i = 0; i < N(thetas); i++) {
        config_refuses("llama", "rope_theta", thetas[i], CALM_EFORMAT, "rope_theta");
        config_refuses("llama", "rope_parameters", test_format("{\"rope_theta\": %s}", thetas[i]), CALM_EFORMAT,
                       "rope_theta");
        config_refuses("gemma3", "rope_local_base_freq", thetas[i], CALM_EFORMAT, "rope_local_base_freq");
    }
    static const char *const wrong[] = {"0", "-1", "1e300", "\"4\"", "[]"};
    static const char *const factors[] = {"linear", "dynamic", "yarn"};
    for (size_t i = 0; i < N(wrong); i++) {
        for (size_t k = 0; k < N(factors); k++)
            refused(test_format("\"type\": \"%s\", \"factor\": %s", factors[k], wrong[i]), CALM_EFORMAT, "factor");
        refused(test_format("\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": %s, \"high_freq_factor\": 4",
                            wrong[i]),
                CALM_EFORMAT, "low_freq_factor");
        refused(test_format("\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": %s",
                            wrong[i]),
                CALM_EFORMAT, "high_freq_factor");
        refused(test_format("\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": %s", wrong[i]), CALM_EFORMAT,
                "beta_fast");
        refused(test_format("\"type\": \"yarn\", \"factor\": 4, \"beta_slow\": %s", wrong[i]), CALM_EFORMAT,
                "beta_slow");
        refused(test_format("\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": %s", wrong[i]), CALM_EFORMAT,
                "attention_factor");
        refused(test_format(LLAMA3 ", \"original_max_position_embeddings\": %s", wrong[i]), CALM_EFORMAT,
                "original_max_position_embeddings");
    }
    refused("\"type\": \"linear\"", CALM_EFORMAT, "factor");
    refused("\"type\": \"dynamic\"", CALM_EFORMAT, "factor");
    refused("\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1", CALM_EFORMAT, "high_freq_factor");
    refused("\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 1", CALM_EFORMAT,
            "high_freq_factor 1, expected at least low_freq_factor 4");
    refused("\"type\": \"yarn\", \"factor\": 4, \"truncate\": 0", CALM_EFORMAT, "truncate");
    config_refuses("llama", "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 1}",
                   CALM_EFORMAT, "rope_theta");
}
END_OF_TEST

TEST(factors_of_longrope)
{
    static const char *const wrong[] = {"[1, 2, 3]",
                                        "[1, 2, 3, 4, 5]",
                                        "[]",
                                        "4",
                                        "null",
                                        "{\"a\": 1}",
                                        "[1, 2, 0, 4]",
                                        "[1, 2, -1, 4]",
                                        "[1, 2, \"3\", 4]",
                                        "[1, 2, null, 4]",
                                        "[1, 2, 1e300, 4]"};
    for (size_t i = 0; i < N(wrong); i++) {
        refused(test_format("\"type\": \"longrope\", \"long_factor\": %s, \"short_factor\": [1, 1, 1, 1]", wrong[i]),
                CALM_EFORMAT, "long_factor");
        refused(test_format("\"type\": \"longrope\", \"long_factor\": [1, 1, 1, 1], \"short_factor\": %s", wrong[i]),
                CALM_EFORMAT, "short_factor");
    }
    refused("\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1]", CALM_EFORMAT, "long_factor");
}
END_OF_TEST

/* Phi-3.5-MoE has a scale for short texts and one for long texts, and factors for both. */
TEST(scales_of_phimoe)
{
    calm_rope_config rope = scaled("phimoe", LONG ", \"short_mscale\": 1.25, \"long_mscale\": 1.5");
    ck_assert(rope.m == 1.25 && rope.m_long == 1.5 && rope.long_factor == rope.short_factor);
    rope = scaled("phi3", LONG ", \"attention_factor\": 1.5");
    ck_assert(rope.m == 1.5 && rope.m_long == 1.5 && rope.long_factor[3] == 4);
    ck_assert(scaled("phimoe", "\"type\": \"yarn\", \"factor\": 2, \"short_mscale\": 1.25").m == 1.25);
    ck_assert(scaled("phimoe", "\"rope_type\": \"default\", \"short_mscale\": 1.25").m == 1);
    config_refuses("phimoe", "rope_scaling", "{\"type\": \"linear\", \"factor\": 2, \"short_mscale\": 1.25, "
                   "\"long_mscale\": 1.5}", CALM_EUNSUPPORTED, "as rope_type is not longrope");
    config_refuses("phimoe", "rope_scaling", "{" LONG ", \"long_mscale\": 0}", CALM_EFORMAT, "long_mscale");
}
END_OF_TEST

/* transformers 5 writes rope_parameters, and some tools keep a null for the older key. */
TEST(scales_next_to_null)
{
    static const char text[] = "[null, {" LONG ", \"rope_theta\": 1e4, \"short_mscale\": 1.25, \"long_mscale\": 1.5}]";
    const tiny_model model = tiny_of("phimoe");
    const char *dir = test_directory();
    calm_json *root, *values;
    calm_config config;
    tiny_model_write_config(&model, dir);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &root));
    ck_ok(calm_json_parse(ctx, "values", text, strlen(text), &values));
    calm_json_set(root, "rope_scaling", calm_json_copy(calm_json_at(values, 0)));
    calm_json_set(root, "rope_parameters", calm_json_copy(calm_json_at(values, 1)));
    ck_ok(calm_config_read(ctx, "dir/config.json", root, &config));
    ck_assert(config.rope[CALM_ROPE_GLOBAL].m == 1.25 && config.rope[CALM_ROPE_GLOBAL].m_long == 1.5);
    calm_json_free(values);
    calm_json_free(root);
}
END_OF_TEST

/* Two embeddings by the kind of attention, which only Gemma 3 has, and nothing next to the two. */
TEST(two_embeddings)
{
    const char *both = "{\"full_attention\": {\"rope_theta\": 5000, \"rope_type\": \"linear\", \"factor\": 2}, "
                       "\"sliding_attention\": {\"rope_theta\": 70}}";
    const calm_config config = config_with("gemma3", "rope_parameters", both);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].theta == 5000 && config.rope[CALM_ROPE_GLOBAL].factor == 2);
    ck_assert(config.rope[CALM_ROPE_LOCAL].theta == 70 && config.rope[CALM_ROPE_LOCAL].kind == CALM_ROPE_DEFAULT);
    config_refuses("gemma2", "rope_parameters", both, CALM_EUNSUPPORTED, "by kind of attention");
    config_refuses("gemma3", "rope_parameters", "{\"full_attention\": {}, \"sliding_attention\": {}, \"factor\": 8}",
                   CALM_EUNSUPPORTED, "\"factor\" is not known");
    config_refuses("gemma3", "rope_parameters", "{\"full_attention\": 3}", CALM_EFORMAT, "expected an object");
    config_refuses("gemma3", "rope_parameters", "{\"sliding_attention\": {\"rope_type\": \"ntk\"}}", CALM_EUNSUPPORTED,
                   "\"ntk\"");
    const calm_config half =
        config_with("gemma3", "rope_parameters", "{\"full_attention\": null, \"sliding_attention\": {}}");
    ck_assert(half.rope[CALM_ROPE_GLOBAL].theta == 10000 && half.rope[CALM_ROPE_LOCAL].theta == 10000);
}
END_OF_TEST

int main(void)
{
    return run_tests("config_rope", (const TTest *[]){kinds, attention_factors, phi, kinds_that_are_not_known,
                                                      numbers_out_of_range, factors_of_longrope, scales_of_phimoe,
                                                      scales_next_to_null,
                                                      two_embeddings, NULL});
}
