/* The queries of `calm inspect` find a run by indexes, however large the store.  The test runs the command, and
 * explains each query that the store sends to SQLite (calm_sql_query, wrapped by the linker). */
#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"
#include "store/sql.h"
#include "store/store.h"
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"
#include "tests/tools/synth_store.h"

calm_status __real_calm_sql_query(calm_ctx *c, calm_sql *db, const char *sql, const calm_value *params, size_t n_params,
                                  calm_store_row_fn *fn, void *user);
calm_status __wrap_calm_sql_query(calm_ctx *c, calm_sql *db, const char *sql, const calm_value *params, size_t n_params,
                                  calm_store_row_fn *fn, void *user);

static const char *found;    /* scans of large tables, one per line */
static int n_queries;

/* Tells whether an alias in the query is that of a large table: score, candidate or run_candidate. */
static bool is_large(const char *sql, const char *name)
{
    static const char *const tables[] = {"score", "candidate", "run_candidate"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const char *const forms[] = {test_format(" %s %s ", tables[i], name),
                                     test_format(" %s AS %s ", tables[i], name)};
        if (strcmp(tables[i], name) == 0 || strstr(sql, forms[0]) || strstr(sql, forms[1]))
            return true;
    }
    return false;
}

static calm_status judge(calm_ctx *c, void *user, size_t n, const char *const *names, const calm_value *values)
{
    const char *sql = user;
    char table[80] = "";
    (void)c, (void)names;
    if (!values)
        return CALM_OK;
    ck_assert_uint_eq(n, 4);
    if (sscanf(values[3].text, "SCAN %79[^ ]", table) == 1 && is_large(sql, table))
        found = test_format("%s%s: %s\n", found, sql, values[3].text);
    return CALM_OK;
}

calm_status __wrap_calm_sql_query(calm_ctx *c, calm_sql *db, const char *sql, const calm_value *params, size_t n_params,
                                  calm_store_row_fn *fn, void *user)
{
    n_queries++;
    ck_ok(__real_calm_sql_query(c, db, test_format("EXPLAIN QUERY PLAN %s", sql), params, n_params, judge,
                                (void *)(uintptr_t)sql));
    return __real_calm_sql_query(c, db, sql, params, n_params, fn, user);
}

static calm_status ignore(calm_ctx *c, void *user, size_t n, const char *const *names, const calm_value *values)
{
    (void)c, (void)user, (void)n, (void)names, (void)values;
    return CALM_OK;
}

extern const calm_command calm_cmd_inspect, calm_cmd_report;

/* Runs a command without its output. */
static void run_command(const calm_command *it, int argc, char **argv)
{
    char *opts;
    ck_ok(CALM_NEW(ctx, ctx->out, opts, it->opts_size));
    found = "", n_queries = 0;
    ck_ok(calm_args_parse(ctx, it, argc, argv, opts));
    const int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
    const calm_status status = it->run(ctx, opts);
    fflush(stdout);
    ck_assert_int_ge(dup2(kept, STDOUT_FILENO), 0);
    close(kept);
    ck_ok(status);
    ck_assert_int_gt(n_queries, 0);
}

/* Runs calm inspect STORE WORDS... */
static void inspect(const char *path, const char *what, const char *run, const char *more)
{
    char *argv[] = {"inspect",   (char *)path, (char *)what,
                    (char *)run, (char *)more, NULL}; /* more: --unit=... or a run */
    run_command(&calm_cmd_inspect, more ? 5 : run ? 4 : 3, argv);
}

TEST(no_scan_of_a_large_table)
{
    static const char *const of_run[] = {"choices", "candidates", "blocks", "scores", "activations", "evaluations",
                                         "show", "layers"};
    const char *path = sample_path(), *unit;
    calm_store *store;
    ck_ok(synth_store_make(ctx, path, &(synth_store){.runs = 3, .jobs = 8, .candidates = 4, .scores = 4, .models = 1}));
    store = sample_open(path, CALM_STORE_READ);
    unit = sample_text(store, "SELECT unit FROM choice WHERE run_id = 2 LIMIT 1");
    calm_store_close(store);
    inspect(path, "runs", NULL, NULL);
    ck_assert_msg(!*found, "inspect runs: %s", found);
    inspect(path, "rate", NULL, NULL);
    ck_assert_msg(!*found, "inspect rate: %s", found);
    inspect(path, "why", "2", test_format("--unit=%s", unit));
    ck_assert_msg(!*found, "inspect why: %s", found);
    inspect(path, "diff", "1", "2");
    ck_assert_msg(!*found, "inspect diff: %s", found);
    for (size_t i = 0; i < sizeof of_run / sizeof *of_run; i++) {
        inspect(path, of_run[i], "2", NULL);
        ck_assert_msg(!*found, "inspect %s: %s", of_run[i], found);
    }
    char *report[] = {"report", "1", "2", "--json", (char *)test_format("--store=%s", path), NULL};
    run_command(&calm_cmd_report, 5, report);
    ck_assert_msg(!*found, "report: %s", found);
    /* The check finds a scan if there is one. */
    store = sample_open(path, CALM_STORE_READ);
    ck_ok(calm_store_query(ctx, store, "SELECT k.id FROM candidate k WHERE k.scheme = 'w8a16'", NULL, 0, ignore,
                           NULL));
    ck_assert_msg(strstr(found, "SCAN k"), "%s", found);
    calm_store_close(store);
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_plans", (const TTest *[]){no_scan_of_a_large_table, NULL});
}
