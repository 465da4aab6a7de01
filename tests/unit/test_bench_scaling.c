/* The serial share of work, from times on several numbers of threads. */
#include "cli/timing.h"

#include <math.h>

#include "tests/support/harness.h"

static const int threads[] = {1, 2, 4, 8};

/* Times that follow Amdahl's law give its serial share, whatever the time of one thread; each is rounded to 2^-53
 * relative. */
TEST(law)
{
    static const double shares[] = {0, 0.04, 0.5, 1};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double seconds[4];
        for (size_t t = 0; t < 4; t++)
            seconds[t] = 3 * (shares[i] + (1 - shares[i]) / threads[t]);
        for (size_t n = 2; n <= 4; n++)
            ck_near(calm_timing_serial_share(threads, seconds, n), shares[i], 0x1p-49);
    }
}
END_OF_TEST

/* A gain larger than the number of threads gives a share below 0. */
TEST(beyond)
{
    const double seconds[] = {2, 0.9};
    ck_assert(calm_timing_serial_share(threads, seconds, 2) < 0);
}
END_OF_TEST

TEST(unknown)
{
    const double one[] = {1}, missing[] = {1, NAN, 0.3}, first[] = {NAN, 0.5};
    ck_assert(isnan(calm_timing_serial_share(threads, one, 1)));
    ck_assert(isnan(calm_timing_serial_share(threads, missing, 3)));
    ck_assert(isnan(calm_timing_serial_share(threads, first, 2)));
}
END_OF_TEST

int main(void)
{
    return run_tests("bench_scaling", (const TTest *[]){law, beyond, unknown, NULL});
}
