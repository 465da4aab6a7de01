/* The sum of the largest of many sizes, against sorting all of them. */
#include "ptq/base/largest.h"

#include "tests/support/harness.h"

TEST(sums_the_largest)
{
    static const size_t sizes[] = {5, 9, 1, 9, 3};
    calm_largest set = {0};
    ck_assert_uint_eq(calm_largest_sum(&set, 1, 4), 0);
    for (size_t i = 0; i < 5; i++)
        calm_largest_add(&set, sizes[i]);
    ck_assert_uint_eq(set.all, 27);
    ck_assert_uint_eq(calm_largest_sum(&set, 1, 1), 9);
    ck_assert_uint_eq(calm_largest_sum(&set, 1, 3), 23);
    ck_assert_uint_eq(calm_largest_sum(&set, 1, 100), 27);
    ck_assert_uint_eq(calm_largest_sum(&set, 2, 5), 9 + 9 + 9 + 9 + 5);
}
END_OF_TEST

/* Beyond its table the sum is an upper bound, and the kept sizes are the largest. */
TEST(bounds_what_it_dropped)
{
    const size_t n = 2 * CALM_LARGEST_KEPT;
    calm_largest set = {0};
    size_t all = 0, kept = 0;
    for (size_t i = 1; i <= n; i++) {
        calm_largest_add(&set, i);
        all += i;
        kept += i > n - CALM_LARGEST_KEPT ? i : 0;
    }
    ck_assert_uint_eq(set.all, all);
    ck_assert_uint_eq(calm_largest_sum(&set, 1, CALM_LARGEST_KEPT), kept);
    ck_assert_uint_ge(calm_largest_sum(&set, 1, n), all);
}
END_OF_TEST

int main(void)
{
    return run_tests("largest", (const TTest *[]){sums_the_largest, bounds_what_it_dropped, NULL});
}
