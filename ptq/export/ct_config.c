/* The quantization entry of a compressed-tensors config.json. */
#include "ptq/export/ct_config.h"

#include <stdio.h>

#include "ptq/export/module_names.h"

bool calm_ct_is_int_quantized(const calm_scheme *scheme)
{
    return scheme->act_bits != 0;
}

static calm_json *int_args(int bits, bool symmetric, const char *strategy, size_t group, bool dynamic)
{
    calm_json *args = calm_json_new_object();
    calm_json_set_int(args, "num_bits", bits);
    calm_json_set_string(args, "type", "int");
    calm_json_set_bool(args, "symmetric", symmetric);
    calm_json_set_string(args, "strategy", strategy);
    if (group)
        calm_json_set_int(args, "group_size", (int64_t)group);
    else
        calm_json_set(args, "group_size", calm_json_new_null());
    calm_json_set_bool(args, "dynamic", dynamic);
    return args;
}

/* A calm_pattern_fn. */
static void add_target(void *targets, const char *regex)
{
    calm_text text;
    calm_text_init(&text);
    calm_text_printf(&text, "re:%s", regex);
    calm_json_add_string(targets, text.data);
    calm_text_clear(&text);
}

static calm_json *group_entry(const calm_export_input *input, const calm_scheme *scheme)
{
    calm_json *group = calm_json_new_object(), *targets = calm_json_new_array();
    calm_module_regexes(input, calm_plan_has_scheme, scheme, add_target, targets);
    calm_json_set(group, "targets", targets);
    calm_json_set(group, "weights", int_args(scheme->bits, scheme->symmetric, scheme->group ? "group" : "channel",
                                             scheme->group, false));
    calm_json_set(group, "input_activations",
                  scheme->act_bits ? int_args(scheme->act_bits, !scheme->act_asymmetric, "token", 0, true)
                                   : calm_json_new_null());
    calm_json_set(group, "output_activations", calm_json_new_null());
    calm_json_set_string(group, "format", calm_ct_is_int_quantized(scheme) ? "int-quantized" : "pack-quantized");
    return group;
}

calm_status calm_ct_config(calm_ctx *ctx, const calm_export_input *input, calm_json *entry)
{
    const char *version = "0.17.1";
    calm_scheme *schemes;
    size_t n, base;
    CALM_TRY(calm_plan_schemes(ctx, input, &schemes, &n, &base));
    const char *format = n && calm_ct_is_int_quantized(&schemes[0]) ? "int-quantized" : "pack-quantized";
    calm_json *groups = calm_json_new_object(), *ignore = calm_json_new_array();
    for (size_t s = 0; s < n; s++) {
        char name[32];
        snprintf(name, sizeof name, "group_%02zu", s);
        calm_json_set(groups, name, group_entry(input, &schemes[s]));
        if (calm_ct_is_int_quantized(&schemes[s]) != calm_ct_is_int_quantized(&schemes[0]))
            format = "mixed-precision";
        if (schemes[s].bits == 3)
            version = "0.18.0";    /* the first whose readers take the dense 3-bit stream */
    }
    calm_json_set_string(entry, "quant_method", "compressed-tensors");
    calm_json_set_string(entry, "quantization_status", "compressed");
    calm_json_set_string(entry, "format", format);
    calm_json_set(entry, "config_groups", groups);
    const calm_status status = calm_add_float_modules(ctx, input, ignore);
    calm_json_set(entry, "ignore", ignore);
    calm_json_set(entry, "kv_cache_scheme", calm_json_new_null());
    calm_json_set(entry, "global_compression_ratio", calm_json_new_null());
    calm_json_set(entry, "sparsity_config", calm_json_new_object());
    calm_json_set(entry, "transform_config", calm_json_new_object());
    calm_json_set_string(entry, "version", version);
    return status;
}
