/* calm forward: computes logits and hidden states of given tokens. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "ptq/base/output.h"
#include "ptq/eval/forward_file.h"
#include "cli/progress.h"
#include "cli/pull.h"

typedef struct options {
    calm_common common;
    calm_model_how how;
    const char *model, *tokens, *output;
    bool hidden;
} options;

static const calm_option table[] = {
    CALM_OPT("model", model, STRING, "directory, float or compressed-tensors, or a known name", .metavar = "DIR",
             .key = 'm'),
    CALM_OPT("tokens", tokens, STRING, "JSON lines {\"ids\": [...], \"mask\": [...]}; \"mask\" is optional, and so "
             "is \"types\" for encoders", .metavar = "FILE"),
    CALM_OPT("output", output, STRING, "safetensors file to write", .metavar = "FILE", .key = 'o'),
    CALM_OPT("hidden", hidden, BOOL, "also write hidden.embed, hidden.00 and so on per block, hidden.final_norm"),
    CALM_OPT_HOW,
    CALM_OPT_COMMON,
    {0},
};

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_named_model named;
    CALM_SCOPED_MODEL(model);
    calm_token_file tokens;
    calm_progress progress;
    calm_forward_result result;
    char shape[128];
    if (!o->model || !o->tokens || !o->output)
        return calm_fail(ctx, CALM_EARG, "calm forward: %s is missing; try: calm forward --model qwen --tokens "
                         "ids.jsonl --output out.safetensors",
                         !o->model ? "--model" : !o->tokens ? "--tokens" : "--output");
    CALM_TRY(calm_kernels_pin(ctx, NULL));
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &named));
    CALM_TRY(calm_output_file(ctx, o->output, true, NULL, &(calm_words){(const char *[]){named.dir, o->tokens}, 2}));
    CALM_TRY(calm_model_open_as(ctx, named.dir, &o->how, &model));
    CALM_TRY(calm_token_file_read(ctx, o->tokens, calm_model_config(model)->vocab, &tokens));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "forward", "parts");
    const calm_forward_request request = {
        .model = model, .tokens = &tokens, .hidden = o->hidden, .tick = calm_progress_tick, .tick_user = &progress};
    calm_forward_write(ctx, &request, o->output, &result);
    CALM_TRY(calm_progress_end(ctx, &progress));
    for (size_t i = 0; i < result.n && !o->common.quiet; i++)
        printf("%-18s %s\n", result.tensors[i].name,
               calm_shape_text(result.tensors[i].n_dims, result.tensors[i].shape, shape));
    return CALM_OK;
}

const calm_command calm_cmd_forward = {
    .name = "forward",
    .summary = "logits and hidden states of given tokens, for comparison with other libraries",
    .description =
        "Runs the model on token ids and writes float32 tensors: logits [S, T, V]; for encoders last_hidden_state "
        "[S, T, D] and pooler_output [S, D].  S is the number of sequences, T the length of the longest.  Rows "
        "after the end of a shorter sequence, and rows that its mask marks as padding, are 0.  The model does not "
        "see padding; other tokens keep their positions.",
    .examples = "  calm tokenize --model qwen --json texts.jsonl > ids.jsonl\n"
                "  calm forward --model qwen --tokens ids.jsonl --output out.safetensors --hidden\n",
    CALM_COMMAND_PARTS,
};
