/* Llama 4: Llama's block with neighbouring rotary channels.  Rotated blocks attend within chunks, and normalise heads
 * of q and k after the rotation, without a weight; the other blocks see all tokens, and scale their queries by
 * position.  In some or all blocks the MLP is a mixture with a shared expert, whose weights multiply the experts'
 * inputs.
 *
 *   q, k = rms(rope(q)), rms(rope(k)), or without rope q *= 1 + attn_scale ln(1 + floor((p + 1) / floor_scale))
 *   w = sigmoid(r) of the largest logits r,  y = sum_e expert_e(w_e h) + shared(h)
 *
 * Reference: transformers' modeling_llama4.py. */
#include "ptq/arch/arch.h"

/* Reads the scale of queries, which is on by default; the first published files have a number instead of a boolean. */
static calm_status read_growth(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *tuned = calm_json_get(root, "attn_temperature_tuning");
    bool on = calm_json_int(tuned, 1) != 0;
    int64_t length;
    double beta;
    if (calm_json_typeof(tuned) != CALM_JSON_INT)
        CALM_TRY(calm_config_switch(ctx, path, root, "attn_temperature_tuning", true, &on));
    CALM_TRY(calm_json_need_int(ctx, path, root, "floor_scale", &(int64_t){8192}, 1, 1 << 30, &length));
    CALM_TRY(calm_json_need_number(ctx, path, root, "attn_scale", &(double){0.1}, 0, 1e3, &beta));
    config->query_growth =
        (calm_query_scale_config){.beta = on ? (float)beta : 0, .length = (double)length, .from_one = true,
                                  .unrotated = true};
    return CALM_OK;
}

/* Reads which blocks are mixtures: "moe_layers" lists their numbers, else every "interleave_moe_layer_step"-th is
 * one. */
static calm_status read_sparse(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *list = calm_json_get(root, "moe_layers");
    const bool listed = calm_json_typeof(list) != CALM_JSON_NULL;
    int64_t step;
    if (listed)
        CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s: \"moe_layers\"", path));
    CALM_TRY(calm_json_need_int(ctx, path, root, "interleave_moe_layer_step", &(int64_t){1}, listed ? 0 : 1, 1 << 20,
                                &step));
    for (size_t i = 0; i < config->n_blocks; i++)
        config->moe.sparse[i] = !listed && (i + 1) % (size_t)step == 0;
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const int64_t block = calm_json_int(calm_json_at(list, i), -1);
        if (block < 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"moe_layers\"[%zu]: expected the number of a block", path, i);
        /* Numbers beyond the last block are ignored: a config may be shortened from a larger model's. */
        if ((size_t)block < config->n_blocks)
            config->moe.sparse[block] = true;
    }
    return CALM_OK;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* intermediate_size is the width of an expert; dense blocks have another key. */
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", false};
    bool norm;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_no_rope(ctx, path, root, true, config));
    CALM_TRY(calm_config_chunks(ctx, path, root, 8192, config));
    CALM_TRY(read_growth(ctx, path, root, config));
    CALM_TRY(calm_config_switch(ctx, path, root, "use_qk_norm", true, &norm));
    config->qk_norm = norm ? CALM_QK_NORM_BARE : CALM_QK_NORM_NONE;
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    config->moe.norm_top_k = false;
    config->moe.shared_inner = config->moe.inner;
    config->moe.score = CALM_ROUTER_SIGMOID;
    config->moe.by_logit = true;
    config->moe.weighs_input = true;
    return read_sparse(ctx, path, root, config);
}

static const calm_names names = {CALM_USUAL_ENDS,
    .role = {[CALM_ROLE_Q] = "self_attn.q_proj", [CALM_ROLE_K] = "self_attn.k_proj",
             [CALM_ROLE_V] = "self_attn.v_proj", [CALM_ROLE_O] = "self_attn.o_proj",
             [CALM_ROLE_GATE] = "feed_forward.gate_proj", [CALM_ROLE_UP] = "feed_forward.up_proj",
             [CALM_ROLE_DOWN] = "feed_forward.down_proj"},
    CALM_PRE_NORMS,
    .moe = {.router = "feed_forward.router", .experts = "feed_forward.experts",
            .shared = "feed_forward.shared_expert", .fused_gate_up = "feed_forward.experts.gate_up_proj",
            .fused_down = "feed_forward.experts.down_proj"}};

static const calm_size_keys sizes = {"hidden_size", "intermediate_size_mlp", "num_hidden_layers",
                                     "num_attention_heads", "max_position_embeddings", NULL, NULL, NULL};

const calm_arch calm_arch_llama4 = {
    .name = "llama4",
    .classes = "Llama4ForCausalLM",
    .model_types = "llama4_text",
    .stem = "Llama4Text",
    .names = &names,
    .qk_norm = CALM_QK_NORM_BARE,
    .late_qk_norm = true,
    .neighbours = true,
    .sizes = &sizes,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 131072,
    .default_rope_theta = 500000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias no_rope_layers no_rope_layer_interval layer_types attention_chunk_size use_qk_norm "
            "attn_temperature_tuning attn_scale floor_scale moe_layers interleave_moe_layer_step num_local_experts "
            "num_experts_per_tok",
    .read_config = read_config,
};
