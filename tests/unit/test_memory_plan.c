/* --memory's sizes. */
#include "cli/memory_plan.h"

#include "ptq/base/memory.h"
#include "tests/support/harness.h"

TEST(sizes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"2000000000", 2000000000},
                 {"2000000000B", 2000000000},
                 {"2000000b", 2000000},
                 {"1500K", 1500000},
                 {"1500KB", 1500000},
                 {"1500kb", 1500000},
                 {"800M", 800000000},
                 {"800MB", 800000000},
                 {"2G", 2000000000},
                 {"2GB", 2000000000},
                 {"2 GB", 2000000000},
                 {"2gb", 2000000000},
                 {"2T", 2000000000000},
                 {"2TB", 2000000000000},
                 {"2048Ki", (size_t)2048 << 10},
                 {"2048KiB", (size_t)2048 << 10},
                 {"7Mi", (size_t)7 << 20},
                 {"7MiB", (size_t)7 << 20},
                 {"7mib", (size_t)7 << 20},
                 {"3Gi", (size_t)3 << 30},
                 {"1.5GiB", (size_t)3 << 29},
                 {"0.5GB", 500000000},
                 {".5GB", 500000000},
                 {"1MB", 1000000},           /* the smallest */
                 {"1e9", 1000000000},
                 {"1000TB", 1000000000000000}};    /* the largest */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = 0;
        ck_ok(calm_memory_plan_parse(ctx, cases[i].text, &bytes));
        ck_assert_msg(bytes == cases[i].bytes, "%s: %zu", cases[i].text, bytes);
    }
}
END_OF_TEST

/* Each is an error that repeats what was given. */
TEST(no_sizes)
{
    static const char *const texts[] = {
        "", " ", "GB", "five", "5x", "5GBs", "5 G B", "5,5GB", "5GB 5", "5GB ", "--5GB", "-5GB", "-1", "-0", "0", "0GB",
        "999999", "999KB", "0.9MB", "1", "5", "1001TB", "1e16", "1e400", "1e400GB", "-1e400", "1e308GB", "1e-400", "nan",
        "nanGB", "-nan", "inf", "infinity", "INFINITYGB", "1e", "1eGB", "0x", "5Ti", "5PB", "5Mib.", "\xff\xff", "5\tGB"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t bytes = 77;
        const calm_status status = calm_memory_plan_parse(ctx, texts[i], &bytes);
        ck_assert_msg(status == CALM_EARG, "\"%s\": %s, %zu bytes", texts[i], calm_status_name(status), bytes);
        ck_assert_uint_eq(bytes, 77);
        ck_assert_msg(strstr(ctx->message, test_format("--memory %s: expected", texts[i])) != NULL, "%s", ctx->message);
        calm_ctx_forgive(ctx);
    }
}
END_OF_TEST

TEST(limit_of_a_recipe)
{
    calm_recipe recipe = {.memory = "3GB"};
    size_t limit;
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    ck_assert_uint_eq(limit, 3000000000);
    recipe.memory = "3x";
    ck_fails(calm_memory_plan_limit(ctx, &recipe, &limit), CALM_EARG, "--memory 3x");
    /* 70 % of what is free; other processes take and give while this one looks, so within what it sees before and
     * after, and a tenth for what happens between. */
    recipe.memory = NULL;
    const double before = (double)calm_memory_available();
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    const double after = (double)calm_memory_available();
    ck_assert_double_ge((double)limit, 0.63 * fmin(before, after));
    ck_assert_double_le((double)limit, 0.77 * fmax(before, after));
}
END_OF_TEST

int main(void)
{
    return run_tests("memory_plan", (const TTest *[]){sizes, no_sizes, limit_of_a_recipe, NULL});
}
