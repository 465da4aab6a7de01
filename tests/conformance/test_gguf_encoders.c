/* GGUF files of encoders: written files, reading them back, models that are refused, and damaged files. */
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/model/model.h"
#include "ptq/model/pooling.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_gguf.h"
#include "tests/support/tiny_model.h"

/* The file stores an encoder's window as config.json does, both sides together; a model without modules.json
 * averages rows; the pooling type of a file is read. */
TEST(encoder)
{
    tiny_model spec = tiny_wide("embeddinggemma");
    spec.head_dim = 12;    /* query_pre_attn_scalar */
    spec.bias = false;
    const char *path = write_tiny(&spec, "float", NULL);
    calm_gguf *file;
    calm_model *model;
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_assert_int_eq(number_of(file, "gemma-embedding.attention.sliding_window", 0), 12);
    ck_assert_int_eq(number_of(file, "gemma-embedding.pooling_type", 0), 1);
    ck_assert_ptr_null(calm_gguf_find_tensor(file, "output.weight"));
    calm_gguf_close(file);
    ck_ok(calm_model_open(ctx, path, &model));
    ck_assert(calm_model_config(model)->both_ways && calm_model_config(model)->window[0] == 7);
    ck_assert_int_eq(calm_model_config(model)->pooling->mode, CALM_POOLING_MEAN);
    calm_model_close(model);
    replace(path, "pooling_type\4\0\0\0\1", "pooling_type\4\0\0\0\3", 17);
    ck_ok(calm_model_open(ctx, path, &model));
    ck_assert_int_eq(calm_model_config(model)->pooling->mode, CALM_POOLING_LAST);
    ck_assert_uint_eq(calm_model_config(model)->pooling->width, calm_model_config(model)->hidden);
    calm_model_close(model);
    replace(path, "pooling_type\4\0\0\0\3", "pooling_type\4\0\0\0\4", 17);
    ck_fails(calm_model_open(ctx, path, &model), CALM_EFORMAT, "pooling_type: expected 0 to 3");
}
END_OF_TEST

static void put_text(const char *dir, const char *name, const char *text)
{
    ck_ok(calm_write_file(ctx, test_format("%s/%s", dir, name), text, strlen(text)));
}

/* Writes a dense layer of sentence-transformers. */
static void put_dense(const char *dir, const char *folder, size_t out, size_t in, const char *function)
{
    const calm_tensor tensor = {.name = "linear.weight", .dtype = CALM_F32, .n_dims = 2, .shape = {out, in}};
    calm_safetensors_writer writer;
    float *w;
    ck_ok(CALM_NEW(ctx, ctx->out, w, out * in));
    for (size_t i = 0; i < out * in; i++)
        w[i] = (float)(i * i % 31) / 16 - 1;
    ck_ok(calm_make_directories(ctx, test_format("%s/%s", dir, folder)));
    put_text(dir, test_format("%s/config.json", folder),
             test_format("{\"in_features\": %zu, \"out_features\": %zu, \"bias\": false, \"activation_function\": "
                         "\"torch.nn.modules.%s\"}", in, out, function));
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/%s/model.safetensors", dir, folder), &tensor, 1));
    ck_ok(calm_safetensors_put(ctx, &writer, w, out * in * sizeof *w));
    ck_ok(calm_safetensors_end(ctx, &writer));
}

/* Writes a model with two dense layers behind the pooling, the second with the activation function `last`. */
static const char *write_dense(const char *last)
{
#define MODULE(type, path) "{\"type\": \"sentence_transformers.models." type "\", \"path\": \"" path "\"}"
    tiny_model spec = tiny_wide("embeddinggemma");
    spec.head_dim = 12;    /* query_pre_attn_scalar */
    spec.bias = false;
    const char *dir = tiny_model_write(&spec);
    put_text(dir, "modules.json", "[" MODULE("Transformer", "") ", " MODULE("Pooling", "1_Pooling") ", "
             MODULE("Dense", "2_Dense") ", " MODULE("Dense", "3_Dense") ", " MODULE("Normalize", "4_Normalize") "]");
    ck_ok(calm_make_directories(ctx, test_format("%s/1_Pooling", dir)));
    put_text(dir, "1_Pooling/config.json", "{\"pooling_mode_cls_token\": true}");
    put_dense(dir, "2_Dense", 20, spec.hidden, "linear.Identity");
    put_dense(dir, "3_Dense", spec.hidden, 20, last);
    return dir;
}

/* Dense layers are written and read back; layers with an activation function, which llama.cpp lacks, are left out. */
TEST(dense_layers)
{
    calm_gguf *file;
    calm_model *model, *back;
    calm_pooling expected, found;
    const char *path = write_from(write_dense("linear.Identity"), "float", &model);
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_assert_int_eq(number_of(file, "gemma-embedding.dense_2_feat_out", 0), 20);
    ck_assert_int_eq(number_of(file, "gemma-embedding.dense_3_feat_in", 0), 20);
    ck_assert_int_eq(number_of(file, "gemma-embedding.pooling_type", 0), 2);
    calm_gguf_close(file);
    ck_ok(calm_model_open(ctx, path, &back));
    ck_ok(calm_pooling_load(ctx, calm_model_config(model), &expected));
    ck_ok(calm_pooling_load(ctx, calm_model_config(back), &found));
    ck_assert(found.mode == CALM_POOLING_CLS && found.n_steps == 2 && expected.n_steps == 3);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(found.steps[i].in == expected.steps[i].in && found.steps[i].out == expected.steps[i].out);
        ck_assert_mem_eq(found.steps[i].w, expected.steps[i].w, found.steps[i].in * found.steps[i].out * sizeof(float));
    }
    calm_model_close(back);
    calm_model_close(model);
    replace(path, "dense_3.weight", "dense_4.weight", 14);
    ck_fails(calm_model_open(ctx, path, &back), CALM_EFORMAT, "tensor dense_3.weight: expected two matrices");
    ck_ok(calm_gguf_open(ctx, write_from(write_dense("activation.Tanh"), "float", NULL), &file));
    ck_assert_ptr_null(calm_gguf_find_tensor(file, "dense_2.weight"));
    ck_assert_ptr_null(calm_gguf_find_key(file, "gemma-embedding.dense_2_feat_out"));
    calm_gguf_close(file);
}
END_OF_TEST

/* Checks an encoder's file, opened as a model: it has the values of every tensor of the checkpoint but the pooler
 * and the head for masked tokens, and positions without the leading rows of padding. */
static void check_encoder(const tiny_model *spec, const char *family)
{
    calm_model *model, *back;
    const char *path = write_tiny(spec, "float", &model);
    ck_ok(calm_model_open(ctx, path, &back));
    const calm_config *config = calm_model_config(model), *read = calm_model_config(back);
    const calm_safetensors *set = calm_model_tensors(model), *found = calm_model_tensors(back);
    const char *prefix = calm_model_prefix(model);
    size_t n_left = 0;
    ck_assert_str_eq(read->arch->name, family);
    ck_assert(read->both_ways && calm_config_positions(read) == calm_config_positions(config));
    for (size_t i = 0; i < config->n_blocks; i++)
        ck_assert(read->window[i] == config->window[i] && read->local_rope[i] == config->local_rope[i]);
    ck_assert(read->rope[0].theta == config->rope[0].theta && read->rope[1].theta == config->rope[1].theta);
    ck_assert_int_eq(read->activation, config->activation);
    ck_assert(read->norm_eps == config->norm_eps && read->n_types == config->n_types);
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const char *name = calm_safetensors_at(set, i)->name, *in_file = name + strlen(prefix);
        size_t n, m;
        if (strstr(name, "pooler.") || strncmp(name, "cls.", 4) == 0) {
            n_left++;
            continue;
        }
        const float *a = values_of(model, name, &n), *b = values_of(back, in_file, &m);
        const size_t skipped = strstr(name, "position_embeddings") ? config->position_base * config->hidden : 0;
        ck_assert_uint_eq(m, n - skipped);
        ck_assert_mem_eq(a + skipped, b, m * sizeof *b);
    }
    ck_assert_uint_eq(calm_safetensors_count(found) + n_left, calm_safetensors_count(set));
    calm_model_close(back);
    calm_model_close(model);
}

TEST(encoders_read_back)
{
    static const char *const families[][2] = {{"bert", "bert"}, {"bert_mlm", "bert"}, {"roberta", "bert"},
                                              {"distilbert", "distilbert"}, {"modernbert", "modernbert"},
                                              {"nomic_bert", "nomic_bert"}, {"eurobert", "eurobert"}};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        tiny_model spec = tiny_wide(families[f][0]);
        spec.bias = false;
        check_encoder(&spec, families[f][1]);
    }
    tiny_model modern = tiny_wide("modernbert");
    modern.n_blocks = 4;
    static const char *const windows[] = {
        "\"hidden_activation\": \"silu\", \"layer_types\": [\"full_attention\", \"sliding_attention\", "
        "\"sliding_attention\", \"full_attention\"]",
        "\"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", \"sliding_attention\"]",
        "\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]"};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        modern.extra = windows[i];
        check_encoder(&modern, "modernbert");
    }
}
END_OF_TEST

/* Keys that llama.cpp needs of encoders: attention is not causal; the number of token types is at least 1; every
 * n-th block has full attention. */
TEST(encoder_keys)
{
    tiny_model spec = tiny_wide("distilbert");
    calm_gguf *file;
    ck_ok(calm_gguf_open(ctx, write_tiny(&spec, "w4a16_g32", NULL), &file));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "general.architecture"), "bert"));
    ck_assert(!calm_gguf_find_key(file, "bert.attention.causal")->data[0]);
    ck_assert_int_eq(number_of(file, "tokenizer.ggml.token_type_count", 0), 1);
    ck_assert_int_eq(number_of(file, "bert.pooling_type", 0), 1);
    ck_assert_int_eq(calm_gguf_find_tensor(file, "blk.0.attn_q.weight")->type, CALM_GGML_Q4_0);
    ck_assert_int_eq(calm_gguf_find_tensor(file, "position_embd.weight")->type, CALM_GGML_F32);
    ck_assert_ptr_nonnull(calm_gguf_find_tensor(file, "blk.0.layer_output_norm.bias"));
    calm_gguf_close(file);
    spec = tiny_wide("modernbert");
    ck_ok(calm_gguf_open(ctx, write_tiny(&spec, "w4a16_g32", NULL), &file));
    ck_assert_int_eq(number_of(file, "modern-bert.attention.sliding_window", 0), 12);
    ck_assert_int_eq(number_of(file, "modern-bert.attention.sliding_window_pattern", 0), 2);
    ck_assert_ptr_null(calm_gguf_find_key(file, "tokenizer.ggml.token_type_count"));
    ck_assert_int_eq(calm_gguf_find_tensor(file, "blk.0.attn_qkv.weight")->type, CALM_GGML_Q4_0);
    ck_assert_ptr_null(calm_gguf_find_tensor(file, "blk.0.attn_norm.weight"));
    calm_gguf_close(file);
}
END_OF_TEST

TEST(encoders_refused_by_name)
{
    tiny_model modern = tiny_wide("modernbert"), euro = tiny_wide("eurobert");
    tiny_model mpnet = tiny_wide("mpnet");
    modern.n_blocks = 4;
    const struct {
        tiny_model *spec;
        const char *extra, *words;
    } options[] = {
        {&modern, "\"hidden_activation\": \"relu\"", "its activation function is not the one"},
        {&modern, "\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\", "
                  "\"full_attention\"]",
         "other blocks slide than those between 0, n, 2 n"},
        {&mpnet, NULL, "calm does not write mpnet models to GGUF"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        options[i].spec->extra = options[i].extra;
        check_refused(options[i].spec, "float", options[i].words);
    }
    check_refused(&euro, "float", "its linears have biases (attention_bias, mlp_bias)");
}
END_OF_TEST

/* A renamed key is reported as missing, a changed value as wrong. */
TEST(wrong_files)
{
    const tiny_model modern = tiny_wide("modernbert"), distil = tiny_wide("distilbert");
    check_wrong(&modern, "modern-bert.attention.causal", "modern-bert.attention.causam",
                "modern-bert.attention.causal: expected false");
    check_wrong(&distil, "bert.context_length", "bert.context_lengti", "bert.context_length: it is missing");
    check_wrong_bytes(&distil, "layer_norm_epsilon\6\0\0\0\xcc", "layer_norm_epsilon\6\0\0\0\xcd", 23, CALM_EFORMAT,
                      "bert.attention.layer_norm_epsilon: expected 1e-12");
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_encoders", (const TTest *[]){encoder, dense_layers, encoders_read_back, encoder_keys,
                                                        encoders_refused_by_name, wrong_files, NULL});
}
