/* Tables: cells, CSV and Markdown. */
#include "ptq/text/table_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/text.h"
#include "ptq/text/unicode.h"

#define ROOM 400    /* bytes of a formatted number; the largest double has 309 digits before the point */

void calm_table_clear(calm_table *table)
{
    calm_arena_clear(&table->arena);
    free(table->headings);
    free(table->cells);
    *table = (calm_table){0};
}

/* Makes room for one more entry of `size` bytes; returns false if memory is exhausted. */
static bool grow(calm_table *table, void **array, size_t used, size_t *capacity, size_t size)
{
    size_t wanted = *capacity ? *capacity : 16, bytes;
    if (table->failed || used < *capacity)
        return !table->failed;
    if (*capacity && !calm_size_mul(&wanted, *capacity, 2))
        wanted = SIZE_MAX;
    void *grown = calm_size_mul(&bytes, wanted, size) ? realloc(*array, bytes) : NULL;
    if (!grown) {
        table->failed = true;
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

static const char *keep(calm_table *table, const char *text, size_t n)
{
    char *copy = calm_arena_alloc(&table->arena, n + 1, 1);
    if (!copy) {
        table->failed = true;
        return "";
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

/* ---- cells ---- */

void calm_table_printable(const char *text, calm_text *out, size_t *columns)
{
    CALM_SCOPED_TEXT(sound);
    size_t ignored;
    columns = columns ? columns : &ignored;
    calm_utf8_repair(text, strlen(text), &sound);
    *columns = 0;
    for (size_t at = 0; !sound.failed && at < sound.length;) {
        uint32_t character;
        const size_t length = calm_utf8_decode(sound.data + at, &character), before = out->length;
        if (character == '\n')
            calm_text_printf(out, "\\n");
        else if (character == '\t')
            calm_text_printf(out, "\\t");
        else if (character == '\r')
            calm_text_printf(out, "\\r");
        else if (calm_unicode_is_unprintable(character))
            calm_text_printf(out, "\\u{%x}", (unsigned)character);
        else
            calm_text_append(out, sound.data + at, length);
        *columns += calm_unicode_is_unprintable(character) ? out->length - before
                                                           : (size_t)calm_unicode_columns(character);
        at += length;
    }
    out->failed = out->failed || sound.failed;
}

/* Copies `text` with unprintable characters escaped; sets *columns to its width on a terminal. */
static const char *keep_printable(calm_table *table, const char *text, size_t *columns)
{
    CALM_SCOPED_TEXT(printable);
    calm_table_printable(text, &printable, columns);
    table->failed = table->failed || printable.failed;
    return keep(table, printable.data ? printable.data : "", printable.length);
}

void calm_table_column(calm_table *table, const char *name, calm_align align)
{
    void *headings = table->headings;
    calm_table_heading heading = {.align = align};
    if (!grow(table, &headings, table->n_columns, &table->column_capacity, sizeof heading))
        return;
    table->headings = headings;
    heading.name = keep(table, name, strlen(name));
    /* A heading may be untrusted text, as the name of a stored view. */
    heading.shown = keep_printable(table, name, &heading.columns);
    table->headings[table->n_columns++] = heading;
    table->rows = calm_arena_save(&table->arena);
}

void calm_table_columns(calm_table *table, const char *headings)
{
    char name[64];
    for (const char *at = headings; *at; at += *at == '|') {
        const size_t n = strcspn(at, "|");
        const bool number = *at == '#';
        snprintf(name, sizeof name, "%.*s", (int)n - number, at + number);
        calm_table_column(table, name, number ? CALM_ALIGN_RIGHT : CALM_ALIGN_LEFT);
        at += n;
    }
}

/* Returns the text that a cell shows, possibly formatted into `room`, or NULL if the cell is empty. */
static const char *show(const calm_cell *cell, char room[ROOM])
{
    if (cell->type == CALM_CELL_TEXT)
        return cell->text;
    if (cell->type == CALM_CELL_BOOL)
        return cell->integer ? "yes" : "";
    if (cell->type == CALM_CELL_EMPTY || (cell->type == CALM_CELL_NUMBER && isnan(cell->number)))
        return NULL;
    if (cell->type == CALM_CELL_INT)
        snprintf(room, ROOM, "%lld", (long long)cell->integer);
    else
        snprintf(room, ROOM, cell->form == 'f'   ? "%.*f"
                             : cell->form == '+' ? "%+.*f"
                             : cell->form == 'e' ? "%.*e"
                                                 : "%.*g", cell->digits, cell->number);
    return room;
}

void calm_table_cells(calm_table *table, const calm_cell *cells, size_t n)
{
    for (const calm_cell *from = cells; from < cells + n; from++) {
        char room[ROOM];
        const char *shown = show(from, room);
        calm_table_cell cell = {shown ? from->type : CALM_CELL_EMPTY, .integer = from->integer, .number = from->number};
        void *grown = table->cells;
        if (!grow(table, &grown, table->n_cells, &table->cell_capacity, sizeof cell))
            return;
        table->cells = grown;
        if (cell.type == CALM_CELL_TEXT)
            cell.text = keep(table, shown, strlen(shown));
        cell.shown = keep_printable(table, shown ? shown : "", &cell.columns);
        table->cells[table->n_cells++] = cell;
    }
}

void calm_table_text(calm_table *table, const char *text)
{
    CALM_CELLS(table, CALM_TEXT(text));
}

void calm_table_format(calm_table *table, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0) {
        table->failed = true;
        return;
    }
    calm_table_text(table, text);
    free(text);
}

size_t calm_table_rows(const calm_table *table)
{
    return table->n_columns ? table->n_cells / table->n_columns : 0;
}

static bool column_is_empty(const calm_table *table, size_t column)
{
    for (size_t row = 0; row < calm_table_rows(table); row++)
        if (table->cells[row * table->n_columns + column].columns)
            return false;
    return true;
}

static void drop_column(calm_table *table, size_t column)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->n_cells; i++)
        if (i % table->n_columns != column)
            table->cells[kept++] = table->cells[i];
    table->n_cells = kept;
    table->n_columns--;
    memmove(table->headings + column, table->headings + column + 1,
            (table->n_columns - column) * sizeof *table->headings);
}

void calm_table_drop_empty(calm_table *table)
{
    for (size_t c = table->n_columns; calm_table_rows(table) && c-- > 0;)
        if (table->n_columns > 1 && column_is_empty(table, c))
            drop_column(table, c);
}

void calm_table_keep(calm_table *table, const char *names)
{
    for (size_t c = table->n_columns; c-- > 0;)
        if (!calm_text_listed(names, '|', table->headings[c].name))
            drop_column(table, c);
}

void calm_table_drop(calm_table *table, const char *names)
{
    for (size_t c = table->n_columns; c-- > 0;)
        if (table->n_columns > 1 && calm_text_listed(names, '|', table->headings[c].name))
            drop_column(table, c);
}

calm_status calm_table_check(calm_ctx *ctx, const calm_table *table, const calm_text *out)
{
    if (table->failed)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory for a table");
    return calm_text_check(ctx, out);
}

/* ---- CSV and Markdown ---- */

static void put_csv_text(calm_text *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        calm_text_append(out, text, strlen(text));
        return;
    }
    calm_text_append(out, "\"", 1);
    for (const char *at = text; *at; at++)
        calm_text_append(out, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
    calm_text_append(out, "\"", 1);
}

static void put_csv_cell(calm_text *out, const calm_table_cell *cell)
{
    if (cell->type == CALM_CELL_TEXT)
        put_csv_text(out, cell->text);
    else if (cell->type == CALM_CELL_BOOL)
        calm_text_printf(out, cell->integer ? "true" : "false");
    else if (cell->type == CALM_CELL_NUMBER)
        calm_text_number(out, cell->number, 15);
    else
        calm_text_append(out, cell->shown, strlen(cell->shown));
}

static void put_csv_headings(calm_text *out, const calm_table *table)
{
    for (size_t c = 0; c < table->n_columns; c++) {
        put_csv_text(out, table->headings[c].name);
        calm_text_printf(out, c + 1 < table->n_columns ? "," : "\r\n");
    }
}

static void put_csv_rows(calm_text *out, const calm_table *table)
{
    for (size_t i = 0; i < calm_table_rows(table) * table->n_columns; i++) {
        put_csv_cell(out, &table->cells[i]);
        calm_text_printf(out, (i + 1) % table->n_columns ? "," : "\r\n");
    }
}

calm_status calm_table_write_csv(calm_ctx *ctx, const calm_table *table, calm_text *out)
{
    put_csv_headings(out, table);
    put_csv_rows(out, table);
    return calm_table_check(ctx, table, out);
}

/* Appends a cell of a Markdown table, with the characters that would end or change it escaped. */
static void put_markdown(calm_text *out, const char *shown)
{
    for (const char *at = shown; *at; at++) {
        if (*at == '|' || *at == '\\' || *at == '<')
            calm_text_append(out, "\\", 1);
        calm_text_append(out, at, 1);
    }
    calm_text_append(out, " |", 2);
}

calm_status calm_table_write_markdown(calm_ctx *ctx, const calm_table *table, calm_text *out)
{
    calm_text_printf(out, "|");
    for (size_t c = 0; c < table->n_columns; c++) {
        calm_text_printf(out, " ");
        put_markdown(out, table->headings[c].name);
    }
    calm_text_printf(out, "\n|");
    for (size_t c = 0; c < table->n_columns; c++)
        calm_text_printf(out, table->headings[c].align == CALM_ALIGN_RIGHT ? "---:|" : "---|");
    for (size_t i = 0; i < calm_table_rows(table) * table->n_columns; i++) {
        calm_text_printf(out, i % table->n_columns ? " " : "\n| ");
        put_markdown(out, table->cells[i].shown);
    }
    calm_text_printf(out, "\n");
    return calm_table_check(ctx, table, out);
}

calm_status calm_table_take_csv(calm_ctx *ctx, calm_table *table, calm_text *out)
{
    if (!table->headed)
        put_csv_headings(out, table);
    put_csv_rows(out, table);
    calm_arena_rewind(&table->arena, table->rows);
    table->n_cells = 0;
    table->headed = true;
    return calm_table_check(ctx, table, out);
}
