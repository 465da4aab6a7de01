/* Tiny random checkpoints. Names and shapes are those of published checkpoints, independent of ptq/model, so that a
 * wrong name there is a missing tensor here. */
#include "tests/support/tiny_model.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"
#include "tests/support/normals.h"

#define MAX_TENSORS 1024
#define N_POSITIONS 512
#define N_TYPES     2

const tiny_model tiny_default = {.hidden = 32, .inner = 48, .n_blocks = 2, .vocab = 61, .n_heads = 4, .n_kv = 2,
                                 .head_dim = 8, .n_experts = 5, .top_k = 2, .expert_inner = 24, .shared_inner = 40,
                                 .tied = true, .dtype = CALM_BF16, .seed = 1};

/* ---- names and shapes ---- */

/* When a tensor exists: always, or only with an untied head, with the bias switch, in dense or sparse blocks, in all
 * blocks but the first, in even or odd ones, in even or odd ones that share no keys, or with USUAL streams. */
typedef enum condition { ALWAYS, UNTIED, BIASED, DENSE, SPARSE, LATER, EVEN, ODD, EVEN_OWN, ODD_OWN, USUAL } condition;

/* NAME has '#' for the number of a block and '@' for that of an expert.  Sizes: D hidden, M inner, V vocabulary, Q
 * and K rows of q and k, W rows of q, k and v, G gate and up, d head, P positions, T types, E experts, e and s widths
 * of experts and shared expert, 3 three times D, R buckets of distances, H heads, 2 twice Q.  Latent attention: q
 * rows of all queries, r and l ranks of queries and keys, a rows of kv_a, b rows of kv_b, o columns of o.  Delta nets
 * (as many value heads as Q, two key heads of key_dim()): c all channels of the convolution, f these with z, B twice
 * H.  Blocks with heads twice as wide: X, y, z for Q, K, d.  p width of per-layer inputs, n that of all blocks
 * together, k rows of their table; S streams, 9 their square, L the branch.  Mamba-2: N twice D, x channels of the
 * convolution, i rows of in_proj, u 2 s. */
typedef struct tensor_row {
    const char *name;
    char rows, cols;    /* cols 0: a vector */
    condition when;
} tensor_row;

#define L "model.layers.#."

#define EMBED {"model.embed_tokens.weight", 'V', 'D', ALWAYS}
#define HEAD  {"model.norm.weight", 'D', 0, ALWAYS}, {"lm_head.weight", 'V', 'D', UNTIED}
#define NORM(name)    {L name "_layernorm.weight", 'D', 0, ALWAYS}
#define NORMS         NORM("input"), NORM("post_attention")
#define FOUR_NORMS    NORMS, NORM("pre_feedforward"), NORM("post_feedforward")
#define QK_NORMS(q, k) {L "self_attn.q_norm.weight", q, 0, ALWAYS}, {L "self_attn.k_norm.weight", k, 0, ALWAYS}
#define LINEAR(name, out, in, when, bias) {L name ".weight", out, in, when}, {L name ".bias", out, 0, bias}
#define QKV(bias)                                                                                            \
    LINEAR("self_attn.q_proj", 'Q', 'D', ALWAYS, bias), LINEAR("self_attn.k_proj", 'K', 'D', ALWAYS, bias),  \
    LINEAR("self_attn.v_proj", 'K', 'D', ALWAYS, bias)
#define O         {L "self_attn.o_proj.weight", 'D', 'Q', ALWAYS}
#define ATTENTION QKV(BIASED), LINEAR("self_attn.o_proj", 'D', 'Q', ALWAYS, BIASED)
#define GATED(name, inner, when)                                                                             \
    {L name ".gate_proj.weight", inner, 'D', when}, {L name ".up_proj.weight", inner, 'D', when},            \
    {L name ".down_proj.weight", 'D', inner, when}
#define MLP(when) GATED("mlp", 'M', when)
#define EXPERTS   {L "mlp.gate.weight", 'E', 'D', SPARSE}, GATED("mlp.experts.@", 'e', SPARSE)

static const tensor_row llama[] = {EMBED, NORMS, ATTENTION, MLP(ALWAYS), {L "mlp.gate_proj.bias", 'M', 0, BIASED},
                                   {L "mlp.up_proj.bias", 'M', 0, BIASED}, {L "mlp.down_proj.bias", 'D', 0, BIASED},
                                   HEAD, {0}};
static const tensor_row seed_oss[] = {EMBED, NORMS, QKV(ALWAYS),
                                      LINEAR("self_attn.o_proj", 'D', 'Q', ALWAYS, BIASED), MLP(ALWAYS),
                                      {L "mlp.gate_proj.bias", 'M', 0, BIASED},
                                      {L "mlp.up_proj.bias", 'M', 0, BIASED}, {L "mlp.down_proj.bias", 'D', 0, BIASED},
                                      HEAD, {0}};
static const tensor_row starcoder2[] = {EMBED, NORMS, {L "input_layernorm.bias", 'D', 0, ALWAYS},
                                        {L "post_attention_layernorm.bias", 'D', 0, ALWAYS}, QKV(ALWAYS),
                                        LINEAR("self_attn.o_proj", 'D', 'Q', ALWAYS, ALWAYS),
                                        LINEAR("mlp.c_fc", 'M', 'D', ALWAYS, ALWAYS),
                                        LINEAR("mlp.c_proj", 'D', 'M', ALWAYS, ALWAYS), HEAD,
                                        {"model.norm.bias", 'D', 0, ALWAYS}, {0}};
static const tensor_row cohere2[] = {EMBED, NORM("input"), ATTENTION, MLP(ALWAYS), HEAD, {0}};
static const tensor_row hunyuan[] = {EMBED, NORMS, {L "self_attn.query_layernorm.weight", 'd', 0, ALWAYS},
                                     {L "self_attn.key_layernorm.weight", 'd', 0, ALWAYS}, ATTENTION, MLP(ALWAYS), HEAD,
                                     {0}};
static const tensor_row exaone4[] = {EMBED, NORM("post_attention"), NORM("post_feedforward"), QK_NORMS('d', 'd'),
                                     QKV(BIASED), O, MLP(ALWAYS), HEAD, {0}};
static const tensor_row glm4[] = {EMBED, NORMS, NORM("post_self_attn"), NORM("post_mlp"), QKV(ALWAYS), O,
                                  {L "mlp.gate_up_proj.weight", 'G', 'D', ALWAYS},
                                  {L "mlp.down_proj.weight", 'D', 'M', ALWAYS}, HEAD, {0}};
static const tensor_row mistral[] = {EMBED, NORMS, QKV(BIASED), O, MLP(ALWAYS), HEAD, {0}};
static const tensor_row qwen2[] = {EMBED, NORMS, QKV(ALWAYS), O, MLP(ALWAYS), HEAD, {0}};
static const tensor_row qwen3[] = {EMBED, NORMS, QK_NORMS('d', 'd'), ATTENTION, MLP(ALWAYS), HEAD, {0}};
static const tensor_row qwen2_moe[] = {EMBED, NORMS, QKV(ALWAYS), O, MLP(DENSE), EXPERTS,
                                       GATED("mlp.shared_expert", 's', SPARSE),
                                       {L "mlp.shared_expert_gate.weight", '1', 'D', SPARSE}, HEAD, {0}};
static const tensor_row qwen3_moe[] = {EMBED, NORMS, QK_NORMS('d', 'd'), ATTENTION, MLP(DENSE), EXPERTS, HEAD, {0}};
#define SPARSE_MOE                                                                                           \
    {L "block_sparse_moe.gate.weight", 'E', 'D', ALWAYS},                                                    \
    {L "block_sparse_moe.experts.@.w1.weight", 'M', 'D', ALWAYS},                                            \
    {L "block_sparse_moe.experts.@.w2.weight", 'D', 'M', ALWAYS},                                            \
    {L "block_sparse_moe.experts.@.w3.weight", 'M', 'D', ALWAYS}

static const tensor_row mixtral[] = {EMBED, NORMS, QKV(BIASED), O, SPARSE_MOE, HEAD, {0}};
static const tensor_row phimoe[] = {EMBED, NORMS, {L "input_layernorm.bias", 'D', 0, ALWAYS},
                                    {L "post_attention_layernorm.bias", 'D', 0, ALWAYS}, ATTENTION,
                                    SPARSE_MOE, HEAD, {"model.norm.bias", 'D', 0, ALWAYS},
                                    {"lm_head.bias", 'V', 0, ALWAYS}, {0}};
static const tensor_row ernie4_5_moe[] = {EMBED, NORMS, QKV(BIASED), O, MLP(DENSE), EXPERTS,
                                          GATED("mlp.shared_experts", 'e', SPARSE),
                                          {L "mlp.moe_statics.e_score_correction_bias", '1', 'E', SPARSE}, HEAD, {0}};
static const tensor_row minimax_m2[] = {EMBED, NORMS, QK_NORMS('Q', 'K'), QKV(BIASED), O, SPARSE_MOE,
                                        {L "block_sparse_moe.e_score_correction_bias", 'E', 0, ALWAYS}, HEAD, {0}};
static const tensor_row olmoe[] = {EMBED, NORMS, QK_NORMS('Q', 'K'), ATTENTION,
                                   {L "mlp.gate.weight", 'E', 'D', ALWAYS}, GATED("mlp.experts.@", 'M', ALWAYS), HEAD,
                                   {0}};
static const tensor_row glm4_moe[] = {EMBED, NORMS, QK_NORMS('d', 'd'), QKV(BIASED), O, MLP(DENSE), EXPERTS,
                                      GATED("mlp.shared_experts", 'e', SPARSE),
                                      {L "mlp.gate.e_score_correction_bias", 'E', 0, SPARSE}, HEAD, {0}};
#define LATENT                                                                                               \
    LINEAR("self_attn.kv_a_proj_with_mqa", 'a', 'D', ALWAYS, BIASED),                                        \
    {L "self_attn.kv_a_layernorm.weight", 'l', 0, ALWAYS}, \
    {L "self_attn.kv_b_proj.weight", 'b', 'l', ALWAYS}, LINEAR("self_attn.o_proj", 'D', 'o', ALWAYS, BIASED)
#define NARROW_Q                                                                                             \
    LINEAR("self_attn.q_a_proj", 'r', 'D', ALWAYS, BIASED), {L "self_attn.q_a_layernorm.weight", 'r', 0, ALWAYS}, \
    {L "self_attn.q_b_proj.weight", 'q', 'r', ALWAYS}
static const tensor_row deepseek_v2[] = {EMBED, NORMS, {L "self_attn.q_proj.weight", 'q', 'D', ALWAYS}, LATENT,
                                         MLP(DENSE), EXPERTS, GATED("mlp.shared_experts", 'e', SPARSE), HEAD, {0}};
static const tensor_row deepseek_v3[] = {EMBED, NORMS, NARROW_Q, LATENT, MLP(DENSE), EXPERTS,
                                         GATED("mlp.shared_experts", 'e', SPARSE),
                                         {L "mlp.gate.e_score_correction_bias", 'E', 0, SPARSE}, HEAD, {0}};
static const tensor_row gpt_oss[] = {EMBED, NORMS, QKV(ALWAYS), LINEAR("self_attn.o_proj", 'D', 'Q', ALWAYS, ALWAYS),
                                     {L "self_attn.sinks", 'H', 0, ALWAYS},
                                     LINEAR("mlp.router", 'E', 'D', ALWAYS, ALWAYS),
                                     LINEAR("mlp.experts.@.gate_proj", 'M', 'D', ALWAYS, ALWAYS),
                                     LINEAR("mlp.experts.@.up_proj", 'M', 'D', ALWAYS, ALWAYS),
                                     LINEAR("mlp.experts.@.down_proj", 'D', 'M', ALWAYS, ALWAYS), HEAD, {0}};
static const tensor_row gemma2[] = {EMBED, FOUR_NORMS, ATTENTION, MLP(ALWAYS), HEAD, {0}};
static const tensor_row gemma3[] = {EMBED, FOUR_NORMS, QK_NORMS('d', 'd'), ATTENTION, MLP(ALWAYS), HEAD, {0}};
static const tensor_row phi3[] = {EMBED, NORMS, {L "self_attn.qkv_proj.weight", 'W', 'D', ALWAYS}, O,
                                  {L "mlp.gate_up_proj.weight", 'G', 'D', ALWAYS},
                                  {L "mlp.down_proj.weight", 'D', 'M', ALWAYS}, HEAD, {0}};
static const tensor_row olmo2[] = {EMBED, NORM("post_attention"), NORM("post_feedforward"), QK_NORMS('Q', 'K'),
                                   ATTENTION, MLP(ALWAYS), HEAD, {0}};

#include "tests/support/tiny_mixers.h"
#include "tests/support/tiny_encoder_rows.h"

#undef L
#define L "layers.#."
static const tensor_row eurobert[] = {{"embed_tokens.weight", 'V', 'D', ALWAYS}, NORMS, ATTENTION, MLP(ALWAYS),
                                      {"norm.weight", 'D', 0, ALWAYS}, {0}};
static const tensor_row embeddinggemma[] = {{"embed_tokens.weight", 'V', 'D', ALWAYS}, FOUR_NORMS, QK_NORMS('d', 'd'),
                                            ATTENTION, MLP(ALWAYS), {"norm.weight", 'D', 0, ALWAYS}, {0}};

#define ROTARY "\"rope_theta\": 10000.0, \"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\""
#define GEMMA  "\"rope_theta\": 10000.0, \"rms_norm_eps\": 1e-6, \"query_pre_attn_scalar\": 12"
#define GRANITE                                                                                              \
    ", \"embedding_multiplier\": 3, \"attention_multiplier\": 0.3, \"residual_multiplier\": 0.6, "             \
    "\"logits_scaling\": 1.7"
#define GROUPED                                                                                              \
    ROTARY ", \"norm_topk_prob\": true, \"routed_scaling_factor\": 1.5, \"rope_scaling\": {\"type\": \"yarn\", " \
           "\"factor\": 8, \"mscale\": 1, \"mscale_all_dim\": 1, \"original_max_position_embeddings\": 64}"
#define BERTS  "\"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12, \"type_vocab_size\": 2"

static const struct family {
    const char *name, *class_name, *model_type, *config;
    const tensor_row *rows;
    const char *bias;    /* key or keys of the switch; NULL: none */
    bool slides;         /* the family has sliding windows        */
    const char *experts; /* key of their number; NULL: no mixture */
} families[] = {
    {"llama", "LlamaForCausalLM", "llama", ROTARY, llama, "\"attention_bias\": true, \"mlp_bias\": true", false, NULL},
    {"mistral", "MistralForCausalLM", "mistral", ROTARY, mistral, NULL, true, NULL},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", ROTARY, qwen2, NULL, true, NULL},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", ROTARY, qwen3, "\"attention_bias\": true", true, NULL},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen2_moe", ROTARY, qwen2_moe, NULL, true, "num_experts"},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe", ROTARY ", \"norm_topk_prob\": true", qwen3_moe,
     "\"attention_bias\": true", true, "num_experts"},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", GEMMA, gemma2, "\"attention_bias\": true", true, NULL},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", GEMMA ", \"sliding_window_pattern\": 2", gemma3,
     "\"attention_bias\": true", true, NULL},
    GEMMA_FAMILIES,
    {"phi3", "Phi3ForCausalLM", "phi3", ROTARY, phi3, NULL, true, NULL},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", ROTARY, olmo2, "\"attention_bias\": true", false, NULL},
    {"mixtral", "MixtralForCausalLM", "mixtral", ROTARY, mixtral, NULL, true, "num_local_experts"},
    {"olmoe", "OlmoeForCausalLM", "olmoe", ROTARY, olmoe, "\"attention_bias\": true", false, "num_experts"},
    {"glm4_moe", "Glm4MoeForCausalLM", "glm4_moe", ROTARY ", \"use_qk_norm\": true, \"routed_scaling_factor\": 1.5",
     glm4_moe, "\"attention_bias\": true", false, "n_routed_experts"},
    {"phimoe", "PhimoeForCausalLM", "phimoe", ROTARY ", \"lm_head_bias\": true, \"router_jitter_noise\": 10.0",
     phimoe, "\"attention_bias\": true", true, "num_local_experts"},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe", ROTARY, ernie4_5_moe, NULL, false, "moe_num_experts"},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "minimax_m2", ROTARY ", \"rotary_dim\": 4", minimax_m2, NULL, false,
     "num_local_experts"},
    {"gpt_oss", "GptOssForCausalLM", "gpt_oss", ROTARY ", \"rope_parameters\": {\"rope_type\": "
     "\"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 16, \"truncate\": false}", gpt_oss, NULL, true,
     "num_local_experts"},
    {"llama4", "Llama4ForCausalLM", "llama4_text", ROTARY, llama4, NULL, false, "num_local_experts"},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", ROTARY ", \"no_rope_layer_interval\": 2", mistral, NULL, false, NULL},
    {"seed_oss", "SeedOssForCausalLM", "seed_oss", ROTARY, seed_oss,
     "\"attention_out_bias\": true, \"mlp_bias\": true", false, NULL},
    {"olmo3", "Olmo3ForCausalLM", "olmo3", ROTARY, olmo2, "\"attention_bias\": true", true, NULL},
    {"exaone4", "Exaone4ForCausalLM", "exaone4", ROTARY, exaone4, NULL, true, NULL},
    {"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", ROTARY, llama, "\"use_bias\": true", false, NULL},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", ROTARY, hunyuan, "\"attention_bias\": true",
     false, NULL},
    {"glm4", "Glm4ForCausalLM", "glm4", ROTARY, glm4, NULL, false, NULL},
    {"granite", "GraniteForCausalLM", "granite", ROTARY GRANITE, llama,
     "\"attention_bias\": true, \"mlp_bias\": true", false, NULL},
    {"granitemoe", "GraniteMoeForCausalLM", "granitemoe", ROTARY GRANITE, granitemoe, "\"attention_bias\": true", false,
     "num_local_experts"},
    {"ministral3", "Ministral3ForCausalLM", "ministral3", ROTARY
     ", \"rope_parameters\": {\"llama_4_scaling_beta\": 0.5, \"original_max_position_embeddings\": 4}", mistral, NULL,
     true, NULL},
    {"cohere2", "Cohere2ForCausalLM", "cohere2", ROTARY ", \"logit_scale\": 0.3, \"sliding_window_pattern\": 2",
     cohere2, NULL, true, NULL},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2", "\"hidden_act\": \"gelu_pytorch_tanh\"", starcoder2, NULL,
     true, NULL},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "deepseek_v2", ROTARY
     ", \"routed_scaling_factor\": 1.5, \"norm_topk_prob\": false", deepseek_v2, "\"attention_bias\": true", false,
     "n_routed_experts"},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", GROUPED, deepseek_v3, "\"attention_bias\": true", false,
     "n_routed_experts"},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", "glm4_moe_lite", ROTARY ", \"routed_scaling_factor\": 1.5", deepseek_v3,
     "\"attention_bias\": true", false, "n_routed_experts"},
    {"qwen3_5", "Qwen3_5ForCausalLM", "qwen3_5_text", DELTAS(""), qwen3_5, NULL, false, NULL},
    {"qwen3_5_moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", DELTAS(""), qwen3_5_moe, NULL, false, "num_experts"},
    {"qwen3_next", "Qwen3NextForCausalLM", "qwen3_next", DELTAS(", \"partial_rotary_factor\": 0.5"), qwen3_next, NULL,
     false, "num_experts"},
    {"lfm2", "Lfm2ForCausalLM", "lfm2", CONVS(", \"block_auto_adjust_ff_dim\": false"), lfm2, NULL, false, NULL},
    {"lfm2_moe", "Lfm2MoeForCausalLM", "lfm2_moe", CONVS(""), lfm2_moe, NULL, false, "num_experts"},
    MAMBA_FAMILIES,
    {"roberta", "RobertaModel", "roberta", BERTS, roberta, NULL, false, NULL},
    {"distilbert", "DistilBertModel", "distilbert", "\"activation\": \"gelu\"", distilbert, NULL, false, NULL},
    {"mpnet", "MPNetModel", "mpnet", "\"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12", mpnet, NULL, false, NULL},
    {"modernbert", "ModernBertModel", "modernbert", "\"local_attention\": 12, \"norm_eps\": 1e-5, "
     "\"global_attn_every_n_layers\": 2", modernbert, NULL, false, NULL},
    {"nomic_bert", "NomicBertModel", "nomic_bert", "\"rope_theta\": 1000.0, \"layer_norm_eps\": 1e-12, "
     "\"hidden_act\": \"silu\", \"type_vocab_size\": 2", nomic_bert, NULL, false, NULL},
    {"gte", "GteModel", "gte", "\"rope_theta\": 10000.0, " BERTS, gte, NULL, false, NULL},
    {"eurobert", "EuroBertModel", "eurobert", ROTARY, eurobert, "\"attention_bias\": true", false, NULL},
    {"embeddinggemma", "Gemma3TextModel", "gemma3_text", GEMMA ", \"sliding_window_pattern\": 2, "
     "\"sliding_window\": 12, \"use_bidirectional_attention\": true", embeddinggemma, "\"attention_bias\": true",
     false, NULL},
    {"bert", "BertModel", "bert", BERTS, bert, NULL, false, NULL},
    {"bert_mlm", "BertForMaskedLM", "bert", BERTS, bert_mlm, NULL, false, NULL},
};

const char *const tiny_families[] = {"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma2",
                                     "gemma3", "phi3", "olmo2", "mixtral", "olmoe", "glm4_moe", "minimax_m2",
                                     "phimoe", "ernie4_5_moe", "gpt_oss", "llama4", "smollm3", "seed_oss", "olmo3",
                                     "exaone4", "ernie4_5", "hunyuan_v1_dense", "glm4", "granite", "granitemoe",
                                     "ministral3", "cohere2", "starcoder2", "deepseek_v2", "deepseek_v3",
                                     "glm4_moe_lite", "qwen3_5", "qwen3_5_moe", "qwen3_next", "lfm2", "lfm2_moe",
                                     "gemma3n", "gemma4", "granite_hybrid", "granitemoehybrid", "nemotron_h",
                                     "nemotron_latent", "nemotron_dense", "bert", "bert_mlm", NULL};

const char *const tiny_encoders[] = {"roberta",    "distilbert", "mpnet",    "modernbert",
                                     "nomic_bert", "gte",        "eurobert", "embeddinggemma", NULL};

static bool is_listed(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list;
}

/* Does the family have latent attention? */
static bool is_latent(const char *family)
{
    return strncmp(family, "deepseek_v", 10) == 0 || strcmp(family, "glm4_moe_lite") == 0;
}

static const struct family *find_family(const tiny_model *model)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, model->family ? model->family : "qwen3") == 0)
            return &families[i];
    ck_abort_msg("no family %s", model->family);
    return NULL;
}

tiny_model tiny_of(const char *family)
{
    tiny_model model = tiny_default;
    model.family = family;
    const bool grouped = strcmp(family, "eurobert") == 0 || strcmp(family, "embeddinggemma") == 0;
    if (is_latent(family) || strncmp(family, "bert", 4) == 0 || (is_listed(tiny_encoders, family) && !grouped))
        model.n_kv = model.n_heads;
    return model;
}

tiny_model tiny_wide(const char *family)
{
    tiny_model model = tiny_of(family);
    model.hidden = 64;
    model.inner = 96;
    model.head_dim = 16;
    model.expert_inner = 32;
    model.shared_inner = 64;
    model.bias = true;
    return model;
}

static size_t size_of(const tiny_model *m, char size)
{
    const size_t q = m->n_heads * m->head_dim, kv = m->n_kv * m->head_dim;
    /* Latent attention: a key has 3/2 head_dim channels without RoPE, a value head_dim. */
    const size_t turned = m->hidden / 2, own = m->head_dim + m->head_dim / 2;
    switch (size) {
    case 'D': return m->hidden;
    case 'M': return m->inner;
    case 'V': return m->vocab;
    case 'Q': return q;
    case 'K': return kv;
    case 'W': return q + 2 * kv;
    case 'G': return 2 * m->inner;
    case 'd': return m->head_dim;
    case 'P': return N_POSITIONS;
    case 'T': return N_TYPES;
    case 'E': return m->n_experts;
    case 'e': return m->expert_inner;
    case 's': return m->shared_inner;
    case '1': return 1;
    case '2': return 2 * q;
    case 't': return TAPS;
    case 'c': return 4 * key_dim(m) + q;
    case 'f': return 4 * key_dim(m) + 2 * q;
    case 'B': return 2 * m->n_heads;
    case '3': return 3 * m->hidden;
    case 'N': return 2 * m->hidden;
    case 'x': return 2 * m->hidden + 2 * GROUPS * STATE;
    case 'i': return 4 * m->hidden + 2 * GROUPS * STATE + m->n_heads;
    case 'u': return 2 * m->shared_inner;
    case 'R': return 32;
    case 'H': return m->n_heads;
    case 'q': return m->n_heads * (own + turned);
    case 'r': return m->hidden;
    case 'l': return m->hidden / 2;
    case 'a': return m->hidden / 2 + turned;
    case 'b': return m->n_heads * (own + m->head_dim);
    case 'o': return m->n_heads * m->head_dim;
    default: return gemma4_size(m, size);
    }
}

/* ---- tensors ---- */

/* The tensors of the checkpoint and the distributions of their values. */
typedef struct listing {
    const tiny_model *model;
    calm_tensor tensors[MAX_TENSORS];
    double mean[MAX_TENSORS], spread[MAX_TENSORS];
    size_t n;
} listing;

/* Returns NAME with the numbers of block and expert. */
static const char *full_name(const char *pattern, size_t block, size_t expert)
{
    const char *name = pattern, *at;
    for (const char *marks = "#@"; *marks; marks++)
        if ((at = strchr(name, *marks)))
            name = test_format("%.*s%zu%s", (int)(at - name), name, *marks == '#' ? block : expert, at + 1);
    return name;
}

/* Chooses values: norms multiply by about 1, also if the stored weight is minus 1; matrices keep the size of their
 * input. */
static void choose_values(const tiny_model *model, const tensor_row *row, double *mean, double *spread)
{
    /* Norms whose weights are stored minus 1, except the norm after a delta rule. */
    const bool less = model->family && (strstr(model->family, "gemma2") || strcmp(model->family, "gemma3") == 0
                                        || strstr(model->family, "embeddinggemma") || strstr(model->family, "qwen3_5")
                                        || strstr(model->family, "qwen3_next"));
    const bool gemma = less && !strstr(row->name, "linear_attn");
    const size_t n = strlen(row->name);
    const bool bias = n > 5 && strcmp(row->name + n - 5, ".bias") == 0;
    const bool embed = strstr(row->name, "embed") && row->cols;
    const bool around_0 = bias || gemma || strstr(row->name, "expert_bias");
    /* States of a delta net decay over several tokens. */
    *mean = strstr(row->name, "A_log") ? -2 : !row->cols && !around_0 ? 1 : 0;
    *spread = bias ? 0.1 : !row->cols ? 0.2 : !embed ? 1 / sqrt((double)size_of(model, row->cols)) : gemma ? 0.2 : 1;
}

static void add(listing *list, const tensor_row *row, size_t block, size_t expert)
{
    const tiny_model *model = list->model;
    const char *name = full_name(row->name, block, expert);
    const size_t rows = size_of(model, row->rows), cols = size_of(model, row->cols);
    calm_tensor *tensor = &list->tensors[list->n];
    ck_assert_uint_lt(list->n, MAX_TENSORS);
    if (model->missing && strcmp(model->missing, name) == 0)
        return;
    *tensor = (calm_tensor){.name = name, .dtype = model->dtype, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    /* A depthwise convolution has one input channel. */
    if (row->cols == 't')
        *tensor = (calm_tensor){.name = name, .dtype = model->dtype, .n_dims = 3, .shape = {rows, 1, cols}};
    if (model->as_integers && strcmp(model->as_integers, name) == 0)
        tensor->dtype = CALM_I32;
    if (model->transposed && strcmp(model->transposed, name) == 0)
        tensor->shape[0] = cols, tensor->shape[1] = rows;
    choose_values(model, row, &list->mean[list->n], &list->spread[list->n]);
    list->n++;
}

static void add_row(listing *list, const tensor_row *row, size_t block)
{
    const tiny_model *model = list->model;
    const bool is_there[] = {[ALWAYS] = true,
                             [UNTIED] = !model->tied,
                             [BIASED] = model->bias && find_family(model)->bias,
                             [DENSE] = block < model->n_dense,
                             [SPARSE] = block >= model->n_dense,
                             [LATER] = block > 0,
                             [EVEN] = block % 2 == 0,
                             [ODD] = block % 2 != 0,
                             [EVEN_OWN] = block % 2 == 0 && block < model->n_blocks - n_shared(model),
                             [ODD_OWN] = block % 2 != 0 && block < model->n_blocks - n_shared(model),
                             [USUAL] = has_usual_streams(model)};
    const size_t experts = strchr(row->name, '@') ? model->n_experts : 1;
    for (size_t e = 0; e < experts && is_there[row->when]; e++)
        add(list, row, block, e);
}

/* Lists all tensors; the rows of a block are consecutive in the table. */
static void list_tensors(const tiny_model *model, listing *list)
{
    const tensor_row *at = find_family(model)->rows, *first, *end;
    *list = (listing){.model = model};
    for (; at->name && !strchr(at->name, '#'); at++)
        add_row(list, at, 0);
    for (first = end = at; end->name && strchr(end->name, '#');)
        end++;
    for (size_t i = 0; i < model->n_blocks; i++)
        for (at = first; at < end; at++)
            add_row(list, at, i);
    for (; at->name; at++)
        add_row(list, at, 0);
}

static void write_tensor(calm_safetensors_writer *writer, const listing *list, size_t index)
{
    const tiny_model *model = list->model;
    const calm_tensor *tensor = &list->tensors[index];
    size_t n, bytes;
    float *values;
    uint8_t *stored;
    ck_assert(calm_tensor_size(tensor, &n, &bytes));
    ck_ok(CALM_NEW(ctx, ctx->scratch, values, n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, stored, bytes));
    const double *normals = test_normals(model->seed, index, n);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(list->mean[index] + list->spread[index] * normals[i]);
    if (model->nan_in && strcmp(model->nan_in, tensor->name) == 0)
        values[model->nan_at] = NAN;
    if (tensor->dtype != CALM_I32)    /* integers stay 0 */
        ck_ok(calm_from_f32(ctx, tensor->dtype, values, n, stored));
    ck_ok(calm_safetensors_put(ctx, writer, stored, bytes));
}

/* ---- config.json ---- */

/* Returns the config members of sliding blocks; "" if there are none. */
static const char *window_text(const tiny_model *model, const struct family *family)
{
    const bool types = strcmp(family->name, "qwen2") == 0 || strcmp(family->name, "qwen3") == 0
                       || strcmp(family->name, "olmo3") == 0 || strcmp(family->name, "exaone4") == 0;
    if (!model->window || !family->slides)
        return strcmp(family->name, "mistral") == 0 ? ", \"sliding_window\": null" : "";
    if (!types)
        return test_format(", \"sliding_window\": %zu%s", model->window,
                           strncmp(family->name, "qwen", 4) == 0 ? ", \"use_sliding_window\": true" : "");
    const char *text = test_format(", \"sliding_window\": %zu, \"layer_types\": [", model->window);
    for (size_t i = 0; i < model->n_blocks; i++)
        text = test_format("%s%s\"%s\"", text, i ? ", " : "", i % 2 ? "sliding_attention" : "full_attention");
    return test_format("%s]", text);
}

/* Returns the config members of latent attention and of DeepSeek's mixtures. */
static const char *latent_text(const tiny_model *model, const char *family)
{
    const bool typed = strcmp(family, "glm4_moe_lite") == 0;
    const char *rank = strcmp(family, "deepseek_v2") == 0 ? "null" : test_format("%zu", size_of(model, 'r'));
    const char *blocks = test_format("\"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": %zu",
                                     model->n_dense);
    for (size_t i = 0; typed && i < model->n_blocks; i++)
        blocks = test_format("%s%s\"%s\"%s", i ? blocks : "\"mlp_layer_types\": [", i ? ", " : "",
                             i < model->n_dense ? "dense" : "sparse", i + 1 < model->n_blocks ? "" : "]");
    return test_format(", \"q_lora_rank\": %s, \"kv_lora_rank\": %zu, \"qk_nope_head_dim\": %zu, \"qk_rope_head_dim\": "
                       "%zu, \"v_head_dim\": %zu, \"moe_intermediate_size\": %zu, \"n_shared_experts\": 1, %s", rank,
                       size_of(model, 'l'), model->head_dim + model->head_dim / 2, model->hidden / 2, model->head_dim,
                       model->expert_inner, blocks);
}

/* Returns the config members of experts: their number under the family's key, their width unless it is
 * intermediate_size, and which blocks are mixtures. */
static const char *experts_text(const tiny_model *model, const struct family *family)
{
    if (!family->experts)
        return "";
    const char *rest = "";
    if (is_latent(family->name))
        rest = latent_text(model, family->name);
    else if (strstr(family->name, "moe") && strcmp(family->name, "olmoe") != 0 && strcmp(family->name, "phimoe") != 0
        && strncmp(family->name, "granitemoe", 10) != 0)
        rest = test_format(", \"moe_intermediate_size\": %zu", model->expert_inner);
    if (strcmp(family->name, "qwen3_next") == 0)
        rest = test_format("%s, \"moe_intermediate_size\": %zu", rest, model->expert_inner);
    if (strcmp(family->name, "nemotron_h") == 0 || strcmp(family->name, "nemotron_latent") == 0)
        rest = nemotron_text(model);
    if (strcmp(family->name, "llama4") == 0)
        rest = llama4_text(model);
    if (strcmp(family->name, "lfm2_moe") == 0)
        rest = test_format("%s, \"num_dense_layers\": %zu", rest, model->n_dense);
    if (strcmp(family->name, "qwen2_moe") == 0 || strcmp(family->name, "qwen3_5_moe") == 0
        || strcmp(family->name, "qwen3_next") == 0)
        rest = test_format("%s, \"shared_expert_intermediate_size\": %zu", rest, model->shared_inner);
    if (strcmp(family->name, "glm4_moe") == 0)
        rest = test_format("%s, \"n_shared_experts\": 1, \"first_k_dense_replace\": %zu", rest, model->n_dense);
    const bool ernie = strcmp(family->name, "ernie4_5_moe") == 0;
    if (ernie)
        rest = test_format("%s, \"moe_num_shared_experts\": 1, \"moe_layer_start_index\": %zu", rest, model->n_dense);
    return test_format(", \"%s\": %zu, \"%s\": %zu%s", family->experts, model->n_experts,
                       top_k_key(family->name), model->top_k, rest);
}

void tiny_model_write_config(const tiny_model *model, const char *dir)
{
    const struct family *family = find_family(model);
    static const char *const usual[] = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"};
    static const char *const distil[] = {"dim", "hidden_dim", "n_layers", "n_heads"};
    static const char *const llama4_keys[] = {"hidden_size", "intermediate_size_mlp", "num_hidden_layers",
                                              "num_attention_heads"};
    const char *const *keys = strcmp(family->name, "distilbert") == 0 ? distil
                              : strcmp(family->name, "llama4") == 0   ? llama4_keys
                                                                      : usual;
    const char *dtype = model->dtype == CALM_BF16 ? "bfloat16" : model->dtype == CALM_F16 ? "float16" : "float32";
    const char *text = test_format(
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"%s\": %zu, "
        "\"%s\": %zu, \"%s\": %zu, \"vocab_size\": %zu, \"%s\": %zu, "
        "\"num_key_value_heads\": %zu, \"head_dim\": %zu, \"max_position_embeddings\": %d, \"tie_word_embeddings\": "
        "%s, "
        "\"torch_dtype\": \"%s\", %s%s%s%s%s%s%s%s}\n",
        family->class_name, family->model_type, keys[0], model->hidden, keys[1], model->inner, keys[2],
        model->n_blocks, model->vocab, keys[3], model->n_heads, model->n_kv,
        is_latent(family->name) ? model->hidden / 2 : model->head_dim, N_POSITIONS,
        model->tied ? "true" : "false", dtype,
        family->config, mixers_text(model, family->name, family->config), model->bias && family->bias ? ", " : "",
        model->bias && family->bias ? family->bias : "",
        window_text(model, family), experts_text(model, family), model->extra ? ", " : "",
        model->extra ? model->extra : "");
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), text, strlen(text)));
}

const char *tiny_model_write(const tiny_model *model)
{
    static listing list;
    calm_safetensors_writer writer;
    const char *dir = test_directory();
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    tiny_model_write_config(model, dir);
    list_tensors(model, &list);
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/model.safetensors", dir), list.tensors, list.n));
    for (size_t i = 0; i < list.n; i++)
        write_tensor(&writer, &list, i);
    ck_ok(calm_safetensors_end(ctx, &writer));
    calm_arena_rewind(ctx->scratch, mark);
    return dir;
}

long long tiny_tokenizer_write(const char *path, long long id)
{
    static const char template[] =
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"B\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"B\", \"type_id\": 0}}], "
        "\"special_tokens\": {\"B\": {\"id\": \"B\", \"ids\": [%lld], \"tokens\": [\"B\"]}}}";
    calm_json *json, *post;
    calm_text text;
    ck_ok(calm_json_read(ctx, CALM_SOURCE_DIR "/recipes/models/qwen-demo/tokenizer.json", 64 << 20, &json));
    if (id < 0)
        id = calm_json_int(calm_json_get(calm_json_at(calm_json_get(json, "added_tokens"), 0), "id"), -1);
    const char *written = test_format(template, id);
    ck_ok(calm_json_parse(ctx, "template", written, strlen(written), &post));
    calm_json_set(json, "post_processor", post);
    calm_text_init(&text);
    ck_ok(calm_json_write(ctx, json, 0, &text));
    ck_ok(calm_write_file(ctx, path, text.data, text.length));
    calm_text_clear(&text);
    calm_json_free(json);
    return id;
}

calm_windows tiny_windows(const size_t *lengths, size_t n)
{
    calm_windows windows = {.n = n};
    ck_ok(CALM_NEW(ctx, ctx->out, windows.begin, n + 1));
    for (size_t w = 0; w < n; w++) {
        windows.begin[w + 1] = windows.begin[w] + lengths[w];
        windows.longest = lengths[w] > windows.longest ? lengths[w] : windows.longest;
    }
    ck_ok(CALM_NEW(ctx, ctx->out, windows.ids, windows.begin[n]));
    for (size_t i = 0; i < windows.begin[n]; i++)
        windows.ids[i] = (uint32_t)(calm_rng_u64(5, 0, i) % tiny_default.vocab);
    return windows;
}
