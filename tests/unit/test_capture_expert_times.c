/* Time by stage while experts are captured. */
#include "ptq/calib/capture.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Loading experts counts as reading in whichever stage they are captured; nothing else does. */
TEST(loading_is_reading)
{
    static const size_t lengths[] = {9, 17, 2, 30, 12};
    const tiny_model spec = tiny_of("qwen3_moe");
    const calm_windows windows = tiny_windows(lengths, 5);
    calm_model *model;
    calm_block block;
    calm_batch batch;
    calm_routing routing;
    calm_times times;
    calm_capture *out;
    CALM_SCOPED_MOE_SUM(sum);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    ck_ok(calm_batch_embed(ctx, model, &windows, 0, windows.n, ctx->out, NULL, &batch));
    ck_ok(calm_moe_route(ctx, &block, &batch, NULL, &routing));
    ck_ok(calm_moe_begin(ctx, block.config, &batch, ctx->out, &sum));
    const size_t n = block.config->moe.n_experts;
    const calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = true, .times = &times};
    ck_ok(CALM_NEW(ctx, ctx->out, out, n));
    calm_times_begin(&times);
    ck_ok(calm_capture_experts(ctx, &block, &batch, &routing, 0, n, &options, &sum, out));
    calm_times_settle(&times);
    const double read = times.stage[CALM_TIME_READ].wall, other = times.stage[CALM_TIME_OTHER].wall;
    ck_assert(read > 0 && other > 0 && calm_times_sum(&times).wall == read + other);
    ck_assert_int_eq(times.now, CALM_TIME_OTHER);
    calm_model_close(model);
}
END_OF_TEST

int main(void)
{
    return run_tests("capture_expert_times", (const TTest *[]){loading_is_reading, NULL});
}
