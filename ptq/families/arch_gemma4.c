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

/* Does the block slide?  Call it after the windows are read. */
static bool slides(const calm_config *config, size_t block)
{
    return config->window[block] != 0;
}

/* ---- widths of heads ---- */

/* Reads one block's entry of per_layer_config. */
static calm_status read_entry(calm_ctx *ctx, const source *from, const char *number, const calm_json *entry,
                              calm_block_shape *shape)
{
    const char *key;
    const calm_json *value;
    /* Both default to the model's own values. */
    size_t *const out[] = {&shape->head_dim, &shape->n_kv};
    for (void *iter = NULL; calm_json_next(entry, &iter, &key, &value);) {
        const int which = strcmp(key, "head_dim") == 0 ? 0 : strcmp(key, "num_key_value_heads") == 0 ? 1 : -1;
        if (which < 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"per_layer_config\": \"%s\": \"%s\" is not supported; "
                             "expected head_dim or num_key_value_heads", from->path, number, key);
        CALM_TRY(calm_config_size(ctx, from->path, entry, key, &(int64_t){(int64_t)*out[which]}, out[which]));
    }
    return CALM_OK;
}

/* Reads per_layer_config, the spelling of transformers 5: {"5": {"head_dim": 512}}. */
static calm_status read_entries(calm_ctx *ctx, const source *from, const calm_json *entries, calm_config *config)
{
    const char *key;
    const calm_json *value;
    CALM_TRY(calm_json_expect(ctx, entries, CALM_JSON_OBJECT, "%s: \"per_layer_config\"", from->path));
    for (void *iter = NULL; calm_json_next(entries, &iter, &key, &value);) {
        const size_t n = strlen(key);
        size_t block = 0;
        /* Parses digits until the number exceeds the blocks. */
        for (size_t i = 0; i < n && block < config->n_blocks; i++)
            block = key[i] >= '0' && key[i] <= '9' ? 10 * block + (size_t)(key[i] - '0') : config->n_blocks;
        if (n == 0 || block >= config->n_blocks)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"per_layer_config\": \"%s\": expected the number of a block, "
                             "below %zu", from->path, key, config->n_blocks);
        CALM_TRY(calm_json_expect(ctx, value, CALM_JSON_OBJECT, "%s: \"per_layer_config\": \"%s\"", from->path, key));
        CALM_TRY(read_entry(ctx, from, key, value, &config->shapes[block]));
    }
    return CALM_OK;
}

/* Reads the spelling of published files: one width and number of heads for all full blocks. */
static calm_status read_global(calm_ctx *ctx, const source *from, bool k_is_v, calm_config *config)
{
    size_t width, n_kv;
    CALM_TRY(calm_config_size(ctx, from->path, from->root, "global_head_dim", &(int64_t){512}, &width));
    CALM_TRY(calm_config_size(ctx, from->path, from->root, "num_global_key_value_heads",
                              &(int64_t){(int64_t)config->n_kv}, &n_kv));
    for (size_t i = 0; i < config->n_blocks; i++) {
        if (slides(config, i))
            continue;
        config->shapes[i].head_dim = width;
        /* transformers reads the number only with attention_k_eq_v. */
        config->shapes[i].n_kv = k_is_v ? n_kv : config->n_kv;
    }
    return CALM_OK;
}

/* Checks that blocks of a type are alike: they share a rotary embedding, and may share keys. */
static calm_status check_heads(calm_ctx *ctx, const source *from, const calm_config *config)
{
    const calm_block_shape *first[2] = {NULL, NULL};
    for (size_t i = 0; i < config->n_blocks; i++) {
        const calm_block_shape *shape = &config->shapes[i];
        const bool slide = slides(config, i);
        if (!first[slide])
            first[slide] = shape;
        if (shape->head_dim != first[slide]->head_dim || shape->n_kv != first[slide]->n_kv)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"per_layer_config\": block %zu has %zu heads of %zu for "
                             "keys, expected %zu of %zu as another block of its type", from->path, i, shape->n_kv,
                             shape->head_dim, first[slide]->n_kv, first[slide]->head_dim);
        if (config->n_heads % shape->n_kv != 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: num_attention_heads %zu is not a multiple of the %zu key heads of "
                             "block %zu", from->path, config->n_heads, shape->n_kv, i);
        if (shape->head_dim % 2 != 0 || config->n_heads * shape->head_dim > (size_t)CALM_SIZE_LIMIT)
            return calm_fail(ctx, CALM_EFORMAT, "%s: block %zu: heads of %zu: expected an even number, and at most "
                             "%lld channels of all %zu heads", from->path, i, shape->head_dim,
                             (long long)CALM_SIZE_LIMIT, config->n_heads);
    }
    return CALM_OK;
}

/* Reads either spelling; the newer one takes precedence. */
static calm_status read_widths(calm_ctx *ctx, const source *from, calm_config *config)
{
    const calm_json *entries = calm_json_get(from->root, "per_layer_config");
    bool k_is_v;
    CALM_TRY(calm_json_need_bool(ctx, from->path, from->root, "attention_k_eq_v", &(bool){false}, &k_is_v));
    /* Sliding blocks always have a linear of v. */
    for (size_t i = 0; i < config->n_blocks; i++)
        config->shapes[i].k_is_v = k_is_v && !slides(config, i);
    if (calm_json_typeof(entries) != CALM_JSON_NULL)
        CALM_TRY(read_entries(ctx, from, entries, config));
    else
        CALM_TRY(read_global(ctx, from, k_is_v, config));
    return check_heads(ctx, from, config);
}

/* ---- rotary embeddings ---- */

/* Reads the rotary embeddings; without "rope_parameters" they are those of the published models. */
static calm_status read_ropes(calm_ctx *ctx, const source *from, calm_config *config)
{
    const calm_json *parameters = calm_json_get(from->root, "rope_parameters");
    const bool none = calm_json_typeof(parameters) == CALM_JSON_NULL;
    static const char *const classic[] = {"rope_scaling", "rope_theta"};
    /* The class has no older spelling; a theta next to the objects, which have their own, is ignored. */
    for (size_t i = 0; i < (none ? 2 : 1); i++)
        if (calm_json_typeof(calm_json_get(from->root, classic[i])) != CALM_JSON_NULL)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\" is not known for gemma4; expected "
                             "\"rope_parameters\"", from->path, classic[i]);
    /* The defaults of transformers' class. */
    if (none) {
        config->rope[CALM_ROPE_GLOBAL].kind = CALM_ROPE_PROPORTIONAL;
        config->rope[CALM_ROPE_GLOBAL].share = 0.25;
    }
    for (size_t i = 0; i < config->n_blocks; i++) {
        const bool slide = slides(config, i);
        const char *type = slide ? "sliding_attention" : "full_attention";
        calm_rope_config *rope = &config->rope[slide ? CALM_ROPE_LOCAL : CALM_ROPE_GLOBAL];
        if (!none && calm_json_typeof(calm_json_get(parameters, type)) != CALM_JSON_OBJECT)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"rope_parameters\": expected an object \"%s\", which block %zu "
                             "has", from->path, type, i);
        /* The settings were read by the model's usual head width, which also determines the length of lists of
         * factors. */
        if (rope->kind == CALM_ROPE_LONGROPE || rope->kind == CALM_ROPE_DYNAMIC)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"rope_parameters\": \"%s\": rope_type longrope or dynamic "
                             "is not supported for gemma4", from->path, type);
        rope->rotary = config->shapes[i].head_dim;
    }
    return CALM_OK;
}

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
    CALM_TRY(read_widths(ctx, &from, config));
    CALM_TRY(read_ropes(ctx, &from, config));
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
