/* How much of a text the default evaluation uses, and how many rows are scored. */
#include "ptq/state/work_impl.h"
#include "tests/support/harness.h"

TEST(whole_where_it_costs_little)
{
    ck_assert_uint_eq(calm_run_work_share(0, 1e12, 5, 2560), 5);
    /* Long calibration makes a long evaluation relatively cheap. */
    ck_assert_uint_eq(calm_run_work_share(12e15, 2e15, 782, 782 * 512), 782);
}
END_OF_TEST

/* Small runs too, such as that of the bundled model. */
TEST(a_share_of_the_run)
{
    const size_t n = 1000;
    for (double scale = 1e-4; scale <= 1; scale *= 100) {
        const double rest = 6e15 * scale, whole = 1e16 * scale;
        const size_t taken = calm_run_work_share(rest, whole, n, n * 512);
        const double cost = whole * (double)taken / (double)n, window = whole / (double)n;
        ck_assert(cost <= .15 * (rest + cost));
        ck_assert(cost + window > .15 * (rest + cost + window));    /* one window more would be above it */
    }
}
END_OF_TEST

/* A short run: up to 64 windows of 512 tokens, within a third of its time. */
TEST(up_to_a_third)
{
    const double whole = 1e13;
    const size_t n = 782;
    ck_assert_uint_eq(calm_run_work_share(3e12, whole, n, n * 512), 64);
    ck_assert_uint_eq(calm_run_work_share(3e12, whole, n, n * 8), 64);      /* sentences: no more of them */
    ck_assert_uint_eq(calm_run_work_share(3e12, whole, 195, 195 * 2048), 16);    /* 32,768 tokens; 15 % is 10 windows */
    const size_t taken = calm_run_work_share(1e12, whole, n, n * 512);
    ck_assert(taken > 16 && taken < 64);
    ck_assert(whole * (double)taken / (double)n <= .5 * 1e12);
    ck_assert(whole * (double)(taken + 1) / (double)n > .5 * 1e12);
    ck_assert_uint_eq(calm_run_work_share(1e9, whole, n, n * 512), 16);
    ck_assert_uint_eq(calm_run_work_share(1e9, whole, 10, 10 * 512), 10);    /* the text has no more */
}
END_OF_TEST

/* A long run: 15 %, and at least 16 windows. */
TEST(a_long_run_keeps_to_its_share)
{
    const double whole = 1e16;
    const size_t n = 782, taken = calm_run_work_share(3e15, whole, n, n * 512);
    ck_assert(taken > 16 && taken < 64);
    ck_assert(whole * (double)taken / (double)n <= .15 / .85 * 3e15);
    ck_assert(whole * (double)(taken + 1) / (double)n > .15 / .85 * 3e15);
    ck_assert_uint_eq(calm_run_work_share(1e13, whole, n, n * 512), 16);
    ck_assert_uint_eq(calm_run_work_share(.99e13, whole / 300, n, n * 512), 64);    /* still a short one */
}
END_OF_TEST

/* ---- scored rows ---- */

/* Operations of one row, and of pairs of rows that are compared. */
static double by_rows(const void *user, size_t rows)
{
    return *(const double *)user * (double)rows;
}

static double by_pairs(const void *user, size_t rows)
{
    return *(const double *)user * (double)rows * (double)rows;
}

/* Scores take at most a tenth of all operations, as near as steps of 256 rows come. */
TEST(scores_are_a_tenth)
{
    const double shared = 1e14;
    static double (*const costs[])(const void *user, size_t rows) = {by_rows, by_pairs};
    static const double units[][2] = {{4e9, 8e9}, {2e6, 5e6}};
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < 2; i++) {
            const double unit = units[c][i];
            const size_t rows = calm_run_work_score_rows(shared, costs[c], &unit, 4096);
            ck_assert(rows > 512 && rows < 4096);
            ck_assert(costs[c](&unit, rows) <= (shared + costs[c](&unit, rows)) / 10);
            ck_assert(costs[c](&unit, rows + 256) > (shared + costs[c](&unit, rows + 256)) / 10);
        }
}
END_OF_TEST

TEST(never_too_few_rows)
{
    const double unit = 1e12;
    ck_assert_uint_eq(calm_run_work_score_rows(1e12, by_rows, &unit, 4096), 512);
    ck_assert_uint_eq(calm_run_work_score_rows(1e12, by_rows, &unit, 4000), 512);
    ck_assert_uint_eq(calm_run_work_score_rows(1e12, by_rows, &unit, 300), 300);    /* the windows have no more */
}
END_OF_TEST

TEST(all_rows_where_they_cost_little)
{
    const double seconds = 1e8, cheap = 1e9;
    ck_assert_uint_eq(calm_run_work_score_rows(0, by_rows, &seconds, 4096), 4096);
    ck_assert_uint_eq(calm_run_work_score_rows(1e15, by_rows, &cheap, 4096), 4096);
}
END_OF_TEST

int main(void)
{
    return run_tests("work", (const TTest *[]){whole_where_it_costs_little, a_share_of_the_run, up_to_a_third,
                                               a_long_run_keeps_to_its_share, scores_are_a_tenth, never_too_few_rows,
                                               all_rows_where_they_cost_little, NULL});
}
