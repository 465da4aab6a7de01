/* Tables: the same rows as aligned text, CSV and Markdown; programs get them as JSON (cli/print.h).
 *
 *   CALM_SCOPED_TABLE(table);
 *   calm_table_columns(&table, "#block|algorithm");
 *   CALM_CELLS(&table, CALM_INT(0), CALM_TEXT("gptq"));    cells fill the rows from left to right
 *   status = calm_table_write(ctx, &table, 0, &text);
 *
 * Columns are as wide as their widest cell, in columns of a terminal.  Running out of memory is remembered and
 * reported by the writing function. */
#pragma once

#include "ptq/base/scope.h"
#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"

typedef enum calm_align { CALM_ALIGN_LEFT, CALM_ALIGN_RIGHT } calm_align;

typedef enum calm_cell_type {
    CALM_CELL_EMPTY, CALM_CELL_TEXT, CALM_CELL_INT, CALM_CELL_BOOL, CALM_CELL_NUMBER
} calm_cell_type;

typedef struct calm_table_cell {
    calm_cell_type type;
    const char *text;    /* as it was given: JSON's form of a text           */
    const char *shown;   /* printable form, for text and Markdown            */
    size_t columns;      /* width of it on a terminal                        */
    int64_t integer;
    double number;
} calm_table_cell;

typedef struct calm_table_heading {
    const char *name;    /* as it was given: the key of JSON rows */
    const char *shown;   /* printable                             */
    size_t columns;      /* width of it on a terminal             */
    calm_align align;
} calm_table_heading;

typedef struct calm_table {
    calm_arena arena;               /* texts of all cells              */
    calm_table_heading *headings;   /* [n_columns]                     */
    calm_table_cell *cells;         /* [n_cells], row after row        */
    size_t n_columns, n_cells;
    size_t column_capacity, cell_capacity;
    bool failed;                    /* memory ran out                  */
    bool headed;                    /* a stream has its headings       */
    calm_arena_mark rows;           /* where the first cell begins     */
} calm_table;

/* Free everything; the table is then empty, as one of zeros is, and may be started again. */
void calm_table_clear(calm_table *table);

/* Add a column; all of them before the first cell.  `heading` is copied and is the key of the JSON rows. */
void calm_table_column(calm_table *table, const char *heading, calm_align align);

/* Add columns, "unit|#bits per weight|reason": headings between bars, numbers aligned to the right behind a '#'. */
void calm_table_columns(calm_table *table, const char *headings);

/* The next cell, a text, which is copied; NULL gives an empty cell. */
void calm_table_text(calm_table *table, const char *text);
void calm_table_format(calm_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The next cells, as a list: CALM_CELLS(table, CALM_TEXT(name), CALM_INT(n), CALM_FIXED(ppl, 4)).  Texts are copied; a
 * NULL text and NaN give an empty cell (JSON null).  Numbers are shown with `n` digits behind the point, and have up to
 * 15 in JSON. */
typedef struct calm_cell {
    calm_cell_type type;
    const char *text;
    int64_t integer;
    double number;
    char form;     /* of a number: 'f', 'e' or 'g' as printf has them; '+': 'f' with a sign */
    int digits;
} calm_cell;

#define CALM_TEXT(value) {.type = CALM_CELL_TEXT, .text = (value)}
#define CALM_INT(value) {.type = CALM_CELL_INT, .integer = (int64_t)(value)}
#define CALM_BOOL(value) {.type = CALM_CELL_BOOL, .integer = (value)}    /* yes, or empty */
#define CALM_EMPTY {.type = CALM_CELL_EMPTY}
#define CALM_FIXED(value, n) {.type = CALM_CELL_NUMBER, .number = (value), .form = 'f', .digits = (n)}
#define CALM_SIGNED(value, n) {.type = CALM_CELL_NUMBER, .number = (value), .form = '+', .digits = (n)}
#define CALM_SCIENTIFIC(value, n) {.type = CALM_CELL_NUMBER, .number = (value), .form = 'e', .digits = (n)}
#define CALM_NUMBER(value) {.type = CALM_CELL_NUMBER, .number = (value), .form = 'g', .digits = 6}
#define CALM_CELLS(table, ...)                                                                               \
    calm_table_cells((table), (const calm_cell[]){__VA_ARGS__},                                              \
                     sizeof(const calm_cell[]){__VA_ARGS__} / sizeof(calm_cell))

/* The next n cells; CALM_CELLS counts them. */
void calm_table_cells(calm_table *table, const calm_cell *cells, size_t n);

/* Number of complete rows. */
size_t calm_table_rows(const calm_table *table);

/* Remove the columns whose cells are all empty; a table without rows keeps all columns. */
void calm_table_drop_empty(calm_table *table);

/* Remove the columns whose heading is not among the words of `names`, "entry|score", joined as calm_table_columns has
 * them, without '#'. */
void calm_table_keep(calm_table *table, const char *names);

/* Remove those columns instead; the last one stays. */
void calm_table_drop(calm_table *table, const char *names);

/* Where ctx->columns is a limit that the table's rows do not fit into without several lines in a cell, remove the
 * columns of the first of `choices` [n], "a|b" each, after which they do; where there is none, those of the last one if
 * the rows do not fit with several lines either. */
calm_status calm_table_narrow(calm_ctx *ctx, calm_table *table, size_t indent, const char *const *choices, size_t n);

/* There, of several rows, remove the last columns, so that at least three stay; else all do.  Append the headings of
 * those that went to `left`, "a, b". */
calm_status calm_table_shorten(calm_ctx *ctx, calm_table *table, size_t indent, calm_text *left);

/* Append headings, a rule and the rows, each line indented by `indent` spaces, without blanks at the ends of lines.
 * Control characters are shown as \n, \t, \u{...}.  Where ctx->columns is a limit, words get several lines, and a table
 * that is still too wide becomes a list of cells for each row, an empty line between two. */
calm_status calm_table_write(calm_ctx *ctx, const calm_table *table, size_t indent, calm_text *out);

/* Append headings and rows as CSV (RFC 4180: lines end with CR LF, a field with a comma, a quote or a line end is
 * quoted); numbers have all digits, empty cells no character, yes and no are true and false. */
calm_status calm_table_write_csv(calm_ctx *ctx, const calm_table *table, calm_text *out);

/* Append the rows so far as CSV and drop them from the table; the first call appends the headings too.  For more rows
 * than memory should hold. */
calm_status calm_table_take_csv(calm_ctx *ctx, calm_table *table, calm_text *out);

/* Append headings and rows as a Markdown table, cells in their printable form. */
calm_status calm_table_write_markdown(calm_ctx *ctx, const calm_table *table, calm_text *out);

/* Append each row as a list, one line per cell that is not empty: "heading  value"; several where ctx->columns asks. */
calm_status calm_table_write_fields(calm_ctx *ctx, const calm_table *table, size_t indent, calm_text *out);

/* Append the lines of a text, those that are longer than ctx->columns broken between words, what follows indented, or
 * below what stands behind a label and two blanks. */
void calm_table_fold(const calm_ctx *ctx, const char *text, calm_text *out);

/* Append the printable form of a text: well-formed, control characters as \n, \t, \u{...}; *columns (NULL: not
 * wanted) is its width on a terminal. */
void calm_table_printable(const char *text, calm_text *out, size_t *columns);

/* An empty table that is cleared at the end of its scope. */
#define CALM_SCOPED_TABLE(name) CALM_SCOPED(calm_table, calm_table_clear) name = {0}
