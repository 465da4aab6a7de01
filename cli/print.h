/* Printing: tables and JSON on streams. */
#pragma once

#include <stdio.h>

#include "ptq/io/json.h"
#include "ptq/text/table.h"

/* Returns the name of the program for commands in hints: the start script as typed ($CALM_COMMAND), else "calm". */
const char *calm_program(void);

/* Appends a word, in shell quotes if it needs them. */
void calm_print_word(calm_text *out, const char *word);

/* Returns the columns of the terminal `fd`; 80 if it is no terminal or does not report them. */
size_t calm_terminal_columns(int fd);

/* Returns the width for tables on standard output: a terminal's columns, else $COLUMNS if it is exported; 0: any width,
 * as programs that read lines want. */
size_t calm_print_columns(void);

/* The functions below release their argument, also after a failure.  If ctx holds a failure they print nothing, so a
 * caller may fill a text, a table or an object without checking each status.  They return the first failure: that of
 * ctx, of the argument (CALM_ENOMEM) or of the stream (CALM_EIO, CALM_ENOSPC). */

/* Prints a text to stdout. */
calm_status calm_print_text(calm_ctx *ctx, calm_text *text);

/* Prints a text to stdout; breaks lines longer than ctx->columns between words (calm_table_fold). */
calm_status calm_print_folded(calm_ctx *ctx, calm_text *text);

/* Prints one line as printf, broken as calm_print_folded does. */
calm_status calm_print_line(calm_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a table as aligned text. */
calm_status calm_print_table(calm_ctx *ctx, calm_table *table, FILE *stream);

/* Prints the rows so far as CSV, with headings before the first row, and removes them; the table itself stays. */
calm_status calm_print_csv(calm_ctx *ctx, calm_table *table, FILE *stream);

/* Prints `root` to stdout, indented by two spaces, with a newline. */
calm_status calm_print_json(calm_ctx *ctx, calm_json *root);

/* Returns the rows of a table, which it releases, as an array of objects {heading: value}.  NULL after a failure, which
 * ctx holds. */
calm_json *calm_rows_json(calm_ctx *ctx, calm_table *table);

/* The same without a heading in every row, for long tables: {"columns": [heading], "rows": [[value]]}. */
calm_json *calm_rows_json_columns(calm_ctx *ctx, calm_table *table);
