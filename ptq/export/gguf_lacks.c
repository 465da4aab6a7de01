/* Finds what llama.cpp's code of an architecture cannot compute in a model, by kind of sublayer.
 *
 * Source: llama.cpp's src/models/<architecture>.cpp, mamba-base.cpp and llama-graph.cpp. */
#include "ptq/export/gguf_lacks.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/text.h"
#include "ptq/model/pooling.h"

/* llama_model_llama4::load_arch_hparams: tokens of a chunk, which are also the positions after which queries grow, and
 * how much they do; the number of experts whose model does not normalise heads. */
#define LLAMA4_CHUNK  8192
#define LLAMA4_GROWTH 0.1F
#define LLAMA4_BARE   128

/* llama_model_gemma3n: blocks with their own keys, and those in front that cut values off. */
#define GEMMA3N_OWN 20
#define GEMMA3N_CUT 10

/* What llama.cpp lacks of latent attention and of what stands next to it; NULL: nothing.  build_moe_ffn of its
 * llama-graph.cpp adds up the two largest scores of a group (DeepSeek-V3) wherever there are groups, whatever the
 * architecture; DeepSeek-V2's group_limited_greedy takes the largest. */
static const char *lacks_latent(const calm_config *config)
{
    const bool lite = config->n_blocks == 26 || config->n_blocks == 27;
    if (!config->latent.rope)
        return NULL;
    return !config->rope[CALM_ROPE_GLOBAL].neighbours
               ? "rope_interleave is false, but llama.cpp turns neighbouring channels in this architecture"
           : config->moe.group_by_max && config->moe.n_groups > 1
               ? "groups of experts count by their largest score, in llama.cpp by the sum of their two largest"
           : !config->moe.shared_inner ? "it has no shared expert, which llama.cpp does not know in this architecture"
           : lite && config->latent.q_rank
               ? "it has 26 or 27 blocks and q_lora_rank, which llama.cpp does not read there"
               : NULL;
}

/* The same of delta nets and of short convolutions. */
static const char *lacks_mixer(const calm_config *config, const calm_gguf_arch *as)
{
    if (as->deltas && config->delta.key_dim != config->delta.value_dim)
        return "linear_key_head_dim is not linear_value_head_dim, which are one number in llama.cpp";
    if (!as->convs || !config->moe.n_experts)
        return NULL;
    return !config->moe.choice_bias    ? "use_expert_bias is false, but llama.cpp needs that bias in this architecture"
           : config->moe.scale != 1 ? "routed_scaling_factor is not 1, which llama.cpp does not read here"
                                       : NULL;
}

/* Do all blocks that have an MLP, or a mixture, have the same? */
static bool one_kind_of_mlp(const calm_config *config)
{
    bool dense = false, sparse = false;
    for (size_t i = 0; i < config->n_blocks; i++) {
        const bool any = calm_kind_at(config, i, CALM_SUBLAYER_MLP) != NULL;
        sparse |= any && config->moe.sparse[i];
        dense |= any && !config->moe.sparse[i];
    }
    return !(dense && sparse);
}

/* Does every attention sublayer have a rotary embedding, or none? */
static bool one_rope(const calm_config *config)
{
    bool same = true;
    for (size_t i = 1; config->no_rope && i < config->n_blocks; i++)
        same &= config->no_rope[i] == config->no_rope[0];
    return same;
}

/* The same of Mamba-2: build_mamba2_layer adds a bias to the convolution and takes SiLU behind it, and ggml_ssm_scan
 * bounds no step. */
static const char *lacks_scan(const calm_config *config, const calm_gguf_arch *as)
{
    const calm_mamba_config *mamba = &config->mamba;
    if (!as->scans)
        return NULL;
    return !mamba->conv_bias ? "its convolutions have no bias, which llama.cpp needs"
           : mamba->activation != CALM_ACTIVATION_SILU
               ? "the function behind its convolutions is not silu, as llama.cpp has it"
           : !as->single && 2 * config->hidden != mamba->shape.n_heads * mamba->shape.head_dim
               ? "mamba_expand is not 2, the only factor that llama.cpp has in this architecture"
           : !as->single && (mamba->limits.least > 0 || !isinf(mamba->limits.most))
               ? "time_step_limit bounds steps, which llama.cpp does not"
           : !one_kind_of_mlp(config) ? "some blocks hold an MLP and some experts; llama.cpp has one of them"
           : !one_rope(config)        ? "some blocks turn by their position and some do not"
                                      : NULL;
}

size_t calm_gguf_moe_step(const calm_config *config)
{
    size_t step = 0;
    bool same = true;
    while (step < config->n_blocks && !config->moe.sparse[step])
        step++;
    step++;
    for (size_t i = 0; i < config->n_blocks; i++)
        same &= config->moe.sparse[i] == ((i + 1) % step == 0);
    return same && step <= config->n_blocks ? step : 0;
}

/* The same of Llama 4, whose code has these numbers in it; queries grow in blocks that are not turned alone. */
static const char *lacks_chunk(const calm_config *config, const calm_gguf_arch *as)
{
    const calm_query_scale_config *growth = &config->query_growth;
    bool usual = true, grows = false;
    if (!as->chunks)
        return NULL;
    for (size_t i = 0; i < config->n_blocks; i++) {
        usual &= !config->window[i] || config->window[i] == LLAMA4_CHUNK;
        grows |= config->no_rope[i];
    }
    grows &= growth->beta != LLAMA4_GROWTH || growth->length != (double)LLAMA4_CHUNK;
    return !usual ? "attention_chunk_size is not 8192, the only one that llama.cpp has"
           : grows ? "attn_scale and floor_scale are not 0.1 and 8192, or not used; llama.cpp has them in its code"
           : !calm_gguf_moe_step(config) ? "moe_layers are not every n-th block, as llama.cpp has them"
           : (config->qk_norm == CALM_QK_NORM_NONE) != (config->moe.n_experts == LLAMA4_BARE)
               ? "use_qk_norm is not what llama.cpp has for this number of experts (false for 128, else true)"
               : NULL;
}

size_t calm_gguf_global_step(const calm_config *config)
{
    size_t step = 1;
    bool same = true;
    while (step < config->n_blocks && config->window[step])
        step++;
    if (config->window[0])
        step = 0;
    for (size_t i = 0; i < config->n_blocks; i++)
        same &= calm_config_slides(config, i) != (step && i % step == 0);
    return same ? step : SIZE_MAX;
}

/* A product alone. */
static bool is_product(const calm_pooling_step *step)
{
    return step->dense && !step->biased && step->function == CALM_DENSE_IDENTITY;
}

bool calm_gguf_has_dense(const calm_config *config)
{
    const calm_pooling *pooling = config->pooling;
    bool two = pooling && pooling->n_steps >= 2 && strcmp(config->arch->name, "embeddinggemma") == 0
               && is_product(&pooling->steps[0]) && is_product(&pooling->steps[1])
               && pooling->steps[1].out == config->hidden;
    for (size_t i = 2; two && i < pooling->n_steps; i++)
        two &= !pooling->steps[i].dense;
    return two;
}

/* Does a linear of a block have a bias? */
static bool has_biases(const calm_config *config)
{
    bool biased = false;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        biased |= config->arch->names->role[role] && config->bias[role];
    return biased;
}

/* The same of encoders, of which modern-bert.cpp, eurobert.cpp and, for nomic-bert, bert.cpp have no biases. */
static const char *lacks_encoder(const calm_config *config, const calm_gguf_arch *as)
{
    const bool modern = strcmp(as->name, "modern-bert") == 0;
    if (!as->bare)
        return NULL;
    return !as->biases && has_biases(config)
               ? "its linears have biases (attention_bias, mlp_bias), which llama.cpp does not have here"
           : modern && config->norm_bias ? "norm_bias is set, but llama.cpp's norms have no bias in this architecture"
           : modern && calm_gguf_global_step(config) == SIZE_MAX
               ? "other blocks slide than those between 0, n, 2 n, ..., as llama.cpp has them"
           : modern && config->rope[CALM_ROPE_GLOBAL].kind != CALM_ROPE_DEFAULT
               ? "rope_scaling, which llama.cpp does not have for both rotary embeddings of this architecture"
               : NULL;
}

/* What its loader of each architecture reads no key of. */
static const char *lacks_limit(const calm_config *config)
{
    return config->qkv_limit > 0 ? "clip_qkv bounds q, k and v, which llama.cpp does not in this architecture" : NULL;
}

/* The same of Gemma 3n, whose sizes llama-hparams.h and gemma3n.cpp have in their code. */
static const char *lacks_stream(const calm_config *config)
{
    const calm_stream_config *streams = &config->streams;
    size_t own = 0;
    bool cuts = true, alike = true;
    if (!streams->n)
        return NULL;
    for (size_t i = 0; i < config->n_blocks; i++) {
        const calm_config *block = calm_config_at(config, i);
        own += block->kv != CALM_KV_SHARED;
        cuts &= block->gate_sparsity == (i < GEMMA3N_CUT ? 0.95F : 0);
        alike &= block->inner == config->inner;
    }
    return streams->n != 4 || streams->active != 0 || streams->rank != 64 || config->per_layer != 256
               ? "altup_num_inputs, altup_active_idx, laurel_rank and hidden_size_per_layer_input are not 4, 0, 64 and "
                 "256, which llama.cpp has in its code"
           : !streams->scale ? "altup_correct_scale is false, but llama.cpp multiplies by it"
           : own > GEMMA3N_OWN || (own < config->n_blocks && own != GEMMA3N_OWN)
               ? "not 20 blocks have their own keys, as in llama.cpp's code (num_kv_shared_layers)"
           : !cuts  ? "activation_sparsity_pattern is not 0.95 of the first 10 blocks, as in llama.cpp's code"
           : !alike ? "blocks have MLPs of different widths (intermediate_size)"
           : config->logit_cap != 30 ? "final_logit_softcapping is not 30, as in llama.cpp's code"
           : config->rope[CALM_ROPE_GLOBAL].kind != CALM_ROPE_DEFAULT ? "rope_type of full_attention is not default"
                                                                     : NULL;
}

/* The same of both: llama_kv_cache's blocks that share read the last block with its own keys, or the one before it
 * where they slide; create_tensor knows no biases; the rotary embedding of blocks that slide is plain, and that of the
 * others has factors alone. */
static const char *lacks_sharing(const calm_config *config, const calm_gguf_arch *as)
{
    const calm_rope_config *full = &config->rope[CALM_ROPE_GLOBAL], *slide = &config->rope[CALM_ROPE_LOCAL];
    size_t own = 0;
    bool others = false, slides = false;
    if (!as->shares)
        return NULL;
    while (own < config->n_blocks && calm_config_at(config, own)->kv != CALM_KV_SHARED)
        own++;
    for (size_t i = 0; i < config->n_blocks; i++) {
        const size_t from = config->window[i] ? 2 : 1;
        others |= i >= own && own >= 2 && calm_config_slides(config, own - from) != calm_config_slides(config, i);
        slides |= calm_config_slides(config, i);
    }
    return own < 2 ? "fewer than two blocks have their own keys, which llama.cpp needs"
           : others ? "the last two blocks with their own keys are not one that slides and then one that does not, "
                      "which blocks behind them read in llama.cpp (num_kv_shared_layers)"
           : config->per_layer && !config->streams.n && config->per_layer_rows != config->vocab
               ? "vocab_size_per_layer_input is not vocab_size, which llama.cpp takes for both"
           : has_biases(config) ? "attention_bias is true, which llama.cpp does not know in this architecture"
           : !slides ? "no block slides, which llama.cpp's cache needs in this architecture"
           : full->kind != CALM_ROPE_DEFAULT && full->kind != CALM_ROPE_PROPORTIONAL
               ? "rope_type of full_attention is neither default nor proportional"
           : slide->kind != CALM_ROPE_DEFAULT ? "rope_type of sliding_attention is not default"
                                                        : NULL;
}

/* Does llama.cpp have the activation function in this architecture?  For BERT and ModernBERT it uses GELU by tanh. */
static bool has_activation(const calm_config *config, const calm_gguf_arch *as)
{
    const calm_activation found = config->activation;
    const bool gelu = found == CALM_ACTIVATION_GELU || found == CALM_ACTIVATION_GELU_TANH;
    if (strcmp(as->name, "bert") == 0)
        return gelu;
    if (strcmp(as->name, "modern-bert") == 0)
        return gelu || found == CALM_ACTIVATION_SILU;
    if (as->shares || calm_text_listed("gemma2 gemma3 gemma-embedding starcoder2", ' ', as->name))
        return found == CALM_ACTIVATION_GELU_TANH;
    return found == (as->single ? CALM_ACTIVATION_RELU2 : CALM_ACTIVATION_SILU);
}

/* What its graph of each architecture computes in one way. */
static const char *lacks_function(const calm_config *config, const calm_gguf_arch *as)
{
    const calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const bool part = rope->theta > 0 && rope->rotary != config->head_dim && !config->latent.rope;
    return config->moe.shared_bias
               ? "its shared expert has biases (mlp_bias, use_bias), which llama.cpp does not know"
           : rope->odd ? "an odd number of channels of a head turn (partial_rotary_factor), in llama.cpp an even one"
           : !has_activation(config, as)
               ? "its activation function is not the one that llama.cpp has for its architecture"
           : part && !as->partial && !as->shares ? "only some channels of a head turn by their position"
                                                 : NULL;
}

const char *calm_gguf_lacks(const calm_config *config, const calm_gguf_arch *as)
{
    const char *const all[] = {lacks_function(config, as), lacks_latent(config), lacks_mixer(config, as),
                               lacks_scan(config, as), lacks_chunk(config, as), lacks_encoder(config, as),
                               lacks_limit(config), lacks_stream(config), lacks_sharing(config, as)};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all && !found; i++)
        found = all[i];
    return found;
}
