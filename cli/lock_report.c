/* Differences as a table and as JSON. */
#include "cli/lock_report.h"

#include <string.h>

#include "cli/print.h"

#define SHOWN_DIGITS 12

static void add_digest(calm_table *table, const char *text)
{
    const bool digest = text && strlen(text) == CALM_SHA256_HEX - 1 &&
                        strspn(text, "0123456789abcdef") == CALM_SHA256_HEX - 1;
    if (digest)
        calm_table_format(table, "%.*s...", SHOWN_DIGITS, text);
    else
        calm_table_text(table, text ? text : "(none)");
}

calm_status calm_lock_print(calm_ctx *ctx, const calm_differences *differences, FILE *stream)
{
    calm_table table;
    calm_table_init(&table);
    calm_table_column(&table, "what", CALM_ALIGN_LEFT);
    calm_table_column(&table, "name", CALM_ALIGN_LEFT);
    calm_table_column(&table, "expected", CALM_ALIGN_LEFT);
    calm_table_column(&table, "found", CALM_ALIGN_LEFT);
    for (size_t i = 0; i < differences->n; i++) {
        calm_table_text(&table, differences->items[i].what);
        calm_table_text(&table, differences->items[i].name);
        add_digest(&table, differences->items[i].expected);
        add_digest(&table, differences->items[i].found);
    }
    const calm_status status = calm_print_table(ctx, &table, stream);
    calm_table_clear(&table);
    return status;
}

calm_json *calm_lock_report_json(const calm_differences *differences)
{
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < differences->n; i++) {
        const calm_difference *item = &differences->items[i];
        calm_json *row = calm_json_new_object();
        calm_json_set_string(row, "what", item->what);
        calm_json_set_string(row, "name", item->name);
        calm_json_set_string(row, "expected", item->expected);
        calm_json_set_string(row, "found", item->found);
        calm_json_add(rows, row);
    }
    return rows;
}
