/* Commands: one const descriptor per file cmd_<name>.c, one line in commands.def. */
#ifndef CALM_CLI_COMMAND_H
#define CALM_CLI_COMMAND_H

#include "ptq/base/context.h"
#include "ptq/recipe/spec.h"

/* Which options of calm_spec_table a command has beside its own. */
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
    /* `args` [n_args] are the words that are not options.  Results go to stdout. */
    calm_status (*run)(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args);
} calm_command;

/* The commands in the order of commands.def; *n their number. */
const calm_command *const *calm_commands(size_t *n);

/* Parse argv [argc] (argv[0] is the command's name) into opts, which begins with a calm_common, and args
 * [command->max_args], all in ctx->out.
 * `--help` prints the help and leaves the process with status 0.  CALM_EARG: unknown option (the nearest is
 * suggested), wrong value, too few or too many words. */
calm_status calm_args_parse(calm_ctx *ctx, const calm_command *command, int argc, char **argv, void *opts,
                            const char ***args, size_t *n_args);

/* Options that every command has; the first member of its options struct. */
typedef struct calm_common {
    long long threads;      /* 0: all cores                                               */
    bool quiet;
    const char *command;    /* the command line, quoted for a shell; not an option itself */
} calm_common;

#define CALM_COMMON_OPTIONS(opts_t)                                                                          \
    {.name = "threads", .help = "worker threads; 0 = all cores (the result does not depend on it)",          \
     .offset = offsetof(opts_t, common.threads), .type = CALM_OPTION_INT, .fallback = "0", .min = 0,           \
     .max = 1024, .metavar = "N"},                                                                           \
    {.name = "quiet", .help = "no progress, no notes: results and errors alone",                             \
     .offset = offsetof(opts_t, common.quiet), .type = CALM_OPTION_BOOL, .key = 'q'}

#endif
