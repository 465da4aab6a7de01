/* AWQ in the GEMM layout: AutoAWQ, transformers, vLLM, SGLang, mlx-lm (docs/formats.md section 5a).
 *
 *   m.weight -> m.qweight I32 [in, out / 8]    m.qzeros I32 [G, out / 8]    m.scales F16 [G, out]
 *
 * Both are packed along out: nibble i of a word, low bits first, is row 8k + order[i], order = 0 2 4 6 1 3 5 7
 * (AutoAWQ, awq/modules/linear/gemm.py, WQLinear_GEMM.from_linear; undone in awq/utils/packing_utils.py).  One width
 * and one group size for all; symmetric weights have zeros of 8.  "modules_to_not_convert" says what stays float. */
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/export/format_checks.h"
#include "ptq/export/module_names.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/quant/pack.h"

#define NAME "awq"

/* ---- a linear ---- */

static size_t list_tensors(const calm_scheme *scheme, size_t out, size_t in,
                           calm_export_tensor list[CALM_EXPORT_TENSORS])
{
    const size_t groups = calm_scheme_groups(scheme, in);
    list[0] = (calm_export_tensor){"qweight", CALM_I32, 2, {in, out / 8}};
    list[1] = (calm_export_tensor){"qzeros", CALM_I32, 2, {groups, out / 8}};
    list[2] = (calm_export_tensor){"scales", CALM_F16, 2, {groups, out}};
    return 3;
}

/* Packs values [out, cols] (NULL: 8 everywhere) to words [cols, out / 8]. */
static calm_status put_interleaved(calm_ctx *ctx, calm_shards_writer *writer, const uint8_t *values, size_t out,
                                   size_t cols)
{
    const size_t n_words = cols * (out / 8);
    uint8_t *transposed;
    uint32_t *words;
    CALM_TRY(calm_export_transpose(ctx, values, 8, out, cols, NULL, &transposed));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, words, n_words));
    calm_pack_awq(transposed, n_words, words);
    return calm_shards_put(ctx, writer, words, n_words * sizeof *words);
}

static calm_status put(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which,
                       bool asymmetric)
{
    (void)asymmetric;
    if (which == 0)
        return put_interleaved(ctx, writer, linear->codes, linear->out, linear->in);
    if (which == 1)
        return put_interleaved(ctx, writer, linear->zeros, linear->out, linear->n_groups);
    return calm_export_put_scales(ctx, writer, linear);
}

/* ---- the configuration ---- */

/* Lists the modules that stay float, and for "model.layers.0.self_attn.q_proj" also the fused name, because engines
 * that search names within names would not find it otherwise. */
static calm_status add_floats(calm_ctx *ctx, const calm_export_input *input, calm_json *modules)
{
    const calm_layout *layout = calm_model_layout(input->model);
    calm_words roots;
    CALM_TRY(calm_add_float_modules(ctx, input, modules));
    CALM_TRY(calm_foreign_roots(ctx, input, &roots));
    for (size_t i = 0; i < roots.n; i++) {
        char *below;
        bool within = false;    /* readers search names within names */
        CALM_TRY(calm_strf(ctx, ctx->scratch, &below, "%s.", roots.of[i]));
        for (size_t l = 0; l < layout->n_linears && !within; l++)
            within = strstr(layout->linears[l].module, below) != NULL;
        if (!within)
            calm_json_add_string(modules, below);
    }
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const char *first = layout->linears[job->first].module, *dot = strrchr(first, '.');
        const char *fused = job->traits->fused;
        char *name;
        if (input->plan->jobs[j].quantized || job->n < 2 || !fused || !dot || job->expert >= 0)
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%.*s.%s", (int)(dot - first), first, fused));
        calm_json_add_string(modules, name);
    }
    return CALM_OK;
}

static const calm_scheme *first_scheme(const calm_plan *plan)
{
    for (size_t i = 0; i < plan->n_jobs; i++)
        if (plan->jobs[i].quantized)
            return &plan->jobs[i].scheme;
    return NULL;
}

static calm_status fill_entry(calm_ctx *ctx, const calm_export_input *input, calm_json *entry)
{
    const size_t group = first_scheme(input->plan)->group;
    calm_json *modules = calm_json_new_array();
    const calm_status status = add_floats(ctx, input, modules);
    CALM_EXTEND(entry, CALM_KV("quant_method", "awq"), CALM_KV("bits", 4L),
                CALM_KV("group_size", group ? (int64_t)group : -1), CALM_KV("zero_point", (bool)true),
                CALM_KV("version", "gemm"), CALM_KV("modules_to_not_convert", modules));
    return status;
}

/* ---- the exporter ---- */

/* Checks that all schemes have one group size. */
static calm_status check_uniform(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_layout *layout = calm_model_layout(input->model);
    const calm_scheme *first = first_scheme(input->plan);
    for (size_t i = 0; i < input->plan->n_jobs; i++) {
        const calm_scheme *scheme = &input->plan->jobs[i].scheme;
        char names[2][CALM_SCHEME_NAME_MAX];
        if (!input->plan->jobs[i].quantized || scheme->group == first->group)
            continue;
        calm_scheme_name(first, names[0]);
        calm_scheme_name(scheme, names[1]);
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         NAME ": %s is %s, others are %s: the format has one group size for all "
                         "(`group_fallback` float leaves such linears float)", layout->jobs[i].name,
                         names[1], names[0]);
    }
    return CALM_OK;
}

/* Checks that no name of a float module is part of the name of a quantized one, because readers search names within
 * names. */
static calm_status check_names(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_layout *layout = calm_model_layout(input->model);
    const char **floats;
    size_t n;
    CALM_TRY(calm_float_modules(ctx, input, false, &floats, &n));
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++)
            for (size_t f = 0; f < n && input->plan->jobs[j].quantized; f++)
                if (strstr(layout->linears[i].module, floats[f]))
                    return calm_fail(ctx, CALM_EUNSUPPORTED,
                                     NAME
                                     ": %s stays float, and readers would leave %s so too, whose name begins alike",
                                     floats[f], layout->linears[i].module);
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    CALM_TRY(calm_export_check_quantized(ctx, NAME, input));
    CALM_TRY(check_uniform(ctx, input));
    CALM_TRY(calm_check_groups(ctx, NAME, input));
    CALM_TRY(calm_check_experts(ctx, NAME, input));
    CALM_TRY(calm_check_words(ctx, NAME, input, false, true));
    CALM_TRY(check_names(ctx, input));
    if (!first_scheme(input->plan)->group)
        calm_log(ctx, CALM_LOG_WARNING,
                 NAME ": one scale per row is group_size -1, which AutoAWQ, GPTQModel and vLLM read and "
                      "mlx-lm does not");
    return CALM_OK;
}

const calm_exporter calm_export_awq = {
    .name = NAME,
    .summary = "AWQ, GEMM layout, uniform 4 bits: vLLM, SGLang, transformers, mlx-lm",
    .serve = "vllm serve",
    .tie = CALM_TIE_MODEL,
    .refuses = calm_export_refuses_but_4_bits,
    .check = check,
    .more_bits = true,    /* zero points of symmetric schemes too */
    .form = &(const calm_export_form){
        .tensors = list_tensors, .stores_f16 = calm_export_always_f16, .put = put, .entry = fill_entry,
        .keys = {"quantization_config"}},
};
