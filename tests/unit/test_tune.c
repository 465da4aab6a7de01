/* Tuning of scales and norms: the update formula, the best state, what is not tuned, memory. */
#include "algorithms/tune.h"

#include <math.h>

#include "ptq/base/rng.h"
#include "ptq/quant/grid.h"
#include "ptq/quant/super_block.h"
#include "tests/support/harness.h"

enum { ROWS = 40, IN = 70, GROUP = 32, GROUPS = 3, CELLS = ROWS * GROUPS };

/* Two linears, one of them without a gradient, and a norm that is stored less one. */
typedef struct toy {
    calm_learn_linear linears[2];
    calm_learn_vector vector;
    float scales[2][CELLS], effective[2][ROWS * IN], grad[ROWS * IN], values[IN], dvalues[IN];
    float start[CELLS], start_values[IN];
} toy;

static toy *toy_new(void)
{
    toy *t;
    ck_ok(CALM_NEW(ctx, ctx->out, t, 1));
    for (int l = 0; l < 2; l++) {
        t->linears[l] = (calm_learn_linear){.name = "toy", .out = ROWS, .in = IN, .group = GROUP, .n_groups = GROUPS,
                                            .scales = t->scales[l], .effective = t->effective[l],
                                            .grad = l ? NULL : t->grad};
        ck_ok(calm_scheme_parse(ctx, "w3a16_g32", &t->linears[l].scheme));
        for (size_t i = 0; i < CELLS; i++)
            t->scales[l][i] = calm_scale_round(&t->linears[l].scheme, 0,
                                               (i % 3 ? 0.1 : -0.1) * (1 + calm_rng_uniform(5, (uint64_t)l, i)));
    }
    t->vector = (calm_learn_vector){.name = "norm", .n = IN, .dtype = CALM_BF16, .offset = 1, .values = t->values,
                                    .grad = t->dvalues};
    for (size_t i = 0; i < IN; i++)
        t->values[i] = calm_dtype_round(CALM_BF16, (float)calm_rng_normal(6, 0, i) * 0.1f) + 1;
    memcpy(t->start, t->scales[0], sizeof t->start);
    memcpy(t->start_values, t->values, sizeof t->values);
    return t;
}

/* Fills in the gradients and dequantized weights of step t. */
static void fill(toy *t, uint64_t step)
{
    for (size_t i = 0; i < ROWS * IN; i++) {
        t->grad[i] = (float)calm_rng_normal(step, 1, i);
        t->effective[0][i] = (float)calm_rng_normal(step, 2, i);
    }
    for (size_t i = 0; i < IN; i++)
        t->dvalues[i] = (float)calm_rng_normal(step, 3, i);
}

/* Runs one step of textbook Adam on one factor; returns e^x. */
static double slow(double state[3], double g, double rate, int t)
{
    state[1] = 0.9 * state[1] + 0.1 * g;
    state[2] = 0.95 * state[2] + 0.05 * g * g;
    state[0] -= rate * (state[1] / (1 - pow(0.9, t))) / (sqrt(state[2] / (1 - pow(0.95, t))) + 1e-12);
    return exp(state[0]);
}

/* After three steps every scale and value is the textbook's, rounded to what a file holds.  The float sum of 32
 * products is off by 1e-6 of theirs, and bfloat16 rounds to 2^-9: one unit in its last place, 2^-7, covers both. */
static void check_steps(float unit)
{
    toy *t = toy_new();
    calm_tune *tune;
    static double cells[CELLS][3], entries[IN][3];
    memset(cells, 0, sizeof cells);
    memset(entries, 0, sizeof entries);
    t->vector.unit = unit;
    ck_ok(calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune));
    float other[CELLS];
    memcpy(other, t->scales[1], sizeof other);
    for (int step = 1; step <= 3; step++) {
        const double rate = 0.05 / step;
        float values[IN];
        memcpy(values, t->values, sizeof values);
        fill(t, (uint64_t)step);
        ck_ok(calm_tune_step(ctx, tune, rate, (size_t)step));
        for (size_t cell = 0; cell < CELLS; cell++) {
            const size_t row = cell / GROUPS, first = cell % GROUPS * GROUP;
            double g = 0;
            for (size_t j = first; j < IN && j < first + GROUP; j++)
                g += (double)t->grad[row * IN + j] * (double)t->effective[0][row * IN + j];
            const double expected = (double)t->start[cell] * slow(cells[cell], g, rate, step);
            ck_assert_msg(fabs((double)t->scales[0][cell] - expected) <= 0x1p-7 * fabs(expected), "%zu: %g of %g", cell,
                          (double)t->scales[0][cell], expected);
            ck_assert(t->scales[0][cell] == calm_dtype_round(CALM_BF16, t->scales[0][cell]));
        }
        for (size_t i = 0; i < IN; i++) {
            const double g = (double)t->dvalues[i] * (double)(unit > 0 ? unit : values[i]);
            const double factor = slow(entries[i], g, rate, step), start = (double)t->start_values[i];
            const double expected = unit > 0 ? start + (double)unit * log(factor) : start * factor;
            ck_assert(fabs((double)t->values[i] - expected) <= 0x1p-7 * fabs(expected - 1) + 1e-6);
        }
    }
    ck_assert(memcmp(other, t->scales[1], sizeof other) == 0);
}

/* Values are factors, as those of norms, or terms. */
TEST(steps_are_adams)
{
    check_steps(0);
    check_steps(0.25f);
}
END_OF_TEST

/* Rows that share a scale change it by the sum of their gradients, and keep it in common: 128 of 150 rows and the
 * other 22, in blocks of 128 and of 22 columns. */
TEST(blocks_of_rows_move_together)
{
    enum { OUT = 150, WIDE = 150, N = 2 };
    static float scales[OUT * N], effective[OUT * WIDE], grad[OUT * WIDE];
    calm_learn_linear linear = {.name = "toy", .out = OUT, .in = WIDE, .group = 128, .n_groups = N, .scales = scales,
                                .effective = effective, .grad = grad};
    double state[2][N][3] = {{{0}}};
    calm_tune *tune;
    ck_ok(calm_scheme_parse(ctx, "fp8_blocka16", &linear.scheme));
    for (size_t i = 0; i < OUT * N; i++)
        scales[i] = (float)(i / N < 128 ? 0.5 : 0.25) * (float)(1 + i % N);
    for (size_t i = 0; i < OUT * WIDE; i++) {
        grad[i] = (float)calm_rng_normal(3, 1, i);
        effective[i] = (float)calm_rng_normal(3, 2, i);
    }
    ck_ok(calm_tune_new(ctx, &linear, 1, NULL, 0, &tune));
    ck_ok(calm_tune_step(ctx, tune, 0.05, 1));
    for (size_t b = 0; b < 2; b++)
        for (size_t g = 0; g < N; g++) {
            double sum = 0;
            for (size_t r = 128 * b; r < (b ? OUT : 128); r++)
                for (size_t j = 128 * g; j < (g ? WIDE : 128); j++)
                    sum += (double)grad[r * WIDE + j] * (double)effective[r * WIDE + j];
            const double start = (b ? 0.25 : 0.5) * (double)(1 + g), expected = start * slow(state[b][g], sum, 0.05, 1);
            ck_assert(expected != start);
            for (size_t r = 128 * b; r < (b ? OUT : 128); r++)
                ck_assert_msg(fabs((double)scales[r * N + g] - expected) <= 0x1p-7 * expected &&
                                  scales[r * N + g] == scales[128 * b * N + g],
                              "row %zu, group %zu: %g of %g", r, g, (double)scales[r * N + g], expected);
        }
}
END_OF_TEST

/* Scales of a super-block stay integers times one float16. */
TEST(super_blocks_stay_storable)
{
    enum { WIDE = 512, N = 16 };
    static float scales[N], mins[N], effective[WIDE], grad[WIDE];
    calm_learn_linear linear = {.name = "toy", .out = 1, .in = WIDE, .group = 32, .n_groups = N, .scales = scales,
                                .mins = mins, .effective = effective, .grad = grad};
    calm_super_block parts;
    calm_tune *tune;
    ck_ok(calm_scheme_parse(ctx, "q4_k", &linear.scheme));
    for (size_t g = 0; g < N; g++) {
        scales[g] = 0.01f * (float)(1 + g % 5);
        mins[g] = -0.02f * (float)(1 + g % 7);
    }
    for (size_t g = 0; g < N; g += 8)
        calm_scales_round(&linear.scheme, 0, 8, scales + g, mins + g);
    float start[N];
    memcpy(start, scales, sizeof start);
    for (size_t i = 0; i < WIDE; i++) {
        grad[i] = (float)calm_rng_normal(4, 1, i);
        effective[i] = (float)calm_rng_normal(4, 2, i);
    }
    ck_ok(calm_tune_new(ctx, &linear, 1, NULL, 0, &tune));
    ck_ok(calm_tune_step(ctx, tune, 0.2, 1));
    ck_assert_mem_ne(start, scales, sizeof start);
    for (size_t g = 0; g < N; g += 8)
        ck_assert(calm_super_split(&linear.scheme, 8, scales + g, mins + g, &parts));
}
END_OF_TEST

/* Restoring gives the state that was kept last; at first that is the start. */
TEST(the_best_comes_back)
{
    toy *t = toy_new();
    calm_tune *tune;
    ck_ok(calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune));
    fill(t, 1);
    ck_ok(calm_tune_step(ctx, tune, 0.1, 1));
    ck_assert(memcmp(t->start, t->scales[0], sizeof t->start) != 0);
    calm_tune_restore(tune);
    ck_assert(memcmp(t->start, t->scales[0], sizeof t->start) == 0);
    ck_assert(memcmp(t->start_values, t->values, sizeof t->values) == 0);
    ck_ok(calm_tune_step(ctx, tune, 0.1, 2));
    float kept[CELLS], values[IN];
    memcpy(kept, t->scales[0], sizeof kept);
    memcpy(values, t->values, sizeof values);
    calm_tune_keep(tune);
    ck_ok(calm_tune_step(ctx, tune, 0.1, 3));
    ck_assert(memcmp(kept, t->scales[0], sizeof kept) != 0);
    calm_tune_restore(tune);
    ck_assert(memcmp(kept, t->scales[0], sizeof kept) == 0);
    ck_assert(memcmp(values, t->values, sizeof values) == 0);
}
END_OF_TEST

/* After a restart, steps are those of a tuning that begins at the best state. */
TEST(it_restarts_at_the_best)
{
    toy *t = toy_new(), *fresh = toy_new();
    calm_tune *tune, *other;
    ck_ok(calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune));
    for (size_t step = 1; step <= 3; step++) {
        fill(t, step);
        ck_ok(calm_tune_step(ctx, tune, 0.1, step));
        if (step == 2)
            calm_tune_keep(tune);
    }
    calm_tune_restart(tune);
    memcpy(fresh->scales[0], t->scales[0], sizeof t->scales[0]);
    memcpy(fresh->values, t->values, sizeof t->values);
    ck_ok(calm_tune_new(ctx, fresh->linears, 2, &fresh->vector, 1, &other));
    for (size_t step = 1; step <= 2; step++) {
        fill(t, 7 + step);
        fill(fresh, 7 + step);
        ck_ok(calm_tune_step(ctx, tune, 0.05, step));
        ck_ok(calm_tune_step(ctx, other, 0.05, step));
        ck_assert(memcmp(fresh->scales[0], t->scales[0], sizeof t->scales[0]) == 0);
        ck_assert(memcmp(fresh->values, t->values, sizeof t->values) == 0);
    }
}
END_OF_TEST

TEST(what_cannot_be_stored_is_named)
{
    toy *t = toy_new();
    calm_tune *tune;
    ck_ok(calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune));
    fill(t, 1);
    t->grad[5 * IN + 40] = NAN;
    ck_fails(calm_tune_step(ctx, tune, 0.1, 1), CALM_ENUMERIC, "toy: the learned scale of row 5, group 1");
    t = toy_new();
    ck_ok(calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune));
    fill(t, 1);
    t->dvalues[3] = NAN;
    ck_fails(calm_tune_step(ctx, tune, 0.1, 1), CALM_ENUMERIC, "norm: the learned value 3");
}
END_OF_TEST

TEST(memory_is_as_said)
{
    toy *t = toy_new();
    calm_tune *tune;
    t->linears[1].grad = t->grad;    /* the estimate is for linears that all have gradients */
    const size_t said = calm_tune_new_bytes(t->linears, 2, &t->vector, 1);
    ck_memory(calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune), said, 0);
    bool refused = true;
    long at = 1;
    for (; refused && at < 100; at++) {
        ctx->out->fail_in = at;
        refused = calm_tune_new(ctx, t->linears, 2, &t->vector, 1, &tune) != CALM_OK;
        ck_assert(!refused || ctx->status == CALM_ENOMEM);
        ctx->out->fail_in = 0;
        calm_ctx_clear_failure(ctx);
    }
    ck_assert_int_gt(at, 2);
    ck_assert(!refused);
}
END_OF_TEST

int main(void)
{
    return run_tests("tune", (const TTest *[]){steps_are_adams, blocks_of_rows_move_together,
                                               super_blocks_stay_storable, the_best_comes_back,
                                               it_restarts_at_the_best, what_cannot_be_stored_is_named,
                                               memory_is_as_said, NULL});
}
