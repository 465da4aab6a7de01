/* Measured rates of learning steps, with a clock that advances by a second at every call. */
#include "ptq/forecast/forecast_impl.h"
#include "ptq/state/work.h"

#include "tests/support/play.h"

static double now;

static double tick(int n_threads)
{
    (void)n_threads;
    return now++;
}

/* Returns the operations per token for the tiny model's shapes: q and o have 4 heads of 8, k and v 2, the MLP is
 * three times 48; scores and contexts see half a window on average, or a whole one in an encoder. */
static double by_hand(size_t window, bool encoder)
{
    const double kv = encoder ? 32 : 16, inner = encoder ? 2 * 48 : 3 * 48;
    return 2 * (2 * 32 * 32 + 2 * kv * 32 + inner * 32) + (encoder ? 4 : 2) * (double)window * 32;
}

/* Opens a run, which reads the recipe in *run until it is closed. */
static calm_run *opened(const tiny_model *model, const char *scheme, const char *learner, play *run)
{
    calm_run *p;
    *run = play_new(model, scheme, "rtn");
    run->recipe.calib_windows = 12;
    run->recipe.guard_windows = 0;
    run->recipe.learn = learner ? CALM_LEARN_BLOCKS : CALM_LEARN_KL;
    if (learner)
        ck_ok(calm_learner_parse(ctx, learner, &run->recipe.learner));
    ck_ok(calm_run_open(ctx, &run->recipe, &p));
    return p;
}

TEST(operations_of_a_token)
{
    const tiny_model bert = tiny_of("bert");
    play run, other;
    calm_run *p = opened(NULL, "w4a16_g16", NULL, &run), *encoder = opened(&bert, "w4a16_g16", NULL, &other);
    ck_near(calm_run_work_blocks(&p->in, 0, 1, 24), by_hand(24, false), 0);
    ck_near(calm_run_work_blocks(&p->in, 0, 2, 10), 2 * by_hand(10, false), 0);
    ck_near(calm_run_work_blocks(&encoder->in, 1, 2, 10), by_hand(10, true), 0);
    calm_run_close(&p);
    calm_run_close(&encoder);
}
END_OF_TEST

/* One round over the windows of a step takes one second. */
TEST(rates_of_steps)
{
    static const char *const learners[] = {"learn(tokens=1)", "learn(tokens=1000000)"};
    for (size_t i = 0; i < 2; i++) {
        play run;
        calm_run *p = opened(NULL, "w4a4_g16", learners[i], &run);
        calm_learn_rates rates = {0};
        ck_ok(calm_learn_rates_measure(ctx, p, tick, &rates));
        /* A step has the first window that is learned from, or all of them: windows of play_new() are short. */
        const calm_windows *calib = &p->in.calib;
        const size_t first = calm_inputs_held_windows(&p->in);
        double expected = 0;
        for (size_t w = first; w < (i ? calib->n : first + 1); w++) {
            const size_t tokens = calib->begin[w + 1] - calib->begin[w];
            expected += (double)tokens * by_hand(tokens, false);
        }
        ck_near(rates.forward, expected, 1e-9 * expected);
        ck_near(rates.back, 3 * expected, 1e-9 * expected);
        /* One second for at least 50 steps on a million weights. */
        ck_near(rates.update, 1 / (50.0 * 1024 * 1024), 1e-20);
        calm_run_close(&p);
    }
}
END_OF_TEST

/* Mixtures are not measured; 8-bit weights have no updates. */
TEST(what_is_not_measured)
{
    const tiny_model mixture = tiny_of("qwen3_moe");
    play run;
    calm_run *p = opened(&mixture, "w4a16_g8", NULL, &run);
    calm_learn_rates rates = {.forward = 1, .back = 2, .update = 3};
    ck_ok(calm_learn_rates_measure(ctx, p, tick, &rates));
    ck_assert(rates.forward == 1 && rates.back == 2 && rates.update == 3);
    calm_run_close(&p);
    p = opened(NULL, "w8a8", NULL, &run);
    ck_ok(calm_learn_rates_measure(ctx, p, tick, &rates));
    ck_assert(rates.forward > 1 && rates.back > 2 && rates.update == 3);
    calm_run_close(&p);
}
END_OF_TEST

int main(void)
{
    return run_tests("forecast_steps", (const TTest *[]){operations_of_a_token, rates_of_steps, what_is_not_measured,
                                                         NULL});
}
