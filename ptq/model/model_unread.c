/* Finds tensors within the model that the readers of model.c ignore. */
#include "ptq/model/model_unread.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/model/model_impl.h"
#include "ptq/model/tensor_use.h"
#include "ptq/weights/qformat.h"

/* Keys of config.json that switch a tensor on, in the order in which the family's key is searched. */
static const char attention_keys[] = "attention_bias qkv_bias use_bias mamba_proj_bias conv_bias",
                  output_keys[] = "attention_out_bias attention_bias use_bias mamba_proj_bias conv_bias",
                  inner_keys[] = "mlp_bias use_bias", head_keys[] = "lm_head_bias use_bias",
                  convolution_keys[] = "conv_bias mamba_conv_bias use_conv_bias", norm_keys[] = "norm_bias",
                  qk_keys[] = "use_qk_norm qk_layernorm use_qkv_norm", choice_keys[] = "use_expert_bias";

/* Is `name` MODULE.SUFFIX? */
static bool is_part(const char *name, const char *module, const char *suffix)
{
    const size_t n = module ? strlen(module) : 0;
    return module && strncmp(name, module, n) == 0 && name[n] == '.' && strcmp(name + n + 1, suffix) == 0;
}

/* Returns the linear whose bias is `name`; NULL: none. */
static const calm_linear_ref *linear_of_bias(const calm_layout *layout, const char *name)
{
    for (size_t i = 0; i < layout->n_linears; i++)
        if (is_part(name, layout->linears[i].module, "bias"))
            return &layout->linears[i];
    return NULL;
}

/* ---- which ---- */

/* Is it a bias of zeros, which GPTQ's first tools wrote for every linear? */
static calm_status is_nothing(calm_ctx *ctx, const calm_tensor *tensor, bool *out)
{
    float *values;
    CALM_SCOPED_SCRATCH(ctx);
    *out = false;
    if (tensor->n_dims != 1 || !calm_dtype_is_float(tensor->dtype) || !calm_text_ends_with(tensor->name, "bias"))
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, tensor->n_elements));
    CALM_TRY(calm_tensor_part_to_f32(ctx, tensor, 0, tensor->n_elements, values));
    *out = true;
    for (size_t i = 0; i < tensor->n_elements && *out; i++)
        *out = values[i] == 0;
    return CALM_OK;
}

/* Is it a part of a quantized weight or a scale of the KV cache, which other readers use? */
static bool is_of_format(const char *name)
{
    const char *dot = strrchr(name, '.');
    calm_qformat_part part;
    /* Some formats call their codes `weight`, the name of float matrices. */
    return dot && strcmp(dot, ".weight") != 0 &&
           (calm_qformat_suffix_part(NULL, dot + 1, &part) || calm_text_ends_with(dot, "_scale") ||
            calm_text_ends_with(dot, "_scale_inv") || calm_text_ends_with(dot, "_zero_point"));
}

/* Is it a left-over tensor (calm_kv_is_unused_module) of a block that reads another block's keys? */
static bool is_left_over(const calm_config *config, size_t block, const char *rest)
{
    const char *dot = strrchr(rest, '.');
    char module[128];
    /* Names of such modules, "self_attn.k_proj", are much shorter. */
    if (!dot || (size_t)(dot - rest) >= sizeof module)
        return false;
    memcpy(module, rest, (size_t)(dot - rest));
    module[dot - rest] = '\0';
    return calm_kv_is_unused_module(calm_config_at(config, block), module);
}

calm_status calm_model_is_unread(calm_ctx *ctx, const calm_config *config, const calm_layout *layout,
                                 const char *prefix, const calm_tensor *tensor, bool *out)
{
    const char *norm = config->arch->names->final_norm, *rest;
    bool nothing;
    *out = false;
    if (!calm_arch_in_block(config->arch, prefix, tensor->name)) {
        /* Outside of the blocks other models may exist next to this one, so only tensors of this model's modules
         * count. */
        const size_t n = strlen(prefix);
        const bool is_norm = strncmp(tensor->name, prefix, n) == 0 && is_part(tensor->name + n, norm, "bias");
        if (!is_norm && !is_part(tensor->name, layout->head, "bias"))
            return CALM_OK;
    } else {
        const long block = calm_arch_block_of(config->arch, prefix, tensor->name, &rest);
        /* A block beyond the model's belongs to another model, for example of multi-token prediction. */
        if (block < 0 || block >= (long)config->n_blocks || is_left_over(config, (size_t)block, rest))
            return CALM_OK;
    }
    if (is_of_format(tensor->name) || calm_tensor_use_of(config, layout, prefix, tensor->name) != CALM_TENSOR_FOREIGN)
        return CALM_OK;
    /* Last, since only this check reads the tensor's elements. */
    CALM_TRY(is_nothing(ctx, tensor, &nothing));
    *out = !nothing;
    return CALM_OK;
}

/* ---- why ---- */

/* Does the name contain one of the words, of which NULL ends the list? */
static bool has_word(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strstr(name, *words))
            return true;
    return false;
}

/* Returns the keys that may switch the tensor on; NULL: unknown. */
static const char *keys_of(const calm_config *config, const calm_layout *layout, const char *name)
{
    static const char *const qk[] = {"q_norm.", "k_norm.", "q_layernorm.", "k_layernorm.", "query_layernorm.",
                                     "key_layernorm.", NULL},
                      *const convolution[] = {"conv.bias", "conv1d.bias", NULL};
    const calm_linear_ref *linear = linear_of_bias(layout, name);
    const char *choice = config->arch->names->moe.choice_bias;
    if (linear && calm_job_sublayer(calm_role_job(linear->role)) == CALM_SUBLAYER_ATTENTION)
        return linear->role == CALM_ROLE_O ? output_keys : attention_keys;
    if (linear)
        return inner_keys;
    if (is_part(name, layout->head, "bias"))
        return head_keys;
    if (choice && calm_text_ends_with(name, choice))
        return choice_keys;
    /* Norms of q and k come first, since their biases also end in ".bias". */
    return has_word(name, qk)                    ? qk_keys
           : has_word(name, convolution)         ? convolution_keys
           : calm_text_ends_with(name, ".bias") ? norm_keys
                                                 : NULL;
}

/* Returns the first word of `list` that is one of the family's keys, *n characters; NULL: none. */
static const char *find_key(const calm_arch *arch, const char *list, size_t *n)
{
    for (; list && *list; list += *n + (list[*n] == ' ')) {
        /* Every word of the lists at the top is shorter. */
        char key[64];
        *n = strcspn(list, " ");
        memcpy(key, list, *n);
        key[*n] = '\0';
        if (calm_config_own_key(arch, key))
            return list;
    }
    return NULL;
}

calm_status calm_model_unread_reason(calm_ctx *ctx, const calm_config *config, const calm_layout *layout,
                                     const calm_json *root, const char *name, const char **out)
{
    size_t n = 0;
    char *key, *reason;
    const char *text, *found = find_key(config->arch, keys_of(config, layout, name), &n);
    /* calm_json_text() writes to ctx->out, and the reason is temporary. */
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    if (!found) {
        CALM_TRY(calm_strf(ctx, ctx->out, &reason, "by config.json, the model (%s) has no such tensor",
                           config->arch->name));
        *out = reason;
        return CALM_OK;
    }
    CALM_TRY(calm_strf(ctx, ctx->out, &key, "%.*s", (int)n, found));
    const calm_json *value = calm_json_get(root, key);
    if (value)
        CALM_TRY(calm_json_text(ctx, value, &text));
    CALM_TRY(value ? calm_strf(ctx, ctx->out, &reason, "config.json says \"%s\" %s", key, text)
                   : calm_strf(ctx, ctx->out, &reason, "config.json does not say \"%s\"", key));
    *out = reason;
    return CALM_OK;
}

/* ---- all of a model ---- */

/* Is it MODULE.weight of a linear?  In a large mixture nearly all tensors are recognised here. */
static bool is_weight(const calm_layout *layout, const char *name)
{
    return calm_text_ends_with(name, ".weight") && calm_layout_find(layout, name, strlen(name) - strlen(".weight"));
}

/* Logs the warning for one kind of names: a fault of all blocks is one line. */
static calm_status say(calm_ctx *ctx, const calm_model *model, const calm_name_kind *kind)
{
    const calm_tensor *tensor = calm_safetensors_find(model->tensors, kind->first);
    const char *reason;
    char others[48] = "";
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_model_unread_reason(ctx, &model->config, &model->layout, model->text ? model->text : model->json,
                                      tensor->name, &reason));
    if (kind->n > 1)
        snprintf(others, sizeof others, " (and %zu of other numbers)", kind->n - 1);
    calm_log(ctx, CALM_LOG_WARNING, "tensor %s%s is in %s and not used: %s", tensor->name, others,
             tensor->file ? tensor->file : model->dir, reason);
    return CALM_OK;
}

calm_status calm_model_warn_unread(calm_ctx *ctx, const calm_model *model)
{
    const calm_safetensors *set = model->tensors;
    calm_name_kinds kinds = {.n = 0};
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        bool unread = false;
        if (!is_weight(&model->layout, tensor->name))
            CALM_TRY(calm_model_is_unread(ctx, &model->config, &model->layout, model->prefix, tensor, &unread));
        if (unread)
            calm_model_names_add(&kinds, tensor->name);
    }
    for (size_t k = 0; k < kinds.n; k++)
        CALM_TRY(say(ctx, model, &kinds.of[k]));
    if (kinds.beyond)
        calm_log(ctx, CALM_LOG_WARNING, "%s: %zu more tensors are not used", model->dir, kinds.beyond);
    return CALM_OK;
}
