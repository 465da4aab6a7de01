/* calm dequantize: the written checkpoint has, in float32, the bits that the quantized checkpoint's reader gives;
 * config.json keeps its other keys; a GGUF file gives the same as the checkpoint of the same plan. */
#include "ptq/export/dequantize.h"

#include "ptq/base/file.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/model.h"
#include "ptq/model/tensor_use.h"
#include "tests/support/foreign_checkpoint.h"
#include "tests/support/good_checkpoint.h"
#include "tests/support/harness.h"

static calm_dequantize_result dequantize(const char *from, const char *to, calm_dtype dtype)
{
    const calm_dequantize_options options = {.output = to, .dtype = dtype};
    calm_dequantize_result out;
    ck_ok(calm_dequantize(ctx, from, &options, &out));
    return out;
}

static const float *weight_of(const calm_model *model, const calm_linear_ref *linear)
{
    calm_weight weight = {0};
    ck_ok(calm_model_load_linear(ctx, model, linear->module, linear->out, linear->in, linear->bias, &weight));
    return weight.w;
}

/* Checks that all linears of two models are equal bit for bit. */
static void check_same(const char *what, const char *a, const char *b)
{
    calm_model *x, *y;
    ck_ok(calm_model_open(ctx, a, &x));
    ck_ok(calm_model_open(ctx, b, &y));
    const calm_layout *layout = calm_model_layout(x);
    ck_assert_uint_eq(layout->n_linears, calm_model_layout(y)->n_linears);
    for (size_t i = 0; i < layout->n_linears; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        const size_t bytes = linear->out * linear->in * sizeof(float);
        ck_assert_msg(memcmp(weight_of(x, linear), weight_of(y, linear), bytes) == 0, "%s: %s differs", what,
                      linear->module);
    }
    ck_assert(!calm_model_is_quantized(y));
    calm_model_close(x);
    calm_model_close(y);
}

/* Compares tensors outside of linears: norms, tables, routers. */
static void check_same_rest(const char *what, const char *a, const char *b)
{
    calm_model *x, *y;
    ck_ok(calm_model_open(ctx, a, &x));
    ck_ok(calm_model_open(ctx, b, &y));
    const calm_safetensors *xs = calm_model_tensors(x), *ys = calm_model_tensors(y);
    ck_assert_uint_eq(calm_safetensors_count(xs), calm_safetensors_count(ys));
    for (size_t i = 0; i < calm_safetensors_count(xs); i++) {
        const calm_tensor *s = calm_safetensors_at(xs, i), *t = calm_safetensors_at(ys, i);
        float *u, *v;
        ck_assert_str_eq(s->name, t->name);
        ck_assert_uint_eq(s->n_elements, t->n_elements);
        ck_ok(CALM_NEW(ctx, ctx->out, u, s->n_elements));
        ck_ok(CALM_NEW(ctx, ctx->out, v, s->n_elements));
        ck_ok(calm_tensor_to_f32(ctx, s, u));
        ck_ok(calm_tensor_to_f32(ctx, t, v));
        ck_assert_msg(memcmp(u, v, s->n_elements * sizeof *u) == 0, "%s: %s differs", what, s->name);
        calm_safetensors_release(xs, s);
        if (s->n_elements < 3)
            continue;
        /* A part that begins and ends within rows. */
        ck_ok(calm_tensor_part_to_f32(ctx, s, 1, s->n_elements - 2, u));
        ck_assert(memcmp(u, v + 1, (s->n_elements - 2) * sizeof *u) == 0);
    }
    calm_model_close(x);
    calm_model_close(y);
}

/* Checks that a float model has no scales of inputs and KV cache, and only tensors that it reads. */
static void check_no_scales(const char *what, const char *dir)
{
    calm_model *model;
    CALM_SCOPED_TEXT(foreign);
    ck_ok(calm_model_open(ctx, dir, &model));
    const size_t n = calm_model_list_use(model, CALM_TENSOR_FOREIGN, &foreign);
    ck_assert_msg(n == 0, "%s: %s", what, foreign.data);
    calm_model_close(model);
}

TEST(float32_is_exact)
{
    for (size_t i = 0; good_names[i]; i++) {
        /* Files have separate tests below. */
        if (strncmp(good_names[i], "gguf", 4) == 0)
            continue;
        const char *from = good_write(good_names[i]), *to = test_format("%s/plain", test_directory());
        const calm_dequantize_result result = dequantize(from, to, CALM_F32);
        ck_assert_uint_gt(result.n_dequantized, 0);
        ck_assert(calm_path_exists(test_format("%s/tokenizer.json", to)));
        check_same(good_names[i], from, to);
        check_no_scales(good_names[i], to);
    }
}
END_OF_TEST

/* Checks that a GGUF file opened as a model has the weights of its dequantized directory: for every type of blocks,
 * and for families with permuted rows, norms stored plus one, and experts in one tensor. */
static void check_file(const char *what, const char *path)
{
    const char *to = test_format("%s/plain", test_directory());
    calm_model *x;
    dequantize(path, to, CALM_F32);
    check_same(what, path, to);
    check_same_rest(what, path, to);
    ck_ok(calm_model_open(ctx, path, &x));
    ck_assert_str_eq(calm_model_dir(x), path);
    calm_model_close(x);
    ck_ok(calm_remove_tree(ctx, to));
}

TEST(gguf_as_a_model)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "olmo2"};
    static const char *const schemes[] = {"w4a16_g32", "w8a16"};
    for (uint32_t number = 0; number < 64; number++) {
        const foreign_file file = {.most = (calm_ggml_type)number, .some = CALM_GGML_Q6_K};
        if (calm_ggml_find(number) && calm_ggml_blocks_find(file.most))
            check_file(calm_ggml_find(number)->name, foreign_gguf(&file));
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        tiny_model spec = tiny_wide(families[i]);
        spec.bias = false;      /* which llama.cpp lacks in most of them */
        if (strncmp(families[i], "gemma", 5) == 0)
            spec.n_heads = 8, spec.head_dim = 12;    /* query_pre_attn_scalar */
        if (strcmp(families[i], "gemma2") == 0)
            spec.tied = true;
        const char *dir = good_export(&spec, "gguf", schemes, strstr(families[i], "moe") ? 1 : 2, 0);
        ck_assert_msg(dir != NULL, "%s: %s", families[i], ctx->message);
        check_file(families[i], test_format("%s/model.gguf", dir));
    }
}
END_OF_TEST

/* "gguf" and "ct" are of the same plan. */
TEST(gguf_is_the_same)
{
    const char *ct = good_write("ct"), *gguf = good_write("gguf"), *a = test_format("%s/a", test_directory()),
               *b = test_format("%s/b", test_directory());
    dequantize(ct, a, CALM_F32);
    dequantize(test_format("%s/model.gguf", gguf), b, CALM_F32);
    check_same("gguf", a, b);
    calm_safetensors *x, *y;
    ck_ok(calm_safetensors_open(ctx, a, &x));
    ck_ok(calm_safetensors_open(ctx, b, &y));
    ck_assert_uint_eq(calm_safetensors_count(x), calm_safetensors_count(y));
    ck_assert_uint_gt(calm_safetensors_count(x), 0);
    for (size_t i = 0; i < calm_safetensors_count(x); i++) {
        const calm_tensor *s = calm_safetensors_at(x, i), *t = calm_safetensors_at(y, i);
        ck_assert_str_eq(s->name, t->name);
        ck_assert_msg(s->bytes == t->bytes && memcmp(s->data, t->data, s->bytes) == 0, "%s differs", s->name);
    }
    calm_safetensors_close(x);
    calm_safetensors_close(y);
}
END_OF_TEST

static void check_config(const char *dir, const char *quantized, const char *dtype)
{
    calm_json *root, *before;
    const calm_json *value;
    const char *key;
    size_t n_gone = 0;
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &root));
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", quantized), 1 << 20, &before));
    for (void *iter = NULL; calm_json_next(before, &iter, &key, &value);) {
        const bool gone = strcmp(key, "quantization_config") == 0 || strcmp(key, "quantization") == 0;
        ck_assert_msg((calm_json_get(root, key) == NULL) == gone, "%s", key);
        n_gone += gone;
    }
    ck_assert_uint_eq(n_gone, 2);
    ck_assert_str_eq(calm_json_string(calm_json_get(root, "torch_dtype"), ""), dtype);
    calm_json_free(root);
    calm_json_free(before);
}

TEST(config_keeps_its_keys)
{
    const char *from = good_write("mlx"), *a = test_format("%s/a", test_directory()),
               *b = test_format("%s/b", test_directory());
    ck_assert(dequantize(from, a, CALM_N_DTYPES).dtype == CALM_BF16);
    check_config(a, from, "bfloat16");
    ck_assert(dequantize(from, b, CALM_F16).dtype == CALM_F16);
    check_config(b, from, "float16");
}
END_OF_TEST

TEST(refused)
{
    const char *good = good_write("ct"), *plain = test_format("%s/plain", test_directory());
    calm_dequantize_options options = {.output = plain, .dtype = CALM_F32};
    calm_dequantize_result result;
    ck_ok(calm_dequantize(ctx, good, &options, &result));
    ck_fails(calm_dequantize(ctx, good, &options, &result), CALM_EEXIST, plain);
    options.force = true;
    ck_ok(calm_dequantize(ctx, good, &options, &result));
    options.output = test_format("%s/other", test_directory());
    ck_fails(calm_dequantize(ctx, plain, &options, &result), CALM_EUNSUPPORTED, "it is a float model");
    ck_fails(calm_dequantize(ctx, "/nowhere", &options, &result), CALM_ENOTFOUND, "no such directory");
    ck_assert(!calm_path_exists(options.output));
}
END_OF_TEST

int main(void)
{
    return run_tests("dequantize",
                     (const TTest *[]){float32_is_exact, gguf_as_a_model, gguf_is_the_same, config_keeps_its_keys,
                                       refused, NULL});
}
