/* store_sql FILE QUERIES: prints rows of a store as the sqlite3 shell does, which need not be installed.  Queries are
 * separated by ';', which none of their texts contains.
 *
 * store_sql --change FILE STATEMENTS: the same with statements that change the store. */
#include <stdio.h>
#include <string.h>

#include "store/sql.h"
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

static calm_status query(calm_ctx *ctx, const char *path, char *queries)
{
    calm_store *store = NULL;
    calm_status status = calm_store_open(ctx, path, NULL, &store);
    for (char *one = strtok(queries, ";"); one && status == CALM_OK; one = strtok(NULL, ";"))
        status = calm_store_query(ctx, store, one, NULL, 0, print_row, NULL);
    calm_store_close(store);
    return status;
}

static calm_status change(calm_ctx *ctx, const char *path, char *statements)
{
    calm_sql *sql = NULL;
    calm_status status = calm_sql_open(ctx, path, CALM_SQL_WRITE, &sql);
    for (char *one = strtok(statements, ";"); one && status == CALM_OK; one = strtok(NULL, ";"))
        status = calm_sql_run(ctx, sql, one, CALM_NONE);
    calm_sql_close(sql);
    return status;
}

int main(int argc, char **argv)
{
    calm_arena out, scratch;
    calm_ctx ctx;
    const bool changes = argc == 4 && strcmp(argv[1], "--change") == 0;
    if (argc != 3 && !changes)
        return 2;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    const calm_status status = (changes ? change : query)(&ctx, argv[argc - 2], argv[argc - 1]);
    if (status != CALM_OK)
        fprintf(stderr, "store_sql: %s\n", ctx.message);
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return status == CALM_OK ? 0 : 1;
}
