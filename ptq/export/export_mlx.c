/* MLX, affine quantization: mlx-lm (docs/formats.md section 5).
 *
 *   m.weight -> m.weight U32 [out, in b / 32], packed as compressed-tensors' weight_packed
 *               m.scales, m.biases [out, G]      value = code * scale + bias, bias = -zero * scale
 *
 * Scales and biases are float16 if that holds every bias exactly (symmetric weights, whose zero is a power of two, and
 * 2 bits), else float32.  MLX has groups of 32, 64 and 128: a scale per row is repeated for groups of the largest of
 * these sizes that divides the row, which changes no weight.  The experts of a block are one module, switch_mlp, whose
 * tensors are [E, ...]. */

#include "ptq/export/format_checks.h"
#include "ptq/export/module_names.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/model/tensor_use.h"
#include "ptq/quant/pack.h"

#define NAME "mlx"
#define STACK "switch_mlp"    /* in place of "experts" */

/* Returns the written group size; 0: none of MLX's sizes fits. */
static size_t group_for(const calm_scheme *scheme, size_t in)
{
    for (size_t group = 128; group >= 32; group /= 2)
        if (scheme->group ? scheme->group == group : in % group == 0)
            return group;
    return 0;
}

/* Returns float16 if -zero * scale fits its 11 bits, else float32; bfloat16 scales have 8 bits, float16 ones 11. */
static calm_dtype scale_dtype(const calm_scheme *scheme)
{
    const bool exact = scheme->symmetric || (scheme->scale_dtype == CALM_BF16 && scheme->bits <= 3);
    return exact ? CALM_F16 : CALM_F32;
}

static bool stores_f16(const calm_scheme *scheme)
{
    return scale_dtype(scheme) == CALM_F16;
}

/* ---- a linear ---- */

static size_t list_tensors(const calm_scheme *scheme, size_t out, size_t in,
                           calm_export_tensor list[CALM_EXPORT_TENSORS])
{
    const size_t groups = in / calm_size_max(1, group_for(scheme, in)); /* of a plan, there is one */
    list[0] = (calm_export_tensor){"weight", CALM_U32, 2, {out, calm_pack_words(in, scheme->bits)}};
    list[1] = (calm_export_tensor){"scales", scale_dtype(scheme), 2, {out, groups}};
    list[2] = (calm_export_tensor){"biases", scale_dtype(scheme), 2, {out, groups}};
    return 3;
}

/* Writes scales or biases, each repeated for MLX's groups in one group of the plan. */
static calm_status put_floats(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, bool biases)
{
    const size_t repeat = linear->group / group_for(&linear->scheme, linear->in), n = linear->out * linear->n_groups;
    float *values;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, n * repeat));
    for (size_t i = 0; i < n; i++) {
        const int zero = linear->zeros ? linear->zeros[i] : 1 << (linear->scheme.bits - 1);
        for (size_t k = 0; k < repeat; k++)
            values[i * repeat + k] = biases ? -(float)zero * linear->scales[i] : linear->scales[i];
    }
    if (scale_dtype(&linear->scheme) == CALM_F16)
        return calm_export_put_f16(ctx, writer, values, linear->out, linear->n_groups * repeat);
    return calm_export_put_floats(ctx, writer, CALM_F32, values, n * repeat);
}

static calm_status put(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which,
                       bool asymmetric)
{
    (void)asymmetric;
    if (which == 0)
        return calm_export_put_packed(ctx, writer, linear->codes, linear->out, linear->in, linear->scheme.bits, false);
    return put_floats(ctx, writer, linear, which == 2);
}

/* ---- the configuration ---- */

/* Adds a linear's member to the entry; the experts of a block share one. */
static calm_status add_member(calm_ctx *ctx, const calm_export_input *input, const calm_job_ref *job,
                              const calm_linear_ref *linear, size_t group, int bits, calm_json *entry)
{
    char *stacked = NULL;
    if (job->expert >= 0)
        CALM_TRY(calm_export_stack_name(ctx, input, linear->module, STACK, &stacked));
    calm_json_set(entry, stacked ? stacked : linear->module,
                  CALM_OBJECT(CALM_KV("group_size", group), CALM_KV("bits", (long)bits)));
    return CALM_OK;
}

/* Adds the settings of most weights, and those of each linear that differs. */
static calm_status add_linears(calm_ctx *ctx, const calm_export_input *input, calm_json *entry)
{
    const calm_layout *layout = calm_model_layout(input->model);
    calm_scheme *schemes;
    size_t n, most, base_group = 0;
    int base_bits = 0;
    CALM_TRY(calm_plan_schemes(ctx, input, &schemes, &n, &most));
    for (size_t j = 0; j < layout->n_jobs && !base_bits; j++)
        if (calm_plan_has_scheme(&schemes[most], &input->plan->jobs[j])) {
            base_group = group_for(&schemes[most], layout->jobs[j].in);
            base_bits = schemes[most].bits;
        }
    CALM_EXTEND(entry, CALM_KV("group_size", base_group), CALM_KV("bits", (long)base_bits), CALM_KV("mode", "affine"));
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const calm_scheme *scheme = &input->plan->jobs[j].scheme;
        const size_t group = group_for(scheme, layout->jobs[j].in);
        if (!input->plan->jobs[j].quantized || (group == base_group && scheme->bits == base_bits) ||
            layout->jobs[j].expert > 0)
            continue;
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++)
            CALM_TRY(add_member(ctx, input, &layout->jobs[j], &layout->linears[i], group, scheme->bits, entry));
    }
    return CALM_OK;
}

static calm_status fill_entry(calm_ctx *ctx, const calm_export_input *input, calm_json *entry)
{
    const char **floats;
    size_t n;
    CALM_TRY(calm_float_modules(ctx, input, true, &floats, &n));
    CALM_TRY(add_linears(ctx, input, entry));
    for (size_t i = 0; i < n; i++) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", floats[i]));
        const calm_tensor_use use = calm_model_tensor_use(input->model, name);
        if (use != CALM_TENSOR_READ && use != CALM_TENSOR_COPY)
            continue;    /* not in the files */
        const calm_scheme *scheme = calm_outer_of(input->model, input->outer, name);
        const size_t group = scheme ? group_for(scheme, calm_model_config(input->model)->hidden) : 0;
        calm_json_set(entry, floats[i],
                      !scheme ? calm_json_of_bool(false)
                              : CALM_OBJECT(CALM_KV("group_size", group), CALM_KV("bits", (long)scheme->bits)));
    }
    return CALM_OK;
}

/* ---- the exporter ---- */

static const char *refuses(const calm_scheme *scheme)
{
    const char *other = calm_export_refuses_activations(scheme);
    const bool fits = scheme->group == 0 || group_for(scheme, scheme->group) || scheme->group_else;
    return other || fits ? other : "the format has groups of 32, 64 and 128";
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_job_ref *jobs = calm_model_layout(input->model)->jobs;
    bool repeated = false, biased = false;
    CALM_TRY(calm_export_check_quantized(ctx, NAME, input));
    CALM_TRY(calm_check_groups(ctx, NAME, input));
    CALM_TRY(calm_check_experts(ctx, NAME, input));
    if (calm_model_config(input->model)->moe.bias || calm_model_config(input->model)->moe.shared_bias)
        return calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": experts with biases, as %s has them, are not written in this "
                         "format; compressed-tensors and gguf have them",
                         calm_model_config(input->model)->arch->name);
    for (size_t i = 0; i < input->plan->n_jobs; i++) {
        const calm_scheme *scheme = &input->plan->jobs[i].scheme;
        if (!input->plan->jobs[i].quantized)
            continue;
        if (!group_for(scheme, jobs[i].in))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             NAME ": %s is %s with %zu columns: the format has groups of 32, 64 and 128", jobs[i].name,
                             CALM_SCHEME_NAME(scheme), jobs[i].in);
        repeated |= !scheme->group;
    }
    for (size_t i = 0; i < input->plan->n_jobs; i++)
        biased |= calm_layout_biased(calm_model_layout(input->model), &jobs[i]);
    if (biased && !calm_tensor_mlx_has_biases(calm_model_config(input->model)->arch))
        calm_log(ctx, CALM_LOG_WARNING, NAME ": mlx-lm's %s has no biases, which this model has: it will refuse the "
                 "files (ValueError, parameters not in model)", calm_model_config(input->model)->arch->name);
    if (repeated)
        calm_log(ctx, CALM_LOG_INFO,
                 NAME ": the format has no scale per row; it is repeated in groups of up to 128 columns, "
                      "which changes no weight");
    return CALM_OK;
}

/* Returns the default as mlx-lm: the scheme of the linears. */
static calm_scheme outer_default(calm_outer which, const calm_scheme *most, bool tied)
{
    (void)which;
    (void)tied;
    return *most;
}

static calm_status check_outer(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in)
{
    const char *name = CALM_SCHEME_NAME(scheme);
    if (!scheme->family && group_for(scheme, in) && in % group_for(scheme, in) == 0)
        return CALM_OK;
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     NAME ": %s is %s with %zu columns: the format has groups of 32, 64 and 128", module, name, in);
}

const calm_exporter calm_export_mlx = {
    .name = NAME,
    .summary = "MLX affine: mlx-lm",
    .serve = "mlx_lm.generate --prompt Hello --model",
    .strict = true,    /* mlx-lm's loader refuses others */
    .rtn = "rtn-mlx",
    .tie = CALM_TIE_BLOCK,
    .parts_apart = true,
    .outer = outer_default,
    .check_outer = check_outer,
    .outer_pool = "w4a16_g32,w8a16_g64,w8a16_g32,w4a16_g64,w3a16_g32",
    .refuses = refuses,
    .check = check,
    .more_bits = true,    /* a bias of each group, also of symmetric schemes */
    .form = &(const calm_export_form){.tensors = list_tensors,
                                      .stores_f16 = stores_f16,
                                      .put = put,
                                      .stack = STACK,
                                      .entry = fill_entry,
                                      .keys = {"quantization", "quantization_config"}},
};
