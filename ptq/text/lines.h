/* Splits a text into lines, for JSON lines. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct calm_lines {
    const char *text;    /* [n], borrowed */
    size_t n, at;        /* at: first byte of the next line; initially 0     */
    size_t number;       /* number of the last line read, from 1; 0 before the first */
} calm_lines;

/* Returns whether `text` [n] has only spaces, tabs and line ends. */
bool calm_lines_blank(const char *text, size_t n);

/* Reads the next line that is not blank, without its line end (only 0x0A ends a line, not U+2028).  False at the
 * end. */
bool calm_lines_next(calm_lines *lines, const char **line, size_t *n);
