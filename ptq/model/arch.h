/* Architectures: one const descriptor per family over one shared block implementation.
 *
 * A family is one file arch_<family>.c, which ends with its descriptor, and one line in arch.def. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"
#include "ptq/model/config.h"

typedef enum calm_norm_kind {
    CALM_NORM_RMS,             /* x / sqrt(mean(x^2) + eps) * w                                   */
    CALM_NORM_RMS_PLUS_ONE,    /* the same times (1 + w)                                          */
    CALM_NORM_LAYER,           /* (x - mean) / sqrt(var + eps) * w + b                            */
} calm_norm_kind;

/* Modules of a block whose MLP is a mixture of experts; NULL where the family has none. */
typedef struct calm_expert_names {
    const char *router, *experts, *shared, *shared_gate;    /* "mlp.gate", "mlp.experts", ... */
    const char *const *words;                  /* [CALM_N_ROLES] an expert's linears: "up_proj"; NULL: the last words of
                                                  role[], as those of the shared expert always are                */
    const char *choice_bias;                   /* a tensor (router.h): "mlp.gate.e_score_correction_bias"         */
    const char *fused_gate_up, *fused_down;    /* tensors of all experts (fused_experts.h): "mlp.experts.down_proj" */
    const char *fused_gate_up_bias, *fused_down_bias;    /* of families whose experts have biases                 */
    bool interleaved;                          /* rows of gate and up take turns in the first of these            */
} calm_expert_names;

/* What encoders have around their blocks, each NULL where the family has none. */
typedef struct calm_ends {
    const char *positions, *types, *norm;      /* of the embeddings, behind the prefix: "embeddings.LayerNorm"   */
    const char *pooler;                        /* tanh(W x_0 + b) of the first token, behind the prefix          */
    const char *transform, *transform_norm;    /* of a masked language model: before its head, without prefix    */
    const char *bias;                          /* of its logits: tensors joined by '|', the first that is there  */
} calm_ends;

/* Modules and tensors of what follows the sublayers of a block (tail.h), the first four within the block, the others
 * behind the prefix. */
typedef struct calm_tail_names {
    const char *scale;                     /* tensor [1]; NULL: there is no factor                  */
    const char *gate, *projection, *norm;  /* linears [P, D] and [D, P]; norm of D                  */
    const char *table, *context, *context_norm;    /* table [V, n_blocks P], linear [n_blocks P, D], norm of P */
} calm_tail_names;

/* Modules and tensors of streams (streams.h), the last two of the whole model. */
typedef struct calm_stream_names {
    const char *router_norm, *router;      /* norm of D, linear [n, D]                              */
    const char *predict, *correct;         /* linears [n^2, n] and [n, n]                           */
    const char *scale;                     /* tensor [D]                                            */
    const char *left, *right, *laurel_norm;    /* linears [R, D] and [D, R], norm of D              */
    const char *split, *merge;             /* linears [D, D], NAME.0 .. NAME.n-2                    */
} calm_stream_names;

/* Keys of config.json for the sizes of a family that has its own; NULL: the usual ones. */
typedef struct calm_size_keys {
    const char *hidden, *inner, *blocks, *heads, *positions, *eps, *activation;
    const char *inner_first;    /* wins over `inner` where it is there; NULL: there is none such */
} calm_size_keys;

/* Names of modules: those of a block follow "<prefix><blocks>.<number>."; NULL where the family has none. */
typedef struct calm_names calm_names;
struct calm_names {
    const char *blocks;                                      /* "layers"                    */
    const char *embed, *final_norm, *head;                   /* head: calm_head_module      */
    const char *role[CALM_N_ROLES];                          /* "self_attn.q_proj"          */
    const char *norm[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES];  /* "input_layernorm"           */
    const calm_names *readers;    /* modules of transformers, where they are not those of checkpoints; NULL: they are */
    const calm_names *engine;     /* the same of vLLM, of families that have `readers`      */
    const char *parent, *engine_parent;    /* "conv", which vLLM names "short_conv"; NULL: as the checkpoint */
    bool parent_listed;       /* vLLM does not rename it in lists of modules either            */
    const char *plain[CALM_N_PLAINS];                        /* "self_attn.q_norm", by its form (kind.h) */
    bool bare_start;          /* block 0 has no norm before its attention                      */
    bool up_first;            /* the matrix of gate and up has up in its first half            */
    const calm_tail_names *tail;    /* NULL: the family has none */
    const calm_stream_names *streams;    /* NULL: a block's residual is one */
    const char *distance;     /* table of what is added to scores by distance, behind the prefix (distance.h) */
    calm_expert_names moe;
};

typedef struct calm_arch {
    const char *name;          /* [a-z0-9_]+ : the name in arch.def                       */
    const char *classes;       /* "architectures" of config.json, joined by '|'           */
    const char *model_types;   /* "model_type" of config.json, joined by '|'; NULL: name  */
    const char *prefixes;      /* of tensor names, joined by '|', the usual first; NULL: CALM_DECODER_PREFIXES */
    const calm_names *names;
    calm_norm_kind norm;
    bool no_norm_bias;         /* LayerNorm without b                                     */
    calm_qk_norm qk_norm;      /* read_config may switch it off in calm_config            */
    bool late_qk_norm;         /* behind the rotary embedding instead of before           */
    bool neighbours;           /* rotary pairs: channel 2 c with 2 c + 1                  */
    bool varies;               /* blocks differ in kinds or widths: read_config changes calm_config.shapes */
    bool inner_list;           /* intermediate_size may be a list, which read_config reads */
    bool latent;               /* the attention of every block is latent (latent.h)     */
    bool parallel;             /* the MLP reads what attention reads, and has no IN norm  */
    bool encoder;              /* no head for the next token: judged by its hidden rows   */
    bool both_ways;            /* every token sees every other; read_config may change it in calm_config */
    const calm_ends *ends;     /* of encoders with more than blocks and a norm; NULL: none */
    const calm_size_keys *sizes, *old_sizes;    /* NULL: the usual keys; of an older spelling, taken where its `hidden`
                                                   is there                                                        */
    const char *block_list, *block_word;    /* keys whose entries or letters are the blocks; NULL: none */
    const char *stem;          /* "Llama": LlamaModel, LlamaForSequenceClassification and others are this model
                                  without a head for the next token; several are joined by '|'; NULL: there are none
                                  that calm knows */
    bool default_tied;         /* when tie_word_embeddings is absent                      */
    int64_t default_kv_heads;  /* when num_key_value_heads is absent; 0: as many as heads */
    int64_t default_head_dim;  /* when head_dim is absent; 0: hidden / heads              */
    int64_t default_positions; /* when max_position_embeddings is absent; 0: 2048         */
    double default_rope_theta; /* 0: no rotary embedding                                  */
    const char *theta_key;     /* NULL: rope_theta                                        */
    const char *local_theta_key;    /* blocks that slide have a second rotary embedding; NULL: no */
    double default_local_theta;
    bool scales_both;          /* "rope_scaling" is for both of them                      */
    bool local_rope;           /* sliding blocks have a separate embedding, unscaled, of the same theta */
    double partial_rope;       /* partial_rotary_factor counts, and is this when absent; 0: it does not */
    const char *eps_key;       /* NULL: layer_norm_eps of LayerNorm, rms_norm_eps of RMSNorm; "": none, it is fixed */
    const char *rope_keys;     /* settings of the rotary embedding that read_config reads, joined by ' ' */
    bool mrope;                /* wrappers give images three positions, in sections of the channels   */
    bool proportional_rope;    /* knows rope_type proportional                            */
    bool ntk_rope;             /* knows rope_type ntk: of theta times factor, divided by factor^(2 / r)  */
    bool phi_rope;             /* partial_rotary_factor counts; yarn is an old name of longrope, and the original
                                  positions are 4096 when original_max_position_embeddings is absent */
    double default_eps;        /* of the norms, when the config is silent; 0: 1e-6        */
    const char *default_activation;    /* when its key is absent; NULL: silu, of Gemma gelu_pytorch_tanh */
    const char *keys;          /* keys that read_config reads, joined by ' '              */
    const char *aliases;       /* further names of keys, "OTHER=KEY OTHER=KEY"; NULL: none */

    /* What is particular in this family's config.  Called after the common keys are read. */
    calm_status (*read_config)(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);
} calm_arch;

/* Modules as nearly all families call them, for the initialiser of a calm_names; norms differ.  CALM_USUAL_ENDS: those
 * around the blocks. */
#define CALM_USUAL_ENDS                                                                                      \
    .blocks = "layers", .embed = "embed_tokens", .final_norm = "norm", .head = "lm_head"
#define CALM_USUAL_MODULES CALM_USUAL_ENDS, CALM_USUAL_ROLES
#define CALM_USUAL_ROLES                                                                                     \
    .role = {[CALM_ROLE_Q] = "self_attn.q_proj", [CALM_ROLE_K] = "self_attn.k_proj",                         \
             [CALM_ROLE_V] = "self_attn.v_proj", [CALM_ROLE_O] = "self_attn.o_proj",                         \
             [CALM_ROLE_GATE] = "mlp.gate_proj", [CALM_ROLE_UP] = "mlp.up_proj",                             \
             [CALM_ROLE_DOWN] = "mlp.down_proj"}

/* A norm before each sublayer, by the usual names. */
#define CALM_PRE_NORMS                                                                                       \
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "input_layernorm"},                               \
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_IN] = "post_attention_layernorm"}}

/* Norms of q and k. */
#define CALM_QK_NORMS(q, k) .plain = {[CALM_PLAIN_Q_NORM] = q, [CALM_PLAIN_K_NORM] = k}

/* Prefixes of decoders: alone, in wrappers (wrapper.h) of both generations of names, before
 * heads that answer questions, and without a head. */
#define CALM_DECODER_PREFIXES "model.|model.language_model.|language_model.model.|transformer.|"

/* Modules of families whose blocks are all mixtures, with Mixtral's names: an expert is w2(act(w1(h)) * w3(h)). */
#define CALM_SPARSE_MODULES                                                                                  \
    .role = {[CALM_ROLE_Q] = "self_attn.q_proj", [CALM_ROLE_K] = "self_attn.k_proj",                         \
             [CALM_ROLE_V] = "self_attn.v_proj", [CALM_ROLE_O] = "self_attn.o_proj",                         \
             [CALM_ROLE_GATE] = "block_sparse_moe.w1", [CALM_ROLE_UP] = "block_sparse_moe.w3",               \
             [CALM_ROLE_DOWN] = "block_sparse_moe.w2"}

/* DeepSeek's mixture: a bias of the choice, shared experts without a gate.  For .moe. */
#define CALM_GROUPED_MODULES                                                                                 \
    {.router = "mlp.gate", .experts = "mlp.experts", .shared = "mlp.shared_experts",                         \
     .choice_bias = "mlp.gate.e_score_correction_bias", .fused_gate_up = "mlp.experts.gate_up_proj",         \
     .fused_down = "mlp.experts.down_proj"}

/* Latent attention: roles, norms, and the keys of DeepSeek's families. */
#define CALM_LATENT_ROLES                                                                                    \
    [CALM_ROLE_Q_FULL] = "self_attn.q_proj", [CALM_ROLE_Q_A] = "self_attn.q_a_proj",                         \
    [CALM_ROLE_Q_B] = "self_attn.q_b_proj", [CALM_ROLE_KV_A] = "self_attn.kv_a_proj_with_mqa",               \
    [CALM_ROLE_KV_B] = "self_attn.kv_b_proj", [CALM_ROLE_O] = "self_attn.o_proj"
#define CALM_LATENT_NORMS                                                                                    \
    {[CALM_PLAIN_Q_A_NORM] = "self_attn.q_a_layernorm", [CALM_PLAIN_KV_A_NORM] = "self_attn.kv_a_layernorm"}
#define CALM_LATENT_KEYS                                                                                     \
    "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim qk_head_dim v_head_dim rope_interleave "     \
    "attention_bias n_routed_experts num_experts_per_tok moe_intermediate_size norm_topk_prob "              \
    "n_shared_experts first_k_dense_replace n_group topk_group routed_scaling_factor scoring_func "          \
    "topk_method moe_layer_freq num_nextn_predict_layers num_mtp_layers"

/* Latent attention and DeepSeek's mixture (arch_deepseek_v3.c). */
extern const calm_names calm_names_latent;

/* The usual names: model.layers.N.self_attn.q_proj, mlp.gate_proj, input_layernorm, post_attention_layernorm. */
extern const calm_names calm_names_llama;

/* The same with RMSNorm over heads of q and k. */
extern const calm_names calm_names_qk_norm;

/* The last word of a role's module in an expert; NULL: experts have no such linear. */
const char *calm_expert_word(const calm_names *names, calm_role role);

/* Has a block a norm there? */
bool calm_has_norm(const calm_arch *arch, size_t block, calm_sublayer sublayer, calm_norm_place place);

/* Norms behind each sublayer alone, and over the whole q and k (arch_olmo2.c). */
extern const calm_names calm_names_olmo;

/* The head's module in ctx->out; NULL: the family has none.  It stands outside of the model that a prefix names:
 * "lm_head" with the prefixes "model.", "model.language_model." and "", "language_model.lm_head" with
 * "language_model.model.". */
calm_status calm_head_module(calm_ctx *ctx, const calm_names *names, const char *prefix, const char **out);

/* The known architectures, *n of them, in the order of arch.def. */
const calm_arch *const *calm_architectures(size_t *n);

/* "model_type" of the family's config.json, joined by '|'. */
const char *calm_arch_model_types(const calm_arch *arch);

/* Find by class name; when that is NULL by model type; NULL when unknown. */
const calm_arch *calm_arch_find(const char *class_name, const char *model_type);

/* Prefix `index` of the family's tensor names, [*n] characters; NULL: it has no more. */
const char *calm_arch_prefix(const calm_arch *arch, size_t index, size_t *n);

/* What follows "<prefix><blocks>." in a tensor's name, the number of its block first; NULL: it is outside. */
const char *calm_arch_in_block(const calm_arch *arch, const char *prefix, const char *tensor);

/* A number without sign or zeros in front at *text, which moves behind it and the dot that must follow. */
bool calm_arch_take_number(const char **text, size_t *out);

/* The number of the block that a tensor is in, *rest its name within the block; -1: none. */
long calm_arch_block_of(const calm_arch *arch, const char *prefix, const char *tensor, const char **rest);

/* Have its norms a bias? */
bool calm_arch_norm_biased(const calm_arch *arch);

/* Is it one of the classes without a head for the next token that the family's `stem` begins? */
bool calm_arch_is_headless(const calm_arch *arch, const char *class_name);

/* The same architecture without that head, judged by its hidden rows, in ctx->out. */
calm_status calm_arch_without_head(calm_ctx *ctx, const calm_arch *arch, const calm_arch **out);
