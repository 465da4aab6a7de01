/* Events: ticks of a stage, its completion, and no receiver. */
#include "ptq/base/event.h"

#include "tests/support/harness.h"

typedef struct seen {
    calm_stage stage;
    size_t done, total, n;
    double figure;
} seen;

static void receive(void *user, calm_stage stage, size_t done, size_t total)
{
    seen *s = user;
    *s = (seen){stage, done, total, s->n + 1, s->figure};
}

static void receive_figure(void *user, calm_stage stage, double value)
{
    seen *s = user;
    ck_assert_int_eq(stage, CALM_STAGE_LEARN);
    s->figure = value;
}

TEST(ticks_are_progress_of_their_stage)
{
    seen last = {.n = 0};
    const calm_events events = {.fn = receive, .user = &last, .figure = receive_figure};
    calm_stage_events stage = {&events, CALM_STAGE_PROBE};
    calm_stage_tick(&stage, 3, 7);
    ck_assert_int_eq(last.stage, CALM_STAGE_PROBE);
    ck_assert_uint_eq(last.done, 3);
    ck_assert_uint_eq(last.total, 7);
    calm_event(&events, CALM_STAGE_SCORE, 1, 2);
    ck_assert_int_eq(last.stage, CALM_STAGE_SCORE);
    calm_event_complete(&events, CALM_STAGE_ASSEMBLE);
    ck_assert_int_eq(last.stage, CALM_STAGE_ASSEMBLE);
    ck_assert_uint_eq(last.total, 0);
    ck_assert_uint_eq(last.n, 3);
    calm_event_figure(&events, CALM_STAGE_LEARN, 0.25);
    ck_assert(last.figure == 0.25 && last.n == 3);
}
END_OF_TEST

TEST(without_a_receiver_nothing_happens)
{
    const calm_events none = {.fn = NULL};
    calm_stage_events stage = {&none, CALM_STAGE_PULL};
    calm_stage_tick(&stage, 1, 2);
    calm_event(&none, CALM_STAGE_PULL, 1, 2);
    calm_event_complete(&none, CALM_STAGE_PULL);
    calm_event(NULL, CALM_STAGE_PULL, 1, 2);
    calm_event_figure(&none, CALM_STAGE_LEARN, 1);
    calm_event_figure(NULL, CALM_STAGE_LEARN, 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("event",
                     (const TTest *[]){ticks_are_progress_of_their_stage, without_a_receiver_nothing_happens, NULL});
}
