/* Time by stage: each moment is counted once, in the innermost stage. */
#include <time.h>

#include "ptq/base/threads.h"
#include "ptq/base/times.h"
#include "tests/support/harness.h"

/* Computes until so many seconds have passed. */
static void work_for(double seconds)
{
    const double until = calm_seconds() + seconds;
    while (calm_seconds() < until)
        ;
}

static void rest_for(double seconds)
{
    const struct timespec time = {0, (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

static void evaluate(calm_times *times)
{
    CALM_SCOPED_TIME(times, CALM_TIME_EVALUATION);
    work_for(0.03);
}

TEST(stages_are_nested)
{
    calm_times times;
    const double begun = calm_seconds();
    calm_times_begin(&times);
    {
        CALM_SCOPED_TIME(&times, CALM_TIME_EXPORT);
        rest_for(0.02);
        evaluate(&times);
        ck_assert_int_eq(times.now, CALM_TIME_EXPORT);
        work_for(0.01);
    }
    ck_assert_int_eq(times.now, CALM_TIME_OTHER);
    calm_times_settle(&times);
    const double passed = calm_seconds() - begun;
    const calm_time sum = calm_times_sum(&times);
    /* The clock is read twice: time in between is not counted, and none twice. */
    ck_assert(sum.wall <= passed);
    ck_assert(times.stage[CALM_TIME_EXPORT].wall >= 0.03);
    ck_assert(times.stage[CALM_TIME_EVALUATION].wall >= 0.03);
    ck_assert(times.stage[CALM_TIME_READ].wall == 0);
    /* One thread takes no more CPU time than time has passed, and none while it sleeps. */
    ck_assert(times.stage[CALM_TIME_EXPORT].cpu <= times.stage[CALM_TIME_EXPORT].wall);
    ck_assert(sum.cpu > 0 && sum.cpu <= sum.wall);
}
END_OF_TEST

TEST(busy_seconds_stand_still_without_work)
{
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        const double begun = calm_time_busy(n_threads), cpu = calm_time_now().cpu;
        rest_for(0.3);    /* as a process that waits for cores */
        ck_assert(calm_time_busy(n_threads) - begun < 0.1);
        const int workers = n_threads < calm_n_cores() ? n_threads : calm_n_cores();
        const double least = 0.2 / workers, until = calm_seconds() + 60;
        while (calm_time_busy(n_threads) - begun < least && calm_seconds() < until)
            ;
        /* One working thread is half of two; other work of the process counts in `cpu` only */
        ck_assert(calm_time_busy(n_threads) - begun >= least);
        ck_assert(calm_time_now().cpu - cpu >= 0.19);
    }
    /* More threads than cores take turns. */
    const double all = calm_time_busy(2 * calm_n_cores() + 2) * calm_n_cores();
    ck_assert(all > 0 && calm_time_now().cpu - all < 0.1);
}
END_OF_TEST

TEST(nothing_is_counted_before_the_beginning)
{
    calm_times times = {.now = CALM_TIME_READ};
    calm_time_scope scope = calm_time_enter(&times, CALM_TIME_GRAM);
    ck_assert_int_eq(times.now, CALM_TIME_READ);
    calm_time_leave(&scope);
    ck_assert(times.now == CALM_TIME_READ && calm_times_sum(&times).wall == 0);
    scope = calm_time_enter(NULL, CALM_TIME_GRAM);
    calm_time_leave(&scope);
}
END_OF_TEST

TEST(every_stage_has_a_name)
{
    for (calm_time_stage s = 0; s < CALM_N_TIMES; s++)
        for (calm_time_stage other = 0; other < s; other++)
            ck_assert_str_ne(calm_time_stage_name(s), calm_time_stage_name(other));
}
END_OF_TEST

int main(void)
{
    rest_for(0.5);    /* OpenBLAS's threads spin for a moment after they start, which the process's clock counts */
    return run_tests("times", (const TTest *[]){stages_are_nested, busy_seconds_stand_still_without_work,
                                                nothing_is_counted_before_the_beginning,
                                                every_stage_has_a_name, NULL});
}
