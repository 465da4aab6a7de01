/* Properties of an open model that need no weights. */
#include "ptq/model/model_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/tensor/dtype.h"

const calm_config *calm_model_config(const calm_model *model)
{
    return &model->config;
}

const calm_layout *calm_model_layout(const calm_model *model)
{
    return &model->layout;
}

const char *calm_model_prefix(const calm_model *model)
{
    return model->prefix;
}

const char *calm_model_dir(const calm_model *model)
{
    return model->dir;
}

const calm_json *calm_model_json(const calm_model *model)
{
    return model->json;
}

/* A wrapper's text model has a part of config.json. */
const calm_json *calm_model_text_json(const calm_model *model)
{
    return model->text ? model->text : model->json;
}

/* Opening makes `text` only for a wrapper (calm_config_text). */
bool calm_model_is_wrapped(const calm_model *model)
{
    return model->text != NULL;
}

/* A GGUF file names a family instead of a class. */
const char *calm_model_class(const calm_model *model)
{
    const char *first = calm_json_string(calm_json_at(calm_json_get(model->json, "architectures"), 0), NULL);
    return first ? first : model->config.arch->name;
}

const calm_safetensors *calm_model_tensors(const calm_model *model)
{
    return model->tensors;
}

/* Directories only hold safetensors. */
bool calm_model_is_file(const calm_model *model)
{
    return calm_is_file(model->dir);
}

bool calm_model_has_kv_scales(const calm_model *model)
{
    return model->kv != NULL;
}

bool calm_model_is_quantized(const calm_model *model)
{
    /* Codes of compressed-tensors, GPTQ and similar formats, or blocks of a GGUF file. */
    return model->stored || model->in_blocks;
}

const char *calm_model_format(const calm_model *model)
{
    return model->stored ? calm_qformat_of(model->stored)->label : model->in_blocks ? "gguf" : NULL;
}

const char *calm_model_published(const calm_model *model)
{
    return model->published.kind ? model->published.text : NULL;
}

const calm_qformat_reader *calm_model_qformat(const calm_model *model)
{
    return model->stored;
}

calm_status calm_model_set_act_rule(calm_ctx *ctx, calm_model *model, calm_act_rule rule)
{
    const calm_layout *layout = &model->layout;
    bool quantized;
    calm_qformat_scheme scheme;
    /* The present rule is accepted for any model, so callers may always pass their default. */
    if (rule == model->act_rule)
        return CALM_OK;
    for (size_t i = 0; model->stored && i < layout->n_linears; i++) {
        CALM_TRY(calm_qformat_find(ctx, model->stored, model->tensors, layout->linears[i].module, &quantized, &scheme));
        /* A scheme with its own rule keeps it: readers agree on that. */
        if (quantized && scheme.act_bits) {
            model->act_rule = rule;
            return CALM_OK;
        }
    }
    return calm_fail(ctx, CALM_EARG, "%s does not quantize activations, so no rounding rule applies; "
                     "leave it out", model->dir);
}

/* Codes of a quantized checkpoint do not count: this is the model's size only for float checkpoints. */
size_t calm_model_n_params(const calm_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(model->tensors); i++) {
        const calm_tensor *tensor = calm_safetensors_at(model->tensors, i);
        n += calm_dtype_is_float(tensor->dtype) ? tensor->n_elements : 0;
    }
    return n;
}

/* Counts only linears: norms, routers and tables are no jobs. */
double calm_model_weights(const calm_model *model, size_t first, size_t end, bool active)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_moe_config *moe = &calm_model_config(model)->moe;
    /* A double, since the shares of experts are fractions. */
    double total = 0;
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        /* A token uses top_k of n_experts experts. */
        const double share = active && job->expert >= 0 ? (double)moe->top_k / (double)moe->n_experts : 1;
        total += share * (double)job->out * (double)job->in;
    }
    return total;
}

size_t calm_model_bytes(const calm_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(model->tensors); i++)
        /* Scales of published small floats are not part of the codes' bytes. */
        n += calm_safetensors_at(model->tensors, i)->bytes + calm_safetensors_at(model->tensors, i)->scale_bytes;
    return n;
}

size_t calm_model_float_bytes(const calm_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(model->tensors); i++) {
        const calm_tensor *tensor = calm_safetensors_at(model->tensors, i);
        /* A tensor with scales is stored as small floats, and its dtype is that of the decoded values. */
        n += tensor->scales ? tensor->n_elements * calm_dtype_bytes(tensor->dtype) : tensor->bytes;
    }
    return n;
}
