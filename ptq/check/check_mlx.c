/* Check: MLX's entry, and the modules that it quantizes. */
#include <string.h>

#include "ptq/check/check_state.h"
#include "ptq/model/tensor_use.h"

static calm_status check_two_entries(calm_checking *c, const calm_json *first, const calm_json *second)
{
    CALM_SCOPED_TEXT(a);
    CALM_SCOPED_TEXT(b);
    if (!second)
        return CALM_OK;
    CALM_TRY(calm_json_write(c->ctx, first, 0, &a));
    CALM_TRY(calm_json_write(c->ctx, second, 0, &b));
    return strcmp(a.data, b.data) == 0 ? CALM_OK
                                       : calm_check_add(c, CALM_CHECK_RULE_MLX_TWO_ENTRIES, "config.json",
                                                        "quantization and quantization_config are not the same");
}

static calm_status check_entry(calm_checking *c, const char *module, const calm_json *value)
{
    const calm_json_type type = calm_json_typeof(value);
    const calm_check_module *found = calm_check_find_module(c, module);
    const bool scales = found && calm_check_part(c, found, "scales");
    if (type == CALM_JSON_OBJECT && !scales)
        return calm_check_add(c, CALM_CHECK_RULE_MLX_NO_SCALES, module, "the entry has settings, %s",
                              found ? "there are no scales" : "there is no such module");
    if (type == CALM_JSON_BOOL && !calm_json_bool(value, true) && scales)
        return calm_check_add(c, CALM_CHECK_RULE_MLX_FALSE, module, "the entry is false");
    return CALM_OK;
}

/* ---- modules ---- */

static calm_status resolve(calm_checking *c, const calm_json *entry)
{
    for (size_t i = 0; i < c->n_modules; i++) {
        calm_check_module *module = &c->modules[i];
        const calm_tensor *weight = calm_check_part(c, module, "weight");
        const calm_json *value = calm_json_get(entry, module->name);
        bool quantized = false;
        if (!module->linear && !(weight && weight->n_dims == 2))
            continue;
        if (calm_qformat_find(c->ctx, c->reader, c->set, module->name, &quantized, &module->scheme) != CALM_OK)
            return calm_check_add_failure(c, CALM_CHECK_RULE_MLX_CONFIG, module->name);
        module->quantized = quantized && (module->stored || calm_json_typeof(value) != CALM_JSON_NULL);
        if (!quantized && !value && weight && weight->n_dims == 2)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_MLX_NO_FALSE, module->name, "config.json does not name it"));
    }
    c->resolved = true;
    return CALM_OK;
}

/* ---- tensors without a module ---- */

/* Returns true if mlx-lm's model has a parameter for this tensor.  Scales and biases (of codes) belong to a weight; the
 * experts of a block are one module, which calm_check_model found. */
static bool is_parameter(const calm_checking *c, const calm_check_module *module, const char *suffix, const char *name,
                         const char *weight)
{
    static const char *const parts[] = {"weight", "scales", "biases"},
                             *const drop[] = {"llama", "mistral", "qwen2", "olmo2"};
    const bool part = CALM_CHECK_LISTED(suffix, parts);
    if (module->in_layout && part)
        return true;
    if (module->in_layout && !calm_tensor_mlx_has_biases(c->model.arch))
        return false;
    const calm_tensor_use use = calm_tensor_use_of(&c->model, &c->layout, c->prefix, part ? weight : name);
    /* mlx-lm drops a tied head, and in some families the frequencies of rotary embeddings. */
    return use == CALM_TENSOR_READ || (use == CALM_TENSOR_COPY && strcmp(suffix, "weight") == 0)
           || (CALM_CHECK_LISTED(c->model.arch->name, drop)
               && calm_text_ends_with(name, "self_attn.rotary_emb.inv_freq"));
}

static calm_status check_parameters(calm_checking *c)
{
    for (size_t i = 0; i < c->n_modules; i++)
        for (size_t m = c->modules[i].first; m < c->modules[i].first + c->modules[i].n; m++) {
            const calm_check_member *member = &c->members[m];
            char *weight;
            CALM_SCOPED_SCRATCH(c->ctx);
            CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &weight, "%s.weight", member->module));
            if (!is_parameter(c, &c->modules[i], member->suffix, member->tensor->name, weight))
                CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_MLX_FOREIGN, member->tensor->name,
                                        "%s has no such parameter", c->model.arch->name));
        }
    return CALM_OK;
}

/* Returns true for settings that mlx-lm accepts: affine with 2 to 8 bits except 7, and the modes of its floats. */
static bool is_of_mlx(const calm_json *entry, const calm_json *base)
{
    static const char *const modes[] = {"mxfp4", "mxfp8", "nvfp4"};
    const char *mode = calm_json_string(calm_json_get(entry, "mode"),
                                        calm_json_string(calm_json_get(base, "mode"), "affine"));
    const int64_t bits = calm_json_int(calm_json_get(entry, "bits"), calm_json_int(calm_json_get(base, "bits"), 0)),
                  group = calm_json_int(calm_json_get(entry, "group_size"),
                                        calm_json_int(calm_json_get(base, "group_size"), 0));
    return CALM_CHECK_LISTED(mode, modes)
           || (strcmp(mode, "affine") == 0 && bits >= 2 && bits <= 8 && bits != 7
               && (group == 32 || group == 64 || group == 128));
}

static bool is_elsewhere(const calm_checking *c)
{
    const calm_json *base = calm_json_get(c->config, "quantization"), *value;
    const char *key;
    bool all = is_of_mlx(base, base);
    for (void *iter = NULL; calm_json_next(base, &iter, &key, &value);)
        all &= calm_json_typeof(value) != CALM_JSON_OBJECT || is_of_mlx(value, base);
    return all;
}

static calm_status check(calm_checking *c)
{
    const calm_json *entry = calm_json_get(c->config, "quantization"), *value;
    const char *key;
    CALM_TRY(calm_check_open(c, CALM_CHECK_RULE_MLX_CONFIG, is_elsewhere));
    CALM_TRY(check_two_entries(c, entry, c->entry));
    for (void *iter = NULL; calm_json_next(entry, &iter, &key, &value);)
        CALM_TRY(check_entry(c, key, value));
    if (c->model_known && !c->unread)
        CALM_TRY(check_parameters(c));
    return c->reader ? resolve(c, entry) : CALM_OK;
}

const calm_check_format calm_check_format_mlx = {.entry = check};
