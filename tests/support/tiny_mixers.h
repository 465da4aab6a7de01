/* Rows of tiny_model.c for families whose blocks mix tokens in more than one way: even blocks have a gated delta
 * net, a short convolution or Mamba-2, odd ones attention; or blocks hold one sublayer each; of Gemma 4 the even
 * ones slide, of Llama 4 those are rotated.  Only tiny_model.c includes it, after the macros that its rows are made
 * of. */
#ifndef CALM_TESTS_TINY_MIXERS_H
#define CALM_TESTS_TINY_MIXERS_H

#define KEY_DIM 16    /* least width of a head of a delta net */
#define STATE   7     /* state size of Mamba-2                */
#define GROUPS  2
#define TAPS    4     /* taps of a convolution */

#define DELTA                                                                                                \
    {L "linear_attn.conv1d.weight", 'c', 't', EVEN}, {L "linear_attn.A_log", 'H', 0, EVEN},                  \
    {L "linear_attn.dt_bias", 'H', 0, EVEN}, {L "linear_attn.norm.weight", 'd', 0, EVEN},                    \
    {L "linear_attn.out_proj.weight", 'D', 'Q', EVEN}
#define PARTED_DELTA                                                                                         \
    DELTA, {L "linear_attn.in_proj_qkv.weight", 'c', 'D', EVEN},                                             \
    {L "linear_attn.in_proj_z.weight", 'Q', 'D', EVEN}, {L "linear_attn.in_proj_b.weight", 'H', 'D', EVEN},  \
    {L "linear_attn.in_proj_a.weight", 'H', 'D', EVEN}
#define FUSED_DELTA                                                                                          \
    DELTA, {L "linear_attn.in_proj_qkvz.weight", 'f', 'D', EVEN}, {L "linear_attn.in_proj_ba.weight", 'B', 'D', EVEN}
#define ODD_ATTENTION(q, norm, o)                                                                            \
    {L "self_attn.q_" norm ".weight", 'd', 0, ODD}, {L "self_attn.k_" norm ".weight", 'd', 0, ODD},          \
    {L "self_attn.q_proj.weight", q, 'D', ODD}, {L "self_attn.k_proj.weight", 'K', 'D', ODD},                \
    {L "self_attn.v_proj.weight", 'K', 'D', ODD}, {L "self_attn." o ".weight", 'D', 'Q', ODD}
#define QWEN_MOE                                                                                             \
    EXPERTS, GATED("mlp.shared_expert", 's', SPARSE), {L "mlp.shared_expert_gate.weight", '1', 'D', SPARSE}
#define LFM2                                                                                                 \
    EMBED, {L "operator_norm.weight", 'D', 0, ALWAYS}, {L "ffn_norm.weight", 'D', 0, ALWAYS},                \
    {L "conv.conv.weight", 'D', 't', EVEN}, {L "conv.in_proj.weight", '3', 'D', EVEN},                       \
    {L "conv.out_proj.weight", 'D', 'D', EVEN}, ODD_ATTENTION('Q', "layernorm", "out_proj")
#define LFM2_MLP(name, inner, when)                                                                          \
    {L name ".w1.weight", inner, 'D', when}, {L name ".w3.weight", inner, 'D', when},                        \
    {L name ".w2.weight", 'D', inner, when}
#define LFM2_HEAD {"model.embedding_norm.weight", 'D', 0, ALWAYS}, {"lm_head.weight", 'V', 'D', UNTIED}

static const tensor_row qwen3_5[] = {EMBED, NORMS, PARTED_DELTA, ODD_ATTENTION('2', "norm", "o_proj"), MLP(ALWAYS),
                                     HEAD, {0}};
static const tensor_row qwen3_5_moe[] = {EMBED, NORMS, PARTED_DELTA, ODD_ATTENTION('2', "norm", "o_proj"), QWEN_MOE,
                                         HEAD, {0}};
static const tensor_row qwen3_next[] = {EMBED, NORMS, FUSED_DELTA, ODD_ATTENTION('2', "norm", "o_proj"), MLP(DENSE),
                                        QWEN_MOE, HEAD, {0}};
static const tensor_row lfm2[] = {LFM2, LFM2_MLP("feed_forward", 'M', ALWAYS), LFM2_HEAD, {0}};
static const tensor_row lfm2_moe[] = {LFM2, LFM2_MLP("feed_forward", 'M', DENSE),
                                      {L "feed_forward.gate.weight", 'E', 'D', SPARSE},
                                      LFM2_MLP("feed_forward.experts.@", 'e', SPARSE),
                                      {L "feed_forward.expert_bias", 'E', 0, SPARSE}, LFM2_HEAD, {0}};

#define PER_LAYER 8    /* width of the per-layer input of Gemma 3n and 4 */
#define STREAMS   3    /* streams of Gemma 3n */

#define INPUTS                                                                                               \
    {"model.embed_tokens_per_layer.weight", 'k', 'n', ALWAYS},                                               \
    {"model.per_layer_model_projection.weight", 'n', 'D', ALWAYS},                                           \
    {"model.per_layer_projection_norm.weight", 'p', 0, ALWAYS},                                              \
    {L "per_layer_input_gate.weight", 'p', 'D', ALWAYS}, {L "per_layer_projection.weight", 'D', 'p', ALWAYS}, \
    {L "post_per_layer_input_norm.weight", 'D', 0, ALWAYS}

static const tensor_row llama4[] = {EMBED, NORMS, QKV(BIASED), O, GATED("feed_forward", 'M', DENSE),
                                    {L "feed_forward.router.weight", 'E', 'D', SPARSE},
                                    GATED("feed_forward.experts.@", 'e', SPARSE),
                                    GATED("feed_forward.shared_expert", 'e', SPARSE), HEAD, {0}};

static const tensor_row gemma4[] = {
    EMBED, INPUTS, FOUR_NORMS,
    {L "self_attn.q_norm.weight", 'd', 0, EVEN}, {L "self_attn.k_norm.weight", 'd', 0, EVEN_OWN},
    {L "self_attn.q_proj.weight", 'Q', 'D', EVEN}, {L "self_attn.k_proj.weight", 'K', 'D', EVEN_OWN},
    {L "self_attn.v_proj.weight", 'K', 'D', EVEN_OWN}, {L "self_attn.o_proj.weight", 'D', 'Q', EVEN},
    {L "self_attn.q_norm.weight", 'z', 0, ODD}, {L "self_attn.k_norm.weight", 'z', 0, ODD_OWN},
    {L "self_attn.q_proj.weight", 'X', 'D', ODD}, {L "self_attn.k_proj.weight", 'y', 'D', ODD_OWN},
    {L "self_attn.v_proj.weight", 'y', 'D', ODD_OWN}, {L "self_attn.o_proj.weight", 'D', 'X', ODD},
    MLP(ALWAYS), {L "layer_scalar", '1', 0, ALWAYS}, HEAD, {0}};

/* Experts next to the MLP, no inputs of tokens, and values of full blocks made of the keys. */
static const tensor_row gemma4_moe[] = {
    EMBED, FOUR_NORMS,
    {L "self_attn.q_norm.weight", 'd', 0, EVEN}, {L "self_attn.k_norm.weight", 'd', 0, EVEN},
    {L "self_attn.q_proj.weight", 'Q', 'D', EVEN}, {L "self_attn.k_proj.weight", 'K', 'D', EVEN},
    {L "self_attn.v_proj.weight", 'K', 'D', EVEN}, {L "self_attn.o_proj.weight", 'D', 'Q', EVEN},
    {L "self_attn.q_norm.weight", 'z', 0, ODD}, {L "self_attn.k_norm.weight", 'z', 0, ODD},
    {L "self_attn.q_proj.weight", 'X', 'D', ODD}, {L "self_attn.k_proj.weight", 'y', 'D', ODD},
    {L "self_attn.o_proj.weight", 'D', 'X', ODD}, MLP(ALWAYS), {L "layer_scalar", '1', 0, ALWAYS},
    {L "router.proj.weight", 'E', 'D', ALWAYS}, {L "router.scale", 'D', 0, ALWAYS},
    {L "router.per_expert_scale", 'E', 0, ALWAYS}, GATED("experts.@", 'e', ALWAYS),
    {L "pre_feedforward_layernorm_2.weight", 'D', 0, ALWAYS}, {L "post_feedforward_layernorm_2.weight", 'D', 0, ALWAYS},
    {L "post_feedforward_layernorm_1.weight", 'D', 0, ALWAYS}, HEAD, {0}};

/* Three streams of Gemma 3n. */
static const tensor_row gemma3n[] = {
    EMBED, INPUTS, FOUR_NORMS, {L "self_attn.q_norm.weight", 'd', 0, ALWAYS},
    {L "self_attn.q_proj.weight", 'Q', 'D', ALWAYS}, {L "self_attn.o_proj.weight", 'D', 'Q', ALWAYS},
    {L "self_attn.k_norm.weight", 'd', 0, EVEN_OWN}, {L "self_attn.k_proj.weight", 'K', 'D', EVEN_OWN},
    {L "self_attn.v_proj.weight", 'K', 'D', EVEN_OWN}, {L "self_attn.k_norm.weight", 'd', 0, ODD_OWN},
    {L "self_attn.k_proj.weight", 'K', 'D', ODD_OWN}, {L "self_attn.v_proj.weight", 'K', 'D', ODD_OWN}, MLP(ALWAYS),
    {L "altup.router_norm.weight", 'D', 0, ALWAYS}, {L "altup.modality_router.weight", 'S', 'D', ALWAYS},
    {L "altup.prediction_coefs.weight", '9', 'S', ALWAYS}, {L "altup.correction_coefs.weight", 'S', 'S', ALWAYS},
    {L "altup.correct_output_scale", 'D', 0, ALWAYS}, {L "laurel.linear_left.weight", 'L', 'D', ALWAYS},
    {L "laurel.linear_right.weight", 'D', 'L', ALWAYS}, {L "laurel.post_laurel_norm.weight", 'D', 0, ALWAYS},
    {"model.altup_projections.0.weight", 'D', 'D', ALWAYS}, {"model.altup_projections.1.weight", 'D', 'D', ALWAYS},
    {"model.altup_projections.2.weight", 'D', 'D', USUAL},
    {"model.altup_unembed_projections.0.weight", 'D', 'D', ALWAYS},
    {"model.altup_unembed_projections.1.weight", 'D', 'D', ALWAYS},
    {"model.altup_unembed_projections.2.weight", 'D', 'D', USUAL}, HEAD, {0}};

/* Does a Gemma 3n have the numbers and widths of published models, which llama.cpp's code fixes, and rows for all ids
 * but one?  The model's `extra` members say so. */
static bool has_usual_streams(const tiny_model *m)
{
    return m->extra && strstr(m->extra, "altup_coef_clip");
}

/* Returns sizes that only Gemma 3n and 4 have. */
static size_t gemma4_size(const tiny_model *m, char size)
{
    switch (size) {
    case 'X': return 2 * m->n_heads * m->head_dim;
    case 'y': return 2 * m->n_kv * m->head_dim;
    case 'z': return 2 * m->head_dim;
    case 'p': return has_usual_streams(m) ? 256 : PER_LAYER;
    case 'n': return m->n_blocks * gemma4_size(m, 'p');
    case 'k': return m->vocab - has_usual_streams(m);
    case 'L': return has_usual_streams(m) ? 64 : PER_LAYER;
    case 'S': return has_usual_streams(m) ? 4 : STREAMS;
    case '9': return gemma4_size(m, 'S') * gemma4_size(m, 'S');
    default: return 0;
    }
}

/* Returns the number of blocks of Gemma 3n and 4 that share the keys and values of an earlier block. */
static size_t n_shared(const tiny_model *model)
{
    return model->n_blocks < 4 ? 0 : 2;
}

/* Returns the config key of the number of experts per token. */
static const char *top_k_key(const char *family)
{
    return strcmp(family, "ernie4_5_moe") == 0 ? "moe_k"
           : strcmp(family, "gemma4_moe") == 0 ? "top_k_experts" : "num_experts_per_tok";
}

/* Returns config members that say which blocks slide; heads of the others are twice as wide. */
static const char *gemma4_text(const tiny_model *model)
{
    const char *text = ", \"layer_types\": [";
    for (size_t i = 0; i < model->n_blocks; i++)
        text = test_format("%s%s\"%s\"", text, i ? ", " : "", i % 2 ? "full_attention" : "sliding_attention");
    return test_format("%s], \"global_head_dim\": %zu, \"num_kv_shared_layers\": %zu, "
                       "\"vocab_size_per_layer_input\": %zu", text, 2 * model->head_dim, n_shared(model), model->vocab);
}

/* Returns config members that say which blocks slide and the activation sparsity of each. */
static const char *gemma3n_text(const tiny_model *model)
{
    const char *types = "", *shares = "";
    for (size_t i = 0; i < model->n_blocks; i++) {
        types = test_format("%s%s\"%s\"", types, i ? ", " : "", i % 2 ? "full_attention" : "sliding_attention");
        shares = test_format("%s%s%s", shares, i ? ", " : "", has_usual_streams(model) ? i < 10 ? "0.95" : "0.0"
                                                              : i % 2                  ? "0.0" : "0.75");
    }
    return test_format(", \"layer_types\": [%s], \"activation_sparsity_pattern\": [%s], "
                       "\"num_kv_shared_layers\": %zu, \"vocab_size_per_layer_input\": %zu, "
                       "\"hidden_size_per_layer_input\": %zu, \"altup_num_inputs\": %zu, \"altup_active_idx\": %d, "
                       "\"laurel_rank\": %zu", types, shares, n_shared(model), gemma4_size(model, 'k'),
                       gemma4_size(model, 'p'), gemma4_size(model, 'S'), !has_usual_streams(model),
                       gemma4_size(model, 'L'));
}

#define MAMBA(m, when)                                                                                       \
    {m "conv1d.weight", 'x', 't', when}, {m "conv1d.bias", 'x', 0, when}, {m "A_log", 'H', 0, when},         \
    {m "dt_bias", 'H', 0, when}, {m "D", 'H', 0, when}, {m "norm.weight", 'N', 0, when},                     \
    {m "in_proj.weight", 'i', 'D', when}, {m "out_proj.weight", 'D', 'N', when}
#define GRANITE_HYBRID                                                                                       \
    EMBED, NORMS, MAMBA(L "mamba.", EVEN), {L "self_attn.q_proj.weight", 'Q', 'D', ODD},                     \
    {L "self_attn.k_proj.weight", 'K', 'D', ODD}, {L "self_attn.v_proj.weight", 'K', 'D', ODD},              \
    {L "self_attn.o_proj.weight", 'D', 'Q', ODD}, {L "shared_mlp.input_linear.weight", 'u', 'D', ALWAYS},    \
    {L "shared_mlp.output_linear.weight", 'D', 's', ALWAYS}
static const tensor_row granite_hybrid[] = {GRANITE_HYBRID, HEAD, {0}};
#define GRANITE_EXPERTS                                                                                      \
    {L "block_sparse_moe.router.layer.weight", 'E', 'D', ALWAYS},                                            \
    GATED("block_sparse_moe.experts.@", 'M', ALWAYS)
static const tensor_row granitemoehybrid[] = {GRANITE_HYBRID, GRANITE_EXPERTS, HEAD, {0}};
static const tensor_row granitemoe[] = {EMBED, NORMS, ATTENTION, GRANITE_EXPERTS, HEAD, {0}};

#define N "backbone.layers.#."
#define NEMOTRON(...)                                                                                        \
    {"backbone.embeddings.weight", 'V', 'D', ALWAYS}, {N "norm.weight", 'D', 0, ALWAYS}, __VA_ARGS__,        \
    {"backbone.norm_f.weight", 'D', 0, ALWAYS}, {"lm_head.weight", 'V', 'D', UNTIED}, {0}
#define PLAIN_MLP(name, inner, when)                                                                         \
    {N name ".up_proj.weight", inner, 'D', when}, {N name ".down_proj.weight", 'D', inner, when}
/* Blocks of one sublayer: Mamba-2 and a mixture; attention and an MLP. */
static const tensor_row nemotron_h[] = {NEMOTRON(MAMBA(N "mixer.", EVEN), {N "mixer.gate.weight", 'E', 'D', ODD},
                                                 {N "mixer.gate.e_score_correction_bias", 'E', 0, ODD},
                                                 PLAIN_MLP("mixer.experts.@", 'e', ODD),
                                                 PLAIN_MLP("mixer.shared_experts", 's', ODD))};
/* Experts of another width than the model, between two linears. */
static const tensor_row nemotron_latent[] = {NEMOTRON(MAMBA(N "mixer.", EVEN), {N "mixer.gate.weight", 'E', 'D', ODD},
                                                      {N "mixer.gate.e_score_correction_bias", 'E', 0, ODD},
                                                      {N "mixer.fc1_latent_proj.weight", 'l', 'D', ODD},
                                                      {N "mixer.fc2_latent_proj.weight", 'D', 'l', ODD},
                                                      {N "mixer.experts.@.up_proj.weight", 'e', 'l', ODD},
                                                      {N "mixer.experts.@.down_proj.weight", 'l', 'e', ODD},
                                                      PLAIN_MLP("mixer.shared_experts", 's', ODD))};
static const tensor_row nemotron_dense[] = {NEMOTRON({N "mixer.q_proj.weight", 'Q', 'D', EVEN},
                                                     {N "mixer.k_proj.weight", 'K', 'D', EVEN},
                                                     {N "mixer.v_proj.weight", 'K', 'D', EVEN},
                                                     {N "mixer.o_proj.weight", 'D', 'Q', EVEN},
                                                     PLAIN_MLP("mixer", 'M', ODD))};

/* Returns the key width of a delta net's head: that of its values, at least KEY_DIM. */
static size_t key_dim(const tiny_model *m)
{
    return m->head_dim < KEY_DIM ? KEY_DIM : m->head_dim;
}

/* Settings of the configs. */
#define SINGLES "\"layer_norm_epsilon\": 1e-6, \"mlp_hidden_act\": \"relu2\""
#define MAMBAS(heads, groups, state)                                                                         \
    "\"" heads "\": 4, \"" groups "\": 2, \"" state "\": 7"
#define DELTAS(more)                                                                                         \
    ROTARY ", \"linear_num_key_heads\": 2, \"linear_conv_kernel_dim\": 4" more
#define GEMMA3N "\"hidden_activation\": \"gelu_pytorch_tanh\", \"rms_norm_eps\": 1e-6, \"sliding_window\": 12"
#define GEMMA4  GEMMA3N ", \"hidden_size_per_layer_input\": 8"
#define CONVS(more)                                                                                          \
    "\"rope_theta\": 10000.0, \"norm_eps\": 1e-6, \"conv_L_cache\": 4" more

#define GEMMA_FAMILIES                                                                                       \
    {"gemma3n", "Gemma3nForCausalLM", "gemma3n_text", GEMMA3N, gemma3n, NULL, false, NULL},                  \
    {"gemma4", "Gemma4ForCausalLM", "gemma4_text", GEMMA4, gemma4, NULL, false, NULL},                       \
    {"gemma4_moe", "Gemma4ForCausalLM", "gemma4_text", GEMMA3N, gemma4_moe, NULL, false, "num_experts"}
#define MAMBA_FAMILIES                                                                                       \
    {"granite_hybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",                                    \
     ROTARY GRANITE ", \"num_local_experts\": 0, " MAMBAS("mamba_n_heads", "mamba_n_groups", "mamba_d_state"), \
     granite_hybrid, NULL, false, NULL},                                                                     \
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",                                  \
     ROTARY GRANITE ", " MAMBAS("mamba_n_heads", "mamba_n_groups", "mamba_d_state"), granitemoehybrid, NULL, \
     false, "num_local_experts"},                                                                            \
    {"nemotron_h", "NemotronHForCausalLM", "nemotron_h",                                                     \
     SINGLES ", " MAMBAS("mamba_num_heads", "n_groups", "ssm_state_size")                                    \
     ", \"n_shared_experts\": 1, \"routed_scaling_factor\": 1.5", nemotron_h, NULL, false, "n_routed_experts"}, \
    {"nemotron_latent", "NemotronHForCausalLM", "nemotron_h",                                                \
     SINGLES ", " MAMBAS("mamba_num_heads", "n_groups", "ssm_state_size")                                    \
     ", \"n_shared_experts\": 1", nemotron_latent, NULL, false, "n_routed_experts"},                          \
    {"nemotron_dense", "NemotronHForCausalLM", "nemotron_h", SINGLES, nemotron_dense, NULL, false, NULL}

/* The width of Llama 4's experts, and which blocks have them; small numbers of its attention, unless the model's own
 * members have the size of chunks. */
static const char *llama4_text(const tiny_model *model)
{
    const bool usual = model->extra && strstr(model->extra, "attention_chunk_size");
    const char *text = test_format("%s, \"intermediate_size\": %zu, \"moe_layers\": [",
                                   usual ? "" : ", \"no_rope_layer_interval\": 2, \"attn_scale\": 0.5, "
                                                "\"floor_scale\": 4, \"attention_chunk_size\": 5",
                                   model->expert_inner);
    for (size_t i = model->n_dense; i < model->n_blocks; i++)
        text = test_format("%s%zu%s", text, i, i + 1 < model->n_blocks ? ", " : "");
    return test_format("%s]", text);
}

/* Sizes of Nemotron-H that follow from the model's. */
static const char *nemotron_text(const tiny_model *model)
{
    const char *latent = strcmp(model->family, "nemotron_latent") == 0
                             ? test_format(", \"moe_latent_size\": %zu", model->hidden / 2) : "";
    return test_format(", \"moe_intermediate_size\": %zu, \"moe_shared_expert_intermediate_size\": %zu, "
                       "\"mamba_head_dim\": %zu%s", model->expert_inner, model->shared_inner, model->hidden / 2,
                       latent);
}

/* ", "KEY": ["even", "odd", ..]" for all blocks. */
static const char *blocks_text(const tiny_model *model, const char *key, const char *even, const char *odd)
{
    const char *text = test_format(", \"%s\": [", key);
    for (size_t i = 0; i < model->n_blocks; i++)
        text = test_format("%s%s\"%s\"", text, i ? ", " : "", i % 2 ? odd : even);
    return test_format("%s]", text);
}

/* Which blocks of a family with these settings have another mixer than attention, and its sizes that follow from the
 * model's; "" where none has. */
static const char *mixers_text(const tiny_model *model, const char *family, const char *config)
{
    if (strcmp(family, "nemotron_h") == 0 || strcmp(family, "nemotron_latent") == 0)
        return blocks_text(model, "layers_block_type", "linear_attention", "moe");
    if (strcmp(family, "nemotron_dense") == 0)
        return blocks_text(model, "layers_block_type", "full_attention", "mlp");
    if (strcmp(family, "gemma4") == 0)
        return gemma4_text(model);
    if (strcmp(family, "gemma4_moe") == 0)
        return test_format("%s, \"attention_k_eq_v\": true, \"num_global_key_value_heads\": %zu, "
                           "\"hidden_size_per_layer_input\": 0, \"enable_moe_block\": true",
                           gemma4_text(model), model->n_kv);
    if (strcmp(family, "gemma3n") == 0)
        return gemma3n_text(model);
    if (strstr(config, "conv_L_cache"))
        return blocks_text(model, "layer_types", "conv", "full_attention");
    const char *text = blocks_text(model, "layer_types", "linear_attention", "full_attention");
    if (strstr(config, "mamba_n_heads"))
        return test_format("%s, \"shared_intermediate_size\": %zu", text, model->shared_inner);
    return !strstr(config, "linear_num_key_heads")
               ? "" : test_format("%s, \"linear_num_value_heads\": %zu, \"linear_value_head_dim\": %zu, "
                                  "\"linear_key_head_dim\": %zu", text, model->n_heads, model->head_dim,
                                  key_dim(model));
}

#endif
