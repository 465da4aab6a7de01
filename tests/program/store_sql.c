/* store_sql FILE QUERIES: rows of a store as the sqlite3 shell prints them, where that shell is not installed.
 * Queries are separated by ';', which no text of theirs holds. */
#include <stdio.h>
#include <string.h>

#include "store/store.h"

static calm_status print_row(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    (void)ctx, (void)user, (void)names;
    for (size_t i = 0; values && i < n; i++) {
        if (i)
            putchar('|');
        if (values[i].type == CALM_VALUE_INTEGER)
            printf("%lld", (long long)values[i].integer);
        else if (values[i].type == CALM_VALUE_REAL)
            printf("%.15g", values[i].real);
        else if (values[i].type == CALM_VALUE_TEXT)
            fputs(values[i].text, stdout);
    }
    if (values)
        putchar('\n');
    return CALM_OK;
}

int main(int argc, char **argv)
{
    calm_arena out, scratch;
    calm_ctx ctx;
    calm_store *store = NULL;
    if (argc != 3)
        return 2;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    calm_status status = calm_store_open(&ctx, argv[1], NULL, &store);
    for (char *query = strtok(argv[2], ";"); query && status == CALM_OK; query = strtok(NULL, ";"))
        status = calm_store_query(&ctx, store, query, NULL, 0, print_row, NULL);
    if (status != CALM_OK)
        fprintf(stderr, "store_sql: %s\n", ctx.message);
    calm_store_close(store);
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return status == CALM_OK ? 0 : 1;
}
