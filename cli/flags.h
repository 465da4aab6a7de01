/* Flags in messages: libraries name keys of recipes, `choice.budget`, and the program shows the flag, --budget. */
#pragma once

#include <stdio.h>

/* Prints `prefix` and the message as a line, which a terminal's width may fold.  A recipe key in backquotes becomes its
 * flag; other backquoted text stays. */
void calm_flags_print(FILE *stream, const char *prefix, const char *message);
