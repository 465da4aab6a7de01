/* The quantization entry of a compressed-tensors config.json. */
#include "ptq/export/ct_config.h"

#include <stdio.h>
#include <string.h>

#include "ptq/export/module_names.h"
#include "ptq/model/transforms.h"
#include "ptq/quant/act_levels.h"

bool calm_ct_has_bytes(const calm_scheme *scheme)
{
    return scheme->act_bits && !calm_act_rule_is_float(scheme->act_rule);
}

static const char *format_of(const calm_scheme *scheme)
{
    switch (scheme->family) {
    case CALM_FAMILY_FP8:
    case CALM_FAMILY_FP8_BLOCK:
    case CALM_FAMILY_FP8_TENSOR:
        return "float-quantized";
    case CALM_FAMILY_MXFP4:
        return "mxfp4-pack-quantized";
    case CALM_FAMILY_NVFP4:
        return "nvfp4-pack-quantized";
    default:
        break;
    }
    return calm_ct_has_bytes(scheme) ? "int-quantized" : "pack-quantized";
}

static calm_json *int_args(int bits, bool symmetric, const char *strategy, size_t group, bool dynamic)
{
    return CALM_OBJECT(CALM_KV("num_bits", (long)bits), CALM_KV("type", "int"), CALM_KV("symmetric", symmetric),
                       CALM_KV("strategy", strategy),
                       CALM_KV("group_size", group ? calm_json_of_size(group) : calm_json_new_null()),
                       CALM_KV("dynamic", dynamic));
}

/* Adds the settings of small floats, which are the same for weights and activations.  `dynamic` of NVFP4's activations
 * is "local": the scales of groups are dynamic, their global scale is in the file. */
static calm_json *float_args(const calm_scheme *scheme, bool inputs)
{
    const bool whole = calm_scheme_is_whole(scheme), rows = scheme->family == CALM_FAMILY_FP8 || whole;
    const bool global = calm_scheme_has_global(scheme);
    const bool block = scheme->family == CALM_FAMILY_FP8_BLOCK;
    const char *scale = global ? "torch.float8_e4m3fn" : "torch.uint8";
    calm_json *args = CALM_OBJECT(CALM_KV("num_bits", (long)scheme->bits), CALM_KV("type", "float"),
                                  CALM_KV("symmetric", (bool)true),
                                  CALM_KV("strategy", whole ? "tensor"
                                                      : rows ? "channel"
                                                      : block && !inputs ? "block"
                                                      : global ? "tensor_group" : "group"),
                                  CALM_KV("group_size", rows || (block && !inputs) ? calm_json_new_null()
                                                                                   : calm_json_of_size(scheme->group)));
    if (block && !inputs) {
        calm_json *sides = calm_json_new_array();
        calm_json_add(sides, calm_json_of_size(calm_scheme_rows(scheme)));
        calm_json_add(sides, calm_json_of_size(scheme->group));
        CALM_EXTEND(args, CALM_KV("block_structure", sides));
    }
    if (inputs && global)
        CALM_EXTEND(args, CALM_KV("dynamic", "local"));
    else
        CALM_EXTEND(args, CALM_KV("dynamic", inputs));
    if (!rows && !block)
        CALM_EXTEND(args, CALM_KV("scale_dtype", scale), CALM_KV("zp_dtype", scale));
    return args;
}

/* Adds FP8 activations: with one scale for all, or one per token. */
static calm_json *fp8_inputs(bool fixed)
{
    return CALM_OBJECT(CALM_KV("num_bits", (long)8), CALM_KV("type", "float"), CALM_KV("symmetric", (bool)true),
                       CALM_KV("strategy", fixed ? "tensor" : "token"), CALM_KV("group_size", calm_json_new_null()),
                       CALM_KV("dynamic", (bool)!fixed));
}

/* Adds "input_activations" of a group. */
static calm_json *input_args(const calm_scheme *scheme)
{
    const bool fixed = calm_act_rule_is_static(scheme->act_rule);
    if (!scheme->act_bits)
        return calm_json_new_null();
    if (scheme->act_rule == CALM_ACT_RULE_FP8 || scheme->act_rule == CALM_ACT_RULE_FP8_STATIC)
        return fp8_inputs(fixed);
    if (scheme->family)
        return float_args(scheme, true);
    return int_args(scheme->act_bits, !scheme->act_asymmetric, fixed ? "tensor" : "token", 0, !fixed);
}

/* A calm_pattern_fn. */
static void add_target(void *targets, const char *regex)
{
    CALM_SCOPED_TEXT(text);
    calm_text_printf(&text, "re:%s", regex);
    calm_json_add_string(targets, text.data);
}

static calm_json *group_entry(const calm_export_input *input, const calm_scheme *scheme)
{
    const calm_scheme *head = calm_outer_own_head(input->model, input->outer);
    calm_json *targets = calm_json_new_array();
    calm_json *weights = scheme->family ? float_args(scheme, false)
                                        : int_args(scheme->bits, scheme->symmetric, scheme->group ? "group" : "channel",
                                                   scheme->group, false);
    calm_module_regexes(input, calm_plan_has_scheme, scheme, add_target, targets);
    if (head && calm_scheme_same(head, scheme) && calm_model_is_wrapped(input->model))
        add_target(targets, CALM_WRAPPED_HEAD);
    else if (head && calm_scheme_same(head, scheme))
        calm_json_add_string(targets, calm_model_layout(input->model)->head);
    return CALM_OBJECT(CALM_KV("targets", targets), CALM_KV("weights", weights),
                       CALM_KV("input_activations", input_args(scheme)),
                       CALM_KV("output_activations", calm_json_new_null()), CALM_KV("format", format_of(scheme)));
}

/* Adds the transforms of inputs in the forward pass; the file has W H.  Readers build each matrix from head_dim, so no
 * tensor holds it. */
static calm_json *transforms_entry(const calm_export_input *input)
{
    const calm_config *config = calm_model_config(input->model);
    if (!calm_transforms_any(config))
        return calm_json_new_object();
    calm_json *groups = calm_json_new_object();
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        if (!config->hadamard[job])
            continue;
        /* Modules by their whole names: a vision tower may have linears of the same last words. */
        calm_json *targets = calm_json_new_array(), *apply = calm_json_new_array();
        calm_module_regexes_of_job(input, job, add_target, targets);
        calm_json_add(apply, CALM_OBJECT(CALM_KV("targets", targets), CALM_KV("location", "input"),
                                         CALM_KV("inverse", (bool)false), CALM_KV("ignore", calm_json_new_array())));
        calm_json_set(groups, calm_transforms_label(job),
                      CALM_OBJECT(CALM_KV("type", "hadamard"), CALM_KV("apply", apply),
                                  CALM_KV("randomize", (bool)false), CALM_KV("requires_grad", (bool)false),
                                  CALM_KV("head_dim", config->hadamard[job])));
    }
    return CALM_OBJECT(CALM_KV("config_groups", groups));
}

/* Adds the KV cache: one static scale for the keys of a block and one for its values. */
static calm_json *cache_entry(const calm_export_input *input)
{
    if (!input->options || !input->options->kv)
        return calm_json_new_null();
    return CALM_OBJECT(CALM_KV("num_bits", (long)8), CALM_KV("type", "float"), CALM_KV("symmetric", (bool)true),
                       CALM_KV("strategy", "tensor"), CALM_KV("group_size", calm_json_new_null()),
                       CALM_KV("dynamic", (bool)false));
}

/* Lists the schemes of the plan, and after them the head's if it differs. */
static calm_status list_schemes(calm_ctx *ctx, const calm_export_input *input, calm_scheme **out, size_t *n)
{
    const calm_scheme *head = calm_outer_own_head(input->model, input->outer);
    calm_scheme *planned;
    size_t base;
    bool there = false;
    CALM_TRY(calm_plan_schemes(ctx, input, &planned, n, &base));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, *n + 1));
    for (size_t s = 0; s < *n; s++) {
        (*out)[s] = planned[s];
        there |= head && calm_scheme_same(head, &planned[s]);
    }
    if (head && !there)
        (*out)[(*n)++] = *head;
    return CALM_OK;
}

/* Puts the scheme of routed experts before the others: transformers 5.23 reads all of them with the first group whose
 * targets contain "experts", as targets of shared experts do, too (integrations/compressed_tensors.py). */
static void put_experts_first(const calm_export_input *input, calm_scheme *schemes, size_t n)
{
    const calm_layout *layout = calm_model_layout(input->model);
    for (size_t j = 0; j < input->plan->n_jobs; j++) {
        const calm_plan_job *job = &input->plan->jobs[j];
        if (layout->jobs[j].expert < 0 || !job->quantized)
            continue;
        for (size_t s = n; s-- > 1;)
            if (calm_scheme_same(&schemes[s], &job->scheme)) {
                memmove(schemes + 1, schemes, s * sizeof *schemes);
                schemes[0] = job->scheme;
            }
        return;
    }
}

/* Adds the modules that stay float, by name, and patterns for modules below the roots that are not in calm's model. */
static calm_status add_ignored(calm_ctx *ctx, const calm_export_input *input, calm_json *ignore)
{
    const bool wrapped = calm_model_is_wrapped(input->model);
    calm_words roots;
    CALM_TRY(calm_add_float_modules(ctx, input, ignore));
    if (calm_model_config(input->model)->arch->names->parent_listed)
        calm_module_regexes(input, calm_plan_is_float, NULL, add_target, ignore);
    CALM_TRY(calm_foreign_roots(ctx, input, &roots));
    for (size_t i = 0; i < roots.n; i++) {
        char *pattern;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &pattern, wrapped ? "re:^(model\\.)?%s\\..*" : "re:^%s\\..*",
                           roots.of[i]));
        calm_json_add_string(ignore, pattern);
    }
    if (wrapped && !calm_outer_own_head(input->model, input->outer))
        calm_json_add_string(ignore, strcmp(calm_model_layout(input->model)->head, "lm_head") ? "lm_head"
                                                                                           : "language_model.lm_head");
    return CALM_OK;
}

calm_status calm_ct_config(calm_ctx *ctx, const calm_export_input *input, calm_json *entry)
{
    const char *version = "0.17.1";
    calm_scheme *schemes;
    size_t n;
    CALM_TRY(list_schemes(ctx, input, &schemes, &n));
    put_experts_first(input, schemes, n);
    const char *format = n ? format_of(&schemes[0]) : "pack-quantized";
    calm_json *groups = calm_json_new_object(), *ignore = calm_json_new_array();
    for (size_t s = 0; s < n; s++) {
        char name[32];
        snprintf(name, sizeof name, "group_%02zu", s);
        calm_json_set(groups, name, group_entry(input, &schemes[s]));
        if (strcmp(format_of(&schemes[s]), format_of(&schemes[0])) != 0)
            format = "mixed-precision";
        if (schemes[s].bits == 3)
            version = "0.18.0";    /* the first version that reads the dense 3-bit stream */
    }
    const calm_status status = add_ignored(ctx, input, ignore);
    CALM_EXTEND(entry, CALM_KV("quant_method", "compressed-tensors"), CALM_KV("quantization_status", "compressed"),
                CALM_KV("format", format), CALM_KV("config_groups", groups), CALM_KV("ignore", ignore),
                CALM_KV("kv_cache_scheme", cache_entry(input)),
                CALM_KV("global_compression_ratio", calm_json_new_null()),
                CALM_KV("sparsity_config", calm_json_new_object()),
                CALM_KV("transform_config", transforms_entry(input)), CALM_KV("version", version));
    return status;
}
