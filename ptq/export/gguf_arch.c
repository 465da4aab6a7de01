/* A model's architecture as keys of a GGUF file.
 *
 * Source: what llama.cpp's src/models/<architecture>.cpp reads and computes. */
#include "ptq/export/gguf_arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/model/arch.h"
#include "ptq/model/gguf_names.h"

/* What llama.cpp takes for gemma2 when nothing is said. */
#define GEMMA2_WINDOW 4096

static bool is_family(const calm_config *config, const char *name)
{
    return strcmp(config->arch->name, name) == 0;
}

/* ---- checks ---- */

/* llama.cpp scales by the head's width, in the largest Gemmas (known by their number of blocks) by hidden / heads. */
static bool scale_is_known(const calm_config *config)
{
    double width = (double)config->head_dim;
    if ((is_family(config, "gemma2") && config->n_blocks == 46)
        || (is_family(config, "gemma3") && config->n_blocks == 62))
        width = (double)(config->hidden / config->n_heads);
    return fabs((double)config->attention_scale * sqrt(width) - 1) < 1e-6;
}

/* Does the family slide in llama.cpp? */
static bool slides(const calm_config *config)
{
    return is_family(config, "gemma2") || is_family(config, "gemma3");
}

static size_t largest_window(const calm_config *config)
{
    size_t window = 0;
    for (size_t i = 0; i < config->n_blocks; i++)
        window = config->window[i] > window ? config->window[i] : window;
    return window;
}

/* Does a block differ from what llama.cpp has in all of them: *widths: windows of one width; *ropes: the other rotary
 * embedding with a window; *experts? */
static void compare_blocks(const calm_config *config, bool *widths, bool *ropes, bool *experts)
{
    const size_t window = largest_window(config);
    *widths = *ropes = *experts = false;
    for (size_t i = 0; i < config->n_blocks; i++) {
        *widths |= slides(config) && config->window[i] && config->window[i] != window;
        *ropes |= is_family(config, "gemma3") && (config->window[i] != 0) != config->local_rope[i];
        *experts |= config->moe.n_experts && !config->moe.sparse[i];
    }
}

calm_status calm_gguf_check_arch(calm_ctx *ctx, const calm_model *model)
{
    const calm_config *config = calm_model_config(model);
    const calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const calm_gguf_arch *as = calm_gguf_arch_of(config->arch);
    const bool gemma = slides(config), yarn = rope->kind == CALM_ROPE_YARN;
    const bool top_k = config->moe.n_experts && as && config->moe.norm_top_k != as->norm_top_k;
    bool widths, ropes, experts;
    if (!as)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s: calm does not write %s models to GGUF; it writes llama, mistral, qwen2, "
                         "qwen3, qwen2_moe, qwen3_moe, gemma2, gemma3, olmo2, mixtral and olmoe",
                         calm_model_dir(model), config->arch->name);
    compare_blocks(config, &widths, &ropes, &experts);
    const struct {
        bool found;
        const char *what;
    } refused[] = {
        {as->square && config->n_heads * config->head_dim != config->hidden,
         "heads times head_dim is not the hidden size, as llama.cpp has it in this architecture"},
        {as->fixed_head && !config->tied,
         "it has its own head, which llama.cpp does not have in this architecture"},
        {config->activation != (gemma ? CALM_ACTIVATION_GELU_TANH : CALM_ACTIVATION_SILU),
         "its activation function is not the one that llama.cpp has for its architecture"},
        {!scale_is_known(config), "attention scores are scaled by another number than llama.cpp derives from head_dim "
                                  "(query_pre_attn_scalar)"},
        {config->attention_cap != 0 && !is_family(config, "gemma2"),
         "attention scores are capped, which llama.cpp does in gemma2 alone"},
        {config->logit_cap != 0 && !gemma, "logits are capped, which llama.cpp does in gemma alone"},
        {rope->rotary != config->head_dim, "only some channels of a head turn by their position"},
        {rope->kind == CALM_ROPE_LONGROPE, "longrope"},
        {yarn && !rope->truncate, "yarn without truncation"},
        {yarn && (rope->beta_fast != 32 || rope->beta_slow != 1),
         "yarn with other beta_fast and beta_slow than 32 and 1, which llama.cpp does not read in files of this "
         "architecture"},
        {widths, "blocks slide over windows of different widths"},
        {ropes, "rotary embeddings do not change with the sliding window, as llama.cpp has them"},
        {experts, "some blocks have experts and some have none"},
        {top_k, config->moe.norm_top_k ? "norm_topk_prob is set, which llama.cpp does not do in this architecture"
                                       : "norm_topk_prob is not set, but llama.cpp does it in this architecture"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].found)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s: %s", calm_model_dir(model), refused[i].what);
    if (rope->kind == CALM_ROPE_DYNAMIC)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: dynamic rope scaling is not written: the same up to the %zu positions the model was trained on",
                 config->max_positions);
    if (calm_model_is_wrapped(model))
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: the file holds the text model of %s alone; the other parts of a checkpoint go into a file of "
                 "their own, which llama.cpp's convert_hf_to_gguf.py --mmproj makes of the float model",
                 calm_model_class(model));
    if (largest_window(config) && !gemma)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: the model's attention slides over %zu tokens, llama.cpp's does not: the same up to that length",
                 largest_window(config));
    return CALM_OK;
}

/* ---- keys ---- */

/* Keys of one architecture. */
typedef struct writer {
    calm_gguf_keys *keys;
    const char *arch;
    char name[96];
} writer;

static const char *key(writer *to, const char *rest)
{
    snprintf(to->name, sizeof to->name, "%s.%s", to->arch, rest);
    return to->name;
}

static void add_u32(writer *to, const char *rest, size_t value)
{
    calm_gguf_add_u32(to->keys, key(to, rest), (uint32_t)value);
}

static void add_f32(writer *to, const char *rest, double value)
{
    calm_gguf_add_f32(to->keys, key(to, rest), (float)value);
}

static void add_rope(writer *to, const calm_config *config)
{
    const calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    add_f32(to, "rope.freq_base", rope->theta);
    add_u32(to, "rope.dimension_count", rope->rotary);
    if (rope->kind == CALM_ROPE_LINEAR || rope->kind == CALM_ROPE_YARN) {
        calm_gguf_add_string(to->keys, key(to, "rope.scaling.type"), rope->kind == CALM_ROPE_YARN ? "yarn" : "linear");
        add_f32(to, "rope.scaling.factor", rope->factor);
    }
    if (rope->kind == CALM_ROPE_YARN) {
        add_u32(to, "rope.scaling.original_context_length", (size_t)rope->original);
        /* llama.cpp multiplies cos and sin by attn_factor (1 + 0.1 ln factor) */
        add_f32(to, "rope.scaling.attn_factor", rope->m / (1 + 0.1 * log(rope->factor)));
    }
    if (is_family(config, "gemma3"))
        add_f32(to, "rope.freq_base_swa", config->rope[CALM_ROPE_LOCAL].theta);
}

static void add_windows(writer *to, const calm_config *config)
{
    const size_t window = largest_window(config);
    if (!slides(config) || (!window && !is_family(config, "gemma2")))
        return;
    add_u32(to, "attention.sliding_window", window ? window : GEMMA2_WINDOW);
    calm_gguf_add_array(to->keys, key(to, "attention.sliding_window_pattern"), CALM_GGUF_BOOL, config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++)
        calm_gguf_element_bool(to->keys, config->window[i] != 0);
}

static void add_experts(writer *to, const calm_config *config)
{
    if (!config->moe.n_experts)
        return;
    add_u32(to, "expert_count", config->moe.n_experts);
    add_u32(to, "expert_used_count", config->moe.top_k);
    add_u32(to, "expert_feed_forward_length", config->moe.inner);
    if (config->moe.shared_inner)
        add_u32(to, "expert_shared_feed_forward_length", config->moe.shared_inner);
}

calm_status calm_gguf_add_arch(calm_ctx *ctx, const calm_model *model, uint32_t file_type, calm_gguf_keys *keys)
{
    const calm_config *config = calm_model_config(model);
    writer to = {.keys = keys, .arch = calm_gguf_arch_of(config->arch)->name};
    const calm_tensor *table;
    CALM_TRY(calm_model_table(ctx, model, false, &table));
    const char *name = calm_json_string(calm_json_get(calm_model_json(model), "_name_or_path"), "");
    calm_gguf_add_string(keys, "general.architecture", to.arch);
    calm_gguf_add_string(keys, "general.type", "model");
    calm_gguf_add_string(keys, "general.name", *name ? name : calm_model_class(model));
    calm_gguf_add_u32(keys, "general.file_type", file_type);
    calm_gguf_add_u32(keys, "general.quantization_version", 2);
    add_u32(&to, "block_count", config->n_blocks);
    add_u32(&to, "context_length", config->max_positions);
    add_u32(&to, "embedding_length", config->hidden);
    add_u32(&to, "feed_forward_length", config->inner);
    add_u32(&to, "attention.head_count", config->n_heads);
    add_u32(&to, "attention.head_count_kv", config->n_kv);
    add_u32(&to, "attention.key_length", config->head_dim);
    add_u32(&to, "attention.value_length", config->head_dim);
    add_f32(&to, "attention.layer_norm_rms_epsilon", (double)config->norm_eps);
    add_u32(&to, "vocab_size", table->shape[0]);
    add_rope(&to, config);
    add_windows(&to, config);
    if (config->attention_cap != 0)
        add_f32(&to, "attn_logit_softcapping", (double)config->attention_cap);
    if (config->logit_cap != 0)
        add_f32(&to, "final_logit_softcapping", (double)config->logit_cap);
    add_experts(&to, config);
    return CALM_OK;
}

/* ---- rope_freqs.weight ---- */

bool calm_gguf_has_rope_factors(const calm_model *model)
{
    return calm_model_config(model)->rope[CALM_ROPE_GLOBAL].kind == CALM_ROPE_LLAMA3;
}

calm_status calm_gguf_rope_factors(calm_ctx *ctx, const calm_model *model, float **out)
{
    const calm_rope_config *rope = &calm_model_config(model)->rope[CALM_ROPE_GLOBAL];
    const size_t half = rope->rotary / 2;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, half));
    for (size_t i = 0; i < half; i++) {
        const double turns = rope->original / (2 * M_PI * pow(rope->theta, 2 * (double)i / (double)rope->rotary));
        const double smooth = (turns - rope->low_freq) / (rope->high_freq - rope->low_freq);
        const double kept = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth; /* share of the frequency that is not divided */
        (*out)[i] = (float)(1 / ((1 - kept) / rope->factor + kept));
    }
    return CALM_OK;
}
