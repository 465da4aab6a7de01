/* calm check on good checkpoints of other tools: formats that calm reads give no finding, formats that it does not
 * read give one note that names them, and neither gives another finding. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/check/check.h"
#include "ptq/io/ggml_blocks.h"
#include "tests/support/foreign_checkpoint.h"
#include "tests/support/harness.h"

#define GROUP 32
#define CHANNEL "\"strategy\": \"channel\", \"dynamic\": false"
#define CT_WITH(more, format, groups)                                                                                  \
    "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", "    \
    "\"ignore\": [\"lm_head\"], " more "\"format\": \"" format "\", \"config_groups\": {" groups "}}"
#define CT(format, groups) CT_WITH("", format, groups)
/* Transforms of llm-compressor: the weights contain R1, and R4 multiplies inputs. */
#define R1                                                                                                             \
    "\"R1\": {\"type\": \"random-hadamard\", \"apply\": [{\"targets\": [\"re:.*o_proj$\"], \"location\": "             \
    "\"weight_output\"}]}"
#define R4(type)                                                                                                       \
    "\"R4\": {\"type\": \"" type "\", \"apply\": [{\"targets\": [\"re:.*down_proj$\"], \"location\": \"input\"}]}"
#define LINEAR(more) "\"group_0\": {\"targets\": [\"Linear\"], " more "}"
#define FLOATS(bits, more) "{\"num_bits\": " bits ", \"type\": \"float\", \"symmetric\": true, " more "}"
#define INTS(bits, more) "{\"num_bits\": " bits ", \"type\": \"int\", \"symmetric\": true, " more "}"
#define GROUPED "\"strategy\": \"group\", \"group_size\": 32"
#define W4 LINEAR("\"weights\": " INTS("4", GROUPED))
#define KV_SCHEME "\"kv_cache_scheme\": " FLOATS("8", "\"strategy\": \"tensor\", \"dynamic\": false") ", "

/* ---- tensors as the tools write them ---- */

static bool is_linear(const char *module)
{
    return strstr(module, "_proj") != NULL;
}

static bool ends(const char *module, const char *end)
{
    return strlen(module) >= strlen(end) && strcmp(module + strlen(module) - strlen(end), end) == 0;
}

static size_t words(size_t n, size_t bits)
{
    return (n * bits + 31) / 32;
}

/* Lists the KV cache scales, once for each attention. */
static size_t cache_scales(const char *module, foreign_part *list)
{
    list[0] = (foreign_part){"^k_scale", "BF16", 2, 1, {1}, NULL, 0};
    list[1] = (foreign_part){"^v_scale", "BF16", 2, 1, {1}, NULL, 0};
    return ends(module, "k_proj") ? 2 : 0;
}

static size_t fp8(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "F8_E4M3", 1, 2, {out, in}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 2, {out, 1}, NULL, 0};
    return is_linear(module) ? 2 : 0;
}

static size_t fp8_static(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "F8_E4M3", 1, 2, {out, in}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 1, {1}, NULL, 0};
    list[2] = (foreign_part){"input_scale", "BF16", 2, 1, {1}, NULL, 0};
    return is_linear(module) ? 3 + cache_scales(module, list + 3) : 0;
}

static size_t fp8_blocks(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "F8_E4M3", 1, 2, {out, in}, NULL, 0};
    list[1] = (foreign_part){"weight_scale_inv", "F32", 4, 2, {(out + 127) / 128, (in + 127) / 128}, NULL, 0};
    return is_linear(module) ? 2 : 0;
}

static size_t fp8_block(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "F8_E4M3", 1, 2, {out, in}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 2, {(out + 127) / 128, (in + 127) / 128}, NULL, 0};
    return is_linear(module) ? 2 : 0;
}

static size_t nvfp4(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight_packed", "U8", 1, 2, {out, in / 2}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "F8_E4M3", 1, 2, {out, in / 16}, NULL, 0};
    list[2] = (foreign_part){"weight_global_scale", "F32", 4, 1, {1}, NULL, 0};
    list[3] = (foreign_part){"input_global_scale", "F32", 4, 1, {1}, NULL, 0};
    return is_linear(module) ? 4 : 0;
}

static size_t mxfp4(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight_packed", "U8", 1, 2, {out, in / 2}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "U8", 1, 2, {out, in / 32}, NULL, 0};
    return is_linear(module) ? 2 : 0;
}

static size_t packed(const char *module, size_t out, size_t in, foreign_part *list)
{
    int64_t *shape = (int64_t *)(void *)test_format("%32s", "");
    shape[0] = (int64_t)out;
    shape[1] = (int64_t)in;
    list[0] = (foreign_part){"weight_packed", "I32", 4, 2, {out, words(in, 4)}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 2, {out, in / GROUP}, NULL, 0};
    list[2] = (foreign_part){"weight_shape", "I64", 8, 1, {2}, shape, 0};
    return is_linear(module) ? 3 : 0;
}

static size_t fp8_attention(const char *module, size_t out, size_t in, foreign_part *list)
{
    return strstr(module, "self_attn") ? fp8(module, out, in, list) : packed(module, out, in, list);
}

static size_t packed_down(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t n = packed(module, out, in, list);
    if (n && ends(module, "down_proj")) {
        list[0].shape[1] = in / 4;
        list[1].shape[1] = 1;
    }
    return n;
}

static size_t packed_rotated(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t n = packed(module, out, in, list);
    list[n] = (foreign_part){"R4_input.weight", "F32", 4, 2, {16, 16}, NULL, 0};
    return n + ends(module, "down_proj");
}

static size_t packed_kv(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t n = packed(module, out, in, list);
    return n + (n ? cache_scales(module, list + n) : 0);
}

static size_t packed_reordered(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t n = packed(module, out, in, list);
    list[n] = (foreign_part){"weight_g_idx", "I32", 4, 1, {in}, NULL, 0};
    return n ? n + 1 : 0;
}

static size_t floats_kv(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "BF16", 2, 2, {out, in}, NULL, 0};
    return ends(module, "k_proj") ? 1 + cache_scales(module, list + 1) : 0;
}

static size_t ints(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "I8", 1, 2, {out, in}, NULL, 0};
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 2, {out, 1}, NULL, 0};
    list[2] = (foreign_part){"input_scale", "BF16", 2, 1, {1}, NULL, 0};
    return is_linear(module) ? 3 : 0;
}

static size_t ints_by_tensor(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t n = ints(module, out, in, list);
    list[1] = (foreign_part){"weight_scale", "BF16", 2, 1, {1}, NULL, 0};
    return n ? 2 : 0;
}

static size_t bitmask(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"compressed", "BF16", 2, 2, {out, in / 2}, NULL, 0};
    list[1] = (foreign_part){"bitmask", "U8", 1, 2, {out, in / 8}, NULL, 0};
    list[2] = (foreign_part){"shape", "I64", 8, 1, {2}, NULL, 0};
    return is_linear(module) ? 3 : 0;
}

static size_t marlin_24(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight_packed", "I32", 4, 2, {in / 32, out * 2}, NULL, 0};
    list[1] = (foreign_part){"scale_packed", "BF16", 2, 2, {in / GROUP, out}, NULL, 0};
    list[2] = (foreign_part){"meta", "I16", 2, 2, {in, out / 16}, NULL, 0};
    return is_linear(module) ? 3 : 0;
}

/* Lists the tensors of AutoGPTQ with reordered columns (groups alternate) and with the biases of zeros that it adds. */
static size_t gptq(const char *module, size_t out, size_t in, foreign_part *list)
{
    static const uint16_t zeros[1024];
    int32_t *index = (int32_t *)(void *)test_format("%*s", (int)(4 * in), "");
    for (size_t i = 0; i < in; i++)
        index[i] = (int32_t)(i % (in / GROUP));
    ck_assert_uint_le(out, sizeof zeros / sizeof *zeros);
    list[0] = (foreign_part){"qweight", "I32", 4, 2, {in / 8, out}, NULL, 0};
    list[1] = (foreign_part){"qzeros", "I32", 4, 2, {in / GROUP, out / 8}, NULL, 0x77};
    list[2] = (foreign_part){"scales", "F16", 2, 2, {in / GROUP, out}, NULL, 0};
    list[3] = (foreign_part){"g_idx", "I32", 4, 1, {in}, index, 0};
    list[4] = (foreign_part){"bias", "F16", 2, 1, {out}, zeros, 0};
    return is_linear(module) ? 5 : 0;
}

static size_t gptq_attention(const char *module, size_t out, size_t in, foreign_part *list)
{
    return strstr(module, "self_attn") ? gptq(module, out, in, list) : 0;
}

static size_t gptq_marlin(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"B", "I32", 4, 2, {in / 16, out * 2}, NULL, 0};
    list[1] = (foreign_part){"s", "F16", 2, 2, {in / GROUP, out}, NULL, 0};
    list[2] = (foreign_part){"workspace", "I32", 4, 1, {16}, NULL, 0};
    return is_linear(module) ? 3 : 0;
}

static size_t awq(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"qweight", "I32", 4, 2, {in, out / 8}, NULL, 0};
    list[1] = (foreign_part){"qzeros", "I32", 4, 2, {in / GROUP, out / 8}, NULL, 0};
    list[2] = (foreign_part){"scales", "F16", 2, 2, {in / GROUP, out}, NULL, 0};
    return is_linear(module) ? 3 : 0;
}

static size_t awq_first(const char *module, size_t out, size_t in, foreign_part *list)
{
    return strstr(module, "layers.0.") ? awq(module, out, in, list) : 0;
}

static size_t awq_gemv(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"qweight", "I32", 4, 2, {out, in / 8}, NULL, 0};
    list[1] = (foreign_part){"qzeros", "I32", 4, 2, {out, 1}, NULL, 0};
    list[2] = (foreign_part){"scales", "F16", 2, 2, {out, 8}, NULL, 0};
    return is_linear(module) ? 3 : 0;
}

static size_t mlx_bits(size_t bits, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "U32", 4, 2, {out, words(in, bits)}, NULL, 0};
    list[1] = (foreign_part){"scales", "BF16", 2, 2, {out, in / GROUP}, NULL, 0};
    list[2] = (foreign_part){"biases", "BF16", 2, 2, {out, in / GROUP}, NULL, 0};
    return 3;
}

/* Lists the tensors of mlx-lm's default conversion: all matrices and the embedding; down_proj has more bits. */
static size_t mlx(const char *module, size_t out, size_t in, foreign_part *list)
{
    return mlx_bits(ends(module, "down_proj") ? 8 : 4, out, in, list);
}

static size_t mlx_six(const char *module, size_t out, size_t in, foreign_part *list)
{
    (void)module;
    return mlx_bits(6, out, in, list);
}

static size_t mlx_mxfp4(const char *module, size_t out, size_t in, foreign_part *list)
{
    (void)module;
    list[0] = (foreign_part){"weight", "U32", 4, 2, {out, in / 8}, NULL, 0};
    list[1] = (foreign_part){"scales", "U8", 1, 2, {out, in / 32}, NULL, 0};
    return 2;
}

static size_t nf4(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"weight", "U8", 1, 2, {out * in / 2, 1}, NULL, 0};
    list[1] = (foreign_part){"weight.absmax", "U8", 1, 1, {out * in / 64}, NULL, 0};
    list[2] = (foreign_part){"weight.quant_map", "F32", 4, 1, {16}, NULL, 0};
    list[3] = (foreign_part){"weight.quant_state.bitsandbytes__nf4", "U8", 1, 1, {64}, NULL, 0};
    return is_linear(module) ? 4 : 0;
}

static size_t codebooks(const char *module, size_t out, size_t in, foreign_part *list)
{
    list[0] = (foreign_part){"codes", "I16", 2, 3, {out, in / 8, 1}, NULL, 0};
    list[1] = (foreign_part){"codebooks", "F16", 2, 3, {1, 256, 8}, NULL, 0};
    return is_linear(module) ? 2 : 0;
}

/* ---- the checkpoints ---- */

typedef struct foreign {
    const char *name, *entry;
    foreign_fn *parts;
    const char *rules; /* rules that are reported, each once    */
    const char *named; /* a part of the first finding's text    */
} foreign;

#define TOKEN8 "\"strategy\": \"token\", \"dynamic\": true"
#define TENSOR8 "\"strategy\": \"tensor\", \"dynamic\": false"
#define AWQ                                                                                                            \
    "\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32, \"zero_point\": true, "
#define GPTQ "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"sym\": true, "
#define MLX "\"quantization\": {\"group_size\": 32, "

static const foreign list[] = {
    /* compressed-tensors */
    {"FP8 by channel, no separate format", CT("float-quantized", LINEAR("\"weights\": " FLOATS("8", CHANNEL) ", "
     "\"input_activations\": " FLOATS("8", TOKEN8))), fp8, "", ""},
    {"FP8 by tensor with a cache", CT_WITH(KV_SCHEME, "float-quantized", LINEAR("\"format\": \"float-quantized\", "
     "\"weights\": " FLOATS("8", TENSOR8) ", \"input_activations\": " FLOATS("8", TENSOR8))), fp8_static, "", ""},
    {"FP8 by block", CT("float-quantized", LINEAR("\"weights\": " FLOATS("8", "\"strategy\": \"block\", "
     "\"block_structure\": [128, 128]"))), fp8_block, "", ""},
    {"FP8 by block, activations by group", CT("float-quantized", LINEAR("\"weights\": " FLOATS("8", "\"strategy\": "
     "\"block\", \"block_structure\": [128, 128]") ", \"input_activations\": " FLOATS("8", "\"strategy\": "
     "\"group\", \"group_size\": 128, \"dynamic\": true"))), fp8_block, "MD014", "groups of 128"},
    {"FP8 by block of another shape", CT("float-quantized", LINEAR("\"weights\": " FLOATS("8", "\"strategy\": "
     "\"block\", \"block_structure\": [64, 128]"))), fp8, "MD013", "in blocks of 128 x 128"},
    {"NVFP4", CT("nvfp4-pack-quantized", LINEAR("\"format\": \"nvfp4-pack-quantized\", \"weights\": "
     FLOATS("4", "\"strategy\": \"tensor_group\", \"group_size\": 16, \"scale_dtype\": \"torch.float8_e4m3fn\"")
     ", \"input_activations\": " FLOATS("4", "\"strategy\": \"tensor_group\", \"group_size\": 16, \"dynamic\": "
     "\"local\""))), nvfp4, "", ""},
    {"MXFP4", CT("mxfp4-pack-quantized", LINEAR("\"weights\": " FLOATS("4", GROUPED))), mxfp4, "", ""},
    {"MXFP8", CT("mxfp8-quantized", LINEAR("\"weights\": " FLOATS("8", GROUPED))), fp8, "MD013", "neither of 8 bits"},
    {"W4A16", CT("pack-quantized", W4), packed, "", ""},
    {"W4A16 with a cache", CT_WITH(KV_SCHEME, "pack-quantized", W4), packed_kv, "", ""},
    {"a cache alone", CT_WITH(KV_SCHEME, "dense", ""), floats_kv, "", ""},
    {"W4A16 and attention", CT_WITH(KV_SCHEME, "pack-quantized", W4 ", \"group_1\": {\"targets\": "
     "[\"Qwen3Attention\"], \"weights\": null, \"input_activations\": " FLOATS("8", TENSOR8) "}"),
     packed_kv, "", ""},
    {"W4A16, calibrated in another order", CT("pack-quantized", LINEAR("\"weights\": " INTS("4", GROUPED
     ", \"actorder\": \"static\""))), packed, "", ""},
    {"W4A16, reordered", CT("pack-quantized", LINEAR("\"weights\": " INTS("4", GROUPED ", \"actorder\": "
     "\"dynamic\""))), packed_reordered, "CT026", "dynamic"},
    {"W4AFP8", CT("pack-quantized", LINEAR("\"weights\": " INTS("4", GROUPED) ", \"input_activations\": "
     FLOATS("8", TOKEN8))), packed, "CT005", "readers take int-quantized"},
    {"W8A8", CT("int-quantized", LINEAR("\"weights\": " INTS("8", CHANNEL) ", \"input_activations\": "
     INTS("8", TENSOR8))), ints, "", ""},
    {"W8A8 by tensor", CT("int-quantized", LINEAR("\"weights\": " INTS("8", TENSOR8) ", \"input_activations\": "
     INTS("8", TOKEN8))), ints_by_tensor, "MD013", "int-quantized"},
    {"FP8 next to W4A16", CT("mixed-precision", "\"group_0\": {\"targets\": [\"re:.*self_attn.*_proj$\"], \"format\": "
     "\"float-quantized\", \"weights\": " FLOATS("8", CHANNEL) ", \"input_activations\": " FLOATS("8", TOKEN8) "}, "
     "\"group_1\": {\"targets\": [\"re:.*mlp.*_proj$\"], \"format\": \"pack-quantized\", \"weights\": "
     INTS("4", GROUPED) "}"), fp8_attention, "", ""},
    {"W4A16, one projection in W8A16", CT("pack-quantized", W4 ", \"group_1\": {\"targets\": [\"re:.*down_proj$\"], "
     "\"weights\": " INTS("8", CHANNEL) "}"), packed_down, "", ""},
    {"W4A16, rotated", CT_WITH("\"transform_config\": {\"config_groups\": {" R1 ", " R4("hadamard") "}}, ",
     "pack-quantized", W4), packed_rotated, "", ""},
    {"W4A16, rotated by a matrix of its own", CT_WITH("\"transform_config\": {\"config_groups\": {"
     R4("random-matrix") "}}, ", "pack-quantized", W4), packed_rotated, "MD013", "transform_config"},
    {"2:4 and W4A16", CT("marlin-24", W4), marlin_24, "MD013", "marlin-24"},
    {"sparse alone", CT_WITH("\"sparsity_config\": {\"format\": \"sparse-24-bitmask\", \"targets\": [], "
     "\"sparsity_structure\": \"2:4\"}, ", "dense", ""), bitmask, "MD013", "sparse-24-bitmask"},

    /* GPTQ */
    {"GPTQ in another order", GPTQ "\"desc_act\": true, \"damp_percent\": 0.1, \"static_groups\": false, "
     "\"true_sequential\": true, \"model_seqlen\": 4096}", gptq, "", ""},
    {"GPTQ of some", GPTQ "\"desc_act\": true, \"modules_in_block_to_quantize\": [[\"self_attn.k_proj\", "
     "\"self_attn.v_proj\", \"self_attn.q_proj\"], [\"self_attn.o_proj\"]]}", gptq_attention, "", ""},
    {"GPTQ as Marlin", GPTQ "\"desc_act\": false, \"checkpoint_format\": \"marlin\"}", gptq_marlin, "MD013", "marlin"},

    /* AWQ */
    {"AWQ of all", AWQ "\"version\": \"GEMM\", \"backend\": \"autoawq\", \"do_fuse\": false, "
     "\"modules_to_not_convert\": null}", awq, "", ""},
    {"AWQ of some", AWQ "\"version\": \"gemm\", \"modules_to_not_convert\": [\"visual\", \"model.layers.1.\"]}",
     awq_first, "", ""},
    {"AWQ as gemv", AWQ "\"version\": \"gemv\"}", awq_gemv, "MD013 AW002", "gemv"},

    /* MLX */
    {"MLX, mixed", MLX "\"bits\": 4, \"model.layers.0.mlp.down_proj\": {\"group_size\": 32, \"bits\": 8}, "
     "\"model.layers.1.mlp.down_proj\": {\"group_size\": 32, \"bits\": 8}}", mlx, "", ""},
    {"MLX, 6 bits", MLX "\"bits\": 6, \"mode\": \"affine\"}", mlx_six, "MD013", "\"bits\" is 6"},
    {"MLX, MXFP4", MLX "\"bits\": 4, \"mode\": \"mxfp4\"}", mlx_mxfp4, "MD013", "mxfp4"},

    /* others */
    {"bitsandbytes", "\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}", nf4,
     "MD013", "bitsandbytes"},
    {"FP8 of DeepSeek", "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}",
     fp8_blocks, "", ""},
    {"AQLM", "\"quantization_config\": {\"quant_method\": \"aqlm\"}", codebooks, "MD013", "aqlm"},
    {"AutoRound", "\"quantization_config\": {\"quant_method\": \"auto-round\", \"bits\": 4}", gptq, "MD013",
     "auto-round"},
};

/* Returns the rules of the findings, each once, in their order, as "MD013 CT026"; *texts = all findings as text. */
static const char *said(const calm_check_report *report, const char **texts)
{
    const char *ids = "";
    *texts = "";
    for (size_t i = 0; i < report->n; i++) {
        const calm_finding *at = &report->findings[i];
        *texts = test_format("%s\n  %s %s: %s", *texts, at->rule->id, at->where, at->what);
        if (!strstr(ids, at->rule->id))
            ids = test_format("%s%s%s", ids, *ids ? " " : "", at->rule->id);
    }
    return ids;
}

static void expect(const char *name, const char *path, const char *rules, const char *named)
{
    calm_check_report report;
    const char *texts;
    ck_ok(calm_check(ctx, path, CALM_CHECK_ANY, &report));
    const char *ids = said(&report, &texts);
    ck_assert_msg(strcmp(ids, rules) == 0 && strstr(texts, named), "%s: \"%s\", expected \"%s\" that names \"%s\"%s",
                  name, ids, rules, named, texts);
    ck_assert_uint_gt(report.n_tensors, 0);
    /* An engine may lack support of the checkpoint (TG rules), but none finds it broken. */
    for (calm_check_engine target = CALM_CHECK_VLLM; target <= CALM_CHECK_MLX; target++) {
        ck_ok(calm_check(ctx, path, target, &report));
        (void)said(&report, &texts);
        for (size_t i = 0; i < report.n; i++) {
            const char *id = report.findings[i].rule->id;
            ck_assert_msg(report.findings[i].rule->severity != CALM_SEVERITY_ERROR || strncmp(id, "TG", 2) == 0 ||
                              strstr(rules, id),
                          "%s for target %d%s", name, (int)target, texts);
        }
    }
}

TEST(directories)
{
    tiny_model spec = tiny_wide("qwen3");
    spec.tied = true;
    spec.bias = false;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        expect(list[i].name, foreign_write(&spec, list[i].entry, list[i].parts), list[i].rules, list[i].named);
}
END_OF_TEST

/* ModelOpt writes its entry into a separate file; calm knows the dtypes of its tensors. */
TEST(modelopt)
{
    tiny_model spec = tiny_wide("qwen3");
    spec.bias = false;
    static const char entry[] =
        "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {\"quant_algo\": \"W4A16\"}}";
    const char *dir = foreign_write(&spec, "\"use_cache\": true", mxfp4);
    ck_ok(calm_write_file(ctx, test_format("%s/hf_quant_config.json", dir), entry, strlen(entry)));
    expect("ModelOpt", dir, "MD013", "hf_quant_config.json");
}
END_OF_TEST

/* Meta's and Mistral's original files next to the model's are ignored. */
TEST(other_files)
{
    tiny_model spec = tiny_wide("llama");
    spec.tied = spec.bias = false;
    const char *dir = foreign_write(&spec, CT("pack-quantized", W4), packed);
    ck_ok(calm_make_directories(ctx, test_format("%s/original", dir)));
    ck_ok(calm_write_file(ctx, test_format("%s/original/consolidated.00.pth", dir), "PK", 2));
    ck_ok(calm_write_file(ctx, test_format("%s/consolidated.safetensors", dir), "none", 4));
    ck_ok(calm_write_file(ctx, test_format("%s/pytorch_model.bin", dir), "PK", 2));
    expect("other files", dir, "", "");
}
END_OF_TEST

/* ---- GGUF ---- */

#define INNER_ROW 1024    /* bytes of a row of ffn_down, the last tensor, in F16 */

static const struct {
    const char *name;
    foreign_file file;
    const char *rules, *named;
} files[] = {
    {"Q4_K_M", {.most = CALM_GGML_Q4_K, .some = CALM_GGML_Q6_K}, "", ""},
    {"Q2_K", {.most = CALM_GGML_Q2_K, .some = CALM_GGML_Q3_K}, "", ""},
    {"Q4_1", {.most = CALM_GGML_Q4_1, .some = CALM_GGML_Q6_K}, "", ""},
    {"Q5_0", {.most = CALM_GGML_Q5_0, .some = CALM_GGML_Q5_1}, "", ""},
    {"Q5_1", {.most = CALM_GGML_Q5_1, .some = CALM_GGML_Q6_K}, "", ""},
    {"Q3_K_M", {.most = CALM_GGML_Q3_K, .some = CALM_GGML_Q5_K}, "", ""},
    {"IQ4_XS", {.most = CALM_GGML_IQ4_XS, .some = CALM_GGML_Q6_K}, "", ""},
    {"IQ2_XXS", {.most = CALM_GGML_IQ2_XXS, .some = CALM_GGML_Q2_K}, "", ""},
    {"IQ3_S", {.most = CALM_GGML_IQ3_S, .some = CALM_GGML_IQ4_NL}, "", ""},
    {"MXFP4", {.most = CALM_GGML_MXFP4, .some = CALM_GGML_Q8_0}, "", ""},
    {"TQ1_0", {.most = CALM_GGML_TQ1_0, .some = CALM_GGML_Q4_K}, "", ""},
    {"NVFP4", {.most = CALM_GGML_NVFP4, .some = CALM_GGML_Q8_0, .scales = true}, "", ""},
    {"YaRN", {.most = CALM_GGML_Q4_K, .some = CALM_GGML_Q6_K, .yarn = true}, "", ""},
    {"an encoder of images", {.arch = "clip", .most = CALM_GGML_F16, .some = CALM_GGML_F16}, "GG003", "clip"},
    {"a part", {.most = CALM_GGML_Q4_K, .some = CALM_GGML_Q6_K, .n_split = 3}, "GG018", "one of 3 files"},
};

TEST(gguf_files)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        expect(files[i].name, foreign_gguf(&files[i].file), files[i].rules, files[i].named);
}
END_OF_TEST

/* A file that cannot be opened gives one finding. */
static void expect_unreadable(const char *name, const char *path, const char *words)
{
    calm_check_report report;
    const char *texts;
    ck_ok(calm_check(ctx, path, CALM_CHECK_ANY, &report));
    ck_assert_str_eq(said(&report, &texts), "GG001");
    ck_assert_msg(strstr(texts, words), "%s: %s", name, texts);
}

/* One fault in a file of each type: a scale that is NaN, data that end too early, a row that is not a whole number
 * of blocks. */
TEST(gguf_faults)
{
    for (uint32_t number = 0; number < 64; number++) {
        size_t at[2], n;
        char *bytes;
        foreign_file file = {.most = (calm_ggml_type)number, .some = CALM_GGML_F16};
        if (!calm_ggml_find(number) || !calm_ggml_blocks_find((calm_ggml_type)number))
            continue;
        const char *name = calm_ggml_find(number)->name;
        for (file.spoiled = 1; file.spoiled <= (int)calm_ggml_halves(file.most, at); file.spoiled++)
            expect(name, foreign_gguf(&file), "GG014", "blk.0.ffn_up.weight: 1 of its scales");
        file.spoiled = 0;
        const char *path = foreign_gguf(&file);
        ck_ok(calm_read_file(ctx, path, 1 << 24, &bytes, &n));
        ck_ok(calm_write_file(ctx, path, bytes, n - INNER_ROW));
        expect_unreadable(name, path, "truncated download?");
        /* Rows of ffn_up become 257 long, not a multiple of the block.  The file then ends too early, too, reported
         * second. */
        char *dim = memmem(bytes, n, "blk.0.ffn_up.weight", strlen("blk.0.ffn_up.weight"));
        ck_assert_ptr_nonnull(dim);
        dim[strlen("blk.0.ffn_up.weight") + 4] = 1;
        ck_ok(calm_write_file(ctx, path, bytes, n));
        expect_unreadable(name, path, "rows of 257 elements, expected a multiple of");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("check_foreign",
                     (const TTest *[]){directories, modelopt, other_files, gguf_files, gguf_faults, NULL});
}
