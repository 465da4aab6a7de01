/* Engines: every rule of FORMATS.md by an example on each side of it, sentences, proposals, ties. */
#include "ptq/plan/engines.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness.h"

typedef struct example {
    const char *target, *format;    /* format NULL: the first */
    size_t out, in;
    bool expert;
    const char *scheme;
    calm_engine_rule rule;
} example;

static const example examples[] = {
    /* Marlin's shapes, on both sides of each number. */
    {"vllm", NULL, 64, 128, false, "w4a16_g128", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 192, false, "w4a16_g64", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 96, 128, false, "w4a16_g128", CALM_ENGINE_ROWS},
    {"vllm", NULL, 64, 192, false, "w8a16", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 64, 256, false, "w4a16_g256", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 256, false, "w4a16_g16", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 256, false, "w4a16_g32", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w4a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w8a16_g64", CALM_ENGINE_TAKES},
    /* 2 to 8 bits in compressed-tensors, 4 and 8 in GPTQ, 4 in AWQ. */
    {"vllm", NULL, 64, 256, false, "w3a16_g128", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w2a16_g64", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 64, 256, false, "w3a16_g128", CALM_ENGINE_BITS},
    {"vllm", "gptq", 64, 256, false, "w8a16", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_ZEROS},
    {"vllm", "gptq", 64, 256, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"vllm", "awq", 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_TAKES},
    {"vllm", "awq", 64, 256, false, "w8a16", CALM_ENGINE_BITS},
    {"vllm", "gguf", 64, 256, false, "w4a16_g128", CALM_ENGINE_FORMAT},
    /* Zero points: Marlin has uint4 alone; experts none. */
    {"vllm", NULL, 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w8a16_g128_asym", CALM_ENGINE_ZEROS},
    {"vllm", NULL, 128, 256, true, "w4a16_g128_asym", CALM_ENGINE_ZEROS},
    /* Activations: W8A8 in every shape; no int4 kernels; symmetric. */
    {"vllm", NULL, 96, 192, false, "w8a8", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w8a8_asymact", CALM_ENGINE_ACTIVATIONS},
    {"vllm", NULL, 64, 256, false, "w4a4_g128", CALM_ENGINE_ACTIVATIONS},
    {"vllm", NULL, 64, 256, false, "w4a8_g128", CALM_ENGINE_BITS},
    {"vllm", NULL, 64, 256, false, "w8a8_g128", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 256, false, "w8a8_asym", CALM_ENGINE_ZEROS},
    /* Experts: 4 and 8 bits; rows of 128, columns of 64. */
    {"vllm", NULL, 128, 64, true, "w4a16_g64", CALM_ENGINE_TAKES},
    {"vllm", NULL, 128, 64, true, "w3a16_g64", CALM_ENGINE_BITS},
    {"vllm", NULL, 64, 128, true, "w4a16_g64", CALM_ENGINE_ROWS},
    {"vllm", NULL, 128, 96, true, "w4a16_g32", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 96, 96, true, "w8a8", CALM_ENGINE_TAKES},
    /* SGLang: 4 and 8 bits. */
    {"sglang", NULL, 64, 256, false, "w3a16_g128", CALM_ENGINE_BITS},
    {"sglang", NULL, 64, 256, false, "w2a16_g64", CALM_ENGINE_BITS},
    {"sglang", NULL, 64, 256, false, "w4a16_g128", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "w8a16", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "w8a8", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 192, false, "w8a16", CALM_ENGINE_COLUMNS},
    /* llama.cpp: blocks of 32, whatever the group that is a multiple. */
    {"llamacpp", NULL, 7, 96, false, "w4a16_g96", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w4a16_g48", CALM_ENGINE_GROUP},
    {"llamacpp", NULL, 7, 80, false, "w8a16", CALM_ENGINE_COLUMNS},
    {"llamacpp", NULL, 7, 96, false, "w8a16", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w3a16_g32", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w2a16_g32", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w8a16_g32_asym", CALM_ENGINE_ZEROS},
    {"llamacpp", NULL, 7, 96, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"llamacpp", "compressed-tensors", 7, 96, false, "w8a16", CALM_ENGINE_FORMAT},
    /* MLX: three groups, no rows, zero points everywhere. */
    {"mlx", NULL, 7, 128, false, "w4a16_g64", CALM_ENGINE_TAKES},
    {"mlx", NULL, 7, 128, false, "w4a16", CALM_ENGINE_GROUP},
    {"mlx", NULL, 7, 128, false, "w4a16_g16", CALM_ENGINE_GROUP},
    {"mlx", NULL, 7, 96, false, "w4a16_g64", CALM_ENGINE_COLUMNS},
    {"mlx", NULL, 7, 96, false, "w3a16_g32_asym", CALM_ENGINE_TAKES},
    {"mlx", NULL, 7, 96, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    /* Transformers: what compressed-tensors stores, symmetric; experts weight-only. */
    {"transformers", NULL, 7, 24, false, "w3a16_g8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w4a4_g8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w4a8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w8a8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w4a16_g8_asym", CALM_ENGINE_ZEROS},
    {"transformers", NULL, 7, 24, false, "w4a16_g16", CALM_ENGINE_COLUMNS},
    {"transformers", NULL, 7, 24, true, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"transformers", NULL, 7, 24, true, "w4a16_g8", CALM_ENGINE_TAKES},
    {"transformers", "gptq", 7, 24, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    /* Nothing is asked. */
    {"any", "gguf", 7, 24, true, "w4a4_g16_asym", CALM_ENGINE_TAKES},
};

TEST(each_rule_has_two_sides)
{
    unsigned seen = 0;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        const calm_engine_linear linear = {"m", e->out, e->in, e->expert};
        calm_scheme scheme;
        ck_ok(calm_scheme_parse(ctx, e->scheme, &scheme));
        const calm_engine_rule rule = calm_engine_verdict(calm_engine_find(e->target), e->format, &linear, &scheme);
        if (rule != e->rule)
            printf("%s %s [%zu, %zu]%s: %s, expected %s\n", e->target, e->scheme, e->out, e->in,
                   e->expert ? " expert" : "", calm_engine_rule_name(rule), calm_engine_rule_name(e->rule));
        ck_assert(rule == e->rule);
        seen |= 1u << rule;
    }
    ck_assert(seen == (1u << CALM_N_ENGINE_RULES) - 1);
}
END_OF_TEST

TEST(float_is_always_taken)
{
    const calm_scheme floating = {0};
    const calm_engine_linear linear = {"m", 7, 5, true};
    size_t n;
    const calm_engine *const *all = calm_engines(&n);
    for (size_t i = 0; i < n; i++)
        ck_assert(calm_engine_verdict(all[i], NULL, &linear, &floating) == CALM_ENGINE_TAKES);
}
END_OF_TEST

TEST(names_are_those_of_the_option)
{
    char joined[256] = "";
    size_t n;
    const calm_engine *const *all = calm_engines(&n), *found;
    for (size_t i = 0; i < n; i++) {
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", i ? "|" : "", calm_engine_name(all[i]));
        ck_ok(calm_engine_parse(ctx, calm_engine_name(all[i]), &found));
        ck_assert(found == all[i] && calm_engine_is_any(found) == (i == 0) && *calm_engine_summary(found));
        ck_assert((i == 0) == (*calm_engine_formats(found) == '\0'));
    }
    ck_assert_str_eq(joined, CALM_ENGINE_NAMES);
    ck_assert(calm_engine_is_any(NULL));
    ck_fails(calm_engine_parse(ctx, "vlm", &found), CALM_EARG, "did you mean vllm?");
}
END_OF_TEST

TEST(formats_are_checked_by_name)
{
    const calm_engine *vllm = calm_engine_find("vllm"), *llamacpp = calm_engine_find("llamacpp");
    ck_assert(calm_engine_reads(vllm, "gptq") && !calm_engine_reads(vllm, "gguf") && calm_engine_reads(llamacpp, "gguf"));
    ck_assert(calm_engine_reads(calm_engine_find("any"), "gguf") && calm_engine_reads(calm_engine_find("mlx"), "mlx"));
    ck_ok(calm_engine_check_format(ctx, vllm, "awq"));
    ck_fails(calm_engine_check_format(ctx, llamacpp, "compressed-tensors"), CALM_EARG,
                "--target llamacpp does not read --format compressed-tensors; it reads gguf");
}
END_OF_TEST

/* What a refusal proposes is taken, and the sentence says linear, number and cure. */
TEST(refusals_say_what_would_do)
{
    const calm_engine_linear odd = {"model.layers.0.o", 64, 192, false}, wide = {"model.layers.0.down", 64, 256, false};
    const calm_engine_linear none = {"model.layers.0.o", 64, 72, false};
    const calm_engine *vllm = calm_engine_find("vllm"), *llamacpp = calm_engine_find("llamacpp");
    calm_scheme scheme, found;
    ck_ok(calm_scheme_parse(ctx, "w4a16_g64", &scheme));
    ck_assert(calm_engine_propose(vllm, NULL, &odd, &scheme, &found) && found.act_bits == 8);
    ck_fails(calm_engine_check_scheme(ctx, vllm, NULL, &odd, &scheme), CALM_EARG,
                "--target vllm takes no w4a16_g64 for model.layers.0.o [64, 192]: it takes input columns that 128 divides, "
                "not 192; --scheme w8a8 would do");
    ck_ok(calm_scheme_parse(ctx, "w4a16_g256", &scheme));
    ck_fails(calm_engine_check_scheme(ctx, vllm, NULL, &wide, &scheme), CALM_EARG,
                "takes groups of 32, 64 or 128 columns or one scale per row, not 256; --scheme w4a16_g128 would do");
    ck_ok(calm_scheme_parse(ctx, "w8a8", &scheme));
    ck_assert(!calm_engine_propose(llamacpp, NULL, &none, &scheme, &found));
    ck_fails(calm_engine_check_scheme(ctx, llamacpp, NULL, &none, &scheme), CALM_EARG,
                "takes weight-only schemes, no quantized activations; no usual scheme would do");
}
END_OF_TEST

/* Every explanation is a sentence of its rule: none is empty, none is that of another. */
TEST(explanations_name_the_rule)
{
    static const char *const words[] = {"takes it", "reads", "activations", "bits", "", "groups", "columns", "rows"};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        const calm_engine_linear linear = {"m", e->out, e->in, e->expert};
        calm_scheme scheme;
        char *text;
        ck_ok(calm_scheme_parse(ctx, e->scheme, &scheme));
        ck_ok(calm_engine_explain(ctx, calm_engine_find(e->target), e->format, &linear, &scheme, &text));
        if (e->rule == CALM_ENGINE_ZEROS)
            ck_assert(strstr(text, "zero points") != NULL);
        else if (e->rule == CALM_ENGINE_GROUP)
            ck_assert(strstr(text, "groups of") != NULL);
        else
            ck_assert(strstr(text, words[e->rule]) != NULL);
    }
}
END_OF_TEST

TEST(ties_number_what_is_fused)
{
    ck_assert(calm_engine_tie(calm_engine_find("vllm"), NULL) == CALM_TIE_BLOCK);
    ck_assert(calm_engine_tie(calm_engine_find("sglang"), "gptq") == CALM_TIE_BLOCK);
    ck_assert(calm_engine_tie(calm_engine_find("llamacpp"), NULL) == CALM_TIE_PROJECTION);
    ck_assert(calm_engine_tie(calm_engine_find("mlx"), NULL) == CALM_TIE_PROJECTION);
    ck_assert(calm_engine_tie(calm_engine_find("transformers"), NULL) == CALM_TIE_EXPERTS);
    ck_assert(calm_engine_tie(calm_engine_find("transformers"), "gptq") == CALM_TIE_MODEL);
    ck_assert(calm_engine_tie(calm_engine_find("any"), NULL) == CALM_TIE_NONE);
    for (int tie = CALM_TIE_NONE; tie < CALM_TIE_MODEL; tie++)
        ck_assert(calm_tie_number((calm_tie)tie, 3, false, true) == 0);
    ck_assert(calm_tie_number(CALM_TIE_PROJECTION, 3, true, true) != calm_tie_number(CALM_TIE_PROJECTION, 3, true, false));
    ck_assert(calm_tie_number(CALM_TIE_PROJECTION, 3, true, true) != calm_tie_number(CALM_TIE_PROJECTION, 4, true, false));
    ck_assert(calm_tie_number(CALM_TIE_BLOCK, 3, true, true) == calm_tie_number(CALM_TIE_BLOCK, 3, true, false));
    ck_assert(calm_tie_number(CALM_TIE_BLOCK, 3, true, true) != calm_tie_number(CALM_TIE_BLOCK, 4, true, true));
    ck_assert(calm_tie_number(CALM_TIE_EXPERTS, 3, true, true) == calm_tie_number(CALM_TIE_EXPERTS, 0, true, false));
    ck_assert(calm_tie_both(CALM_TIE_BLOCK, CALM_TIE_PROJECTION) == CALM_TIE_BLOCK);
    ck_assert(calm_tie_both(CALM_TIE_NONE, CALM_TIE_EXPERTS) == CALM_TIE_EXPERTS);
    ck_assert(calm_tie_number(CALM_TIE_MODEL, 3, false, true) == calm_tie_number(CALM_TIE_MODEL, 0, true, false));
}
END_OF_TEST

int main(void)
{
    return run_tests("engines",
                     (const TTest *[]){each_rule_has_two_sides, float_is_always_taken, names_are_those_of_the_option,
                                       formats_are_checked_by_name, refusals_say_what_would_do, explanations_name_the_rule,
                                       ties_number_what_is_fused, NULL});
}
