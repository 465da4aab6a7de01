/* The sizes of --memory, and the waves of experts that a plan allows. */
#include "cli/memory_plan.h"

#include "cli/pipeline.h"
#include "ptq/base/memory.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

TEST(sizes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"2000000000", 2000000000},
                 {"2000000000B", 2000000000},
                 {"2000000b", 2000000},
                 {"1500K", 1500000},
                 {"1500KB", 1500000},
                 {"1500kb", 1500000},
                 {"800M", 800000000},
                 {"800MB", 800000000},
                 {"2G", 2000000000},
                 {"2GB", 2000000000},
                 {"2 GB", 2000000000},
                 {"2gb", 2000000000},
                 {"2T", 2000000000000},
                 {"2TB", 2000000000000},
                 {"2048Ki", (size_t)2048 << 10},
                 {"2048KiB", (size_t)2048 << 10},
                 {"7Mi", (size_t)7 << 20},
                 {"7MiB", (size_t)7 << 20},
                 {"7mib", (size_t)7 << 20},
                 {"3Gi", (size_t)3 << 30},
                 {"1.5GiB", (size_t)3 << 29},
                 {"0.5GB", 500000000},
                 {".5GB", 500000000},
                 {"1MB", 1000000},           /* the smallest */
                 {"1e9", 1000000000},
                 {"1000TB", 1000000000000000}};    /* the largest */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = 0;
        ck_ok(calm_memory_plan_parse(ctx, cases[i].text, &bytes));
        ck_assert_msg(bytes == cases[i].bytes, "%s: %zu", cases[i].text, bytes);
    }
}
END_OF_TEST

/* Each is an error that repeats what was given. */
TEST(no_sizes)
{
    static const char *const texts[] = {
        "", " ", "GB", "five", "5x", "5GBs", "5 G B", "5,5GB", "5GB 5", "5GB ", "--5GB", "-5GB", "-1", "-0", "0", "0GB",
        "999999", "999KB", "0.9MB", "1", "5", "1001TB", "1e16", "1e400", "1e400GB", "-1e400", "1e308GB", "1e-400", "nan",
        "nanGB", "-nan", "inf", "infinity", "INFINITYGB", "1e", "1eGB", "0x", "5Ti", "5PB", "5Mib.", "\xff\xff", "5\tGB"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t bytes = 77;
        const calm_status status = calm_memory_plan_parse(ctx, texts[i], &bytes);
        ck_assert_msg(status == CALM_EARG, "\"%s\": %s, %zu bytes", texts[i], calm_status_name(status), bytes);
        ck_assert_uint_eq(bytes, 77);
        ck_assert_msg(strstr(ctx->message, test_format("--memory %s: expected", texts[i])) != NULL, "%s", ctx->message);
        calm_ctx_forgive(ctx);
    }
}
END_OF_TEST

TEST(limit_of_a_recipe)
{
    calm_recipe recipe = {.memory = "3GB"};
    size_t limit;
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    ck_assert_uint_eq(limit, 3000000000);
    recipe.memory = "3x";
    ck_fails(calm_memory_plan_limit(ctx, &recipe, &limit), CALM_EARG, "--memory 3x");
    /* 70 % of what is free; other processes take and give while this one looks, so within what it sees before and
     * after, and a tenth for what happens between. */
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

/* A routing in which expert e sees rows[e] tokens of each window. */
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

/* Experts at once with an even share, 16 of each window's 40 tokens, and with tokens that gather at one or two: those
 * together may have as many tokens as each is allowed, 33 a window, and need no more to be scored. */
TEST(waves_of_experts)
{
    static const size_t even[] = {16, 16, 16, 16, 16}, one[] = {40, 40, 0, 0, 0}, last[] = {0, 0, 0, 40, 40};
    static const size_t lengths[] = {TOKENS, TOKENS, TOKENS, TOKENS};
    tiny_model spec = tiny_of("qwen3_moe");
    calm_recipe recipe = {.score_windows = 2};
    calm_pipeline p = {.recipe = &recipe, .calib = tiny_windows(lengths, WINDOWS)};
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &p.model));
    const calm_routing evenly = routing_of(even), first_two = routing_of(one), last_two = routing_of(last);
    for (size_t most = 1; most <= 16; most++) {
        p.memory.knobs = (calm_knobs){.experts_at_once = most, .candidates_at_once = 2};
        for (size_t first = 0; first < EXPERTS; first++) {
            const size_t left = EXPERTS - first;
            ck_assert_uint_eq(calm_memory_plan_wave(&p, &evenly, first, 2), most < left ? most : left);
        }
        const size_t found = calm_memory_plan_wave(&p, &first_two, 0, 2);
        ck_assert_uint_ge(found, 1);
        ck_assert_uint_le(found, most < EXPERTS ? most : EXPERTS);
        ck_assert_uint_eq(calm_memory_plan_wave(&p, &first_two, 2, 2), most < 3 ? most : 3);    /* that saw none */
    }
    /* Two are allowed 66 tokens of each window, and find 80. */
    p.memory.knobs.experts_at_once = 2;
    ck_assert_uint_eq(calm_memory_plan_wave(&p, &first_two, 0, 2), 1);
    ck_assert_uint_eq(calm_memory_plan_wave(&p, &last_two, 3, 2), 1);
    ck_assert_uint_eq(calm_memory_plan_wave(&p, &last_two, 2, 2), 2);
    calm_model_close(p.model);
    /* Three may have 99 tokens of each window, but the squares of two's scoring rows are more than three even shares'. */
    spec.hidden = 128;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &p.model));
    p.memory.knobs.experts_at_once = 3;
    ck_assert_uint_eq(calm_memory_plan_wave(&p, &first_two, 0, 2), 1);
    ck_assert_uint_eq(calm_memory_plan_wave(&p, &evenly, 0, 2), 3);
    calm_model_close(p.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("memory_plan", (const TTest *[]){sizes, no_sizes, limit_of_a_recipe, waves_of_experts, NULL});
}
