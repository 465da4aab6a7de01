/* llama.cpp's names in both directions: every tensor of every family has a separate name, from which it is found. */
#include "ptq/gguf/gguf_names_impl.h"

#include <math.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/gguf_impl.h"
#include "ptq/io/gguf_write.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static calm_model *open_family(const char *family)
{
    tiny_model spec = tiny_wide(family);
    calm_model *model;
    spec.tied = false;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    return model;
}

/* Returns family f, encoders last; NULL past the last one. */
static const char *family_at(size_t f)
{
    size_t n = 0;
    while (tiny_families[n])
        n++;
    return f < n ? tiny_families[f] : tiny_encoders[f - n];
}

TEST(both_ways)
{
    for (size_t f = 0; family_at(f); f++) {
        const char *family = family_at(f);
        calm_model *model = open_family(family);
        const calm_arch *arch = calm_model_config(model)->arch;
        const calm_gguf_arch *as = calm_gguf_arch_in(calm_model_config(model));
        const calm_safetensors *set = calm_model_tensors(model);
        /* Families without GGUF files. */
        const bool has_none = calm_text_listed("phi3 mpnet gte", ' ', family);
        ck_assert_msg(!as == has_none, "%s", family);
        for (size_t i = 0; as && i < calm_safetensors_count(set); i++) {
            const char *name = calm_safetensors_at(set, i)->name;
            /* Heads for masked tokens and poolers are not written. */
            if (strstr(name, "pooler.") || strncmp(name, "cls.", 4) == 0)
                continue;
            calm_gguf_spot spot, back;
            char *found;
            bool known;
            ck_ok(calm_gguf_spot_of(ctx, arch, as, calm_model_prefix(model), name, &spot, &known));
            ck_assert_msg(known, "%s has no place", name);
            ck_assert_uint_le(strlen(spot.name), CALM_GGUF_NAME_MAX);
            /* The last size is the number of experts. */
            const int n_dims = calm_safetensors_at(set, i)->n_dims;
            calm_gguf_tensor all = {.name = spot.name, .n_dims = n_dims + 1, .dims = {1, 1, 1, 1}};
            all.dims[n_dims] = 7;
            ck_assert_uint_eq(calm_gguf_experts_in(&all), spot.expert >= 0 ? 7 : 0);
            back = (calm_gguf_spot){.name = spot.name, .expert = spot.expert};
            ck_ok(calm_gguf_name_of(ctx, arch, as, calm_model_prefix(model), &back, &found));
            ck_assert_ptr_nonnull(found);
            ck_assert_str_eq(found, name);
            ck_assert(back.form == spot.form && back.plus_one == spot.plus_one);
            ck_assert(back.minus_exp == spot.minus_exp && back.taps == spot.taps);
            bool first;
            ck_assert(calm_gguf_order_is_part(spot.form, &first) == (spot.rest != NULL));
            if (!spot.rest)
                continue;
            /* The other part of the tensor gives the same name. */
            back = (calm_gguf_spot){.name = spot.rest, .expert = CALM_NO_EXPERT};
            ck_ok(calm_gguf_name_of(ctx, arch, as, calm_model_prefix(model), &back, &found));
            ck_assert_str_eq(found, name);
            ck_assert(first && back.form == spot.rest_form && calm_gguf_order_is_part(back.form, &first) && !first);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

static const calm_arch *arch_named(const char *name)
{
    size_t n;
    for (size_t i = 0; i < (calm_architectures(&n), n); i++)
        if (strcmp(calm_architectures(&n)[i]->name, name) == 0)
            return calm_architectures(&n)[i];
    ck_abort_msg("no family %s", name);
}

/* Returns llama.cpp's architecture of a family; if it has one with experts and one without, that with experts. */
static const calm_gguf_arch *gguf_named(const char *name)
{
    return calm_gguf_arch_of(arch_named(name), true);
}

TEST(known_names)
{
    static const struct {
        const char *family, *name, *expected;
        long expert;
        bool plus_one;
        calm_gguf_form form;
    } rows[] = {
        {"deepseek_v3", "model.layers.4.self_attn.kv_b_proj.weight", "blk.4.attn_k_b.weight", -1, false,
         CALM_GGUF_KV_KEYS},
        {"glm4_moe_lite", "model.layers.4.self_attn.kv_a_proj_with_mqa.weight", "blk.4.attn_kv_a_mqa.weight", -1, false,
         0},
        {"deepseek_v2", "model.layers.4.self_attn.kv_a_layernorm.weight", "blk.4.attn_kv_a_norm.weight", -1, false, 0},
        {"qwen3_next", "model.layers.1.linear_attn.in_proj_qkvz.weight", "blk.1.attn_qkv.weight", -1, false,
         CALM_GGUF_QKVZ_MIXED},
        {"qwen3_next", "model.layers.1.linear_attn.in_proj_ba.weight", "blk.1.ssm_ba.weight", -1, false, 0},
        {"qwen3_next", "model.layers.1.linear_attn.out_proj.weight", "blk.1.ssm_out.weight", -1, false, 0},
        {"qwen3_5", "model.layers.1.linear_attn.A_log", "blk.1.ssm_a", -1, false, CALM_GGUF_GATES},
        {"qwen3_5", "model.layers.1.linear_attn.dt_bias", "blk.1.ssm_dt.bias", -1, false, CALM_GGUF_GATES},
        {"qwen3_5", "model.layers.1.linear_attn.norm.weight", "blk.1.ssm_norm.weight", -1, false, 0},
        {"qwen3_5", "model.layers.1.linear_attn.out_proj.weight", "blk.1.ssm_out.weight", -1, false,
         CALM_GGUF_VALUE_COLUMNS},
        {"qwen3_5_moe", "model.layers.1.post_attention_layernorm.weight", "blk.1.post_attention_norm.weight", -1, true,
         0},
        {"qwen3_5_moe", "model.layers.3.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight", -1, true, 0},
        {"lfm2_moe", "model.layers.2.feed_forward.expert_bias", "blk.2.exp_probs_b.bias", -1, false, 0},
        {"lfm2_moe", "model.layers.2.feed_forward.experts.1.w2.weight", "blk.2.ffn_down_exps.weight", 1, false, 0},
        {"granitemoehybrid", "model.layers.0.shared_mlp.input_linear.weight", "blk.0.ffn_gate_shexp.weight", -1, false,
         CALM_GGUF_FIRST_HALF},
        {"granitemoehybrid", "model.layers.0.shared_mlp.output_linear.weight", "blk.0.ffn_down_shexp.weight", -1, false,
         0},
        {"granitemoehybrid", "model.layers.0.mamba.D", "blk.0.ssm_d", -1, false, CALM_GGUF_COLUMN},
        {"nemotron_h", "model.layers.7.norm.weight", "blk.7.attn_norm.weight", -1, false, 0},
        {"nemotron_h", "model.layers.7.mixer.norm.weight", "blk.7.ssm_norm.weight", -1, false, CALM_GGUF_GROUPS},
        {"nemotron_h", "model.layers.7.mixer.experts.3.up_proj.weight", "blk.7.ffn_up_exps.weight", 3, false, 0},
        {"nemotron_h", "model.layers.7.mixer.conv1d.bias", "blk.7.ssm_conv1d.bias", -1, false, 0},
        {"llama4", "model.layers.1.feed_forward.router.weight", "blk.1.ffn_gate_inp.weight", -1, false, 0},
        {"llama4", "model.layers.1.feed_forward.shared_expert.up_proj.weight", "blk.1.ffn_up_shexp.weight", -1, false,
         0},
        {"llama4", "model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", -1, false, 0},
        {"embeddinggemma", "model.layers.1.self_attn.q_norm.weight", "blk.1.attn_q_norm.weight", -1, true, 0},
        {"gemma4", "model.layers.3.router.proj.weight", "blk.3.ffn_gate_inp.weight", -1, false, 0},
        {"gemma4", "model.layers.3.router.scale", "blk.3.ffn_gate_inp.scale", -1, false, 0},
        {"gemma4", "model.layers.3.router.per_expert_scale", "blk.3.ffn_down_exps.scale", -1, false, 0},
        {"gemma4", "model.layers.3.experts.7.down_proj.weight", "blk.3.ffn_down_exps.weight", 7, false, 0},
        {"gemma4", "model.layers.3.pre_feedforward_layernorm_2.weight", "blk.3.pre_ffw_norm_2.weight", -1, false, 0},
        {"gemma4", "model.layers.3.post_feedforward_layernorm_1.weight", "blk.3.post_ffw_norm_1.weight", -1, false, 0},
        {"gemma4", "model.layers.3.post_feedforward_layernorm_2.weight", "blk.3.post_ffw_norm_2.weight", -1, false, 0},
        {"gemma4", "model.layers.3.layer_scalar", "blk.3.layer_output_scale.weight", -1, false, 0},
        {"gemma4", "model.layers.3.per_layer_projection.weight", "blk.3.proj.weight", -1, false, 0},
        {"gemma4", "model.per_layer_model_projection.weight", "per_layer_model_proj.weight", -1, false, 0},
        {"gemma3n", "model.altup_projections.2.weight", "altup_proj.weight", 2, false, 0},
        {"gemma3n", "model.altup_unembed_projections.0.weight", "altup_unembd_proj.weight", 0, false, 0},
        {"gemma3n", "model.layers.3.altup.correct_output_scale", "blk.3.altup_correct_scale.weight", -1, false, 0},
        {"gemma3n", "model.layers.3.laurel.linear_left.weight", "blk.3.laurel_l.weight", -1, false, 0},
        {"gemma3n", "model.layers.3.per_layer_input_gate.weight", "blk.3.inp_gate.weight", -1, false, 0},
        {"gpt_oss", "model.layers.3.self_attn.sinks", "blk.3.attn_sinks.weight", -1, false, 0},
        {"gpt_oss", "model.layers.3.mlp.router.bias", "blk.3.ffn_gate_inp.bias", -1, false, 0},
        {"gpt_oss", "model.layers.3.mlp.experts.12.up_proj.bias", "blk.3.ffn_up_exps.bias", 12, false, 0},
        {"gpt_oss", "model.layers.3.post_attention_layernorm.weight", "blk.3.post_attention_norm.weight", -1, false, 0},
        {"qwen3", "model.embed_tokens.weight", "token_embd.weight", -1, false, 0},
        {"qwen3", "model.norm.weight", "output_norm.weight", -1, false, 0},
        {"qwen3", "lm_head.weight", "output.weight", -1, false, 0},
        {"qwen3", "model.layers.10.self_attn.q_norm.weight", "blk.10.attn_q_norm.weight", -1, false, 0},
        {"qwen2", "model.layers.0.self_attn.k_proj.bias", "blk.0.attn_k.bias", -1, false, 0},
        {"llama", "model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight", -1, false, CALM_GGUF_Q},
        {"mistral", "model.layers.3.self_attn.k_proj.weight", "blk.3.attn_k.weight", -1, false, CALM_GGUF_K},
        {"llama", "model.layers.3.post_attention_layernorm.weight", "blk.3.ffn_norm.weight", -1, false, 0},
        {"gemma2", "model.layers.1.post_attention_layernorm.weight", "blk.1.post_attention_norm.weight", -1, true, 0},
        {"gemma2", "model.layers.1.pre_feedforward_layernorm.weight", "blk.1.ffn_norm.weight", -1, true, 0},
        {"gemma3", "model.layers.1.post_feedforward_layernorm.weight", "blk.1.post_ffw_norm.weight", -1, true, 0},
        {"gemma3", "model.norm.weight", "output_norm.weight", -1, true, 0},
        {"olmo2", "model.layers.1.post_feedforward_layernorm.weight", "blk.1.post_ffw_norm.weight", -1, false, 0},
        {"qwen3_moe", "model.layers.1.mlp.gate.weight", "blk.1.ffn_gate_inp.weight", -1, false, 0},
        {"qwen3_moe", "model.layers.1.mlp.experts.12.down_proj.weight", "blk.1.ffn_down_exps.weight", 12, false, 0},
        {"qwen2_moe", "model.layers.1.mlp.shared_expert.up_proj.weight", "blk.1.ffn_up_shexp.weight", -1, false, 0},
        {"glm4_moe", "model.layers.2.mlp.gate.e_score_correction_bias", "blk.2.exp_probs_b.bias", -1, false, 0},
        {"glm4_moe", "model.layers.2.post_attention_layernorm.weight", "blk.2.post_attention_norm.weight", -1, false,
         0},
        {"glm4_moe", "model.layers.2.mlp.shared_experts.up_proj.weight", "blk.2.ffn_up_shexp.weight", -1, false, 0},
        {"minimax_m2", "model.layers.0.block_sparse_moe.e_score_correction_bias", "blk.0.exp_probs_b.bias", -1, false,
         0},
        {"ernie4_5_moe", "model.layers.1.mlp.moe_statics.e_score_correction_bias", "blk.1.exp_probs_b.bias", -1, false,
         0},
        {"phimoe", "model.layers.0.block_sparse_moe.experts.3.w2.weight", "blk.0.ffn_down_exps.weight", 3, false, 0},
        {"phimoe", "lm_head.bias", "output.bias", -1, false, 0},
        {"qwen2_moe", "model.layers.1.mlp.shared_expert_gate.weight", "blk.1.ffn_gate_inp_shexp.weight", -1, false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_gguf_spot spot;
        bool known;
        ck_ok(calm_gguf_spot_of(ctx, arch_named(rows[i].family), gguf_named(rows[i].family), "model.", rows[i].name,
                                &spot, &known));
        ck_assert_msg(known, "%s", rows[i].name);
        ck_assert_str_eq(spot.name, rows[i].expected);
        ck_assert_int_eq(spot.expert, rows[i].expert);
        ck_assert(spot.plus_one == rows[i].plus_one && spot.form == rows[i].form);
    }
}
END_OF_TEST

TEST(unknown_names)
{
    static const char *const names[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                        "model.layers.x.mlp.up_proj.weight",
                                        "model.layers.01.mlp.up_proj.weight",
                                        "model.layers.0.mlp.up_proj",
                                        "lm_head",
                                        "weight",
                                        "model.layers.0",
                                        "transformer.wte.weight",
                                        "model.layers.0.mlp.up_proj.weight_packed"};
    /* Invalid numbers of the tensors that are stored as one. */
    static const char *const copies[] = {"model.altup_projections.weight", "model.altup_projections.x.weight",
                                         "model.altup_projections.01.weight", "model.altup_projections.1.0.weight",
                                         "model.altup_projections..weight", "model.altup_projections.1.bias.x"};
    static const char *const spots[] = {
        "blk.0.attn_q.scale", "blk.x.attn_q.weight", "blk.0.attn_q",  "blk.",
        "output.bias",        "rope_freqs.weight",   "blk.0..weight", "blk.99999999999999999999.attn_q.weight"};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        calm_gguf_spot spot;
        bool known;
        ck_ok(calm_gguf_spot_of(ctx, arch_named("gemma3n"), gguf_named("gemma3n"), "model.", copies[i], &spot, &known));
        ck_assert_msg(!known && spot.expert == CALM_NO_EXPERT, "%s", copies[i]);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        calm_gguf_spot spot;
        bool known;
        ck_ok(calm_gguf_spot_of(ctx, arch_named("llama"), gguf_named("llama"), "model.", names[i], &spot, &known));
        ck_assert_msg(!known, "%s", names[i]);
    }
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        calm_gguf_spot spot = {.name = spots[i], .expert = CALM_NO_EXPERT};
        char *found;
        ck_ok(calm_gguf_name_of(ctx, arch_named("llama"), gguf_named("llama"), "model.", &spot, &found));
        ck_assert_msg(!found, "%s: %s", spots[i], found);
    }
}
END_OF_TEST

/* ---- files that cannot be a checkpoint ---- */

static void check_list(const char *arch, size_t heads, const calm_gguf_tensor *tensor, calm_status status,
                       const char *words)
{
    const char *path = test_format("%s/x.gguf", test_directory());
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    calm_gguf_list list;
    calm_gguf *file;
    size_t bytes;
    calm_gguf_keys_init(&keys);
    if (arch)
        calm_gguf_add_string(&keys, "general.architecture", arch);
    if (heads)
        calm_gguf_add_u32(&keys, "llama.attention.head_count", (uint32_t)heads);
    ck_ok(calm_gguf_begin(ctx, &writer, path, &keys, tensor, 1));
    ck_assert(calm_gguf_tensor_bytes(tensor, &bytes));
    ck_ok(calm_gguf_put(ctx, &writer, test_format("%*s", (int)bytes, ""), bytes));
    ck_ok(calm_gguf_end(ctx, &writer));
    calm_gguf_keys_clear(&keys);
    ck_ok(calm_gguf_open(ctx, path, &file));
    if (status == CALM_OK) {
        ck_ok(calm_gguf_list_tensors(ctx, file, &list));
        ck_assert_uint_eq(list.n, 1);
        ck_assert(!list.entries[0].name);
    } else
        ck_fails(calm_gguf_list_tensors(ctx, file, &list), status, words);
    calm_gguf_close(file);
}

TEST(lists_that_fail)
{
    const calm_gguf_tensor q = {.name = "blk.0.attn_q.weight", .type = CALM_GGML_F32, .n_dims = 2, .dims = {4, 6}};
    const calm_gguf_tensor other = {.name = "v.patch", .type = CALM_GGML_F32, .n_dims = 2, .dims = {4, 6}};
    const calm_gguf_tensor experts = {
        .name = "blk.0.ffn_up_exps.weight", .type = CALM_GGML_I8, .n_dims = 3, .dims = {1, 1, 70000}};
    check_list("clip", 0, &q, CALM_EUNSUPPORTED, "architecture clip; calm knows llama");
    check_list(NULL, 0, &q, CALM_EUNSUPPORTED, "architecture none");
    check_list("llama", 0, &q, CALM_EFORMAT, "key llama.attention.head_count: expected a whole number above 0");
    check_list("llama", 4, &q, CALM_EFORMAT, "tensor blk.0.attn_q.weight: 6 rows, expected 4 heads of an even number");
    check_list("llama", 2, &q, CALM_EFORMAT, "6 rows, expected 2 heads of an even number");
    check_list("llama", 0, &experts, CALM_EFORMAT, "70000 experts, expected at most 65536");
    check_list("llama", 0, &other, CALM_OK, NULL);
}
END_OF_TEST

/* Makes a file of a matrix and its factor of `n` values. */
static calm_gguf *with_factor(size_t n, const float *factor)
{
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const calm_gguf_tensor tensors[] = {
        {.name = "blk.0.attn_v.weight", .type = CALM_GGML_F32, .n_dims = 2, .dims = {4, 2, 1, 1}},
        {.name = "blk.0.attn_v.scale", .type = CALM_GGML_F32, .n_dims = 1, .dims = {n, 1, 1, 1}}};
    const char *path = test_format("%s/x.gguf", test_directory());
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    calm_gguf *file;
    calm_gguf_keys_init(&keys);
    calm_gguf_add_string(&keys, "general.architecture", "llama");
    ck_ok(calm_gguf_begin(ctx, &writer, path, &keys, tensors, 2));
    ck_ok(calm_gguf_put(ctx, &writer, values, sizeof values));
    ck_ok(calm_gguf_put(ctx, &writer, factor, n * sizeof *factor));
    ck_ok(calm_gguf_end(ctx, &writer));
    calm_gguf_keys_clear(&keys);
    ck_ok(calm_gguf_open(ctx, path, &file));
    return file;
}

/* The factor next to a matrix multiplies it, as in llama.cpp; it must be a single finite value. */
TEST(factors)
{
    const float half[2] = {.5f, .5f}, none = NAN;
    calm_gguf_list list;
    float row[4];
    calm_gguf *file = with_factor(1, half);
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    ck_assert(list.n == 2 && list.entries[0].factor && !list.entries[1].name);
    ck_ok(calm_gguf_entry_to_f32(ctx, &list, &list.entries[0], 1, 1, row));
    ck_assert(row[0] == 2.5f && row[3] == 4);
    calm_gguf_close(file);
    file = with_factor(1, &none);
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    ck_fails(calm_gguf_entry_to_f32(ctx, &list, &list.entries[0], 0, 1, row), CALM_ENUMERIC,
             "tensor blk.0.attn_v.scale: element 0 is not finite");
    calm_gguf_close(file);
    file = with_factor(2, half);
    ck_fails(calm_gguf_list_tensors(ctx, file, &list), CALM_EFORMAT,
             "blk.0.attn_v.scale: expected 1 values of F32, one for each matrix of blk.0.attn_v.weight");
    calm_gguf_close(file);
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_names", (const TTest *[]){both_ways, known_names, unknown_names, lists_that_fail, factors,
                                                     NULL});
}
