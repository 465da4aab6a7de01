/* config.json from a GGUF file. */
#include "ptq/model/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    calm_ctx *ctx;
    const calm_gguf_list *list;
    calm_gguf_report_fn *report;    /* NULL: the first fault is a failure */
    void *user;
    calm_json *config;
    calm_status status;    /* of the first fault; later ones are not reported */
} builder;

/* One fault of the file: passed on, or kept as the failure. */
static void complain(builder *b, const char *key, const char *text)
{
    if (b->report)
        b->report(b->user, key, text);
    else
        b->status = calm_fail(b->ctx, CALM_EFORMAT, "%s: key %s: %s", calm_gguf_path(b->list->file), key, text);
}

/* A key of the architecture: "qwen3.block_count". */
static const calm_gguf_key *find(const builder *b, const char *rest, char name[128])
{
    snprintf(name, 128, "%s.%s", b->list->as->name, rest);
    return calm_gguf_find_key(b->list->file, name);
}

/* A whole number above 0; `fallback` 0: it must be there. */
static int64_t take_size(builder *b, const char *rest, int64_t fallback)
{
    char name[128];
    int64_t value = 0;
    const char *fault = NULL;
    const calm_gguf_key *key = find(b, rest, name);
    if (!key && fallback)
        return fallback;
    if (!calm_gguf_int(key, 0, &value) || (key->array && key->n > 1))
        fault = key ? "expected one whole number" : "it is missing";
    else if (value < 1 || value > CALM_SIZE_LIMIT)
        fault = "expected a whole number from 1 to 2^24";
    if (fault)
        complain(b, name, fault);
    return !fault ? value : fallback ? fallback : 1;    /* 1 lets the rest be read, so that all faults are listed */
}

/* config.MEMBER = the whole number under the architecture's key `rest`. */
static void set_size(builder *b, const char *member, const char *rest, int64_t fallback)
{
    calm_json_set_int(b->config, member, take_size(b, rest, fallback));
}

/* A whole number from 0; 0 where it is missing. */
static int64_t take_count(builder *b, const char *rest)
{
    char name[128];
    int64_t value = 0;
    const calm_gguf_key *key = find(b, rest, name);
    if (!key || (calm_gguf_int(key, 0, &value) && !key->array && value >= 0 && value <= CALM_SIZE_LIMIT))
        return value;
    complain(b, name, "expected a whole number from 0 to 2^24");
    return 0;
}

/* A finite number above 0; `fallback` 0: it must be there. */
static double take_number(builder *b, const char *rest, double fallback)
{
    char name[128];
    double value = 0;
    const calm_gguf_key *key = find(b, rest, name);
    if (!key && fallback != 0)
        return fallback;
    if (!calm_gguf_number(key, 0, &value) || !(value > 0) || !isfinite(value)) {
        complain(b, name, key ? "expected a number above 0" : "it is missing");
        return fallback != 0 ? fallback : 1;
    }
    return value;
}

/* Keys are float32: the shortest decimal that is the same one, as config.json had it. */
static void set_number(calm_json *object, const char *name, double value)
{
    char text[32];
    /* Nine digits distinguish any two floats, so the loop always ends at one that reads back. */
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
    }
    calm_json_set_number(object, name, strtod(text, NULL));
}

/* The first of several words that are joined by '|'. */
static void first_word(const char *list, char word[64])
{
    snprintf(word, 64, "%.*s", (int)strcspn(list, "|"), list);
}

static bool is_family(const builder *b, const char *name)
{
    return strcmp(b->list->arch->name, name) == 0;
}

static bool is_gemma(const builder *b)
{
    return is_family(b, "gemma2") || is_family(b, "gemma3");
}

static bool has_tensor(const builder *b, const char *name)
{
    return calm_gguf_find_tensor(b->list->file, name) != NULL;
}

/* ---- parts ---- */

/* What yarn multiplies cos and sin by, and scores of latent attention (gguf_arch.c has the formulas). */
static void add_latent_scales(builder *b, calm_json *scaling)
{
    char name[128];
    const calm_gguf_key *key = find(b, "rope.scaling.yarn_log_multiplier", name);
    const double factor = take_number(b, "rope.scaling.factor", 1), m = take_number(b, "rope.scaling.attn_factor", 1);
    const double multiplier = key ? take_number(b, "rope.scaling.yarn_log_multiplier", 0) : 0, ramp = log(factor);
    const double cosines = key ? m : m * (1 + 0.1 * ramp), scores = m * (1 + multiplier * ramp);
    if (!key || !(ramp > 0)) {
        set_number(scaling, "attention_factor", cosines);
        return;
    }
    /* The usual pair, of which one divides the other: equal, they cancel for cos and sin. */
    set_number(scaling, "mscale_all_dim", (scores - 1) / (0.1 * ramp));
    if (m == 1)
        set_number(scaling, "mscale", (scores - 1) / (0.1 * ramp));
    else
        set_number(scaling, "attention_factor", cosines);
}

/* `context`: what it was trained with, as llama.cpp takes it where YaRN does not say. */
static void add_rope(builder *b, int64_t context)
{
    char name[128];
    const calm_gguf_key *type = find(b, "rope.scaling.type", name);
    set_number(b->config, "rope_theta", take_number(b, "rope.freq_base", 10000));
    /* llama.cpp has the theta of sliding blocks in its code, older files do not have the key. */
    if (is_family(b, "gemma3"))
        set_number(b->config, "rope_local_base_freq", take_number(b, "rope.freq_base_swa", 10000));
    /* The factors were computed from settings that cannot be derived from them. */
    if (!b->report && (has_tensor(b, "rope_freqs.weight") || calm_gguf_is(type, "longrope")))
        b->status = calm_fail(b->ctx, CALM_EUNSUPPORTED,
                              "%s: rotary embeddings have separate factors (rope_freqs.weight), which config.json "
                              "cannot be told from the file; bring the float model's config.json",
                              calm_gguf_path(b->list->file));
    const bool grows = b->list->as->grows, linear = calm_gguf_is(type, "linear");
    /* Everything else is "none", or was refused above. */
    const bool yarn = calm_gguf_is(type, "yarn");
    if (!linear && !yarn && !grows)
        return;
    calm_json *scaling = calm_json_new_object();
    calm_json_set_string(scaling, "rope_type", yarn ? "yarn" : linear ? "linear" : "default");
    if (yarn || linear)
        set_number(scaling, "factor", take_number(b, "rope.scaling.factor", 1));
    if (yarn || grows)
        calm_json_set_int(scaling, "original_max_position_embeddings",
                          take_size(b, "rope.scaling.original_context_length", context));
    if (grows)
        set_number(scaling, "llama_4_scaling_beta", take_number(b, "attention.temperature_scale", 0.1));
    if (yarn) {
        set_number(scaling, "beta_fast", take_number(b, "rope.scaling.yarn_beta_fast", 32));
        set_number(scaling, "beta_slow", take_number(b, "rope.scaling.yarn_beta_slow", 1));
        if (b->list->arch->latent)
            add_latent_scales(b, scaling);
        /* As all of the family are trained, though llama.cpp rounds the ramp's ends. */
        if (is_family(b, "gpt_oss"))
            calm_json_set_bool(scaling, "truncate", false);
    }
    calm_json_set(b->config, "rope_scaling", scaling);
}

/* Which blocks slide, and how far. */
static void add_windows(builder *b, int64_t n_blocks)
{
    char name[128];
    const calm_gguf_key *pattern = find(b, "attention.sliding_window_pattern", name);
    const bool quarter = is_family(b, "cohere2") || is_family(b, "olmo3")
                         || (is_family(b, "exaone4") && n_blocks == 64);
    if (is_family(b, "exaone4") && !quarter) {
        calm_json_set(b->config, "sliding_window", calm_json_new_null());
        calm_json_set_int(b->config, "sliding_window_pattern", 1);
    }
    if (!is_gemma(b) && !quarter && !is_family(b, "gpt_oss"))
        return;
    calm_json *types = calm_json_new_array();
    set_size(b, "sliding_window", "attention.sliding_window", is_family(b, "gemma3") ? 1024 : 4096);
    for (int64_t i = 0; i < n_blocks && i < 4096; i++) {
        /* Without the pattern: every other block, five of six, three of four, as llama.cpp has it. */
        const bool other = is_family(b, "gemma2") || is_family(b, "gpt_oss");
        bool slides = other ? i % 2 == 0 : quarter ? i % 4 != 3 : i % 6 != 5;
        if (pattern && pattern->array && pattern->kind == CALM_GGUF_BOOL && (size_t)i < pattern->n)
            slides = pattern->data[i] != 0;
        calm_json_add_string(types, slides ? "sliding_attention" : "full_attention");
    }
    calm_json_set(b->config, "layer_types", types);
}

/* Settings that only Gemma's configs have. */
static void add_gemma(builder *b, int64_t n_blocks, int64_t hidden, int64_t heads, int64_t head_dim)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    const bool large = n_blocks == (is_family(b, "gemma2") ? 46 : 62);
    if (!is_gemma(b))
        return;
    calm_json_set_string(b->config, "hidden_activation", "gelu_pytorch_tanh");
    /* The largest of each generation alone divides scores by sqrt(hidden / heads); files do not say so. */
    calm_json_set_int(b->config, "query_pre_attn_scalar", large ? hidden / heads : head_dim);
    for (int i = 0; i < 2; i++) {
        char name[128];
        if (find(b, caps[i], name))
            set_number(b->config, caps[i], take_number(b, caps[i], 0));
        else    /* null is "no cap"; an absent member would be the family's usual one */
            calm_json_set(b->config, caps[i], calm_json_new_null());
    }
}

/* Multipliers: llama.cpp divides Granite's logits, and multiplies Cohere's. */
static void add_scales(builder *b)
{
    static const char *const keys[][2] = {{"embedding_scale", "embedding_multiplier"},
                                          {"residual_scale", "residual_multiplier"},
                                          {"attention.scale", "attention_multiplier"},
                                          {"logit_scale", "logits_scaling"}};
    if (is_family(b, "cohere2"))
        set_number(b->config, "logit_scale", take_number(b, "logit_scale", 0));
    for (size_t i = 0; i < 4 && b->list->as->scaled && !is_family(b, "cohere2"); i++)
        set_number(b->config, keys[i][1], take_number(b, keys[i][0], 0));
}

/* What other families' configs have a word for. */
static void add_others(builder *b, int64_t head_dim)
{
    if (is_family(b, "seed_oss") || is_family(b, "glm4") || is_family(b, "granite") || is_family(b, "granitemoe")
        || is_family(b, "glm4_moe") || is_family(b, "phimoe"))
        calm_json_set_bool(b->config, "attention_bias", has_tensor(b, "blk.0.attn_q.bias"));
    if (b->list->as->head_bias)
        calm_json_set_bool(b->config, "lm_head_bias", has_tensor(b, "output.bias"));
    if (b->list->as->partial)
        calm_json_set_number(b->config, "partial_rotary_factor",
                             (double)take_size(b, "rope.dimension_count", head_dim) / (double)head_dim);
    add_scales(b);
}

/* DeepSeek's router. */
static void add_grouped(builder *b, int64_t inner)
{
    char name[128];
    double norm = 0;
    /* llama.cpp takes a key that is missing for false. */
    const calm_gguf_key *key = find(b, "expert_weights_norm", name);
    if (key && key->kind == CALM_GGUF_BOOL && !key->array)
        norm = key->data[0];
    CALM_EXTEND(b->config, CALM_KV("n_shared_experts", take_count(b, "expert_shared_count")),
                CALM_KV("first_k_dense_replace", take_count(b, "leading_dense_block_count")),
                CALM_KV("moe_intermediate_size", inner), CALM_KV("n_group", take_size(b, "expert_group_count", 1)),
                CALM_KV("topk_group", take_size(b, "expert_group_used_count", 1)));
    set_number(b->config, "routed_scaling_factor", take_number(b, "expert_weights_scale", 1));
    calm_json_set_bool(b->config, "norm_topk_prob", norm != 0);
    if (is_family(b, "glm4_moe"))
        calm_json_set_bool(b->config, "use_qk_norm", has_tensor(b, "blk.0.attn_q_norm.weight"));
}

/* ERNIE's, whose shared experts have the width of one another. */
static void add_ernie(builder *b, int64_t inner)
{
    /* Of all shared experts together, which checkpoints hold as one. */
    const int64_t shared = take_count(b, "expert_shared_feed_forward_length");
    CALM_EXTEND(b->config, CALM_KV("moe_intermediate_size", inner), CALM_KV("moe_num_shared_experts", shared / inner),
                CALM_KV("moe_layer_start_index", take_count(b, "leading_dense_block_count")),
                CALM_KV("moe_layer_interval", take_size(b, "interleave_moe_layer_step", 1)));
    if (shared % inner)
        complain(b, "ernie4_5-moe.expert_shared_feed_forward_length",
                 "expected a multiple of expert_feed_forward_length");
}

/* ---- other ways to mix tokens ---- */

/* Widths of latent attention, of which llama.cpp has those of the wide heads that it makes of them too. */
static void add_latent(builder *b)
{
    if (!b->list->arch->latent)
        return;
    const int64_t q_rank = take_count(b, "attention.q_lora_rank");
    CALM_EXTEND(b->config, CALM_KV("kv_lora_rank", take_size(b, "attention.kv_lora_rank", 0)),
                CALM_KV("qk_nope_head_dim", (int64_t)b->list->widths->nope),
                CALM_KV("qk_rope_head_dim", take_size(b, "rope.dimension_count", 0)),
                CALM_KV("v_head_dim", (int64_t)b->list->widths->value));
    if (q_rank)
        calm_json_set_int(b->config, "q_lora_rank", q_rank);
    else
        calm_json_set(b->config, "q_lora_rank", calm_json_new_null());
}

/* Does block `block` attend: every n-th, or by a list? */
static bool attends(const builder *b, const calm_gguf_key *list, int64_t interval, int64_t block)
{
    int64_t kv = 0;
    /* Of short convolutions one number says that all attend. */
    if (b->list->as->convs)
        return calm_gguf_int(list, list && list->array ? (size_t)block : 0, &kv) && kv > 0;
    if (list && list->array && list->kind == CALM_GGUF_BOOL && (size_t)block < list->n)
        return !list->data[block];
    return (block + 1) % interval == 0;
}

/* Which block mixes tokens how: of short convolutions those without heads for keys; delta nets between those that
 * attend. */
static void add_mixers(builder *b, int64_t n_blocks)
{
    const bool convs = b->list->as->convs;
    char name[128];
    const calm_gguf_key *list = find(b, convs ? "attention.head_count_kv" : "attention.recurrent_layers", name);
    if (!convs && !b->list->as->deltas)
        return;
    const int64_t interval = convs ? 1 : take_size(b, "full_attention_interval", 4);
    calm_json *types = calm_json_new_array();
    /* Some writers count the blocks of a head for several tokens, too. */
    if (list && list->array && list->n < (size_t)n_blocks)
        complain(b, name, "expected at least block_count entries");
    for (int64_t i = 0; i < n_blocks && i < 4096; i++)
        calm_json_add_string(types, attends(b, list, interval, i) ? "full_attention" : convs ? "conv"
                                                                                             : "linear_attention");
    calm_json_set(b->config, "layer_types", types);
    if (convs) {
        set_size(b, "conv_L_cache", "shortconv.l_cache", 0);
        /* Files have the adjusted width. */
        if (!b->list->as->experts)
            calm_json_set_bool(b->config, "block_auto_adjust_ff_dim", false);
        return;
    }
    set_size(b, "linear_conv_kernel_dim", "ssm.conv_kernel", 0);
    CALM_EXTEND(b->config, CALM_KV("linear_key_head_dim", (int64_t)b->list->widths->key_dim),
                CALM_KV("linear_value_head_dim", (int64_t)b->list->widths->value_dim),
                CALM_KV("linear_num_key_heads", (int64_t)b->list->widths->key_heads),
                CALM_KV("linear_num_value_heads", (int64_t)b->list->widths->value_heads));
}

/* Heads for keys: of blocks that attend, where they differ. */
static int64_t take_kv(builder *b, int64_t heads)
{
    char name[128];
    int64_t kv = 0;
    const calm_gguf_key *key = find(b, "attention.head_count_kv", name);
    /* One in llama.cpp, which makes one head of all. */
    if (b->list->arch->latent)
        return heads;
    if (!b->list->as->convs || !key || !key->array)
        return take_size(b, "attention.head_count_kv", heads);
    /* calm has one number for all blocks that attend. */
    for (size_t i = 0; i < key->n && kv <= 0; i++)
        calm_gguf_int(key, i, &kv);
    if (kv < 1 || kv > CALM_SIZE_LIMIT)
        complain(b, name, "expected whole numbers, some above 0");
    return kv < 1 ? 1 : kv;
}

/* ---- mixtures ---- */

/* LFM2's, whose first blocks have none. */
static void add_lfm2(builder *b)
{
    set_size(b, "moe_intermediate_size", "expert_feed_forward_length", 0);
    calm_json_set_int(b->config, "num_dense_layers", take_count(b, "leading_dense_block_count"));
    calm_json_set_bool(b->config, "norm_topk_prob", true);
    calm_json_set_bool(b->config, "use_expert_bias", true);
}

/* Settings of mixtures. */
static void add_experts(builder *b)
{
    /* Keys of the number of experts, and of those for a token; the last row is of all others. */
    static const char *const counts[][3] = {{"glm4_moe", "n_routed_experts", "num_experts_per_tok"},
                                            {"deepseek_v2", "n_routed_experts", "num_experts_per_tok"},
                                            {"deepseek_v3", "n_routed_experts", "num_experts_per_tok"},
                                            {"ernie4_5_moe", "moe_num_experts", "moe_k"},
                                            {"mixtral", "num_local_experts", "num_experts_per_tok"},
                                            {"granitemoe", "num_local_experts", "num_experts_per_tok"},
                                            {"minimax_m2", "num_local_experts", "num_experts_per_tok"},
                                            {"phimoe", "num_local_experts", "num_experts_per_tok"},
                                            {"gpt_oss", "num_local_experts", "num_experts_per_tok"},
                                            {NULL, "num_experts", "num_experts_per_tok"}};
    size_t of = 0;
    const bool shared = is_family(b, "qwen2_moe") || is_family(b, "qwen3_5_moe") || is_family(b, "qwen3_next");
    if (!b->list->as->experts)
        return;
    while (counts[of][0] && !is_family(b, counts[of][0]))
        of++;
    set_size(b, counts[of][1], "expert_count", 0);
    set_size(b, counts[of][2], "expert_used_count", 0);
    if (is_family(b, "glm4_moe") || b->list->arch->latent)
        add_grouped(b, take_size(b, "expert_feed_forward_length", 0));
    if (is_family(b, "lfm2_moe"))
        add_lfm2(b);
    if (is_family(b, "ernie4_5_moe"))
        add_ernie(b, take_size(b, "expert_feed_forward_length", 0));
    /* Elsewhere intermediate_size is an expert's width. */
    if (!shared && !is_family(b, "qwen3_moe"))
        return;
    set_size(b, "moe_intermediate_size", "expert_feed_forward_length", 0);
    if (shared)
        set_size(b, "shared_expert_intermediate_size", "expert_shared_feed_forward_length", 0);
    if (is_family(b, "qwen3_5_moe"))    /* all blocks are mixtures, whose weights are divided by their sum */
        return;
    /* What files do not say is fixed in llama.cpp, by architecture. */
    calm_json_set_bool(b->config, "norm_topk_prob", !is_family(b, "qwen2_moe"));
    calm_json_set_int(b->config, "decoder_sparse_step", 1);
    calm_json_set(b->config, "mlp_only_layers", calm_json_new_array());
}

/* Ids of the tokens that begin and end a text: for the code that generates; the forward pass does not read them. */
static void add_ids(builder *b)
{
    static const char *const keys[2][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                           {"tokenizer.ggml.eos_token_id", "eos_token_id"}};
    int64_t id;
    for (int i = 0; i < 2; i++)
        if (calm_gguf_int(calm_gguf_find_key(b->list->file, keys[i][0]), 0, &id) && id >= 0)
            calm_json_set_int(b->config, keys[i][1], id);
}

/* All of config.json but for what calm's reader would default to the same. */
static void build(builder *b)
{
    const calm_gguf_tensor *table = calm_gguf_find_tensor(b->list->file, "token_embd.weight");
    calm_json *classes = calm_json_new_array(), *config = b->config;
    char word[64];
    first_word(b->list->arch->classes, word);
    calm_json_add_string(classes, word);
    calm_json_set(config, "architectures", classes);
    first_word(calm_arch_model_types(b->list->arch), word);
    calm_json_set_string(config, "model_type", word);
    /* Read one by one, in the order of the members, so that faults are listed in that order. */
    const int64_t n_blocks = take_size(b, "block_count", 0), hidden = take_size(b, "embedding_length", 0);
    const int64_t heads = take_size(b, "attention.head_count", 0), kv = take_kv(b, heads);
    const bool latent = b->list->arch->latent;
    const int64_t quotient = hidden / heads ? hidden / heads : 1;
    /* Of latent attention the part that turns. */
    const int64_t head_dim = latent ? take_size(b, "rope.dimension_count", 0)
                                    : take_size(b, "attention.key_length", quotient);
    const int64_t inner = take_size(b, "feed_forward_length", 0), context = take_size(b, "context_length", 0);
    /* The size of the table, not of the token list: checkpoints pad their tables. */
    const int64_t vocab = table ? (int64_t)table->dims[1] : 1;
    CALM_EXTEND(config, CALM_KV("num_hidden_layers", n_blocks), CALM_KV("hidden_size", hidden),
                CALM_KV("intermediate_size", inner), CALM_KV("num_attention_heads", heads),
                CALM_KV("num_key_value_heads", kv), CALM_KV("head_dim", head_dim),
                CALM_KV("max_position_embeddings", context), CALM_KV("vocab_size", vocab));
    const char *eps = b->list->arch->eps_key                        ? b->list->arch->eps_key
                      : b->list->arch->norm == CALM_NORM_LAYER ? "layer_norm_eps"
                                                                    : "rms_norm_eps";
    if (b->list->as->other)
        set_number(config, eps, take_number(b, "attention.layer_norm_rms_epsilon", 0));
    else if (b->list->arch->norm == CALM_NORM_LAYER)
        set_number(config, eps, take_number(b, "attention.layer_norm_epsilon", 0));
    else
        set_number(config, eps, take_number(b, "attention.layer_norm_rms_epsilon", 0));
    calm_json_set_string(config, "hidden_act",
                         is_gemma(b) || is_family(b, "starcoder2") ? "gelu_pytorch_tanh" : "silu");
    /* A file without output.weight uses the embedding. */
    calm_json_set_bool(config, "tie_word_embeddings", b->list->as->fixed_head || !has_tensor(b, "output.weight"));
    /* The first block decides whether there are biases; a block without them would be a missing tensor later. */
    if (b->list->as->biases && !b->list->as->needs_bias) {
        calm_json_set_bool(config, "attention_bias", has_tensor(b, "blk.0.attn_q.bias"));
        if (is_family(b, "llama"))
            calm_json_set_bool(config, "mlp_bias", has_tensor(b, "blk.0.ffn_down.bias"));
    }
    add_rope(b, context);
    add_windows(b, n_blocks);
    add_gemma(b, n_blocks, hidden, heads, head_dim);
    add_others(b, head_dim);
    add_latent(b);
    add_mixers(b, n_blocks);
    add_experts(b);
    add_ids(b);
}

calm_status calm_gguf_config(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_report_fn *report, void *user,
                             calm_json **out)
{
    builder b = {ctx, list, report, user, calm_json_new_object(), CALM_OK};
    *out = NULL;
    if (!b.config)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory");
    build(&b);
    if (b.status == CALM_OK)
        *out = b.config;
    else
        calm_json_free(b.config);
    return b.status;
}
