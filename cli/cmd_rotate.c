/* calm rotate: writes a float model with the same function and without outlier channels. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/pull.h"
#include "ptq/export/rotate.h"
#include "ptq/recipe/model_names.h"

typedef struct options {
    calm_common common;
    calm_model_how how;
    const char *model, *output;
    int rotate, dtype;
    long long seed;
    bool force;
} options;

static const calm_option table[] = {
    CALM_OPT("model", model, STRING, "float checkpoint directory, or a known name", .metavar = "MODEL", .key = 'm'),
    CALM_OPT("output", output, STRING, "directory to write", .metavar = "DIR", .key = 'o'),
    CALM_OPT("rotate", rotate, ENUM, "r1: the residual stream; r1r2: also each head between v and o",
             .fallback = "r1r2", .values = "r1|r1r2"),
    CALM_OPT("rotate-seed", seed, INT, "seed of the rotations' signs", .fallback = "0", .min = 0, .max = 9e18,
             .metavar = "N"),
    CALM_OPT("dtype", dtype, ENUM, "dtype of the written tensors; checkpoint: each keeps its own",
             .fallback = "checkpoint",
             .values = "f32|f16|bf16|checkpoint"),
    CALM_OPT_HOW,
    CALM_OPT_FORCE,
    CALM_OPT_COMMON,
    {0},
};

static calm_status run(calm_ctx *ctx, const void *opts)
{
    static const calm_rotate_kind kinds[] = {CALM_ROTATE_R1, CALM_ROTATE_R1R2};
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16, CALM_N_DTYPES};
    const options *o = opts;
    calm_named_model named;
    const calm_rotate_options how = {kinds[o->rotate], (uint64_t)o->seed, dtypes[o->dtype]};
    if (!o->model || !o->output)
        return calm_fail(ctx, CALM_EARG, "calm rotate: %s is missing; try: calm rotate --model qwen --output "
                         "rotated",
                         o->model ? "--output" : "--model");
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &named));
    CALM_TRY(calm_rotate(ctx, named.dir, &o->how, &how, o->output, o->force));
    return calm_print_line(ctx, "%s: rotated by %s, seed %lld, written to %s", o->model, calm_rotate_name(how.kind),
                           o->seed, o->output);
}

const calm_command calm_cmd_rotate = {
    .name = "rotate",
    .summary = "write a float model without outlier channels, with the same function",
    .description =
        "Folds orthogonal matrices into the weights, so that no channel of the activations is much larger than the "
        "others, in the residual stream (r1) and in each head between v and o (r2).  The norms become ones, and a "
        "head that shares the embedding's tensor gets its own tensor.  calm quantize --rotate does this by itself; "
        "use the written model to compare, and for other programs.  It works for Llama, Mistral, Qwen, Phi-3 and "
        "mixtures of these.",
    .examples = "  calm rotate --model qwen -o ./rotated\n"
                "  calm eval --model ./rotated --reference qwen\n",
    CALM_COMMAND_PARTS,
};
