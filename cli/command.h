/* Commands: one const descriptor per file cmd_<name>.c, one line in commands.def. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/recipe/spec.h"

/* Which options of calm_spec_table a command has next to its own. */
typedef enum calm_spec_use {
    CALM_SPEC_NONE,
    CALM_SPEC_SHARED,             /* those of candidates and their calibration                */
    CALM_SPEC_ALL,
} calm_spec_use;

typedef struct calm_command {
    const char *name;
    const char *summary;          /* one line for `calm --help`                               */
    const char *arguments;        /* "MODEL" for the usage line; NULL: none                   */
    const char *description;      /* paragraph above the options                              */
    const char *examples;         /* lines below them                                         */
    const calm_option *options;   /* its own, which come before the spec's of the same name; ends with a NULL name */
    size_t opts_size;
    calm_spec_use spec;
    size_t spec_at;               /* offset of its calm_recipe_spec in the options struct     */
    size_t min_args, max_args;
    bool divides;                 /* several ranks (cli/rank_options.h) do its work together          */
    calm_status (*run)(calm_ctx *ctx, const void *opts);    /* results go to stdout */
} calm_command;

/* All commands, in the order of commands.def. */
const calm_command *const *calm_commands(size_t *n);

/* Room for the options of a command. */
#define CALM_COMMAND_OPTIONS (2 * CALM_SPEC_OPTIONS)

/* The options that a command takes, into out [CALM_COMMAND_OPTIONS]: its own, then those of the spec that have no
 * namesake among them.  Returns how many. */
size_t calm_command_options(const calm_command *command, const calm_option **out);

/* The word for the value of an option that takes one, as help and manual show it. */
const char *calm_command_metavar(const calm_option *option);

/* The default as help and manual show it, as text; "": there is none. */
const char *calm_command_default(const calm_option *option);

/* Options of commands that run a recipe stand in groups by purpose: the number of an option's group, from 1, most used
 * first; 0: it has none, or the command has no groups. */
size_t calm_command_group(const calm_command *command, const calm_option *option);

/* What stands above a group, "Calibration:"; NULL: group 0, or there is no such group. */
const char *calm_command_heading(size_t group);

/* Sort options [n] by their groups, and in them most used first; those without a group stand before, in their order. */
void calm_command_sort(const calm_command *command, const calm_option **options, size_t n);

/* Parse argv [argc] (argv[0] is the command's name) into opts, which begins with a calm_common; texts are in ctx->out.
 * `--help` and `--help-all` print the help (cli/help.h) and leave the process with status 0.  CALM_EARG: unknown option
 * (the nearest is suggested, or calm's for another tool's: cli/peers.def), unknown scheme, wrong value, too few or too
 * many words. */
calm_status calm_args_parse(calm_ctx *ctx, const calm_command *command, int argc, char **argv, void *opts);

/* What every command has; the first member of its options struct. */
typedef struct calm_common {
    long long threads;      /* 0: all cores                                    */
    bool quiet;
    calm_words args;        /* the words that are not options                  */
    const char *command;    /* the command line, quoted for a shell            */
} calm_common;

/* Rows of a command's table of options; its struct is called `options`. */
#define CALM_OPT(name_, field, type_, help_, ...)                                                            \
    {.name = name_, .offset = offsetof(options, field), .type = CALM_OPTION_##type_, .help = help_, __VA_ARGS__}

#define CALM_OPT_COMMON                                                                                      \
    CALM_OPT("threads", common.threads, INT, "worker threads; 0 = all cores (the result does not depend on it)", \
             .fallback = "0", .min = 0, .max = 1024, .metavar = "N", .basic = true),                         \
    CALM_OPT("quiet", common.quiet, BOOL, "print only results and errors", .key = 'q',     \
             .basic = true)

/* The last of a descriptor: the file's table, struct and function are called `table`, `options` and `run`. */
#define CALM_COMMAND_PARTS .options = table, .opts_size = sizeof(options), .run = run

/* Those that mean the same in several commands. */
#define CALM_OPT_STORE                                                                                       \
    CALM_OPT("store", store, STRING, "SQLite file of candidates, scores and choices",                        \
             .fallback = "calm-out/calm.db", .metavar = "FILE", .key = 's', .basic = true)
#define CALM_OPT_RUN_MODEL                                                                                   \
    CALM_OPT("model", model, STRING, "the float model (default: where the run read it); its content must be the same", \
             .metavar = "MODEL", .key = 'm')
/* How the model is opened; the options struct has a calm_model_how `how`. */
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
/* With whether the short help has it, .basic = true. */
#define CALM_OPT_EXACT_FLOAT(...)                                                                            \
    CALM_OPT("exact-float", exact_float, BOOL, "simulate quantized activations in float, instead of integer " \
             "arithmetic", __VA_ARGS__)
#define CALM_OPT_RUN_ADAPTER                                                                                 \
    CALM_OPT("adapter", adapter, STRING, "the run's LoRA adapter, if it has one (default: where the run read it)", \
             .metavar = "DIR")
#define CALM_OPT_HYBRID CALM_OPT("hybrid", hybrid, BOOL, "the run's choices, even if a uniform run was its result")
#define CALM_OPT_FORCE CALM_OPT("force", force, BOOL, "replace the output directory", .key = 'f')
