/* make_adapter: writes a LoRA adapter of rank 4 for q and down of every block of a model, with PEFT's names. */
#include <math.h>
#include <stddef.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "ptq/model/model.h"
#include "ptq/weights/adapter.h"
#include "tests/tools/tool.h"

enum { RANK = 4 };

typedef struct arguments {
    const char *model, *output;
} arguments;

static const calm_option table[] = {
    {"model", "the base", offsetof(arguments, model), CALM_OPTION_STRING, .metavar = "DIR"},
    {"output", "directory that is to be made", offsetof(arguments, output), CALM_OPTION_STRING, .metavar = "DIR"},
    {0}};

static bool is_adapted(calm_role role)
{
    return role == CALM_ROLE_Q || role == CALM_ROLE_DOWN;
}

/* Adds A or B with values as large as weights. */
static calm_status add(calm_ctx *ctx, const calm_linear_ref *linear, char part, calm_tensor *out)
{
    float *values;
    *out = (calm_tensor){.dtype = CALM_F32, .n_dims = 2, .shape = {part == 'A' ? RANK : linear->out,
                                                                   part == 'A' ? linear->in : RANK}};
    out->n_elements = out->shape[0] * out->shape[1];
    out->bytes = out->n_elements * sizeof *values;
    CALM_TRY(CALM_NEW(ctx, ctx->out, values, out->n_elements));
    for (size_t i = 0; i < out->n_elements; i++)
        values[i] = 0.1f * sinf((float)(i + 1) * (part == 'A' ? 0.7f : 1.3f));
    out->data = (const uint8_t *)values;
    return calm_strf(ctx, ctx->out, &out->name, "base_model.model.%s.lora_%c.weight", linear->module, part);
}

static calm_status write_tensors(calm_ctx *ctx, const char *dir, const calm_tensor *tensors, size_t n)
{
    calm_safetensors_writer writer;
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, CALM_ADAPTER_TENSORS));
    CALM_TRY(calm_safetensors_begin(ctx, &writer, path, tensors, n));
    for (size_t i = 0; i < n; i++)
        calm_safetensors_put(ctx, &writer, tensors[i].data, tensors[i].bytes);
    return calm_safetensors_end(ctx, &writer);
}

static calm_status run(calm_ctx *ctx, void *user)
{
    const arguments *args = user;
    CALM_SCOPED_MODEL(model);
    calm_tensor *tensors;
    size_t n = 0;
    char *path;
    if (!args->model || !args->output)
        return calm_fail(ctx, CALM_EARG, "--model and --output are needed; --help explains");
    CALM_TRY(calm_model_open(ctx, args->model, &model));
    const calm_layout *layout = calm_model_layout(model);
    CALM_TRY(CALM_NEW(ctx, ctx->out, tensors, 2 * layout->n_linears));
    for (size_t i = 0; i < layout->n_linears; i++)
        for (int k = 0; is_adapted(layout->linears[i].role) && k < 2; k++)
            CALM_TRY(add(ctx, &layout->linears[i], k ? 'B' : 'A', &tensors[n++]));
    if (mkdir(args->output, 0777) != 0)
        return calm_fail(ctx, CALM_EIO, "%s: cannot be made", args->output);
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, args->output, CALM_ADAPTER_CONFIG));
    calm_json *config = CALM_OBJECT(
        CALM_KV("peft_type", "LORA"), CALM_KV("base_model_name_or_path", args->model), CALM_KV("r", (int64_t)RANK),
        CALM_KV("lora_alpha", (int64_t)8));
    const calm_status status = calm_json_save(ctx, path, config);
    calm_json_free(config);
    CALM_TRY(status);
    return write_tensors(ctx, args->output, tensors, n);
}

int main(int argc, char **argv)
{
    arguments args;
    return tool_main(&(tool){"make_adapter", "--model DIR --output DIR", "Writes a LoRA adapter of rank 4 for a model.",
                             table, &args, run}, argc, argv);
}
