/* The windows of a run: calibration, guard and evaluation begin as the tokenizer's template begins a text, and a store
 * keeps apart what was computed with and without. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/run/inputs.h"
#include "tests/support/play.h"

static void check_begin(const calm_windows *windows, uint32_t begin, bool begun)
{
    ck_assert_uint_gt(windows->n, 0);
    for (size_t w = 0; w < windows->n; w++)
        ck_assert((windows->ids[windows->begin[w]] == begin) == begun);
}

/* Windows of the recipe as a run reads them. */
static void check_inputs(const play *run, uint32_t begin, bool begun)
{
    calm_inputs in = {.recipe = &run->recipe};
    calm_windows eval;
    ck_ok(calm_model_open(ctx, run->recipe.model.dir, &in.model));
    ck_ok(calm_inputs_open_tokenizer(ctx, &in));
    ck_ok(calm_inputs_read_windows(ctx, &in));
    ck_ok(calm_inputs_read_eval(ctx, &in, &eval));
    check_begin(&in.calib, begin, begun);
    check_begin(&in.guard, begin, begun);
    check_begin(&eval, begin, begun);
    ck_assert_uint_eq(in.calib.n, (size_t)run->recipe.calib_windows);
    ck_assert_uint_eq(in.calib.longest, (size_t)run->recipe.seqlen);
    calm_inputs_close(&in);
}

TEST(calibration_guard_and_evaluation_begin_alike)
{
    play with = play_new(NULL, "w4a16_g16", "rtn,gptq");
    const uint32_t begin =
        (uint32_t)tiny_tokenizer_write(test_format("%s/tokenizer.json", with.recipe.model.dir), -1);
    with.recipe.add_special_tokens = true;
    play without = with;
    without.recipe.add_special_tokens = false;
    without.recipe.output = play_path(&with, "without");
    check_inputs(&with, begin, true);
    check_inputs(&without, begin, false);
    /* One store: nothing of the one run is taken for the other's, neither candidates nor evaluations. */
    ck_assert_uint_eq(play_must_run(&with).cached, 0);
    const int64_t evaluations = play_sql(&with, "SELECT count(*) FROM evaluation");
    ck_assert_int_gt(evaluations, 0);
    ck_assert_uint_eq(play_must_run(&without).cached, 0);
    ck_assert_int_eq(play_sql(&with, "SELECT count(DISTINCT tokens_digest) FROM calibration"), 2);
    ck_assert_int_eq(play_sql(&with, "SELECT count(*) FROM evaluation"), 2 * evaluations);
    play again = with;
    again.recipe.output = play_path(&with, "again");
    ck_assert_uint_eq(play_must_run(&again).cached, 16);
    ck_assert_int_eq(play_sql(&with, "SELECT count(*) FROM evaluation"), 2 * evaluations);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(with.recipe.output));
}
END_OF_TEST

/* Sentences have both ends of the template; windows of an encoder's running text neither. */
TEST(an_encoder_s_running_text_is_text_alone)
{
    tiny_model spec = tiny_of("bert");
    play run = play_new(&spec, "w4a16_g16", "rtn");
    const uint32_t begin = (uint32_t)tiny_tokenizer_write(test_format("%s/tokenizer.json", run.recipe.model.dir), -1);
    run.recipe.add_special_tokens = true;
    run.recipe.encoder_stream = true;
    check_inputs(&run, begin, false);
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_windows", (const TTest *[]){calibration_guard_and_evaluation_begin_alike,
                                                          an_encoder_s_running_text_is_text_alone, NULL});
}
