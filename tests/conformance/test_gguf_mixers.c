/* GGUF files of families whose blocks have other token mixers than plain attention: the keys and tensors that
 * differ. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ptq/export/gguf_lacks.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_gguf.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static const calm_gguf_entry *find(const calm_gguf_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->entries[i].name && strcmp(list->entries[i].name, name) == 0)
            return &list->entries[i];
    ck_abort_msg("no %s", name);
    return NULL;
}

/* Blocks without attention have 0 KV heads; the taps of a convolution are a float matrix. */
TEST(short_convolutions)
{
    const tiny_model spec = tiny_wide("lfm2");
    calm_gguf *file;
    calm_gguf_list list;
    int64_t kv[2];
    ck_ok(calm_gguf_open(ctx, write_tiny(&spec, "w4a16_g32", NULL), &file));
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    const calm_gguf_key *key = calm_gguf_find_key(file, "lfm2.attention.head_count_kv");
    ck_assert(key && key->array && calm_gguf_int(key, 0, &kv[0]) && calm_gguf_int(key, 1, &kv[1]));
    ck_assert(kv[0] == 0 && kv[1] == (int64_t)spec.n_kv);
    const calm_gguf_entry *taps = find(&list, "model.layers.0.conv.conv.weight");
    ck_assert(taps->stored->type == CALM_GGML_F32 && taps->stored->n_dims == 2 && taps->n_dims == 3);
    ck_assert(taps->shape[0] == spec.hidden && taps->shape[1] == 1 && taps->shape[2] == 4);
    ck_assert_str_eq(taps->stored->name, "blk.0.shortconv.conv.weight");
    ck_assert_str_eq(find(&list, "model.embedding_norm.weight")->stored->name, "token_embd_norm.weight");
    ck_assert_int_eq(find(&list, "model.layers.0.conv.in_proj.weight")->stored->type, CALM_GGML_Q4_0);
    calm_gguf_close(file);
}
END_OF_TEST

/* Nemotron-H: blocks have one sublayer each, here Mamba-2 (0 KV heads, width 0) and then experts.  Convolution taps
 * are a matrix, decays are a column and stored as -exp, the norm has a row per group. */
TEST(scans)
{
    const tiny_model spec = tiny_wide("nemotron_h");
    calm_gguf *file;
    calm_gguf_list list;
    calm_model *model;
    const char *path = write_tiny(&spec, "float", &model);
    const calm_mamba_shape *shape = &calm_model_config(model)->mamba.shape;
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "general.architecture"), "nemotron_h_moe"));
    ck_assert_int_eq(number_of(file, "nemotron_h_moe.attention.head_count_kv", 0), 0);
    ck_assert_int_eq(number_of(file, "nemotron_h_moe.feed_forward_length", 0), 0);
    ck_assert_int_eq(number_of(file, "nemotron_h_moe.feed_forward_length", 1), (int64_t)spec.expert_inner);
    ck_assert_int_eq(number_of(file, "nemotron_h_moe.ssm.group_count", 0), (int64_t)shape->n_groups);
    ck_assert_int_eq(number_of(file, "nemotron_h_moe.ssm.inner_size", 0), (int64_t)(shape->n_heads * shape->head_dim));
    ck_assert_ptr_null(calm_gguf_find_key(file, "nemotron_h_moe.rope.freq_base"));
    const calm_gguf_tensor *norm = calm_gguf_find_tensor(file, "blk.0.ssm_norm.weight");
    const calm_gguf_tensor *decay = calm_gguf_find_tensor(file, "blk.0.ssm_a");
    ck_assert(norm && norm->dims[1] == shape->n_groups && norm->dims[0] * norm->dims[1]
                                                              == shape->n_heads * shape->head_dim);
    ck_assert(decay && decay->dims[0] == 1 && decay->dims[1] == shape->n_heads);
    for (size_t i = 0; i < shape->n_heads; i++) {
        float value;
        memcpy(&value, decay->data + i * sizeof value, sizeof value);
        ck_assert_msg(value < 0, "%g", (double)value);
    }
    ck_assert_int_eq(find(&list, "model.layers.0.mixer.conv1d.weight")->stored->n_dims, 2);
    calm_gguf_close(file);
    calm_model_close(model);
}
END_OF_TEST

/* Experts between two latent linears, which are float in the file. */
TEST(latents)
{
    const tiny_model spec = tiny_wide("nemotron_latent");
    calm_gguf *file;
    calm_model *model;
    const char *path = write_tiny(&spec, "w4a16_g32", NULL);
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_assert_int_eq(number_of(file, "nemotron_h_moe.moe_latent_size", 0), (int64_t)spec.hidden / 2);
    const calm_gguf_tensor *down = calm_gguf_find_tensor(file, "blk.1.ffn_latent_down.weight"),
                           *up = calm_gguf_find_tensor(file, "blk.1.ffn_latent_up.weight"),
                           *experts = calm_gguf_find_tensor(file, "blk.1.ffn_up_exps.weight");
    ck_assert(down && down->dims[0] == spec.hidden && down->dims[1] == spec.hidden / 2);
    ck_assert(up && up->dims[0] == spec.hidden / 2 && up->dims[1] == spec.hidden);
    ck_assert(experts && experts->dims[0] == spec.hidden / 2 && experts->type == CALM_GGML_Q4_0);
    calm_gguf_close(file);
    ck_ok(calm_model_open(ctx, path, &model));
    ck_assert_uint_eq(calm_model_config(model)->moe.latent, spec.hidden / 2);
    calm_model_close(model);
}
END_OF_TEST

/* A fused matrix of gate and up becomes two tensors, with the names of the shared expert in mixtures. */
TEST(halves_of_gate_and_up)
{
    static const char *const families[2] = {"granite_hybrid", "granitemoehybrid"};
    static const char *const names[2] = {"blk.0.ffn_gate.weight", "blk.0.ffn_gate_shexp.weight"};
    static const char *const others[2] = {"blk.0.ffn_up.weight", "blk.0.ffn_up_shexp.weight"};
    for (int f = 0; f < 2; f++) {
        const tiny_model spec = tiny_wide(families[f]);
        calm_gguf *file;
        ck_ok(calm_gguf_open(ctx, write_tiny(&spec, "w4a16_g32", NULL), &file));
        const calm_gguf_tensor *gate = calm_gguf_find_tensor(file, names[f]);
        const calm_gguf_tensor *up = calm_gguf_find_tensor(file, others[f]);
        ck_assert(gate && up && gate->type == CALM_GGML_Q4_0 && up->type == CALM_GGML_Q4_0);
        ck_assert(gate->dims[0] == spec.hidden && gate->dims[1] == spec.shared_inner && up->dims[1] == gate->dims[1]);
        ck_assert_ptr_null(calm_gguf_find_tensor(file, names[!f]));
        ck_assert(!calm_gguf_find_key(file, "granitehybrid.rope.scaling.finetuned")->data[0]);
        calm_gguf_close(file);
    }
}
END_OF_TEST

/* Gemma 4: sliding blocks have narrower heads; the last blocks share the keys of earlier ones; a block has inputs by
 * token id and a scale.  Pairs that proportional rotary embeddings do not rotate are divided by 1e30. */
TEST(shared_keys)
{
    tiny_model spec = tiny_wide("gemma4");
    calm_gguf *file;
    calm_gguf_list list;
    spec.n_blocks = 4;
    ck_ok(calm_gguf_open(ctx, write_tiny(&spec, "w4a16_g32", NULL), &file));
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    ck_assert_int_eq(number_of(file, "gemma4.attention.shared_kv_layers", 0), 2);
    ck_assert_int_eq(number_of(file, "gemma4.attention.key_length_swa", 0), (int64_t)spec.head_dim);
    ck_assert_int_eq(number_of(file, "gemma4.attention.key_length", 0), (int64_t)(2 * spec.head_dim));
    ck_assert_int_eq(number_of(file, "gemma4.rope.dimension_count", 0), (int64_t)(2 * spec.head_dim));
    ck_assert_int_eq(number_of(file, "gemma4.rope.dimension_count_swa", 0), (int64_t)spec.head_dim);
    ck_assert_int_eq(number_of(file, "gemma4.embedding_length_per_layer_input", 0), 8);
    for (size_t i = 0; i < spec.n_blocks; i++) {
        ck_assert_int_eq(number_of(file, "gemma4.attention.head_count_kv", i), (int64_t)spec.n_kv);
        ck_assert_int_eq(number_of(file, "gemma4.feed_forward_length", i), (int64_t)spec.inner);
        ck_assert(calm_gguf_find_key(file, "gemma4.attention.sliding_window_pattern")->data[i] == (i % 2 == 0));
        ck_assert(!calm_gguf_find_tensor(file, test_format("blk.%zu.attn_k.weight", i)) == (i >= 2));
        ck_assert_int_eq(find(&list, test_format("model.layers.%zu.self_attn.q_proj.weight", i))->stored->type,
                         CALM_GGML_Q4_0);
    }
    ck_assert_str_eq(find(&list, "model.embed_tokens_per_layer.weight")->stored->name, "per_layer_token_embd.weight");
    ck_assert_str_eq(find(&list, "model.layers.3.layer_scalar")->stored->name, "blk.3.layer_output_scale.weight");
    /* A quarter of all pairs rotates. */
    const calm_gguf_tensor *factors = calm_gguf_find_tensor(file, "rope_freqs.weight");
    ck_assert(factors && factors->dims[0] == spec.head_dim);
    for (size_t i = 0; i < spec.head_dim; i++) {
        float value;
        memcpy(&value, factors->data + i * sizeof value, sizeof value);
        ck_assert(value == (i < spec.head_dim / 4 ? 1 : 1e30F));
    }
    calm_gguf_close(file);
}
END_OF_TEST

/* Settings of Gemma 4's blocks are read back from the file. */
TEST(shared_keys_read_back)
{
    static const char *const extras[] = {
        "\"final_logit_softcapping\": 20.0",
        "\"per_layer_config\": {\"1\": {\"head_dim\": 32, \"num_key_value_heads\": 2}, "
        "\"3\": {\"head_dim\": 32, \"num_key_value_heads\": 2}}",
        "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 20000.0}, "
        "\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 500000.0, \"factor\": 2.0, "
        "\"partial_rotary_factor\": 0.4}}",
        "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 20000.0}, "
        "\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 500000.0}}"};
    for (size_t e = 0; e < sizeof extras / sizeof *extras; e++) {
        tiny_model spec = tiny_wide("gemma4");
        calm_model *model, *back;
        spec.n_blocks = 4;
        spec.extra = extras[e];
        const char *path = write_tiny(&spec, "float", &model);
        ck_ok(calm_model_open(ctx, path, &back));
        const calm_config *a = calm_model_config(model), *b = calm_model_config(back);
        ck_assert(a->logit_cap == b->logit_cap && a->per_layer == b->per_layer && a->carried == b->carried);
        for (size_t i = 0; i < spec.n_blocks; i++) {
            const calm_config *x = calm_config_at(a, i), *y = calm_config_at(b, i);
            ck_assert(a->window[i] == b->window[i] && x->inner == y->inner && x->kv == y->kv && x->kv_at == y->kv_at);
            ck_assert(x->n_kv == y->n_kv && x->head_dim == y->head_dim && x->k_is_v == y->k_is_v);
        }
        for (size_t r = 0; r < CALM_N_ROPES; r++) {
            const calm_rope_config *x = &a->rope[r], *y = &b->rope[r];
            const bool turns = x->kind == CALM_ROPE_PROPORTIONAL;
            const double half = (double)(x->rotary / 2);
            ck_assert(x->theta == y->theta && x->rotary == y->rotary);
            ck_assert(floor((turns ? x->share : 1) * half)
                      == floor((y->kind == CALM_ROPE_PROPORTIONAL ? y->share : 1) * half));
            ck_assert(!turns || x->factor == y->factor);
        }
        calm_model_close(back);
        calm_model_close(model);
    }
}
END_OF_TEST

/* Gemma 3n: 20 blocks have their own keys; later ones store zeros that nothing reads.  The matrices of the streams
 * are one tensor, and ids without a row in the table of inputs get its first row. */
TEST(streams)
{
    tiny_model spec = tiny_wide("gemma3n");
    calm_gguf *file;
    calm_gguf_list list;
    calm_model *model;
    spec.n_blocks = 22;
    spec.extra = "\"altup_coef_clip\": 120.0";
    ck_ok(calm_gguf_open(ctx, write_tiny(&spec, "float", &model), &file));
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    ck_assert_int_eq(number_of(file, "gemma3n.attention.shared_kv_layers", 0), 2);
    ck_assert_int_eq(number_of(file, "gemma3n.altup.num_inputs", 0), 4);
    const calm_gguf_tensor *split = calm_gguf_find_tensor(file, "altup_proj.weight");
    ck_assert(split && split->n_dims == 3 && split->dims[0] == spec.hidden && split->dims[2] == 3);
    ck_assert_ptr_eq(find(&list, "model.altup_projections.2.weight")->stored, split);
    const calm_gguf_tensor *keys = calm_gguf_find_tensor(file, "blk.21.attn_k.weight");
    ck_assert(keys && keys->type == CALM_GGML_F32 && keys->dims[1] == spec.n_kv * spec.head_dim);
    for (size_t i = 0; i < keys->bytes; i++)
        ck_assert_int_eq(keys->data[i], 0);
    ck_assert(calm_gguf_find_tensor(file, "blk.20.attn_v.weight")
              && calm_gguf_find_tensor(file, "blk.21.attn_k_norm.weight"));
    const calm_gguf_tensor *table = calm_gguf_find_tensor(file, "per_layer_token_embd.weight");
    ck_assert(table && table->dims[1] == spec.vocab && table->dims[0] == 22 * 256);
    const size_t row = table->dims[0] * sizeof(float);
    ck_assert_mem_eq(table->data + (spec.vocab - 1) * row, table->data, row);
    calm_gguf_close(file);
    calm_model_close(model);
}
END_OF_TEST

/* Returns a tensor's name in a model read from a file, where all names but the head's begin with "model.". */
static const char *name_back(const calm_model *model, const char *name)
{
    const char *prefix = calm_model_prefix(model);
    return strncmp(name, prefix, strlen(prefix)) == 0 ? test_format("model.%s", name + strlen(prefix)) : name;
}

/* Every tensor of a float file, opened as a model, has the checkpoint's shape and values.  Tolerance of A_log, which
 * is below 8 and stored through exp and log: each is within an ulp. */
TEST(read_back_as_models)
{
    static const char *const families[] = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite", "qwen3_5", "qwen3_5_moe",
                                           "qwen3_next", "lfm2", "lfm2_moe", "granite_hybrid", "granitemoehybrid",
                                           "nemotron_h", "nemotron_dense", "llama4", "embeddinggemma", "gemma4",
                                           "gemma3n"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        tiny_model spec = tiny_wide(families[f]);
        calm_model *model, *back;
        spec.bias = false;
        if (strcmp(families[f], "llama4") == 0)
            spec.extra = "\"attention_chunk_size\": 8192";
        if (strcmp(families[f], "gemma3n") == 0)
            spec.extra = "\"altup_coef_clip\": 120.0";
        if (strcmp(families[f], "embeddinggemma") == 0)
            spec.head_dim = 12;    /* query_pre_attn_scalar */
        const char *path = write_tiny(&spec, "float", &model);
        ck_ok(calm_model_open(ctx, path, &back));
        const calm_safetensors *set = calm_model_tensors(model);
        for (size_t i = 0; i < calm_safetensors_count(set); i++) {
            const calm_tensor *expected = calm_safetensors_at(set, i);
            const char *name = name_back(model, expected->name);
            const calm_tensor *found = calm_safetensors_find(calm_model_tensors(back), name);
            const double within = strstr(expected->name, "A_log") ? 4 * 8 * FLT_EPSILON : 0;
            size_t n, m;
            ck_assert_msg(found && found->n_dims == expected->n_dims, "%s: %s", families[f], expected->name);
            const float *a = values_of(model, expected->name, &n), *b = values_of(back, name, &m);
            /* The table in the file may have more rows. */
            const bool longer = strstr(name, "embed_tokens_per_layer") && n < m;
            ck_assert_mem_eq(found->shape + longer, expected->shape + longer,
                             (size_t)(expected->n_dims - longer) * sizeof *found->shape);
            ck_assert(longer || n == m);
            for (size_t k = 0; k < n; k++)
                ck_assert_msg(fabs((double)a[k] - (double)b[k]) <= within, "%s: %s [%zu]", families[f], expected->name,
                              k);
        }
        calm_model_close(back);
        calm_model_close(model);
    }
}
END_OF_TEST

/* ---- models that cannot be written ---- */

TEST(refused_by_name)
{
    tiny_model delta = tiny_wide("qwen3_5"), latent = tiny_wide("deepseek_v3"), conv = tiny_wide("lfm2_moe");
    tiny_model scan = tiny_wide("granite_hybrid"), chunk = tiny_wide("llama4");
    delta.bias = latent.bias = conv.bias = false;
    check_refused(&delta, "w4a16_g32",
                  "model.layers.0.linear_attn.out_proj: llama.cpp has its heads of 16 columns in another order, so "
                  "blocks of 32 of Q4_0 do not stay together; leave it float (`--keep-float`)");
    delta.head_dim = 8;    /* keys have 16 */
    check_refused(&delta, "float", "linear_key_head_dim is not linear_value_head_dim");
    check_refused(&latent, "w4a16_g32",
                  "model.layers.0.self_attn.kv_b_proj is quantized, and llama.cpp has the rows of its keys as columns");
    const struct {
        tiny_model *spec;
        const char *extra, *words;
    } options[] = {
        {&latent, "\"rope_interleave\": false", "rope_interleave is false"},
        {&conv, "\"routed_scaling_factor\": 2.0", "routed_scaling_factor is not 1"},
        {&conv, "\"norm_topk_prob\": false", "norm_topk_prob is not set"},
        {&chunk, "\"attention_chunk_size\": 64", "attention_chunk_size is not 8192"},
        {&chunk, "\"attention_chunk_size\": 8192, \"no_rope_layer_interval\": 2",
         "blocks slide, or turn by their position, in another order than llama.cpp has"},
        {&chunk, "\"attention_chunk_size\": 8192, \"use_qk_norm\": false",
         "use_qk_norm is not what llama.cpp has for this number of experts"},
        {&scan, "\"mamba_conv_bias\": false", "its convolutions have no bias, which llama.cpp needs"},
        {&scan, "\"time_step_limit\": [0.0, 0.5]", "time_step_limit bounds steps, which llama.cpp does not"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        options[i].spec->extra = options[i].extra;
        check_refused(options[i].spec, "float", options[i].words);
    }
    tiny_model grouped = tiny_wide("olmoe");
    grouped.n_kv = grouped.n_heads;
    grouped.extra = "\"clip_qkv\": 8.0";
    check_refused(&grouped, "float", "clip_qkv bounds q, k and v");
    grouped.extra = NULL;
    grouped.n_kv = grouped.n_heads / 2;
    check_refused(&grouped, "float", "fewer heads for keys than for queries");
    tiny_model sinks = tiny_wide("gpt_oss");
    sinks.extra = "\"layer_types\": [\"full_attention\", \"sliding_attention\"]";
    check_refused(&sinks, "float", "in another order than llama.cpp has");
    /* Models that rotate a part of a head have fewer factors than half its width. */
    static const char *const undivided[] = {"glm4", "qwen3"};
    for (size_t i = 0; i < 2; i++) {
        tiny_model turned = tiny_wide(undivided[i]);
        turned.extra = "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                       "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 1000}";
        check_refused(&turned, "float", "rope_type llama3, whose factors llama.cpp does not read");
    }
}
END_OF_TEST

/* Settings of Gemma 4 that llama.cpp lacks, one at a time. */
TEST(shared_keys_refused)
{
    tiny_model spec = tiny_wide("gemma4");
    calm_model *model;
    spec.n_blocks = 4;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const calm_config *usual = calm_model_config(model);
    const calm_gguf_arch *as = calm_gguf_arch_in(usual);
    ck_assert_ptr_null(calm_gguf_lacks(usual, as));
    static const char *const words[] = {"fewer than two blocks have their own keys", "not one that slides and then one",
                                        "attention_bias is true", "no block slides",
                                        "rope_type of full_attention is neither", "rope_type of sliding_attention"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        calm_config config = *usual, blocks[4];
        size_t window[4];
        memcpy(blocks, usual->blocks, sizeof blocks);
        memcpy(window, usual->window, sizeof window);
        config.blocks = blocks;
        config.window = window;
        blocks[1].kv = i == 0 ? CALM_KV_SHARED : blocks[1].kv;
        /* Of two sliding blocks, the last one with keys would be read by blocks that do not slide. */
        window[1] = i == 1 ? window[0] : 0;
        window[0] = window[2] = i == 3 ? 0 : window[0];
        config.bias[CALM_ROLE_Q] = i == 2;
        config.rope[CALM_ROPE_GLOBAL].kind = i == 4 ? CALM_ROPE_LINEAR : CALM_ROPE_PROPORTIONAL;
        config.rope[CALM_ROPE_LOCAL].kind = i == 5 ? CALM_ROPE_LINEAR : CALM_ROPE_DEFAULT;
        const char *found = calm_gguf_lacks(&config, as);
        ck_assert_msg(found && strstr(found, words[i]), "%zu: %s", i, found ? found : "nothing");
    }
    calm_model_close(model);
}
END_OF_TEST

/* Settings of Gemma 3n that llama.cpp lacks, one at a time; its numbers are constants in llama.cpp. */
TEST(streams_refused)
{
    tiny_model spec = tiny_wide("gemma3n");
    calm_model *model;
    spec.n_blocks = 4;
    spec.extra = "\"altup_coef_clip\": 120.0";
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const calm_config *usual = calm_model_config(model);
    static const char *const words[] = {"altup_num_inputs", "altup_num_inputs", "altup_num_inputs",
                                        "hidden_size_per_layer_input", "altup_correct_scale is false",
                                        "not 20 blocks have their own keys", "activation_sparsity_pattern is not",
                                        "different widths (intermediate_size)", "final_logit_softcapping is not 30",
                                        "rope_type of full_attention is not default",
                                        "rope_type of sliding_attention is not default", NULL};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        calm_config config = *usual, blocks[4];
        memcpy(blocks, usual->blocks, sizeof blocks);
        config.blocks = blocks;
        /* All four blocks have their own keys, which passes, but in case 5 two of them share. */
        blocks[2].kv = blocks[3].kv = i == 5 ? CALM_KV_SHARED : CALM_KV_OWN;
        config.streams.n -= i == 0;
        config.streams.active += i == 1;
        config.streams.rank -= i == 2;
        config.per_layer += i == 3;
        config.streams.scale = i != 4;
        blocks[3].gate_sparsity = i == 6 ? 0 : 0.95F;
        blocks[1].inner += i == 7;
        config.logit_cap += i == 8;
        config.rope[CALM_ROPE_GLOBAL].kind = i == 9 ? CALM_ROPE_LINEAR : CALM_ROPE_DEFAULT;
        config.rope[CALM_ROPE_LOCAL].kind = i == 10 ? CALM_ROPE_LINEAR : CALM_ROPE_DEFAULT;
        const char *found = calm_gguf_lacks(&config, calm_gguf_arch_in(usual));
        ck_assert_msg(words[i] ? found && strstr(found, words[i]) : !found, "%zu: %s", i, found ? found : "nothing");
    }
    calm_model_close(model);
}
END_OF_TEST

/* Formats that name one tensor per weight, with the columns in the checkpoint's order, refuse families in which
 * llama.cpp splits or reorders them. */
TEST(not_described)
{
    static const char *const formats[] = {"imatrix", "tensor_types"}, *const families[] = {"deepseek_v3", "qwen3_next",
                                                                                           "qwen3_5"};
    for (int f = 0; f < 6; f++) {
        const tiny_model spec = tiny_wide(families[f / 2]);
        const calm_exporter *exporter;
        tiny_plan p;
        tiny_plan_open(&p, tiny_model_write(&spec));
        const calm_export_input input = {.model = p.model, .plan = &p.plan};
        ck_ok(calm_exporter_find(ctx, formats[f % 2], &exporter));
        ck_fails(exporter->check(ctx, &input), CALM_EUNSUPPORTED, "is two tensors in llama.cpp, or has its columns in");
        calm_model_close(p.model);
    }
}
END_OF_TEST

/* ---- damaged files ---- */

/* A renamed key is missing; one part of a tensor is missing; sizes disagree with the keys. */
TEST(wrong_files)
{
    tiny_model delta = tiny_wide("qwen3_next"), latent = tiny_wide("deepseek_v3"), conv = tiny_wide("lfm2");
    const tiny_model scan = tiny_wide("nemotron_h"), half = tiny_wide("granite_hybrid");
    delta.bias = latent.bias = conv.bias = false;
    check_wrong(&delta, "qwen3next.ssm.group_count", "qwen3next.ssm.group_covnt",
                "key qwen3next.ssm.group_count: expected a whole number from 1 to 2^24");
    check_wrong(&delta, "blk.0.attn_gate.weight", "blk.0.attn_gait.weight",
                "tensor blk.0.attn_qkv.weight: no blk.0.attn_gate.weight next to it");
    check_wrong(&delta, "blk.0.attn_gate.weight", "blk.0.ssm_outxx.weight",
                "tensor blk.0.attn_qkv.weight: no blk.0.attn_gate.weight next to it");
    check_wrong(&latent, "deepseek2.attention.value_length_mla", "deepseek2.attention.value_length_mlb",
                "key deepseek2.attention.value_length_mla: expected a whole number from 1 to 2^24");
    check_wrong(&latent, "blk.0.attn_v_b.weight", "blk.0.attn_w_b.weight",
                "tensor blk.0.attn_k_b.weight: no blk.0.attn_v_b.weight next to it");
    check_wrong(&conv, "lfm2.shortconv.l_cache", "lfm2.shortconv.l_cachf", "key lfm2.shortconv.l_cache: it is missing");
    check_wrong(&scan, "nemotron_h_moe.ssm.group_count", "nemotron_h_moe.ssm.group_covnt",
                "key nemotron_h_moe.ssm.group_count: expected a whole number from 1 to 2^24");
    check_wrong(&scan, "nemotron_h_moe.ssm.state_size", "nemotron_h_moe.ssm.state_sizf",
                "key nemotron_h_moe.ssm.state_size: it is missing");
    check_wrong(&half, "blk.0.ffn_up.weight", "blk.0.ffn_ux.weight",
                "tensor blk.0.ffn_gate.weight: no blk.0.ffn_up.weight next to it");
    tiny_model sharing = tiny_wide("gemma4");
    sharing.n_blocks = 4;
    check_wrong(&sharing, "gemma4.attention.sliding_window_pattern", "gemma4.attention.sliding_window_patterm",
                "key gemma4.attention.sliding_window_pattern: expected a list of at least block_count booleans");
    check_wrong(&sharing, "gemma4.attention.key_length", "gemma4.attention.key_lemgth",
                "key gemma4.attention.key_length: it is missing");
    check_wrong(&sharing, "rope_freqs.weight", "rope_freks.weight",
                "rope_freqs.weight: expected half of attention.key_length numbers of F32");
    check_wrong_bytes(&sharing, "per_layer_token_embd", "per_layer_tokem_embd", 20, CALM_ENOTFOUND,
                      "embed_tokens_per_layer.weight is missing");
    /* Values are u32 behind the key's name and type; the file claims one more key head than there is. */
    check_wrong_bytes(&delta, "ssm.group_count\4\0\0\0\2", "ssm.group_count\4\0\0\0\3", 20, CALM_EFORMAT,
                      "ssm.time_step_rank: expected a multiple of");
    check_wrong_bytes(&sharing, "attention.key_length\4\0\0\0\x20", "attention.key_length\4\0\0\0\x22", 25,
                      CALM_EFORMAT, "expected half of attention.key_length");
    /* The factors of the last pairs are 1e30; here one of them gets another value. */
    check_wrong_bytes(&sharing, "\xca\xf2\x49\x71\xca\xf2\x49\x71", "\0\0\x80\x40\xca\xf2\x49\x71", 8, CALM_EFORMAT,
                      "expected one factor above 0 for the first pairs");
    check_wrong_bytes(&sharing, "attention.shared_kv_layers\4\0\0\0\2", "attention.shared_kv_layers\4\0\0\0\4", 31,
                      CALM_EFORMAT, "num_kv_shared_layers");
    check_wrong_bytes(&latent, "value_length_mla\4\0\0\0\x10", "value_length_mla\4\0\0\0\x11", 21, CALM_EFORMAT,
                      "tensor blk.0.attn_v_b.weight: expected sizes");
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_mixers", (const TTest *[]){short_convolutions, scans, latents, halves_of_gate_and_up,
                                                      shared_keys, shared_keys_read_back, read_back_as_models, streams,
                                                      refused_by_name, shared_keys_refused, streams_refused,
                                                      not_described, wrong_files, NULL});
}
