/* Messages from below cli/ name keys of recipes, `choice.budget`; the command line shows them as flags, --budget. */
#pragma once

#include <stdio.h>

/* Print a message behind `prefix` as a line, on a terminal as many as its columns ask; a recipe key in backquotes
 * becomes its flag, other backquoted text stays. */
void calm_flags_print(FILE *stream, const char *prefix, const char *message);
