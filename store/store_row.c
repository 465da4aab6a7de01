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

static void add(calm_text *out, const char *before, const char *word, const char *after)
{
    calm_text_append(out, before, strlen(before));
    calm_text_append(out, word, strlen(word));
    calm_text_append(out, after, strlen(after));
}

/* INSERT INTO t (k, a) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET a = excluded.a RETURNING id.  Appends: libquadmath,
 * which OpenBLAS brings, makes every printf slow, and a small run puts thousands of rows. */
static void print_insert(const char *table, size_t n_keys, const calm_store_cell *cells, size_t n, bool numbered,
                         calm_text *out)
{
    add(out, "INSERT INTO ", table, " (");
    for (size_t i = 0; i < n; i++)
        add(out, i ? ", " : "", cells[i].column, "");
    add(out, ") VALUES (", "", "");
    for (size_t i = 0; i < n; i++)
        add(out, i ? ", ?" : "?", "", "");
    add(out, ")", n_keys ? " ON CONFLICT (" : "", "");
    for (size_t i = 0; i < n_keys; i++)
        add(out, i ? ", " : "", cells[i].column, "");
    if (n_keys)
        add(out, ") DO ", n_keys == n ? "NOTHING" : "UPDATE SET ", "");
    for (size_t i = n_keys; i < n && n_keys; i++) {
        add(out, i > n_keys ? ", " : "", cells[i].column, " = excluded.");
        add(out, cells[i].column, "", "");
    }
    add(out, numbered ? " RETURNING id" : "", "", "");
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
