/* Rows of tiny_model.c for families whose blocks mix tokens in more than one way: even blocks have a gated delta net or
 * a short convolution, odd ones attention; of Gemma 4 the even ones slide.  Only tiny_model.c includes it, after the
 * macros that its rows are made of. */
#ifndef CALM_TESTS_TINY_MIXERS_H
#define CALM_TESTS_TINY_MIXERS_H

#define KEY_DIM 16    /* least of a head of a delta net */
#define TAPS    4     /* of a convolution               */

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

#define PER_LAYER 8    /* width of an input that a block of Gemma 4 has of each token's id */

static const tensor_row gemma4[] = {
    EMBED, {"model.embed_tokens_per_layer.weight", 'V', 'n', ALWAYS},
    {"model.per_layer_model_projection.weight", 'n', 'D', ALWAYS},
    {"model.per_layer_projection_norm.weight", 'p', 0, ALWAYS}, FOUR_NORMS,
    {L "self_attn.q_norm.weight", 'd', 0, EVEN}, {L "self_attn.k_norm.weight", 'd', 0, EVEN_OWN},
    {L "self_attn.q_proj.weight", 'Q', 'D', EVEN}, {L "self_attn.k_proj.weight", 'K', 'D', EVEN_OWN},
    {L "self_attn.v_proj.weight", 'K', 'D', EVEN_OWN}, {L "self_attn.o_proj.weight", 'D', 'Q', EVEN},
    {L "self_attn.q_norm.weight", 'z', 0, ODD}, {L "self_attn.k_norm.weight", 'z', 0, ODD_OWN},
    {L "self_attn.q_proj.weight", 'x', 'D', ODD}, {L "self_attn.k_proj.weight", 'y', 'D', ODD_OWN},
    {L "self_attn.v_proj.weight", 'y', 'D', ODD_OWN}, {L "self_attn.o_proj.weight", 'D', 'x', ODD},
    MLP(ALWAYS), {L "layer_scalar", '1', 0, ALWAYS}, {L "per_layer_input_gate.weight", 'p', 'D', ALWAYS},
    {L "per_layer_projection.weight", 'D', 'p', ALWAYS}, {L "post_per_layer_input_norm.weight", 'D', 0, ALWAYS}, HEAD,
    {0}};

/* Sizes that it alone has. */
static size_t gemma4_size(const tiny_model *m, char size)
{
    switch (size) {
    case 'x': return 2 * m->n_heads * m->head_dim;
    case 'y': return 2 * m->n_kv * m->head_dim;
    case 'z': return 2 * m->head_dim;
    case 'p': return PER_LAYER;
    case 'n': return m->n_blocks * PER_LAYER;
    default: return 0;
    }
}

/* Blocks of Gemma 4 that share the keys and values of two before them. */
static size_t n_shared(const tiny_model *model)
{
    return model->n_blocks < 4 ? 0 : 2;
}

/* Which blocks slide; of the others the heads are twice as wide. */
static const char *gemma4_text(const tiny_model *model)
{
    const char *text = ", \"layer_types\": [";
    for (size_t i = 0; i < model->n_blocks; i++)
        text = test_format("%s%s\"%s\"", text, i ? ", " : "", i % 2 ? "full_attention" : "sliding_attention");
    return test_format("%s], \"global_head_dim\": %zu, \"num_kv_shared_layers\": %zu", text, 2 * model->head_dim,
                       n_shared(model));
}

/* Settings of their configs. */
#define DELTAS(more)                                                                                         \
    ROTARY ", \"linear_num_key_heads\": 2, \"linear_conv_kernel_dim\": 4" more
#define GEMMA4                                                                                               \
    "\"hidden_activation\": \"gelu_pytorch_tanh\", \"rms_norm_eps\": 1e-6, \"sliding_window\": 12, "            \
    "\"hidden_size_per_layer_input\": 8"
#define CONVS(more)                                                                                          \
    "\"rope_theta\": 10000.0, \"norm_eps\": 1e-6, \"conv_L_cache\": 4" more

#endif
