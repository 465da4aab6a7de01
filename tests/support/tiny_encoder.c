/* Tiny random encoders. */
#include "tests/support/tiny_encoder.h"

#include "ptq/base/file.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"
#include "tests/support/normals.h"

#define MAX_TENSORS 128

const tiny_encoder tiny_encoder_default = {.hidden = 32, .inner = 48, .n_blocks = 2, .vocab = 61, .n_heads = 4,
                                           .positions = 40, .seed = 1};

typedef struct listing {
    calm_tensor tensors[MAX_TENSORS];
    double mean[MAX_TENSORS], spread[MAX_TENSORS];
    size_t n;
} listing;

static void add(listing *list, const char *name, size_t rows, size_t cols, double mean, double spread)
{
    ck_assert_uint_lt(list->n, MAX_TENSORS);
    list->tensors[list->n] = (calm_tensor){.name = name, .dtype = CALM_F32, .n_dims = cols ? 2 : 1,
                                           .shape = {rows, cols}};
    list->mean[list->n] = mean;
    list->spread[list->n++] = spread;
}

static void add_linear(listing *list, const char *module, size_t out, size_t in)
{
    add(list, test_format("%s.weight", module), out, in, 0, 1 / sqrt((double)in));
    add(list, test_format("%s.bias", module), out, 0, 0, 0.1);
}

static void add_norm(listing *list, const char *module, size_t width)
{
    add(list, test_format("%s.weight", module), width, 0, 1, 0.2);
    add(list, test_format("%s.bias", module), width, 0, 0, 0.1);
}

static void list_tensors(const tiny_encoder *m, listing *list)
{
    static const char *const square[] = {"attention.self.query", "attention.self.key", "attention.self.value",
                                         "attention.output.dense"};
    list->n = 0;
    add(list, "embeddings.word_embeddings.weight", m->vocab, m->hidden, 0, 1);
    add(list, "embeddings.position_embeddings.weight", m->positions, m->hidden, 0, 0.5);
    add(list, "embeddings.token_type_embeddings.weight", 2, m->hidden, 0, 0.5);
    add_norm(list, "embeddings.LayerNorm", m->hidden);
    for (size_t i = 0; i < m->n_blocks; i++) {
        const char *block = test_format("encoder.layer.%zu", i);
        for (size_t k = 0; k < 4; k++)
            add_linear(list, test_format("%s.%s", block, square[k]), m->hidden, m->hidden);
        add_norm(list, test_format("%s.attention.output.LayerNorm", block), m->hidden);
        add_linear(list, test_format("%s.intermediate.dense", block), m->inner, m->hidden);
        add_linear(list, test_format("%s.output.dense", block), m->hidden, m->inner);
        add_norm(list, test_format("%s.output.LayerNorm", block), m->hidden);
    }
    add_linear(list, "pooler.dense", m->hidden, m->hidden);
}

const char *tiny_encoder_write(const tiny_encoder *m)
{
    static listing list;
    const char *dir = test_directory();
    const char *config = test_format(
        "{\"architectures\": [\"BertModel\"], \"model_type\": \"bert\", \"hidden_size\": %zu, "
        "\"intermediate_size\": %zu, \"num_hidden_layers\": %zu, \"vocab_size\": %zu, \"num_attention_heads\": %zu, "
        "\"max_position_embeddings\": %zu, \"hidden_act\": \"gelu\", \"type_vocab_size\": 2, "
        "\"torch_dtype\": \"float32\"}\n",
        m->hidden, m->inner, m->n_blocks, m->vocab, m->n_heads, m->positions);
    calm_safetensors_writer writer;
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), config, strlen(config)));
    list_tensors(m, &list);
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/model.safetensors", dir), list.tensors, list.n));
    for (size_t k = 0; k < list.n; k++) {
        const calm_tensor *tensor = &list.tensors[k];
        size_t n, bytes;
        float *values;
        ck_assert(calm_tensor_size(tensor, &n, &bytes));
        ck_ok(CALM_NEW(ctx, ctx->out, values, n));
        const double *normals = test_normals(m->seed, k, n);
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(list.mean[k] + list.spread[k] * normals[i]);
        if (m->nan_in && strcmp(m->nan_in, tensor->name) == 0)
            values[0] = NAN;
        ck_ok(calm_safetensors_put(ctx, &writer, values, bytes));
    }
    ck_ok(calm_safetensors_end(ctx, &writer));
    return dir;
}
