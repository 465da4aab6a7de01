/* The forecast of the store's size against what a run writes, and forecasts of times. */
#include "ptq/forecast/forecast.h"
#include "tests/support/play.h"

static calm_forecast foresee(const play *run)
{
    calm_forecast forecast;
    ck_ok(calm_forecast_make(ctx, &run->recipe, NULL, NULL, &forecast));
    return forecast;
}

/* Every candidate has a blob; candidates with equal results are counted separately. */
#define ALL "SELECT sum(blob_bytes) FROM candidate"
#define CHOSEN "SELECT sum(k.blob_bytes) FROM candidate k JOIN choice c ON c.candidate_id = k.id"

static void check_all(const tiny_model *spec, const char *scheme, const char *algorithms)
{
    play run = play_new(spec, scheme, algorithms);
    run.recipe.keep_candidates = run.recipe.formats.options.asymmetric = true;
    const calm_forecast forecast = foresee(&run);
    play_must_run(&run);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate WHERE blob IS NULL"), 0);
    ck_assert_int_eq((int64_t)forecast.store_bytes, play_sql(&run, ALL));
    ck_assert_int_eq((int64_t)forecast.kept_bytes, play_sql(&run, ALL));
}

/* Exact to the byte: a short last group, zero points, input scales of some jobs, corrected biases, static
 * activations. */
TEST(all_candidates)
{
    const tiny_model biased = tiny_of("qwen2"), wide = tiny_wide("qwen3"), gemma = tiny_wide("gemma3");
    check_all(NULL, "w3a16_g16,w4a16_g16", "rtn,gptq,mkq");
    check_all(&biased, "w4a4_g16", "rtn,smoothquant,absmax+nearest+bias");
    check_all(&wide, "w4a16_g32_asym,w8a8", "rtn,awq");
    check_all(&gemma, "nvfp4", "rtn,gptq");
}
END_OF_TEST

/* Rejected candidates are dropped block by block: the store holds the hybrid, one block's rejected candidates, and
 * two files of rows.  With one scheme all candidates have about the same size, so the sums are exact. */
TEST(of_what_goes)
{
    tiny_model spec = tiny_default;
    spec.n_blocks = 4;
    spec.hidden = 64;
    spec.inner = 512;
    play run = play_new(&spec, "w3a16_g16", "rtn,gptq,mkq");
    const calm_forecast both = foresee(&run);
    run.recipe.keep_hybrid = true;
    const calm_forecast one = foresee(&run);
    /* Rows larger than the rejected candidates are not written. */
    run.recipe.guard_windows = 40;
    const calm_forecast many = foresee(&run);
    run.recipe.guard_windows = 0;
    const calm_forecast unguarded = foresee(&run);
    run.recipe.keep_candidates = true;
    const calm_forecast kept = foresee(&run);
    run.recipe.keep_candidates = false;
    play_must_run(&run);
    const double all = (double)play_sql(&run, ALL), chosen = (double)play_sql(&run, CHOSEN);
    ck_assert(many.store_bytes == all && kept.store_bytes == all && kept.kept_bytes == all);
    ck_assert(one.kept_bytes == chosen && unguarded.kept_bytes == chosen && both.kept_bytes == 2 * chosen);
    ck_assert(unguarded.store_bytes == chosen + (all - chosen) / 4);
    /* Five sets of 3 windows of 32 tokens with 64 floats each, in two files. */
    const double rows = 2 * 5 * 3 * 32 * 64 * sizeof(float);
    ck_assert(one.store_bytes > unguarded.store_bytes + rows);
    ck_assert(one.store_bytes < unguarded.store_bytes + rows + 4096);    /* headers: a few numbers per job */
    ck_assert(both.store_bytes >= both.kept_bytes && both.store_bytes >= one.store_bytes);
}
END_OF_TEST

/* Jobs that stay float take no time.  rtn's time is proportional to weights, of which `o` has 32 x 32 of 7,680 in a
 * block. */
TEST(kept_jobs)
{
    const char *kept = "re:.*[qkv]_proj|.*mlp.*";
    play run = play_new(NULL, "w4a16_g16", "rtn");
    calm_forecast_rates rates = {0};
    calm_forecast all, o;
    ck_ok(calm_forecast_make(ctx, &run.recipe, NULL, &rates, &all));
    run.recipe.keep_float = (calm_words){.of = &kept, .n = 1};
    ck_ok(calm_forecast_make(ctx, &run.recipe, NULL, &rates, &o));
    ck_assert(all.pool_seconds[0] > 0);
    ck_near(o.pool_seconds[0], all.pool_seconds[0] * 1024 / 7680, 1e-9 * all.pool_seconds[0]);
    ck_near(o.times.stage[CALM_TIME_ALGORITHMS].wall, o.pool_seconds[0], 1e-9 * o.pool_seconds[0]);
}
END_OF_TEST

/* The forward stage takes the time of one value for each value that the run observes. */
TEST(statistics)
{
    play run = play_new(NULL, "w4a16_g16", "rtn");
    calm_forecast_rates rates = {.sgemm_flops = 1e12, .dgemm_flops = 1e12, .value_seconds = 1};
    calm_forecast slow, none;
    ck_ok(calm_forecast_make(ctx, &run.recipe, NULL, &rates, &slow));
    play_must_run(&run);
    const double values = (double)play_sql(&run, "SELECT sum(count) FROM activation WHERE block IS NOT NULL"),
                 forward = slow.times.stage[CALM_TIME_FORWARD].wall;
    ck_near(forward, values, 1e-6 * values);
    run.recipe.score_windows = 0;
    ck_ok(calm_forecast_make(ctx, &run.recipe, NULL, &rates, &none));
    ck_assert(none.times.stage[CALM_TIME_FORWARD].wall < 1e-6 * values);
}
END_OF_TEST

int main(void)
{
    return run_tests("forecast_store", (const TTest *[]){all_candidates, of_what_goes, kept_jobs, statistics, NULL});
}
