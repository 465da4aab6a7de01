/* Progress: rates count work that was done in this run, and stages without work are not shown. */
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/support/harness.h"

static FILE *caught;
static int standard;

/* Redirects standard error to a file until it is read. */
static void catch_errors(void)
{
    fflush(stderr);
    caught = tmpfile();
    ck_assert_ptr_nonnull(caught);
    standard = dup(STDERR_FILENO);
    dup2(fileno(caught), STDERR_FILENO);
}

static const char *caught_errors(void)
{
    static char text[4096];
    fflush(stderr);
    dup2(standard, STDERR_FILENO);
    close(standard);
    rewind(caught);
    text[fread(text, 1, sizeof text - 1, caught)] = '\0';
    fclose(caught);
    return text;
}

static const calm_progress_stage *stage_of(const calm_progress *progress, calm_stage stage)
{
    ck_assert_uint_gt(progress->of_event[stage], 0);
    return &progress->stage[progress->of_event[stage] - 1];
}

/* 900 of 1000 candidates come from the store: after 100 s and 10 more, the other 90 take 900 s, not the 10 s that
 * 910 in 100 s would predict. */
TEST(candidates_of_the_store_are_in_no_rate)
{
    calm_progress progress;
    const calm_events events = calm_progress_begin(ctx, &progress, false);
    progress.terminal = false;
    catch_errors();
    calm_event(&events, CALM_STAGE_QUANTIZE, 900, 1000);
    progress.stage[0].seconds = 100;
    calm_event(&events, CALM_STAGE_QUANTIZE, 910, 1000);
    ck_assert_str_eq(caught_errors(), "calm: quantize   910/1000 candidates, 0.1/s, 15 min 00 s left\n");
    ck_assert_uint_eq(progress.stage[0].base, 900);
    /* A stage that begins again has a new clock and base. */
    calm_event(&events, CALM_STAGE_QUANTIZE, 5, 1000);
    ck_assert_uint_eq(progress.stage[0].base, 5);
    ck_assert(progress.stage[0].seconds < 100);
    catch_errors();
    calm_progress_end(ctx, &progress);
    ck_assert_str_eq(caught_errors(), "");
}
END_OF_TEST

TEST(stages_with_nothing_to_do_are_not_shown)
{
    calm_progress progress;
    const calm_events events = calm_progress_begin(ctx, &progress, false);
    progress.terminal = false;
    calm_progress_add_run(&progress);
    catch_errors();
    calm_event(&events, CALM_STAGE_QUANTIZE, 24, 24);
    calm_event(&events, CALM_STAGE_SCORE, 24, 24);
    calm_event_complete(&events, CALM_STAGE_CALIBRATE);
    calm_event(&events, CALM_STAGE_CHOOSE, 0, 0);
    calm_event(&events, CALM_STAGE_ASSEMBLE, 1, 2);
    calm_event(&events, CALM_STAGE_ASSEMBLE, 2, 2);
    calm_event(&events, CALM_STAGE_ASSEMBLE, 2, 2);
    ck_assert_str_eq(caught_errors(), "calm: assemble   2 blocks, 0 s\n");
    ck_assert(stage_of(&progress, CALM_STAGE_QUANTIZE)->idle && stage_of(&progress, CALM_STAGE_CALIBRATE)->idle);
    ck_assert(!stage_of(&progress, CALM_STAGE_ASSEMBLE)->idle && !stage_of(&progress, CALM_STAGE_PROBE)->idle);
    catch_errors();
    calm_progress_end(ctx, &progress);
    ck_assert_str_eq(caught_errors(), "");
    /* Without work. */
    ck_assert(stage_of(&progress, CALM_STAGE_PROBE)->idle && stage_of(&progress, CALM_STAGE_CHOOSE)->idle);
}
END_OF_TEST

/* A stage is shown once it gets work after a first event without any. */
TEST(a_stage_that_gets_work_is_shown_again)
{
    calm_progress progress;
    const calm_events events = calm_progress_begin(ctx, &progress, true);
    calm_event(&events, CALM_STAGE_EVALUATE, 8, 8);
    ck_assert(progress.stage[0].idle);
    calm_event(&events, CALM_STAGE_EVALUATE, 1, 8);
    ck_assert(!progress.stage[0].idle && progress.stage[0].base == 1);
    calm_event(&events, CALM_STAGE_EVALUATE, 8, 8);
    ck_assert(!progress.stage[0].idle);
    calm_progress_end(ctx, &progress);
}
END_OF_TEST

/* Learning shows the loss of the last step with its progress and at the end; other stages have none. */
TEST(learning_has_a_loss)
{
    calm_progress progress;
    const calm_events events = calm_progress_begin(ctx, &progress, false);
    progress.terminal = false;
    catch_errors();
    calm_event(&events, CALM_STAGE_LEARN, 0, 100);
    progress.stage[0].seconds = 50;
    calm_event_figure(&events, CALM_STAGE_LEARN, 0.00271);
    calm_event(&events, CALM_STAGE_LEARN, 50, 100);
    calm_event_figure(&events, CALM_STAGE_LEARN, 0.00265);
    calm_event(&events, CALM_STAGE_LEARN, 100, 100);
    calm_event(&events, CALM_STAGE_ASSEMBLE, 0, 1);
    calm_event(&events, CALM_STAGE_ASSEMBLE, 1, 1);
    ck_assert_str_eq(caught_errors(), "calm: learn      50/100 steps, 1.0/s, 50 s left, loss 0.00271\n"
                                      "calm: learn      100 steps, 50 s, loss 0.00265\n"
                                      "calm: assemble   1 blocks, 0 s\n");
    calm_progress_end(ctx, &progress);
}
END_OF_TEST

int main(void)
{
    return run_tests("progress",
                     (const TTest *[]){candidates_of_the_store_are_in_no_rate, stages_with_nothing_to_do_are_not_shown,
                                       a_stage_that_gets_work_is_shown_again, learning_has_a_loss, NULL});
}
