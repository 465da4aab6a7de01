/* Runs whose blocks are calibrated on the outputs of the quantized blocks before them, next to those of float
 * blocks. */
#include <string.h>

#include "ptq/estimate/estimate_impl.h"
#include "tests/support/play.h"
#include "tests/support/run_rooms.h"

static const fault none = {0};

/* An asymmetric prefix, with float blocks in lockstep: 60 windows of 32 tokens, 15 held out, give at least 16 rows
 * for each of 48 inputs. */
TEST(an_asymmetric_prefix)
{
    play first = play_new(NULL, "w2a16_g16", "gptq,asym+absmax+gptq");
    first.recipe.calib_windows = 60;
    first.recipe.prefix = CALM_PREFIX_ASYMMETRIC;
    play_must_run(&first);
    play again = play_elsewhere(&first, "again");
    again.threads = 1;
    play_must_run(&again);
    ck_assert_str_eq(play_digest(first.recipe.output), play_digest(again.recipe.output));
    /* gptq is not fitted to the float outputs, so its error to them is larger. */
    static const char less[] = "SELECT total(a.value) < total(b.value) FROM v_scores a JOIN v_scores b"
                               " USING (block, job, unit, metric) WHERE a.algorithm LIKE 'asym%'"
                               " AND b.algorithm = 'gptq' AND unit = 'job' AND metric = 'rel_mse' AND block = 1";
    ck_assert_int_eq(play_sql(&first, less), 1);
    /* A quantized prefix has other keys, since its later blocks have other references. */
    play quantized = play_elsewhere(&first, "quantized");
    quantized.recipe.store = first.recipe.store;
    quantized.recipe.prefix = CALM_PREFIX_QUANTIZED;
    play_pool(&quantized, NULL, "gptq");
    ck_assert_uint_eq(play_must_run(&quantized).cached, 0);
}
END_OF_TEST

TEST(asymmetric_prefixes_that_are_refused)
{
    const tiny_model mixture = tiny_of("qwen3_moe");
    play run = play_new(NULL, "w2a16_g16", "asym+absmax+nearest");
    run.recipe.prefix = CALM_PREFIX_ASYMMETRIC;
    outcome said = play_run(&run, none);
    ck_assert_int_eq(said.status, CALM_EARG);
    ck_assert_ptr_nonnull(strstr(said.message, "calibration rows for 32 inputs, needs 512"));
    play_pool(&run, NULL, "rtn");    /* no fit, so few rows suffice */
    play_must_run(&run);
    run.recipe.score_windows = 0;    /* nothing reads rows, but blocks are run as chosen */
    run.recipe.guard_windows = 0;
    run.recipe.output = play_path(&run, "unscored");
    play_must_run(&run);
    play other = play_new(&mixture, "w4a16_g8", "rtn");
    other.recipe.prefix = CALM_PREFIX_ASYMMETRIC;
    said = play_run(&other, none);
    ck_assert_int_eq(said.status, CALM_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(said.message, "a mixture of experts has no `calibration.prefix` asymmetric"));
}
END_OF_TEST

static size_t spilled(const play *run, calm_prefix prefix)
{
    const calm_knobs knobs = {.spill = true, .candidates_at_once = 1, .experts_at_once = 1};
    calm_memory_plan plan = {.base = 0};
    calm_recipe recipe = run->recipe;
    calm_run *open;
    recipe.prefix = prefix;
    recipe.knobs = &knobs;
    ck_ok(calm_run_open(ctx, &recipe, &open));
    calm_memory_plan_estimate(open, 1, &knobs, &plan);
    calm_run_close(&open);
    return plan.spill_bytes;
}

/* Hidden states behind quantized blocks, at the input of the current block, and behind float blocks: a file each. */
TEST(each_copy_of_hidden_states_takes_disk)
{
    const play run = play_new(NULL, "w4a16_g8", "rtn");
    const size_t one = spilled(&run, CALM_PREFIX_FLOAT);
    ck_assert_uint_gt(one, 0);
    ck_assert_uint_eq(spilled(&run, CALM_PREFIX_QUANTIZED), 2 * one);
    ck_assert_uint_eq(spilled(&run, CALM_PREFIX_ASYMMETRIC), 3 * one);
}
END_OF_TEST

int main(void)
{
    return run_tests("prefix", (const TTest *[]){an_asymmetric_prefix, asymmetric_prefixes_that_are_refused,
                                                 each_copy_of_hidden_states_takes_disk, NULL});
}
