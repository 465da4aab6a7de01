/* Tables and JSON reach their streams. */
#include "cli/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/text/unicode.h"

const char *calm_program(void)
{
    const char *command = getenv("CALM_COMMAND");
    return command && command[0] ? command : "calm";
}

calm_status calm_print_text(calm_ctx *ctx, const calm_text *text, FILE *stream)
{
    CALM_TRY(calm_text_check(ctx, text));
    if (text->length && fwrite(text->data, 1, text->length, stream) != text->length)
        return calm_fail_errno(ctx, errno, "standard output: cannot write");
    return CALM_OK;
}

calm_status calm_print_table(calm_ctx *ctx, const calm_table *table, FILE *stream)
{
    calm_text text;
    calm_text_init(&text);
    calm_status status = calm_table_write(ctx, table, 0, &text);
    if (status == CALM_OK)
        status = calm_print_text(ctx, &text, stream);
    calm_text_clear(&text);
    return status;
}

calm_status calm_print_csv(calm_ctx *ctx, calm_table *table, FILE *stream)
{
    calm_text text;
    calm_text_init(&text);
    calm_status status = calm_table_take_csv(ctx, table, &text);
    if (status == CALM_OK)
        status = calm_print_text(ctx, &text, stream);
    calm_text_clear(&text);
    return status;
}

calm_status calm_print_json(calm_ctx *ctx, const calm_json *root)
{
    calm_text text;
    calm_text_init(&text);
    calm_status status = calm_json_write(ctx, root, 2, &text);
    calm_text_append(&text, "\n", 1);
    if (status == CALM_OK)
        status = calm_print_text(ctx, &text, stdout);
    calm_text_clear(&text);
    return status;
}

/* ---- rows as JSON ---- */

static void set_cell(calm_json *row, const char *key, const calm_table_cell *cell)
{
    calm_text sound;
    switch (cell->type) {
    case CALM_CELL_EMPTY:
        calm_json_set_string(row, key, NULL);
        break;
    case CALM_CELL_TEXT:    /* JSON is UTF-8, stored texts may be anything */
        calm_text_init(&sound);
        calm_utf8_repair(cell->text, strlen(cell->text), &sound);
        calm_json_set_string(row, key, sound.data ? sound.data : "");
        calm_text_clear(&sound);
        break;
    case CALM_CELL_INT:
        calm_json_set_int(row, key, cell->integer);
        break;
    case CALM_CELL_BOOL:
        calm_json_set_bool(row, key, cell->integer != 0);
        break;
    case CALM_CELL_NUMBER:
        calm_json_set_number(row, key, cell->number);
        break;
    }
}

calm_status calm_rows_json(calm_ctx *ctx, const calm_table *table, calm_json **out)
{
    *out = NULL;
    if (table->failed)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory for a table");
    calm_json *list = calm_json_new_array();
    for (size_t row = 0; row < calm_table_rows(table); row++) {
        calm_json *object = calm_json_new_object();
        for (size_t c = 0; c < table->n_columns; c++)
            set_cell(object, table->headings[c].name, &table->cells[row * table->n_columns + c]);
        calm_json_add(list, object);
    }
    *out = list;
    return CALM_OK;
}
