/* Printing: tables and JSON on streams. */
#ifndef CALM_CLI_PRINT_H
#define CALM_CLI_PRINT_H

#include <stdio.h>

#include "ptq/io/json.h"
#include "ptq/text/table.h"

/* How people call the program here: the start script as they typed it ($CALM_COMMAND), else "calm".  Borrowed. */
const char *calm_program(void);

/* Print a text.  CALM_EIO when the stream cannot be written. */
calm_status calm_print_text(calm_ctx *ctx, const calm_text *text, FILE *stream);

/* Print a table as aligned text. */
calm_status calm_print_table(calm_ctx *ctx, const calm_table *table, FILE *stream);

/* Print the rows so far as CSV, with headings before the first, and forget them. */
calm_status calm_print_csv(calm_ctx *ctx, calm_table *table, FILE *stream);

/* Print `root` with two spaces of indentation and a newline to stdout. */
calm_status calm_print_json(calm_ctx *ctx, const calm_json *root);

/* The rows of a table as an array of objects {heading: value}; freed by the caller. */
calm_status calm_rows_json(calm_ctx *ctx, const calm_table *table, calm_json **out);

#endif
