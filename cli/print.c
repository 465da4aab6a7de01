/* Writes tables and JSON to streams. */
#include "cli/print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ptq/text/unicode.h"

void calm_print_word(calm_text *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
    const bool quoted = !word[0] || word[strspn(word, plain)];
    calm_text_printf(out, "%s", quoted ? "'" : "");
    for (const char *at = word; *at; at++)
        calm_text_append(out, *at == '\'' ? "'\\''" : at, *at == '\'' ? 4 : 1);
    calm_text_printf(out, "%s", quoted ? "'" : "");
}

size_t calm_terminal_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

size_t calm_print_columns(void)
{
    struct winsize size;
    const char *wanted = getenv("COLUMNS");
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        return size.ws_col;    /* 0: the terminal does not report its width */
    return wanted ? (size_t)strtoul(wanted, NULL, 10) : 0;
}

const char *calm_program(void)
{
    const char *command = getenv("CALM_COMMAND");
    return command && command[0] ? command : "calm";
}

static calm_status print_text(calm_ctx *ctx, calm_text *text, FILE *stream)
{
    if (ctx->status == CALM_OK && calm_text_check(ctx, text) == CALM_OK && text->length &&
        fwrite(text->data, 1, text->length, stream) != text->length)
        calm_fail_errno(ctx, errno, "standard output: cannot write");
    calm_text_clear(text);
    return ctx->status;
}

calm_status calm_print_text(calm_ctx *ctx, calm_text *text)
{
    return print_text(ctx, text, stdout);
}

calm_status calm_print_folded(calm_ctx *ctx, calm_text *text)
{
    CALM_SCOPED_TEXT(folded);
    if (ctx->status == CALM_OK && calm_text_check(ctx, text) == CALM_OK && text->length)
        calm_table_fold(ctx, text->data, &folded);
    calm_text_clear(text);
    return calm_print_text(ctx, &folded);
}

calm_status calm_print_line(calm_ctx *ctx, const char *format, ...)
{
    CALM_SCOPED_TEXT(text);
    char *line;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory");
    calm_text_printf(&text, "%s\n", line);
    free(line);
    return calm_print_folded(ctx, &text);
}

calm_status calm_print_table(calm_ctx *ctx, calm_table *table, FILE *stream)
{
    CALM_SCOPED_TEXT(text);
    calm_table_write(ctx, table, 0, &text);
    calm_table_clear(table);
    return print_text(ctx, &text, stream);
}

calm_status calm_print_csv(calm_ctx *ctx, calm_table *table, FILE *stream)
{
    CALM_SCOPED_TEXT(text);
    calm_table_take_csv(ctx, table, &text);
    return print_text(ctx, &text, stream);
}

calm_status calm_print_json(calm_ctx *ctx, calm_json *root)
{
    CALM_SCOPED_TEXT(text);
    if (ctx->status == CALM_OK)
        calm_json_write(ctx, root, 2, &text);
    calm_text_append(&text, "\n", 1);
    calm_json_free(root);
    return print_text(ctx, &text, stdout);
}

/* ---- rows as JSON ---- */

/* JSON must be UTF-8; stored texts may be any bytes. */
static calm_json *text_json(const char *text)
{
    CALM_SCOPED_TEXT(sound);
    calm_utf8_repair(text, strlen(text), &sound);
    return calm_json_of_string(sound.data ? sound.data : "");
}

static calm_json *cell_json(const calm_table_cell *cell)
{
    if (cell->type == CALM_CELL_TEXT)
        return text_json(cell->text);
    if (cell->type == CALM_CELL_INT)
        return calm_json_of_int(cell->integer);
    if (cell->type == CALM_CELL_BOOL)
        return calm_json_of_bool(cell->integer != 0);
    return cell->type == CALM_CELL_NUMBER ? calm_json_of_number(cell->number) : calm_json_new_null();
}

/* Returns an array of rows; `named`: a row is an object with the headings as keys, else an array. */
static calm_json *list_rows(calm_ctx *ctx, calm_table *table, bool named)
{
    calm_json *list = NULL;
    if (table->failed)
        calm_fail(ctx, CALM_ENOMEM, "out of memory for a table");
    else
        list = calm_json_new_array();
    for (size_t row = 0; list && row < calm_table_rows(table); row++) {
        calm_json *one = named ? calm_json_new_object() : calm_json_new_array();
        for (size_t c = 0; c < table->n_columns; c++) {
            calm_json *cell = cell_json(&table->cells[row * table->n_columns + c]);
            if (named)
                calm_json_set(one, table->headings[c].name, cell);
            else
                calm_json_add(one, cell);
        }
        calm_json_add(list, one);
    }
    return list;
}

calm_json *calm_rows_json(calm_ctx *ctx, calm_table *table)
{
    calm_json *list = list_rows(ctx, table, true);
    calm_table_clear(table);
    return list;
}

calm_json *calm_rows_json_columns(calm_ctx *ctx, calm_table *table)
{
    calm_json *columns = calm_json_new_array(), *rows = list_rows(ctx, table, false);
    for (size_t c = 0; c < table->n_columns; c++)
        calm_json_add(columns, text_json(table->headings[c].name));
    calm_table_clear(table);
    return CALM_OBJECT(CALM_KV("columns", columns), CALM_KV("rows", rows));
}
