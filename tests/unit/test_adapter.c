/* LoRA adapters: the weights of a merged model, and what is refused.  tests/readers/adapter_reader.sh compares with
 * PEFT. */
#include "ptq/weights/adapter.h"

#include "ptq/base/file.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { RANK = 3 };

#define QKV "base_model.model.model.layers.0.self_attn.q_proj."

static float *floats(size_t n)
{
    float *out;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n));
    return out;
}

/* Returns n values of magnitude one; other values for another seed. */
static const float *some(size_t n, unsigned seed)
{
    float *out = floats(n);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((i * 7919 + seed * 104729) % 257) / 128 - 1;
    return out;
}

static calm_tensor matrix(const char *name, size_t rows, size_t columns, unsigned seed)
{
    calm_tensor out = {.name = name, .dtype = CALM_F32, .n_dims = columns ? 2 : 1, .shape = {rows, columns}};
    out.data = (const uint8_t *)some(rows * (columns ? columns : 1), seed);
    ck_assert(calm_tensor_size(&out, &out.n_elements, &out.bytes));
    return out;
}

/* Writes an adapter with these members of its configuration and these tensors. */
static const char *adapter(const char *members, const calm_tensor *tensors, size_t n)
{
    const char *dir = test_directory();
    const char *kind = strstr(members, "\"peft_type\"") ? "" : "\"peft_type\": \"LORA\", ";
    const char *text = test_format("{%s\"base_model_name_or_path\": \"org/base\"%s}", kind, members);
    calm_safetensors_writer writer;
    ck_ok(calm_write_file(ctx, test_format("%s/adapter_config.json", dir), text, strlen(text)));
    if (!tensors)
        return dir;
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/adapter_model.safetensors", dir), tensors, n));
    for (size_t i = 0; i < n; i++)
        ck_ok(calm_safetensors_put(ctx, &writer, tensors[i].data, tensors[i].bytes));
    ck_ok(calm_safetensors_end(ctx, &writer));
    return dir;
}

static calm_status open_with(const char *base, const char *dir, calm_model **out)
{
    return calm_model_open_as(ctx, base, &(calm_model_how){.adapter = dir}, out);
}

static const float *values(const calm_model *model, const char *name, size_t n)
{
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
    float *out = floats(n);
    ck_assert_msg(tensor && tensor->n_elements == n, "%s", name);
    ck_ok(calm_tensor_to_f32(ctx, tensor, out));
    return out;
}

/* W + s B A, summed in the order of the rank and rounded once; the same when read in pieces; with another digest. */
TEST(merged_rows)
{
    const calm_tensor pair[] = {matrix(QKV "lora_A.weight", RANK, 32, 1), matrix(QKV "lora_B.weight", 32, RANK, 2)};
    const char *base = tiny_model_write(&tiny_default), *name = "model.layers.0.self_attn.q_proj.weight";
    const float *a = (const float *)pair[0].data, *b = (const float *)pair[1].data;
    CALM_SCOPED_MODEL(plain);
    CALM_SCOPED_MODEL(merged);
    ck_ok(calm_model_open(ctx, base, &plain));
    ck_ok(open_with(base, adapter(", \"r\": 3, \"lora_alpha\": 6", pair, 2), &merged));
    const float *was = values(plain, name, 32 * 32), *is = values(merged, name, 32 * 32);
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(merged), name);
    for (size_t i = 0; i < 32 * 32; i++) {
        float sum = 0, one;
        for (size_t k = 0; k < RANK; k++)
            sum += b[i / 32 * RANK + k] * a[k * 32 + i % 32];
        ck_assert_float_eq(is[i], calm_dtype_round(CALM_BF16, was[i] + 2 * sum));
        ck_ok(calm_tensor_part_to_f32(ctx, tensor, i, 1, &one));
        ck_assert_float_eq(is[i], one);
    }
    ck_ok(calm_safetensors_hash(ctx, calm_model_tensors(plain)));
    ck_ok(calm_safetensors_hash(ctx, calm_model_tensors(merged)));
    for (size_t i = 0; i < calm_safetensors_count(calm_model_tensors(plain)); i++) {
        const calm_tensor *old = calm_safetensors_at(calm_model_tensors(plain), i),
                          *new = calm_safetensors_at(calm_model_tensors(merged), i);
        ck_assert_int_eq(strcmp(old->name, name) == 0,
                         strcmp(calm_safetensors_digest(calm_model_tensors(plain), old),
                                calm_safetensors_digest(calm_model_tensors(merged), new)) != 0);
    }
}
END_OF_TEST

/* Patterns of scale and rank match the end of a name, and the first match counts. */
TEST(patterns)
{
    const calm_tensor pair[] = {matrix(QKV "lora_A.weight", RANK, 32, 1), matrix(QKV "lora_B.weight", 32, RANK, 2)};
    static const char *const same[] = {
        ", \"r\": 3, \"lora_alpha\": 6",
        ", \"r\": 8, \"lora_alpha\": 6, \"rank_pattern\": {\"v_proj\": 5, \"q_proj\": 3, \".*\": 7}",
        ", \"r\": 3, \"lora_alpha\": 1, \"alpha_pattern\": {\"layers.0.self_attn.q_proj\": 6}",
        ", \"r\": 3, \"lora_alpha\": 1, \"alpha_pattern\": {\"proj\": 9, \"model.*q_proj\": 6}"};
    const char *base = tiny_model_write(&tiny_default), *name = "model.layers.0.self_attn.q_proj.weight";
    const float *first = NULL;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CALM_SCOPED_MODEL(merged);
        ck_ok(open_with(base, adapter(same[i], pair, 2), &merged));
        const float *is = values(merged, name, 32 * 32);
        first = first ? first : is;
        ck_assert_msg(memcmp(first, is, 32 * 32 * sizeof *is) == 0, "%s", same[i]);
    }
    CALM_SCOPED_MODEL(rooted);
    ck_ok(open_with(base, adapter(", \"r\": 3, \"lora_alpha\": 6, \"use_rslora\": true", pair, 2), &rooted));
    ck_assert(memcmp(first, values(rooted, name, 32 * 32), 32 * 32 * sizeof *first) != 0);
}
END_OF_TEST

/* Whole tensors: a norm, and the head of a tied model, which is then no longer tied. */
TEST(whole_tensors)
{
    const calm_tensor whole[] = {matrix("base_model.model.lm_head.weight", 61, 32, 3),
                                 matrix("base_model.model.model.norm.weight", 32, 0, 4)};
    const char *base = tiny_model_write(&tiny_default);
    CALM_SCOPED_MODEL(merged);
    ck_ok(open_with(base, adapter(", \"r\": 3, \"modules_to_save\": [\"lm_head\", \"norm\"]", whole, 2), &merged));
    ck_assert(!calm_model_config(merged)->tied);
    const float *norm = values(merged, "model.norm.weight", 32), *given = (const float *)whole[1].data;
    for (size_t i = 0; i < 32; i++)
        ck_assert_float_eq(norm[i], calm_dtype_round(CALM_BF16, given[i]));
    values(merged, "lm_head.weight", 61 * 32);
}
END_OF_TEST

/* The head of a wrapper's text model has a prefix that the adapter's names lack: all of its names are one tensor. */
TEST(heads_of_wrappers)
{
    const calm_tensor heads[] = {matrix("base_model.model.lm_head.base_layer.weight", 61, 32, 3),
                                 matrix("base_model.model.lm_head.modules_to_save.weight", 61, 32, 4),
                                 matrix("base_model.model.lm_head.weight", 61, 32, 5)};
    const char *base = tiny_model_write(&tiny_default);
    CALM_SCOPED_MODEL(plain);
    calm_safetensors *set;
    calm_adapter *files;
    calm_tensor *tensors;
    ck_ok(calm_model_open(ctx, base, &plain));
    ck_ok(calm_safetensors_open(ctx, base, &set));
    const size_t n = calm_safetensors_count(set);
    ck_ok(CALM_NEW(ctx, ctx->out, tensors, n));
    for (size_t i = 0; i < n; i++) {
        char *name;
        tensors[i] = *calm_safetensors_at(set, i);
        ck_ok(calm_strf(ctx, ctx->out, &name, "language_model.%s", tensors[i].name));
        tensors[i].name = name;
    }
    ck_ok(calm_safetensors_replace(ctx, set, tensors, n));
    const calm_adapter_base of = {calm_model_config(plain), base, "language_model.model.", set};
    ck_ok(calm_adapter_merge(ctx, adapter(", \"r\": 3, \"modules_to_save\": [\"lm_head\"]", heads, 3), &(calm_words){0},
                             &of, &files));
    ck_assert_uint_eq(calm_safetensors_count(set), n + 1);
    ck_assert_ptr_nonnull(calm_safetensors_find(set, "language_model.lm_head.weight"));
    calm_safetensors_close(set);
    calm_adapter_close(files);
}
END_OF_TEST

typedef struct refusal {
    const char *members;
    calm_tensor tensors[2];
    size_t n;
    calm_status status;
    const char *words;
} refusal;

/* Each message names the tensor or the key, and what was expected and found. */
TEST(refusals)
{
    const calm_tensor a = matrix(QKV "lora_A.weight", RANK, 32, 1), b = matrix(QKV "lora_B.weight", 32, RANK, 2);
    const refusal cases[] = {
        {", \"r\": 4", {a, b}, 2, CALM_EFORMAT, "q_proj.lora_B.weight: F32 [32, 3], expected floats [32, 4]"},
        {", \"r\": 3", {matrix(QKV "lora_A.weight", RANK, 31, 1), b}, 2, CALM_EFORMAT,
         "q_proj.lora_A.weight: F32 [3, 31], expected floats [3, 32]"},
        {", \"r\": 3", {a}, 1, CALM_EFORMAT, "q_proj.lora_B.weight does not; LoRA needs both"},
        {", \"r\": 3", {b}, 1, CALM_EFORMAT, "q_proj.lora_A.weight does not; LoRA needs both"},
        {", \"r\": 3", {matrix("base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight", RANK, 32, 1),
                        matrix("base_model.model.model.layers.9.self_attn.q_proj.lora_B.weight", 32, RANK, 1)}, 2,
         CALM_ENOTFOUND, "adapts model.layers.9.self_attn.q_proj.weight, which"},
        {", \"r\": 3", {matrix("base_model.model.lm_head.lora_A.weight", RANK, 32, 1),
                        matrix("base_model.model.lm_head.lora_B.weight", 61, RANK, 1)}, 2, CALM_ENOTFOUND,
         "adapts lm_head.weight, which"},
        {", \"r\": 3", {matrix("base_model.model.model.embed_tokens.weight", 61, 32, 1)}, 1, CALM_EUNSUPPORTED,
         "a model whose head is the embedding"},
        {", \"r\": 3", {matrix("base_model.model.model.embed_tokens.weight", 64, 32, 1)}, 1, CALM_EFORMAT,
         "F32 [64, 32], expected floats [61, 32]"},
        {", \"r\": 3", {matrix(QKV "lora_magnitude_vector", 32, 0, 1)}, 1, CALM_EUNSUPPORTED, "DoRA"},
        {", \"r\": 3", {matrix("model.layers.0.self_attn.q_proj.lora_a", 32, RANK, 1)}, 1, CALM_EUNSUPPORTED, "mlx-lm"},
        {", \"r\": 3", {matrix("base_model.model.warp", 32, RANK, 1)}, 1, CALM_ENOTFOUND, "no part of LoRA"},
        {", \"r\": 3, \"use_dora\": true", {a, b}, 2, CALM_EUNSUPPORTED, "DoRA"},
        {", \"r\": 3, \"peft_type\": \"IA3\"", {a, b}, 2, CALM_EUNSUPPORTED, "\"peft_type\": IA3"},
        {", \"r\": 3, \"init_lora_weights\": \"pissa\"", {a, b}, 2, CALM_EUNSUPPORTED, "pissa"},
        {", \"r\": 3, \"trainable_token_indices\": [1]", {a, b}, 2, CALM_EUNSUPPORTED, "trainable tokens"},
        {", \"r\": 3, \"warp\": 1", {a, b}, 2, CALM_EUNSUPPORTED, "`accept_keys` warp"},
        {", \"r\": 3, \"rank_pattern\": {\"q_proj\": 2.5}", {a, b}, 2, CALM_EFORMAT, "rank 2.5"},
        {", \"r\": 3, \"alpha_pattern\": {\"q_proj\": \"x\"}", {a, b}, 2, CALM_EFORMAT, "alpha_pattern"},
        {", \"r\": 0", {a, b}, 2, CALM_EFORMAT, "\"r\""}};
    const char *base = tiny_model_write(&tiny_default);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CALM_SCOPED_MODEL(model);
        const char *dir = adapter(cases[i].members, cases[i].tensors, cases[i].n);
        ck_fails(open_with(base, dir, &model), cases[i].status, cases[i].words);
    }
    CALM_SCOPED_MODEL(model);
    ck_fails(open_with(base, test_directory(), &model), CALM_ENOTFOUND, "no adapter_config.json");
    ck_fails(open_with(base, adapter(", \"r\": 3", NULL, 0), &model), CALM_ENOTFOUND, "no adapter_model.safetensors");
    ck_fails(calm_model_open(ctx, adapter(", \"r\": 16", &a, 1), &model), CALM_EUNSUPPORTED,
             "is an adapter (LoRA rank 16 of org/base) and no model: merge it first, or `model` org/base `adapter`");
}
END_OF_TEST

int main(void)
{
    return run_tests("adapter", (const TTest *[]){merged_rows, patterns, whole_tensors, heads_of_wrappers,
                                                  refusals, NULL});
}
