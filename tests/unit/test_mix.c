/* Mixes: the types of llama-quantize, matrix by matrix. */
#include "ptq/quant/mix.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/harness.h"

/* The types that llama-quantize gave the bundled model with an importance matrix: 6 blocks, 2 query heads per KV
 * head, 640 inputs of down.  Q4_1, Q5_0, Q5_1 and Q2_K_S follow its source (llama_tensor_get_type_impl, version
 * 0.3.36). */
static const struct {
    const char *mix, *others, *v, *o, *down, *head;
} made[] = {
    {"gguf_q4_0", "q4_0", "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0",
     "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0",
     "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0", "q6_k"},
    {"gguf_q4_1", "q4_1", "q4_1 q4_1 q4_1 q4_1 q4_1 q4_1",
     "q4_1 q4_1 q4_1 q4_1 q4_1 q4_1",
     "q4_1 q4_1 q4_1 q4_1 q4_1 q4_1", "q6_k"},
    {"gguf_q5_0", "q5_0", "q5_0 q5_0 q5_0 q5_0 q5_0 q5_0",
     "q5_0 q5_0 q5_0 q5_0 q5_0 q5_0",
     "q5_0 q5_0 q5_0 q5_0 q5_0 q5_0", "q6_k"},
    {"gguf_q5_1", "q5_1", "q5_1 q5_1 q5_1 q5_1 q5_1 q5_1",
     "q5_1 q5_1 q5_1 q5_1 q5_1 q5_1",
     "q5_1 q5_1 q5_1 q5_1 q5_1 q5_1", "q6_k"},
    {"gguf_q8_0", "q8_0", "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0",
     "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0",
     "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0", "q8_0"},
    {"gguf_q2_k", "q2_k", "q3_k q3_k q3_k q3_k q3_k q3_k",
     "q3_k q3_k q3_k q3_k q3_k q3_k",
     "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0", "q6_k"},
    {"gguf_q2_k_s", "q2_k", "q2_k q2_k q2_k q2_k q2_k q2_k",
     "q2_k q2_k q2_k q2_k q2_k q2_k",
     "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0", "q6_k"},
    {"gguf_q3_k_s", "q3_k", "q3_k q3_k q3_k q3_k q3_k q3_k",
     "q3_k q3_k q3_k q3_k q3_k q3_k",
     "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0", "q6_k"},
    {"gguf_q3_k_m", "q3_k", "q5_k q5_k q4_k q4_k q4_k q4_k",
     "q4_k q4_k q4_k q4_k q4_k q4_k",
     "q5_0 q5_0 q5_0 q5_0 q5_0 q5_0", "q6_k"},
    {"gguf_q3_k_l", "q3_k", "q5_k q5_k q5_k q5_k q5_k q5_k",
     "q5_k q5_k q5_k q5_k q5_k q5_k",
     "q5_1 q5_1 q5_1 q5_1 q5_1 q5_1", "q6_k"},
    {"gguf_q4_k_s", "q4_k", "q5_k q5_k q5_k q5_k q4_k q4_k",
     "q4_k q4_k q4_k q4_k q4_k q4_k",
     "q5_0 q5_0 q5_0 q5_0 q5_0 q5_0", "q6_k"},
    {"gguf_q4_k_m", "q4_k", "q4_k q4_k q6_k q4_k q4_k q6_k",
     "q4_k q4_k q4_k q4_k q4_k q4_k",
     "q5_0 q5_0 q8_0 q5_0 q5_0 q8_0", "q6_k"},
    {"gguf_q5_k_s", "q5_k", "q5_k q5_k q5_k q5_k q5_k q5_k",
     "q5_k q5_k q5_k q5_k q5_k q5_k",
     "q5_1 q5_1 q5_1 q5_1 q5_1 q5_1", "q6_k"},
    {"gguf_q5_k_m", "q5_k", "q5_k q5_k q6_k q5_k q5_k q6_k",
     "q5_k q5_k q5_k q5_k q5_k q5_k",
     "q5_1 q5_1 q8_0 q5_1 q5_1 q8_0", "q6_k"},
    {"gguf_q6_k", "q6_k", "q6_k q6_k q6_k q6_k q6_k q6_k",
     "q6_k q6_k q6_k q6_k q6_k q6_k",
     "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0", "q6_k"},
    {"gguf_iq4_nl", "iq4_nl", "iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl",
     "iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl",
     "iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl", "q6_k"},
    {"gguf_iq4_xs", "iq4_xs", "iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs",
     "iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs",
     "iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl", "q6_k"},
    {"gguf_mxfp4_moe", "q8_0", "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0",
     "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0",
     "q8_0 q8_0 q8_0 q8_0 q8_0 q8_0", "q8_0"},
    /* calm's own name: llama-quantize has none for MXFP4 everywhere. */
    {"gguf_mxfp4", "mxfp4a16", "mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16",
     "mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16",
     "mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16 mxfp4a16", "q6_k"},
};
#define N_MADE (sizeof made / sizeof *made)

/* Returns the types of a role in the first blocks, for `in` columns, in a row. */
static const char *types_of(const char *mix, calm_place place, size_t n, size_t in)
{
    static char out[CALM_MESSAGE_MAX];
    char name[CALM_SCHEME_NAME_MAX];
    calm_scheme scheme;
    out[0] = 0;
    ck_ok(calm_scheme_parse(ctx, mix, &scheme));
    for (place.block = 0; place.block < n; place.block++) {
        const calm_scheme own = calm_scheme_at(&scheme, &place), stored = calm_scheme_for(&own, in);
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", place.block ? " " : "",
                 calm_scheme_type_name(&stored, name));
    }
    return out;
}

TEST(the_types_of_llama_quantize)
{
    for (size_t i = 0; i < N_MADE; i++) {
        const calm_place place = {.n_blocks = 6, .sharing = 2};
        const struct {
            calm_place_role role;
            size_t n, in;
            const char *types;
        } of[] = {{CALM_PLACE_OTHER, 1, 256, made[i].others}, {CALM_PLACE_V, 6, 256, made[i].v},
                  {CALM_PLACE_O, 6, 256, made[i].o}, {CALM_PLACE_HEAD, 1, 256, made[i].head},
                  {CALM_PLACE_EMBEDDING, 1, 256, made[i].others},
                  {CALM_PLACE_DOWN, 6, 640, made[i].down}};
        for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
            calm_place there = place;
            there.role = of[k].role;
            ck_assert_msg(strcmp(types_of(made[i].mix, there, of[k].n, of[k].in), of[k].types) == 0, "%s, role %d: %s",
                          made[i].mix, (int)of[k].role, types_of(made[i].mix, there, of[k].n, of[k].in));
        }
    }
}
END_OF_TEST

/* Other models: more blocks, 4 query heads per KV head, 80 blocks. */
TEST(rules_of_other_models)
{
    const calm_place v = {.role = CALM_PLACE_V, .n_blocks = 32, .sharing = 4};
    const calm_place down = {.role = CALM_PLACE_DOWN, .n_blocks = 32, .sharing = 4};
    const calm_place large = {.role = CALM_PLACE_V, .n_blocks = 80, .sharing = 8};
    const calm_place large_down = {.role = CALM_PLACE_DOWN, .n_blocks = 80, .sharing = 8};
    ck_assert_str_eq(types_of("gguf_q2_k", v, 2, 256), "q4_k q4_k");
    ck_assert_str_eq(types_of("gguf_iq4_xs", v, 2, 256), "q5_k q5_k");
    ck_assert_str_eq(types_of("gguf_iq4_nl", v, 2, 256), "q5_k q5_k");
    ck_assert_str_eq(types_of("gguf_q4_0", down, 5, 256), "q4_1 q4_1 q4_1 q4_1 q4_0");
    ck_assert_str_eq(types_of("gguf_q5_0", down, 5, 256), "q5_1 q5_1 q5_1 q5_1 q5_0");
    ck_assert_str_eq(types_of("gguf_q4_1", down, 1, 256), "q4_1");
    ck_assert_str_eq(types_of("gguf_q2_k_s", down, 5, 256), "q4_k q4_k q4_k q4_k q2_k");
    ck_assert_str_eq(types_of("gguf_q2_k_s", v, 2, 256), "q4_k q4_k");
    ck_assert_str_eq(types_of("gguf_q3_k_m", down, 3, 256), "q5_k q5_k q4_k");
    ck_assert_str_eq(types_of("gguf_q4_k_s", down, 5, 256), "q5_k q5_k q5_k q5_k q4_k");
    ck_assert_str_eq(types_of("gguf_q4_k_m", v, 8, 256), "q6_k q6_k q6_k q6_k q4_k q4_k q6_k q4_k");
    ck_assert_str_eq(types_of("gguf_q4_k_m", large, 12, 256),
                     "q6_k q6_k q6_k q6_k q6_k q6_k q6_k q6_k q6_k q6_k q5_k q5_k");
    ck_assert_str_eq(types_of("gguf_q3_k_s", large, 1, 256), "q5_k");
    ck_assert_str_eq(types_of("gguf_q3_k_s", large_down, 1, 256), "q3_k");
    const calm_place routed = {.role = CALM_PLACE_DOWN, .n_blocks = 8, .sharing = 4, .expert = true};
    ck_assert_str_eq(types_of("gguf_mxfp4_moe", routed, 1, 256), "mxfp4a16");
    ck_assert_str_eq(types_of("gguf_q4_0", routed, 1, 256), "q4_1");
}
END_OF_TEST

/* The words of the option --gguf-type are in the order of the table. */
TEST(names)
{
    char words[CALM_MESSAGE_MAX], *rest = words;
    snprintf(words, sizeof words, "%s", calm_mix_names());
    for (size_t i = 0; i < N_MADE; i++) {
        char *word = strsep(&rest, "|"), name[CALM_SCHEME_NAME_MAX];
        calm_scheme scheme;
        ck_assert_ptr_nonnull(word);
        ck_assert_str_eq(calm_mix_called(word), calm_mix_at(i));
        for (char *at = word; *at; at++)
            *at = (char)tolower(*at);
        ck_assert_str_eq(calm_mix_at(i), test_format("gguf_%s", word));
        ck_ok(calm_scheme_parse(ctx, calm_mix_at(i), &scheme));
        calm_scheme_name(&scheme, name);
        ck_assert_str_eq(name, calm_mix_at(i));
    }
    ck_assert_ptr_null(rest);
    ck_assert_ptr_null(calm_mix_called("Q4_K"));
    calm_scheme scheme;
    ck_fails(calm_scheme_parse(ctx, "gguf_q4_k_xl", &scheme), CALM_EARG, "gguf_q4_k_xl");
}
END_OF_TEST

/* A scheme that is no mix is the same everywhere; the largest type of a mix is the one with most scales. */
TEST(splits_and_sizes)
{
    char type[CALM_SCHEME_NAME_MAX];
    const calm_place v = {.role = CALM_PLACE_V, .n_blocks = 6, .sharing = 2};
    calm_scheme scheme, largest;
    ck_ok(calm_scheme_parse(ctx, "q4_k", &scheme));
    ck_assert_str_eq(types_of("q4_k", v, 1, 256), "q4_k");
    ck_assert(!calm_mix_splits(&scheme));
    ck_ok(calm_scheme_parse(ctx, "gguf_q6_k", &scheme));
    ck_assert(!calm_mix_splits(&scheme));
    ck_ok(calm_scheme_parse(ctx, "gguf_q4_k_m", &scheme));
    ck_assert(calm_mix_splits(&scheme));
    largest = calm_mix_largest(&scheme);    /* as many scales as q6_k has, and minima */
    ck_assert_str_eq(calm_scheme_type_name(&largest, type), "q4_k");
    ck_ok(calm_scheme_parse(ctx, "gguf_q2_k", &scheme));
    largest = calm_mix_largest(&scheme);
    ck_assert_str_eq(calm_scheme_type_name(&largest, type), "q2_k");
}
END_OF_TEST

int main(void)
{
    return run_tests("mix", (const TTest *[]){the_types_of_llama_quantize, rules_of_other_models, names,
                                              splits_and_sizes, NULL});
}
