/* Attention: softmax(q k^T) v over heads; several query heads may share a head of k and v (attention.c). */
#include "ptq/arch/kind.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/layers/attention_back.h"

/* q, k and v read the output of one norm; a weighted sum keeps factors of v's rows, so o's scale can be folded into
 * them. */
static const calm_kind_job jobs[] = {
    {.job = CALM_JOB_QKV, .outer = true, .fold = CALM_FOLD_NORM, .turns = true, .splits = true, .apart = CALM_ROLE_V,
     .fused = "qkv_proj", .fused_last = "self_attn.v_proj|mixer.v_proj"},
    {.job = CALM_JOB_O, .fold = CALM_FOLD_ROWS, .place = CALM_PLACE_O},
};

/* llama.cpp rotates neighbouring channels in some families, for which its files permute rows of q and k. */
static const calm_kind_word words[] = {{.role = CALM_ROLE_Q, .form = CALM_GGUF_Q, .bias = true, .word = "attn_q"},
                                       {.role = CALM_ROLE_K, .form = CALM_GGUF_K, .bias = true, .word = "attn_k"},
                                       {.role = CALM_ROLE_V, .bias = true, .word = "attn_v"},
                                       {.role = CALM_ROLE_FUSED_QKV, .word = "attn_qkv"},
                                       {.role = CALM_ROLE_O, .word = "attn_output"}};

/* The names of decoders, and of BERT, whose fused module has no name in engines. */
static const calm_fusion fusions[] = {{{"q_proj", "k_proj", "v_proj"}, "qkv_proj"},
                                      {{"query", "key", "value"}, NULL}};

static const calm_kind_plain plains[] = {
    {.plain = CALM_PLAIN_Q_NORM, .form = CALM_PLAIN_FAMILY_NORM, .word = "attn_q_norm"},
    {.plain = CALM_PLAIN_K_NORM, .form = CALM_PLAIN_FAMILY_NORM, .word = "attn_k_norm"},
    {.plain = CALM_PLAIN_SINKS, .form = CALM_PLAIN_TENSOR, .word = "attn_sinks.weight"},
};

static const calm_hook hooks[] = {CALM_HOOK_SINK};

static size_t hook_width(const calm_config *config, calm_hook hook, long expert)
{
    (void)hook;
    (void)expert;
    /* Families without sinks do not have the hook point either. */
    return config->arch->names->plain[CALM_PLAIN_SINKS] ? config->n_heads : 0;
}

/* A block may take its values from its keys, or both from another block. */
static bool has(const calm_config *config, calm_role role)
{
    const bool shared = config->kv == CALM_KV_SHARED;
    return !(shared && (role == CALM_ROLE_K || role == CALM_ROLE_V)) && !(config->k_is_v && role == CALM_ROLE_V);
}

/* Gives the shape of a role. */
static void shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    (void)expert;
    *in = role == CALM_ROLE_O ? q_width : config->hidden;
    switch (role) {
    case CALM_ROLE_Q:
        *out = (config->output_gate ? 2 : 1) * q_width;
        break;
    case CALM_ROLE_FUSED_QKV:    /* stacked in this order */
        *out = q_width + 2 * kv_width;
        break;
    case CALM_ROLE_O:
        *out = config->hidden;
        break;
    default:
        *out = kv_width;
    }
}

/* Gives the shapes of norms and sinks; families share tables of names, so a name alone does not mean that a norm
 * exists. */
static void plain_shape(const calm_config *config, calm_plain plain, size_t dims[CALM_PLAIN_DIMS], int *n_dims)
{
    const size_t heads = plain == CALM_PLAIN_K_NORM ? config->n_kv : config->n_heads;
    if (plain == CALM_PLAIN_SINKS) {
        /* One logit per head. */
        dims[0] = heads;
        *n_dims = 1;
        return;
    }
    /* The norm of keys is not read where another block computes the keys. */
    if (plain == CALM_PLAIN_K_NORM && config->kv == CALM_KV_SHARED)
        return;
    /* A norm over heads has the same weights for every head; a norm over the whole projection has one for each
     * channel. */
    dims[0] = (config->qk_norm == CALM_QK_NORM_HEAD ? 1 : heads) * config->head_dim;
    /* In some families config.json switches the norms off. */
    *n_dims = config->qk_norm == CALM_QK_NORM_HEAD || config->qk_norm == CALM_QK_NORM_WHOLE;
}

/* Gives the rows of v, of a fused matrix the last ones: o reads the heads' weighted sums of v. */
static bool feed(const calm_config *config, calm_job_kind job, long expert, calm_feed *out)
{
    const bool fused = calm_has_role(config, CALM_ROLE_FUSED_QKV);
    const size_t d = config->head_dim;
    (void)job;
    (void)expert;
    *out = (calm_feed){.role = fused ? CALM_ROLE_FUSED_QKV : CALM_ROLE_V,
                       .first = fused ? (config->n_heads + config->n_kv) * d : 0,
                       .stride = d,
                       .heads = config->n_kv,
                       .width = d,
                       .readers = config->n_heads / config->n_kv,
                       .rotates = !config->output_gate,    /* the gate is not linear in a head's channels */
                       .groups = true};
    /* A norm or a limit of v does not keep a scale; with k_is_v the rows would be those of k, too. */
    return !config->value_norm && !(config->qkv_limit > 0) && !config->k_is_v && config->kv != CALM_KV_SHARED;
}

/* ---- learning ---- */

static const calm_kind_back back = {.tape_bytes = sizeof(calm_attention_tape),
                                    .forward = calm_attention_forward_tape,
                                    .back = calm_attention_back,
                                    .kept_bytes = calm_attention_tape_bytes,
                                    .forward_bytes = calm_attention_forward_tape_bytes,
                                    .back_bytes = calm_attention_back_bytes};

/* Returns the operations per token of scores and weighted sums; causal attention sees half of the window on average. */
static double operations(const calm_config *config, double window)
{
    return (config->both_ways ? 4 : 2) * window * (double)(config->n_heads * config->head_dim);
}

/* ---- the kind ---- */

bool calm_kv_is_unused_module(const calm_config *config, const char *module)
{
    const calm_names *names = config->arch->names;
    const char *const left[] = {names->role[CALM_ROLE_K], names->role[CALM_ROLE_V], names->plain[CALM_PLAIN_K_NORM]};
    for (size_t i = 0; config->kv == CALM_KV_SHARED && i < sizeof left / sizeof *left; i++)
        if (left[i] && strcmp(left[i], module) == 0)
            return true;
    return false;
}

const calm_kind calm_kind_attention = {
    .name = "attention",
    .slot = CALM_SUBLAYER_ATTENTION,
    CALM_KIND_LIST(jobs),
    CALM_KIND_LIST(words),
    CALM_KIND_LIST(fusions),
    CALM_KIND_LIST(plains),
    CALM_KIND_LIST(hooks),
    .has = has,
    .shape = shape,
    .plain_shape = plain_shape,
    .hook_width = hook_width,
    .feed = feed,
    .run = calm_block_attention,
    .scratch_bytes = calm_block_attention_scratch_bytes,
    .operations = operations,
    .helper_bytes = calm_heads_attend_bytes,
    .back = &back,
};
