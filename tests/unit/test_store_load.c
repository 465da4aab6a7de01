/* A large store is answered from its indexes: query plans of the views on a small store (tests/tools/synth_store.h),
 * which are the same for any size, since nothing here runs ANALYZE.  docs/store.md has times with 800,000
 * candidates. */
#include "store/sql.h"
#include "store/store.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"
#include "tests/tools/synth_store.h"

static const synth_store small = {.runs = 3, .jobs = 8, .candidates = 4, .scores = 4, .models = 1, .seed = 1};

static const char *small_store(void)
{
    const char *path = sample_path();
    ck_ok(synth_store_make(ctx, path, &small));
    return path;
}

/* Returns the plan's lines that read a whole table or index, joined by newlines. */
static const char *scans(calm_sql *sql, const char *query)
{
    calm_statement *row;
    const char *found = "", *line;
    ck_ok(calm_sql_first(ctx, sql, test_format("EXPLAIN QUERY PLAN %s", query), CALM_NONE, &row));
    while (calm_sql_next(ctx, sql, row)) {
        ck_ok(calm_sql_text(ctx, row, 3, &line));
        if (strncmp(line, "SCAN", 4) == 0)
            found = test_format("%s%s\n", found, line);
    }
    calm_sql_end(row);
    return found;
}

/* What each query may scan; "": nothing. */
TEST(one_run_is_found_by_index)
{
    static const struct {
        const char *query, *may;
    } rows[] = {
        {"SELECT * FROM v_runs WHERE run = 2", ""},
        {"SELECT * FROM v_choices WHERE run = 2", ""},
        {"SELECT * FROM v_choices WHERE run = 2 AND block = 1", ""},
        {"SELECT algorithm, count(*) FROM v_choices WHERE run = 2 GROUP BY 1 ORDER BY 2 DESC", ""},
        {"SELECT * FROM v_candidates WHERE run = 2", ""},
        {"SELECT * FROM v_candidates WHERE run = 2 AND block = 1 AND job = 'qkv'", ""},
        {"SELECT * FROM v_experts WHERE run = 2", ""},
        {"SELECT * FROM v_evaluations WHERE run = 2", ""},
        {"SELECT * FROM v_encodings WHERE run = 2", ""},
        {"SELECT * FROM v_ablation WHERE run = 2", ""},
        {"SELECT * FROM v_scores WHERE candidate = 7", ""},
        /* Scans of the runs only, and of the window function's result for one calibration. */
        {"SELECT * FROM v_runs", "SCAN r\n"},
        {"SELECT * FROM v_activations WHERE model = 1 AND calibration = 1", "SCAN (subquery-3)\nSCAN v_activations\n"},
    };
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, small_store(), CALM_SQL_READ, &sql));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(strcmp(scans(sql, rows[i].query), rows[i].may) == 0, "%s: %s", rows[i].query,
                      scans(sql, rows[i].query));
    /* The check finds a scan if there is one. */
    ck_assert_str_eq(scans(sql, "SELECT * FROM candidate WHERE scheme = 'w8a16'"), "SCAN candidate\n");
    calm_sql_close(sql);
}
END_OF_TEST

/* All rows of the run and no others. */
TEST(rows_of_one_run)
{
    calm_store *store = sample_open(small_store(), CALM_STORE_READ);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM candidate"), 3 * 8 * 4);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_choices WHERE run = 2"), 8);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_candidates WHERE run = 2"), 8 * 4);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_candidates WHERE run = 2 AND chosen = 'yes'"), 8);
    ck_assert_int_eq(sample_number(store, "SELECT candidates FROM v_runs WHERE run = 2"), 8 * 4);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_choices WHERE activation_max IS NULL"), 0);
    calm_store_close(store);
}
END_OF_TEST

/* The same sizes and seed give the same rows, another seed others. */
TEST(made_again)
{
    static const char sum[] = "SELECT group_concat(k.key || a.chain || coalesce(s.value, k.failure)) FROM candidate k"
                              " JOIN algorithm a ON a.id = k.algorithm_id LEFT JOIN score s ON s.candidate_id = k.id";
    synth_store other = small;
    const char *path = sample_path();
    calm_store *first = sample_open(small_store(), CALM_STORE_READ),
               *second = sample_open(small_store(), CALM_STORE_READ);
    ck_assert_str_eq(sample_text(first, sum), sample_text(second, sum));
    calm_store_close(second);
    other.seed = 2;
    ck_ok(synth_store_make(ctx, path, &other));
    ck_fails(synth_store_make(ctx, path, &other), CALM_EARG, "is there already");
    second = sample_open(path, CALM_STORE_READ);
    ck_assert_str_ne(sample_text(first, sum), sample_text(second, sum));
    calm_store_close(second);
    calm_store_close(first);
}
END_OF_TEST

int main(void)
{
    return run_tests("store_load", (const TTest *[]){one_run_is_found_by_index, rows_of_one_run, made_again, NULL});
}
