/* Tables: rows as aligned text, CSV and Markdown; as JSON in cli/print.h.
 *
 *   CALM_SCOPED_TABLE(table);
 *   calm_table_columns(&table, "#block|algorithm");
 *   CALM_CELLS(&table, CALM_INT(0), CALM_TEXT("gptq"));    cells fill the rows from left to right
 *   status = calm_table_write(ctx, &table, 0, &text);
 *
 * A column is as wide as its widest cell on a terminal.  A failed allocation is stored and reported by the writing
 * function. */
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
    const char *text;    /* text as given, for JSON                          */
    const char *shown;   /* printable form, for text and Markdown            */
    size_t columns;      /* width of `shown` on a terminal                   */
    int64_t integer;
    double number;
} calm_table_cell;

typedef struct calm_table_heading {
    const char *name;    /* text as given: the key of JSON rows   */
    const char *shown;   /* printable form                        */
    size_t columns;      /* width of `shown` on a terminal        */
    calm_align align;
} calm_table_heading;

typedef struct calm_table {
    calm_arena arena;               /* owns the texts of all cells     */
    calm_table_heading *headings;   /* [n_columns]                     */
    calm_table_cell *cells;         /* [n_cells], row by row           */
    size_t n_columns, n_cells;
    size_t column_capacity, cell_capacity;
    bool failed;                    /* an allocation failed            */
    bool headed;                    /* headings of a stream were written */
    calm_arena_mark rows;           /* position in the arena before the first cell */
} calm_table;

/* Frees everything; the table is then empty and can be reused. */
void calm_table_clear(calm_table *table);

/* Adds a column; add all columns before the first cell.  `heading` is copied and is the key of JSON rows. */
void calm_table_column(calm_table *table, const char *heading, calm_align align);

/* Adds columns, "unit|#bits per weight|reason": headings separated by bars; '#' aligns a column to the right. */
void calm_table_columns(calm_table *table, const char *headings);

/* Add a text cell; the text is copied.  NULL adds an empty cell. */
void calm_table_text(calm_table *table, const char *text);
void calm_table_format(calm_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Cells as a list: CALM_CELLS(table, CALM_TEXT(name), CALM_INT(n), CALM_FIXED(ppl, 4)).  Texts are copied; a NULL
 * text and NaN are empty cells (JSON null).  Numbers are shown with `n` decimal places, and have up to 15 digits in
 * JSON. */
typedef struct calm_cell {
    calm_cell_type type;
    const char *text;
    int64_t integer;
    double number;
    char form;     /* number format: 'f', 'e' or 'g' of printf; '+': 'f' with a sign        */
    int digits;
} calm_cell;

#define CALM_TEXT(value) {.type = CALM_CELL_TEXT, .text = (value)}
#define CALM_INT(value) {.type = CALM_CELL_INT, .integer = (int64_t)(value)}
#define CALM_BOOL(value) {.type = CALM_CELL_BOOL, .integer = (value)}    /* "yes", or empty */
#define CALM_EMPTY {.type = CALM_CELL_EMPTY}
#define CALM_FIXED(value, n) {.type = CALM_CELL_NUMBER, .number = (value), .form = 'f', .digits = (n)}
#define CALM_SIGNED(value, n) {.type = CALM_CELL_NUMBER, .number = (value), .form = '+', .digits = (n)}
#define CALM_SCIENTIFIC(value, n) {.type = CALM_CELL_NUMBER, .number = (value), .form = 'e', .digits = (n)}
#define CALM_NUMBER(value) {.type = CALM_CELL_NUMBER, .number = (value), .form = 'g', .digits = 6}
#define CALM_CELLS(table, ...)                                                                               \
    calm_table_cells((table), (const calm_cell[]){__VA_ARGS__},                                              \
                     sizeof(const calm_cell[]){__VA_ARGS__} / sizeof(calm_cell))

/* Adds n cells; CALM_CELLS counts them. */
void calm_table_cells(calm_table *table, const calm_cell *cells, size_t n);

/* Returns the number of complete rows. */
size_t calm_table_rows(const calm_table *table);

/* Removes the columns whose cells are all empty; a table without rows keeps all columns. */
void calm_table_drop_empty(calm_table *table);

/* Removes the columns whose headings are not in `names`, "entry|score": headings as in calm_table_columns, without
 * '#'. */
void calm_table_keep(calm_table *table, const char *names);

/* Removes the columns whose headings are in `names`; the last remaining column stays. */
void calm_table_drop(calm_table *table, const char *names);

/* If ctx->columns is limited and the rows need several lines per cell, removes the columns of the first of
 * `choices` [n] ("a|b" each) without which they need one; if there is none, those of the last choice if the rows do
 * not fit with several lines either. */
calm_status calm_table_narrow(calm_ctx *ctx, calm_table *table, size_t indent, const char *const *choices, size_t n);

/* If ctx->columns is limited and the table has more than three rows, removes the last columns that do not fit;
 * keeps all columns if fewer than three would remain.  Appends the headings of removed columns to `left`, "a, b". */
calm_status calm_table_shorten(calm_ctx *ctx, calm_table *table, size_t indent, calm_text *left);

/* Appends headings, a rule and the rows, each line indented by `indent` spaces, without trailing blanks.  Control
 * characters are shown as \n, \t, \u{...}.  If ctx->columns is limited, cells are wrapped between words, and a
 * table that is still too wide becomes a list of cells per row, with an empty line between rows. */
calm_status calm_table_write(calm_ctx *ctx, const calm_table *table, size_t indent, calm_text *out);

/* Appends headings and rows as CSV (RFC 4180: lines end with CR LF; fields with a comma, a quote or a line end are
 * quoted); numbers have all digits, empty cells no characters, booleans are true and false. */
calm_status calm_table_write_csv(calm_ctx *ctx, const calm_table *table, calm_text *out);

/* Appends the rows so far as CSV and removes them from the table; the first call also appends the headings.  For
 * more rows than fit in memory. */
calm_status calm_table_take_csv(calm_ctx *ctx, calm_table *table, calm_text *out);

/* Appends headings and rows as a Markdown table, cells in their printable form. */
calm_status calm_table_write_markdown(calm_ctx *ctx, const calm_table *table, calm_text *out);

/* Appends each row as a list with one "heading  value" line per nonempty cell; values are wrapped at ctx->columns. */
calm_status calm_table_write_fields(calm_ctx *ctx, const calm_table *table, size_t indent, calm_text *out);

/* Appends the lines of a text; breaks lines longer than ctx->columns between words, and indents continuation lines,
 * or aligns them behind a label that two blanks follow. */
void calm_table_fold(const calm_ctx *ctx, const char *text, calm_text *out);

/* Appends the printable form of a text: well-formed UTF-8, control characters as \n, \t, \u{...}; *columns is its
 * width on a terminal (columns may be NULL). */
void calm_table_printable(const char *text, calm_text *out, size_t *columns);

/* Declares an empty table that is cleared at the end of its scope. */
#define CALM_SCOPED_TABLE(name) CALM_SCOPED(calm_table, calm_table_clear) name = {0}
