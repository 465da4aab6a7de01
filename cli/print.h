/* Printing: tables and JSON on streams. */
#pragma once

#include <stdio.h>

#include "ptq/io/json.h"
#include "ptq/text/table.h"

/* The name for commands in hints: the start script as it was typed ($CALM_COMMAND), else "calm".  Borrowed. */
const char *calm_program(void);

/* Append a word as a shell would read it again: quoted where it has to be. */
void calm_print_word(calm_text *out, const char *word);

/* Columns of the terminal that a stream writes to; 80 where it is none, or does not say. */
size_t calm_terminal_columns(int fd);

/* How wide tables on standard output may be: a terminal's columns, elsewhere $COLUMNS where it is exported; 0: any
 * width, which programs that read lines want. */
size_t calm_print_columns(void);

/* What is printed is released, also after a failure.  After a failure of ctx nothing is printed, so that a caller may
 * fill a text, a table or an object without a look at each status.  All return the first failure: that of ctx, of what
 * was filled (CALM_ENOMEM), of the stream (CALM_EIO, CALM_ENOSPC). */

/* Print a text to stdout. */
calm_status calm_print_text(calm_ctx *ctx, calm_text *text);

/* The same, lines that are longer than ctx->columns broken between words (calm_table_fold). */
calm_status calm_print_folded(calm_ctx *ctx, calm_text *text);

/* Print one line of text, as printf, broken so. */
calm_status calm_print_line(calm_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print a table as aligned text. */
calm_status calm_print_table(calm_ctx *ctx, calm_table *table, FILE *stream);

/* Print the rows so far to stdout as CSV, with headings before the first, and forget them; the table itself stays. */
calm_status calm_print_csv(calm_ctx *ctx, calm_table *table, FILE *stream);

/* Print `root` with two spaces of indentation and a newline to stdout. */
calm_status calm_print_json(calm_ctx *ctx, calm_json *root);

/* The rows of a table, which is released, as an array of objects {heading: value}.  NULL after a failure, which ctx
 * has. */
calm_json *calm_rows_json(calm_ctx *ctx, calm_table *table);

/* The same without a heading in every row: {"columns": [heading], "rows": [[value]]}.  For long tables. */
calm_json *calm_rows_json_columns(calm_ctx *ctx, calm_table *table);
