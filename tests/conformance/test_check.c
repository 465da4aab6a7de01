/* calm check: every fault of tests/tools/break_faults.c is found by the rule that it was made for, at the right
 * place; good checkpoints of every exporter and family give no finding; docs/check.md describes every rule. */
#include "ptq/check/check.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "tests/support/foreign_checkpoint.h"
#include "tests/support/good_checkpoint.h"
#include "tests/support/harness.h"
#include "tests/tools/break_faults.h"

static const char *findings_text(const calm_check_report *report)
{
    const char *text = "";
    for (size_t i = 0; i < report->n; i++)
        text = test_format("%s\n  %s %s: %s", text, report->findings[i].rule->id, report->findings[i].where,
                           report->findings[i].what);
    return text;
}

static const char *checked_path(const char *dir)
{
    const char *file = test_format("%s/model.gguf", dir);
    return calm_is_directory(dir) && calm_path_exists(file) ? file : dir;
}

/* ---- good checkpoints ---- */

static void check_clean(const char *what, const char *dir)
{
    calm_check_report report;
    ck_ok(calm_check(ctx, checked_path(dir), CALM_CHECK_ANY, &report));
    ck_assert_msg(report.n == 0, "%s: %zu findings%s", what, report.n, findings_text(&report));
    ck_assert_uint_gt(report.n_tensors, 0);
    ck_assert_uint_gt(report.n_quantized, 0);
}

TEST(good_ones_are_clean)
{
    for (size_t i = 0; good_names[i]; i++)
        check_clean(good_names[i], good_write(good_names[i]));
}
END_OF_TEST

/* Checks every family in every format that takes it; returns the number of checkpoints written. */
static size_t check_families(const char *const *families)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a16"}, *const formats[] = {"compressed-tensors", "gptq",
                                                                                     "awq", "mlx", "gguf"};
    size_t n_written = 0;
    for (size_t f = 0; families[f]; f++)
        for (size_t e = 0; e < sizeof formats / sizeof *formats; e++)
            for (size_t n = 1; n <= 2; n++) {
                tiny_model spec = tiny_wide(families[f]);
                spec.bias &= strcmp(formats[e], "mlx") != 0;    /* some of mlx-lm's models have no biases */
                const char *dir = good_export(&spec, formats[e], schemes, n, 0);
                if (dir)
                    check_clean(test_format("%s as %s, %zu schemes", families[f], formats[e], n), dir);
                n_written += dir != NULL;
            }
    return n_written;
}

TEST(every_family_is_clean)
{
    ck_assert_uint_gt(check_families(tiny_families), 60);
    ck_assert_uint_ge(check_families(tiny_encoders), 16);
}
END_OF_TEST

/* Biases that config.json announces are a fault only if mlx-lm's model of the family has none. */
TEST(biases_in_mlx)
{
    static const char *const schemes[] = {"w4a16_g32"}, *const families[] = {"llama", "qwen3"};
    for (int f = 0; f < 2; f++) {
        const tiny_model spec = tiny_wide(families[f]);
        calm_check_report report;
        ck_ok(calm_check(ctx, good_export(&spec, "mlx", schemes, 1, 0), CALM_CHECK_MLX, &report));
        ck_assert_msg((report.n > 0) == f && (!f || strcmp(report.findings[0].rule->id, "MX006") == 0), "%s: %s",
                      families[f], findings_text(&report));
    }
}
END_OF_TEST

/* A block without keys and values (a short convolution) has no KV cache scales, and none are missed. */
TEST(cache_of_a_hybrid)
{
    static const char *const schemes[] = {"w4a16_g32"};
    const tiny_model spec = tiny_wide("lfm2");
    const char *dir = good_export(&spec, "compressed-tensors", schemes, 1, 0);
    good_add_cache(dir);
    check_clean("lfm2 with a cache", dir);
}
END_OF_TEST

/* ---- broken checkpoints ---- */

static calm_check_engine target_of(const char *name)
{
    const char *at = CALM_CHECK_ENGINE_NAMES;
    for (int i = 0; name && at; i++, at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, name, strlen(name)) == 0)
            return (calm_check_engine)i;
    return CALM_CHECK_ANY;
}

static bool is_found(const break_fault *fault, const char *dir, const char **text)
{
    calm_check_report report;
    ck_ok(calm_check(ctx, checked_path(dir), target_of(fault->target), &report));
    *text = findings_text(&report);
    for (size_t i = 0; i < report.n; i++)
        if (strcmp(report.findings[i].rule->id, fault->rule) == 0 && strstr(report.findings[i].where, fault->where))
            return true;
    return false;
}

TEST(every_fault_is_found)
{
    const char *dirs[32] = {NULL}, *missed = "";
    size_t n = 0;
    for (const break_fault *fault = break_faults; fault->name; fault++, n++) {
        const char *text, *to = test_format("%s/broken", test_directory());
        size_t g = 0;
        while (good_names[g] && strcmp(good_names[g], fault->good) != 0)
            g++;
        ck_assert_msg(good_names[g] && g < 32, "%s: there is no %s", fault->name, fault->good);
        dirs[g] = dirs[g] ? dirs[g] : good_write(fault->good);
        ck_ok(break_checkpoint(ctx, dirs[g], to, fault));
        if (!is_found(fault, to, &text))
            missed = test_format("%s\n%s: %s at \"%s\" is not among%s", missed, fault->name, fault->rule, fault->where,
                                 text);
    }
    ck_assert_msg(!*missed, "%s", missed);
    ck_assert_uint_ge(n, 40);
}
END_OF_TEST

/* ---- what a single fault does not show ---- */

static const char *broken(const char *from, const break_fault *fault)
{
    const char *to = test_format("%s/broken", test_directory());
    ck_ok(break_checkpoint(ctx, from, to, fault));
    return to;
}

/* FP4 rows of zeros are not reported if all their groups have one scale; they are if half of the groups have
 * another. */
TEST(rows_of_zeros)
{
    static const struct {
        const char *good, *scales;
        size_t expected;
    } cases[] = {{"ct-nvfp4", "512*01", 0}, {"ct-mxfp4", "256*6e", 0}, {"ct-nvfp4", "256*01", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const down = "layers.0.mlp.down_proj";
        const break_fault codes = {"codes", cases[i].good, "", "", BREAK_POKE, test_format("%s.weight_packed", down),
                                   "4096*00", 0, 0},
                          scales = {"scales", cases[i].good, "", "", BREAK_POKE, test_format("%s.weight_scale", down),
                                    cases[i].scales, 0, 0};
        calm_check_report report;
        ck_ok(calm_check(ctx, broken(broken(good_write(cases[i].good), &codes), &scales), CALM_CHECK_ANY, &report));
        ck_assert_msg(report.n == cases[i].expected, "%s, %s: %s", cases[i].good, cases[i].scales,
                      findings_text(&report));
    }
}
END_OF_TEST

/* Writes a model that was never quantized. */
static const char *plain_model(void)
{
    return tiny_model_write(&tiny_default);
}

/* Writes an "ignore" list of so many names that matching all of them would take minutes. */
static const char *many_targets(void)
{
    calm_text list;
    calm_text_init(&list);
    for (int i = 0; i < 120000; i++)
        calm_text_printf(&list, "%s\"x%d\"", i ? ", " : "[", i);
    calm_text_printf(&list, "]");
    const char *to = broken(good_write("ct"), &(break_fault){"many_targets", "ct", "CT028", "", BREAK_SET,
                                                             "quantization_config/ignore", list.data, 0, 0});
    calm_text_clear(&list);
    return to;
}

/* Writes a checkpoint in format v1 of GPTQ whose zero points are stored as the largest code. */
static const char *wrapped_zeros(void)
{
    const break_fault v1 = {"v1", "gptq-asym", "GQ006", "", BREAK_SET, "quantization_config/checkpoint_format",
                            "\"gptq\"", 0, 0},
                      zeros = {"zeros", "gptq-asym", "GQ009", "", BREAK_POKE, "layers.0.mlp.up_proj.qzeros", "ff", 0,
                               0};
    return broken(broken(good_write("gptq-asym"), &v1), &zeros);
}

/* Writes a checkpoint whose engine must multiply the input of down by a matrix. */
static const char *transformed(const char *type)
{
    const char *config = test_format("{\"config_groups\": {\"R4\": {\"type\": \"%s\", \"head_dim\": 32, \"apply\": "
                                     "[{\"targets\": [\"re:.*down_proj$\"], \"location\": \"input\"}]}}}", type);
    return broken(good_write("ct"), &(break_fault){"transform", "ct", "TG018", "", BREAK_SET,
                                                   "quantization_config/transform_config", config, 0, 0});
}

static const char *hadamard_before_down(void)
{
    return transformed("hadamard");
}

static const char *one_of_three(void)
{
    return foreign_gguf(&(foreign_file){.most = CALM_GGML_Q4_K, .some = CALM_GGML_Q6_K, .n_split = 3});
}

static const char *gpt_oss(void)
{
    static const char *const schemes[] = {"w4a16_g32"};
    const tiny_model spec = tiny_wide("gpt_oss");
    return good_export(&spec, "compressed-tensors", schemes, 1, 0);
}

/* Writes Llama 4 as compressed-tensors with one scheme. */
static const char *llama4(const char *scheme)
{
    const tiny_model spec = tiny_wide("llama4");
    return good_export(&spec, "compressed-tensors", &scheme, 1, 0);
}

static const char *zeros_of_llama4(void)
{
    return llama4("w4a16_g32_asym");
}

/* Writes a mixture of experts as transformers 5 saves it, with `keys` added to config.json. */
static const char *mixture(const char *family, const char *keys)
{
    static const char *const schemes[] = {"w4a16_g32"};
    tiny_model spec = tiny_wide(family);
    spec.extra = keys;
    return good_export(&spec, "compressed-tensors", schemes, 1, 0);
}

static const char *saved_deepseek(void)
{
    return mixture("deepseek_v3", NULL);
}

static const char *bounded_olmoe(void)
{
    return mixture("olmoe", "\"clip_qkv\": 2.0");
}

/* Writes an encoder as compressed-tensors with one scheme. */
static const char *encoder(const char *family, const char *scheme)
{
    const tiny_model spec = tiny_wide(family);
    return good_export(&spec, "compressed-tensors", &scheme, 1, 0);
}

static const char *static_gte(void)
{
    return encoder("gte", "w8a8_static");
}

/* The rules that no entry of break_faults covers, each with a function that makes a checkpoint with the fault. */
static const struct {
    const char *rule;
    const char *(*make)(void);
    const char *target;
} others[] = {{"MD015", plain_model, NULL}, {"CT028", many_targets, NULL}, {"GQ009", wrapped_zeros, NULL},
              {"GG018", one_of_three, NULL}, {"TG011", gpt_oss, "vllm"},
              {"TG013", zeros_of_llama4, "vllm"}, {"TG014", saved_deepseek, "vllm"},
              {"TG015", bounded_olmoe, "vllm"}, {"TG015", bounded_olmoe, "mlx"},
              {"TG016", static_gte, "transformers"}, {"TG017", gpt_oss, "transformers"},
              {"TG018", hadamard_before_down, "transformers"}, {"TG018", hadamard_before_down, "vllm-cpu"},
              {"TG019", hadamard_before_down, "vllm"}};

TEST(every_other_fault_is_found)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const break_fault fault = {.name = others[i].rule, .rule = others[i].rule, .where = "",
                                   .target = others[i].target};
        const char *text, *dir = others[i].make();
        ck_assert_msg(is_found(&fault, dir, &text), "%s is not among%s", others[i].rule, text);
    }
}
END_OF_TEST

/* Quantized experts of gpt-oss are reported for vLLM alone, and float experts for no engine. */
TEST(gpt_oss_in_engines)
{
    const break_fault transformers = {.rule = "TG011", .where = "", .target = "transformers"},
                      vllm = {.rule = "TG011", .where = "", .target = "vllm"};
    const tiny_model spec = tiny_wide("gpt_oss");
    const char *text;
    ck_assert(!is_found(&transformers, gpt_oss(), &text));
    ck_assert(!is_found(&vllm, tiny_model_write(&spec), &text));
}
END_OF_TEST

/* TG013 (what vLLM does to q and k of Llama 4) is reported for vLLM alone, only for schemes that vLLM cannot
 * permute, and for no other family. */
TEST(llama4_in_engines)
{
    const break_fault transformers = {.rule = "TG013", .where = "", .target = "transformers"},
                      vllm = {.rule = "TG013", .where = "", .target = "vllm"};
    static const char *const asymmetric[] = {"w4a16_g32_asym"};
    const tiny_model other = tiny_wide("llama");
    const char *text;
    ck_assert(!is_found(&transformers, zeros_of_llama4(), &text));
    ck_assert_msg(!is_found(&vllm, llama4("w4a16_g32"), &text), "%s", text);
    ck_assert_msg(!is_found(&vllm, llama4("w8a8"), &text), "%s", text);
    ck_assert(!is_found(&vllm, good_export(&other, "compressed-tensors", asymmetric, 1, 0), &text));
}
END_OF_TEST

/* TG018 (transforms that the engine does not apply) is not reported for vLLM on NVIDIA GPUs, which applies them on one
 * device, nor TG019 (on one device only) for others; calm reads the Hadamard matrix, and says so (MD013) of another
 * one. */
TEST(transforms)
{
    const break_fault vllm = {.rule = "TG018", .where = "", .target = "vllm"}, any = {.rule = "TG018", .where = ""},
                      cpu = {.rule = "TG019", .where = "", .target = "vllm-cpu"},
                      unread = {.rule = "MD013", .where = ""};
    const char *text, *dir = hadamard_before_down();
    ck_assert_msg(!is_found(&vllm, dir, &text) && !is_found(&cpu, dir, &text), "%s", text);
    ck_assert_msg(!is_found(&any, dir, &text) && !is_found(&unread, dir, &text), "%s", text);
    ck_assert(is_found(&unread, transformed("random-matrix"), &text));
}
END_OF_TEST

/* TG016 (tensors that transformers does not read) is reported for transformers alone, and only if there are such
 * tensors. */
TEST(encoders_in_transformers)
{
    static const struct {
        const char *family, *scheme;
        bool found;
    } cases[] = {{"gte", "w8a8", false},           {"gte", "fp8", false},
                 {"gte", "w4a16_g32", true},       {"nomic_bert", "w8a8_static", true},
                 {"nomic_bert", "w8a8", false},    {"nomic_bert", "w4a16_g32", true},
                 {"modernbert", "w4a16_g32", true}, {"modernbert", "w8a8_static", false},
                 {"eurobert", "w4a16_g32", false}, {"roberta", "w8a8_static", false}};
    const break_fault transformers = {.rule = "TG016", .where = "", .target = "transformers"},
                      vllm = {.rule = "TG016", .where = "", .target = "vllm"}, any = {.rule = "TG016", .where = ""};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text, *dir = encoder(cases[i].family, cases[i].scheme);
        ck_assert_msg(is_found(&transformers, dir, &text) == cases[i].found, "%s %s: %s", cases[i].family,
                      cases[i].scheme, text);
        ck_assert(!is_found(&vllm, dir, &text) && !is_found(&any, dir, &text));
    }
}
END_OF_TEST

/* TG017: which experts transformers 5.23 reads, as observed: of families whose experts it fuses, of families that it
 * reads only as one tensor, and of Llama 4.  The first scheme is the experts', the second that of the other linears. */
TEST(experts_in_transformers)
{
    static const struct {
        const char *family, *schemes[2];
        bool found;
    } cases[] = {{"mixtral", {"w4a16_g32", "w4a16_g32"}, false},   {"mixtral", {"float", "w4a16_g32"}, true},
                 {"mixtral", {"float", "fp8"}, false},             {"qwen3_moe", {"float", "w8a8"}, true},
                 {"gpt_oss", {"w4a16_g32", "w4a16_g32"}, true},    {"granitemoe", {"w4a16_g32", "w4a16_g32"}, true},
                 {"granitemoehybrid", {"w4a16_g32", "fp8"}, true}, {"llama4", {"w4a16_g32", "w4a16_g32"}, false},
                 {"llama4", {"float", "w4a16_g32"}, false},        {"olmoe", {"w8a16", "w8a8"}, false}};
    const break_fault transformers = {.rule = "TG017", .where = "experts", .target = "transformers"},
                      vllm = {.rule = "TG017", .where = "", .target = "vllm"}, any = {.rule = "TG017", .where = ""};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny_model spec = tiny_wide(cases[i].family);
        const char *text, *dir = good_export(&spec, "compressed-tensors", cases[i].schemes, 2, 0);
        ck_assert_msg(is_found(&transformers, dir, &text) == cases[i].found, "%s %s %s: %s", cases[i].family,
                      cases[i].schemes[0], cases[i].schemes[1], text);
        ck_assert(!is_found(&vllm, dir, &text) && !is_found(&any, dir, &text));
    }
}
END_OF_TEST

/* TG009: transformers takes one scale for all tokens instead of one per token if the rows come as a matrix: the
 * experts of Llama 4, which are linears there, and the shared experts of some families.  Static scales are read. */
TEST(scales_of_tokens_in_transformers)
{
    static const struct {
        const char *family, *scheme, *where;
        bool found;
    } cases[] = {{"llama4", "w8a8", ".experts.", true},           {"llama4", "w8a8_static", "experts", false},
                 {"qwen3_next", "w8a8", ".shared_expert.", true}, {"qwen3_next", "w8a8_static", ".shared_", false},
                 {"ernie4_5_moe", "w8a8", ".shared_experts.", true}, {"glm4_moe", "w8a8", ".shared_", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny_model spec = tiny_wide(cases[i].family);
        const char *const schemes[] = {"w8a16", cases[i].scheme}, *text;
        const bool routed = strcmp(cases[i].family, "llama4") == 0;
        const char *dir = good_export(&spec, "compressed-tensors", schemes + routed, 2 - routed, 0);
        const break_fault fault = {.rule = "TG009", .where = cases[i].where, .target = "transformers"};
        ck_assert_msg(is_found(&fault, dir, &text) == cases[i].found, "%s %s: %s", cases[i].family, cases[i].scheme,
                      text);
    }
}
END_OF_TEST

/* TG015: `clip_qkv` is reported for engines that do not read the key, if it is set. */
TEST(keys_that_engines_do_not_read)
{
    const break_fault vllm = {.rule = "TG015", .where = "", .target = "vllm"},
                      transformers = {.rule = "TG015", .where = "", .target = "transformers"};
    const char *text;
    ck_assert(!is_found(&transformers, bounded_olmoe(), &text));
    ck_assert(!is_found(&vllm, mixture("olmoe", "\"clip_qkv\": null"), &text));
    ck_assert(!is_found(&vllm, mixture("olmoe", NULL), &text));
}
END_OF_TEST

/* TG014: keys that vLLM's model classes need are asked for in the families that have them, and for vLLM targets
 * alone. */
TEST(keys_that_vllm_needs)
{
    static const struct {
        const char *family, *keys;
        bool found;
    } cases[] = {
        {"deepseek_v3", "\"topk_method\": \"noaux_tc\"", true},
        {"deepseek_v3", "\"topk_method\": \"noaux_tc\", \"scoring_func\": \"sigmoid\"", false},
        {"glm4_moe_lite", NULL, true},
        {"glm4_moe_lite", "\"first_k_dense_replace\": 1", false},
        {"minimax_m2", NULL, true},
        {"minimax_m2", "\"scoring_func\": \"sigmoid\"", false},
        {"qwen3_moe", NULL, false},
    };
    const break_fault vllm = {.rule = "TG014", .where = "", .target = "vllm"},
                      cpu = {.rule = "TG014", .where = "", .target = "vllm-cpu"},
                      transformers = {.rule = "TG014", .where = "", .target = "transformers"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text, *dir = mixture(cases[i].family, cases[i].keys);
        ck_assert_msg(is_found(&vllm, dir, &text) == cases[i].found, "%s: %s", cases[i].family, text);
        ck_assert_msg(is_found(&cpu, dir, &text) == cases[i].found, "%s: %s", cases[i].family, text);
        ck_assert(!is_found(&transformers, dir, &text));
    }
}
END_OF_TEST

/* Every rule must fire in some test, so a new rule needs a fault that shows it. */
TEST(every_rule_has_its_fault)
{
    size_t n;
    const calm_check_rule_info *rules = calm_check_rules(&n);
    const char *missing = "";
    for (size_t i = 0; i < n; i++) {
        bool shown = false;
        for (const break_fault *fault = break_faults; fault->name && !shown; fault++)
            shown = strcmp(fault->rule, rules[i].id) == 0;
        for (size_t k = 0; k < sizeof others / sizeof *others && !shown; k++)
            shown = strcmp(others[k].rule, rules[i].id) == 0;
        if (!shown)
            missing = test_format("%s %s", missing, rules[i].id);
    }
    ck_assert_msg(!*missing, "add a fault to tests/tools/break_faults.c for%s", missing);
}
END_OF_TEST

/* ---- the rest ---- */

TEST(cannot_be_read_at_all)
{
    calm_check_report report;
    ck_fails(calm_check(ctx, "/nowhere/at/all", CALM_CHECK_ANY, &report), CALM_ENOTFOUND, "no such directory");
    ck_fails(calm_check(ctx, test_directory(), CALM_CHECK_ANY, &report), CALM_ENOTFOUND, "no config.json here");
}
END_OF_TEST

TEST(a_directory_with_a_gguf_file)
{
    calm_check_report report;
    ck_ok(calm_check(ctx, good_write("gguf"), CALM_CHECK_LLAMACPP, &report));
    ck_assert_msg(report.n == 0, "%s", findings_text(&report));
    ck_assert_str_eq(report.format, "gguf");
}
END_OF_TEST

/* If the engine does not read the format at all, no details of the format are reported. */
TEST(another_engine)
{
    calm_check_report report;
    ck_ok(calm_check(ctx, good_write("mlx"), CALM_CHECK_VLLM, &report));
    ck_assert_msg(report.n == 1 && strcmp(report.findings[0].rule->id, "TG001") == 0, "%s", findings_text(&report));
}
END_OF_TEST

TEST(same_for_any_number_of_threads)
{
    const break_fault fault = {"scale_nan", "ct", "VA001", "", BREAK_POKE, "layers.0.mlp.up_proj.weight_scale",
                               "c07f",      0,    0};
    const char *to = test_format("%s/broken", test_directory()), *one, *four;
    ck_ok(break_checkpoint(ctx, good_write("ct"), to, &fault));
    ctx->n_threads = 1;
    ck_assert(is_found(&fault, to, &one));
    ctx->n_threads = 4;
    ck_assert(is_found(&fault, to, &four));
    ck_assert_str_eq(one, four);
}
END_OF_TEST

int main(void)
{
    return run_tests("check", (const TTest *[]){good_ones_are_clean, every_family_is_clean, cache_of_a_hybrid,
                                                biases_in_mlx, every_fault_is_found, rows_of_zeros,
                                                every_other_fault_is_found, gpt_oss_in_engines, llama4_in_engines,
                                                transforms, encoders_in_transformers, experts_in_transformers,
                                                scales_of_tokens_in_transformers,
                                                keys_that_vllm_needs, keys_that_engines_do_not_read,
                                                every_rule_has_its_fault, cannot_be_read_at_all,
                                                a_directory_with_a_gguf_file,
                                                another_engine, same_for_any_number_of_threads, NULL});
}
