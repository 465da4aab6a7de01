/* Splits a text into lines, as JSON lines need them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct calm_lines {
    const char *text;    /* [n], borrowed */
    size_t n, at;        /* at: first byte of the next line; 0 to begin with */
    size_t number;       /* of the line read last, from 1; 0 before it */
} calm_lines;

/* Nothing but spaces, tabs and ends of lines in `text` [n]? */
bool calm_lines_blank(const char *text, size_t n);

/* The next line that is not blank, without its end (0x0A; U+2028 and the like do not end one).  False at the end. */
bool calm_lines_next(calm_lines *lines, const char **line, size_t *n);
