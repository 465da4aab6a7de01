/* Architectures: one const descriptor per model family; all families share one block implementation.
 *
 * A family is one file arch_<family>.c, which ends with its descriptor, and one line in arch.def. */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/base/context.h"
#include "ptq/io/json.h"

typedef enum calm_norm_kind {
    CALM_NORM_RMS,             /* x / sqrt(mean(x^2) + eps) * w                                   */
    CALM_NORM_RMS_PLUS_ONE,    /* x / sqrt(mean(x^2) + eps) * (1 + w)                             */
    CALM_NORM_LAYER,           /* (x - mean) / sqrt(var + eps) * w + b                            */
} calm_norm_kind;

/* Modules of a block whose MLP is a mixture of experts; NULL where the family has none. */
typedef struct calm_expert_names {
    const char *router, *experts, *shared, *shared_gate;    /* "mlp.gate", "mlp.experts", ... */
    const char *const *words;                  /* [CALM_N_ROLES] an expert's linears: "up_proj"; NULL: the last words of
                                                  role[], which the shared expert always uses                     */
    const char *choice_bias;                   /* tensor of b (router.h): "mlp.gate.e_score_correction_bias"      */
    const char *fused_gate_up, *fused_down;    /* tensors of all experts (fused_experts.h): "mlp.experts.down_proj" */
    const char *fused_gate_up_bias, *fused_down_bias;    /* their biases                                          */
    bool interleaved;                          /* rows of gate and up alternate in fused_gate_up                  */
} calm_expert_names;

/* Modules and tensors of encoders before and after their blocks, each NULL where the family has none. */
typedef struct calm_ends {
    const char *positions, *types, *norm;      /* of the embeddings, after the prefix: "embeddings.LayerNorm"    */
    const char *pooler;                        /* linear of tanh(W x_0 + b), x_0 the first token; after the prefix */
    const char *transform, *transform_norm;    /* of a masked language model, before its head; without prefix    */
    const char *bias;                          /* of its logits: tensors joined by '|', the first present counts */
} calm_ends;

/* Modules and tensors of the tail of a block (tail.h): the first four are names within the block, the others follow the
 * prefix. */
typedef struct calm_tail_names {
    const char *scale;                     /* tensor [1]: s; NULL: no factor                        */
    const char *gate, *projection, *norm;  /* linears [P, D] and [D, P]; norm of D                  */
    const char *table, *context, *context_norm;    /* table [V, n_blocks P], linear [n_blocks P, D], norm of P */
} calm_tail_names;

/* Modules and tensors of residual streams (streams.h); split and merge belong to the model, not to a block. */
typedef struct calm_stream_names {
    const char *router_norm, *router;      /* norm of D, linear [n, D]                              */
    const char *predict, *correct;         /* linears [n^2, n] and [n, n]                           */
    const char *scale;                     /* tensor [D]                                            */
    const char *left, *right, *laurel_norm;    /* linears [R, D] and [D, R], norm of D              */
    const char *split, *merge;             /* linears [D, D], NAME.0 .. NAME.n-2                    */
} calm_stream_names;

/* A family's own keys of config.json for its sizes; NULL: the usual key. */
typedef struct calm_size_keys {
    const char *hidden, *inner, *blocks, *heads, *positions, *eps, *activation;
    const char *inner_first;    /* counts instead of `inner` where present; NULL: no such key */
} calm_size_keys;

/* The usual keys, with the key `inner_key` of the MLP's width, for the initialiser of a calm_size_keys.
 * CALM_SIZES: a calm_arch's `sizes`, with the members that follow. */
#define CALM_USUAL_SIZES(inner_key)                                                                          \
    .hidden = "hidden_size", .inner = inner_key, .blocks = "num_hidden_layers",                              \
    .heads = "num_attention_heads", .positions = "max_position_embeddings"
#define CALM_SIZES(inner_key, ...) &(const calm_size_keys){CALM_USUAL_SIZES(inner_key), __VA_ARGS__}

/* Names of modules; NULL where the family has none.  Names of a block's modules follow "<prefix><blocks>.<number>.". */
typedef struct calm_names calm_names;
struct calm_names {
    const char *blocks;                                      /* "layers"                    */
    const char *embed, *final_norm, *head;                   /* head: see calm_head_module  */
    const char *role[CALM_N_ROLES];                          /* "self_attn.q_proj"          */
    const char *norm[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES];  /* "input_layernorm"           */
    const calm_names *readers;    /* names in transformers, where they differ from those of checkpoints; or NULL */
    const calm_names *engine;     /* names in vLLM, of families that have `readers`         */
    const char *parent, *engine_parent;    /* a module and vLLM's name for it: "conv", "short_conv"; NULL: the same */
    bool parent_listed;       /* vLLM does not map names in lists of modules: they need its name too */
    const char *plain[CALM_N_PLAINS];                        /* "self_attn.q_norm", by its form (kind.h) */
    bool bare_start;          /* block 0 has no norm before its attention                      */
    bool up_first;            /* the fused matrix of gate and up holds up in its first half    */
    const calm_tail_names *tail;    /* NULL: the family has none */
    const calm_stream_names *streams;    /* NULL: a plain residual */
    const char *distance;     /* table of relative position biases (distance.h), after the prefix */
    calm_expert_names moe;
};

typedef struct calm_arch {
    const char *name;          /* [a-z0-9_]+ : the name in arch.def                       */
    const char *classes;       /* "architectures" of config.json, joined by '|'           */
    const char *model_types;   /* "model_type" of config.json, joined by '|'; NULL: name  */
    const char *prefixes;      /* prefixes of tensor names, joined by '|', the usual one first; NULL:
                                  CALM_DECODER_PREFIXES */
    const calm_names *names;
    calm_norm_kind norm;
    bool no_norm_bias;         /* LayerNorm without b                                     */
    calm_qk_norm qk_norm;      /* read_config may switch it off in calm_config            */
    bool late_qk_norm;         /* norms of q and k follow the rotary embedding            */
    bool neighbours;           /* RoPE pairs channel 2 c with 2 c + 1                     */
    bool varies;               /* blocks differ in kinds or widths: read_config changes calm_config.shapes */
    bool inner_list;           /* intermediate_size may be a list, which read_config reads */
    bool latent;               /* the attention of every block is latent (latent.h)     */
    bool parallel;             /* the MLP reads attention's normalised input, and has no IN norm */
    bool encoder;              /* no head for the next token: its outputs are the hidden states */
    bool both_ways;            /* attention is bidirectional; read_config may change it in calm_config */
    const calm_ends *ends;     /* of encoders with further modules before or after the blocks; or NULL */
    const calm_size_keys *sizes, *old_sizes;    /* keys of sizes (NULL: the usual ones), and an older spelling, which
                                                   counts where its `hidden` is present                            */
    const char *block_list, *block_word;    /* keys of a list, or a string, with an entry per block; or NULL */
    const char *stem;          /* "Llama": LlamaModel, LlamaForSequenceClassification and others are this model
                                  without a head for the next token; several stems are joined by '|'; NULL: calm knows
                                  no such classes */
    bool default_tied;         /* when tie_word_embeddings is absent                      */
    int64_t default_kv_heads;  /* when num_key_value_heads is absent; 0: the number of query heads */
    int64_t default_head_dim;  /* when head_dim is absent; 0: hidden / heads              */
    int64_t default_positions; /* when max_position_embeddings is absent; 0: 2048         */
    double default_rope_theta; /* 0: no rotary embedding                                  */
    const char *theta_key;     /* NULL: rope_theta                                        */
    const char *local_theta_key;    /* theta of sliding blocks, which have a second rotary embedding; or NULL */
    double default_local_theta;
    bool scales_both;          /* "rope_scaling" applies to both rotary embeddings        */
    bool local_rope;           /* sliding blocks have a second rotary embedding, unscaled, of the same theta */
    double partial_rope;       /* value of partial_rotary_factor when absent; 0: the family ignores the key */
    const char *eps_key;       /* NULL: layer_norm_eps of LayerNorm, rms_norm_eps of RMSNorm; "": no key, it is fixed */
    const char *rope_keys;     /* settings of the rotary embedding that read_config reads, joined by ' ' */
    bool mrope;                /* wrappers give images three positions, in sections of the channels   */
    bool proportional_rope;    /* knows rope_type proportional                            */
    bool ntk_rope;             /* knows rope_type ntk: theta times factor; frequencies divided by factor^(2 / r) */
    bool phi_rope;             /* reads partial_rotary_factor; "yarn" is an old name of longrope, and the original
                                  positions are 4096 when original_max_position_embeddings is absent */
    double default_eps;        /* of the norms, when its key is absent; 0: 1e-6           */
    const char *default_activation;    /* when its key is absent; NULL: silu, of Gemma gelu_pytorch_tanh */
    const char *keys;          /* keys that read_config reads, joined by ' '              */
    const char *fixed;         /* "KEY=VALUE KEY=VALUE" (calm_config_fixed): settings of published files for which
                                  transformers has only one implementation; NULL: none */
    const char *aliases;       /* further names of keys, "OTHER=KEY OTHER=KEY"; NULL: none */

    /* Reads the keys that only this family has, after the common ones are read. */
    calm_status (*read_config)(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);
} calm_arch;

/* Names that nearly all families use, for the initialiser of a calm_names; norms differ.  CALM_USUAL_ENDS: modules
 * outside of the blocks. */
#define CALM_USUAL_ENDS                                                                                      \
    .blocks = "layers", .embed = "embed_tokens", .final_norm = "norm", .head = "lm_head"
#define CALM_USUAL_MODULES CALM_USUAL_ENDS, CALM_USUAL_ROLES
#define CALM_USUAL_ROLES .role = {CALM_ATTENTION_ROLES("self_attn."), CALM_MLP_ROLES("mlp.")}

/* Linears of attention and of a gated MLP within the module `m`, "self_attn.", for .role. */
#define CALM_ATTENTION_ROLES(m)                                                                              \
    [CALM_ROLE_Q] = m "q_proj", [CALM_ROLE_K] = m "k_proj", [CALM_ROLE_V] = m "v_proj", [CALM_ROLE_O] = m "o_proj"
#define CALM_MLP_ROLES(m)                                                                                    \
    [CALM_ROLE_GATE] = m "gate_proj", [CALM_ROLE_UP] = m "up_proj", [CALM_ROLE_DOWN] = m "down_proj"

/* One norm of attention and one of the MLP, in the same place: IN, OUT or RESIDUAL. */
#define CALM_NORMS(place, attention, mlp)                                                                    \
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_##place] = attention},                                  \
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_##place] = mlp}}

/* A norm before each sublayer, by the usual names; norms only after each. */
#define CALM_PRE_NORMS CALM_NORMS(IN, "input_layernorm", "post_attention_layernorm")
#define CALM_POST_NORMS CALM_NORMS(OUT, "post_attention_layernorm", "post_feedforward_layernorm")

/* Norms of q and k. */
#define CALM_QK_NORMS(q, k) .plain = {[CALM_PLAIN_Q_NORM] = q, [CALM_PLAIN_K_NORM] = k}

/* Prefixes of decoders: plain, in wrappers (wrapper.h) with newer and older names, in classes for question answering,
 * and without a head. */
#define CALM_DECODER_PREFIXES "model.|model.language_model.|language_model.model.|transformer.|"

/* Modules of families whose blocks are all mixtures, with Mixtral's names: an expert is w2(act(w1(h)) * w3(h)). */
#define CALM_SPARSE_MODULES                                                                                  \
    .role = {CALM_ATTENTION_ROLES("self_attn."), [CALM_ROLE_GATE] = "block_sparse_moe.w1",                   \
             [CALM_ROLE_UP] = "block_sparse_moe.w3", [CALM_ROLE_DOWN] = "block_sparse_moe.w2"}

/* DeepSeek's mixture, for .moe: experts are chosen with a bias, the shared expert has no gate.  CALM_GROUPED_NAMES:
 * within the module `m`, "mlp."; CALM_GROUPED_KEYS: keys of config.json. */
#define CALM_GROUPED_MODULES                                                                                 \
    {CALM_GROUPED_NAMES("mlp."), .fused_gate_up = "mlp.experts.gate_up_proj",                                \
     .fused_down = "mlp.experts.down_proj"}
#define CALM_GROUPED_NAMES(m)                                                                                \
    .router = m "gate", .experts = m "experts", .shared = m "shared_experts",                                \
    .choice_bias = m "gate.e_score_correction_bias"
#define CALM_GROUPED_KEYS                                                                                    \
    "n_routed_experts num_experts_per_tok moe_intermediate_size norm_topk_prob n_shared_experts n_group "    \
    "topk_group routed_scaling_factor num_nextn_predict_layers"

/* Latent attention of DeepSeek's families: roles, norms, keys of config.json. */
#define CALM_LATENT_ROLES                                                                                    \
    [CALM_ROLE_Q_FULL] = "self_attn.q_proj", [CALM_ROLE_Q_A] = "self_attn.q_a_proj",                         \
    [CALM_ROLE_Q_B] = "self_attn.q_b_proj", [CALM_ROLE_KV_A] = "self_attn.kv_a_proj_with_mqa",               \
    [CALM_ROLE_KV_B] = "self_attn.kv_b_proj", [CALM_ROLE_O] = "self_attn.o_proj"
#define CALM_LATENT_NORMS                                                                                    \
    {[CALM_PLAIN_Q_A_NORM] = "self_attn.q_a_layernorm", [CALM_PLAIN_KV_A_NORM] = "self_attn.kv_a_layernorm"}
#define CALM_LATENT_KEYS                                                                                     \
    "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim qk_head_dim v_head_dim rope_interleave "     \
    "attention_bias first_k_dense_replace scoring_func topk_method moe_layer_freq num_mtp_layers "           \
    CALM_GROUPED_KEYS

/* Names of latent attention and DeepSeek's mixture (arch_deepseek_v3.c). */
extern const calm_names calm_names_latent;

/* The usual names: model.layers.N.self_attn.q_proj, mlp.gate_proj, input_layernorm, post_attention_layernorm. */
extern const calm_names calm_names_llama;

/* The usual names and those of RMSNorms over heads of q and k. */
extern const calm_names calm_names_qk_norm;

/* Returns the last word of a role's module in an expert; NULL: experts have no such linear. */
const char *calm_expert_word(const calm_names *names, calm_role role);

/* Does the block have a norm in this place? */
bool calm_has_norm(const calm_arch *arch, size_t block, calm_sublayer sublayer, calm_norm_place place);

/* Names of families with norms only after each sublayer, and over the whole q and k (arch_olmo2.c). */
extern const calm_names calm_names_olmo;

/* Gives the name of the head's module, in ctx->out; NULL: the family has no head.  The head is outside of the model
 * that the prefix names: "lm_head" with the prefixes "model.", "model.language_model." and "", "language_model.lm_head"
 * with "language_model.model.". */
calm_status calm_head_module(calm_ctx *ctx, const calm_names *names, const char *prefix, const char **out);

/* Returns the *n known architectures in the order of arch.def. */
const calm_arch *const *calm_architectures(size_t *n);

/* Returns the values of "model_type" in the family's config.json, joined by '|'. */
const char *calm_arch_model_types(const calm_arch *arch);

/* Finds an architecture by class name, or when that is NULL by model type; NULL: unknown. */
const calm_arch *calm_arch_find(const char *class_name, const char *model_type);

/* Returns prefix `index` of the family's tensor names, *n characters; NULL: it has no more. */
const char *calm_arch_prefix(const calm_arch *arch, size_t index, size_t *n);

/* Returns the part of a tensor's name after "<prefix><blocks>.", which begins with the number of its block; NULL: the
 * tensor is outside of the blocks. */
const char *calm_arch_in_block(const calm_arch *arch, const char *prefix, const char *tensor);

/* Parses a number without sign or leading zeros at *text, and moves *text past it and the dot that must follow. */
bool calm_arch_take_number(const char **text, size_t *out);

/* Returns the number of the tensor's block, and in *rest its name within the block; -1: it is outside of the blocks. */
long calm_arch_block_of(const calm_arch *arch, const char *prefix, const char *tensor, const char **rest);

/* Do the family's norms have a bias? */
bool calm_arch_norm_biased(const calm_arch *arch);

/* Is `class_name` a class without a head for the next token whose name begins with a stem of the family? */
bool calm_arch_is_headless(const calm_arch *arch, const char *class_name);

/* Makes a copy of the architecture without a head, as an encoder (calm_arch.encoder), in ctx->out. */
calm_status calm_arch_without_head(calm_ctx *ctx, const calm_arch *arch, const calm_arch **out);
