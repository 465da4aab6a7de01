/* Published FP8 and MXFP4 checkpoints: tiny models whose weights are codes times scales are read as the float models
 * of these weights; refusals. */
#include "ptq/weights/published.h"

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/export/dequantize.h"
#include "ptq/model/model.h"
#include "ptq/plan/key.h"
#include "ptq/weights/fused_experts.h"
#include "tests/support/foreign_checkpoint.h"
#include "tests/support/harness.h"
#include "tests/support/write_tensors.h"

#define ENTRY(text) "\"quantization_config\": {" text "}"
#define FP8 "\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "

/* ---- weights ---- */

/* Codes 56 .. 63 are 1, 1.125, .. 1.875, so values are (8 + number % 8) / 8 times the scale of the block. */
static float value_at(size_t row, size_t column, size_t in, size_t blocks[2])
{
    const float scale = ldexpf(1.3f, -(int)((row / blocks[0] + 3 * (column / blocks[1])) % 7) - 4);
    return calm_dtype_round(CALM_BF16, (float)(8 + (row * in + column) % 8) / 8 * scale);
}

static size_t sides[2];           /* sides of the current test's blocks */
static const char *scale_name;    /* for example "weight_scale_inv"   */

static bool is_taken(const char *module)
{
    return strstr(module, "_proj") != NULL;
}

static size_t put_fp8(const char *module, size_t out, size_t in, foreign_part *list)
{
    const size_t rows = (out + sides[0] - 1) / sides[0], columns = (in + sides[1] - 1) / sides[1];
    uint8_t *codes;
    float *scales;
    if (!is_taken(module))
        return 0;
    ck_ok(CALM_NEW(ctx, ctx->out, codes, out * in));
    ck_ok(CALM_NEW(ctx, ctx->out, scales, rows * columns));
    for (size_t i = 0; i < out * in; i++)
        codes[i] = (uint8_t)(56 + i % 8);
    for (size_t i = 0; i < rows * columns; i++)
        scales[i] = ldexpf(1.3f, -(int)((i / columns + 3 * (i % columns)) % 7) - 4);
    list[0] = (foreign_part){"weight", "F8_E4M3", 1, 2, {out, in}, codes, 0};
    list[1] = (foreign_part){scale_name, "F32", 4, 2, {rows, columns}, scales, 0};
    list[2] = (foreign_part){"input_scale", "F32", 4, 0, {0}, NULL, 0};
    return 3;
}

static calm_model *open_model(const char *dir)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, dir, &model));
    return model;
}

static void check_linears(const calm_model *model)
{
    const calm_layout *layout = calm_model_layout(model);
    for (size_t i = 0; i < layout->n_linears; i++) {
        const calm_linear_ref *at = &layout->linears[i];
        size_t blocks[2] = {sides[0] ? sides[0] : at->out, sides[1] ? sides[1] : at->in};
        calm_weight weight;
        ck_ok(calm_model_load_linear(ctx, model, at->module, at->out, at->in, false, &weight));
        for (size_t j = 0; j < at->out * at->in; j++)
            ck_assert_msg(weight.w[j] == value_at(j / at->in, j % at->in, at->in, blocks), "%s: %zu", at->module, j);
    }
}

/* Checks that a model seems never to have been quantized, except where its source is asked for. */
static void check_plain(const calm_model *model, const char *text)
{
    ck_assert(!calm_model_is_quantized(model));
    ck_assert_str_eq(calm_model_published(model), text);
    ck_assert(calm_json_get(calm_model_json(model), "quantization_config") == NULL);
    const calm_safetensors *set = calm_model_tensors(model);
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        ck_assert(strstr(calm_safetensors_at(set, i)->name, "scale") == NULL);
        ck_assert(calm_dtype_is_float(calm_safetensors_at(set, i)->dtype));
    }
}

static const char *write_fp8(const char *entry, const char *name, size_t rows, size_t columns)
{
    const tiny_model spec = tiny_of("qwen3_moe");
    sides[0] = rows;
    sides[1] = columns;
    scale_name = name;
    return foreign_write(&spec, entry, put_fp8);
}

/* Blocks that divide neither rows nor columns, one scale per matrix, one per row. */
TEST(fp8_of_every_grid)
{
    static const struct {
        const char *entry, *name, *text;
        size_t rows, columns;
    } cases[] = {
        {ENTRY(FP8 "\"weight_block_size\": [10, 12]"), "weight_scale_inv", "fp8 in blocks of 10 x 12", 10, 12},
        {ENTRY(FP8 "\"weight_block_size\": [128, 128]"), "weight_scale_inv", "fp8 in blocks of 128 x 128", 128, 128},
        {ENTRY(FP8 "\"weight_block_size\": null"), "weight_scale_inv", "fp8", 1000, 1000},
        {ENTRY(FP8 "\"activation_scheme\": \"static\""), "weight_scale", "fp8", 1000, 1000},
        {ENTRY("\"quant_method\": \"fbgemm_fp8\""), "weight_scale", "fp8", 1, 1000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *dir = write_fp8(cases[i].entry, cases[i].name, cases[i].rows, cases[i].columns);
        calm_model *model = open_model(dir);
        check_plain(model, cases[i].text);
        check_linears(model);
        calm_model_close(model);
        /* The same as its dequantized directory. */
        const char *plain = test_format("%s/plain", test_directory());
        calm_dequantize_result said;
        ck_ok(calm_dequantize(ctx, dir, &(calm_dequantize_options){.output = plain, .dtype = CALM_N_DTYPES}, &said));
        ck_assert(said.dtype == CALM_BF16 && said.n_dequantized > 30);
        ck_assert_str_eq(said.format, cases[i].text);
        model = open_model(plain);
        ck_assert(calm_model_published(model) == NULL);
        check_linears(model);
        calm_model_close(model);
    }
}
END_OF_TEST

/* compressed-tensors' float schemes are read as published weights if asked for, and always if calm lacks the kernel:
 * inputs with a single dynamic scale. */
TEST(compressed_tensors)
{
    static const char *const form =
        ENTRY("\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
              "\"quantization_status\": \"compressed\", \"ignore\": [\"lm_head\"], \"config_groups\": {\"group_0\": "
              "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, "
              "\"strategy\": \"%s\"}, \"input_activations\": %s}}");
    static const char *const inputs = "{\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, \"dynamic\": %s, "
                                      "\"strategy\": \"tensor\"}";
    static const char *const text = "compressed-tensors float-quantized";
    calm_model *model;
    const char *dir = write_fp8(test_format(form, "channel", "null"), "weight_scale", 1, 1000);
    model = open_model(dir);
    ck_assert(calm_model_is_quantized(model));
    calm_model_close(model);
    ck_ok(calm_model_open_floats(ctx, dir, &(calm_model_how){0}, &model));
    check_plain(model, text);
    check_linears(model);
    calm_model_close(model);
    /* One scale for the weight, with a static one for its input: scalars, as some files have them. */
    const char *fixed = test_format(inputs, "false"), *anew = test_format(inputs, "true");
    dir = write_fp8(test_format(form, "tensor", fixed), "weight_scale", 1000, 1000);
    model = open_model(dir);
    ck_assert(calm_model_is_quantized(model));
    calm_block block;
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    size_t n_fixed = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        n_fixed += block.weight[role].act_rule == CALM_ACT_RULE_FP8_STATIC && block.weight[role].act_global > 0;
    ck_assert_uint_gt(n_fixed, 3);
    calm_model_close(model);
    ck_ok(calm_model_open_floats(ctx, dir, &(calm_model_how){0}, &model));
    check_plain(model, text);
    check_linears(model);
    calm_model_close(model);
    model = open_model(write_fp8(test_format(form, "tensor", anew), "weight_scale", 1000, 1000));
    check_plain(model, text);
    check_linears(model);
    calm_model_close(model);
}
END_OF_TEST

/* Checkpoints that differ in a scale, or in the sides of a block, are different models. */
TEST(keys)
{
    char key[4][CALM_SHA256_HEX];
    const char *dir = write_fp8(ENTRY(FP8 "\"weight_block_size\": [10, 12]"), "weight_scale_inv", 10, 12), *path;
    calm_model *model = open_model(dir);
    const calm_tensor *weight =
        calm_safetensors_find(calm_model_tensors(model), "model.layers.1.self_attn.o_proj.weight");
    ck_assert(weight && weight->scales);
    size_t n;
    char *bytes;
    path = test_format("%s/model.safetensors", dir);
    ck_ok(calm_read_file(ctx, path, (size_t)1 << 30, &bytes, &n));
    char *scale = memmem(bytes, n, weight->scales, weight->scale_bytes);
    ck_assert(scale != NULL);
    ck_ok(calm_key_model(ctx, model, key[0]));
    ck_ok(calm_key_weights(ctx, model, &calm_model_layout(model)->jobs[0], key[2]));
    calm_model_close(model);
    for (char *at = scale; at; at = memmem(at + 1, n - (size_t)(at + 1 - bytes), &(float){1.3f / 16}, 4))
        at[1] ^= 1;
    ck_ok(calm_write_file(ctx, path, bytes, n));
    model = open_model(dir);
    ck_ok(calm_key_model(ctx, model, key[1]));
    ck_ok(calm_key_weights(ctx, model, &calm_model_layout(model)->jobs[0], key[3]));
    calm_model_close(model);
    ck_assert_str_ne(key[0], key[1]);
    ck_assert_str_ne(key[2], key[3]);
}
END_OF_TEST

static foreign_part broken[3];    /* of q_proj of block 1; suffix NULL: no more */

static size_t put_broken(const char *module, size_t out, size_t in, foreign_part *list)
{
    size_t n = 0;
    (void)out;
    (void)in;
    if (strcmp(module, "model.layers.1.self_attn.q_proj") != 0)
        return 0;
    for (; n < 3 && broken[n].suffix; n++)
        list[n] = broken[n];
    return n;
}

/* The same codes and scales in other blocks are other weights. */
TEST(keys_of_blocks)
{
    static const char *const entries[2] = {ENTRY(FP8 "\"weight_block_size\": [10, 12]"),
                                           ENTRY(FP8 "\"weight_block_size\": [9, 13]")};
    const tiny_model spec = tiny_default;
    char key[2][CALM_SHA256_HEX];
    broken[0] = (foreign_part){"weight", "F8_E4M3", 1, 2, {32, 32}, NULL, 0};
    broken[1] = (foreign_part){"weight_scale_inv", "F32", 4, 2, {4, 3}, NULL, 0};
    broken[2] = (foreign_part){0};
    for (int i = 0; i < 2; i++) {
        calm_model *model = open_model(foreign_write(&spec, entries[i], put_broken));
        ck_ok(calm_key_model(ctx, model, key[i]));
        calm_model_close(model);
    }
    ck_assert_str_ne(key[0], key[1]);
}
END_OF_TEST

/* ---- mixtures in one tensor ---- */

enum { EXPERTS = 5, WIDTH = 32, INNER = 64 };

/* Returns an element of row `line` of expert `e`: codes of 0.5, 1, .. 6 times the scale. */
static float mxfp4_at(size_t e, size_t line, size_t column)
{
    static const float level[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return level[(e + line + column) % 8] * ldexpf(1, (int)((e + line + column / 32) % 5) - 6);
}

static void add_blocks(const char *name, size_t rows, size_t in, calm_tensor *out)
{
    const size_t groups = in / 32;
    uint8_t *blocks, *scales;
    ck_ok(CALM_NEW(ctx, ctx->out, blocks, EXPERTS * rows * in / 2));
    ck_ok(CALM_NEW(ctx, ctx->out, scales, EXPERTS * rows * groups));
    for (size_t e = 0; e < EXPERTS; e++)
        for (size_t i = 0; i < rows * in; i++) {
            const size_t line = i / in, column = i % in, at = e * rows * in + i;
            blocks[at / 2] |= (uint8_t)((e + line + column) % 8 << (at % 2 * 4));
            scales[at / 32] = (uint8_t)(127 - 6 + (e + line + column / 32) % 5);
        }
    out[0] = (calm_tensor){.name = test_format("%s_blocks", name), .dtype = CALM_U8, .n_dims = 4, .data = blocks,
                           .shape = {EXPERTS, rows, groups, 16}, .bytes = EXPERTS * rows * in / 2};
    out[1] = (calm_tensor){.name = test_format("%s_scales", name), .dtype = CALM_U8, .n_dims = 3, .data = scales,
                           .shape = {EXPERTS, rows, groups}, .bytes = EXPERTS * rows * groups};
}

static const char *write_mxfp4(void)
{
    const char *dir = test_directory();
    calm_tensor tensors[4];
    add_blocks("model.layers.0.mlp.experts.gate_up_proj", 2 * INNER, WIDTH, tensors);
    add_blocks("model.layers.0.mlp.experts.down_proj", WIDTH, INNER, tensors + 2);
    write_tensors(dir, tensors, 4);
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir),
                          "{" ENTRY("\"quant_method\": \"mxfp4\"") ", \"torch_dtype\": \"bfloat16\"}",
                          strlen("{" ENTRY("\"quant_method\": \"mxfp4\"") ", \"torch_dtype\": \"bfloat16\"}")));
    return dir;
}

/* gpt-oss: a block's experts, with gate and up interleaved, are read as separate matrices. */
TEST(mxfp4_by_experts)
{
    const char *dir = write_mxfp4();
    const calm_published from = {.kind = CALM_PUBLISHED_MXFP4};
    const bool sparse = true;
    calm_names names = *calm_arch_find(NULL, "qwen3_moe")->names;
    calm_arch arch = *calm_arch_find(NULL, "qwen3_moe");
    calm_config config = {.arch = &arch, .hidden = WIDTH, .n_blocks = 1,
                          .moe = {.n_experts = EXPERTS, .inner = INNER, .sparse = (bool *)(uintptr_t)&sparse}};
    calm_safetensors *set;
    size_t n;
    names.moe.interleaved = true;
    arch.names = &names;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    ck_ok(calm_published_widen(ctx, &from, CALM_BF16, set, &n));
    ck_assert_uint_eq(n, 2);
    ck_ok(calm_experts_unfuse(ctx, &config, "model.", set));
    ck_assert_uint_eq(calm_safetensors_count(set), 3 * EXPERTS);
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *t = calm_safetensors_at(set, i);
        const size_t e = (size_t)(strstr(t->name, "experts.")[8] - '0'), in = t->shape[1];
        const bool down = strstr(t->name, "down"), up = strstr(t->name, "up_proj");
        float *values;
        ck_ok(CALM_NEW(ctx, ctx->out, values, t->n_elements));
        ck_ok(calm_tensor_to_f32(ctx, t, values));
        ck_assert(t->scales && t->n_elements == (size_t)INNER * WIDTH);
        for (size_t j = 0; j < t->n_elements; j++)
            ck_assert_msg(values[j] == mxfp4_at(e, down ? j / in : 2 * (j / in) + up, j % in), "%s: %zu", t->name, j);
    }
    calm_safetensors_close(set);
}
END_OF_TEST

/* They are dequantized as transformers has them, [E, in, out], also without a family that reads them. */
TEST(mxfp4_dequantized)
{
    const char *out = test_format("%s/plain", test_directory());
    const calm_dequantize_options options = {.output = out, .dtype = CALM_N_DTYPES};
    calm_dequantize_result said;
    calm_safetensors *set;
    float *values;
    ck_ok(calm_dequantize(ctx, write_mxfp4(), &options, &said));
    ck_assert_uint_eq(said.n_dequantized, 2);
    ck_ok(calm_safetensors_open(ctx, out, &set));
    const calm_tensor *t = calm_safetensors_find(set, "model.layers.0.mlp.experts.gate_up_proj");
    ck_assert(t && t->dtype == CALM_BF16 && t->shape[1] == WIDTH && t->shape[2] == 2 * INNER);
    ck_ok(CALM_NEW(ctx, ctx->out, values, t->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, t, values));
    for (size_t i = 0; i < t->n_elements; i++)
        ck_assert(values[i] == mxfp4_at(i / (WIDTH * 2 * INNER), i % (2 * INNER), i / (2 * INNER) % WIDTH));
    calm_safetensors_close(set);
}
END_OF_TEST

/* ---- refusals ---- */

TEST(refusals)
{
#define CODES(...) {"weight", "F8_E4M3", 1, 2, __VA_ARGS__, NULL, 0}
#define SCALE(dtype, bytes, dims, ...) {"weight_scale_inv", dtype, bytes, dims, __VA_ARGS__, NULL, 0}
#define BLOCKS ENTRY(FP8 "\"weight_block_size\": [16, 16]")
#define MX ENTRY("\"quant_method\": \"mxfp4\"")
    static const struct {
        const char *entry;
        foreign_part parts[3];
        calm_status status;
        const char *says;
    } cases[] = {
        {BLOCKS, {CODES({32, 32})}, CALM_ENOTFOUND,
         "tensor model.layers.1.self_attn.q_proj.weight is F8_E4M3 and has no scales: expected tensor "
         "model.layers.1.self_attn.q_proj.weight_scale_inv or model.layers.1.self_attn.q_proj.weight_scale, "
         "found none"},
        {BLOCKS, {SCALE("F32", 4, 2, {2, 2})}, CALM_ENOTFOUND,
         "tensor model.layers.1.self_attn.q_proj.weight_scale_inv: expected the weight that it scales, tensor "
         "model.layers.1.self_attn.q_proj.weight; found none"},
        {BLOCKS, {{"weight", "BF16", 2, 2, {32, 32}, NULL, 0}, SCALE("F32", 4, 2, {2, 2})}, CALM_EFORMAT,
         "q_proj.weight is BF16, expected F8_E4M3, as tensor model.layers.1.self_attn.q_proj.weight_scale_inv"},
        {BLOCKS, {CODES({32, 32}), SCALE("F32", 4, 2, {2, 3})}, CALM_EFORMAT,
         "q_proj.weight_scale_inv: shape [2, 3], expected [2, 2]: a scale for each block of 16 x 16 of"},
        {BLOCKS, {CODES({32, 32}), SCALE("F32", 4, 2, {2, 2}), {"weight_scale", "F32", 4, 2, {2, 2}, NULL, 0}},
         CALM_EFORMAT, "q_proj.weight has scales twice: model.layers.1.self_attn.q_proj.weight_scale_inv and model"},
        {BLOCKS, {CODES({32, 32}), SCALE("F32", 4, 0, {0})}, CALM_EFORMAT, "shape [], expected [2, 2]"},
        {BLOCKS, {CODES({32, 32}), SCALE("I32", 4, 2, {2, 2})}, CALM_EFORMAT, "dtype I32, expected F32, BF16, F16"},
        {BLOCKS, {CODES({32, 32}), SCALE("F8_E4M3", 1, 2, {2, 2})}, CALM_EFORMAT, "dtype F8_E4M3, expected F32"},
        {ENTRY(FP8 "\"weight_block_size\": [16]"), {CODES({32, 32})}, CALM_EFORMAT,
         "quantization_config.weight_block_size: found an array of 1 entries, expected two whole numbers above 0"},
        {ENTRY(FP8 "\"weight_block_size\": 16"), {CODES({32, 32})}, CALM_EFORMAT, "weight_block_size: found a"},
        {ENTRY(FP8 "\"weight_block_size\": [16, 0]"), {CODES({32, 32})}, CALM_EFORMAT, "whole numbers above 0"},
        {ENTRY("\"quant_method\": \"fp8\", \"fmt\": \"e5m2\""), {CODES({32, 32})}, CALM_EUNSUPPORTED,
         "quantization_config.fmt is \"e5m2\": calm reads e4m3"},
        {MX, {{"weight_blocks", "U8", 1, 4, {3}, NULL, 0}}, CALM_ENOTFOUND,
         "q_proj.weight_blocks is U8 and has no scales: expected tensor model.layers.1.self_attn.q_proj.weight_scales"},
        {MX, {{"weight_scales", "U8", 1, 3, {1, 1, 1}, NULL, 0}}, CALM_ENOTFOUND, "expected the weight that it scales"},
        {MX, {{"weight_blocks", "U8", 1, 2, {32, 16}, NULL, 0}, {"weight_scales", "U8", 1, 2, {32, 1}, NULL, 0}},
         CALM_EFORMAT, "weight_blocks: shape [32, 16], expected [experts, rows, groups, 16]"},
        {ENTRY("\"quant_method\": \"quark\""), {CODES({32, 32})}, CALM_EUNSUPPORTED,
         "quant_method \"quark\": calm reads compressed-tensors, gptq, awq, MLX's own entry, fp8 and mxfp4; give it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny_model spec = tiny_default;
        calm_model *model;
        memcpy(broken, cases[i].parts, sizeof broken);
        ck_fails(calm_model_open(ctx, foreign_write(&spec, cases[i].entry, put_broken), &model), cases[i].status,
                 cases[i].says);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("published", (const TTest *[]){fp8_of_every_grid, compressed_tensors, keys, keys_of_blocks,
                                                    mxfp4_by_experts, mxfp4_dequantized, refusals, NULL});
}
