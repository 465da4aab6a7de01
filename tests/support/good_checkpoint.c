/* Writes correct checkpoints. */
#include "tests/support/good_checkpoint.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/export/export.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/layers/kv_cache.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_plan.h"

static const calm_exporter *find_exporter(const char *name)
{
    const calm_exporter *out;
    ck_ok(calm_exporter_find(ctx, name, &out));
    return out;
}

void good_tokenizer(const char *dir, size_t vocab)
{
    static const char *const split = "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                                     "\"Split\", \"pattern\": {\"Regex\": "
                                     "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
                                     "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
                                     "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\", "
                                     "\"invert\": false}, {\"type\": \"ByteLevel\", "
                                     "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]}, "
                                     "\"decoder\": {\"type\": \"ByteLevel\", "
                                     "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}";
    calm_text text;
    calm_text_init(&text);
    calm_text_printf(
        &text,
        "{\"version\": \"1.0\", %s, \"added_tokens\": [{\"id\": %zu, \"content\": \"<e>\", \"special\": true, "
        "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}], "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {",
        split, vocab - 1);
    for (size_t i = 0; i < vocab - 2; i++)
        calm_text_printf(&text, "\"%c%s\": %zu, ", (char)('A' + i % 26), i < 26 ? "" : i < 52 ? "b" : "c", i);
    calm_text_printf(&text, "\"AB\": %zu}, \"merges\": [\"A B\"]}}", vocab - 2);
    ck_ok(calm_write_file(ctx, test_format("%s/tokenizer.json", dir), text.data, text.length));
    calm_text_clear(&text);
}

const char *good_export(const tiny_model *spec, const char *format, const char *const *schemes, size_t n, size_t shard)
{
    const calm_export_options options = {.asymmetric = true, .max_shard_bytes = shard};
    const calm_exporter *how = find_exporter(format);
    tiny_plan p;
    const char *from = tiny_model_write(spec), *dir = test_directory();
    good_tokenizer(from, spec->vocab);
    tiny_plan_open(&p, from);
    if (spec->n_experts)
        tiny_plan_quantize_family(&p, schemes, n);
    else
        tiny_plan_quantize_all(&p, schemes, n, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    if (how->check(ctx, &input) != CALM_OK) {
        calm_ctx_clear_failure(ctx);
        dir = NULL;
    } else {
        ck_ok(calm_exporter_write(ctx, how, &input, dir));
        if (!how->file)
            good_tokenizer(dir, spec->vocab);
    }
    calm_model_close(p.model);
    return dir;
}

typedef struct good {
    const char *name, *format, *schemes[2];
    bool moe, narrow, untied, cache;
    size_t shard;
} good;

static const good goods[] = {
    {"ct", "compressed-tensors", {"w4a16_g32"}, .untied = false},
    {"ct-kv", "compressed-tensors", {"w4a16_g32"}, .cache = true},
    {"ct-mixed", "compressed-tensors", {"w4a16_g32", "w8a8"}, .untied = true},
    {"ct-moe", "compressed-tensors", {"w4a16_g32"}, .moe = true, .untied = true},
    {"ct-3bit", "compressed-tensors", {"w3a16"}, .narrow = true},
    {"ct-asym", "compressed-tensors", {"w4a16_g32_asym"}, .untied = false},
    {"ct-w4a4", "compressed-tensors", {"w4a4_g32"}, .untied = false},
    {"ct-fp8", "compressed-tensors", {"fp8", "fp8a16"}, .untied = true},
    {"ct-fp8-block", "compressed-tensors", {"fp8_block"}, .untied = false},
    {"ct-mxfp4", "compressed-tensors", {"mxfp4"}, .untied = false},
    {"ct-nvfp4", "compressed-tensors", {"nvfp4"}, .untied = false},
    {"ct-shards", "compressed-tensors", {"w4a16_g32"}, .shard = 100000},
    {"gptq", "gptq", {"w4a16_g32"}, .untied = true},
    {"gptq-mixed", "gptq", {"w4a16_g32", "w8a16"}, .untied = true},
    {"gptq-asym", "gptq", {"w4a16_g32_asym"}, .untied = true},
    {"gptq-order", "gptq", {"w4a16_g32_actorder", "w4a16_g32"}, .untied = true},
    {"awq", "awq", {"w4a16_g32_asym"}, .untied = true},
    {"mlx", "mlx", {"w4a16_g32"}, .untied = false},
    {"gguf", "gguf", {"w4a16_g32"}, .untied = false},
    {"gguf-nvfp4", "gguf", {"nvfp4a16"}, .untied = false},
};

static tiny_model spec_of(const good *g)
{
    tiny_model spec = g->moe ? tiny_wide("qwen3_moe") : tiny_default;
    if (!g->moe) {
        spec.hidden = g->narrow ? 48 : 128;
        spec.inner = g->narrow ? 80 : 256;
        spec.head_dim = g->narrow ? 12 : 32;
    }
    spec.tied = !g->untied;
    spec.extra = "\"eos_token_id\": 60";
    return spec;
}

/* Lists the scales of a KV cache, .02 for keys and values of each block with attention. */
static size_t list_scales(const char *dir, calm_tensor *list)
{
    static const uint16_t scale = 0x3ca4;    /* bfloat16 */
    calm_model *model;
    size_t n = 0;
    ck_ok(calm_model_open(ctx, dir, &model));
    const calm_config *config = calm_model_config(model);
    for (size_t i = 0; i < 2 * config->n_blocks; i++)
        if (calm_kv_has(config, i / 2)) {
            list[n] = (calm_tensor){.dtype = CALM_BF16, .n_dims = 1, .shape = {1}, .n_elements = 1, .bytes = 2,
                                    .data = (const uint8_t *)&scale};
            ck_ok(calm_kv_name(ctx, config, calm_model_prefix(model), i / 2, i % 2 ? 'v' : 'k', &list[n++].name));
        }
    calm_model_close(model);
    return n;
}

void good_add_cache(const char *dir)
{
    const char *path = test_format("%s/model.safetensors", dir), *moved = test_format("%s/with.safetensors", dir);
    calm_safetensors *set;
    calm_safetensors_writer writer;
    calm_tensor list[256];
    calm_json *config;
    ck_ok(calm_safetensors_open(ctx, path, &set));
    size_t n = calm_safetensors_count(set);
    ck_assert_uint_le(n + 32, sizeof list / sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = *calm_safetensors_at(set, i);
    n += list_scales(dir, list + n);
    ck_ok(calm_safetensors_begin(ctx, &writer, moved, list, n));
    for (size_t i = 0; i < n; i++)
        ck_ok(calm_safetensors_put(ctx, &writer, list[i].data, list[i].bytes));
    ck_ok(calm_safetensors_end(ctx, &writer));
    calm_safetensors_close(set);
    ck_assert_int_eq(rename(moved, path), 0);
    path = test_format("%s/config.json", dir);
    ck_ok(calm_json_read(ctx, path, (size_t)1 << 20, &config));
    calm_json_set((calm_json *)(uintptr_t)calm_json_get(config, "quantization_config"), "kv_cache_scheme",
                  CALM_OBJECT(CALM_KV("num_bits", (long)8), CALM_KV("type", "float"), CALM_KV("strategy", "tensor"),
                              CALM_KV("symmetric", (bool)true), CALM_KV("dynamic", (bool)false)));
    ck_ok(calm_json_save(ctx, path, config));
    calm_json_free(config);
}

const char *good_write(const char *name)
{
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++)
        if (strcmp(goods[i].name, name) == 0) {
            const tiny_model spec = spec_of(&goods[i]);
            const char *dir =
                good_export(&spec, goods[i].format, goods[i].schemes, goods[i].schemes[1] ? 2 : 1, goods[i].shard);
            if (goods[i].cache)
                good_add_cache(dir);
            return dir;
        }
    ck_abort_msg("there is no good checkpoint %s", name);
}

const char *const good_names[] = {
    "ct", "ct-mixed", "ct-moe", "ct-3bit", "ct-asym", "ct-w4a4", "ct-kv", "ct-fp8", "ct-fp8-block", "ct-mxfp4",
    "ct-nvfp4", "ct-shards", "gptq", "gptq-mixed", "gptq-asym", "gptq-order", "awq", "mlx", "gguf",
    "gguf-nvfp4", NULL};
