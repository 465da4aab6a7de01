/* Reading formats of quantized checkpoints: what a configuration says about modules, and from a module's tensors to
 * weights. */
#include "ptq/weights/qformat.h"

#include <dirent.h>
#include <stdio.h>

#include "ptq/quant/pack.h"
#include "tests/support/harness.h"

#define CT(rest) "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", " rest "}}"
#define GPTQ(rest) "{\"quantization_config\": {\"quant_method\": \"gptq\", " rest "}}"
#define AWQ(rest) "{\"quantization_config\": {\"quant_method\": \"awq\", " rest "}}"
#define MLX(rest) "{\"quantization\": {" rest "}}"

static calm_status open_text(const char *text, calm_qformat_reader **out)
{
    calm_json *config;
    ck_ok(calm_json_parse(ctx, "config.json", text, strlen(text), &config));
    const calm_status status = calm_qformat_open(ctx, "config.json", config, out);
    calm_json_free(config);    /* nothing in the result points into it */
    return status;
}

static calm_qformat_reader *must_open(const char *text, const char *format)
{
    calm_qformat_reader *reader;
    ck_ok(open_text(text, &reader));
    ck_assert_msg(reader != NULL, "%s: float", text);
    ck_assert_str_eq(calm_qformat_of(reader)->name, format);
    return reader;
}

TEST(float_checkpoints)
{
    static const char *const texts[] = {"{}", "{\"quantization_config\": null}", "{\"quantization\": null}"};
    calm_qformat_reader *reader;
    for (size_t i = 0; i < 3; i++) {
        ck_ok(open_text(texts[i], &reader));
        ck_assert_ptr_null(reader);
    }
    calm_qformat_close(NULL);
}
END_OF_TEST

TEST(refused_configurations)
{
    static const struct {
        const char *text, *words;
        calm_status status;
    } rows[] = {
        {"{\"quantization_config\": {\"quant_method\": \"hqq\"}}", "quant_method \"hqq\": calm reads",
         CALM_EUNSUPPORTED},
        {"{\"quantization_config\": {\"bits\": 4}}", "quant_method \"(none)\"", CALM_EUNSUPPORTED},
        {"{\"quantization_config\": 7}", "calm reads", CALM_EUNSUPPORTED},
        {"{\"quantization\": {\"bits\": 4}}", "without group_size and bits", CALM_EUNSUPPORTED},
        {CT("\"format\": \"pack-quantized\""), "quantization_status", CALM_EUNSUPPORTED},
        {CT("\"quantization_status\": \"compressed\""), "config_groups is missing", CALM_EFORMAT},
        {GPTQ("\"bits\": 5"), "\"bits\" is 5", CALM_EUNSUPPORTED},
        {GPTQ("\"group_size\": 128"), "bits", CALM_EFORMAT},
        {GPTQ("\"bits\": \"4\""), "bits", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"group_size\": 0"), "\"group_size\" is 0", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"group_size\": 99999999999"), "group_size", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"checkpoint_format\": \"marlin\""), "checkpoint_format \"marlin\"", CALM_EUNSUPPORTED},
        {GPTQ("\"bits\": 4, \"pack_dtype\": \"int8\""), "pack_dtype \"int8\"", CALM_EUNSUPPORTED},
        {GPTQ("\"bits\": 4, \"sym\": 1"), "sym", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"dynamic\": []"), "dynamic: an array", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"dynamic\": {\"+:(\": {}}"), "config.json", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"dynamic\": {\"q\": 3}"), "\"q\" is a whole number, expected an object", CALM_EFORMAT},
        {GPTQ("\"bits\": 4, \"dynamic\": {\"q\": {\"bits\": 7}}"), "\"bits\" is 7", CALM_EUNSUPPORTED},
        {GPTQ("\"bits\": 4, \"modules_in_block_to_quantize\": [[1]]"), "not a string", CALM_EFORMAT},
        {AWQ("\"bits\": 8"), "8 bits: 4 are read", CALM_EUNSUPPORTED},
        {AWQ("\"bits\": 4, \"version\": \"gemv\""), "version \"gemv\"", CALM_EUNSUPPORTED},
        {AWQ("\"bits\": 4, \"zero_point\": false"), "zero_point is false", CALM_EUNSUPPORTED},
        {AWQ("\"bits\": 4, \"modules_to_not_convert\": [3]"), "modules_to_not_convert", CALM_EFORMAT},
        {AWQ("\"bits\": 4, \"modules_to_not_convert\": [\"\"]"), "or empty", CALM_EFORMAT},
        {MLX("\"group_size\": 48, \"bits\": 4"), "groups of 48: MLX has 32, 64 and 128", CALM_EUNSUPPORTED},
        {MLX("\"group_size\": 64, \"bits\": 6"), "\"bits\" is 6", CALM_EUNSUPPORTED},
        {MLX("\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\""), "mode \"mxfp4\": affine is read",
         CALM_EUNSUPPORTED},
        {MLX("\"group_size\": 32, \"bits\": 4, \"m\": {\"bits\": 4, \"group_size\": 16}"),
         "quantization.m: groups of 16", CALM_EUNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_qformat_reader *reader;
        const calm_status status = open_text(rows[i].text, &reader);
        ck_assert_ptr_null(reader);
        ck_assert_msg(status == rows[i].status && strstr(ctx->message, rows[i].words), "%s: %s: %s", rows[i].text,
                      calm_status_name(status), ctx->message);
        calm_ctx_clear_failure(ctx);
    }
}
END_OF_TEST

/* ---- schemes ---- */

/* Returns "" for a float module, else bits, group, and s or a. */
static const char *scheme_of(const calm_qformat_reader *reader, const char *module)
{
    calm_qformat_scheme scheme;
    bool quantized;
    ck_ok(calm_qformat_find(ctx, reader, NULL, module, &quantized, &scheme));
    return quantized ? test_format("%d g%zu %c", scheme.bits, scheme.group, scheme.symmetric ? 's' : 'a') : "";
}

TEST(schemes_of_modules)
{
    static const struct {
        const char *format, *text, *module, *scheme;
    } rows[] = {
        {"gptq", GPTQ("\"bits\": 4, \"group_size\": 128"), "x.q_proj", "4 g128 s"},
        {"gptq", GPTQ("\"bits\": 8, \"group_size\": -1, \"sym\": false"), "x.q_proj", "8 g0 a"},
        {"gptq", GPTQ("\"bits\": 8"), "x.q_proj", "8 g0 s"},
        /* The first pattern that matches from the start of the name; the end is ignored. */
        {"gptq", GPTQ("\"bits\": 4, \"dynamic\": {\"-:x\\\\.q\": {}, \"x.*\": {\"bits\": 2}}"), "x.q_proj", ""},
        {"gptq", GPTQ("\"bits\": 4, \"dynamic\": {\"-:x\\\\.q\": {}, \"x.*\": {\"bits\": 2}}"), "x.k_proj", "2 g0 s"},
        {"gptq", GPTQ("\"bits\": 4, \"dynamic\": {\"+:q\": {\"bits\": 2}}"), "x.q_proj", "4 g0 s"},
        {"gptq", GPTQ("\"bits\": 4, \"group_size\": 64, \"dynamic\": {\"+:x\": {\"group_size\": -1, \"sym\": false}}"),
         "x.q_proj", "4 g0 a"},
        {"gptq", GPTQ("\"bits\": 4, \"modules_in_block_to_quantize\": [[\"q_proj\"], [\"k_proj\"]]"), "x.k_proj",
         "4 g0 s"},
        {"gptq", GPTQ("\"bits\": 4, \"modules_in_block_to_quantize\": [\"q_proj\"]"), "x.k_proj", ""},
        {"awq", AWQ("\"bits\": 4, \"group_size\": 64"), "x.q_proj", "4 g64 a"},
        {"awq", AWQ("\"w_bit\": 4, \"q_group_size\": 32, \"version\": \"GEMM\""), "x.q_proj", "4 g32 a"},
        {"awq", AWQ("\"bits\": 4, \"modules_to_not_convert\": [\"q_proj\"]"), "x.q_proj", ""},
        {"awq", AWQ("\"bits\": 4, \"group_size\": -1, \"modules_to_not_convert\": null"), "x.q_proj", "4 g0 a"},
        {"mlx", MLX("\"group_size\": 64, \"bits\": 4, \"x\": true"), "x", "4 g64 a"},
        {"mlx", MLX("\"group_size\": 64, \"bits\": 4, \"x\": false"), "x", ""},
        {"mlx", MLX("\"group_size\": 64, \"bits\": 4, \"y\": false, \"x\": {\"bits\": 8, \"group_size\": 32}"), "x",
         "8 g32 a"},
        {"mlx", MLX("\"group_size\": 64, \"bits\": 4"), "x", ""}, /* without tensors there are no scales */
        {"compressed_tensors",
         CT("\"quantization_status\": \"compressed\", \"ignore\": [\"lm_head\"], \"config_groups\": {\"g\": "
            "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, \"group_size\": 32}}}"),
         "x", "4 g32 s"},
        {"compressed_tensors",
         CT("\"quantization_status\": \"compressed\", \"ignore\": [\"re:.*head\"], \"config_groups\": {\"g\": "
            "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4}}}"),
         "lm_head", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_qformat_reader *reader = must_open(rows[i].text, rows[i].format);
        const char *found = scheme_of(reader, rows[i].module);
        ck_assert_msg(strcmp(found, rows[i].scheme) == 0, "%s: %s: \"%s\", expected \"%s\"", rows[i].text,
                      rows[i].module, found, rows[i].scheme);
        calm_qformat_close(reader);
    }
}
END_OF_TEST

/* ---- weights ---- */

/* docs/formats.md section 8: out = in = 8, one group, 4 bits, u = (3o + 5i) % 16, z = o + 4; the scale is 1. */
static const uint32_t section_8[8] = {0x3e94fa50, 0x61c72d83, 0x94fa50b6, 0xc72d83e9,
                                      0xfa50b61c, 0x2d83e94f, 0x50b61c72, 0x83e94fa5};
static const uint32_t section_8_zeros = 0xba987654;

typedef struct given {
    calm_tensor tensors[4];
    const void *data[4];
    size_t n;
} given;

static void give(given *to, const char *name, calm_dtype dtype, size_t rows, size_t cols, const void *data)
{
    to->tensors[to->n] = (calm_tensor){.name = name, .dtype = dtype, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    to->data[to->n++] = data;
}

static calm_safetensors *set_of(const given *from)
{
    const char *path = test_format("%s/model.safetensors", test_directory());
    calm_safetensors_writer writer;
    calm_safetensors *set;
    ck_ok(calm_safetensors_begin(ctx, &writer, path, from->tensors, from->n));
    for (size_t i = 0; i < from->n; i++) {
        size_t n, bytes;
        ck_assert(calm_tensor_size(&from->tensors[i], &n, &bytes));
        ck_ok(calm_safetensors_put(ctx, &writer, from->data[i], bytes));
    }
    ck_ok(calm_safetensors_end(ctx, &writer));
    ck_ok(calm_safetensors_open(ctx, path, &set));
    return set;
}

/* Loads the weights of module "m" [8, 8]; a failure must have these words. */
static void check_load(const char *text, const char *format, const given *from, const float *expected,
                       const char *words)
{
    calm_qformat_reader *reader = must_open(text, format);
    calm_safetensors *set = set_of(from);
    calm_qformat_scheme scheme;
    bool quantized;
    float w[64];
    ck_ok(calm_qformat_find(ctx, reader, set, "m", &quantized, &scheme));
    ck_assert(quantized);
    if (words) {
        const calm_status status = calm_qformat_load(ctx, reader, set, "m", &scheme, 8, 8, w, NULL);
        ck_assert_msg(status != CALM_OK && strstr(ctx->message, words), "%s: %s: \"%s\" lacks \"%s\"", text,
                      calm_status_name(status), ctx->message, words);
        calm_ctx_clear_failure(ctx);
    } else {
        ck_ok(calm_qformat_check(ctx, reader, set, "m", &scheme, 8, 8));
        ck_ok(calm_qformat_load(ctx, reader, set, "m", &scheme, 8, 8, w, NULL));
        for (size_t i = 0; i < 64; i++)
            ck_assert_msg(w[i] == expected[i], "%s: [%zu] is %g, expected %g", text, i, (double)w[i],
                          (double)expected[i]);
    }
    calm_safetensors_close(set);
    calm_qformat_close(reader);
}

static void expected_of_section_8(float w[64])
{
    for (int o = 0; o < 8; o++)
        for (int i = 0; i < 8; i++)
            w[o * 8 + i] = (float)((3 * o + 5 * i) % 16 - (o + 4));
}

TEST(section_8_of_the_formats)
{
    static const uint16_t ones[8] = {0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00};    /* F16 */
    static const int32_t index[8] = {0};
    static const uint32_t v1_zeros = 0xa9876543;
    float w[64], biases[8], scales[8];
    given ct = {.n = 0}, v1 = {.n = 0}, v2 = {.n = 0}, mlx = {.n = 0};
    calm_qformat_reader *reader;
    expected_of_section_8(w);
    for (int o = 0; o < 8; o++) {
        biases[o] = (float)-(o + 4);
        scales[o] = 1;
    }
    give(&ct, "m.weight_packed", CALM_I32, 8, 1, section_8);
    give(&ct, "m.weight_scale", CALM_F16, 8, 1, ones);
    give(&ct, "m.weight_zero_point", CALM_I32, 1, 1, &section_8_zeros);
    check_load(
        CT("\"quantization_status\": \"compressed\", \"config_groups\": {\"g\": {\"targets\": [\"m\"], \"weights\": "
           "{\"num_bits\": 4, \"symmetric\": false}}}"),
        "compressed_tensors", &ct, w, NULL);
    give(&v1, "m.qweight", CALM_I32, 1, 8, section_8);
    give(&v1, "m.qzeros", CALM_I32, 1, 1, &v1_zeros);
    give(&v1, "m.scales", CALM_F16, 1, 8, ones);
    check_load(GPTQ("\"bits\": 4, \"sym\": false"), "gptq", &v1, w, NULL);
    give(&v1, "m.g_idx", CALM_I32, 8, 0, index);
    check_load(GPTQ("\"bits\": 4, \"sym\": false"), "gptq", &v1, w, NULL);
    give(&v2, "m.qweight", CALM_I32, 1, 8, section_8);
    give(&v2, "m.qzeros", CALM_I32, 1, 1, &section_8_zeros);
    give(&v2, "m.scales", CALM_F16, 1, 8, ones);
    check_load(GPTQ("\"bits\": 4, \"sym\": false, \"checkpoint_format\": \"gptq_v2\""), "gptq", &v2, w, NULL);
    /* MLX's groups are at least 32 wide, so only the unpacking is tested */
    give(&mlx, "m.weight", CALM_U32, 8, 1, section_8);
    give(&mlx, "m.scales", CALM_F32, 8, 1, scales);
    give(&mlx, "m.biases", CALM_F32, 8, 1, biases);
    check_load(MLX("\"group_size\": 32, \"bits\": 4"), "mlx", &mlx, NULL,
               "8 columns, which groups of 32 do not divide");
    reader = must_open(MLX("\"group_size\": 32, \"bits\": 4"), "mlx");
    calm_safetensors *set = set_of(&mlx);
    const calm_qformat_scheme scheme = {.bits = 4, .group = 8};
    ck_ok(calm_qformat_load(ctx, reader, set, "m", &scheme, 8, 8, w, NULL));
    for (int i = 0; i < 64; i++)
        ck_assert(w[i] == (float)((3 * (i / 8) + 5 * (i % 8)) % 16) * scales[i / 8] + biases[i / 8]);
    calm_safetensors_close(set);
    calm_qformat_close(reader);
}
END_OF_TEST

/* AWQ's nibble i of a word is row 0 2 4 6 1 3 5 7 [i]: word 0x76543210 has the codes of rows 0 4 1 5 2 6 3 7. */
TEST(awq_order)
{
    static const uint32_t zeros = 0x88888888;
    static const uint16_t halves[8] = {0x3800, 0x3800, 0x3800, 0x3800, 0x3800, 0x3800, 0x3800, 0x3800};
    static const int codes[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    uint32_t words[8];
    float w[64];
    given awq = {.n = 0};
    for (int i = 0; i < 8; i++)
        words[i] = 0x76543210;
    for (int o = 0; o < 8; o++)
        for (int i = 0; i < 8; i++)
            w[o * 8 + i] = 0.5F * (float)(codes[o] - 8);
    give(&awq, "m.qweight", CALM_I32, 8, 1, words);
    give(&awq, "m.qzeros", CALM_I32, 1, 1, &zeros);
    give(&awq, "m.scales", CALM_F16, 1, 8, halves);
    check_load(AWQ("\"bits\": 4, \"group_size\": -1"), "awq", &awq, w, NULL);
    awq.tensors[0].shape[1] = 0;    /* [8]: a dimension less */
    awq.tensors[0].n_dims = 1;
    check_load(AWQ("\"bits\": 4, \"group_size\": -1"), "awq", &awq, NULL, "m.qweight");
}
END_OF_TEST

/* Columns 0, 2, 4, 6 of group 1, the others of group 0. */
TEST(columns_out_of_order)
{
    static const uint32_t zeros[2] = {0x77777777, 0x77777777};
    int32_t index[8];
    uint16_t scales[16];
    float w[64];
    given gptq = {.n = 0};
    for (int i = 0; i < 16; i++)
        scales[i] = i < 8 ? 0x3c00 : 0x4000;    /* 1 in group 0, 2 in group 1 */
    for (int i = 0; i < 64; i++)
        w[i] = (float)((3 * (i / 8) + 5 * (i % 8)) % 16 - 8) * (i % 2 ? 1 : 2);
    for (int i = 0; i < 8; i++)
        index[i] = i % 2 ? 0 : 1;
    give(&gptq, "m.qweight", CALM_I32, 1, 8, section_8);
    give(&gptq, "m.qzeros", CALM_I32, 2, 1, zeros);
    give(&gptq, "m.scales", CALM_F16, 2, 8, scales);
    check_load(GPTQ("\"bits\": 4, \"group_size\": 4, \"desc_act\": true"), "gptq", &gptq, NULL, "m.g_idx is missing");
    give(&gptq, "m.g_idx", CALM_I32, 8, 0, index);
    check_load(GPTQ("\"bits\": 4, \"group_size\": 4, \"desc_act\": true"), "gptq", &gptq, w, NULL);
    check_load(GPTQ("\"bits\": 4, \"group_size\": 4"), "gptq", &gptq, NULL, "columns are not in order");
    index[5] = 2;
    check_load(GPTQ("\"bits\": 4, \"group_size\": 4, \"desc_act\": true"), "gptq", &gptq, NULL,
               "column 5 is of group 2; there are 2");
    index[5] = -1;
    check_load(GPTQ("\"bits\": 4, \"group_size\": 4, \"desc_act\": true"), "gptq", &gptq, NULL,
               "column 5 is of group -1");
}
END_OF_TEST

TEST(tensors_that_do_not_fit)
{
    static const uint16_t infinite[8] = {0x3c00, 0x7c00};
    static const int8_t bytes[64] = {7, -8, 8};
    static const char *const gptq_text = GPTQ("\"bits\": 4"),
                             *const bytes_text = CT("\"quantization_status\": \"compressed\", \"config_groups\": "
                                                    "{\"g\": {\"targets\": [\"m\"], \"format\": \"int-quantized\", "
                                                    "\"weights\": {\"num_bits\": 4}}}");
    given gptq = {.n = 0}, ct = {.n = 0};
    give(&gptq, "m.qweight", CALM_I32, 1, 8, section_8);
    give(&gptq, "m.qzeros", CALM_I32, 1, 1, &section_8_zeros);
    give(&gptq, "m.scales", CALM_F16, 1, 8, infinite);
    check_load(gptq_text, "gptq", &gptq, NULL, "m.scales");
    gptq.tensors[2].dtype = CALM_I16;
    check_load(gptq_text, "gptq", &gptq, NULL, "dtype I16, expected BF16, F16 or F32");
    gptq.tensors[0].dtype = CALM_U32;
    check_load(gptq_text, "gptq", &gptq, NULL, "m.qweight: dtype U32, expected I32");
    gptq.tensors[0].shape[0] = 8, gptq.tensors[0].shape[1] = 1;
    check_load(gptq_text, "gptq", &gptq, NULL, "[8, 1]");
    gptq.n = 1;
    gptq.tensors[0] = (calm_tensor){.name = "m.qweight", .dtype = CALM_I32, .n_dims = 2, .shape = {1, 8}};
    check_load(gptq_text, "gptq", &gptq, NULL, "m.qzeros is missing");
    give(&ct, "m.weight", CALM_I8, 8, 8, bytes);
    give(&ct, "m.weight_scale", CALM_F16, 8, 1, (const uint16_t[8]){0});
    check_load(bytes_text, "compressed_tensors", &ct, NULL, "m.weight: 8 at 2 is no code of 4 bits");
}
END_OF_TEST

/* MLX has the experts of a block in one module [E, ...], of which an expert's weight is a part. */
TEST(experts_in_one_module)
{
    static const char *const text =
        MLX("\"group_size\": 32, \"bits\": 4, \"a.switch_mlp.up\": {\"group_size\": 32, \"bits\": 8}");
    uint32_t words[3 * 2 * 8];
    float scales[6], biases[6], w[64];
    given mlx = {.n = 0};
    for (uint32_t i = 0; i < 48; i++)
        words[i] = i * 0x01010101u;    /* four codes i */
    for (int i = 0; i < 6; i++) {
        scales[i] = (float)(i + 1);
        biases[i] = -1;
    }
    give(&mlx, "a.switch_mlp.up.weight", CALM_U32, 3, 2, words);
    give(&mlx, "a.switch_mlp.up.scales", CALM_F32, 3, 2, scales);
    give(&mlx, "a.switch_mlp.up.biases", CALM_F32, 3, 2, biases);
    for (int i = 0; i < 3; i++) {
        mlx.tensors[i].n_dims = 3;
        mlx.tensors[i].shape[2] = i ? 1 : 8;
    }
    calm_qformat_reader *reader = must_open(text, "mlx");
    calm_safetensors *set = set_of(&mlx);
    calm_qformat_scheme scheme;
    bool quantized;
    ck_ok(calm_qformat_find(ctx, reader, set, "a.experts.2.up", &quantized, &scheme));
    ck_assert(quantized && scheme.bits == 8);
    ck_ok(calm_qformat_load(ctx, reader, set, "a.experts.2.up", &scheme, 2, 32, w, NULL));
    for (int i = 0; i < 64; i++)
        ck_assert(w[i] == (float)(32 + i / 4) * (float)(5 + i / 32) - 1);
    ck_fails(calm_qformat_check(ctx, reader, set, "a.experts.3.up", &scheme, 2, 32), CALM_EFORMAT, "more than 3, 2, 8");
    ck_fails(calm_qformat_check(ctx, reader, set, "a.experts.0.up", &scheme, 3, 32), CALM_EFORMAT, "shape [3, 2, 8]");
    ck_fails(calm_qformat_check(ctx, reader, set, "a.experts.x.up", &scheme, 2, 32), CALM_ENOTFOUND,
             "a.experts.x.up.weight");
    calm_safetensors_close(set);
    calm_qformat_close(reader);
}
END_OF_TEST

/* ---- suffixes and shapes ---- */

/* Checks that tensors() returns suffixes of the format, and that the shape of the codes gives that of the weight. */
static size_t check_shape(const calm_qformat *format, const calm_qformat_scheme *scheme, size_t out, size_t in)
{
    static const uint8_t zeros[1 << 16];
    const int64_t said[2] = {(int64_t)out, (int64_t)in};
    calm_qformat_tensor list[CALM_N_QFORMAT_PARTS];
    calm_qformat_part part;
    calm_tensor stacked = {0};
    given from = {.n = 0};
    size_t n = 0, rows, columns;
    if (format->tensors(ctx, "m", scheme, out, in, list, &n) != CALM_OK) {
        calm_ctx_clear_failure(ctx);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        ck_assert(calm_qformat_suffix_part(format, list[i].suffix, &part) && part == list[i].part);
        ck_assert(calm_qformat_suffix_part(NULL, list[i].suffix, &part) && part == list[i].part);
        give(&from, test_format("m.%s", list[i].suffix), list[i].dtype == CALM_N_DTYPES ? CALM_F16 : list[i].dtype,
             list[i].shape[0], list[i].shape[1], list[i].part == CALM_QFORMAT_SHAPE ? (const void *)said : zeros);
    }
    calm_safetensors *set = set_of(&from);
    const calm_tensor *codes = calm_safetensors_find(set, test_format("m.%s", list[0].suffix));
    ck_ok(calm_qformat_shape(ctx, format, set, "m", scheme, codes, &rows, &columns));
    ck_assert_msg(rows == out && columns == in, "%s of %d bits: [%zu, %zu], expected [%zu, %zu]", format->name,
                  scheme->bits, rows, columns, out, in);
    stacked = *codes;
    stacked.n_dims = 3;
    for (int i = 2; i > 0; i--)
        stacked.shape[i] = codes->shape[i - 1];
    ck_ok(calm_qformat_shape(ctx, format, set, "m", scheme, &stacked, &rows, &columns));
    ck_assert(rows == out && columns == in);
    stacked.n_dims = 1;
    ck_ok(calm_qformat_shape(ctx, format, set, "m", scheme, &stacked, &rows, &columns));
    ck_assert(rows == 0 && columns == 0);
    calm_safetensors_close(set);
    return 1;
}

TEST(shapes_lead_back)
{
    static const int widths[] = {2, 3, 4, 8};
    static const size_t rows[] = {8, 40}, columns[] = {32, 96, 41, 7};
    size_t n, n_shapes = 0;
    const calm_qformat *const *formats = calm_qformats(&n);
    calm_qformat_part part;
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < 4 * 2 * 4 * 2; i++) {
            const int bits = strcmp(formats[f]->name, "awq") == 0 ? 4 : widths[i % 4];
            const bool whole = strcmp(formats[f]->name, "mlx") == 0;    /* whose groups fill words */
            const calm_qformat_scheme scheme = {.bits = bits, .group = whole ? 32 : 0, .symmetric = true,
                                                .layout = (int)(i / 32)};
            n_shapes += check_shape(formats[f], &scheme, rows[i / 4 % 2], columns[i / 8 % 4]);
        }
    ck_assert_uint_ge(n_shapes, 200);
    ck_assert(!calm_qformat_suffix_part(NULL, "bias", &part) && !calm_qformat_suffix_part(formats[1], "biases", &part));
}
END_OF_TEST

/* An entry without its method is recognised by its members. */
TEST(entries_without_a_method)
{
    static const struct {
        const char *text, *format;
    } rows[] = {{"{\"quantization_config\": {\"config_groups\": {}}}", "compressed_tensors"},
                {"{\"quantization_config\": {\"bits\": 4}}", NULL},
                {"{}", NULL}};
    size_t n;
    const calm_qformat *const *formats = calm_qformats(&n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_json *config;
        const char *found = NULL;
        ck_ok(calm_json_parse(ctx, "config.json", rows[i].text, strlen(rows[i].text), &config));
        for (size_t f = 0; f < n; f++)
            if (formats[f]->resembles && formats[f]->resembles(config))
                found = formats[f]->name;
        ck_assert(found ? rows[i].format && strcmp(found, rows[i].format) == 0 : !rows[i].format);
        calm_json_free(config);
    }
}
END_OF_TEST

/* ---- the corpus of the fuzz targets: every file is valid ---- */

static void check_corpus_file(const char *format, const char *path)
{
    static const struct {
        const char *module;
        size_t out, in;
    } modules[] = {{"model.layers.0.mlp.down_proj", 32, 64}, {"model.layers.0.mlp.up_proj", 64, 32}};
    char *bytes;
    size_t n, read = 0;
    float *w;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &bytes, &n));
    char *mark = memmem(bytes, n, "\n%%\n", 4);
    ck_assert_ptr_nonnull(mark);
    const char *tensors = test_format("%s/model.safetensors", test_directory());
    ck_ok(calm_write_file(ctx, tensors, mark + 4, n - (size_t)(mark + 4 - bytes)));
    *mark = '\0';
    calm_qformat_reader *reader = must_open(bytes, format);
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, tensors, &set));
    ck_ok(CALM_NEW(ctx, ctx->out, w, 64 * 32));
    for (size_t i = 0; i < 2; i++) {
        calm_qformat_scheme scheme;
        bool quantized;
        ck_ok(calm_qformat_find(ctx, reader, set, modules[i].module, &quantized, &scheme));
        if (!quantized)
            continue;
        ck_ok(calm_qformat_load(ctx, reader, set, modules[i].module, &scheme, modules[i].out, modules[i].in, w, NULL));
        read++;
    }
    ck_assert_msg(read > 0, "%s: nothing is quantized", path);
    calm_safetensors_close(set);
    calm_qformat_close(reader);
}

TEST(corpus_is_read)
{
    size_t n, files = 0;
    const calm_qformat *const *formats = calm_qformats(&n);
    for (size_t f = 0; f < n; f++) {
        const char *folder = test_format("%s/tests/fuzz/corpus/qformat_%s", CALM_SOURCE_DIR, formats[f]->name);
        DIR *dir = opendir(folder);
        ck_assert_msg(dir != NULL, "%s", folder);
        for (struct dirent *entry; (entry = readdir(dir));)
            if (entry->d_name[0] != '.') {
                check_corpus_file(formats[f]->name, test_format("%s/%s", folder, entry->d_name));
                files++;
            }
        closedir(dir);
    }
    ck_assert_uint_ge(files, 12);
}
END_OF_TEST

/* "transform_config" next to a group of quantized modules. */
#define TRANSFORM(schemes)                                                                                   \
    CT("\"quantization_status\": \"compressed\", \"config_groups\": {\"g\": {\"targets\": [\"m\"], \"weights\": " \
       "{\"num_bits\": 4}}}, \"transform_config\": {\"config_groups\": {" schemes "}}")
#define PLACE(location, targets) "{\"location\": \"" location "\", \"targets\": [" targets "]}"
#define AT_INPUT "\"apply\": [" PLACE("input", "\"m\"") "]"

TEST(transforms)
{
    static const struct {
        const char *text, *words;
    } refused[] = {
        {TRANSFORM("\"R4\": {\"type\": \"random-hadamard\", \"head_dim\": 8, " AT_INPUT "}"),
         "R4: not a Hadamard matrix"},
        {TRANSFORM("\"R4\": {\"type\": \"hadamard\", \"head_dim\": 12, " AT_INPUT "}"), "power of two"},
        {TRANSFORM("\"R4\": {\"type\": \"hadamard\", \"head_dim\": 8, \"randomize\": true, " AT_INPUT "}"),
         "not a Hadamard matrix"},
        {TRANSFORM("\"R4\": {\"type\": \"hadamard\", \"head_dim\": 8, \"requires_grad\": true, " AT_INPUT "}"),
         "not a Hadamard matrix"},
        {TRANSFORM("\"R3\": {\"type\": \"hadamard\", \"head_dim\": 8, \"apply\": [" PLACE("q_attn", "") "]}"),
         "R3: a location other than input"},
    };
    size_t width;
    calm_qformat_reader *reader;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ck_fails(open_text(refused[i].text, &reader), CALM_EUNSUPPORTED, refused[i].words);
        ck_assert_ptr_null(reader);
    }
    reader = must_open(TRANSFORM("\"R4\": {\"type\": \"hadamard\", \"head_dim\": 64, \"apply\": [" PLACE(
                           "weight_input", "\"w\"") ", " PLACE("input", "\"re:.*down$\", \"m\"") "]}"),
                       "compressed_tensors");
    static const char *const names[] = {"a.down", "m", "w", "down.a"};
    for (size_t i = 0; i < 4; i++) {
        ck_ok(calm_qformat_hadamard(ctx, reader, names[i], 96, &width));
        ck_assert_uint_eq(width, i < 2 ? 64 : 0);
    }
    calm_qformat_close(reader);
}
END_OF_TEST

/* llm-compressor's SpinQuantModifier: weights contain R1, of any kind and size, and R4 is as large as the input. */
TEST(transforms_of_spinquant)
{
    size_t width;
    calm_qformat_reader *reader = must_open(
        TRANSFORM("\"R1\": {\"type\": \"random-hadamard\", \"head_dim\": null, \"randomize\": true, \"apply\": ["
                  PLACE("weight_output", "\"m\"") ", " PLACE("weight_input", "\"w\"") "]}, \"R4\": {\"type\": "
                  "\"hadamard\", \"head_dim\": null, \"apply\": [" PLACE("input", "\"re:.*down$\"") ", "
                  PLACE("weight_input", "\"re:.*down$\"") "]}"),
        "compressed_tensors");
    static const char *const untouched[] = {"m", "w"};
    for (size_t i = 0; i < 2; i++) {
        ck_ok(calm_qformat_hadamard(ctx, reader, untouched[i], 96, &width));
        ck_assert_uint_eq(width, 0);
    }
    ck_ok(calm_qformat_hadamard(ctx, reader, "a.down", 128, &width));
    ck_assert_uint_eq(width, 128);
    ck_fails(calm_qformat_hadamard(ctx, reader, "a.down", 96, &width), CALM_EUNSUPPORTED,
             "a.down: transform_config multiplies its whole input by a Hadamard matrix; found 96 channels");
    calm_qformat_close(reader);
}
END_OF_TEST

int main(void)
{
    return run_tests("qformat", (const TTest *[]){float_checkpoints, refused_configurations, schemes_of_modules,
                                                 section_8_of_the_formats, awq_order, columns_out_of_order,
                                                 tensors_that_do_not_fit, experts_in_one_module,
                                                 shapes_lead_back, entries_without_a_method, corpus_is_read, transforms,
                                                 transforms_of_spinquant,
                                                 NULL});
}
