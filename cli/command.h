/* Commands: one const descriptor per file cmd_<name>.c, one line in commands.def. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/recipe/spec.h"

/* Which options of calm_spec_table a command has in addition to its own. */
typedef enum calm_spec_use {
    CALM_SPEC_NONE,
    CALM_SPEC_SHARED,             /* options that determine candidates and their calibration */
    CALM_SPEC_ALL,
} calm_spec_use;

typedef struct calm_command {
    const char *name;
    const char *summary;          /* one line for `calm --help`                                                       */
    const char *arguments;        /* "MODEL" for the usage line; NULL: none                                           */
    const char *description;      /* paragraph above the options                                                      */
    const char *examples;         /* lines below the options                                                          */
    const calm_option *options;   /* the command's own; each hides the spec's of the same name; ends with a NULL name */
    size_t opts_size;             /* bytes of the options struct                                                      */
    calm_spec_use spec;
    size_t spec_at;               /* offset of calm_recipe_spec in the options struct      */
    size_t min_args, max_args;    /* number of words that are not options                  */
    bool divides;                 /* several ranks can share its work (cli/rank_options.h) */
    calm_status (*run)(calm_ctx *ctx, const void *opts);    /* results go to stdout        */
} calm_command;

/* Returns all commands [*n], in the order of commands.def. */
const calm_command *const *calm_commands(size_t *n);

/* Largest number of options of a command. */
#define CALM_COMMAND_OPTIONS (2 * CALM_SPEC_OPTIONS)

/* Writes the options of a command to out [CALM_COMMAND_OPTIONS]: its own, then those options of the spec whose names
 * its own do not use.  Returns their number. */
size_t calm_command_options(const calm_command *command, const calm_option **out);

/* Returns the placeholder for an option's value in help and manual, "FILE". */
const char *calm_command_metavar(const calm_option *option);

/* Returns an option's default in help and manual, as text; "": none. */
const char *calm_command_default(const calm_option *option);

/* Returns the number of an option's group, from 1 for the most used options; 0: the option has no group, or the command
 * has no groups.  Only commands that run a recipe have groups, one per purpose. */
size_t calm_command_group(const calm_command *command, const calm_option *option);

/* Returns the heading of a group, "Calibration:"; NULL: group 0, or there is no such group. */
const char *calm_command_heading(size_t group);

/* Sorts options [n] by group, and within a group by how much they are used.  Options without a group come first, in the
 * order of the input. */
void calm_command_sort(const calm_command *command, const calm_option **options, size_t n);

/* Parses argv [argc] (argv[0] is the command's name) into opts, which begins with a calm_common; texts are in
 * ctx->out. `--help` and `--help-all` print the help (cli/help.h) and end the process with status 0.  CALM_EARG:
 * unknown scheme, wrong value, too few or too many words, or unknown option; the message then suggests the nearest
 * option, or calm's for an option of another tool (cli/peers.def). */
calm_status calm_args_parse(calm_ctx *ctx, const calm_command *command, int argc, char **argv, void *opts);

/* The options that every command has; the first member of its options struct. */
typedef struct calm_common {
    long long threads;      /* 0: all cores */
    bool quiet;
    calm_words args;        /* the words that are not options       */
    const char *command;    /* the command line, quoted for a shell */
} calm_common;

/* A row of a command's table of options; the command's struct must be called `options`. */
#define CALM_OPT(name_, field, type_, help_, ...)                                                            \
    {.name = name_, .offset = offsetof(options, field), .type = CALM_OPTION_##type_, .help = help_, __VA_ARGS__}

#define CALM_OPT_COMMON                                                                                      \
    CALM_OPT("threads", common.threads, INT, "worker threads; 0 = all cores (the result does not depend on it)", \
             .fallback = "0", .min = 0, .max = 1024, .metavar = "N", .basic = true),                         \
    CALM_OPT("quiet", common.quiet, BOOL, "print only results and errors", .key = 'q',     \
             .basic = true)

/* The last members of a descriptor; the file's table, struct and function must be called `table`, `options`, `run`. */
#define CALM_COMMAND_PARTS .options = table, .opts_size = sizeof(options), .run = run

/* Rows that several commands share. */
#define CALM_OPT_STORE                                                                                       \
    CALM_OPT("store", store, STRING, "SQLite file of candidates, scores and choices",                        \
             .fallback = "calm-out/calm.db", .metavar = "FILE", .key = 's', .basic = true)
#define CALM_OPT_RUN_MODEL                                                                                   \
    CALM_OPT("model", model, STRING, "the float model (default: where the run read it); its content must be the same", \
             .metavar = "MODEL", .key = 'm')
/* For commands that open a model; the options struct must have a calm_model_how `how`. */
#define CALM_OPT_ACCEPT                                                                                      \
    CALM_OPT("accept-key", how.accept_keys, FILES, "accept a key of config.json that calm does not know; " \
             "may be repeated", .max = 64, .metavar = "KEY")
#define CALM_OPT_HOW                                                                                         \
    CALM_OPT("adapter", how.adapter, STRING, "LoRA adapter to merge into the model",                           \
             .metavar = "DIR"),                                                                              \
    CALM_OPT_ACCEPT
#define CALM_OPT_ACT_RULE                                                                                    \
    CALM_OPT("act-rule", act_rule, ENUM, "scales of quantized activations as in transformers "                \
             "(compressed-tensors) or in vLLM's kernel", .values = CALM_ACT_RULE_NAMES,                       \
             .fallback = "compressed-tensors", .metavar = CALM_ACT_RULE_NAMES)
/* The argument is empty, or .basic = true to show the option in the short help. */
#define CALM_OPT_EXACT_FLOAT(...)                                                                            \
    CALM_OPT("exact-float", exact_float, BOOL, "simulate quantized activations in float, instead of integer " \
             "arithmetic", __VA_ARGS__)
#define CALM_OPT_RUN_ADAPTER                                                                                 \
    CALM_OPT("adapter", adapter, STRING, "the run's LoRA adapter, if it has one (default: where the run read it)", \
             .metavar = "DIR")
#define CALM_OPT_HYBRID CALM_OPT("hybrid", hybrid, BOOL, "the run's choices, even if a uniform run was its result")
#define CALM_OPT_FORCE CALM_OPT("force", force, BOOL, "replace the output directory", .key = 'f')
