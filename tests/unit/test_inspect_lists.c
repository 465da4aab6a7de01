/* Plain lists of a store: all rows, or those of one unit. */
#include "ptq/io/json.h"
#include "store/sql.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

static size_t n_rows(const char *path, const char *what, const char *run, const char *unit)
{
    const char *csv = inspect_shown(path, what, run, unit, CALM_INSPECT_CSV);
    size_t n = 0;
    for (const char *at = csv; (at = strstr(at, "\r\n")); at++)
        n++;
    return n - 1;    /* the headings */
}

TEST(one_unit_of_a_list)
{
    const char *path = inspect_sample();
    ck_assert_uint_eq(n_rows(path, "candidates", "1", NULL), 9);
    ck_assert_uint_eq(n_rows(path, "candidates", "1", "0.down"), 3);
    ck_assert_uint_eq(n_rows(path, "candidates", "1", "model.layers.1.down"), 1);
    ck_assert_uint_eq(n_rows(path, "scores", "1", NULL), 24);
    ck_assert_uint_eq(n_rows(path, "scores", "1", "1.qkv"), 6);
    ck_assert_uint_eq(n_rows(path, "choices", "1", "1.qkv"), 1);
    ck_assert_uint_eq(n_rows(path, "blocks", "1", "1.qkv"), 1);
    ck_assert_uint_eq(n_rows(path, "blocks", "1", NULL), 4);
    ck_assert_uint_eq(n_rows(path, "candidates", "4", "0.qkv"), 2);    /* a job of the sublayer */
    const char *csv = inspect_shown(path, "candidates", "1", "0.qkv", CALM_INSPECT_CSV);
    ck_has(csv, "0,qkv,gptq-hls,w4a16_g128,false,,0.0001,0.002,-6.5,4.125,");
    ck_assert(strstr(csv, ",gptq-hls,") < strstr(csv, ",gptq,") && strstr(csv, ",gptq,") < strstr(csv, ",rtn,"));
}
END_OF_TEST

/* Another run of the model has other jobs of the same linears, as with --split-v, which are not listed; a job of
 * this run without a choice is. */
TEST(jobs_of_other_runs)
{
    const char *path = inspect_sample();
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_WRITE, &sql));
    ck_ok(calm_sql_run(ctx, sql, "INSERT INTO job (block_id, role, name, sublayer, position, input_hook, out_features,"
                       " in_features, linears) SELECT block_id, 'v', name || 'v', sublayer, 9, input_hook, 1, 1,"
                       " linears FROM job WHERE role = 'qkv'", CALM_NONE));
    calm_sql_close(sql);
    ck_assert_uint_eq(n_rows(path, "blocks", "1", NULL), 4);
    ck_assert_uint_eq(n_rows(path, "blocks", "2", NULL), 4);
    ck_assert_uint_eq(n_rows(path, "blocks", "4", NULL), 6);    /* without choices its jobs are unknown */
}
END_OF_TEST

TEST(runs_and_summary)
{
    const char *path = inspect_sample();
    ck_assert_uint_eq(n_rows(path, "runs", NULL, NULL), 4);
    ck_assert_uint_eq(n_rows(path, "runs", "2", NULL), 1);
    ck_has(inspect_shown(path, "runs", "2", NULL, CALM_INSPECT_CSV),
           "2,qwen,finished,gptq,4.125,1000,390,12.25,12.75,0.025,,6,3,");
    const char *csv = inspect_shown(path, "summary", NULL, NULL, CALM_INSPECT_CSV);
    ck_has(csv, "store\r\nversion,models,runs,candidates,failed,scores,activations,blob_bytes\r\n");
    ck_has(csv, ",1,4,19,1,54,2,4096\r\n\r\nmodels\r\n");
    ck_has(csv, "\r\n\r\ncalibrations\r\n");
    ck_has(csv, "\r\n\r\nruns\r\n");
    ck_assert_uint_eq(n_rows(path, "evaluations", "1", NULL), 2);
    ck_assert_uint_eq(n_rows(path, "ablation", NULL, NULL), 0);
    ck_assert_str_eq(inspect_shown(path, "ablation", NULL, NULL, CALM_INSPECT_TEXT), "No run of calm ablate.\n");
    ck_assert_str_eq(inspect_shown(path, "scores", "2", "1.down", CALM_INSPECT_TEXT),
                     "Run 2: qwen, finished\n\nnone\n");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_lists", (const TTest *[]){one_unit_of_a_list, jobs_of_other_runs, runs_and_summary,
                                                        NULL});
}
