/* calm check --target E and calm's export plans for E agree: a kernel finding is reported for exactly the linears
 * whose scheme and shape calm_engine_verdict() refuses, with the sentence of calm_engine_explain(), in every format;
 * both parts of calm have the same names of engines. */
#include "ptq/check/check.h"

#include <stdio.h>

#include "ptq/export/export.h"
#include "ptq/plan/engines.h"
#include "tests/support/foreign_checkpoint.h"
#include "tests/support/harness.h"

/* ---- a checkpoint with one scheme ---- */

typedef struct linear {
    const char *module;
    size_t out, in;
} linear;

static calm_scheme scheme;
static linear linears[256];
static size_t n_linears;

static size_t words(size_t n)
{
    return (n * (size_t)scheme.bits + 31) / 32;
}

/* Records the linear and returns its number of groups; 0 if the module is no linear. */
static size_t note(const char *module, size_t out, size_t in)
{
    if (!strstr(module, "_proj"))
        return 0;
    ck_assert_uint_lt(n_linears, sizeof linears / sizeof *linears);
    linears[n_linears++] = (linear){module, out, in};
    return calm_scheme_groups(&scheme, in);
}

/* Lists the tensors of a float scheme: codes of 8 bits one per byte, others two per byte; scales as the scheme's row
 * of schemes.def stores them. */
static size_t floats(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t groups = note(module, out, in), rows = calm_scheme_row_blocks(&scheme, out);
    const calm_scale_code code = calm_scheme_family(&scheme)->scale;
    size_t n = 2;
    list[0] = scheme.bits == 8 ? (foreign_part){"weight", "F8_E4M3", 1, 2, {out, in}, NULL, 0}
                               : (foreign_part){"weight_packed", "U8", 1, 2, {out, in / 2}, NULL, 0};
    list[1] = code == CALM_SCALE_E8M0   ? (foreign_part){"weight_scale", "U8", 1, 2, {out, groups}, NULL, 0x7f}
              : code == CALM_SCALE_E4M3 ? (foreign_part){"weight_scale", "F8_E4M3", 1, 2, {out, groups}, NULL, 0}
              : calm_scheme_is_whole(&scheme) ? (foreign_part){"weight_scale", "BF16", 2, 1, {1}, NULL, 0}
                                              : (foreign_part){"weight_scale", "BF16", 2, 2, {rows, groups}, NULL, 0};
    if (scheme.act_rule == CALM_ACT_RULE_FP8_STATIC)
        list[n++] = (foreign_part){"input_scale", "BF16", 2, 1, {1}, NULL, 0};
    if (code == CALM_SCALE_E4M3)
        list[n++] = (foreign_part){"weight_global_scale", "F32", 4, 1, {1}, NULL, 0};
    if (code == CALM_SCALE_E4M3 && scheme.act_bits)
        list[n++] = (foreign_part){"input_global_scale", "F32", 4, 1, {1}, NULL, 0};
    return groups ? n : 0;
}

static size_t compressed_tensors(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t groups = note(module, out, in);
    int64_t *shape = (int64_t *)(void *)test_format("%32s", "");
    shape[0] = (int64_t)out;
    shape[1] = (int64_t)in;
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 2, {out, groups}, NULL, 0};
    if (scheme.act_bits && scheme.act_rule != CALM_ACT_RULE_FP8) {
        list[0] = (foreign_part){"weight", "I8", 1, 2, {out, in}, NULL, 1};
        list[2] = (foreign_part){"input_scale", "BF16", 2, 1, {1}, NULL, 0};
        return groups ? 2 + (scheme.act_rule == CALM_ACT_RULE_STATIC) : 0;
    }
    list[0] = (foreign_part){"weight_packed", "I32", 4, 2, {out, words(in)}, NULL, 0};
    list[2] = (foreign_part){"weight_shape", "I64", 8, 1, {2}, shape, 0};
    list[3] = (foreign_part){"weight_zero_point", "I32", 4, 2, {words(out), groups}, NULL, 0};
    return groups ? 3 + !scheme.symmetric : 0;
}

static size_t gptq(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t groups = note(module, out, in);
    list[0] = (foreign_part){"qweight", "I32", 4, 2, {words(in), out}, NULL, 0};
    list[1] = (foreign_part){"qzeros", "I32", 4, 2, {groups, words(out)}, NULL, 0};
    list[2] = (foreign_part){"scales", "F16", 2, 2, {groups, out}, NULL, 0};
    return groups ? 3 : 0;
}

static size_t awq(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t groups = note(module, out, in);
    list[0] = (foreign_part){"qweight", "I32", 4, 2, {in, words(out)}, NULL, 0};
    list[1] = (foreign_part){"qzeros", "I32", 4, 2, {groups, words(out)}, NULL, 0};
    list[2] = (foreign_part){"scales", "F16", 2, 2, {groups, out}, NULL, 0};
    return groups ? 3 : 0;
}

static size_t mlx(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t groups = note(module, out, in);
    list[0] = (foreign_part){"weight", "U32", 4, 2, {out, words(in)}, NULL, 0};
    list[1] = (foreign_part){"scales", "F16", 2, 2, {out, groups}, NULL, 0};
    list[2] = (foreign_part){"biases", "F16", 2, 2, {out, groups}, NULL, 0};
    return groups ? 3 : 0;
}

/* Arguments: the format, the format once more, "weights", "input_activations". */
#define CT_ENTRY                                                                                                       \
    "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", "    \
    "\"format\": \"%s\", \"version\": \"0.18.0\", \"ignore\": [\"lm_head\", \"re:.*mlp.gate$\"], "                     \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"format\": \"%s\", \"weights\": %s, "              \
    "\"input_activations\": %s}}}"

static const char *group_text(void)
{
    return scheme.group ? test_format("%zu", scheme.group) : "-1";
}

/* Returns the arguments of a float scheme; "group_size" only if the scheme has groups. */
static const char *float_args(bool inputs)
{
    const bool global = calm_scheme_has_global(&scheme) && scheme.group, blocks = calm_scheme_rows(&scheme) > 1;
    const bool fixed = scheme.act_rule == CALM_ACT_RULE_FP8_STATIC;
    const char *strategy = !scheme.group       ? (inputs ? fixed ? "tensor" : "token"
                                            : calm_scheme_is_whole(&scheme) ? "tensor" : "channel")
                           : blocks && !inputs ? "block\", \"block_structure\": [128, 128], \"x\": \""
                           : global            ? "tensor_group"
                                               : "group";
    return test_format("{\"num_bits\": %d, \"type\": \"float\", \"symmetric\": true, \"strategy\": \"%s\", "
                       "\"group_size\": %s, \"dynamic\": %s}", scheme.bits, strategy,
                       scheme.group && !(blocks && !inputs) ? test_format("%zu", scheme.group) : "null",
                       !inputs || fixed ? "false" : global ? "\"local\"" : "true");
}

static const char *floats_entry(void)
{
    const char *format = scheme.bits == 8                ? "float-quantized"
                         : calm_scheme_has_global(&scheme) ? "nvfp4-pack-quantized"
                                                           : "mxfp4-pack-quantized";
    return test_format(CT_ENTRY, format, format, float_args(false), scheme.act_bits ? float_args(true) : "null");
}

#define FP8_INPUTS                                                                                                     \
    "{\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, \"strategy\": \"token\", \"dynamic\": true}"

static const char *compressed_entry(void)
{
    const bool floats_in = scheme.act_rule == CALM_ACT_RULE_FP8;
    const char *strategy = scheme.group ? test_format("\"group\", \"group_size\": %zu", scheme.group) : "\"channel\"",
               *format = scheme.act_bits && !floats_in ? "int-quantized" : "pack-quantized",
               *inputs = floats_in ? FP8_INPUTS
                         : scheme.act_bits
                             ? test_format("{\"num_bits\": %d, \"type\": \"int\", \"symmetric\": %s, \"strategy\": %s}",
                                           scheme.act_bits, scheme.act_asymmetric ? "false" : "true",
                                           scheme.act_rule == CALM_ACT_RULE_STATIC
                                               ? "\"tensor\", \"dynamic\": false"
                                               : "\"token\", \"dynamic\": true")
                             : "null";
    const char *weights = test_format("{\"num_bits\": %d, \"type\": \"int\", \"symmetric\": %s, \"strategy\": %s, "
                                      "\"dynamic\": false}",
                                      scheme.bits, scheme.symmetric ? "true" : "false", strategy);
    return test_format(CT_ENTRY, format, format, weights, inputs);
}

static const char *gptq_entry(void)
{
    return test_format("\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": %d, \"group_size\": %s, "
                       "\"desc_act\": false, \"sym\": %s, \"checkpoint_format\": \"gptq_v2\", \"dynamic\": "
                       "{\"-:.*mlp.gate$\": {}}}",
                       scheme.bits, group_text(), scheme.symmetric ? "true" : "false");
}

static const char *awq_entry(void)
{
    return test_format("\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": %s, "
                       "\"zero_point\": true, \"version\": \"gemm\", \"modules_to_not_convert\": [\"mlp.gate.\"]}",
                       group_text());
}

static const char *mlx_entry(void)
{
    return test_format("\"quantization\": {\"bits\": %d, \"group_size\": %zu, \"mode\": \"affine\"}", scheme.bits,
                       scheme.group);
}

static const struct {
    const char *name, *schemes[24];
    foreign_fn *parts;
    const char *(*entry)(void);
} formats[] = {
    {"compressed-tensors",
     {"w4a16_g32", "w4a16_g64", "w4a16_g128", "w4a16_g16", "w4a16", "w8a16", "w8a16_g32", "w3a16_g32", "w2a16",
      "w4a16_g32_asym", "w8a16_g32_asym", "w8a16_asym", "w3a16_g32_asym", "w8a8", "w8a8_asymact", "w8a8_static", "w4a8",
      "w4a4_g32", "w8a8_g32", "w4afp8_g128", "w4afp8_g32", "w8afp8", "w4afp8"},
     compressed_tensors, compressed_entry},
    {"compressed-tensors", {NULL}, floats, floats_entry},    /* every row of schemes.def that the exporter writes */
    {"gptq", {"w4a16_g32", "w4a16", "w8a16", "w3a16_g32", "w2a16_g16", "w4a16_g32_asym", "w4a16_g8"}, gptq, gptq_entry},
    {"awq", {"w4a16_g32_asym", "w4a16_g16_asym", "w4a16_asym", "w4a16_g64_asym"}, awq, awq_entry},
    {"mlx", {"w4a16_g32_asym", "w8a16_g64_asym", "w3a16_g32_asym"}, mlx, mlx_entry},
};

/* ---- the expected findings, and those reported ---- */

/* Returns the number of output rows of the fused linear in vLLM and SGLang (q, k, v; gate, up); *part as in
 * calm_engine_linear. */
static size_t fused_rows(const linear *at, size_t *part)
{
    static const char *const sets[2][3] = {{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj", "up_proj"}};
    const size_t stem = (size_t)(strrchr(at->module, '.') + 1 - at->module);
    size_t rows = 0, last = 0;
    *part = 0;
    for (size_t s = 0; s < 2; s++) {
        bool in_set = false;
        for (size_t i = 0; i < 3; i++)
            in_set |= strcmp(at->module + stem, sets[s][i]) == 0;
        for (size_t i = 0; in_set && i < 3 - s; i++)
            for (size_t k = 0; k < n_linears; k++)
                if (strncmp(linears[k].module, at->module, stem) == 0 &&
                    strcmp(linears[k].module + stem, sets[s][i]) == 0) {
                    rows += linears[k].out;
                    *part = last ? calm_engine_part(*part, last) : 0;
                    last = linears[k].out;
                }
    }
    return rows ? rows : at->out;
}

static bool is_of_kernels(const calm_finding *finding)
{
    static const char *const rules[] = {"TG002", "TG003", "TG004", "TG006", "TG008", "TG009"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(finding->rule->id, rules[i]) == 0)
            return true;
    return false;
}

static const calm_finding *finding_of(const calm_check_report *report, const char *module)
{
    const calm_finding *found = NULL;
    for (size_t i = 0; i < report->n; i++)
        if (is_of_kernels(&report->findings[i]) && strcmp(report->findings[i].where, module) == 0) {
            ck_assert_ptr_null(found);
            found = &report->findings[i];
        }
    return found;
}

static size_t n_compared, n_refused, rules_seen;

static void compare(const char *dir, const char *format, calm_check_engine asked, const calm_engine *engine)
{
    const bool reads = calm_engine_reads(engine, format);
    const bool fuses = asked == CALM_CHECK_VLLM || asked == CALM_CHECK_VLLM_CPU || asked == CALM_CHECK_VLLM_ROCM
                       || asked == CALM_CHECK_SGLANG;
    calm_check_report report;
    ck_ok(calm_check(ctx, dir, asked, &report));
    for (size_t i = 0; i < n_linears; i++) {
        const linear *at = &linears[i];
        calm_engine_linear as = {at->module, at->out, at->in, strstr(at->module, ".experts.") != NULL, 0, false};
        if (fuses)
            as.out = fused_rows(at, &as.part);
        const calm_engine_rule rule = calm_engine_verdict(engine, format, &as, &scheme);
        const calm_finding *found = finding_of(&report, at->module);
        char name[CALM_SCHEME_NAME_MAX], *why;
        calm_scheme_name(&scheme, name);
        ck_assert_msg((found != NULL) == (reads && rule != CALM_ENGINE_TAKES),
                      "%s, %s as %s, %s [%zu, %zu]: rule %d, found %s", calm_engine_name(engine), name, format,
                      at->module, as.out, as.in, (int)rule, found ? found->what : "nothing");
        n_compared++;
        if (!found)
            continue;
        ck_ok(calm_engine_explain(ctx, engine, format, &as, &scheme, &why));
        ck_assert_msg(strstr(found->what, why) != NULL, "\"%s\" does not say \"%s\"", found->what, why);
        rules_seen |= (size_t)1 << rule;
        n_refused++;
    }
}

/* Tells whether the format can store the scheme for this model: every row fills whole 32-bit words. */
static bool is_stored(const char *format, const tiny_model *spec)
{
    const size_t sides[] = {spec->hidden, spec->n_experts ? spec->expert_inner : spec->inner,
                            spec->n_heads * spec->head_dim, spec->n_kv * spec->head_dim};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        if (strcmp(format, "compressed-tensors") != 0 && sides[i] * (size_t)scheme.bits % 32 != 0)
            return false;
    return true;
}

/* Returns the names of the schemes.def rows that compressed-tensors holds, each with activations and for weights
 * alone. */
static const char *small_float(size_t index)
{
    const calm_exporter *exporter;
    ck_ok(calm_exporter_find(ctx, "compressed_tensors", &exporter));
    for (int family = 1; family < CALM_N_FAMILIES; family++)
        if (exporter->families >> family & 1) {
            if (index < 2)
                return test_format("%s%s", calm_families[family].name, index ? "a16" : "");
            index -= 2;
        }
    return index == 0 ? "fp8_static" : index == 1 ? "fp8_tensor_static" : NULL;
}

static void compare_model(const tiny_model *spec)
{
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < 24; s++) {
            const char *name = formats[f].parts == floats ? small_float(s) : formats[f].schemes[s];
            if (!name)
                break;
            ck_ok(calm_scheme_parse(ctx, name, &scheme));
            if (!is_stored(formats[f].name, spec))
                continue;
            n_linears = 0;
            const char *dir = foreign_write(spec, formats[f].entry(), formats[f].parts);
            for (calm_check_engine asked = CALM_CHECK_ANY; asked <= CALM_CHECK_MLX; asked++)
                compare(dir, formats[f].name, asked, calm_engine_find(calm_check_engine_name(asked)));
        }
}

TEST(dense)
{
    static const size_t sizes[][5] = {
        {128, 256, 4, 2, 32}, {96, 192, 3, 1, 32}, {72, 80, 3, 1, 24}, {64, 576, 2, 2, 32}, {76, 44, 2, 1, 38}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tiny_model spec = tiny_default;
        spec.n_blocks = 1;
        spec.hidden = sizes[i][0];
        spec.inner = sizes[i][1];
        spec.n_heads = sizes[i][2];
        spec.n_kv = sizes[i][3];
        spec.head_dim = sizes[i][4];
        compare_model(&spec);
    }
    ck_assert_uint_gt(n_refused, 1000);
    ck_assert_uint_gt(n_compared - n_refused, 1000);
    ck_assert(rules_seen == (1u << CALM_ENGINE_FAMILY | 1u << CALM_ENGINE_ACTIVATIONS | 1u << CALM_ENGINE_BITS |
                             1u << CALM_ENGINE_ZEROS | 1u << CALM_ENGINE_GROUP | 1u << CALM_ENGINE_COLUMNS |
                             1u << CALM_ENGINE_ROWS));
}
END_OF_TEST

TEST(mixtures)
{
    static const size_t sizes[][2] = {{128, 64}, {64, 128}, {96, 32}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tiny_model spec = tiny_of("qwen3_moe");
        spec.n_blocks = 1;
        spec.hidden = sizes[i][0];
        spec.expert_inner = sizes[i][1];
        spec.n_experts = 2;
        spec.n_heads = 4;
        spec.head_dim = 32;
        compare_model(&spec);
    }
    ck_assert_uint_gt(n_refused, 1000);
    ck_assert_uint_gt(n_compared - n_refused, 1000);
}
END_OF_TEST

/* ---- experts that share a scheme ---- */

static const char *wide;    /* text in the names of the linears with 8 bits; the others have 4 */

#define CT_OF_WIDTH(targets, bits)                                                                                     \
    "{\"targets\": [\"re:" targets ".*_proj$\"], \"format\": \"pack-quantized\", \"weights\": {\"num_bits\": " bits    \
    ", \"type\": \"int\", \"symmetric\": true, \"strategy\": \"group\", \"group_size\": 32}}"
#define CT_TWO_WIDTHS                                                                                                  \
    "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", "    \
    "\"format\": \"pack-quantized\", \"version\": \"0.17.1\", \"ignore\": [\"lm_head\", \"re:.*mlp.gate$\"], "         \
    "\"config_groups\": {\"narrow\": " CT_OF_WIDTH("(?!.*%s)", "4") ", \"wide\": " CT_OF_WIDTH("(?=.*%s)", "8") "}}"

static size_t two_widths(const char *module, size_t out, size_t in, foreign_part *list)
{
    scheme.bits = strstr(module, wide) ? 8 : 4;
    return compressed_tensors(module, out, in, list);
}

/* Tells whether two experts that the engine ties together have different widths. */
static bool is_torn(calm_tie tie)
{
    for (size_t i = 0; i < n_linears; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = linears[i].module, *b = linears[k].module;
            const size_t x = calm_tie_number(tie, strstr(a, "layers.1") != NULL, true, strstr(a, "down") != NULL),
                         y = calm_tie_number(tie, strstr(b, "layers.1") != NULL, true, strstr(b, "down") != NULL);
            if (strstr(a, ".experts.") && strstr(b, ".experts.") && x && x == y &&
                (strstr(a, wide) != NULL) != (strstr(b, wide) != NULL))
                return true;
        }
    return false;
}

static bool says_torn(const calm_check_report *report)
{
    for (size_t i = 0; i < report->n; i++)
        if (strcmp(report->findings[i].rule->id, "TG008") == 0 || strcmp(report->findings[i].rule->id, "FU003") == 0)
            return true;
    return false;
}

TEST(ties)
{
    static const char *const wides[] = {"nothing", "layers.1.mlp.experts", "experts.1.", "down_proj", "self_attn"};
    size_t n_torn = 0;
    for (size_t i = 0; i < sizeof wides / sizeof *wides; i++) {
        tiny_model spec = tiny_wide("qwen3_moe");
        calm_check_report report;
        spec.bias = false;
        ck_ok(calm_scheme_parse(ctx, "w4a16_g32", &scheme));
        n_linears = 0;
        wide = wides[i];
        const char *dir = foreign_write(&spec, test_format(CT_TWO_WIDTHS, wide, wide), two_widths);
        for (calm_check_engine asked = CALM_CHECK_VLLM; asked <= CALM_CHECK_TRANSFORMERS; asked++) {
            const calm_engine *engine = calm_engine_find(calm_check_engine_name(asked));
            const bool torn = is_torn(calm_engine_tie(engine, "compressed-tensors"));
            ck_ok(calm_check(ctx, dir, asked, &report));
            ck_assert_msg(says_torn(&report) == torn, "%s of 8 bits: %s", wide, calm_engine_name(engine));
            n_torn += torn;
        }
    }
    ck_assert_uint_eq(n_torn, 11);    /* two in a block, in five engines; one of blocks, in transformers */
}
END_OF_TEST

/* ---- names ---- */

TEST(one_set_of_engines)
{
    const char *joined = "";
    size_t n = 1;
    for (const char *at = CALM_ENGINE_NAMES; *at; at++)
        n += *at == '|';
    ck_assert_uint_eq(n, CALM_CHECK_MLX + 1);
    for (calm_check_engine asked = CALM_CHECK_ANY; asked <= CALM_CHECK_MLX; asked++) {
        const char *name = calm_check_engine_name(asked);
        ck_assert_ptr_nonnull(calm_engine_find(name));
        joined = test_format("%s%s%s", joined, *joined ? "|" : "", name);
    }
    ck_assert_str_eq(joined, CALM_CHECK_ENGINE_NAMES);
}
END_OF_TEST

int main(void)
{
    return run_tests("check_engines", (const TTest *[]){dense, mixtures, ties, one_set_of_engines, NULL});
}
