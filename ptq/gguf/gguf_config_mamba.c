/* Makes config.json of Granite 4 and Nemotron-H from a GGUF file: Mamba-2, attention, and MLPs or experts.
 *
 * Source: llama.cpp's src/models/granite-hybrid.cpp and nemotron-h.cpp. */
#include "ptq/gguf/gguf_config_impl.h"

typedef calm_gguf_config_builder builder;

/* Returns the word for a block's sublayer: a block with key heads attends, one with an inner width has an MLP or
 * experts, any other one is Mamba-2. */
static const char *word_of(const builder *b, const calm_gguf_key *kv, const calm_gguf_key *inner, int64_t block)
{
    if (calm_gguf_of_block(kv, block) > 0)
        return "full_attention";
    if (b->list->as->single && calm_gguf_of_block(inner, block) > 0)
        return b->list->as->experts ? "moe" : "mlp";
    return "linear_attention";
}

static void add_blocks(builder *b, int64_t n_blocks)
{
    char kv_name[128], inner_name[128];
    const calm_gguf_key *kv = calm_gguf_find_of(b, "attention.head_count_kv", kv_name);
    const calm_gguf_key *inner = calm_gguf_find_of(b, "feed_forward_length", inner_name);
    calm_json *words = calm_json_new_array();
    /* A single number is for all blocks; a list must have an entry for each. */
    if (kv && kv->array && kv->n < (size_t)n_blocks)
        calm_gguf_complain(b, kv_name, "expected at least block_count entries");
    if (inner && inner->array && inner->n < (size_t)n_blocks)
        calm_gguf_complain(b, inner_name, "expected at least block_count entries");
    for (int64_t i = 0; i < n_blocks && i < 4096; i++)
        calm_json_add_string(words, word_of(b, kv, inner, i));
    calm_json_set(b->config, b->list->as->single ? "layers_block_type" : "layer_types", words);
}

/* Returns the width of a head: the width of all heads divided by their number. */
static int64_t take_head_dim(builder *b, int64_t heads)
{
    /* Files have the width of all heads. */
    const int64_t inner = calm_gguf_take_size(b, "ssm.inner_size", 0);
    char name[128];
    calm_gguf_find_of(b, "ssm.inner_size", name);
    /* The width must be at least 1. */
    if (inner % heads)
        calm_gguf_complain(b, name, "expected a multiple of ssm.time_step_rank");
    return inner / heads ? inner / heads : 1;
}

static void add_granite(builder *b, int64_t hidden)
{
    const int64_t heads = calm_gguf_take_size(b, "ssm.time_step_rank", 0), head_dim = take_head_dim(b, heads);
    const bool experts = b->list->as->experts;
    /* With experts the MLP is the shared expert. */
    CALM_EXTEND(b->config, CALM_KV("mamba_n_heads", heads), CALM_KV("mamba_d_head", head_dim),
                CALM_KV("mamba_n_groups", (int64_t)b->list->widths->groups),
                CALM_KV("mamba_d_state", calm_gguf_take_size(b, "ssm.state_size", 0)),
                CALM_KV("mamba_d_conv", calm_gguf_take_size(b, "ssm.conv_kernel", 0)),
                CALM_KV("mamba_expand", heads * head_dim / hidden),
                CALM_KV("shared_intermediate_size",
                        calm_gguf_take_size(b, experts ? "expert_shared_feed_forward_length" : "feed_forward_length",
                                            0)));
    /* Readers need the key. */
    if (!experts)
        calm_json_set_int(b->config, "num_local_experts", 0);
    /* llama.cpp rotates where the key is absent. */
    calm_json_set_string(b->config, "position_embedding_type",
                         calm_gguf_take_bool(b, "rope.scaling.finetuned", true) ? "rope" : "nope");
}

/* Adds Nemotron-H's settings; all models of the family have the smallest time step, though llama.cpp has none. */
static void add_nemotron(builder *b)
{
    const int64_t heads = calm_gguf_take_size(b, "ssm.time_step_rank", 0);
    char name[128];
    CALM_EXTEND(b->config, CALM_KV("mamba_num_heads", heads), CALM_KV("mamba_head_dim", take_head_dim(b, heads)),
                CALM_KV("n_groups", (int64_t)b->list->widths->groups),
                CALM_KV("ssm_state_size", calm_gguf_take_size(b, "ssm.state_size", 0)),
                CALM_KV("conv_kernel", calm_gguf_take_size(b, "ssm.conv_kernel", 0)));
    /* A constant in llama.cpp. */
    calm_json_set_string(b->config, "mlp_hidden_act", "relu2");
    /* Files of the other name have no blocks of experts. */
    if (!b->list->as->experts)
        return;
    CALM_EXTEND(b->config, CALM_KV("moe_intermediate_size", calm_gguf_take_size(b, "expert_feed_forward_length", 0)),
                CALM_KV("moe_shared_expert_intermediate_size",
                        calm_gguf_take_size(b, "expert_shared_feed_forward_length", 0)),
                CALM_KV("n_group", calm_gguf_take_size(b, "expert_group_count", 1)),
                CALM_KV("topk_group", calm_gguf_take_size(b, "expert_group_used_count", 1)));
    if (calm_gguf_find_of(b, "moe_latent_size", name))
        calm_json_set_int(b->config, "moe_latent_size", calm_gguf_take_size(b, "moe_latent_size", 0));
    calm_gguf_set_number(b->config, "routed_scaling_factor", calm_gguf_take_number(b, "expert_weights_scale", 1));
    calm_json_set_bool(b->config, "norm_topk_prob", calm_gguf_take_bool(b, "expert_weights_norm", false));
}

void calm_gguf_add_scans(builder *b, int64_t n_blocks, int64_t hidden)
{
    if (!b->list->as->scans)
        return;
    add_blocks(b, n_blocks);
    /* The two families spell the same sizes differently. */
    if (b->list->as->single)
        add_nemotron(b);
    else
        add_granite(b, hidden);
}
