/* Gradients of the divergence by scales and norms of a whole model, against differences of the divergence. */
#include "ptq/learn/learn_impl.h"

#include <math.h>

#include "ptq/base/rng.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

enum { TOKENS = 24, WINDOWS = 2 };

typedef struct toy {
    calm_run run;
    calm_tuning tuning;
    tiny_plan plan;
    size_t first;        /* first window of the step, which ends with the last */
} toy;

static void toy_open(const char *family, const char *scheme, bool mini, toy *t)
{
    const tiny_model spec = tiny_of(family);
    const char *const schemes[] = {scheme};
    *t = (toy){.tuning = {.floats.hidden.file = -1, .entering.hidden.file = -1, .mini = mini}};
    tiny_plan_open(&t->plan, tiny_model_write(&spec));
    tiny_plan_quantize_all(&t->plan, schemes, 1, TINY_GENERAL);
    tiny_plan_pack(&t->plan);
    t->run.in.model = t->plan.model;
    calm_windows *windows = &t->run.in.calib;
    *windows = (calm_windows){.n = WINDOWS, .longest = TOKENS};
    ck_ok(CALM_NEW(ctx, ctx->out, windows->begin, WINDOWS + 1));
    ck_ok(CALM_NEW(ctx, ctx->out, windows->ids, WINDOWS * TOKENS));
    for (size_t i = 0; i < WINDOWS * TOKENS; i++)
        windows->ids[i] = (uint32_t)(calm_rng_uniform(3, 1, i) * (double)spec.vocab);
    for (size_t w = 0; w <= WINDOWS; w++)
        windows->begin[w] = w * TOKENS;
    ck_ok(calm_rope_init(ctx, calm_model_config(t->plan.model), TOKENS, &t->run.rope));
    t->tuning.of = (calm_learn_stage){.p = &t->run, .start = &t->plan.plan};
    ck_ok(CALM_NEW(ctx, ctx->out, t->tuning.of.blocks, spec.n_blocks));
    for (size_t b = 0; b < spec.n_blocks; b++)
        ck_ok(CALM_NEW(ctx, ctx->out, t->tuning.of.blocks[b], 1));
    ck_ok(calm_tuning_open(ctx, &t->tuning));
    /* Sentences form a step together. */
    t->first = calm_inputs_encode(&t->run.in) ? 0 : 1;
    ck_assert_uint_eq(calm_tuning_end(&t->run, t->first, WINDOWS), WINDOWS);
}

static void toy_close(toy *t)
{
    calm_batch_close(&t->tuning.floats);
    calm_batch_close(&t->tuning.entering);
    calm_model_close(t->plan.model);
}

/* Returns the loss of a step, with the relations of the last attention, which the last block's backward pass sets. */
static double divergence(toy *t)
{
    const size_t last = calm_model_config(t->plan.model)->n_blocks - 1;
    double kl;
    float *d;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, d, WINDOWS * TOKENS * t->tuning.floats.width));
    ck_ok(calm_tuning_divergence(ctx, &t->tuning, t->first, WINDOWS, NULL, &kl));
    if (t->tuning.mini)
        ck_ok(calm_tuning_back(ctx, &t->tuning, last, t->first, WINDOWS, d));
    return kl + (t->tuning.mini ? t->tuning.relations : 0);
}

/* Returns the derivative by the logarithm of values [n] together, from two points. */
static double slope(toy *t, float *values, size_t n, double step)
{
    double kl[2];
    float *kept;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, kept, n));
    memcpy(kept, values, n * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            values[i] = (float)((double)kept[i] * exp(side ? step : -step));
        kl[side] = divergence(t);
    }
    memcpy(values, kept, n * sizeof *kept);
    return (kl[1] - kl[0]) / (2 * step);
}

/* Compares sums of gradients over whole linears and norms with slopes.  With a step of 1/200 the divergence, whose
 * rounding is below 1e-6, gives a slope good to 1e-4 and to the third derivative's share, (1/200)^2 / 6 of it;
 * rounding grows with a loss above 1. */
static void check_block(toy *t, const char *family, size_t b, double loss, double *most)
{
    const double step = 5e-3;
    const calm_learn_view *view = &t->tuning.views[b];
    double *expected;
    ck_ok(CALM_NEW(ctx, ctx->out, expected, view->n_linears + view->n_vectors));
    for (size_t i = 0; i < view->n_linears; i++) {
        const calm_learn_linear *linear = &view->linears[i];
        for (size_t j = 0; linear->grad && j < linear->out * linear->in; j++)
            expected[i] += (double)linear->grad[j] * (double)linear->effective[j];
    }
    for (size_t i = 0; i < view->n_vectors; i++)
        for (size_t j = 0; j < view->vectors[i].n; j++)
            expected[view->n_linears + i] += (double)view->vectors[i].grad[j] * (double)view->vectors[i].values[j];
    for (size_t i = 0; i < view->n_linears + view->n_vectors; i++) {
        const bool is_linear = i < view->n_linears;
        const calm_learn_linear *linear = &view->linears[i];
        const calm_learn_vector *vector = &view->vectors[i - view->n_linears];
        const double found = is_linear ? slope(t, linear->scales, linear->out * linear->n_groups, step)
                                       : slope(t, vector->values, vector->n, step);
        ck_assert_msg(fabs(found - expected[i]) <= 1e-4 * fmax(1, loss) + 1e-2 * fabs(found),
                      "%s: block %zu, %s: slope %g, gradient %g", family, b,
                      is_linear ? linear->name : vector->name, found, expected[i]);
        *most = fmax(*most, fabs(found));
    }
}

static void check_slopes(const char *family, bool mini)
{
    toy t;
    double kl, most = 0;
    toy_open(family, "w2a16_g16", mini, &t);
    float *d;
    ck_ok(CALM_NEW(ctx, ctx->out, d, WINDOWS * TOKENS * t.tuning.floats.width));
    /* Gradients are of the block that ran last: they are compared after each block, before that of its input
     * continues. */
    ck_ok(calm_tuning_divergence(ctx, &t.tuning, t.first, WINDOWS, d, &kl));
    ck_assert(kl > 1e-3);
    for (size_t b = calm_model_config(t.plan.model)->n_blocks; b-- > 0;) {
        ck_ok(calm_tuning_back(ctx, &t.tuning, b, t.first, WINDOWS, d));
        const double all = kl + (mini ? t.tuning.relations : 0);
        check_block(&t, family, b, all, &most);
        ck_assert(fabs(divergence(&t) - all) <= 1e-6 * all);
    }
    ck_assert_msg(most > 2e-3, "%s: %g", family, most);
    ck_assert(!mini || t.tuning.relations > 1e-3);
    toy_close(&t);
}

TEST(slopes)
{
    static const char *const families[] = {"qwen3", "gemma3", "phi3", "llama", "qwen3_moe", "bert", "mpnet",
                                           NULL};
    calm_linalg_setup();
    for (int f = 0; families[f]; f++)
        check_slopes(families[f], false);
}
END_OF_TEST

/* Positions in embeddings, in a table of distances, by rotary embeddings; windows of keys; grouped keys with norms. */
TEST(slopes_of_relations)
{
    static const char *const families[] = {"bert", "mpnet", "embeddinggemma", NULL};
    calm_linalg_setup();
    for (int f = 0; families[f]; f++)
        check_slopes(families[f], true);
}
END_OF_TEST

/* Opens and closes a step, whatever opening returns. */
static calm_status open_and_close(toy *t)
{
    calm_tuning again = {.of = t->tuning.of, .floats.hidden.file = -1, .entering.hidden.file = -1,
                         .mini = t->tuning.mini};
    const calm_status status = calm_tuning_open(ctx, &again);
    calm_batch_close(&again.floats);
    calm_batch_close(&again.entering);
    return status;
}

/* Runs one step: forward, and back through all blocks. */
static calm_status step(toy *t, float *d, double *loss)
{
    CALM_TRY(calm_tuning_divergence(ctx, &t->tuning, t->first, WINDOWS, d, loss));
    for (size_t b = calm_model_config(t->plan.model)->n_blocks; b-- > 0;)
        CALM_TRY(calm_tuning_back(ctx, &t->tuning, b, t->first, WINDOWS, d));
    return CALM_OK;
}

/* A step that was refused changes nothing that the next one reads. */
TEST(no_memory)
{
    static const char *const families[] = {"qwen3", "qwen3_moe", "bert"};
    for (int f = 0; f < 3; f++) {
        toy t;
        float *d;
        double expected, loss;
        toy_open(families[f], "w2a16_g16", f == 2, &t);    /* the encoder with its relations */
        ck_ok(CALM_NEW(ctx, ctx->out, d, WINDOWS * TOKENS * t.tuning.floats.width));
        ck_ok(step(&t, d, &expected));
        ck_allocations(ctx->out, 30, open_and_close(&t));
        ck_allocations(ctx->scratch, 1, open_and_close(&t));
        ck_limits((size_t)1 << 16, 2, open_and_close(&t));
        ck_allocations(ctx->scratch, 20, step(&t, d, &loss));
        ck_assert(loss == expected);
        ck_limits((size_t)1 << 15, 1, step(&t, d, &loss));
        ck_assert(loss == expected);
        toy_close(&t);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("learn_divergence", (const TTest *[]){slopes, slopes_of_relations, no_memory, NULL});
}
