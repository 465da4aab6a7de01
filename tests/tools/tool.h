/* Main function of the programs in tests/tools: options as `--OPTION VALUE` (booleans as `--OPTION`), help from their
 * table, exit status 0, 2 after wrong words, 1 after other failures. */
#ifndef CALM_TESTS_TOOL_H
#define CALM_TESTS_TOOL_H

#include "ptq/base/option.h"

typedef struct tool {
    const char *name, *synopsis;    /* "make_checkpoint", "--shape NAME --output DIR" */
    const char *what;               /* a sentence that describes it                   */
    const calm_option *table;
    void *args;                     /* the struct that the table fills */
    calm_status (*run)(calm_ctx *ctx, void *args);
} tool;

/* Parses the words, runs the tool, prints a failure; returns main's exit status. */
int tool_main(const tool *tool, int argc, char **argv);

#endif
