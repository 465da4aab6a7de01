/* Tensors of a checkpoint that calm's model does not read: exporters for strict readers leave them out, the others
 * copy them.  Also the head of a model whose config.json ties it to the embedding. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/export/dequantize.h"
#include "ptq/export/export.h"
#include "ptq/io/safetensors.h"
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Tensors that write_foreign() adds to a model of two blocks. */
static const char *const foreign[] = {"eagle.fc.weight", "lm_head.bias", "model.layers.0.attn.masked_bias",
                                      "model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.q_proj.bias",
                                      "model.layers.1.input_layernorm.bias", "model.layers.1.mlp.down_proj.bias",
                                      "model.layers.1.self_attn.rotary_emb.inv_freq",
                                      "model.layers.2.mlp.down_proj.weight", "model.norm.bias", "mtp.fc.weight",
                                      "score.weight"};
#define N_FOREIGN (sizeof foreign / sizeof *foreign)

/* Copies the checkpoint at `dir` to a new directory and appends n_extra tensors. */
static const char *extended(const char *dir, const calm_tensor *extra, size_t n_extra)
{
    const char *copy = test_directory();
    calm_safetensors *set;
    calm_safetensors_writer writer;
    calm_tensor *tensors;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    const size_t n = calm_safetensors_count(set);
    ck_ok(CALM_NEW(ctx, ctx->out, tensors, n + n_extra));
    for (size_t i = 0; i < n + n_extra; i++)
        tensors[i] = i < n ? *calm_safetensors_at(set, i) : extra[i - n];
    ck_ok(calm_copy_file(ctx, test_format("%s/config.json", dir), test_format("%s/config.json", copy)));
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/model.safetensors", copy), tensors, n + n_extra));
    for (size_t i = 0; i < n + n_extra; i++)
        ck_ok(calm_safetensors_put(ctx, &writer, tensors[i].data, tensors[i].bytes));
    ck_ok(calm_safetensors_end(ctx, &writer));
    calm_safetensors_close(set);
    return copy;
}

static const char *write_foreign(const char *dir)
{
    static const float values[4] = {0.5f, 0.25f, 1, 2};
    calm_tensor extra[N_FOREIGN];
    for (size_t i = 0; i < N_FOREIGN; i++)
        extra[i] = (calm_tensor){.name = foreign[i], .dtype = CALM_F32, .n_dims = 2, .shape = {2, 2}, .n_elements = 4,
                                 .data = (const uint8_t *)values, .bytes = sizeof values};
    extra[4] = (calm_tensor){.name = foreign[4], .dtype = CALM_F32, .n_dims = 1, .data = (const uint8_t *)values};
    return extended(dir, extra, N_FOREIGN);
}

static const char *export(const char *dir, const char *format)
{
    static const char *const scheme[] = {"w4a16_g32"};
    const char *out = test_directory();
    const calm_exporter *exporter;
    tiny_plan p;
    ck_ok(calm_exporter_find(ctx, format, &exporter));
    tiny_plan_open(&p, dir);
    tiny_plan_quantize_all(&p, scheme, 1, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_ok(exporter->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, exporter, &input, out));
    calm_model_close(p.model);
    return out;
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    char *text[2];
    size_t n[2];
    ck_ok(calm_read_file(ctx, test_format("%s/%s", a, name), 1 << 24, &text[0], &n[0]));
    ck_ok(calm_read_file(ctx, test_format("%s/%s", b, name), 1 << 24, &text[1], &n[1]));
    ck_assert_msg(n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0, "%s differs", name);
}

TEST(strict_formats_write_what_is_read)
{
    tiny_model spec = tiny_wide("qwen3");
    spec.bias = false;
    const char *clean = tiny_model_write(&spec), *dir = write_foreign(clean), *mlx = export(dir, "mlx"),
               *expected = export(clean, "mlx");
    check_same_file(mlx, expected, "model.safetensors");
    check_same_file(mlx, expected, "config.json");
    check_same_file(export(dir, "gguf"), export(clean, "gguf"), "model.gguf");
}
END_OF_TEST

TEST(the_others_copy)
{
    static const char *const formats[] = {"compressed_tensors", "gptq", "awq"};
    tiny_model spec = tiny_wide("qwen3");
    spec.bias = false;
    const char *dir = write_foreign(tiny_model_write(&spec));
    for (size_t f = 0; f < 3; f++) {
        calm_safetensors *set;
        ck_ok(calm_safetensors_open(ctx, export(dir, formats[f]), &set));
        for (size_t i = 0; i < N_FOREIGN; i++)
            ck_assert_msg(calm_safetensors_find(set, foreign[i]) != NULL, "%s: %s", formats[f], foreign[i]);
        calm_safetensors_close(set);
    }
}
END_OF_TEST

/* Engines with a head for speculative decoding look up its modules in the entry, which lists them by the first word
 * of their name. */
TEST(entries_name_the_roots)
{
    static const struct {
        const char *format, *file, *expected;
    } cases[] = {{"compressed_tensors", "config.json", "\"re:^mtp\\\\..*\""},
                 {"gptq", "quantize_config.json", "\"-:^mtp\\\\..*\""},
                 {"awq", "config.json", "\"mtp.\""}};
    tiny_model spec = tiny_wide("qwen3");
    spec.bias = false;
    const char *dir = write_foreign(tiny_model_write(&spec));
    for (size_t f = 0; f < 3; f++) {
        const char *out = export(dir, cases[f].format);
        char *text;
        size_t n;
        ck_ok(calm_read_file(ctx, test_format("%s/%s", out, cases[f].file), 1 << 20, &text, &n));
        ck_assert_msg(strstr(text, cases[f].expected) != NULL, "%s: %s", cases[f].format, text);
        ck_assert_msg(!strstr(text, "^model") && !strstr(text, "\"model.\"") && !strstr(text, "^score"), "%s: %s",
                      cases[f].format, text);
    }
}
END_OF_TEST

/* config.json ties the head: a stored head with other values turns the flag off, an equal one is not written. */
TEST(the_flag_follows_the_head)
{
    static const char *const formats[] = {"compressed_tensors", "gptq", "awq", "mlx"};
    tiny_model spec = tiny_wide("qwen3");
    const char *clean = tiny_model_write(&spec);
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, clean, &set));
    calm_tensor head = *calm_safetensors_find(set, "model.embed_tokens.weight");
    uint8_t *bytes;
    ck_ok(CALM_NEW(ctx, ctx->out, bytes, head.bytes));
    memcpy(bytes, head.data, head.bytes);
    head.name = "lm_head.weight";
    head.data = bytes;
    for (int differs = 0; differs < 2; differs++) {
        bytes[1] ^= (uint8_t)(differs ? 0x80 : 0);
        const char *dir = extended(clean, &head, 1);
        for (size_t f = 0; f < 4; f++) {
            const char *out = export(dir, formats[f]);
            calm_safetensors *written;
            CALM_SCOPED_JSON(config);
            ck_ok(calm_json_read(ctx, test_format("%s/config.json", out), 1 << 20, &config));
            ck_ok(calm_safetensors_open(ctx, out, &written));
            ck_assert_int_eq(calm_json_bool(calm_json_get(config, "tie_word_embeddings"), differs), !differs);
            ck_assert_int_eq(calm_safetensors_find(written, "lm_head.weight") != NULL, differs);
            calm_safetensors_close(written);
        }
    }
    calm_safetensors_close(set);
}
END_OF_TEST

/* A quantized checkpoint whose flag is wrong: calm dequantize corrects the flag. */
TEST(dequantized_flag)
{
    tiny_model spec = tiny_wide("qwen3");
    spec.tied = false;
    const char *dir = export(tiny_model_write(&spec), "gptq"), *path = test_format("%s/config.json", dir),
               *out = test_format("%s/out", test_directory());
    const calm_dequantize_options options = {.output = out, .dtype = CALM_N_DTYPES};
    calm_dequantize_result result;
    CALM_SCOPED_JSON(config);
    CALM_SCOPED_JSON(written);
    ck_ok(calm_json_read(ctx, path, 1 << 20, &config));
    calm_json_set_bool(config, "tie_word_embeddings", true);
    ck_ok(calm_json_save(ctx, path, config));
    ck_ok(calm_dequantize(ctx, dir, &options, &result));
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", out), 1 << 20, &written));
    ck_assert(!calm_json_bool(calm_json_get(written, "tie_word_embeddings"), true));
}
END_OF_TEST

int main(void)
{
    return run_tests("foreign_tensors", (const TTest *[]){strict_formats_write_what_is_read, the_others_copy,
                                                          entries_name_the_roots,
                                                          the_flag_follows_the_head, dequantized_flag, NULL});
}
