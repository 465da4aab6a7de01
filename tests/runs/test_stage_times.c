/* Times by stage: of a run, as stored, and of a forecast. */
#include <math.h>
#include <string.h>

#include "ptq/forecast/forecast.h"
#include "ptq/state/stage_times.h"
#include "tests/support/play.h"

static double wall_of(const calm_stage_time *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].time.wall;
    ck_abort_msg("no row of this name");
    return 0;
}

/* The wall time of a stage is divided between two entries by their tasks' seconds. */
TEST(candidates_are_divided_by_their_tasks)
{
    play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    calm_times times = {.stage[CALM_TIME_ALGORITHMS] = {8, 12}, .stage[CALM_TIME_GUARD] = {5, 6}};
    const double seconds[2] = {1, 3}, none[2] = {0, 0};
    calm_stage_time *rows;
    size_t n;
    ck_ok(calm_run_times_list(ctx, &times, &run.recipe, seconds, &rows, &n));
    ck_assert_uint_eq(n, CALM_N_TIMES - 1 + 2);
    ck_assert(wall_of(rows, n, "rtn") == 2 && wall_of(rows, n, "gptq") == 6 && wall_of(rows, n, "guard") == 5);
    ck_ok(calm_run_times_list(ctx, &times, &run.recipe, none, &rows, &n));
    ck_assert_uint_eq(n, CALM_N_TIMES - 1 + 2);
    ck_assert(wall_of(rows, n, "rtn") == 4);
}
END_OF_TEST

TEST(a_run_keeps_its_stages)
{
    play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    play_must_run(&run);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_stage WHERE run_id = 1"), CALM_N_TIMES + 1);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_stage WHERE seconds < 0 OR cpu_seconds < 0"), 0);
    /* Stages that the run has take time, and one that it lacks does not. */
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_stage WHERE seconds > 0 AND stage IN ('read', 'forward',"
                                    " 'gram', 'factors', 'rtn', 'gptq', 'scores', 'guard', 'export', 'store')"), 10);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_stage WHERE stage = 'learning' AND seconds > 0.1"), 0);
    /* The second run finds its candidates, so it computes no Gram matrix. */
    run.recipe.force = true;
    play_must_run(&run);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_stage WHERE run_id = 2"), CALM_N_TIMES + 1);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_stage WHERE run_id = 2 AND stage = 'gram' AND"
                                    " seconds > 0"), 0);
}
END_OF_TEST

static calm_forecast foresee(const calm_recipe *recipe, calm_forecast_rates *rates)
{
    calm_forecast forecast;
    ck_ok(calm_forecast_make(ctx, recipe, NULL, rates, &forecast));
    return forecast;
}

/* The two sums have the same terms in another order: some hundred roundings. */
static void ck_adds_up(const calm_forecast *forecast)
{
    const calm_time sum = calm_times_sum(&forecast->times);
    ck_near(sum.wall, forecast->seconds, 1e-12 * forecast->seconds);
    ck_assert(sum.cpu >= sum.wall * (1 - 1e-12));
    for (calm_time_stage s = 0; s < CALM_N_TIMES; s++)
        ck_assert(forecast->times.stage[s].wall >= 0);
}

TEST(a_forecast_adds_up)
{
    play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    calm_forecast_rates rates = {0};
    const calm_forecast first = foresee(&run.recipe, &rates);
    ck_adds_up(&first);
    ck_assert(first.times.stage[CALM_TIME_GRAM].wall > 0 && first.times.stage[CALM_TIME_GUARD].wall > 0);
    ck_assert(first.pool_seconds[1] > 0);
    /* Rates are measured once: the second forecast has the same figures to the last bit. */
    const calm_forecast again = foresee(&run.recipe, &rates);
    ck_assert(again.sgemm_flops == first.sgemm_flops && again.dgemm_flops == first.dgemm_flops);
    ck_assert(again.pool_seconds[1] == first.pool_seconds[1] && again.seconds == first.seconds);
    /* A rotated model is compared with the original, which doubles the blocks. */
    run.recipe.rotate = CALM_ROTATE_R1;
    const calm_forecast rotated = foresee(&run.recipe, &rates);
    ck_adds_up(&rotated);
}
END_OF_TEST

int main(void)
{
    return run_tests("stage_times", (const TTest *[]){candidates_are_divided_by_their_tasks, a_run_keeps_its_stages,
                                                      a_forecast_adds_up, NULL});
}
