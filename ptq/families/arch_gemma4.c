/* Gemma 4 (text): Gemma 3's blocks and windows with plain RMSNorms.  Heads of full blocks are wider (global_head_dim),
 * and their rotary embedding rotates a part of the pairs; scores are not scaled; values are normalised, and in full
 * blocks of some models computed from the keys' linear (attention_k_eq_v).  The last num_kv_shared_layers blocks read
 * the keys and values of the last block of their type before them.  Each block ends with a per-layer input and a factor
 * (tail.h).  With enable_moe_block experts run next to the MLP, and their sum and the MLP's output each have a norm.
 *
 * Reference: transformers' modeling_gemma4.py. */
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/families/gemma.h"

/* The open config.json. */
typedef struct source {
    const char *path;
    const calm_json *root;
} source;

/* ---- keys and values that blocks share ---- */

/* Reads which blocks share keys and values; these may have MLPs of twice the width. */
static calm_status read_sharing(calm_ctx *ctx, const source *from, calm_config *config)
{
    bool wide;
    CALM_TRY(calm_json_need_bool(ctx, from->path, from->root, "use_double_wide_mlp", &(bool){false}, &wide));
    CALM_TRY(calm_gemma_read_sharing(ctx, from->path, from->root, 0, config));
    for (size_t i = 0; wide && i < config->n_blocks; i++)
        config->shapes[i].inner *= config->shapes[i].kv == CALM_KV_SHARED ? 2 : 1;
    return CALM_OK;
}

/* ---- the rest ---- */

/* Reads the per-layer inputs. */
static calm_status read_inputs(calm_ctx *ctx, const source *from, calm_config *config)
{
    CALM_TRY(calm_gemma_read_inputs(ctx, from->path, from->root, (int64_t)config->vocab, config));
    /* The class has no row for an id beyond its table, unlike Gemma 3n, which takes the first row. */
    if (config->per_layer && config->per_layer_rows < config->vocab)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"vocab_size_per_layer_input\": found %zu, expected at least "
                         "%zu (vocab_size)", from->path, config->per_layer_rows, config->vocab);
    return CALM_OK;
}

/* Reads the experts next to the MLP, which is the shared expert. */
static calm_status read_experts(calm_ctx *ctx, const source *from, calm_config *config)
{
    static const calm_moe_keys keys = {"num_experts", "top_k_experts", "moe_intermediate_size", true};
    bool experts;
    CALM_TRY(calm_json_need_bool(ctx, from->path, from->root, "enable_moe_block", &(bool){false}, &experts));
    if (!experts)
        return CALM_OK;
    /* The MLP counts as the shared expert, with one width for all blocks. */
    for (size_t i = 0; i < config->n_blocks; i++)
        if (config->shapes[i].inner != config->inner)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"use_double_wide_mlp\": expected false with "
                             "\"enable_moe_block\" true", from->path);
    config->moe.shared_inner = config->inner;
    return calm_config_mixture(ctx, from->path, from->root, &keys, config);
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const source from = {path, root};
    const calm_json *both = calm_json_get(root, "use_bidirectional_attention");
    /* "vision" concerns only images: text stays causal. */
    if (calm_json_typeof(both) != CALM_JSON_NULL && strcmp(calm_json_string(both, ""), "vision") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"use_bidirectional_attention\": expected null or \"vision\", "
                         "found \"%s\"", path, calm_json_string(both, "(no text)"));
    CALM_TRY(calm_gemma_read_cap(ctx, path, root, "final_logit_softcapping", 0, &config->logit_cap));
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    config->embedding_scale = calm_gemma_embedding_scale(config);
    /* Norms of q and k replace the scale of scores. */
    config->attention_scale = 1;
    config->value_norm = true;
    CALM_TRY(calm_config_windows(ctx, path, root, 512, calm_slides_between, 6, config));
    calm_config_full_last(ctx, path, config);    /* as transformers and vLLM do */
    CALM_TRY(calm_config_block_heads(ctx, path, root, 512, config));
    CALM_TRY(calm_config_block_ropes(ctx, path, root, 0.25, config));
    CALM_TRY(read_inputs(ctx, &from, config));
    CALM_TRY(read_sharing(ctx, &from, config));
    return read_experts(ctx, &from, config);
}

/* Names of the tail of a block (tail.h). */
static const calm_tail_names tail = {
    .scale = "layer_scalar",
    CALM_GEMMA_INPUTS,
};

static const calm_names names = {
    CALM_GEMMA_NAMES,
    .plain = {[CALM_PLAIN_Q_NORM] = "self_attn.q_norm",
              [CALM_PLAIN_K_NORM] = "self_attn.k_norm",
              [CALM_PLAIN_ROUTER_SCALE] = "router.scale",
              [CALM_PLAIN_EXPERT_SCALE] = "router.per_expert_scale",
              [CALM_PLAIN_EXPERTS_NORM] = "pre_feedforward_layernorm_2",
              [CALM_PLAIN_EXPERTS_OUT_NORM] = "post_feedforward_layernorm_2",
              [CALM_PLAIN_SHARED_OUT_NORM] = "post_feedforward_layernorm_1"},
    .tail = &tail,
    .moe = {.router = "router.proj", .experts = "experts", .shared = "mlp", .fused_gate_up = "experts.gate_up_proj",
            .fused_down = "experts.down_proj"},
};

const calm_arch calm_arch_gemma4 = {
    CALM_GEMMA_VARIED,
    .name = "gemma4",
    .classes = "Gemma4ForCausalLM",
    .stem = "Gemma4Text",
    .model_types = "gemma4_text",
    .names = &names,
    .default_kv_heads = 4,
    .default_positions = 131072,
    .proportional_rope = true,
    .keys = "attention_bias final_logit_softcapping sliding_window layer_types per_layer_config global_head_dim "
            "num_global_key_value_heads attention_k_eq_v num_kv_shared_layers use_double_wide_mlp "
            "hidden_size_per_layer_input vocab_size_per_layer_input use_bidirectional_attention enable_moe_block "
            "num_experts top_k_experts moe_intermediate_size",
    .read_config = read_config,
};
