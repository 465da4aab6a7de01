/* calm_capture_token_values() against the number of values that a run observes. */
#include "ptq/calib/capture.h"
#include "tests/support/play.h"

/* Compares the sum over all blocks with the counts in the store for hooks within blocks. */
static void check(const char *family)
{
    const tiny_model spec = tiny_of(family);
    play run = play_new(&spec, "w4a16_g8", "rtn");
    calm_model *model;
    double expected = 0;
    run.recipe.guard_windows = 0;
    play_must_run(&run);
    ck_ok(calm_model_open(ctx, run.recipe.model.dir, &model));
    const calm_config *config = calm_model_config(model);
    for (size_t b = 0; b < config->n_blocks; b++)
        expected += (double)calm_capture_token_values(config, b);
    const double tokens = (double)play_sql(&run, "SELECT max(n_tokens) FROM activation WHERE block IS NOT NULL"),
                 values = (double)play_sql(&run, "SELECT sum(count) FROM activation WHERE block IS NOT NULL");
    ck_assert_msg(values == tokens * expected, "%s: %.0f values of %.0f tokens, expected %.0f", family, values, tokens,
                  tokens * expected);
    calm_model_close(model);
}

TEST(as_counted)
{
    const char *families[] = {"llama", "gemma3", "qwen3_moe", "qwen2_moe", "qwen3_5", "deepseek_v3", "lfm2", "gemma4"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check(families[i]);
}
END_OF_TEST

int main(void)
{
    return run_tests("capture_values", (const TTest *[]){as_counted, NULL});
}
