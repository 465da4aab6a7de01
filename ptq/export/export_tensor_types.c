/* tensor-types: the plan's bits as a file for llama-quantize --tensor-type-file, one line for each weight:
 *
 *   blk\.0\.attn_q\.weight=q4_0
 *
 * The left side is a regular expression that is searched for in names, in lower case.  llama-quantize rounds by itself:
 * the plan gives bits alone.  8 bits: q8_0; 4: q4_0, asymmetric q4_1; 3 and 2: q3_K and q2_K, whose blocks have 256
 * columns, else q4_0; float: the checkpoint's dtype.  All experts of a projection have the type of the one with the
 * most bits. */

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/export/gguf_layout.h"
#include "ptq/export/module_names.h"

#define SUPER_BLOCK 256    /* columns of a block of the K types */
#define BLOCK 32

static const char *type_name(const calm_plan_job *job, size_t in, calm_dtype stored)
{
    const calm_scheme *scheme = &job->scheme;
    if (!job->quantized || in % BLOCK)
        return stored == CALM_F16 ? "f16" : stored == CALM_BF16 ? "bf16" : "f32";
    if (scheme->bits > 4)
        return "q8_0";
    if (scheme->bits < 4 && in % SUPER_BLOCK == 0)
        return scheme->bits == 2 ? "q2_K" : "q3_K";
    return scheme->bits == 4 && !scheme->symmetric ? "q4_1" : "q4_0";
}

static int bits_of(const calm_plan_job *job)
{
    return job->quantized ? 2 * job->scheme.bits + !job->scheme.symmetric : 64;
}

/* Returns the job that determines the type: of experts, the one with the most bits. */
static const calm_plan_job *deciding(const calm_export_input *input, size_t index)
{
    const calm_layout *layout = calm_model_layout(input->model);
    const calm_job_ref *job = &layout->jobs[index];
    const calm_plan_job *most = &input->plan->jobs[index];
    for (size_t j = layout->block_begin[job->block]; job->expert == 0 && j < layout->block_begin[job->block + 1]; j++)
        if (layout->jobs[j].expert >= 0 && layout->jobs[j].kind == job->kind
            && bits_of(&input->plan->jobs[j]) > bits_of(most))
            most = &input->plan->jobs[j];
    return most;
}

static calm_status add_line(calm_ctx *ctx, const calm_export_input *input, size_t job, const calm_linear_ref *linear,
                            calm_text *text)
{
    calm_gguf_spot spot;
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", linear->module));
    CALM_TRY(calm_gguf_need_spot(ctx, "tensor-types", input->model, name, &spot));
    const calm_tensor *stored = calm_safetensors_find(calm_model_tensors(input->model), name);
    calm_append_escaped(text, spot.name, strlen(spot.name));
    calm_text_printf(text, "=%s\n", type_name(deciding(input, job), linear->in, stored ? stored->dtype : CALM_BF16));
    return CALM_OK;
}

static calm_status build(calm_ctx *ctx, const calm_export_input *input, calm_text *text)
{
    const calm_layout *layout = calm_model_layout(input->model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t l = layout->jobs[j].first;
             layout->jobs[j].expert <= 0 && l < layout->jobs[j].first + layout->jobs[j].n; l++)
            CALM_TRY(add_line(ctx, input, j, &layout->linears[l], text));
    return calm_text_check(ctx, text);
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    CALM_SCOPED_TEXT(text);
    return build(ctx, input, &text);
}

static calm_status write(calm_ctx *ctx, const calm_export_input *input, const char *dir)
{
    CALM_SCOPED_TEXT(text);
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, "tensor-types.txt"));
    CALM_TRY(build(ctx, input, &text));
    return calm_write_file(ctx, path, text.data, text.length);
}

const calm_exporter calm_export_tensor_types = {
    .name = "tensor_types",
    .summary = "tensor-types.txt: the plan's bits for llama-quantize --tensor-type-file",
    .file = "tensor-types.txt",
    .check = check,
    .write = write,
};
