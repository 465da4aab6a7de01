/* What `calm COMMAND --help` prints: usage, options in the order of the manual, examples. */
#pragma once

#include "cli/command.h"

/* Lines of a help that fits on a screen. */
#define CALM_HELP_LINES 45

/* Print the help of a command to standard output, as wide as the terminal, at most 79 columns.  all: description,
 * every option under the heading of its group, examples.  Otherwise the same where it has at most CALM_HELP_LINES
 * lines, else the summary, the options whose `basic` is set, and examples. */
calm_status calm_help_print(calm_ctx *ctx, const calm_command *command, bool all);
