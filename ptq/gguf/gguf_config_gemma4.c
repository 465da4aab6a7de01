/* Makes config.json of Gemma 3n and 4 from a GGUF file: widths that differ between blocks, and shared keys and values.
 *
 * Source: llama.cpp's src/models/gemma3n.cpp and gemma4.cpp. */
#include <math.h>
#include <stdio.h>

#include "ptq/gguf/gguf_config_impl.h"

typedef calm_gguf_config_builder builder;

#define FACTORS "rope_freqs.weight"

/* Does the block slide?  By the pattern, which llama.cpp needs; the last block never slides. */
static bool slides(const calm_gguf_key *pattern, int64_t n_blocks, int64_t block)
{
    return block + 1 < n_blocks && pattern && pattern->array && pattern->kind == CALM_GGUF_BOOL
           && (size_t)block < pattern->n && pattern->data[block] != 0;
}

/* ---- rotary embeddings ---- */

/* {"rope_type": TYPE, "rope_theta": THETA} */
static calm_json *new_rope(const char *type, double theta)
{
    calm_json *rope = calm_json_new_object();
    calm_json_set_string(rope, "rope_type", type);
    calm_gguf_set_number(rope, "rope_theta", theta);
    return rope;
}

/* Returns the share of rotated pairs, n of `half`, which a reader of config.json rounds down. */
static double share_of(size_t n, size_t half)
{
    const double share = (double)n / (double)half;
    return floor(share * (double)half) == (double)n ? share : ((double)n + 0.5) / (double)half;
}

/* Adds the rotary embedding of full blocks: the first pairs rotate, all with the same factor, the others do not. */
static void add_proportional(builder *b, calm_json *rope, int64_t head_dim)
{
    const calm_gguf_tensor *tensor = calm_gguf_find_tensor(b->list->file, FACTORS);
    const size_t half = (size_t)head_dim / 2;
    size_t n = 0, bad = 0;
    float first = 1, value;
    /* The tensor's size and values are untrusted. */
    if (!tensor || tensor->type != CALM_GGML_F32 || tensor->n_dims != 1 || tensor->dims[0] != half || !half) {
        calm_gguf_complain(b, FACTORS, "expected half of attention.key_length numbers of F32");
        return;
    }
    for (size_t i = 0; i < half; i++) {
        memcpy(&value, tensor->data + i * sizeof value, sizeof value);
        const bool stands = value >= 1e-3F * CALM_GGUF_UNROTATED;
        first = i ? first : value;
        bad += !stands && (!(value > 0) || value != first || n != i);
        n += !stands;
    }
    if (bad)
        calm_gguf_complain(b, FACTORS, "expected one factor above 0 for the first pairs, and 1e30 for the others");
    calm_json_set_number(rope, "partial_rotary_factor", share_of(n, half));
    if (n && first != 1)
        calm_gguf_set_number(rope, "factor", (double)first);
}

static void add_ropes(builder *b, int64_t head_dim)
{
    const bool plain = b->list->arch->names->streams != NULL;
    calm_json *both = calm_json_new_object();
    calm_json *full = new_rope(plain ? "default" : "proportional", calm_gguf_take_number(b, "rope.freq_base", 10000));
    calm_json *slide = new_rope("default", calm_gguf_take_number(b, "rope.freq_base_swa", 10000));
    if (!plain)
        add_proportional(b, full, head_dim);
    calm_json_set(both, "full_attention", full);
    calm_json_set(both, "sliding_attention", slide);
    calm_json_set(b->config, "rope_parameters", both);
}

/* ---- heads ---- */

/* Returns a block's number of key heads; llama.cpp uses that of query heads where the key is absent. */
static int64_t kv_of(builder *b, int64_t block)
{
    char name[128];
    const int64_t n = calm_gguf_of_block(calm_gguf_find_of(b, "attention.head_count_kv", name), block);
    return n ? n : calm_gguf_take_size(b, "attention.head_count", 1);
}

/* Adds per_layer_config, as transformers 5 writes it, with an entry for each full block. */
static void add_entries(builder *b, const calm_gguf_key *pattern, int64_t n_blocks, int64_t head_dim)
{
    calm_json *entries = calm_json_new_object();
    for (int64_t i = 0; i < n_blocks && i < 4096; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        if (!slides(pattern, n_blocks, i))
            calm_json_set(entries, number, CALM_OBJECT(CALM_KV("head_dim", head_dim),
                                                       CALM_KV("num_key_value_heads", kv_of(b, i))));
    }
    calm_json_set(b->config, "per_layer_config", entries);
}

/* Are values computed from the keys, since a full block has no linear of v? */
static bool k_is_v(const builder *b, const calm_gguf_key *pattern, int64_t n_blocks, int64_t n_own)
{
    char name[64];
    while (n_own > 0 && slides(pattern, n_blocks, n_own - 1))
        n_own--;
    snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)n_own - 1);
    return n_own > 0 && !calm_gguf_has_tensor(b, name);
}

static void add_heads(builder *b, const calm_gguf_key *pattern, int64_t n_blocks, int64_t n_own)
{
    const int64_t full = calm_gguf_take_size(b, "attention.key_length", 0);
    int64_t first = 0;
    calm_gguf_set_size(b, "head_dim", "attention.key_length_swa", full);
    while (first + 1 < n_blocks && !slides(pattern, n_blocks, first))
        first++;
    /* Without sliding blocks the number is that of any block. */
    calm_json_set_int(b->config, "num_key_value_heads", kv_of(b, first));
    calm_json_set_bool(b->config, "attention_k_eq_v", k_is_v(b, pattern, n_blocks, n_own));
    add_entries(b, pattern, n_blocks, full);
    add_ropes(b, full);
}

/* ---- the rest ---- */

/* Adds the residual streams; their settings are constants in llama.cpp. */
static void add_streams(builder *b, int64_t n_blocks)
{
    const calm_gguf_tensor *left = calm_gguf_find_tensor(b->list->file, "blk.0.laurel_l.weight");
    calm_json *shares = calm_json_new_array();
    for (int64_t i = 0; i < n_blocks && i < 4096; i++)
        calm_json_add(shares, calm_json_of_number(i < 10 ? 0.95 : 0));
    calm_json_set(b->config, "activation_sparsity_pattern", shares);
    CALM_EXTEND(b->config, CALM_KV("altup_num_inputs", calm_gguf_take_size(b, "altup.num_inputs", 4)),
                CALM_KV("altup_active_idx", calm_gguf_take_count(b, "altup.active_idx")),
                CALM_KV("laurel_rank", left && left->n_dims == 2 ? left->dims[1] : 64));
    calm_json_set_number(b->config, "final_logit_softcapping", 30);
    add_ropes(b, 0);
}

static void add_cap(builder *b)
{
    char name[128];
    double cap = 0;
    const calm_gguf_key *key = calm_gguf_find_of(b, "final_logit_softcapping", name);
    const bool zero = key && calm_gguf_number(key, 0, &cap) && cap == 0;
    /* llama.cpp caps at 30 where the key is absent. */
    if (zero)
        calm_json_set(b->config, "final_logit_softcapping", calm_json_new_null());
    else
        calm_gguf_set_number(b->config, "final_logit_softcapping",
                             calm_gguf_take_number(b, "final_logit_softcapping", 30));
}

void calm_gguf_add_sharing(builder *b, int64_t n_blocks, int64_t inner)
{
    char name[128], inner_name[128];
    const calm_gguf_key *pattern = calm_gguf_find_of(b, "attention.sliding_window_pattern", name);
    const calm_gguf_key *widths = calm_gguf_find_of(b, "feed_forward_length", inner_name);
    if (!b->list->as->shares)
        return;
    if (!pattern || !pattern->array || pattern->kind != CALM_GGUF_BOOL || pattern->n < (size_t)n_blocks)
        calm_gguf_complain(b, name, "expected a list of at least block_count booleans");
    const int64_t n_shared = calm_gguf_take_count(b, "attention.shared_kv_layers");
    const calm_gguf_tensor *table = calm_gguf_find_tensor(b->list->file, "per_layer_token_embd.weight");
    CALM_EXTEND(b->config, CALM_KV("num_kv_shared_layers", n_shared),
                CALM_KV("hidden_size_per_layer_input", calm_gguf_take_count(b, "embedding_length_per_layer_input")));
    if (table)
        calm_json_set_int(b->config, "vocab_size_per_layer_input", (int64_t)table->dims[1]);
    if (b->list->arch->names->streams) {
        add_streams(b, n_blocks);
        return;
    }
    /* With other widths a tensor's shape would not match. */
    calm_json_set_bool(b->config, "use_double_wide_mlp",
                       n_shared > 0 && calm_gguf_of_block(widths, n_blocks - 1) == 2 * inner);
    add_heads(b, pattern, n_blocks, n_blocks - n_shared);
    add_cap(b);
    calm_json_set_bool(b->config, "enable_moe_block", b->list->as->experts);
    if (b->list->as->experts)
        calm_gguf_set_size(b, "moe_intermediate_size", "expert_feed_forward_length", 0);
}
