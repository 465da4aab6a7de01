/* calm export: a run's plan in the formats of its users. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "ptq/run/checkpoint.h"
#include "ptq/run/reassemble.h"

typedef struct options {
    calm_common common;
    calm_words formats;
    const char *output, *store, *model, *max_shard_size, *gguf_pre;
    int gguf_float;
    bool asymmetric, hybrid, force, json;
} options;

static const calm_option table[] = {
    {.name = "format", .help = "formats to write, several at once allowed; of several each has a folder of its name",
     .offset = offsetof(options, formats), .type = CALM_OPTION_WORDS, .metavar = "LIST"},
    {.name = "output", .help = "directory to write", .offset = offsetof(options, output), .type = CALM_OPTION_STRING,
     .metavar = "DIR", .key = 'o'},
    {.name = "max-shard-size", .help = "most bytes of tensors in a safetensors file (default 5GB)",
     .offset = offsetof(options, max_shard_size), .type = CALM_OPTION_STRING, .metavar = "SIZE"},
    {.name = "gguf-pre", .help = "llama.cpp's name of the pre-tokenizer, where the split pattern does not tell it",
     .offset = offsetof(options, gguf_pre), .type = CALM_OPTION_STRING, .metavar = "NAME"},
    {.name = "gguf-float", .help = "dtype of what is not quantized in a GGUF file",
     .offset = offsetof(options, gguf_float), .type = CALM_OPTION_ENUM, .values = CALM_EXPORT_FLOAT_NAMES,
     .fallback = "stored", .metavar = CALM_EXPORT_FLOAT_NAMES},
    {.name = "asymmetric", .help = "write zero points as compressed-tensors, which some of its readers fail on",
     .offset = offsetof(options, asymmetric), .type = CALM_OPTION_BOOL},
    {.name = "store", .help = "SQLite file of candidates, scores and choices", .offset = offsetof(options, store),
     .type = CALM_OPTION_STRING, .fallback = "calm-out/calm.db", .metavar = "FILE", .key = 's'},
    {.name = "model", .help = "the float model (default: where the run read it); its content must be the same",
     .offset = offsetof(options, model), .type = CALM_OPTION_STRING, .metavar = "MODEL", .key = 'm'},
    {.name = "hybrid", .help = "the run's choices, also where a uniform run was its result",
     .offset = offsetof(options, hybrid), .type = CALM_OPTION_BOOL},
    {.name = "force", .help = "replace the output directory", .offset = offsetof(options, force),
     .type = CALM_OPTION_BOOL, .key = 'f'},
    {.name = "json", .help = "print what was written as JSON", .offset = offsetof(options, json),
     .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

static calm_status print_json(calm_ctx *ctx, const options *o, const calm_assembly *a, char **names, size_t n)
{
    calm_json *root = calm_json_new_object(), *files = calm_json_new_array();
    calm_json_set_int(root, "run", a->run.id);
    calm_json_set_string(root, "result", a->result.name);
    calm_json_set_number(root, "bits_per_weight", a->result.bits_per_weight);
    calm_json_set_string(root, "output", o->output);
    for (size_t i = 0; i < n; i++)
        calm_json_add_string(files, names[i]);
    calm_json_set(root, "files", files);
    const calm_status status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}

static calm_status print(calm_ctx *ctx, const options *o, const calm_assembly *a)
{
    char **names;
    size_t n;
    CALM_TRY(calm_outputs_files(ctx, o->output, &names, &n));
    if (o->json)
        return print_json(ctx, o, a, names, n);
    printf("  result       %s of run %lld: %.4f bits per weight\n  written to   %s\n", a->result.name,
           (long long)a->run.id, a->result.bits_per_weight, o->output);
    for (size_t i = 0; i < n; i++)
        printf("               %s\n", names[i]);
    return CALM_OK;
}

/* What is asked for, of names and sizes. */
static calm_status resolve(calm_ctx *ctx, const options *o, const char *run, calm_assemble_options *how)
{
    calm_named_model model;
    *how = (calm_assemble_options){.store = o->store, .output = o->output, .hybrid = o->hybrid, .force = o->force,
                                   .formats = o->formats, .command = o->common.command,
                                   .export = {.asymmetric = o->asymmetric, .gguf_pre = o->gguf_pre,
                                              .gguf_float = (calm_export_float)o->gguf_float}};
    CALM_TRY(calm_stored_run_number(ctx, "export", run, &how->run));
    if (!o->formats.n)
        return calm_fail(ctx, CALM_EARG,
                         "calm export: --format is missing; try: calm export %s --format gguf --output out", run);
    if (!o->output)
        return calm_fail(ctx, CALM_EARG,
                         "calm export: --output is missing; try: calm export %s --format %s --output out", run,
                         o->formats.of[0]);
    if (o->max_shard_size)
        CALM_TRY(calm_size_parse(ctx, "max-shard-size", o->max_shard_size, &how->export.max_shard_bytes));
    if (!o->model)
        return CALM_OK;
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &model));
    how->model = model.dir;
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_assemble_options how;
    calm_progress progress;
    calm_assembly assembly;
    (void)n_args;
    CALM_TRY(resolve(ctx, o, args[0], &how));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    how.events = calm_progress_events(&progress);
    calm_status status = calm_reassemble(ctx, &how, &assembly);
    calm_progress_end(ctx, &progress);
    if (status == CALM_OK)
        status = print(ctx, o, &assembly);
    calm_assembly_close(&assembly);
    return status;
}

const calm_command calm_cmd_export = {
    .name = "export",
    .summary = "write a run's plan in other formats",
    .arguments = "RUN",
    .description = "Writes the plan of RUN from its stored candidates in one or more formats: compressed-tensors, "
                   "gptq, awq, mlx, gguf, and for llama-quantize imatrix and tensor-types.  Codes and scales are "
                   "those of the run, so nothing is quantized a second time; what a format cannot express is refused "
                   "by name.  For imatrix the float model runs over the run's calibration windows again, so their "
                   "text must be where the run read it, with the same windows in it.",
    .examples = "  calm export 4 --format gguf --output out\n"
                "  calm export 4 --format compressed-tensors,gptq,mlx --output out    (out/gptq, out/mlx, ...)\n",
    .options = table,
    .opts_size = sizeof(options),
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
