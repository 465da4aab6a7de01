/* Options of `calm quantize`: what a recipe file may say, in one table, and how they become a recipe. */
#ifndef CALM_CLI_QUANTIZE_OPTIONS_H
#define CALM_CLI_QUANTIZE_OPTIONS_H

#include "cli/command.h"
#include "cli/recipe_options.h"

/* Digests that a recipe demands of its inputs; every NULL and 0: nothing is demanded. */
typedef struct calm_demanded {
    const char *calib_sha256, *eval_sha256;    /* of the texts                         */
    const char **files, **sha256;              /* [n_files] of the model's directory   */
    size_t n_files;
} calm_demanded;

typedef struct calm_quantize_options {
    calm_common common;
    calm_recipe_options recipe;
    const char *recipe_file;    /* FILE or NAME; what it says is in the other options after calm_quantize_read_recipe */
    const char *metric, *budget, *output, *kernels, *formats, *max_shard_size, *gguf_pre;
    const char *pins, *forbid, *gates, *target;
    int unit, rule, effort, gguf_float;
    const char *lock;
    bool keep_hybrid, no_eval, force, json, dry_run, locked;
    const char *overrides;      /* not an option: JSON object of what was given although the recipe file has it;
                                 * NULL: nothing                                                              */
    calm_demanded demanded;     /* not options: a recipe file alone says them                                */
} calm_quantize_options;

/* What exporters may be told beside the plan. */
#define CALM_FORMAT_OPTIONS(opts_t)                                                                                  \
    {.name = "max-shard-size", .help = "most bytes of tensors in a safetensors file (default 5GB)",                  \
     .offset = offsetof(opts_t, max_shard_size), .type = CALM_OPTION_STRING, .metavar = "SIZE"},                     \
    {.name = "gguf-pre", .help = "llama.cpp's name of the pre-tokenizer, where the split pattern does not tell it",  \
     .offset = offsetof(opts_t, gguf_pre), .type = CALM_OPTION_STRING, .metavar = "NAME"},                           \
    {.name = "gguf-float", .help = "dtype of what is not quantized in a GGUF file",                                  \
     .offset = offsetof(opts_t, gguf_float), .type = CALM_OPTION_ENUM, .values = CALM_EXPORT_FLOAT_NAMES,            \
     .fallback = "stored", .metavar = CALM_EXPORT_FLOAT_NAMES}

/* Those that a recipe file has a place for (cli/recipe_file.h), and --recipe and --output.  They begin every table over
 * calm_quantize_options, so that an option has the same position in all of them. */
#define CALM_QUANTIZE_OPTIONS(output_help)                                                                           \
    CALM_RECIPE_OPTIONS(calm_quantize_options),                                                                      \
    {.name = "budget",                                                                                               \
     .help = "bits per weight that the widths of --scheme share; several, as 2.5,3,3.5, give a table",               \
     .offset = offsetof(calm_quantize_options, budget), .type = CALM_OPTION_STRING, .metavar = "BITS"},              \
    {.name = "unit", .help = "what gets one choice", .offset = offsetof(calm_quantize_options, unit),                \
     .type = CALM_OPTION_ENUM, .values = CALM_UNIT_NAMES, .fallback = "job", .metavar = CALM_UNIT_NAMES},            \
    {.name = "effort", .help = "light: do not try to smooth inputs without outliers",                                \
     .offset = offsetof(calm_quantize_options, effort), .type = CALM_OPTION_ENUM, .values = "full|light",            \
     .fallback = "full", .metavar = "full|light"},                                                                   \
    {.name = "rule", .help = "token: near ties by relative error; argmax: CALM as published",                        \
     .offset = offsetof(calm_quantize_options, rule), .type = CALM_OPTION_ENUM, .values = CALM_RULE_NAMES,           \
     .fallback = "token", .metavar = "token|argmax"},                                                                \
    {.name = "metric", .help = "score that the rule reads (default cka_token; cka with --rule argmax)",              \
     .offset = offsetof(calm_quantize_options, metric), .type = CALM_OPTION_STRING, .metavar = "NAME"},              \
    {.name = "keep-hybrid", .help = "the hybrid is the result even when a uniform run is better",                    \
     .offset = offsetof(calm_quantize_options, keep_hybrid), .type = CALM_OPTION_BOOL},                              \
    {.name = "pin", .help = "UNIT=NAME: units whose name matches the pattern UNIT take this candidate; may be repeated", \
     .offset = offsetof(calm_quantize_options, pins), .type = CALM_OPTION_STRING, .metavar = "UNIT=NAME",            \
     .list = true},                                                                                                  \
    {.name = "forbid", .help = "candidate that is no unit's choice and no result; may be repeated",                  \
     .offset = offsetof(calm_quantize_options, forbid), .type = CALM_OPTION_STRING, .metavar = "NAME",               \
     .list = true},                                                                                                  \
    {.name = "gate", .help = "what the result must hold, as 'ppl_ratio <= 1.05', else exit status 3; may be repeated", \
     .offset = offsetof(calm_quantize_options, gates), .type = CALM_OPTION_STRING, .metavar = "GATE",                \
     .list = true},                                                                                                  \
    {.name = "format", .help = "compressed-tensors (the default), gptq, awq, mlx, gguf, imatrix, tensor-types; of several each has a folder", \
     .offset = offsetof(calm_quantize_options, formats), .type = CALM_OPTION_STRING,                                 \
     .metavar = "LIST", .list = true},                                                                               \
    CALM_FORMAT_OPTIONS(calm_quantize_options),                                                                      \
    {.name = "target", .help = "engine whose kernels must take the result: its schemes, shapes, and one for all experts", \
     .offset = offsetof(calm_quantize_options, target), .type = CALM_OPTION_STRING, .metavar = CALM_ENGINE_NAMES},   \
    {.name = "kernels", .help = "OpenBLAS core type whose kernels the run is to use (Haswell, SkylakeX, ...)",       \
     .offset = offsetof(calm_quantize_options, kernels), .type = CALM_OPTION_STRING, .metavar = "TYPE"},             \
    {.name = "no-eval", .help = "skip the evaluation", .offset = offsetof(calm_quantize_options, no_eval),           \
     .type = CALM_OPTION_BOOL},                                                                                      \
    {.name = "recipe", .help = "take what is not given here from a recipe: a file, or the name of a shipped one",    \
     .offset = offsetof(calm_quantize_options, recipe_file), .type = CALM_OPTION_STRING, .metavar = "FILE"},         \
    {.name = "output", .help = output_help, .offset = offsetof(calm_quantize_options, output),                       \
     .type = CALM_OPTION_STRING, .metavar = "FILE", .key = 'o'}

/* The table of `calm quantize`. */
extern const calm_option calm_quantize_table[];

/* Read opts->recipe_file, when there is one: every option that it names and the command line does not (common.given) is
 * set.  The failures of calm_recipe_file_read and calm_recipe_file_apply. */
calm_status calm_quantize_read_recipe(calm_ctx *ctx, calm_quantize_options *opts);

/* The recipe of these options, every name found and every digest that is demanded compared; in ctx->out.
 * CALM_EARG: what is missing, unknown or does not go together.  CALM_EMISMATCH: a file is not the one demanded, with its
 * name and both digests. */
calm_status calm_quantize_resolve(calm_ctx *ctx, const calm_quantize_options *opts, calm_recipe *out);

/* Parts of it that need no model, for `calm recipe check`: "2.5,3.0,3.5" into recipe->budgets, rising; and what does not go
 * together.  CALM_EARG. */
calm_status calm_quantize_budgets(calm_ctx *ctx, const calm_quantize_options *opts, calm_recipe *recipe);
calm_status calm_quantize_check_choice(calm_ctx *ctx, const calm_quantize_options *opts, const calm_recipe *recipe);

/* --target into the recipe, with the first of --format that it reads.  CALM_EARG: no such target. */
calm_status calm_quantize_target(calm_ctx *ctx, const calm_quantize_options *opts, calm_recipe *recipe);

/* The formats that the options name, and what these may be told.  CALM_EARG: an unknown one, one named twice, a bad size. */
calm_status calm_quantize_formats(calm_ctx *ctx, const calm_quantize_options *opts, calm_formats *out);

/* Widths and algorithms of a budget, where none are named. */
#define CALM_BUDGET_SCHEMES "w2a16_g64,w3a16_g128,w4a16_g128,w8a16"
#define CALM_BUDGET_POOL "gptq,gptq-hls,mkq-full"

#endif
