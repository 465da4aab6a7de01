/* How much of a text the default evaluation takes. */
#include "ptq/run/work_impl.h"
#include "tests/support/harness.h"

TEST(whole_where_it_costs_little)
{
    ck_assert_uint_eq(calm_run_work_share(0, 2e13, 782), 782);
    ck_assert_uint_eq(calm_run_work_share(0, 1e12, 5), 5);
    /* Long calibration makes a long evaluation cheap beside it. */
    ck_assert_uint_eq(calm_run_work_share(4e15, 2e15, 782), 782);
}
END_OF_TEST

TEST(a_third_of_the_run)
{
    const double rest = 6e15, whole = 1e16;
    const size_t n = 1000, taken = calm_run_work_share(rest, whole, n);
    const double cost = whole * (double)taken / (double)n, window = whole / (double)n;
    ck_assert(cost <= (rest + cost) / 3);
    ck_assert(cost + window > (rest + cost + window) / 3);    /* one window more would be above it */
}
END_OF_TEST

TEST(at_least_64)
{
    ck_assert_uint_eq(calm_run_work_share(1e12, 1e16, 782), 64);
    ck_assert_uint_eq(calm_run_work_share(1e12, 1e16, 40), 40);    /* the text has no more */
}
END_OF_TEST

int main(void)
{
    return run_tests("work", (const TTest *[]){whole_where_it_costs_little, a_third_of_the_run, at_least_64, NULL});
}
