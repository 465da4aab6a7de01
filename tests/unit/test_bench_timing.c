/* Statistics of calm bench on given times; and items run as often as reported. */
#include "cli/bench_timing.h"

#include <math.h>

#include "cli/peak.h"
#include "ptq/base/scope.h"
#include "tests/support/harness.h"

TEST(median_and_quartiles)
{
    double one[] = {3}, two[] = {4, 2}, five[] = {5, 1, 4, 2, 3}, six[] = {6, 5, 4, 3, 2, 1}, same[] = {0, 0, 0};
    calm_timing t = calm_timing_of(one, 1);
    ck_assert(t.median == 3 && t.spread == 0 && t.n == 1);
    t = calm_timing_of(two, 2);    /* quartiles 2.5 and 3.5 */
    ck_assert(t.median == 3 && t.n == 2);
    ck_near(t.spread, 1.0 / 3, 0x1p-52);
    t = calm_timing_of(five, 5);    /* 2 and 4 */
    ck_assert(t.median == 3);
    ck_near(t.spread, 2.0 / 3, 0x1p-52);
    t = calm_timing_of(six, 6);    /* 2.25 and 4.75 */
    ck_assert(t.median == 3.5);
    ck_near(t.spread, 2.5 / 3.5, 0x1p-52);
    ck_assert(calm_timing_of(same, 3).spread == 0);
}
END_OF_TEST

/* One disturbed run in ten does not make a timing unsteady; three do. */
TEST(steady_or_not)
{
    double calm[] = {1, 1.01, 1.02, 1, 0.99, 1.01, 50, 1, 1.01, 1};
    double busy[] = {1, 1.01, 1.02, 1.4, 0.99, 1.01, 50, 1, 1.3, 1.5};
    calm_timing t = calm_timing_of(calm, 10);
    ck_assert(calm_timing_is_steady(&t));
    t = calm_timing_of(busy, 10);
    ck_assert(!calm_timing_is_steady(&t));
    ck_assert(calm_timing_is_steady(&(calm_timing){1, CALM_BENCH_SPREAD_MAX, 10}));
    ck_assert(!calm_timing_is_steady(&(calm_timing){0}));
}
END_OF_TEST

TEST(runs_that_are_enough)
{
    ck_assert(!calm_timing_is_enough(9, 1, 10));
    ck_assert(calm_timing_is_enough(10, 1, 10));
    ck_assert(!calm_timing_is_enough(2, 60, 10));
    ck_assert(!calm_timing_is_enough(3, 9.9, 10));
    ck_assert(calm_timing_is_enough(3, 10, 10));
}
END_OF_TEST

TEST(figures_of_steady_runs_alone)
{
    const calm_bench_item steady = {.flops = 6, .timing = {2, 0.05, 10}};
    const calm_bench_item unsteady = {.flops = 6, .timing = {2, 0.11, 10}};
    ck_assert(calm_bench_seconds(&steady) == 2 && calm_bench_rate(&steady) == 3);
    ck_assert(isnan(calm_bench_seconds(&unsteady)) && isnan(calm_bench_rate(&unsteady)));
}
END_OF_TEST

typedef struct counter {
    size_t prepared, run, fails_at;
} counter;

static void prepare(void *user)
{
    counter *all = user;
    ck_assert_uint_eq(all->prepared++, all->run);
}

static calm_status count(calm_ctx *task, void *user)
{
    counter *all = user;
    return ++all->run == all->fails_at ? calm_fail(task, CALM_EIO, "run %zu is gone", all->run) : CALM_OK;
}

/* Each item runs once more than is counted, to warm up. */
TEST(measured_in_turn)
{
    counter a = {0}, b = {0};
    calm_bench_item items[] = {{.name = "a", .run = count, .prepare = prepare, .user = &a},
                               {.name = "b", .run = count, .prepare = prepare, .user = &b}};
    ck_ok(calm_bench_measure(ctx, items, 2, 7));
    ck_assert_uint_eq(a.run, 8);
    ck_assert_uint_eq(b.run, 8);
    ck_assert_uint_eq(items[0].timing.n, 7);
    ck_assert_uint_eq(items[1].timing.n, 7);
    CALM_SCOPED_JSON(spreads);
    spreads = calm_bench_spreads(items, 2);
    ck_assert_ptr_nonnull(calm_json_get(spreads, "a"));
    ck_assert_ptr_nonnull(calm_json_get(spreads, "b"));
    b.fails_at = 10;
    ck_fails(calm_bench_measure(ctx, items, 2, 7), CALM_EIO, "run 10 is gone");
}
END_OF_TEST

/* Double has half the operations per second of float, and more threads have more. */
TEST(peak_items)
{
    ck_assert(calm_peak_of_cpu(CALM_OPERANDS_F32)->flops > 0);
    ctx->n_threads = 3;
    const calm_bench_item single = calm_bench_peak(ctx, false), twice = calm_bench_peak(ctx, true);
    ck_assert(single.flops == 3 * calm_peak_of_cpu(CALM_OPERANDS_F32)->flops && twice.flops == single.flops / 2);
    ck_ok(single.run(ctx, NULL));
    /* bfloat16 has more operations if the CPU has such products, and otherwise as many. */
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16);
    const calm_bench_item pairs = calm_bench_peak(ctx, false);
    ck_assert(pairs.flops == 3 * calm_peak_of_cpu(CALM_OPERANDS_BF16)->flops && pairs.flops >= single.flops);
    ck_ok(pairs.run(ctx, NULL));
}
END_OF_TEST

int main(void)
{
    return run_tests("bench_timing",
                     (const TTest *[]){median_and_quartiles, steady_or_not, runs_that_are_enough,
                                       figures_of_steady_runs_alone, measured_in_turn, peak_items, NULL});
}
