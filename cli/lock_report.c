/* Differences from a lock as a table and as JSON. */
#include "cli/lock_report.h"

#include "cli/print.h"
#include "ptq/base/sha256.h"

#define SHOWN_DIGITS 12

/* Adds the first digits of a digest, or another value in full. */
static void add_short(calm_table *table, const char *text)
{
    if (text && calm_is_hex(text, CALM_SHA256_HEX - 1))
        calm_table_format(table, "%.*s...", SHOWN_DIGITS, text);
    else
        calm_table_text(table, text ? text : "(none)");
}

/* Adds a row per difference; `whole`: values in full, for programs. */
static void fill(const calm_differences *differences, bool whole, calm_table *table)
{
    calm_table_columns(table, "kind|name|expected|found");
    for (size_t i = 0; i < differences->n; i++) {
        const calm_difference *item = &differences->items[i];
        CALM_CELLS(table, CALM_TEXT(item->what), CALM_TEXT(item->name));
        if (whole) {
            CALM_CELLS(table, CALM_TEXT(item->expected), CALM_TEXT(item->found));
        } else {
            add_short(table, item->expected);
            add_short(table, item->found);
        }
    }
}

calm_status calm_lock_print(calm_ctx *ctx, const calm_differences *differences, FILE *stream)
{
    CALM_SCOPED_TABLE(table);
    fill(differences, false, &table);
    return calm_print_table(ctx, &table, stream);
}

calm_json *calm_lock_report_json(calm_ctx *ctx, const calm_differences *differences)
{
    CALM_SCOPED_TABLE(table);
    fill(differences, true, &table);
    return calm_rows_json(ctx, &table);
}
