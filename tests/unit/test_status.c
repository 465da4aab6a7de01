/* The words of the status codes. */
#include "tests/support/harness.h"

TEST(every_status_has_its_own_words)
{
    for (int i = 0; i < CALM_N_STATUS; i++) {
        ck_assert_uint_gt(strlen(calm_status_words((calm_status)i)), 0);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(calm_status_words((calm_status)i), calm_status_words((calm_status)j));
    }
    ck_assert_int_eq(CALM_OK, 0);
    ck_assert_str_eq(calm_status_words(CALM_EFORMAT), "malformed data");
}
END_OF_TEST

TEST(values_outside_the_list_have_words_too)
{
    static const int outside[] = {-1, CALM_N_STATUS, 1000};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        ck_assert_ptr_nonnull(calm_status_words((calm_status)outside[i]));
}
END_OF_TEST

int main(void)
{
    return run_tests("status", (const TTest *[]){every_status_has_its_own_words,
                                                 values_outside_the_list_have_words_too, NULL});
}
