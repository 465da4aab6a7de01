/* Synthetic checkpoints: the tensors of the shape are written, the bytes depend on seed, name and index only, and
 * the values have the right moments. */
#include "tests/tools/synth.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"
#include "ptq/io/json.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"

static synth_options options_of(const char *shape)
{
    return (synth_options){.shape = shape, .output = test_format("%s/out", test_directory()), .seed = 3,
                           .dtype = CALM_N_DTYPES};
}

static calm_safetensors *write_and_open(const synth_options *options)
{
    calm_safetensors *set;
    ck_ok(synth_write(ctx, options));
    ck_ok(calm_safetensors_open(ctx, options->output, &set));
    return set;
}

static calm_json *read_json(const synth_options *options, const char *name)
{
    calm_json *root;
    ck_ok(calm_json_read(ctx, test_format("%s/%s", options->output, name), 1 << 24, &root));
    return root;
}

static void check_tensor(const calm_safetensors *set, const char *name, calm_dtype dtype, size_t rows, size_t cols)
{
    const size_t shape[2] = {rows, cols};
    const calm_tensor *found;
    ck_ok(calm_safetensors_need(ctx, set, name, cols ? 2 : 1, shape, &found));
    ck_assert_msg(found->dtype == dtype, "%s is %s", name, calm_dtype_name(found->dtype));
}

static void check_same_tensors(const calm_safetensors *a, const calm_safetensors *b)
{
    ck_assert_uint_eq(calm_safetensors_count(a), calm_safetensors_count(b));
    for (size_t i = 0; i < calm_safetensors_count(a); i++) {
        const calm_tensor *x = calm_safetensors_at(a, i), *y = calm_safetensors_at(b, i);
        ck_assert_str_eq(x->name, y->name);
        ck_assert_uint_eq(x->bytes, y->bytes);
        ck_assert_msg(memcmp(x->data, y->data, x->bytes) == 0, "%s differs", x->name);
    }
}

static const float *values_of(const calm_safetensors *set, const char *name, size_t *n)
{
    const calm_tensor *tensor = calm_safetensors_find(set, name);
    float *values;
    ck_assert_msg(tensor != NULL, "no %s", name);
    ck_ok(CALM_NEW(ctx, ctx->out, values, tensor->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    *n = tensor->n_elements;
    return values;
}

/* ---- names, shapes, types ---- */

TEST(a_dense_decoder)
{
    const synth_options options = options_of("tiny-qwen3");
    calm_safetensors *set = write_and_open(&options);
    ck_assert_uint_eq(calm_safetensors_count(set), 3 * 11 + 2);    /* tied: no lm_head */
    check_tensor(set, "model.embed_tokens.weight", CALM_BF16, 4096, 96);
    check_tensor(set, "model.norm.weight", CALM_BF16, 96, 0);
    for (size_t b = 0; b < 3; b++) {
        const char *block = test_format("model.layers.%zu", b);
        check_tensor(set, test_format("%s.self_attn.q_proj.weight", block), CALM_BF16, 128, 96);
        check_tensor(set, test_format("%s.self_attn.k_proj.weight", block), CALM_BF16, 64, 96);
        check_tensor(set, test_format("%s.self_attn.v_proj.weight", block), CALM_BF16, 64, 96);
        check_tensor(set, test_format("%s.self_attn.o_proj.weight", block), CALM_BF16, 96, 128);
        check_tensor(set, test_format("%s.self_attn.q_norm.weight", block), CALM_BF16, 32, 0);
        check_tensor(set, test_format("%s.self_attn.k_norm.weight", block), CALM_BF16, 32, 0);
        check_tensor(set, test_format("%s.mlp.gate_proj.weight", block), CALM_BF16, 160, 96);
        check_tensor(set, test_format("%s.mlp.up_proj.weight", block), CALM_BF16, 160, 96);
        check_tensor(set, test_format("%s.mlp.down_proj.weight", block), CALM_BF16, 96, 160);
        check_tensor(set, test_format("%s.input_layernorm.weight", block), CALM_BF16, 96, 0);
        check_tensor(set, test_format("%s.post_attention_layernorm.weight", block), CALM_BF16, 96, 0);
    }
    calm_safetensors_close(set);
}
END_OF_TEST

/* The distinctive tensors of each family, and the number of tensors. */
TEST(every_family)
{
    static const struct { const char *shape; size_t count; const char *name; size_t rows, cols; } rows[] = {
        {"tiny-llama", 2 * 9 + 3, "model.layers.1.self_attn.k_proj.weight", 16, 80},
        {"tiny-mistral", 2 * 9 + 3, "lm_head.weight", 4096, 64},
        {"tiny-qwen2", 2 * 12 + 2, "model.layers.1.self_attn.v_proj.bias", 32, 0},
        {"tiny-qwen3", 3 * 11 + 2, "model.layers.2.self_attn.q_norm.weight", 32, 0},
        {"tiny-qwen3-moe", 2 * (8 + 1 + 3 * 8) + 3, "model.layers.1.mlp.experts.7.down_proj.weight", 64, 40},
        {"tiny-qwen3-moe", 2 * (8 + 1 + 3 * 8) + 3, "model.layers.0.mlp.gate.weight", 8, 64},
        {"tiny-gemma2", 3 * 11 + 2, "model.layers.2.pre_feedforward_layernorm.weight", 64, 0},
        {"tiny-gemma3", 7 * 13 + 2, "model.layers.6.post_feedforward_layernorm.weight", 64, 0},
        {"tiny-gemma3", 7 * 13 + 2, "model.layers.6.self_attn.k_norm.weight", 24, 0},
        {"tiny-phi3", 2 * 6 + 3, "model.layers.1.self_attn.qkv_proj.weight", 128, 64},
        {"tiny-phi3", 2 * 6 + 3, "model.layers.1.mlp.gate_up_proj.weight", 192, 64},
        {"tiny-olmo2", 2 * 11 + 3, "model.layers.1.self_attn.k_norm.weight", 64, 0},
        {"tiny-bert", 2 * 16 + 8, "encoder.layer.1.attention.output.LayerNorm.bias", 64, 0},
        {"tiny-bert", 2 * 16 + 8, "encoder.layer.0.output.dense.weight", 64, 96},
        {"tiny-bert", 2 * 16 + 8, "pooler.dense.weight", 64, 64}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const synth_options options = options_of(rows[i].shape);
        calm_safetensors *set = write_and_open(&options);
        ck_assert_msg(calm_safetensors_count(set) == rows[i].count, "%s has %zu tensors, expected %zu", rows[i].shape,
                      calm_safetensors_count(set), rows[i].count);
        check_tensor(set, rows[i].name, strcmp(rows[i].shape, "tiny-bert") ? CALM_BF16 : CALM_F32, rows[i].rows,
                     rows[i].cols);
        calm_safetensors_close(set);
    }
}
END_OF_TEST

/* Checks the total number of values of the tensors. */
static void check_parameters(const char *name, const synth_tensor *tensors, size_t n, size_t expected)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += tensors[i].tensor.n_elements;
    ck_assert_msg(sum == expected, "%s has %zu parameters, expected %zu", name, sum, expected);
}

TEST(sizes_of_published_models)
{
    /* Parameters as model cards and the hub's headers count them. */
    static const struct { const char *name; size_t parameters; } known[] = {
        {"qwen3-0.6b", 596049920}, {"qwen3-8b", 8190735360}, {"qwen3-32b", 32762123264},
        {"qwen3-30b-a3b", 30532122624}, {"qwen2.5-0.5b", 494032768}, {"qwen2.5-32b", 32763876352},
        {"llama3.2-1b", 1235814400}, {"llama3.1-8b", 8030261248},
        {"llama3.3-70b", 70553706496}, {"mistral-7b", 7241732096}, {"gemma2-2b", 2614341888},
        {"gemma3-1b", 999885952}, {"phi3-mini", 3821079552}, {"olmo2-1b", 1484916736}, {"minilm", 22713728},
        {"deepseek-v3", 671026419200}, {"kimi-k2", 1026408232448}};    /* without the second token's block */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const synth_shape *shape;
        synth_tensor *tensors;
        size_t n;
        ck_ok(synth_find(ctx, known[i].name, &shape));
        ck_ok(synth_list(ctx, shape, shape->blocks, synth_dtype(shape), &tensors, &n));
        check_parameters(known[i].name, tensors, n, known[i].parameters);
    }
}
END_OF_TEST

TEST(other_types_and_blocks)
{
    static const calm_dtype dtypes[] = {CALM_F16, CALM_F32};
    for (size_t i = 0; i < 2; i++) {
        synth_options options = options_of("tiny-llama");
        options.dtype = dtypes[i];
        options.blocks = 1;
        options.vocab = 5000 + i;
        calm_safetensors *set = write_and_open(&options);
        ck_assert_uint_eq(calm_safetensors_count(set), 9 + 3);
        check_tensor(set, "lm_head.weight", dtypes[i], 5000 + i, 80);
        check_tensor(set, "model.embed_tokens.weight", dtypes[i], 5000 + i, 80);
        check_tensor(set, "model.layers.0.mlp.down_proj.weight", dtypes[i], 80, 112);
        calm_json *config = read_json(&options, "config.json");
        ck_assert_int_eq(calm_json_int(calm_json_get(config, "num_hidden_layers"), 0), 1);
        ck_assert_int_eq(calm_json_int(calm_json_get(config, "vocab_size"), 0), 5000 + (int)i);
        ck_assert_str_eq(calm_json_string(calm_json_get(config, "torch_dtype"), ""), i ? "float32" : "float16");
        calm_json_free(config);
        calm_safetensors_close(set);
    }
}
END_OF_TEST

/* Names, shapes and sizes of a model that fits no disk here, in a tiny file. */
TEST(hollow_checkpoints)
{
    synth_options options = options_of("qwen3-8b");
    options.hollow = true;
    options.shard_size = 4000000000;
    calm_safetensors *set = write_and_open(&options);
    struct stat file;
    uint64_t bytes = 0;
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        bytes += calm_safetensors_at(set, i)->bytes;
    ck_assert_uint_eq(bytes, 2 * 8190735360u);
    check_tensor(set, "model.layers.35.mlp.down_proj.weight", CALM_BF16, 4096, 12288);
    calm_safetensors_close(set);
    ck_assert_int_eq(stat(test_format("%s/model-00001-of-00005.safetensors", options.output), &file), 0);
    ck_assert(file.st_size > 3000000000 && file.st_blocks * 512 < 10000000);
}
END_OF_TEST

/* Every config of SYNTH_CONFIGS makes a checkpoint without weights whose tensors calm opens as a model. */
TEST(families_by_their_config)
{
    struct dirent **entries;
    const int n = synth_configs(&entries);
    ck_assert_int_gt(n, 30);
    for (int i = 0; i < n; i++) {
        const char *name = test_format("%.*s", (int)strcspn(entries[i]->d_name, "."), entries[i]->d_name);
        synth_options options = options_of(name);
        calm_model *model;
        options.hollow = true;
        options.output = test_format("%s/%s", test_directory(), name);
        ck_ok(synth_write(ctx, &options));
        ck_ok(calm_model_open(ctx, options.output, &model));
        ck_assert_msg(strcmp(calm_model_config(model)->arch->name, name) == 0, "%s: %s", name,
                      calm_model_config(model)->arch->name);
        calm_model_close(model);
        ck_ok(calm_remove_tree(ctx, options.output));
        calm_arena_clear(ctx->scratch);
        free(entries[i]);
    }
    free(entries);
}
END_OF_TEST

/* As model cards and the hub's headers count them, without heads for a second token and dense layers after the
 * pooling. */
TEST(sizes_of_families)
{
    static const struct { const char *name; size_t parameters; } known[] = {
        {"deepseek_v2", 15706484224}, {"deepseek_v3", 671026419200}, {"mixtral", 46702792704},
        {"gpt_oss", 116829156672}, {"smollm3", 3075098624}, {"starcoder2", 3030371328}, {"lfm2_moe", 8339930560},
        {"modernbert", 149014272}, {"embeddinggemma", 302863104}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        synth_tensor *tensors;
        size_t n;
        ck_ok(synth_model_list(ctx, test_format("%s/%s.json", SYNTH_CONFIGS, known[i].name), &tensors, &n));
        check_parameters(known[i].name, tensors, n, known[i].parameters);
    }
}
END_OF_TEST

/* Families of which only headers are known have no weights. */
TEST(families_are_hollow)
{
    synth_options options = options_of("gpt_oss");
    ck_fails(synth_write(ctx, &options), CALM_EARG, "--shape gpt_oss: its files are --hollow");
    options.hollow = true;
    options.blocks = 2;
    ck_fails(synth_write(ctx, &options), CALM_EARG, "no other size is known");
    ck_fails(synth_model_list(ctx, test_format("%s/none.json", SYNTH_CONFIGS), &(synth_tensor *){NULL}, &(size_t){0}),
             CALM_ENOTFOUND, "none.json");
}
END_OF_TEST

TEST(position_ids_count)
{
    const synth_options options = options_of("tiny-bert");
    calm_safetensors *set = write_and_open(&options);
    const calm_tensor *ids = calm_safetensors_find(set, "embeddings.position_ids");
    ck_assert(ids && ids->dtype == CALM_I64 && ids->n_elements == 128);
    for (size_t i = 0; i < 128; i++) {
        int64_t id;
        memcpy(&id, ids->data + 8 * i, 8);
        ck_assert_int_eq(id, i);
    }
    calm_safetensors_close(set);
}
END_OF_TEST

/* ---- config.json ---- */

TEST(both_spellings)
{
    synth_options options = options_of("tiny-gemma3");
    ck_ok(synth_write(ctx, &options));
    calm_json *config = read_json(&options, "config.json");
    ck_assert_str_eq(calm_json_string(calm_json_get(config, "torch_dtype"), ""), "bfloat16");
    ck_assert_int_eq(calm_json_int(calm_json_get(config, "sliding_window_pattern"), 0), 6);
    ck_assert_int_eq(calm_json_int(calm_json_get(config, "head_dim"), 0), 24);
    ck_assert_int_eq(calm_json_int(calm_json_get(config, "num_hidden_layers"), 0), 7);
    ck_assert_double_eq(calm_json_number(calm_json_get(config, "rope_theta"), 0), 1e6);
    calm_json_free(config);
    options = options_of("tiny-gemma3");
    options.newer = true;
    ck_ok(synth_write(ctx, &options));
    config = read_json(&options, "config.json");
    const calm_json *rope = calm_json_get(config, "rope_parameters"), *types = calm_json_get(config, "layer_types");
    ck_assert_str_eq(calm_json_string(calm_json_get(config, "dtype"), ""), "bfloat16");
    ck_assert_ptr_null(calm_json_get(config, "torch_dtype"));
    ck_assert_ptr_null(calm_json_get(config, "rope_theta"));
    const calm_json *full = calm_json_get(rope, "full_attention"), *sliding = calm_json_get(rope, "sliding_attention");
    ck_assert_double_eq(calm_json_number(calm_json_get(full, "rope_theta"), 0), 1e6);
    ck_assert_double_eq(calm_json_number(calm_json_get(sliding, "rope_theta"), 0), 1e4);
    ck_assert_uint_eq(calm_json_size(types), 7);
    for (size_t b = 0; b < 7; b++)
        ck_assert_str_eq(calm_json_string(calm_json_at(types, b), ""), b == 5 ? "full_attention" : "sliding_attention");
    calm_json_free(config);
}
END_OF_TEST

TEST(rope_scaling_moves_into_the_parameters)
{
    synth_options options = options_of("tiny-llama");
    options.newer = true;
    ck_ok(synth_write(ctx, &options));
    calm_json *config = read_json(&options, "config.json");
    const calm_json *rope = calm_json_get(config, "rope_parameters");
    ck_assert_ptr_null(calm_json_get(config, "rope_scaling"));
    ck_assert_str_eq(calm_json_string(calm_json_get(rope, "rope_type"), ""), "llama3");
    ck_assert_double_eq(calm_json_number(calm_json_get(rope, "factor"), 0), 8);
    ck_assert_double_eq(calm_json_number(calm_json_get(rope, "rope_theta"), 0), 5e5);
    calm_json_free(config);
}
END_OF_TEST

/* ---- values ---- */

/* Returns element i of a tensor by the definition in synth.h, with the quantile by bisection on erfc. */
static float defined(uint64_t seed, const char *name, size_t i, double mean, double spread)
{
    const uint64_t stream = synth_stream(name);
    const uint32_t counter[4] = {(uint32_t)(i / 8), 0, (uint32_t)stream, (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    double low = -6, high = 6;
    calm_philox4x32(counter, key, out);
    const uint32_t half = out[i % 8 / 2] >> (i % 2 ? 16 : 0) & 0xffff;
    for (int step = 0; step < 80; step++) {
        const double z = (low + high) / 2;
        *(0.5 * erfc(-z / sqrt(2)) < (half + 0.5) / 65536 ? &low : &high) = z;
    }
    return (float)(mean + spread * low);
}

/* float32 keeps 24 bits; the table and this sum are each off by at most an ulp of values below 1. */
TEST(values_follow_their_definition)
{
    synth_options options = options_of("tiny-llama");
    const char *name = "model.layers.1.mlp.up_proj.weight";
    options.dtype = CALM_F32;
    options.seed = 0x123456789abcu;
    calm_safetensors *set = write_and_open(&options);
    size_t n;
    const float *values = values_of(set, name, &n);
    ck_assert_uint_eq(n, 112 * 80);
    for (size_t i = 0; i < n; i++)
        ck_near(values[i], defined(options.seed, name, i, 0, 1 / sqrt(80)), 0x1p-23);
    calm_safetensors_close(set);
}
END_OF_TEST

/* A large matrix, filled by several tasks and in several buffers: mean, variance and kurtosis within 5 standard
 * errors (1/sqrt(n), sqrt(2/n), sqrt(96/n) for a normal), and uncorrelated neighbours. */
TEST(moments_of_a_large_tensor)
{
    synth_values *values;
    const size_t n = (size_t)1 << 20;
    const calm_tensor shape = {.name = "w", .dtype = CALM_BF16, .n_dims = 1, .shape = {n}};
    const synth_tensor tensor = {.tensor = shape, .spread = 0.5f};
    uint16_t *stored;
    double sum[5] = {0}, previous = 0;
    ck_ok(CALM_NEW(ctx, ctx->out, values, 1));
    ck_ok(CALM_NEW(ctx, ctx->out, stored, n));
    ck_ok(synth_values_init(ctx, values, &tensor, 1));
    ck_ok(synth_values_fill(ctx, values, 0, n, stored));
    for (size_t i = 0; i < n; i++) {
        const double z = 2.0 * (double)calm_bf16_to_f32(stored[i]);
        sum[0] += z * previous;
        sum[1] += z;
        sum[2] += z * z;
        sum[4] += z * z * z * z;
        previous = z;
    }
    ck_near(sum[1] / (double)n, 0, 5 / sqrt((double)n));
    ck_near(sum[0] / (double)n, 0, 5 / sqrt((double)n));
    ck_near(sum[2] / (double)n, 1, 5 * sqrt(2 / (double)n) + 1e-4);    /* the last quantiles are cut, bf16 rounds */
    ck_near(sum[4] / (double)n, 3, 5 * sqrt(96 / (double)n) + 2e-3);
}
END_OF_TEST

TEST(pieces_join)
{
    synth_values *values;
    const synth_tensor tensor = {.tensor = {.name = "w", .dtype = CALM_F32, .n_dims = 1, .shape = {3001}}, .spread = 1};
    float whole[3001], part[3001];
    ck_ok(CALM_NEW(ctx, ctx->out, values, 1));
    ck_ok(synth_values_init(ctx, values, &tensor, 9));
    ck_ok(synth_values_fill(ctx, values, 0, 3001, whole));
    ck_ok(synth_values_fill(ctx, values, 0, 808, part));
    ck_ok(synth_values_fill(ctx, values, 808, 1400, part + 808));
    ck_ok(synth_values_fill(ctx, values, 2208, 793, part + 2208));
    ck_assert(memcmp(whole, part, sizeof whole) == 0);
}
END_OF_TEST

TEST(norms_have_outliers_in_the_same_channels)
{
    static const char *const shapes[] = {"tiny-qwen3", "tiny-gemma2"};
    for (size_t i = 0; i < 2; i++) {
        const synth_options options = options_of(shapes[i]);
        calm_safetensors *set = write_and_open(&options);
        const double usual = i ? 0 : 1;    /* gemma stores norms less 1 */
        size_t n, outliers = 0;
        const float *first = values_of(set, "model.layers.0.input_layernorm.weight", &n);
        const float *last = values_of(set, "model.norm.weight", &n);
        for (size_t k = 0; k < n; k++) {
            const bool raised = synth_is_outlier(options.seed, k);
            outliers += raised;
            ck_near(first[k], usual + (raised ? 5 : 0), 0.5);
            ck_near(last[k], usual + (raised ? 5 : 0), 0.5);
        }
        ck_assert_uint_gt(outliers, 0);
        calm_safetensors_close(set);
    }
}
END_OF_TEST

/* ---- what the bytes do not depend on ---- */

TEST(the_same_bytes_for_every_number_of_threads_and_shards)
{
    synth_options options = options_of("tiny-qwen3-moe");
    calm_safetensors *one, *two, *cut, *other;
    ctx->n_threads = 1;
    one = write_and_open(&options);
    ctx->n_threads = 2;
    options.output = test_format("%s/two", test_directory());
    two = write_and_open(&options);
    options.output = test_format("%s/cut", test_directory());
    options.shard_size = 100000;
    cut = write_and_open(&options);
    check_same_tensors(one, two);
    check_same_tensors(one, cut);
    options.output = test_format("%s/other", test_directory());
    options.seed++;
    other = write_and_open(&options);
    const calm_tensor *a = calm_safetensors_find(one, "lm_head.weight");
    const calm_tensor *b = calm_safetensors_find(other, "lm_head.weight");
    ck_assert(memcmp(a->data, b->data, a->bytes) != 0);
    calm_safetensors_close(one);
    calm_safetensors_close(two);
    calm_safetensors_close(cut);
    calm_safetensors_close(other);
}
END_OF_TEST

TEST(shards_stay_below_their_size)
{
    synth_options options = options_of("tiny-llama");
    options.shard_size = 700000;    /* embedding and head have 655360 each */
    calm_safetensors *set = write_and_open(&options);
    calm_json *index = read_json(&options, "model.safetensors.index.json");
    const calm_json *map = calm_json_get(index, "weight_map");
    size_t bytes[3] = {0}, sum = 0;
    ck_assert_uint_eq(calm_json_size(map), calm_safetensors_count(set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        const char *file = calm_json_string(calm_json_get(map, tensor->name), "");
        ck_assert_str_eq(tensor->file, test_format("%s/%s", options.output, file));
        ck_assert_str_eq(file, test_format("model-0000%c-of-00003.safetensors", file[10]));
        bytes[file[10] - '1'] += tensor->bytes;
        sum += tensor->bytes;
    }
    for (size_t s = 0; s < 3; s++)
        ck_assert(bytes[s] > 0 && bytes[s] <= options.shard_size);
    ck_assert_uint_eq((size_t)calm_json_int(calm_json_get(calm_json_get(index, "metadata"), "total_size"), 0), sum);
    calm_json_free(index);
    calm_safetensors_close(set);
}
END_OF_TEST

/* ---- refusals ---- */

TEST(refuses_what_is_there_and_what_it_does_not_know)
{
    synth_options options = options_of("tiny-llama");
    ck_ok(calm_make_directories(ctx, options.output));
    ck_fails(synth_write(ctx, &options), CALM_EEXIST, "already there");
    options.output = test_format("%s/new//", test_directory());
    options.shape = "tiny-lama";
    ck_fails(synth_write(ctx, &options), CALM_EARG, "did you mean tiny-llama");
    options.shape = "tiny-llama";
    options.tokenizer = test_directory();
    ck_fails(synth_write(ctx, &options), CALM_ENOTFOUND, "tokenizer.json");
    ck_assert(!calm_path_exists(options.output));
    options.output = test_format("%.*s", (int)strlen(options.output) - 2, options.output);
    ck_assert(!calm_path_exists(test_format("%s.tmp.%ld", options.output, (long)getpid())));
}
END_OF_TEST

TEST(a_disk_that_is_too_small)
{
    synth_options options = options_of("qwen3-8b");
    options.blocks = 10000;    /* 4 TB */
    ck_fails(synth_write(ctx, &options), CALM_ENOSPC, "GB free");
    ck_assert(!calm_path_exists(options.output));
}
END_OF_TEST

int main(void)
{
    return run_tests("synth", (const TTest *[]){
        a_dense_decoder, every_family, sizes_of_published_models, other_types_and_blocks, hollow_checkpoints,
        families_by_their_config, sizes_of_families, families_are_hollow,
        position_ids_count, both_spellings, rope_scaling_moves_into_the_parameters, values_follow_their_definition,
        moments_of_a_large_tensor, pieces_join, norms_have_outliers_in_the_same_channels,
        the_same_bytes_for_every_number_of_threads_and_shards, shards_stay_below_their_size,
        refuses_what_is_there_and_what_it_does_not_know, a_disk_that_is_too_small, NULL});
}
