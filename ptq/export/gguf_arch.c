/* A model's architecture as keys of a GGUF file.
 *
 * Source: what llama.cpp's src/models/<architecture>.cpp reads and computes. */
#include "ptq/export/gguf_arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/export/gguf_lacks.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/model/pooling.h"

/* llama.cpp's default for gemma2. */
#define GEMMA2_WINDOW 4096

/* A sum of experts' weights counts as at least this (build_moe_ffn): the least normal number of float16. */
#define LEAST_SUM 6.103515625e-5F

/* llama_expert_gating_func_type */
#define GATING_SOFTMAX 1
#define GATING_SIGMOID 2

/* Number of rotated channels of images if the config does not say: half of 64, as in convert_hf_to_gguf.py. */
static const int32_t usual_sections[4] = {11, 11, 10, 0};

static bool is_family(const calm_config *config, const char *name)
{
    return strcmp(config->arch->name, name) == 0;
}

/* With its head or without. */
static bool is_gemma3(const calm_config *config)
{
    return is_family(config, "gemma3") || is_family(config, "embeddinggemma");
}

/* ---- checks ---- */

/* Blocks that every fourth differs from, as llama.cpp has it: sliding in three of four, or turned in three of four. */
static bool is_quarter(const calm_config *config, bool turned)
{
    bool same = true;
    for (size_t i = 0; i < config->n_blocks; i++) {
        const bool usual = turned ? !(config->no_rope && config->no_rope[i]) : calm_config_slides(config, i);
        same &= usual == ((i + 1) % 4 != 0);
    }
    return same;
}

/* EXAONE 4 slides in llama.cpp when it has the 64 blocks of the 32B model, and then turns sliding blocks alone. */
static bool exaone_is_known(const calm_config *config)
{
    bool plain = true;
    for (size_t i = 0; i < config->n_blocks; i++)
        plain &= !config->no_rope[i] && !config->window[i];
    return config->n_blocks == 64 ? is_quarter(config, true) && is_quarter(config, false) : plain;
}

/* gpt-oss slides in every other block, from the first on. */
static bool is_alternate(const calm_config *config)
{
    bool same = true;
    for (size_t i = 0; i < config->n_blocks; i++)
        same &= calm_config_slides(config, i) == (i % 2 == 0);
    return same;
}

static bool blocks_are_known(const calm_config *config, const calm_gguf_arch *as)
{
    if (is_family(config, "gpt_oss"))
        return is_alternate(config);
    if (!as->quarter)
        return !config->no_rope || as->scans;
    if (is_family(config, "exaone4"))
        return exaone_is_known(config);
    if (as->chunks)
        return is_quarter(config, true) && is_quarter(config, false);
    return is_quarter(config, is_family(config, "smollm3"));
}

/* llama.cpp scales by the head's width, in the largest Gemmas (known by their number of blocks) by hidden / heads. */
static bool scale_is_known(const calm_config *config)
{
    double width = (double)config->head_dim;
    /* Granite's families have a separate key, latent attention a factor, Gemma 4 none. */
    if (config->residual_scale != 0 || config->latent.rope || config->value_norm)
        return true;
    if ((is_family(config, "gemma2") && config->n_blocks == 46)
        || (is_gemma3(config) && config->n_blocks == 62))
        width = (double)(config->hidden / config->n_heads);
    return fabs((double)config->attention_scale * sqrt(width) - 1) < 1e-6;
}

/* Does the family have sliding windows in llama.cpp? */
static bool slides(const calm_config *config)
{
    return is_family(config, "gemma2") || is_family(config, "modernbert") || is_gemma3(config)
           || is_family(config, "cohere2")
           || is_family(config, "olmo3") || is_family(config, "gpt_oss") || config->chunked
           || calm_gguf_arch_in(config)->shares
           || (is_family(config, "exaone4") && config->n_blocks == 64);
}

static size_t largest_window(const calm_config *config)
{
    size_t window = 0;
    for (size_t i = 0; i < config->n_blocks; i++)
        window = config->window[i] > window ? config->window[i] : window;
    return window;
}

/* Returns the number of leading blocks with a dense MLP, if llama.cpp has a key for it. */
static size_t dense_lead(const calm_config *config)
{
    size_t n = 0;
    if (config->moe.n_experts && calm_gguf_arch_in(config) && calm_gguf_arch_in(config)->dense_lead)
        while (n < config->n_blocks && !config->moe.sparse[n])
            n++;
    return n;
}

/* Does a block differ from what llama.cpp has in all of them: *widths: windows of one width; *ropes: the other rotary
 * embedding with a window; *experts? */
static void compare_blocks(const calm_config *config, bool *widths, bool *ropes, bool *experts)
{
    const size_t window = largest_window(config), lead = dense_lead(config);
    *widths = *experts = false;
    *ropes = config->arch->local_rope && config->rope[CALM_ROPE_LOCAL].theta != config->rope[CALM_ROPE_GLOBAL].theta;
    for (size_t i = 0; i < config->n_blocks; i++) {
        *widths |= slides(config) && config->window[i] && config->window[i] != window;
        *ropes |= (is_gemma3(config) || is_family(config, "modernbert"))
                  && calm_config_slides(config, i) != config->local_rope[i];
        *experts |= config->moe.n_experts && calm_kind_at(config, i, CALM_SUBLAYER_MLP)
                    && config->moe.sparse[i] != (i >= lead);
    }
}

/* Warns about encoders and other models that give embeddings. */
static void warn_of_encoder(calm_ctx *ctx, const calm_config *config, const calm_gguf_arch *as)
{
    bool dense = false;
    for (size_t i = 0; config->pooling && i < config->pooling->n_steps; i++)
        dense |= config->pooling->steps[i].dense && !calm_gguf_has_dense(config);
    if (dense)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: what modules.json lists behind the pooling is not in the file: llama.cpp gives pooled rows");
    if (as->both_ways && config->arch->names->head)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: the head for masked tokens is not in the file: llama.cpp gives embeddings");
    if (as->both_ways && config->activation == CALM_ACTIVATION_GELU)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: llama.cpp computes GELU by tanh, up to 0.00047 from the model's by erf: its embeddings are "
                 "slightly others");
}

/* Warns where llama.cpp's logits differ slightly from the model's. */
static void warn_of_numbers(calm_ctx *ctx, const calm_config *config, const calm_gguf_arch *as)
{
    if (as->single && config->mamba.limits.least > 0)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: llama.cpp has no least step (time_step_min, %g): it computes slightly other logits where one "
                 "is below", (double)config->mamba.limits.least);
    if (config->streams.n)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: llama.cpp takes the deviation of a gate's %zu values with one less for their number "
                 "(activation_sparsity_pattern): it computes slightly other logits", config->inner);
}

calm_status calm_gguf_check_arch(calm_ctx *ctx, const calm_model *model)
{
    const calm_config *config = calm_model_config(model);
    const calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const calm_gguf_arch *as = calm_gguf_arch_in(config);
    const bool gemma = is_family(config, "gemma2") || is_gemma3(config) || (as && as->shares);
    const bool yarn = rope->kind == CALM_ROPE_YARN;
    const bool top_k = config->moe.n_experts && as && !as->routes && config->moe.norm_top_k != as->norm_top_k;
    bool widths, ropes, experts;
    if (as && as->other)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s: llama.cpp computes another function of %s models: RMSNorm where they have "
                         "LayerNorm, and a softmax over the chosen experts for sparsemixer",
                         calm_model_dir(model), as->name);
    if (!as)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "gguf: %s: calm does not write %s models to GGUF; docs/families.md says which it writes",
                         calm_model_dir(model), config->arch->name);
    compare_blocks(config, &widths, &ropes, &experts);
    const char *lacks = calm_gguf_lacks(config, as);
    const struct {
        bool found;
        const char *what;
    } refused[] = {
        {as->both_ways && !config->both_ways, "its tokens do not see those behind them, as llama.cpp has it"},
        {config->pooling && config->pooling->mode > CALM_POOLING_LAST,
         "sentences are pooled neither by the mean of their rows nor by one row, as llama.cpp does"},
        {as->square && config->n_heads * config->head_dim != config->hidden,
         "heads times head_dim is not the hidden size, as llama.cpp has it in this architecture"},
        {is_family(config, "olmoe") && config->n_kv != config->n_heads,
         "it has fewer heads for keys than for queries, but llama.cpp's norm of keys is as wide as the hidden size in "
         "this architecture"},
        {as->fixed_head && !config->tied,
         "it has its own head, which llama.cpp does not have in this architecture"},
        {!scale_is_known(config), "attention scores are scaled by another number than llama.cpp derives from head_dim "
                                  "(query_pre_attn_scalar)"},
        {config->attention_cap != 0 && !is_family(config, "gemma2"),
         "attention scores are capped, which llama.cpp does in gemma2 alone"},
        {config->logit_cap != 0 && !gemma, "logits are capped, which llama.cpp does in gemma alone"},
        {rope->kind == CALM_ROPE_LONGROPE, "longrope"},
        {rope->kind == CALM_ROPE_LLAMA3 && !as->divided,
         "rope_type llama3, whose factors llama.cpp does not read in this architecture"},
        {yarn && !rope->truncate && !is_family(config, "gpt_oss"), "yarn without truncation"},
        {config->glu_limit > 0 && (config->glu_limit != 7 || config->glu_alpha != 1.702f),
         "swiglu_limit and swiglu_alpha are other than 7 and 1.702, which llama.cpp has in its code"},
        {!blocks_are_known(config, as),
         "blocks slide, or turn by their position, in another order than llama.cpp has in its code"},
        {as->needs_bias && !calm_job_biased(config, calm_slot_last_job(config, CALM_SUBLAYER_ATTENTION)),
         "its linears have no biases, which llama.cpp does not know in this architecture"},
        {yarn && (rope->beta_fast != 32 || rope->beta_slow != 1),
         "yarn with other beta_fast and beta_slow than 32 and 1, which llama.cpp does not read in files of this "
         "architecture"},
        {config->moe.sum_min > LEAST_SUM, "moe_norm_min is above the least sum that llama.cpp divides weights by"},
        {widths, "blocks slide over windows of different widths"},
        {ropes, "rotary embeddings do not change with the sliding window, as llama.cpp has them"},
        {experts && !as->scans && !as->chunks, as->dense_lead ? "blocks without experts stand behind blocks with them"
                                 : "some blocks have experts and some have none"},
        {top_k, config->moe.norm_top_k ? "norm_topk_prob is set, which llama.cpp does not do in this architecture"
                                       : "norm_topk_prob is not set, but llama.cpp does it in this architecture"},
        {lacks != NULL, lacks}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].found)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s: %s", calm_model_dir(model), refused[i].what);
    if (yarn && !rope->truncate)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: llama.cpp rounds the ends of yarn's ramp, which this model does not (\"truncate\": false): "
                 "it computes other logits than the checkpoint has");
    warn_of_numbers(ctx, config, as);
    if (rope->kind == CALM_ROPE_DYNAMIC)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: dynamic rope scaling is not written: the same up to the %zu positions the model was trained on",
                 config->max_positions);
    if (config->latent.rope && config->norm_eps != 1e-6f)
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: llama.cpp normalises the latents of queries and keys with rms_norm_eps (%g), where the model "
                 "has 1e-6: it computes slightly other logits", (double)config->norm_eps);
    warn_of_encoder(ctx, config, as);
    if (calm_model_is_wrapped(model))
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: the file holds the text model of %s alone; the other parts of a checkpoint go into a "
                 "separate file, which llama.cpp's convert_hf_to_gguf.py --mmproj makes of the float model",
                 calm_model_class(model));
    if (largest_window(config) && !slides(config))
        calm_log(ctx, CALM_LOG_WARNING,
                 "gguf: the model's attention slides over %zu tokens, llama.cpp's does not: the same up to that length",
                 largest_window(config));
    return CALM_OK;
}

/* ---- keys ---- */

/* The keys of one architecture. */
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

/* llama.cpp multiplies cos and sin by attn_factor (1 + 0.1 ln factor).  In latent attention by attn_factor alone where
 * there is a log_multiplier L, and scores by the square of attn_factor (1 + L ln factor). */
static void add_yarn_factors(writer *to, const calm_config *config)
{
    const calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const double ramp = log(rope->factor);
    const double multiplier = config->latent.rope && ramp > 0 ? (rope->m_all / rope->m - 1) / ramp : 0;
    /* 0 means no multiplier. */
    const bool squared = fabs(multiplier) > 1e-9;
    if (squared)
        add_f32(to, "rope.scaling.yarn_log_multiplier", multiplier);
    add_f32(to, "rope.scaling.attn_factor", squared ? rope->m : rope->m / (1 + 0.1 * ramp));
}

static void add_rope(writer *to, const calm_config *config)
{
    const calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    if (!(rope->theta > 0))
        return;
    add_f32(to, "rope.freq_base", rope->theta);
    add_u32(to, "rope.dimension_count", rope->rotary);
    if (rope->kind == CALM_ROPE_LINEAR || rope->kind == CALM_ROPE_YARN) {
        calm_gguf_add_string(to->keys, key(to, "rope.scaling.type"), rope->kind == CALM_ROPE_YARN ? "yarn" : "linear");
        add_f32(to, "rope.scaling.factor", rope->factor);
    }
    if (rope->kind == CALM_ROPE_YARN || config->query_growth.beta > 0)
        add_u32(to, "rope.scaling.original_context_length", (size_t)rope->original);
    if (rope->kind == CALM_ROPE_YARN)
        add_yarn_factors(to, config);
    if (config->query_growth.beta > 0)
        add_f32(to, "attention.temperature_scale", (double)config->query_growth.beta);
    if (is_gemma3(config) || is_family(config, "modernbert") || calm_gguf_arch_in(config)->shares)
        add_f32(to, "rope.freq_base_swa", config->rope[CALM_ROPE_LOCAL].theta);
}

static void add_windows(writer *to, const calm_config *config)
{
    const size_t window = largest_window(config);
    if (!slides(config) || (!window && !is_family(config, "gemma2")))
        return;
    /* Both ways llama.cpp halves it: a token sees those at that distance, and calm's windows end before theirs. */
    add_u32(to, "attention.sliding_window", !window             ? GEMMA2_WINDOW
                                            : config->both_ways ? 2 * (window - 1)
                                                                : window);
    if (calm_gguf_arch_in(config)->quarter || is_family(config, "gpt_oss"))
        return;
    if (is_family(config, "modernbert")) {
        add_u32(to, "attention.sliding_window_pattern", calm_gguf_global_step(config));
        return;
    }
    calm_gguf_add_array(to->keys, key(to, "attention.sliding_window_pattern"), CALM_GGUF_BOOL, config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++)
        calm_gguf_element_bool(to->keys, calm_config_slides(config, i));
}

/* Does a block have attention instead of its family's other kind of token mixer? */
static bool attends(const calm_config *config, size_t block)
{
    return calm_kind_at(config, block, CALM_SUBLAYER_ATTENTION) == calm_kind_dense(config, CALM_SUBLAYER_ATTENTION);
}

/* Widths of heads in blocks that slide and in the others, of which the last block is one. */
static void add_widths(writer *to, const calm_config *config)
{
    const size_t full = calm_config_at(config, config->n_blocks - 1)->head_dim;
    size_t slide = full;
    /* Those that slide are alike. */
    for (size_t i = 0; i < config->n_blocks; i++)
        slide = config->window[i] ? calm_config_at(config, i)->head_dim : slide;
    add_u32(to, "attention.key_length", full);
    add_u32(to, "attention.value_length", full);
    add_u32(to, "attention.key_length_swa", slide);
    add_u32(to, "attention.value_length_swa", slide);
    /* Heads turn as a whole: of pairs that stand rope_freqs.weight has factors. */
    add_u32(to, "rope.dimension_count_swa", slide);
}

/* How many blocks share keys and values, the width of a block's input; no cap is 0, else llama.cpp has one. */
static void add_sharing(writer *to, const calm_config *config)
{
    size_t n_shared = 0;
    if (!calm_gguf_arch_in(config)->shares)
        return;
    for (size_t i = 0; i < config->n_blocks; i++)
        n_shared += calm_config_at(config, i)->kv == CALM_KV_SHARED;
    add_u32(to, "attention.shared_kv_layers", n_shared);
    add_u32(to, "embedding_length_per_layer_input", config->per_layer);
    if (config->logit_cap == 0)
        add_f32(to, "final_logit_softcapping", 0);
    if (!config->streams.n)
        return;
    /* llama.cpp has these in its code (gguf_lacks.c), other readers have not. */
    add_u32(to, "altup.active_idx", config->streams.active);
    add_u32(to, "altup.num_inputs", config->streams.n);
    calm_gguf_add_array(to->keys, key(to, "activation_sparsity_scale"), CALM_GGUF_F32, config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++)
        calm_gguf_element_f32(to->keys, calm_config_at(config, i)->gate_sparsity > 0 ? CALM_GGUF_SPARSITY : -INFINITY);
}

/* Heads and their widths.  Latent attention has one head for keys in llama.cpp, as wide as the latent and the shared
 * key; where blocks have short convolutions or Mamba-2 there is a number for each: 0 without attention. */
static void add_heads(writer *to, const calm_config *config)
{
    const calm_latent_config *latent = &config->latent;
    const calm_gguf_arch *as = calm_gguf_arch_in(config);
    add_u32(to, "attention.head_count", config->n_heads);
    if (as->convs || as->scans || as->shares) {
        calm_gguf_add_array(to->keys, key(to, "attention.head_count_kv"), CALM_GGUF_I32, config->n_blocks);
        for (size_t i = 0; i < config->n_blocks; i++)
            calm_gguf_element_i32(to->keys, attends(config, i) ? (int32_t)calm_config_at(config, i)->n_kv : 0);
    } else {
        add_u32(to, "attention.head_count_kv", latent->rope ? 1 : config->n_kv);
    }
    if (as->convs)
        add_u32(to, "shortconv.l_cache", config->conv_width);
    if (as->shares) {
        add_widths(to, config);
        return;
    }
    add_u32(to, "attention.key_length", latent->rope ? latent->kv_rank + latent->rope : config->head_dim);
    add_u32(to, "attention.value_length", latent->rope ? latent->kv_rank : config->head_dim);
    if (!latent->rope)
        return;
    add_u32(to, "attention.key_length_mla", latent->nope + latent->rope);
    add_u32(to, "attention.value_length_mla", latent->value);
    add_u32(to, "attention.kv_lora_rank", latent->kv_rank);
    /* 0: queries are one product. */
    add_u32(to, "attention.q_lora_rank", latent->q_rank);
}

/* Adds n if every n-th block has attention, or else a list. */
static void add_mixers(writer *to, const calm_config *config)
{
    size_t interval = 1;
    bool regular = true;
    while (interval <= config->n_blocks && !attends(config, interval - 1))
        interval++;
    for (size_t i = 0; i < config->n_blocks; i++)
        regular &= attends(config, i) == ((i + 1) % interval == 0);
    if (regular) {
        add_u32(to, "full_attention_interval", interval);
        return;
    }
    calm_gguf_add_array(to->keys, key(to, "attention.recurrent_layers"), CALM_GGUF_BOOL, config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++)
        calm_gguf_element_bool(to->keys, !attends(config, i));
}

/* A recurrence of `heads` states, [state, head_dim] each, whose keys `groups` share. */
static void add_state_space(writer *to, const calm_config *config, size_t state, size_t groups, size_t heads,
                            size_t head_dim)
{
    add_u32(to, "ssm.conv_kernel", config->conv_width);
    add_u32(to, "ssm.state_size", state);
    add_u32(to, "ssm.group_count", groups);
    add_u32(to, "ssm.time_step_rank", heads);
    add_u32(to, "ssm.inner_size", heads * head_dim);
}

/* Gated delta nets, under the names of state space models. */
static void add_deltas(writer *to, const calm_model *model)
{
    const calm_config *config = calm_model_config(model);
    const calm_delta_shape *shape = &config->delta;
    const calm_json *text = calm_model_text_json(model), *rope = calm_json_get(text, "rope_parameters");
    const calm_json *sections = calm_json_get(rope ? rope : calm_json_get(text, "rope_scaling"), "mrope_section");
    if (!calm_gguf_arch_in(config)->deltas)
        return;
    add_state_space(to, config, shape->key_dim, shape->n_key_heads, shape->n_value_heads, shape->value_dim);
    add_mixers(to, config);
    if (!calm_gguf_arch_in(config)->tiled)
        return;
    calm_gguf_add_array(to->keys, key(to, "rope.dimension_sections"), CALM_GGUF_I32, 4);
    for (size_t i = 0; i < 4; i++)
        calm_gguf_element_i32(to->keys, sections ? (int32_t)calm_json_int(calm_json_at(sections, i), 0)
                                                 : usual_sections[i]);
}

/* Adds Mamba-2, and a switch of Granite's attention. */
static void add_scans(writer *to, const calm_config *config)
{
    const calm_mamba_shape *shape = &config->mamba.shape;
    if (!calm_gguf_arch_in(config)->scans)
        return;
    add_state_space(to, config, shape->state_dim, shape->n_groups, shape->n_heads, shape->head_dim);
    if (config->rope[CALM_ROPE_GLOBAL].theta > 0)
        calm_gguf_add_bool(to->keys, key(to, "rope.scaling.finetuned"), !config->no_rope || !config->no_rope[0]);
}

/* Widths of MLPs: of experts theirs, where a shared one has a separate key; a list where blocks differ. */
static void add_inner(writer *to, const calm_config *config)
{
    const calm_gguf_arch *as = calm_gguf_arch_in(config);
    const size_t inner = as->scans && config->moe.n_experts ? config->moe.inner : config->inner;
    if (!as->single && !as->shares) {
        add_u32(to, "feed_forward_length", inner);
        return;
    }
    calm_gguf_add_array(to->keys, key(to, "feed_forward_length"), CALM_GGUF_I32, config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++)
        calm_gguf_element_i32(to->keys, !calm_kind_at(config, i, CALM_SUBLAYER_MLP) ? 0
                                        : as->shares ? (int32_t)calm_config_at(config, i)->inner
                                                     : (int32_t)inner);
}

/* Adds the pooling of a sentence's hidden states: 1 the mean, 2 the first token's, 3 the last token's. */
static void add_pooling(writer *to, const calm_config *config)
{
    const calm_gguf_arch *as = calm_gguf_arch_in(config);
    if (as->both_ways || config->pooling)
        add_u32(to, "pooling_type", 1 + (size_t)(config->pooling ? config->pooling->mode : CALM_POOLING_MEAN));
    for (size_t i = 0; i < 2 && calm_gguf_has_dense(config); i++) {
        add_u32(to, i ? "dense_3_feat_in" : "dense_2_feat_in", config->pooling->steps[i].in);
        add_u32(to, i ? "dense_3_feat_out" : "dense_2_feat_out", config->pooling->steps[i].out);
    }
    if (!as->bare)
        return;
    calm_gguf_add_bool(to->keys, key(to, "attention.causal"), false);
    /* llama.cpp's default is GELU. */
    if (is_family(config, "modernbert") && config->activation == CALM_ACTIVATION_SILU)
        calm_gguf_add_string(to->keys, key(to, "hidden_activation"), "silu");
    /* Not 0, even of a model without types. */
    if (strcmp(as->name, "bert") == 0 || strcmp(as->name, "nomic-bert") == 0)
        calm_gguf_add_u32(to->keys, "tokenizer.ggml.token_type_count", (uint32_t)calm_size_max(1, config->n_types));
}

/* Adds multipliers, if the family has them. */
static void add_scales(writer *to, const calm_config *config)
{
    /* llama.cpp divides Granite's logits, and multiplies Cohere's. */
    if (config->logit_scale != 0)
        add_f32(to, "logit_scale", config->residual_scale != 0 ? 1 / (double)config->logit_scale
                                                               : (double)config->logit_scale);
    if (config->residual_scale == 0)
        return;
    add_f32(to, "embedding_scale", (double)config->embedding_scale);
    add_f32(to, "residual_scale", (double)config->residual_scale);
    add_f32(to, "attention.scale", (double)config->attention_scale);
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
    if (config->moe.latent)
        add_u32(to, "moe_latent_size", config->moe.latent);
    if (calm_gguf_arch_in(config)->chunks)
        add_u32(to, "interleave_moe_layer_step", calm_gguf_moe_step(config));
    if (!calm_gguf_arch_in(config)->dense_lead)
        return;
    add_u32(to, "expert_shared_count", config->moe.shared_inner / config->moe.inner);
    add_u32(to, "leading_dense_block_count", dense_lead(config));
    /* Of those behind them every one has experts. */
    add_u32(to, "interleave_moe_layer_step", 1);
}

/* How a router's scores become weights, where that is not softmax or the architecture has a choice. */
static void add_router(writer *to, const calm_config *config)
{
    const bool sigmoid = config->moe.score == CALM_ROUTER_SIGMOID, routes = calm_gguf_arch_in(config)->routes;
    if (!config->moe.n_experts || (!sigmoid && !routes))
        return;
    add_u32(to, "expert_gating_func", sigmoid ? GATING_SIGMOID : GATING_SOFTMAX);
    if (!routes)
        return;
    calm_gguf_add_bool(to->keys, key(to, "expert_weights_norm"), config->moe.norm_top_k);
    add_f32(to, "expert_weights_scale", (double)config->moe.scale);
    add_u32(to, "expert_group_count", config->moe.n_groups);
    add_u32(to, "expert_group_used_count", config->moe.top_groups);
}

calm_status calm_gguf_add_arch(calm_ctx *ctx, const calm_model *model, uint32_t file_type, calm_gguf_keys *keys)
{
    const calm_config *config = calm_model_config(model);
    writer to = {.keys = keys, .arch = calm_gguf_arch_in(config)->name};
    const calm_tensor *table;
    CALM_TRY(calm_model_table(ctx, model, false, &table));
    const char *name = calm_json_string(calm_json_get(calm_model_json(model), "_name_or_path"), "");
    calm_gguf_add_string(keys, "general.architecture", to.arch);
    calm_gguf_add_string(keys, "general.type", "model");
    calm_gguf_add_string(keys, "general.name", *name ? name : calm_model_class(model));
    calm_gguf_add_u32(keys, "general.file_type", file_type);
    calm_gguf_add_u32(keys, "general.quantization_version", 2);
    add_u32(&to, "block_count", config->n_blocks);
    add_u32(&to, "context_length", calm_config_positions(config));
    add_u32(&to, "embedding_length", config->hidden);
    add_inner(&to, config);
    add_heads(&to, config);
    add_sharing(&to, config);
    add_f32(&to, config->arch->norm == CALM_NORM_LAYER ? "attention.layer_norm_epsilon"
                                                       : "attention.layer_norm_rms_epsilon", (double)config->norm_eps);
    /* Of the heads for further tokens, which are not written; llama.cpp needs the key all the same. */
    if (calm_gguf_arch_in(config)->single)
        add_f32(&to, "attention.layer_norm_epsilon", (double)config->norm_eps);
    add_u32(&to, "vocab_size", table->shape[0]);
    add_rope(&to, config);
    add_deltas(&to, model);
    add_scans(&to, config);
    add_windows(&to, config);
    add_pooling(&to, config);
    if (config->attention_cap != 0)
        add_f32(&to, "attn_logit_softcapping", (double)config->attention_cap);
    if (config->logit_cap != 0)
        add_f32(&to, "final_logit_softcapping", (double)config->logit_cap);
    add_scales(&to, config);
    add_experts(&to, config);
    add_router(&to, config);
    return CALM_OK;
}
