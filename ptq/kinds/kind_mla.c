/* Multi-head latent attention (latent.c): one narrow row per token determines the keys and values of all heads, and in
 * most models another one the queries. */
#include "ptq/arch/kind.h"

#include "ptq/layers/latent_back.h"

/* q_a and kv_a read the same input.  Engines absorb kv_b into q and o, and read its floats. */
static const calm_kind_job jobs[] = {
    {.job = CALM_JOB_QKV_A, .outer = true, .fold = CALM_FOLD_NORM, .fused = "fused_qkv_a_proj"},
    {.job = CALM_JOB_Q_B},
    {.job = CALM_JOB_KV_B, .stays_float = "engines multiply it into q and o, and want its floats"},
    {.job = CALM_JOB_O, .fold = CALM_FOLD_ROWS, .place = CALM_PLACE_O},
};

static const calm_kind_word words[] = {{.role = CALM_ROLE_Q_FULL, .word = "attn_q"},
                                       {.role = CALM_ROLE_Q_A, .word = "attn_q_a"},
                                       {.role = CALM_ROLE_KV_A, .word = "attn_kv_a_mqa"},
                                       {.role = CALM_ROLE_Q_B, .word = "attn_q_b"},
                                       {.role = CALM_ROLE_KV_B, .form = CALM_GGUF_KV_KEYS, .word = "attn_k_b"},
                                       {.role = CALM_ROLE_KV_B, .form = CALM_GGUF_KV_VALUES, .word = "attn_v_b"},
                                       {.role = CALM_ROLE_O, .word = "attn_output"}};

/* Engines do not fuse kv_a with q_proj of models without q_a. */
static const calm_fusion fusions[] = {{{"q_a_proj", "kv_a_proj_with_mqa"}, "fused_qkv_a_proj"}};

/* transformers gives these two norms a fixed epsilon, independent of rms_norm_eps. */
static const calm_kind_plain plains[] = {
    {.plain = CALM_PLAIN_Q_A_NORM, .form = CALM_PLAIN_RMS_NORM, .eps = 1e-6, .word = "attn_q_a_norm"},
    {.plain = CALM_PLAIN_KV_A_NORM, .form = CALM_PLAIN_RMS_NORM, .eps = 1e-6, .word = "attn_kv_a_norm"},
};

static const calm_hook hooks[] = {CALM_HOOK_LATENT};

/* Queries come from one linear, or from two with a latent in between. */
static bool has(const calm_config *config, calm_role role)
{
    const bool narrow = config->latent.q_rank > 0;
    return role == CALM_ROLE_Q_FULL ? !narrow : role == CALM_ROLE_Q_A || role == CALM_ROLE_Q_B ? narrow : true;
}

/* Gives the shape of a role; its rows and columns are ranks, widths of all heads, or the hidden size. */
static void shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    const calm_latent_config *latent = &config->latent;
    const size_t q = calm_latent_q_width(config), context = calm_latent_context_width(config);
    (void)expert;
    *in = role == CALM_ROLE_Q_B    ? latent->q_rank
          : role == CALM_ROLE_KV_B ? latent->kv_rank
          : role == CALM_ROLE_O    ? context
                                   : config->hidden;
    *out = role == CALM_ROLE_Q_A    ? latent->q_rank
           : role == CALM_ROLE_KV_A ? latent->kv_rank + latent->rope
           : role == CALM_ROLE_KV_B ? calm_latent_kv_width(config)
           : role == CALM_ROLE_O    ? config->hidden
                                    : q;
}

static const char *keys(calm_role role)
{
    switch (role) {
    case CALM_ROLE_Q_A:
        return "q_lora_rank";
    case CALM_ROLE_Q_B:
        return "q_lora_rank, and num_attention_heads of qk_nope_head_dim + qk_rope_head_dim";
    case CALM_ROLE_Q_FULL:
        return "q_lora_rank null, and num_attention_heads of qk_nope_head_dim + qk_rope_head_dim";
    case CALM_ROLE_KV_A:
        return "kv_lora_rank + qk_rope_head_dim";
    case CALM_ROLE_KV_B:
        return "kv_lora_rank, and num_attention_heads of qk_nope_head_dim + v_head_dim";
    default:
        return "num_attention_heads of v_head_dim";
    }
}

/* Gives the width of the latents' norms; without q_a there is only one norm. */
static void plain_shape(const calm_config *config, calm_plain plain, size_t dims[CALM_PLAIN_DIMS], int *n_dims)
{
    dims[0] = plain == CALM_PLAIN_Q_A_NORM ? config->latent.q_rank : config->latent.kv_rank;
    *n_dims = dims[0] > 0;
}

/* Returns the width of the latent and the shared key, which engines cache after norm and rotation. */
static size_t hook_width(const calm_config *config, calm_hook hook, long expert)
{
    (void)hook;
    (void)expert;
    return config->latent.kv_rank + config->latent.rope;
}

/* Gives the rows of v in kv_b, which follow those of each head's key: o reads the heads' weighted sums of v. */
static bool feed(const calm_config *config, calm_job_kind job, long expert, calm_feed *out)
{
    const calm_latent_config *latent = &config->latent;
    (void)job;
    (void)expert;
    *out = (calm_feed){.role = CALM_ROLE_KV_B,
                       .first = latent->nope,
                       .stride = latent->nope + latent->value,
                       .heads = config->n_heads,
                       .width = latent->value,
                       .readers = 1};
    return true;
}

/* ---- forward ---- */

static calm_status run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer)
{
    const size_t n = span->n_tokens, width = calm_latent_context_width(block->config);
    CALM_SCOPED_SCRATCH(ctx);
    calm_latent rows;
    float *context;
    calm_observation seen = {CALM_HOOK_O_IN, CALM_NO_EXPERT, span->window, NULL, n, width, NULL};
    CALM_TRY(calm_latent_project(ctx, block, h, span, calm_weight_apply, observer, &rows));
    /* Only the rope parts of keys and queries are rotated: they have no norm, and do not come from kv_b. */
    CALM_TRY(calm_heads_rotate(ctx, block, rope, &rows.heads, calm_rope_rotate));
    /* Keys are stored after the rotation, so that later calls need not rotate them again. */
    calm_heads_remember(block, &rows.heads);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, context, n * width));
    CALM_TRY(calm_heads_attend_all(ctx, &rows.heads, &(calm_heads_kept){NULL, NULL}, context));
    seen.x = context;
    CALM_TRY(calm_observe(observer, ctx, &seen));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_O], context, n, out);
}

static size_t scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    const size_t width = calm_latent_context_width(config), first = calm_latent_prepared_bytes(config, n_tokens);
    const size_t last = prepared ? calm_weight_apply_scratch_bytes(width, n_tokens) : 0;
    /* The prepared inputs of the first linears are released before scores are computed; that of o is allocated last. */
    return calm_latent_project_bytes(config, n_tokens)
           + calm_size_max(prepared ? first : 0, calm_rope_scratch_bytes(config, n_tokens)
                                                     + CALM_BYTES(float, n_tokens * width)
                                                     + calm_heads_attend_bytes(config, n_tokens) + last);
}

/* ---- learning ---- */

static const calm_kind_back back = {.tape_bytes = sizeof(calm_latent_tape),
                                    .forward = calm_latent_forward_tape,
                                    .back = calm_latent_back,
                                    .kept_bytes = calm_latent_tape_bytes,
                                    .forward_bytes = calm_latent_forward_tape_bytes,
                                    .back_bytes = calm_latent_back_bytes};

/* ---- the kind ---- */

const calm_kind calm_kind_mla = {
    .name = "mla",
    CALM_KIND_MIXER,
    CALM_KIND_LIST(fusions),
    CALM_KIND_LIST(hooks),
    .has = has,
    .keys = keys,
    .hook_width = hook_width,
    .feed = feed,
    .helper_bytes = calm_heads_attend_bytes,
};
