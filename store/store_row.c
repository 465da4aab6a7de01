/* Rows written by their keys. */
#include <assert.h>
#include <string.h>

#include "ptq/base/text.h"
#include "store/store_impl.h"

calm_value calm_value_index(int64_t index)
{
    return (calm_value){.type = index >= 0 ? CALM_VALUE_INTEGER : CALM_VALUE_NULL, .integer = index};
}

#define MOST_CELLS 40    /* columns of the widest table, with room */

/* INSERT INTO t (k, a) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET a = excluded.a RETURNING id */
static void print_insert(const char *table, size_t n_keys, const calm_store_cell *cells, size_t n, bool numbered,
                         calm_text *out)
{
    calm_text_printf(out, "INSERT INTO %s (", table);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "%s%s", i ? ", " : "", cells[i].column);
    calm_text_printf(out, ") VALUES (");
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "%s?%zu", i ? ", " : "", i + 1);
    calm_text_printf(out, ")%s", n_keys ? " ON CONFLICT (" : "");
    for (size_t i = 0; i < n_keys; i++)
        calm_text_printf(out, "%s%s", i ? ", " : "", cells[i].column);
    if (n_keys)
        calm_text_printf(out, ") DO %s", n_keys == n ? "NOTHING" : "UPDATE SET ");
    for (size_t i = n_keys; i < n && n_keys; i++)
        calm_text_printf(out, "%s%s = excluded.%s", i > n_keys ? ", " : "", cells[i].column, cells[i].column);
    calm_text_printf(out, numbered ? " RETURNING id" : "");
}

/* May a store that relays take a row of this table?  Those that it tells of, and those that it needs for them: of
 * another rank 0 would know nothing. */
static bool relays(const char *table)
{
    static const char *const tables[] = {"model", "calibration", "block", "job", "run", "run_candidate", "environment",
                                         "candidate", "score", "expert", "activation", "activation_peak",
                                         "token_context"};
    bool found = false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        found |= strcmp(tables[i], table) == 0;
    return found;
}

calm_status calm_store_row_put(calm_ctx *ctx, calm_store *store, const char *table, size_t n_keys,
                               const calm_store_cell *cells, size_t n, int64_t *id)
{
    calm_value values[MOST_CELLS];
    int64_t number;
    CALM_SCOPED_TEXT(text);
    assert(n <= MOST_CELLS);
    if (store->relay && !relays(table))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "a rank other than 0 cannot put a row of \"%s\"", table);
    for (size_t i = 0; i < n; i++)
        values[i] = cells[i].value;
    /* The same columns give the same text, by which the connection finds its prepared statement. */
    print_insert(table, n_keys, cells, n, id != NULL, &text);
    CALM_TRY(calm_text_check(ctx, &text));
    CALM_TRY(calm_sql_number(ctx, store->sql, text.data, values, n, id ? id : &number));
    assert(!id || *id > 0);
    return CALM_OK;
}
