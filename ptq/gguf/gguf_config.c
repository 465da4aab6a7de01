/* Makes config.json from a GGUF file. */
#include "ptq/gguf/gguf_config_impl.h"

#include <math.h>
#include <stdio.h>

typedef calm_gguf_config_builder builder;

/* Copies the first of several words that are joined by '|'. */
static void first_word(const char *list, char word[64])
{
    snprintf(word, 64, "%.*s", (int)strcspn(list, "|"), list);
}

/* Is it Gemma 3, with or without its head? */
static bool is_gemma3(const builder *b)
{
    return calm_gguf_is_family(b, "gemma3") || calm_gguf_is_family(b, "embeddinggemma");
}

static bool is_gemma(const builder *b)
{
    return calm_gguf_is_family(b, "gemma2") || is_gemma3(b);
}

/* ---- parts ---- */

/* Adds YaRN's factors of cos and sin and of the scores of latent attention (gguf_arch.c has the formulas). */
static void add_latent_scales(builder *b, calm_json *scaling)
{
    char name[128];
    const calm_gguf_key *key = calm_gguf_find_of(b, "rope.scaling.yarn_log_multiplier", name);
    const double factor = calm_gguf_take_number(b, "rope.scaling.factor", 1), ramp = log(factor);
    const double m = calm_gguf_take_number(b, "rope.scaling.attn_factor", 1);
    const double multiplier = key ? calm_gguf_take_number(b, "rope.scaling.yarn_log_multiplier", 0) : 0;
    const double cosines = key ? m : m * (1 + 0.1 * ramp), scores = m * (1 + multiplier * ramp);
    if (!key || !(ramp > 0)) {
        calm_gguf_set_number(scaling, "attention_factor", cosines);
        return;
    }
    /* The usual pair mscale and mscale_all_dim: cos and sin are multiplied by their quotient, which is 1 if they are
     * equal. */
    calm_gguf_set_number(scaling, "mscale_all_dim", (scores - 1) / (0.1 * ramp));
    if (m == 1)
        calm_gguf_set_number(scaling, "mscale", (scores - 1) / (0.1 * ramp));
    else
        calm_gguf_set_number(scaling, "attention_factor", cosines);
}

/* Adds the rotary embedding.  `context`: length of the training where YaRN's key is absent, as in llama.cpp. */
static void add_rope(builder *b, int64_t context)
{
    char name[128];
    const calm_gguf_key *type = calm_gguf_find_of(b, "rope.scaling.type", name);
    /* An encoder with a table of positions has no rotary embedding; ModernBERT has two bases under other keys. */
    if (b->list->as->bare && (b->list->arch->default_rope_theta == 0 || b->list->arch->theta_key))
        return;
    calm_gguf_set_number(b->config, "rope_theta", calm_gguf_take_number(b, "rope.freq_base", 10000));
    /* llama.cpp has the theta of sliding blocks in its code; older files lack the key. */
    if (is_gemma3(b))
        calm_gguf_set_number(b->config, "rope_local_base_freq", calm_gguf_take_number(b, "rope.freq_base_swa", 10000));
    /* The factors were computed from settings that cannot be recovered from them. */
    if (!b->report && (calm_gguf_has_tensor(b, "rope_freqs.weight") || calm_gguf_is(type, "longrope")))
        b->status = calm_fail(b->ctx, CALM_EUNSUPPORTED,
                              "%s: rotary embeddings have separate factors (rope_freqs.weight), which config.json "
                              "cannot be told from the file; bring the float model's config.json",
                              calm_gguf_path(b->list->file));
    const bool grows = b->list->as->grows, linear = calm_gguf_is(type, "linear");
    /* Other types are "none", or were refused above. */
    const bool yarn = calm_gguf_is(type, "yarn");
    if (!linear && !yarn && !grows)
        return;
    calm_json *scaling = calm_json_new_object();
    calm_json_set_string(scaling, "rope_type", yarn ? "yarn" : linear ? "linear" : "default");
    if (yarn || linear)
        calm_gguf_set_number(scaling, "factor", calm_gguf_take_number(b, "rope.scaling.factor", 1));
    if (yarn || grows)
        calm_json_set_int(scaling, "original_max_position_embeddings",
                          calm_gguf_take_size(b, "rope.scaling.original_context_length", context));
    if (grows)
        calm_gguf_set_number(scaling, "llama_4_scaling_beta",
                             calm_gguf_take_number(b, "attention.temperature_scale", 0.1));
    if (yarn) {
        calm_gguf_set_number(scaling, "beta_fast", calm_gguf_take_number(b, "rope.scaling.yarn_beta_fast", 32));
        calm_gguf_set_number(scaling, "beta_slow", calm_gguf_take_number(b, "rope.scaling.yarn_beta_slow", 1));
        if (b->list->arch->latent)
            add_latent_scales(b, scaling);
        /* All models of the family are trained this way, though llama.cpp rounds the ramp's ends. */
        if (calm_gguf_is_family(b, "gpt_oss"))
            calm_json_set_bool(scaling, "truncate", false);
    }
    calm_json_set(b->config, "rope_scaling", scaling);
}

/* Adds which blocks slide, and their window. */
static void add_windows(builder *b, int64_t n_blocks)
{
    char name[128];
    const calm_gguf_key *pattern = calm_gguf_find_of(b, "attention.sliding_window_pattern", name);
    const bool quarter = calm_gguf_is_family(b, "cohere2") || calm_gguf_is_family(b, "olmo3")
                         || (calm_gguf_is_family(b, "exaone4") && n_blocks == 64);
    if (calm_gguf_is_family(b, "exaone4") && !quarter) {
        calm_json_set(b->config, "sliding_window", calm_json_new_null());
        calm_json_set_int(b->config, "sliding_window_pattern", 1);
    }
    if (!is_gemma(b) && !quarter && !calm_gguf_is_family(b, "gpt_oss") && !b->list->as->shares)
        return;
    calm_json *types = calm_json_new_array();
    calm_gguf_set_size(b, "sliding_window", "attention.sliding_window", is_gemma3(b) ? 1024 : 4096);
    for (int64_t i = 0; i < n_blocks && i < 4096; i++) {
        /* llama.cpp's patterns where the key is absent: every other block, five of six, three of four. */
        const bool other = calm_gguf_is_family(b, "gemma2") || calm_gguf_is_family(b, "gpt_oss");
        bool slides = other ? i % 2 == 0 : quarter ? i % 4 != 3 : i % 6 != 5;
        if (pattern && pattern->array && pattern->kind == CALM_GGUF_BOOL && (size_t)i < pattern->n)
            slides = pattern->data[i] != 0;
        calm_json_add_string(types, slides ? "sliding_attention" : "full_attention");
    }
    calm_json_set(b->config, "layer_types", types);
}

/* Adds settings that only Gemma's configs have. */
static void add_gemma(builder *b, int64_t n_blocks, int64_t hidden, int64_t heads, int64_t head_dim)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    const bool large = n_blocks == (calm_gguf_is_family(b, "gemma2") ? 46 : 62);
    if (!is_gemma(b))
        return;
    calm_json_set_string(b->config, "hidden_activation", "gelu_pytorch_tanh");
    if (b->list->as->both_ways)
        calm_json_set_bool(b->config, "use_bidirectional_attention", true);
    /* Only the largest model of each generation divides scores by sqrt(hidden / heads); files do not say so. */
    calm_json_set_int(b->config, "query_pre_attn_scalar", large ? hidden / heads : head_dim);
    for (int i = 0; i < 2; i++) {
        char name[128];
        if (calm_gguf_find_of(b, caps[i], name))
            calm_gguf_set_number(b->config, caps[i], calm_gguf_take_number(b, caps[i], 0));
        else    /* null is "no cap"; an absent member would be the family's default */
            calm_json_set(b->config, caps[i], calm_json_new_null());
    }
}

/* Adds multipliers: llama.cpp divides Granite's logits, and multiplies Cohere's. */
static void add_scales(builder *b)
{
    static const char *const keys[][2] = {{"embedding_scale", "embedding_multiplier"},
                                          {"residual_scale", "residual_multiplier"},
                                          {"attention.scale", "attention_multiplier"},
                                          {"logit_scale", "logits_scaling"}};
    if (calm_gguf_is_family(b, "cohere2"))
        calm_gguf_set_number(b->config, "logit_scale", calm_gguf_take_number(b, "logit_scale", 0));
    for (size_t i = 0; i < 4 && b->list->as->scaled && !calm_gguf_is_family(b, "cohere2"); i++)
        calm_gguf_set_number(b->config, keys[i][1], calm_gguf_take_number(b, keys[i][0], 0));
}

/* Adds settings that only some families' configs have. */
static void add_others(builder *b, int64_t head_dim)
{
    static const char *const biased[] = {"seed_oss", "glm4", "granite", "granitemoe", "glm4_moe", "phimoe"};
    for (size_t i = 0; i < sizeof biased / sizeof *biased; i++)
        if (calm_gguf_is_family(b, biased[i]))
            calm_json_set_bool(b->config, "attention_bias", calm_gguf_has_tensor(b, "blk.0.attn_q.bias"));
    if (b->list->as->head_bias)
        calm_json_set_bool(b->config, "lm_head_bias", calm_gguf_has_tensor(b, "output.bias"));
    if (b->list->as->partial)
        calm_json_set_number(b->config, "partial_rotary_factor",
                             (double)calm_gguf_take_size(b, "rope.dimension_count", head_dim) / (double)head_dim);
    add_scales(b);
}

/* Adds DeepSeek's router. */
static void add_grouped(builder *b, int64_t inner)
{
    char name[128];
    double norm = 0;
    /* llama.cpp reads an absent key as false. */
    const calm_gguf_key *key = calm_gguf_find_of(b, "expert_weights_norm", name);
    if (key && key->kind == CALM_GGUF_BOOL && !key->array)
        norm = key->data[0];
    CALM_EXTEND(b->config, CALM_KV("n_shared_experts", calm_gguf_take_count(b, "expert_shared_count")),
                CALM_KV("first_k_dense_replace", calm_gguf_take_count(b, "leading_dense_block_count")),
                CALM_KV("moe_intermediate_size", inner),
                CALM_KV("n_group", calm_gguf_take_size(b, "expert_group_count", 1)),
                CALM_KV("topk_group", calm_gguf_take_size(b, "expert_group_used_count", 1)));
    calm_gguf_set_number(b->config, "routed_scaling_factor", calm_gguf_take_number(b, "expert_weights_scale", 1));
    calm_json_set_bool(b->config, "norm_topk_prob", norm != 0);
    if (calm_gguf_is_family(b, "glm4_moe"))
        calm_json_set_bool(b->config, "use_qk_norm", calm_gguf_has_tensor(b, "blk.0.attn_q_norm.weight"));
}

/* Adds ERNIE's experts; each of its shared experts has the width of a routed one. */
static void add_ernie(builder *b, int64_t inner)
{
    /* The width of all shared experts together, which checkpoints store as one. */
    const int64_t shared = calm_gguf_take_count(b, "expert_shared_feed_forward_length");
    CALM_EXTEND(b->config, CALM_KV("moe_intermediate_size", inner), CALM_KV("moe_num_shared_experts", shared / inner),
                CALM_KV("moe_layer_start_index", calm_gguf_take_count(b, "leading_dense_block_count")),
                CALM_KV("moe_layer_interval", calm_gguf_take_size(b, "interleave_moe_layer_step", 1)));
    if (shared % inner)
        calm_gguf_complain(b, "ernie4_5-moe.expert_shared_feed_forward_length",
                 "expected a multiple of expert_feed_forward_length");
}

/* ---- mixers ---- */

/* Adds the widths of latent attention; llama.cpp also has keys for the wide heads that it derives from them. */
static void add_latent(builder *b)
{
    if (!b->list->arch->latent)
        return;
    const int64_t q_rank = calm_gguf_take_count(b, "attention.q_lora_rank");
    CALM_EXTEND(b->config, CALM_KV("kv_lora_rank", calm_gguf_take_size(b, "attention.kv_lora_rank", 0)),
                CALM_KV("qk_nope_head_dim", (int64_t)b->list->widths->nope),
                CALM_KV("qk_rope_head_dim", calm_gguf_take_size(b, "rope.dimension_count", 0)),
                CALM_KV("v_head_dim", (int64_t)b->list->widths->value));
    if (q_rank)
        calm_json_set_int(b->config, "q_lora_rank", q_rank);
    else
        calm_json_set(b->config, "q_lora_rank", calm_json_new_null());
}

/* Does the block attend, by a list or as every n-th block? */
static bool attends(const builder *b, const calm_gguf_key *list, int64_t interval, int64_t block)
{
    int64_t kv = 0;
    /* With short convolutions a single number means that all blocks attend. */
    if (b->list->as->convs)
        return calm_gguf_int(list, list && list->array ? (size_t)block : 0, &kv) && kv > 0;
    if (list && list->array && list->kind == CALM_GGUF_BOOL && (size_t)block < list->n)
        return !list->data[block];
    return (block + 1) % interval == 0;
}

/* Adds each block's mixer: blocks without key heads are short convolutions; delta nets are the blocks that do not
 * attend. */
static void add_mixers(builder *b, int64_t n_blocks)
{
    const bool convs = b->list->as->convs;
    char name[128];
    const calm_gguf_key *list =
        calm_gguf_find_of(b, convs ? "attention.head_count_kv" : "attention.recurrent_layers", name);
    if (!convs && !b->list->as->deltas)
        return;
    const int64_t interval = convs ? 1 : calm_gguf_take_size(b, "full_attention_interval", 4);
    calm_json *types = calm_json_new_array();
    /* Some writers also count the blocks of multi-token prediction. */
    if (list && list->array && list->n < (size_t)n_blocks)
        calm_gguf_complain(b, name, "expected at least block_count entries");
    for (int64_t i = 0; i < n_blocks && i < 4096; i++)
        calm_json_add_string(types, attends(b, list, interval, i) ? "full_attention" : convs ? "conv"
                                                                                             : "linear_attention");
    calm_json_set(b->config, "layer_types", types);
    if (convs) {
        calm_gguf_set_size(b, "conv_L_cache", "shortconv.l_cache", 0);
        /* Files have the adjusted width. */
        if (!b->list->as->experts)
            calm_json_set_bool(b->config, "block_auto_adjust_ff_dim", false);
        return;
    }
    calm_gguf_set_size(b, "linear_conv_kernel_dim", "ssm.conv_kernel", 0);
    CALM_EXTEND(b->config, CALM_KV("linear_key_head_dim", (int64_t)b->list->widths->key_dim),
                CALM_KV("linear_value_head_dim", (int64_t)b->list->widths->value_dim),
                CALM_KV("linear_num_key_heads", (int64_t)b->list->widths->key_heads),
                CALM_KV("linear_num_value_heads", (int64_t)b->list->widths->value_heads));
}

/* Returns the number of key heads, of blocks that attend where blocks differ. */
static int64_t take_kv(builder *b, int64_t heads)
{
    char name[128];
    const calm_gguf_key *key = calm_gguf_find_of(b, "attention.head_count_kv", name);
    /* llama.cpp has 1 here, since it merges all heads into one. */
    if (b->list->arch->latent)
        return heads;
    if (!(b->list->as->convs || b->list->as->scans || b->list->as->shares) || !key || !key->array)
        return calm_gguf_take_size(b, "attention.head_count_kv", heads);
    /* calm has one number for all blocks that attend; with Mamba-2 it may be 0. */
    return calm_gguf_take_first(b, "attention.head_count_kv", b->list->as->scans ? heads : 0);
}

/* ---- mixtures ---- */

/* Adds LFM2's mixtures, which the first blocks do not have. */
static void add_lfm2(builder *b)
{
    calm_gguf_set_size(b, "moe_intermediate_size", "expert_feed_forward_length", 0);
    calm_json_set_int(b->config, "num_dense_layers", calm_gguf_take_count(b, "leading_dense_block_count"));
    calm_json_set_bool(b->config, "norm_topk_prob", true);
    calm_json_set_bool(b->config, "use_expert_bias", true);
}

/* Adds Llama 4's mixtures; settings that files lack are constants in llama.cpp and defaults of the class. */
static void add_llama4(builder *b, int64_t inner)
{
    calm_gguf_set_size(b, "intermediate_size_mlp", "feed_forward_length", 0);
    calm_json_set_int(b->config, "intermediate_size", inner);
    calm_json_set_int(b->config, "interleave_moe_layer_step", calm_gguf_take_size(b, "interleave_moe_layer_step", 1));
    /* Only the model with 128 experts has no norms of heads. */
    calm_json_set_bool(b->config, "use_qk_norm", calm_gguf_take_size(b, "expert_count", 0) != 128);
}

/* Adds settings of mixtures. */
static void add_experts(builder *b)
{
    /* Keys of the number of experts and of those of a token; the last row is for all other families. */
    static const char *const counts[][3] = {{"glm4_moe", "n_routed_experts", "num_experts_per_tok"},
                                            {"deepseek_v2", "n_routed_experts", "num_experts_per_tok"},
                                            {"deepseek_v3", "n_routed_experts", "num_experts_per_tok"},
                                            {"ernie4_5_moe", "moe_num_experts", "moe_k"},
                                            {"mixtral", "num_local_experts", "num_experts_per_tok"},
                                            {"granitemoe", "num_local_experts", "num_experts_per_tok"},
                                            {"llama4", "num_local_experts", "num_experts_per_tok"},
                                            {"granitemoehybrid", "num_local_experts", "num_experts_per_tok"},
                                            {"nemotron_h", "n_routed_experts", "num_experts_per_tok"},
                                            {"minimax_m2", "num_local_experts", "num_experts_per_tok"},
                                            {"phimoe", "num_local_experts", "num_experts_per_tok"},
                                            {"gpt_oss", "num_local_experts", "num_experts_per_tok"},
                                            {"gemma4", "num_experts", "top_k_experts"},
                                            {NULL, "num_experts", "num_experts_per_tok"}};
    size_t of = 0;
    const bool shared = calm_gguf_is_family(b, "qwen2_moe") || calm_gguf_is_family(b, "qwen3_5_moe")
                        || calm_gguf_is_family(b, "qwen3_next");
    if (!b->list->as->experts)
        return;
    while (counts[of][0] && !calm_gguf_is_family(b, counts[of][0]))
        of++;
    calm_gguf_set_size(b, counts[of][1], "expert_count", 0);
    calm_gguf_set_size(b, counts[of][2], "expert_used_count", 0);
    if (calm_gguf_is_family(b, "glm4_moe") || b->list->arch->latent)
        add_grouped(b, calm_gguf_take_size(b, "expert_feed_forward_length", 0));
    if (calm_gguf_is_family(b, "lfm2_moe"))
        add_lfm2(b);
    if (calm_gguf_is_family(b, "llama4"))
        add_llama4(b, calm_gguf_take_size(b, "expert_feed_forward_length", 0));
    if (calm_gguf_is_family(b, "ernie4_5_moe"))
        add_ernie(b, calm_gguf_take_size(b, "expert_feed_forward_length", 0));
    /* In other families intermediate_size is the width of an expert. */
    if (!shared && !calm_gguf_is_family(b, "qwen3_moe"))
        return;
    calm_gguf_set_size(b, "moe_intermediate_size", "expert_feed_forward_length", 0);
    if (shared)
        calm_gguf_set_size(b, "shared_expert_intermediate_size", "expert_shared_feed_forward_length", 0);
    if (calm_gguf_is_family(b, "qwen3_5_moe"))    /* all blocks are mixtures, whose weights are divided by their sum */
        return;
    /* Settings that files lack are constants in llama.cpp, by architecture. */
    calm_json_set_bool(b->config, "norm_topk_prob", !calm_gguf_is_family(b, "qwen2_moe"));
    calm_json_set_int(b->config, "decoder_sparse_step", 1);
    calm_json_set(b->config, "mlp_only_layers", calm_json_new_array());
}

/* Adds the ids of the tokens that begin and end a text, for text generation; the forward pass does not read them. */
static void add_ids(builder *b)
{
    static const char *const keys[2][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                           {"tokenizer.ggml.eos_token_id", "eos_token_id"}};
    int64_t id;
    for (int i = 0; i < 2; i++)
        if (calm_gguf_int(calm_gguf_find_key(b->list->file, keys[i][0]), 0, &id) && id >= 0)
            calm_json_set_int(b->config, keys[i][1], id);
}

/* Checks the key of a family whose eps is a constant: a file may contradict it. */
static void check_eps(builder *b)
{
    static const char rest[] = "attention.layer_norm_epsilon";
    if ((float)calm_gguf_take_number(b, rest, 0) != (float)b->list->arch->default_eps)
        calm_gguf_complain_of(b, rest, "expected 1e-12, as all models without token_types.weight have it");
}

/* Builds config.json, without members that calm's reader would default to the same values. */
static void build(builder *b)
{
    const calm_gguf_tensor *table = calm_gguf_find_tensor(b->list->file, "token_embd.weight");
    calm_json *classes = calm_json_new_array(), *config = b->config;
    char word[64];
    first_word(b->list->arch->classes, word);
    /* Files of encoders have no head. */
    if (b->list->as->bare && b->list->arch->stem)
        snprintf(word, sizeof word, "%.*sModel", (int)strcspn(b->list->arch->stem, "|"), b->list->arch->stem);
    calm_json_add_string(classes, word);
    calm_json_set(config, "architectures", classes);
    first_word(calm_arch_model_types(b->list->arch), word);
    calm_json_set_string(config, "model_type", word);
    /* Keys are read in the order of the members, so that faults are listed in that order. */
    const int64_t n_blocks = calm_gguf_take_size(b, "block_count", 0);
    const int64_t hidden = calm_gguf_take_size(b, "embedding_length", 0);
    const int64_t heads = calm_gguf_take_size(b, "attention.head_count", 0), kv = take_kv(b, heads);
    const bool latent = b->list->arch->latent;
    const int64_t quotient = hidden / heads ? hidden / heads : 1;
    /* Of latent attention the width of the rotated part. */
    const int64_t head_dim = latent ? calm_gguf_take_size(b, "rope.dimension_count", 0)
                                    : calm_gguf_take_size(b, "attention.key_length", quotient);
    /* Models with blocks of one sublayer have a list of widths, others may. */
    const int64_t inner = b->list->as->single   ? calm_gguf_take_first(b, "feed_forward_length", 1)
                          : b->list->as->shares ? calm_gguf_take_first(b, "feed_forward_length", 0)
                                                : calm_gguf_take_size(b, "feed_forward_length", 0);
    const int64_t context = calm_gguf_take_size(b, "context_length", 0);
    /* The vocabulary is the size of the table, not of the token list: checkpoints pad their tables. */
    const int64_t vocab = table ? (int64_t)table->dims[1] : 1;
    const calm_size_keys *sizes = b->list->arch->sizes;
    /* Encoders have their own member names; llama.cpp needs keys for values that their families fix. */
    const calm_size_keys *own = b->list->as->bare ? sizes : NULL;
    CALM_EXTEND(config, CALM_KV(own ? own->blocks : "num_hidden_layers", n_blocks),
                CALM_KV(own ? own->hidden : "hidden_size", hidden),
                CALM_KV(own ? own->inner : "intermediate_size", inner),
                CALM_KV(own ? own->heads : "num_attention_heads", heads),
                CALM_KV("num_key_value_heads", kv), CALM_KV("head_dim", head_dim),
                CALM_KV("max_position_embeddings", context), CALM_KV("vocab_size", vocab));
    const char *eps = sizes && sizes->eps                           ? sizes->eps
                      : b->list->arch->eps_key                      ? b->list->arch->eps_key
                      : b->list->arch->norm == CALM_NORM_LAYER ? "layer_norm_eps"
                                                                    : "rms_norm_eps";
    if (b->list->as->other)
        calm_gguf_set_number(config, eps, calm_gguf_take_number(b, "attention.layer_norm_rms_epsilon", 0));
    else if (!*eps)
        check_eps(b);
    else if (b->list->arch->norm == CALM_NORM_LAYER)
        calm_gguf_set_number(config, eps, calm_gguf_take_number(b, "attention.layer_norm_epsilon", 0));
    else
        calm_gguf_set_number(config, eps, calm_gguf_take_number(b, "attention.layer_norm_rms_epsilon", 0));
    const bool gelu = is_gemma(b) || b->list->as->shares || calm_gguf_is_family(b, "starcoder2");
    if (!own)
        calm_json_set_string(config, "hidden_act", gelu ? "gelu_pytorch_tanh" : "silu");
    /* A file without output.weight uses the embedding. */
    calm_json_set_bool(config, "tie_word_embeddings",
                       b->list->as->fixed_head || !calm_gguf_has_tensor(b, "output.weight"));
    /* The first block decides whether there are biases; a later block without them would be a missing tensor. */
    if (b->list->as->biases && !b->list->as->needs_bias && !b->list->as->bare) {
        calm_json_set_bool(config, "attention_bias", calm_gguf_has_tensor(b, "blk.0.attn_q.bias"));
        if (calm_gguf_is_family(b, "llama"))
            calm_json_set_bool(config, "mlp_bias", calm_gguf_has_tensor(b, "blk.0.ffn_down.bias"));
    }
    if (!b->list->as->shares)
        add_rope(b, context);
    add_windows(b, n_blocks);
    calm_gguf_add_sharing(b, n_blocks, inner);
    add_gemma(b, n_blocks, hidden, heads, head_dim);
    add_others(b, head_dim);
    add_latent(b);
    add_mixers(b, n_blocks);
    calm_gguf_add_scans(b, n_blocks, hidden);
    add_experts(b);
    add_ids(b);
    calm_gguf_add_encoder(b, n_blocks, context);
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
