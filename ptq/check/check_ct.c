/* Check: the compressed-tensors entry of config.json, key by key. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/check/check_ct.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const formats[] = {"pack-quantized",       "int-quantized",   "mixed-precision",
                                      "naive-quantized",      "float-quantized", "nvfp4-pack-quantized",
                                      "mxfp4-pack-quantized", "mxfp8-quantized", "marlin-24",
                                      "sparse-24-bitmask",    "sparse-bitmask",  "dense"};

/* Reports keys that pydantic does not know, by the rule for keys of a group or of its arguments. */
static calm_status check_keys(calm_checking *c, calm_check_rule rule, const char *where, const calm_json *object,
                              const char *const *known, size_t n)
{
    const calm_json *value;
    const char *key;
    char hint[CALM_HINT_MAX];
    for (void *iter = NULL; calm_json_next(object, &iter, &key, &value);)
        if (!calm_check_listed(key, known, n))
            CALM_TRY(calm_check_add(c, rule, where, "\"%.64s\" is no key of it%s", key,
                                    calm_did_you_mean(hint, key, known, n)));
    return CALM_OK;
}

static calm_status say_no_object(calm_checking *c, const char *where, const calm_json *value)
{
    return calm_check_add(c, CALM_CHECK_RULE_ARGS, where, "%s, expected an object",
                          calm_json_type_name(calm_json_typeof(value)));
}

static const char *const args_keys[] = {"num_bits",        "type",     "symmetric", "group_size", "strategy",
                                        "block_structure", "dynamic",  "actorder",  "observer",   "observer_kwargs",
                                        "scale_dtype",     "zp_dtype", "is_mx"};

/* The type to which weights or activations are quantized. */
typedef struct ct_args {
    bool valid, ints;
    int bits;
    size_t group;
    const char *strategy;
} ct_args;

static calm_status check_args(calm_checking *c, const char *where, const calm_json *args, ct_args *out)
{
    static const char *const strategies[] = {"tensor", "channel",      "group",    "block",
                                             "token",  "tensor_group", "attn_head"};
    const calm_json *group = calm_json_get(args, "group_size");
    const int64_t n_bits = calm_json_int(calm_json_get(args, "num_bits"), 8), size = calm_json_int(group, 0);
    const char *type = calm_json_string(calm_json_get(args, "type"), "int");
    *out = (ct_args){.strategy = ""};
    CALM_TRY(check_keys(c, CALM_CHECK_RULE_ARGS_KEYS, where, args, args_keys, COUNT(args_keys)));
    if (n_bits < 1 || n_bits > 16 ||
        (calm_json_get(args, "num_bits") && calm_json_typeof(calm_json_get(args, "num_bits")) != CALM_JSON_INT))
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where, "num_bits is %lld, expected a whole number from 2 to 8",
                              (long long)n_bits);
    if (strcmp(type, "int") != 0 && strcmp(type, "float") != 0)
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where, "type is \"%.32s\", expected int or float", type);
    if (calm_json_typeof(group) != CALM_JSON_NULL &&
        (calm_json_typeof(group) != CALM_JSON_INT || size < -1 || size == 0 || size > 1 << 24))
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where,
                              "group_size is %lld, expected columns per group, -1 or null", (long long)size);
    out->strategy =
        calm_json_string(calm_json_get(args, "strategy"), size > 0 ? "group" : size < 0 ? "channel" : "tensor");
    if (!CALM_CHECK_LISTED(out->strategy, strategies))
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where,
                              "strategy is \"%.32s\", expected group, channel, tensor or token", out->strategy);
    const bool grouped = strcmp(out->strategy, "group") == 0 || strcmp(out->strategy, "tensor_group") == 0;
    if (grouped && size <= 0)
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where, "strategy is %s, but group_size is not given",
                              out->strategy);
    if (!grouped && size > 0)
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where, "group_size is %lld, but strategy is %s", (long long)size,
                              out->strategy);
    const bool sides = calm_json_typeof(calm_json_get(args, "block_structure")) != CALM_JSON_NULL;
    if (sides != (strcmp(out->strategy, "block") == 0))
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where, "strategy is %s, but block_structure is %sgiven",
                              out->strategy, sides ? "" : "not ");
    out->valid = true;
    out->ints = strcmp(type, "int") == 0;
    out->bits = (int)n_bits;
    out->group = strcmp(out->strategy, "group") == 0 ? (size_t)size : 0;
    return CALM_OK;
}

/* Returns true if actorder needs an index of groups; true and "dynamic" are synonyms. */
static bool is_reordered(const calm_json *order)
{
    const char *word = calm_json_string(order, "");
    return calm_json_bool(order, false) || strcmp(word, "group") == 0 || strcmp(word, "dynamic") == 0;
}

static calm_status check_weights(calm_checking *c, const char *where, calm_ct_group *group)
{
    const calm_json *args = calm_json_get(group->json, "weights"), *order = calm_json_get(args, "actorder");
    calm_qformat_scheme *scheme = &group->scheme;
    ct_args found;
    char place[160];
    snprintf(place, sizeof place, "%s.weights", where);
    group->no_weights = calm_json_typeof(args) == CALM_JSON_NULL;
    if (group->no_weights)
        return CALM_OK;
    if (calm_json_typeof(args) != CALM_JSON_OBJECT)
        return say_no_object(c, place, args);
    CALM_TRY(check_args(c, place, args, &found));
    const bool rows = strcmp(found.strategy, "group") == 0 || strcmp(found.strategy, "channel") == 0;
    const bool ints = found.valid && found.ints;
    scheme->bits = found.bits;
    scheme->group = found.group;
    scheme->symmetric = calm_json_bool(calm_json_get(args, "symmetric"), true);
    group->floats = found.valid && !found.ints;
    group->foreign = found.valid && found.ints && !rows;
    group->reordered = is_reordered(order);
    if (group->reordered)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_ACTORDER, place, "actorder is \"%.16s\"",
                                calm_json_string(order, "true")));
    if (ints && (scheme->bits < 2 || scheme->bits > 8))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_ARGS, place, "num_bits is %d, expected 2 to 8", scheme->bits));
    else if (ints && scheme->bits > 4 && scheme->bits < 8)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_ODD_BITS, place, "num_bits is %d", scheme->bits));
    group->usable =
        ints && rows && (scheme->bits == 2 || scheme->bits == 3 || scheme->bits == 4 || scheme->bits == 8);
    return CALM_OK;
}

static calm_status check_activations(calm_checking *c, const char *where, calm_ct_group *group)
{
    const calm_json *args = calm_json_get(group->json, "input_activations");
    ct_args found;
    char place[160];
    if (calm_json_typeof(args) == CALM_JSON_NULL)
        return CALM_OK;
    snprintf(place, sizeof place, "%s.input_activations", where);
    if (calm_json_typeof(args) != CALM_JSON_OBJECT)
        return say_no_object(c, place, args);
    CALM_TRY(check_args(c, place, args, &found));
    group->scheme.act_bits = found.bits;
    group->scheme.act_asymmetric = !calm_json_bool(calm_json_get(args, "symmetric"), true);
    const bool dynamic = calm_json_bool(calm_json_get(args, "dynamic"), false);
    const bool token = strcmp(found.strategy, "token") == 0 && dynamic,
               tensor = strcmp(found.strategy, "tensor") == 0 && !dynamic;
    /* Float activations with integer weights: only FP8 per token is read. */
    const bool fp8 = found.valid && !found.ints && found.bits == 8 && token && !group->scheme.act_asymmetric;
    group->foreign |= found.valid && !found.ints && !fp8 && !group->floats && !group->no_weights;
    if (fp8)
        group->scheme.act_rule = CALM_ACT_RULE_FP8;
    if (tensor && found.ints && !group->scheme.act_asymmetric)
        group->scheme.act_rule = CALM_ACT_RULE_STATIC;
    if (found.valid && found.ints && !group->no_weights && !token && !tensor)
        return calm_check_add(c, CALM_CHECK_RULE_ACTIVATIONS, place, "strategy %s, %s", found.strategy,
                              dynamic ? "dynamic" : "static");
    return CALM_OK;
}

/* Reports a group that is valid but not read; its tensors are not checked. */
static calm_status say_foreign(calm_checking *c, const char *where, calm_ct_group *group)
{
    const calm_json *args = calm_json_get(group->json, "weights");
    group->foreign = true;
    group->usable = false;
    return calm_check_add(c, CALM_CHECK_RULE_METHOD_UNCHECKED, where,
                          "%s, %d-bit %s weights, %s activations: calm reads pack-quantized and int-quantized weights "
                          "of ints, by group or channel",
                          group->format ? group->format : "a format that readers infer", group->scheme.bits,
                          calm_json_string(calm_json_get(args, "type"), "int"),
                          group->scheme.act_bits ? "quantized" : "float");
}

/* Checks small-float weights: the loader reads them as a family of schemes, or not at all. */
static calm_status check_floats(calm_checking *c, const char *where, const char *global, calm_ct_group *group)
{
    calm_qformat_scheme scheme = {0};
    if (calm_qformat_ct_group(c->ctx, c->config_path, group->name, group->json, global, &scheme) == CALM_OK) {
        group->scheme = scheme;
        group->usable = true;
        if (!group->format && strcmp(global, "mixed-precision") != 0)
            group->format = global;
        return CALM_OK;
    }
    group->foreign = true;
    return calm_check_add_failure(c, scheme.layout == CALM_CT_FLOATS ? CALM_CHECK_RULE_FORMAT_SCHEME
                                                                     : CALM_CHECK_RULE_METHOD_UNCHECKED, where);
}

static calm_status check_group_format(calm_checking *c, const char *where, const calm_json *entry, calm_ct_group *group)
{
    const char *global = calm_json_string(calm_json_get(entry, "format"), "");
    group->format = calm_json_string(calm_json_get(group->json, "format"), NULL);
    const char *inferred = group->scheme.act_bits ? "int-quantized" : "pack-quantized";
    if (group->format && !CALM_CHECK_LISTED(group->format, formats)) {
        group->usable = false;
        return calm_check_add(c, CALM_CHECK_RULE_GLOBAL_FORMAT, where,
                              "format is \"%.32s\", expected pack-quantized or int-quantized", group->format);
    }
    if (group->no_weights)
        return CALM_OK;
    if (group->floats)
        return check_floats(c, where, global, group);
    if (!group->format && CALM_CHECK_LISTED(global, formats)
        && !calm_check_listed(global, formats, 3)) /* the global format is one that calm does not read */
        group->format = global;
    if (group->foreign)
        return say_foreign(c, where, group);
    if (!group->format) {
        /* A group without a format has the global one, so the format inferred from its scheme must be equal. */
        if (strcmp(global, inferred) != 0)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_GROUP_FORMAT, where,
                                    "no format; readers take %s, the global one is \"%.32s\"", inferred, global));
        group->format = calm_check_listed(global, formats, 2) ? global : inferred;
    }
    if (!group->usable)
        return CALM_OK;
    const bool packed = strcmp(group->format, "pack-quantized") == 0,
               plain = strcmp(group->format, "int-quantized") == 0;
    group->scheme.layout = packed ? CALM_CT_PACK : CALM_CT_INT;
    if (!packed && !plain)
        return say_foreign(c, where, group);
    /* FP8 activations need packed words, integer activations need bytes. */
    const bool fp8 = group->scheme.act_rule == CALM_ACT_RULE_FP8, bytes = group->scheme.act_bits && !fp8;
    if ((packed && bytes) || (plain && !bytes))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_FORMAT_SCHEME, where, "%s with %s activations", group->format,
                                fp8 ? "FP8" : bytes ? "quantized" : "float"));
    if (plain && !group->scheme.symmetric) {
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_ASYMMETRIC_INT, where, "weights.symmetric is false"));
        group->usable = false;
    }
    return CALM_OK;
}

static calm_status check_group_targets(calm_checking *c, const char *where, const calm_ct_group *group)
{
    const calm_json *targets = calm_json_get(group->json, "targets");
    if (calm_json_typeof(targets) != CALM_JSON_ARRAY || calm_json_size(targets) == 0)
        return calm_check_add(
            c, CALM_CHECK_RULE_TARGET_FORM, where, "targets is %s, expected an array of names and patterns",
            calm_json_size(targets) ? calm_json_type_name(calm_json_typeof(targets)) : "missing or empty");
    const char *only = calm_json_size(targets) == 1 ? calm_json_string(calm_json_at(targets, 0), "") : "";
    const bool attention = calm_text_ends_with(only, "Attention");
    if (attention && !group->no_weights)
        return calm_check_add(c, CALM_CHECK_RULE_ATTENTION_TARGET, where, "targets [\"%.128s\"]", only);
    if (group->no_weights && !attention)
        return calm_check_add(c, CALM_CHECK_RULE_ARGS, where,
                              "it has no weights: vLLM takes such a group only for one class that ends in Attention");
    return CALM_OK;
}

static calm_status check_group(calm_checking *c, const calm_json *entry, calm_ct_group *group)
{
    static const char *const keys[] = {"targets", "weights", "input_activations", "output_activations", "format"};
    char where[128];
    snprintf(where, sizeof where, "config_groups.%.64s", group->name);
    if (calm_json_typeof(group->json) != CALM_JSON_OBJECT)
        return say_no_object(c, where, group->json);
    CALM_TRY(check_keys(c, CALM_CHECK_RULE_GROUP_KEYS, where, group->json, keys, COUNT(keys)));
    CALM_TRY(check_weights(c, where, group));
    CALM_TRY(check_activations(c, where, group));
    CALM_TRY(check_group_format(c, where, entry, group));
    return check_group_targets(c, where, group);
}

/* ---- the whole entry ---- */

static calm_status check_global_format(calm_checking *c, const calm_ct_entry *entry)
{
    const char *global = calm_json_string(calm_json_get(entry->json, "format"), NULL), *first = NULL;
    bool differ = false, all = true;
    for (size_t i = 0; i < entry->n_groups; i++)
        all &= entry->groups[i].format != NULL;
    for (size_t i = 0; i < entry->n_groups; i++)
        if (entry->groups[i].format) {
            first = first ? first : entry->groups[i].format;
            differ |= strcmp(entry->groups[i].format, first) != 0;
        }
    if (!global || !CALM_CHECK_LISTED(global, formats))
        return calm_check_add(c, all && entry->n_groups ? CALM_CHECK_RULE_GLOBAL_UNUSED : CALM_CHECK_RULE_GLOBAL_FORMAT,
                              "quantization_config", "format is %s%.32s%s",
                              global ? "\"" : "missing", global ? global : "", global ? "\"" : "");
    const bool mixed = strcmp(global, "mixed-precision") == 0;
    if (mixed && !differ && first)
        return calm_check_add(c, CALM_CHECK_RULE_MIXED_NEEDLESS, "quantization_config", "all groups are %s", first);
    if (!mixed && (differ || (first && strcmp(first, global) != 0)))
        return calm_check_add(c, CALM_CHECK_RULE_FORMATS_DIFFER, "quantization_config", "format is %s, %s", global,
                              differ ? "the groups have several" : first);
    return mixed && differ ? calm_check_add(c, CALM_CHECK_RULE_MIXED_PARTS, "quantization_config",
                                            "pack-quantized and int-quantized groups")
                           : CALM_OK;
}

/* Returns true if the version is "0.18.0" or later. */
static bool takes_dense(const char *version)
{
    int major = 0, minor = 0;
    return version && sscanf(version, "%9d.%9d", &major, &minor) == 2 && (major > 0 || minor >= 18);
}

/* Reports transforms of activations that calm does not read, or that the engine does not apply. */
static calm_status check_transforms(calm_checking *c, const calm_json *transforms)
{
    const calm_json *scheme;
    const char *name;
    size_t width, n_online = 0;
    for (void *iter = NULL; calm_json_next(transforms, &iter, &name, &scheme);) {
        bool online;
        if (calm_qformat_ct_transform(c->ctx, c->config_path, name, scheme, &online, &width) != CALM_OK)
            return calm_check_add_failure(c, CALM_CHECK_RULE_METHOD_UNCHECKED, "quantization_config");
        n_online += online;
    }
    const bool applied = c->asked == CALM_CHECK_VLLM;    /* on NVIDIA GPUs */
    if (!n_online || (!applied && c->asked != CALM_CHECK_TRANSFORMERS && c->asked != CALM_CHECK_VLLM_CPU))
        return CALM_OK;
    return calm_check_add(c, applied ? CALM_CHECK_RULE_TRANSFORMS_ONE_DEVICE : CALM_CHECK_RULE_TRANSFORMS,
                          "quantization_config", "transform_config has %zu for inputs", n_online);
}

static calm_status check_top(calm_checking *c, const calm_ct_entry *entry)
{
    const char *status = calm_json_string(calm_json_get(entry->json, "quantization_status"), NULL);
    const char *version = calm_json_string(calm_json_get(entry->json, "version"), NULL);
    const calm_json *sparse = calm_json_get(entry->json, "sparsity_config"),
                    *turns = calm_json_get(calm_json_get(entry->json, "transform_config"), "config_groups");
    if (!calm_json_string(calm_json_get(entry->json, "quant_method"), NULL))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_NO_METHOD, "quantization_config", "quant_method is missing"));
    if (entry->n_groups && (!status || strcmp(status, "compressed") != 0))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_STATUS, "quantization_config", "quantization_status is %s%.32s%s",
                                status ? "\"" : "missing", status ? status : "", status ? "\"" : ""));
    CALM_TRY(check_transforms(c, turns));
    if (calm_json_size(calm_json_get(sparse, "targets")))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_SPARSITY, "quantization_config", "sparsity_config.targets names %zu",
                                calm_json_size(calm_json_get(sparse, "targets"))));
    for (size_t i = 0; i < entry->n_groups; i++)
        if (entry->groups[i].usable && entry->groups[i].scheme.bits == 3 &&
            entry->groups[i].scheme.layout == CALM_CT_PACK && !takes_dense(version))
            return calm_check_add(c, CALM_CHECK_RULE_THREE_BITS, "quantization_config", "version is \"%.32s\"",
                                  version ? version : "");
    return CALM_OK;
}

/* Checks an entry without groups: only the KV cache is quantized, or weights are only sparse. */
static calm_status check_no_groups(const calm_ct_entry *entry, const calm_json *groups)
{
    calm_checking *c = entry->c;
    const char *sparse =
        calm_json_string(calm_json_get(calm_json_get(entry->json, "sparsity_config"), "format"), "dense");
    c->unread = strcmp(sparse, "dense") != 0;
    c->resolved = !c->unread && calm_json_typeof(calm_json_get(entry->json, "kv_cache_scheme")) == CALM_JSON_OBJECT;
    if (c->unread)
        return calm_check_add(c, CALM_CHECK_RULE_METHOD_UNCHECKED, "quantization_config",
                              "sparsity_config.format is \"%.32s\": calm reads quantized weights, not sparse ones",
                              sparse);
    if (c->resolved)
        return CALM_OK;
    return calm_check_add(
        c, CALM_CHECK_RULE_NO_GROUPS, "quantization_config", "config_groups is %s",
        calm_json_typeof(groups) == CALM_JSON_OBJECT ? "empty" : calm_json_type_name(calm_json_typeof(groups)));
}

static calm_status check(calm_checking *c)
{
    CALM_SCOPED(calm_ct_entry, calm_ct_clear) entry = {.c = c, .json = c->entry};
    const calm_json *groups = calm_json_get(entry.json, "config_groups"), *group;
    const char *name;
    if (calm_json_typeof(groups) != CALM_JSON_OBJECT || calm_json_size(groups) == 0)
        CALM_TRY(check_no_groups(&entry, groups));
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->out, entry.groups, calm_json_size(groups) + 1));
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group);) {
        calm_ct_group *at = &entry.groups[entry.n_groups++];
        *at = (calm_ct_group){.name = name, .json = group};
        CALM_TRY(check_group(c, entry.json, at));
    }
    CALM_TRY(check_top(c, &entry));
    if (!entry.n_groups)
        return CALM_OK;
    CALM_TRY(check_global_format(c, &entry));
    return calm_ct_resolve(&entry);
}

/* Returns the value of a module's tensor with one element; 0 if it has another shape. */
static float global_of(calm_checking *c, const calm_check_module *module, const char *suffix)
{
    const calm_tensor *tensor = calm_check_part(c, module, suffix);
    float value = 0;
    if (tensor && tensor->dtype == CALM_F32 && tensor->n_elements == 1)
        memcpy(&value, tensor->data, sizeof value);
    return value;
}

/* Checks the global scales of NVFP4: positive, and equal for parts that engines fuse. */
static calm_status check_globals(calm_checking *c, const calm_check_module *module)
{
    static const char *const suffixes[] = {"weight_global_scale", "input_global_scale"};
    for (size_t i = 0; i < COUNT(suffixes); i++) {
        const calm_tensor *tensor = calm_check_part(c, module, suffixes[i]);
        const float value = global_of(c, module, suffixes[i]);
        if (!tensor || tensor->dtype != CALM_F32 || tensor->n_elements != 1)
            continue;    /* reported already, or a scheme without a global scale */
        if (!isfinite(value) || value <= 0) {
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_SCALE_GLOBAL, tensor->name, "it is %g", (double)value));
            continue;
        }
        const calm_check_module *first;
        CALM_TRY(calm_check_first_part(c, module, &first));
        const float other = first ? global_of(c, first, suffixes[i]) : value;
        if (first && first->scheme.family == module->scheme.family && other != value && other > 0)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_FUSED_GLOBALS, tensor->name, "it is %g, that of %s is %g",
                                    (double)value, first->name, (double)other));
    }
    return CALM_OK;
}

static calm_status check_values(calm_checking *c, const calm_check_module *module)
{
    const calm_tensor *packed = calm_check_part(c, module, "weight_packed"),
                      *zeros = calm_check_part(c, module, "weight_zero_point");
    const size_t bits = (size_t)module->scheme.bits;
    if (module->scheme.layout >= CALM_CT_FLOATS)
        return check_globals(c, module);
    if (packed && packed->n_dims == 2)
        CALM_TRY(calm_check_padding(c, packed, packed->shape[0], packed->shape[1], module->in * bits));
    if (zeros && zeros->n_dims == 2)
        return calm_check_last_row(c, zeros, zeros->shape[0], zeros->shape[1], module->out * bits);
    return CALM_OK;
}

const calm_check_format calm_check_format_compressed_tensors = {.entry = check, .values = check_values};
