/* Messages name the keys of a recipe, `choice.budget`; a command line has flags, --budget. */
#ifndef CALM_CLI_FLAGS_H
#define CALM_CLI_FLAGS_H

#include <stdio.h>

/* Print a message as a line, every key of a recipe in backquotes as its flag; what is in other backquotes stays. */
void calm_flags_print(FILE *stream, const char *message);

#endif
