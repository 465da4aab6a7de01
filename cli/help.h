/* What `calm COMMAND --help` prints: usage, options in the order of the manual, examples. */
#pragma once

#include "cli/command.h"

/* Lines of a help that fits on a screen. */
#define CALM_HELP_LINES 45

/* Prints the help of a command to standard output, as wide as the terminal, at most 79 columns.  If `all` is set or the
 * whole help has at most CALM_HELP_LINES lines, it prints description, every option under the heading of its group, and
 * examples; else the summary, the options whose `basic` is set, and examples. */
calm_status calm_help_print(calm_ctx *ctx, const calm_command *command, bool all);
