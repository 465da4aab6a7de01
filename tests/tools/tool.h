/* What the programs in tests/tools share: options as `--OPTION VALUE` (true|false options as `--OPTION` alone), help
 * from their table, exit statuses 0, 2 for wrong words, 1 for the rest. */
#ifndef CALM_TESTS_TOOL_H
#define CALM_TESTS_TOOL_H

#include "ptq/base/option.h"

typedef struct tool {
    const char *name, *synopsis;    /* "make_checkpoint", "--shape NAME --output DIR" */
    const char *what;               /* a sentence                                     */
    const calm_option *table;
    void *args;                     /* what the table fills                           */
    calm_status (*run)(calm_ctx *ctx, void *args);
} tool;

/* Parse, run, print the failure; main's exit status. */
int tool_main(const tool *tool, int argc, char **argv);

#endif
