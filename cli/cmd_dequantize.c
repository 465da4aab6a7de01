/* calm dequantize: writes a quantized checkpoint as floats. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "ptq/base/text.h"
#include "ptq/export/dequantize.h"

typedef struct options {
    calm_common common;
    calm_model_how how;
    const char *output, *max_shard_size;
    int dtype;
    bool force;
} options;

static const calm_option table[] = {
    CALM_OPT("output", output, STRING, "directory to write", .metavar = "DIR", .key = 'o'),
    CALM_OPT("dtype", dtype, ENUM, "dtype of the weights: f32 holds them exactly, bf16 and f16 round them; "
             "checkpoint: the dtype in its config.json", .fallback = "checkpoint", .values = "f32|f16|bf16|checkpoint"),
    CALM_OPT("max-shard-size", max_shard_size, STRING, "largest total size of the tensors in a file: 5GB, 500MB",
             .fallback = "5GB",
             .metavar = "SIZE"),
    CALM_OPT_HOW,
    CALM_OPT("force", force, BOOL, "replace an existing checkpoint", .key = 'f'),
    CALM_OPT_COMMON,
    {0},
};

static calm_status run(calm_ctx *ctx, const void *opts)
{
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16, CALM_N_DTYPES};
    const options *o = opts;
    const char *from = o->common.args.of[0], *dir;
    calm_progress progress;
    calm_dequantize_options how = {
        .how = o->how, .output = o->output, .dtype = dtypes[o->dtype], .force = o->force, .tick = calm_progress_tick,
        .tick_user = &progress};
    calm_dequantize_result result;
    if (!o->output)
        return calm_fail(ctx, CALM_EARG, "calm dequantize: --output is missing; try: calm dequantize %s "
                                         "--output floats", from);
    CALM_TRY(calm_size_parse(ctx, "max-shard-size", o->max_shard_size, &how.max_shard_bytes));
    CALM_TRY(calm_find_checkpoint(ctx, from, o->common.quiet, &dir));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "write", "tensors");
    calm_dequantize(ctx, dir, &how, &result);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return calm_print_line(ctx, "%s: %zu tensors, %zu of them quantized (%s), written as %s to %s", from,
                           result.n_tensors, result.n_dequantized, result.format, calm_dtype_name(result.dtype),
                           o->output);
}

const calm_command calm_cmd_dequantize = {
    .name = "dequantize",
    .summary = "write a quantized checkpoint back as plain floats",
    .arguments = "DIR|FILE.gguf",
    .description =
        "Writes a quantized directory (compressed-tensors, GPTQ, AWQ, MLX, FP8, MXFP4) or a GGUF file as "
        "safetensors without quantization: to compare, and for engines that read nothing else.  config.json loses "
        "its quantization entry and, with --dtype, gets the new dtype; its other keys and the tokenizer files stay "
        "the same.",
    .examples = "  calm dequantize ./Qwen3-0.6B-W4A16 -o ./plain\n"
                "  calm dequantize model.gguf -o ./plain --dtype f32\n\n"
                "With --dtype f32 weights are exactly the values of codes and scales; 16 bits\n"
                "round them.  For a GGUF file calm makes config.json, tokenizer.json and\n"
                "tokenizer_config.json from its keys.\n"
                "With --adapter DIR calm writes a float model with a LoRA adapter merged into it.\n",
    .min_args = 1,
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
