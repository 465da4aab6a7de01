/* The memory limit of a recipe, and the waves of experts that a plan allows. */
#include "ptq/estimate/estimate_impl.h"

#include "ptq/base/memory.h"
#include "tests/support/run_rooms.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

TEST(limit_of_a_recipe)
{
    calm_recipe recipe = {.memory = "3GB"};
    size_t limit;
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    ck_assert_uint_eq(limit, 3000000000);
    recipe.memory = "3x";
    ck_fails(calm_memory_plan_limit(ctx, &recipe, &limit), CALM_EARG, "`memory` 3x");
    /* 70 % of what is free, within what is free before and after, since other processes allocate too, and a tenth
     * for what happens in between. */
    recipe.memory = NULL;
    const double before = (double)calm_memory_available();
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    const double after = (double)calm_memory_available();
    ck_assert_double_ge((double)limit, 0.63 * fmin(before, after));
    ck_assert_double_le((double)limit, 0.77 * fmax(before, after));
}
END_OF_TEST

/* ---- waves of experts ---- */

enum { EXPERTS = 5, WINDOWS = 4, TOKENS = 40, TOP = 2 };

/* Makes a routing in which expert e gets rows[e] tokens of each window. */
static calm_routing routing_of(const size_t rows[EXPERTS])
{
    calm_routing out = {.n_windows = WINDOWS};
    ck_ok(CALM_NEW(ctx, ctx->out, out.begin, EXPERTS + 1));
    ck_ok(CALM_NEW(ctx, ctx->out, out.window, EXPERTS * (WINDOWS + 1)));
    for (size_t e = 0; e < EXPERTS; e++) {
        for (size_t w = 0; w <= WINDOWS; w++)
            out.window[e * (WINDOWS + 1) + w] = out.begin[e] + w * rows[e];
        out.begin[e + 1] = out.begin[e] + WINDOWS * rows[e];
    }
    ck_assert_uint_eq(out.begin[EXPERTS], WINDOWS * TOKENS * TOP);
    return out;
}

/* Waves for tokens that are evenly distributed, 16 of each window's 40 per expert, and for tokens that go to one or
 * two experts.  A wave's experts together may have as many tokens as each is allowed, 33 per window, and need no
 * more to be scored. */
TEST(waves_of_experts)
{
    static const size_t even[] = {16, 16, 16, 16, 16}, one[] = {40, 40, 0, 0, 0}, last[] = {0, 0, 0, 40, 40};
    static const size_t lengths[] = {TOKENS, TOKENS, TOKENS, TOKENS};
    tiny_model spec = tiny_of("qwen3_moe");
    calm_recipe recipe = {.score_windows = 2};
    calm_run p = {.in.recipe = &recipe, .in.calib = tiny_windows(lengths, WINDOWS)};
    ck_ok(calm_windows_cut(ctx, &p.in.calib, calm_inputs_score_windows(&p.in), SIZE_MAX, &p.in.scoring));
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &p.in.model));
    const calm_routing evenly = routing_of(even), first_two = routing_of(one), last_two = routing_of(last);
    for (size_t most = 1; most <= 16; most++) {
        p.memory.knobs = (calm_knobs){.experts_at_once = most, .candidates_at_once = 2};
        for (size_t first = 0; first < EXPERTS; first++) {
            const size_t left = EXPERTS - first;
            ck_assert_uint_eq(calm_wave_experts(&p, &evenly, first, 2), most < left ? most : left);
        }
        const size_t found = calm_wave_experts(&p, &first_two, 0, 2);
        ck_assert_uint_ge(found, 1);
        ck_assert_uint_le(found, most < EXPERTS ? most : EXPERTS);
        ck_assert_uint_eq(calm_wave_experts(&p, &first_two, 2, 2), most < 3 ? most : 3);    /* without tokens */
    }
    /* Two are allowed 66 tokens of each window, and have 80. */
    p.memory.knobs.experts_at_once = 2;
    ck_assert_uint_eq(calm_wave_experts(&p, &first_two, 0, 2), 1);
    ck_assert_uint_eq(calm_wave_experts(&p, &last_two, 3, 2), 1);
    ck_assert_uint_eq(calm_wave_experts(&p, &last_two, 2, 2), 2);
    calm_model_close(p.in.model);
    /* Three may have 99 tokens of each window, but the squares of two experts' scoring rows exceed three even
     * shares'. */
    spec.hidden = 128;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &p.in.model));
    p.memory.knobs.experts_at_once = 3;
    ck_assert_uint_eq(calm_wave_experts(&p, &first_two, 0, 2), 1);
    ck_assert_uint_eq(calm_wave_experts(&p, &evenly, 0, 2), 3);
    calm_model_close(p.in.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("memory_plan", (const TTest *[]){limit_of_a_recipe, waves_of_experts, NULL});
}
