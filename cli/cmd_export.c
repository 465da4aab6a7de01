/* calm export: writes a run's plan in other formats. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "cli/report.h"
#include "ptq/finish/finish.h"
#include "ptq/stored/stored.h"

typedef struct options {
    calm_common common;
    calm_words formats;
    const char *output, *store, *model, *adapter, *max_shard_size, *gguf_pre, *embed_scheme, *head_scheme;
    int gguf_float;
    bool asymmetric, hybrid, force, json;
} options;

static const calm_option table[] = {
    CALM_OPT("format", formats, WORDS, "formats to write; several: one folder each", .metavar = "LIST"),
    CALM_OPT("output", output, STRING, "directory to write", .metavar = "DIR", .key = 'o'),
    CALM_OPT("max-shard-size", max_shard_size, STRING, "largest total size of the tensors in a file (default: 5GB "
             "of safetensors, one GGUF file)",
             .metavar = "SIZE"),
    CALM_OPT("gguf-pre", gguf_pre, STRING, "llama.cpp's name of the pre-tokenizer, if calm cannot tell it from the "
             "split pattern", .metavar = "NAME"),
    CALM_OPT("gguf-float", gguf_float, ENUM, "dtype of float tensors in a GGUF file",
             .values = CALM_EXPORT_FLOAT_NAMES, .fallback = "stored", .metavar = CALM_EXPORT_FLOAT_NAMES),
    CALM_OPT("embed-scheme", embed_scheme, STRING, "number format of the embedding, or float (default: the run's)",
             .metavar = "NAME"),
    CALM_OPT("head-scheme", head_scheme, STRING, "number format of the head, or float; a tied table has one format "
             "for both",
             .metavar = "NAME"),
    CALM_OPT("asymmetric", asymmetric, BOOL, "write zero points as compressed-tensors, although some of its readers "
             "fail on them"),
    CALM_OPT_STORE,
    CALM_OPT_RUN_MODEL,
    CALM_OPT_RUN_ADAPTER,
    CALM_OPT_HYBRID,
    CALM_OPT_FORCE,
    CALM_OPT("json", json, BOOL, "print what was written as JSON"),
    CALM_OPT_COMMON,
    {0},
};

static calm_status print(calm_ctx *ctx, const options *o, const calm_assembly *a)
{
    const char **names;
    size_t n;
    CALM_TRY(calm_outputs_files(ctx, o->output, &names, &n));
    if (o->json) {
        const char *name;
        CALM_TRY(calm_result_label(ctx, &a->result, a->result.name, &name));
        calm_json *files = calm_json_new_array();
        for (size_t i = 0; i < n; i++)
            calm_json_add_string(files, names[i]);
        return calm_print_json(ctx, CALM_OBJECT(CALM_KV("run", a->run.id), CALM_KV("result", name),
                                                CALM_KV("bits_per_weight", a->result.bits_per_weight),
                                                CALM_KV("output", o->output), CALM_KV("files", files)));
    }
    CALM_SCOPED_TEXT(text);
    calm_report_assembly(a, &text);
    calm_text_printf(&text, "  written to   %s\n", o->output);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&text, "               %s\n", names[i]);
    return calm_print_text(ctx, &text);
}

/* Fills *how from the options: parses run and sizes, finds the model. */
static calm_status resolve(calm_ctx *ctx, const options *o, const char *run, calm_assemble_options *how)
{
    calm_named_model model;
    *how = (calm_assemble_options){.store = o->store, .output = o->output, .hybrid = o->hybrid, .force = o->force,
                                   .formats = o->formats, .command = o->common.command,
                                   .export = {.asymmetric = o->asymmetric, .gguf_pre = o->gguf_pre,
                                              .gguf_float = (calm_export_float)o->gguf_float}};
    CALM_TRY(calm_formats_parse_outer(ctx, o->embed_scheme, o->head_scheme, &how->export));
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
    CALM_TRY(calm_kernels_pin_run(ctx, o->store, how->run));
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &model));
    how->model = model.dir;
    how->adapter = o->adapter;
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_assemble_options how;
    calm_progress progress;
    CALM_SCOPED(calm_assembly, calm_assembly_close) assembly = {0};
    CALM_TRY(resolve(ctx, o, o->common.args.of[0], &how));
    how.events = calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_reassemble(ctx, &how, &assembly);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return print(ctx, o, &assembly);
}

const calm_command calm_cmd_export = {
    .name = "export",
    .summary = "write a run's plan in other formats",
    .arguments = "RUN",
    .description =
        "Writes the plan of RUN from its stored candidates in one or more formats: compressed-tensors, gptq, awq, "
        "mlx, gguf, and for llama-quantize imatrix and tensor-types.  Codes and scales are those of the run: calm "
        "does not quantize again.  It refuses by name what a format cannot express.  imatrix, and a quantized head "
        "or tied table of a run whose algorithms read data, need the run's calibration text, where the run read it: "
        "the float model runs over it again.",
    .examples = "  calm export 4 --format gguf --output out\n"
                "  calm export 4 --format compressed-tensors,gptq,mlx --output out    (out/gptq, out/mlx, ...)\n",
    .min_args = 1,
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
