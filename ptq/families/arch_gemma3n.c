/* Gemma 3n (text): windows and rotary embeddings of Gemma 3 with plain RMSNorms, unscaled scores, normalised values,
 * and shared keys and per-layer inputs like Gemma 4.  A block updates several residual streams, of which its sublayers
 * read one, with a low-rank branch next to attention (streams.h).  Widths of MLPs, and shares of zeros in gates
 * (gaussian_top_k.h), are lists over blocks.
 *
 * Reference: transformers' modeling_gemma3n.py. */
#include "ptq/families/gemma.h"

/* The open config.json. */
typedef struct source {
    const char *path;
    const calm_json *root;
} source;

/* Checks that a key has a list with an entry for each block. */
static calm_status need_list(calm_ctx *ctx, const source *from, const char *key, const calm_config *config,
                             const calm_json **list)
{
    *list = calm_json_get(from->root, key);
    CALM_TRY(calm_json_expect(ctx, *list, CALM_JSON_ARRAY, "%s: \"%s\"", from->path, key));
    return calm_config_one_per_block(ctx, from->path, key, *list, config);
}

/* Reads the widths of MLPs, where they are a list. */
static calm_status read_inner(calm_ctx *ctx, const source *from, calm_config *config)
{
    static const char key[] = "intermediate_size";
    const calm_json *list;
    if (calm_json_typeof(calm_json_get(from->root, key)) != CALM_JSON_ARRAY)
        return CALM_OK;
    CALM_TRY(need_list(ctx, from, key, config, &list));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const calm_json *entry = calm_json_at(list, i);
        const double width = calm_json_number(entry, 0);
        if (calm_json_typeof(entry) != CALM_JSON_INT || !(width >= 1 && width <= (double)CALM_SIZE_LIMIT))
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\"[%zu]: expected a whole number from 1 to %lld, found %g",
                             from->path, key, i, (long long)CALM_SIZE_LIMIT, width);
        config->shapes[i].inner = (size_t)width;
        /* The model's own width is the largest. */
        config->inner = calm_size_max(config->inner, (size_t)width);
    }
    return CALM_OK;
}

/* Reads the shares of zeros in gates. */
static calm_status read_sparsity(calm_ctx *ctx, const source *from, calm_config *config)
{
    static const char key[] = "activation_sparsity_pattern";
    const calm_json *list;
    /* The default of transformers' class. */
    if (calm_json_typeof(calm_json_get(from->root, key)) == CALM_JSON_NULL) {
        for (size_t i = 0; config->n_blocks > 10 && i < 10; i++)
            config->shapes[i].gate_sparsity = 0.95F;
        return CALM_OK;
    }
    CALM_TRY(need_list(ctx, from, key, config, &list));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const float share = (float)calm_json_number(calm_json_at(list, i), -1);
        /* Checked after rounding to float32: the quantile of 1 would be infinite. */
        if (!(share >= 0 && share < 1))
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\"[%zu]: expected a number from 0 to less than 1, found %g",
                             from->path, key, i, (double)share);
        config->shapes[i].gate_sparsity = share;
    }
    return CALM_OK;
}

/* Reads the residual streams, which are carried after the shared keys and values. */
static calm_status read_streams(calm_ctx *ctx, const source *from, calm_config *config)
{
    calm_stream_config *streams = &config->streams;
    int64_t n, active;
    CALM_TRY(calm_json_need_int(ctx, from->path, from->root, "altup_num_inputs", &(int64_t){4}, 1,
                                (int64_t)CALM_STREAMS, &n));
    CALM_TRY(calm_json_need_int(ctx, from->path, from->root, "altup_active_idx", &(int64_t){0}, 0, n - 1, &active));
    CALM_TRY(calm_config_switch(ctx, from->path, from->root, "altup_correct_scale", true, &streams->scale));
    CALM_TRY(calm_config_size(ctx, from->path, from->root, "laurel_rank", &(int64_t){64}, &streams->rank));
    /* The columns of a carried row cannot overflow: each dimension has a limit, and the streams are few. */
    streams->n = (size_t)n;
    streams->active = (size_t)active;
    streams->at = config->carried;
    config->carried += streams->n * config->hidden;
    return CALM_OK;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const source from = {path, root};
    CALM_TRY(calm_gemma_read_cap(ctx, path, root, "final_logit_softcapping", 30, &config->logit_cap));
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    config->embedding_scale = calm_gemma_embedding_scale(config);
    /* Norms of q and k replace the scale of scores. */
    config->attention_scale = 1;
    config->value_norm = true;
    CALM_TRY(calm_config_windows(ctx, path, root, 512, calm_slides_between, 5, config));
    CALM_TRY(calm_gemma_read_inputs(ctx, path, root, 262144, config));
    if (!config->per_layer)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"hidden_size_per_layer_input\": expected at least 1, found 0 or null",
                         path);
    CALM_TRY(read_inner(ctx, &from, config));
    CALM_TRY(read_sparsity(ctx, &from, config));
    CALM_TRY(calm_gemma_read_sharing(ctx, path, root, 15, config));
    return read_streams(ctx, &from, config);
}

/* Names of per-layer inputs (tail.h); there is no factor after them. */
static const calm_tail_names tail = {CALM_GEMMA_INPUTS};

static const calm_stream_names streams = {
    .router_norm = "altup.router_norm",
    .router = "altup.modality_router",
    .predict = "altup.prediction_coefs",
    .correct = "altup.correction_coefs",
    .scale = "altup.correct_output_scale",
    .left = "laurel.linear_left",
    .right = "laurel.linear_right",
    .laurel_norm = "laurel.post_laurel_norm",
    .split = "altup_projections",
    .merge = "altup_unembed_projections",
};

static const calm_names names = {CALM_GEMMA_NAMES, CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"),
                                 .tail = &tail, .streams = &streams};

const calm_arch calm_arch_gemma3n = {
    CALM_GEMMA_VARIED,
    .name = "gemma3n",
    .classes = "Gemma3nForCausalLM",
    .stem = "Gemma3nText",
    .model_types = "gemma3n_text",
    .names = &names,
    .inner_list = true,
    .default_kv_heads = 2,
    .default_positions = 32768,
    .local_theta_key = "rope_local_base_freq",
    /* Published files have query_pre_attn_scalar, which no code of the family reads: scores are not scaled. */
    .keys = "query_pre_attn_scalar attention_bias final_logit_softcapping sliding_window layer_types "
            "num_kv_shared_layers hidden_size_per_layer_input vocab_size_per_layer_input altup_num_inputs "
            "altup_active_idx altup_correct_scale laurel_rank activation_sparsity_pattern",
    .read_config = read_config,
};
