/* Tiny random checkpoints. */
#include "tests/support/tiny_model.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/base/rng.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"

#define MAX_TENSORS 256

const tiny_model tiny_default = {.hidden = 32, .inner = 48, .n_blocks = 2, .vocab = 61, .n_heads = 4, .n_kv = 2,
                                 .head_dim = 8, .tied = true, .dtype = CALM_BF16, .seed = 1};

/* The tensors of the checkpoint, and how their values are drawn. */
typedef struct listing {
    const tiny_model *model;
    calm_tensor tensors[MAX_TENSORS];
    double mean[MAX_TENSORS], spread[MAX_TENSORS];
    size_t n;
} listing;

static void add(listing *list, const char *name, size_t rows, size_t cols, double mean, double spread)
{
    const tiny_model *model = list->model;
    calm_tensor *tensor = &list->tensors[list->n];
    ck_assert_uint_lt(list->n, MAX_TENSORS);
    if (model->missing && strcmp(model->missing, name) == 0)
        return;
    *tensor = (calm_tensor){.name = name, .dtype = model->dtype, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    if (model->as_integers && strcmp(model->as_integers, name) == 0)
        tensor->dtype = CALM_I32;
    if (model->transposed && strcmp(model->transposed, name) == 0)
        tensor->shape[0] = cols, tensor->shape[1] = rows;
    list->mean[list->n] = mean;
    list->spread[list->n++] = spread;
}

static void add_linear(listing *list, const char *module, size_t out, size_t in, bool bias)
{
    add(list, test_format("%s.weight", module), out, in, 0, 1 / sqrt((double)in));
    if (bias)
        add(list, test_format("%s.bias", module), out, 0, 0, 0.1);
}

static void add_block(listing *list, size_t index)
{
    const tiny_model *m = list->model;
    const char *name = test_format("model.layers.%zu", index);
    const size_t q = m->n_heads * m->head_dim, kv = m->n_kv * m->head_dim;
    add(list, test_format("%s.input_layernorm.weight", name), m->hidden, 0, 1, 0.2);
    add(list, test_format("%s.post_attention_layernorm.weight", name), m->hidden, 0, 1, 0.2);
    add(list, test_format("%s.self_attn.q_norm.weight", name), m->head_dim, 0, 1, 0.2);
    add(list, test_format("%s.self_attn.k_norm.weight", name), m->head_dim, 0, 1, 0.2);
    add_linear(list, test_format("%s.self_attn.q_proj", name), q, m->hidden, m->bias);
    add_linear(list, test_format("%s.self_attn.k_proj", name), kv, m->hidden, m->bias);
    add_linear(list, test_format("%s.self_attn.v_proj", name), kv, m->hidden, m->bias);
    add_linear(list, test_format("%s.self_attn.o_proj", name), m->hidden, q, m->bias);
    add_linear(list, test_format("%s.mlp.gate_proj", name), m->inner, m->hidden, false);
    add_linear(list, test_format("%s.mlp.up_proj", name), m->inner, m->hidden, false);
    add_linear(list, test_format("%s.mlp.down_proj", name), m->hidden, m->inner, false);
}

static void list_tensors(const tiny_model *model, listing *list)
{
    *list = (listing){.model = model};
    add(list, "model.embed_tokens.weight", model->vocab, model->hidden, 0, 1);
    for (size_t i = 0; i < model->n_blocks; i++)
        add_block(list, i);
    add(list, "model.norm.weight", model->hidden, 0, 1, 0.2);
    if (!model->tied)
        add_linear(list, "lm_head", model->vocab, model->hidden, false);
}

static void write_tensor(calm_safetensors_writer *writer, const listing *list, size_t index)
{
    const tiny_model *model = list->model;
    const calm_tensor *tensor = &list->tensors[index];
    size_t n, bytes;
    float *values;
    uint8_t *stored;
    ck_assert(calm_tensor_size(tensor, &n, &bytes));
    ck_ok(CALM_NEW(ctx, ctx->scratch, values, n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, stored, bytes));
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(list->mean[index] + list->spread[index] * calm_rng_normal(model->seed, index, i));
    if (model->nan_in && strcmp(model->nan_in, tensor->name) == 0)
        values[model->nan_at] = NAN;
    if (tensor->dtype != CALM_I32)    /* integers stay 0 */
        ck_ok(calm_from_f32(ctx, tensor->dtype, values, n, stored));
    ck_ok(calm_safetensors_put(ctx, writer, stored, bytes));
}

void tiny_model_write_config(const tiny_model *model, const char *dir)
{
    const char *dtype = model->dtype == CALM_BF16 ? "bfloat16" : model->dtype == CALM_F16 ? "float16" : "float32";
    const char *text = test_format(
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": %zu, "
        "\"intermediate_size\": %zu, \"num_hidden_layers\": %zu, \"vocab_size\": %zu, \"num_attention_heads\": %zu, "
        "\"num_key_value_heads\": %zu, \"head_dim\": %zu, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
        "\"max_position_embeddings\": 512, \"hidden_act\": \"silu\", \"tie_word_embeddings\": %s, \"attention_bias\": %s, "
        "\"torch_dtype\": \"%s\"", model->hidden, model->inner, model->n_blocks, model->vocab, model->n_heads, model->n_kv,
        model->head_dim, model->tied ? "true" : "false", model->bias ? "true" : "false", dtype);
    if (model->window) {
        text = test_format("%s, \"sliding_window\": %zu, \"layer_types\": [", text, model->window);
        for (size_t i = 0; i < model->n_blocks; i++)
            text = test_format("%s%s\"%s\"", text, i ? ", " : "", i % 2 ? "sliding_attention" : "full_attention");
        text = test_format("%s]", text);
    }
    text = test_format("%s}\n", text);
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), text, strlen(text)));
}

const char *tiny_model_write(const tiny_model *model)
{
    static listing list;
    calm_safetensors_writer writer;
    const char *dir = test_directory();
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    tiny_model_write_config(model, dir);
    list_tensors(model, &list);
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/model.safetensors", dir), list.tensors, list.n));
    for (size_t i = 0; i < list.n; i++)
        write_tensor(&writer, &list, i);
    ck_ok(calm_safetensors_end(ctx, &writer));
    calm_arena_rewind(ctx->scratch, mark);
    return dir;
}

calm_windows tiny_windows(const size_t *lengths, size_t n)
{
    calm_windows windows = {.n = n};
    ck_ok(CALM_NEW(ctx, ctx->out, windows.begin, n + 1));
    for (size_t w = 0; w < n; w++) {
        windows.begin[w + 1] = windows.begin[w] + lengths[w];
        windows.longest = lengths[w] > windows.longest ? lengths[w] : windows.longest;
    }
    ck_ok(CALM_NEW(ctx, ctx->out, windows.ids, windows.begin[n]));
    for (size_t i = 0; i < windows.begin[n]; i++)
        windows.ids[i] = (uint32_t)(calm_rng_u64(5, 0, i) % tiny_default.vocab);
    return windows;
}
