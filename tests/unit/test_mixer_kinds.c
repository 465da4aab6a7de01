/* Blocks whose mixer is a gated delta net, a short convolution or Mamba-2: their hooks, the outputs by which each
 * job's candidates are scored, and their estimates of memory.  Their values are tested by the reference fixtures
 * (golden.test_model_fixtures) and by test_delta.c, test_convolution.c and test_mamba.c. */
#include "ptq/layers/block.h"

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/rng.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define TOKENS 150    /* two chunks of the delta rule, and some */
#define HIDDEN 32
#define WIDEST 128

#include "tests/support/seen_hooks.h"

static const char *const families[] = {"qwen3_5", "qwen3_5_moe", "qwen3_next", "lfm2", "lfm2_moe", "granite_hybrid",
                                      "granitemoehybrid", "nemotron_h"};
#define N_FAMILIES (sizeof families / sizeof *families)

typedef struct fixture {
    calm_model *model;
    calm_block block;    /* block 0, which has the family's special mixer */
    calm_rope rope;
    float *x;
} fixture;

static void open_fixture(const char *family, fixture *f)
{
    const tiny_model spec = tiny_of(family);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    ck_ok(calm_model_load_block(ctx, f->model, 0, &f->block));
    ck_ok(calm_rope_init(ctx, calm_model_config(f->model), TOKENS, &f->rope));
    ck_ok(CALM_NEW(ctx, ctx->out, f->x, TOKENS * HIDDEN));
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        f->x[i] = (float)calm_rng_normal(5, 0, i);
}

/* Each hook of the kind is called once with the width that the table says, and no other; from the input of each job
 * the output is computed again, on which scores rely. */
TEST(hook_points)
{
    const calm_span span = {.window = 4, .n_tokens = TOKENS};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        static seen all;
        fixture f;
        float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN];
        memset(&all, 0, sizeof all);
        open_fixture(families[i], &f);
        const calm_config *config = f.block.config;
        const calm_kind *kind = calm_block_kind(&f.block, CALM_SUBLAYER_ATTENTION);
        ck_assert_str_eq(kind->name, i < 3 ? "delta" : i < 5 ? "conv" : "mamba");
        memcpy(x, f.x, sizeof x);
        ck_ok(calm_block_sublayer(ctx, &f.block, CALM_SUBLAYER_ATTENTION, &f.rope, x, &span,
                                  &(calm_observer){keep, &all}));
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
            const bool has = calm_hook_in_slot(config, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, hook);
            ck_assert_msg(all.n[hook] == has, "%s: %s", families[i], calm_hook_name(hook));
            ck_assert(!has || all.width[hook] == calm_hook_width(config, hook, CALM_NO_EXPERT));
        }
        for (size_t j = 0; j < kind->n_jobs; j++) {
            const calm_job_kind from = calm_job_scored_from(config, kind->jobs[j].job);
            const float *input = all.x[calm_job_input(from)];
            ck_ok(calm_block_from_job(ctx, &f.block, &f.rope, kind->jobs[j].job, input, &span, y));
            ck_assert(memcmp(y, all.x[CALM_HOOK_ATTN_OUT], sizeof y) == 0);
        }
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* Observed gates: a decay does not grow, a share is between 0 and 1, a norm is not negative. */
TEST(what_gates_show)
{
    const calm_span span = {.window = 4, .n_tokens = TOKENS};
    for (size_t i = 0; i < 3; i++) {
        static seen all;
        fixture f;
        float y[TOKENS * HIDDEN];
        open_fixture(families[i], &f);
        ck_ok(calm_block_kind(&f.block, CALM_SUBLAYER_ATTENTION)->run(ctx, &f.block, &f.rope, f.x, &span, y,
                                                                       &(calm_observer){keep, &all}));
        const size_t heads = f.block.config->delta.n_value_heads;
        for (size_t t = 0; t < TOKENS * heads; t++) {
            ck_assert(all.x[CALM_HOOK_DELTA_DECAY][t] < 0);
            ck_assert(all.x[CALM_HOOK_DELTA_BETA][t] > 0 && all.x[CALM_HOOK_DELTA_BETA][t] < 1);
            ck_assert(all.x[CALM_HOOK_DELTA_STATE][t] > 0);
        }
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* Steps are not negative, and the memory fades by the step times a rate of each head. */
TEST(what_steps_show)
{
    const calm_span span = {.window = 4, .n_tokens = TOKENS};
    static seen all;
    fixture f;
    float y[TOKENS * HIDDEN];
    open_fixture("granite_hybrid", &f);
    ck_ok(calm_block_kind(&f.block, CALM_SUBLAYER_ATTENTION)->run(ctx, &f.block, &f.rope, f.x, &span, y,
                                                                   &(calm_observer){keep, &all}));
    const size_t heads = f.block.config->mamba.shape.n_heads;
    for (size_t i = 0; i < TOKENS * heads; i++) {
        const double step = (double)all.x[CALM_HOOK_MAMBA_STEP][i], decay = (double)all.x[CALM_HOOK_MAMBA_DECAY][i];
        const double rate = exp((double)f.block.plain[CALM_PLAIN_MAMBA_A_LOG].w[i % heads]);
        ck_assert(step > 0);
        /* A float32 exponential, within two units of 2^-23, and the rounding of a product. */
        ck_near(decay, -rate * step, (4 + 1) * 0x1p-24 * rate * step);
        ck_assert(all.x[CALM_HOOK_MAMBA_STATE][i] > 0);
    }
    calm_model_close(f.model);
}
END_OF_TEST

/* The same bytes for any number of threads, for a window alone and among others, with and without an observer. */
TEST(same_bytes)
{
    const calm_span span = {.window = 4, .n_tokens = TOKENS};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        static seen all;
        fixture f;
        float y[TOKENS * HIDDEN], again[TOKENS * HIDDEN];
        open_fixture(families[i], &f);
        const calm_kind *kind = calm_block_kind(&f.block, CALM_SUBLAYER_ATTENTION);
        ctx->n_threads = 1;
        ck_ok(kind->run(ctx, &f.block, &f.rope, f.x, &span, y, NULL));
        for (ctx->n_threads = 2; ctx->n_threads < 5; ctx->n_threads++) {
            ck_ok(kind->run(ctx, &f.block, &f.rope, f.x, &span, again, &(calm_observer){keep, &all}));
            ck_assert(memcmp(y, again, sizeof y) == 0);
        }
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* A token does not depend on later ones. */
TEST(causal)
{
    const calm_span span = {.window = 4, .n_tokens = TOKENS}, head = {.window = 4, .n_tokens = 70};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        fixture f;
        float y[TOKENS * HIDDEN], first[TOKENS * HIDDEN];
        double worst = 0;
        open_fixture(families[i], &f);
        const calm_kind *kind = calm_block_kind(&f.block, CALM_SUBLAYER_ATTENTION);
        ck_ok(kind->run(ctx, &f.block, &f.rope, f.x, &span, y, NULL));
        ck_ok(kind->run(ctx, &f.block, &f.rope, f.x, &head, first, NULL));
        /* Products of other sizes round in another order: 1e-6 of values around 1. */
        for (size_t t = 0; t < 70 * HIDDEN; t++)
            worst = test_worse(worst, fabs((double)y[t] - (double)first[t]));
        ck_near(worst, 0, 1e-5);
        calm_model_close(f.model);
    }
}
END_OF_TEST

static void check_memory(const char *family, size_t n_tokens, bool prepared)
{
    const calm_span span = {.n_tokens = n_tokens};
    fixture f;
    float *y;
    open_fixture(family, &f);
    const calm_kind *kind = calm_block_kind(&f.block, CALM_SUBLAYER_ATTENTION);
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        f.block.weight[role].act_bits = prepared ? 8 : 0;
    ck_ok(CALM_NEW(ctx, ctx->out, y, n_tokens * HIDDEN));
    const size_t helper = kind->helper_bytes ? kind->helper_bytes(f.block.config, n_tokens) : 0;
    /* Workers' memory is additional to the larger of two sums that workers do not hold. */
    ctx->n_threads = 1;
    ck_memory_of_workers(kind->run(ctx, &f.block, &f.rope, f.x, &span, y, NULL), 0,
                         kind->scratch_bytes(f.block.config, n_tokens, prepared), 6, helper);
    calm_model_close(f.model);
}

TEST(memory)
{
    static const size_t lengths[] = {1, 40, 64, 150};
    for (size_t i = 0; i < N_FAMILIES; i++)
        for (size_t l = 0; l < 4; l++) {
            check_memory(families[i], lengths[l], false);
            check_memory(families[i], lengths[l], true);
        }
}
END_OF_TEST

/* A tensor of another shape, and a missing one. */
TEST(plain_tensors_are_checked)
{
    static const char *const names[] = {"linear_attn.conv1d.weight", "linear_attn.A_log", "linear_attn.dt_bias",
                                        "linear_attn.norm.weight"};
    calm_model *model;
    for (size_t i = 0; i < 4; i++) {
        tiny_model spec = tiny_of("qwen3_5");
        spec.missing = test_format("model.layers.0.%s", names[i]);
        ck_fails(calm_model_open(ctx, tiny_model_write(&spec), &model), CALM_ENOTFOUND, spec.missing);
        spec.as_integers = spec.missing;
        spec.missing = NULL;
        ck_fails(calm_model_open(ctx, tiny_model_write(&spec), &model), CALM_EFORMAT, spec.as_integers);
    }
    tiny_model spec = tiny_of("lfm2");
    spec.missing = "model.layers.0.conv.conv.weight";
    ck_fails(calm_model_open(ctx, tiny_model_write(&spec), &model), CALM_ENOTFOUND, spec.missing);
    spec.missing = NULL;
    spec.transposed = "model.layers.0.conv.conv.weight";
    ck_fails(calm_model_open(ctx, tiny_model_write(&spec), &model), CALM_EFORMAT, "model.layers.0.conv.conv.weight");
    static const char *const of_mamba[] = {"conv1d.weight", "conv1d.bias", "A_log", "D", "dt_bias", "norm.weight",
                                           "in_proj.weight", "out_proj.weight"};
    for (size_t i = 0; i < 8; i++) {
        spec = tiny_of("granite_hybrid");
        spec.missing = test_format("model.layers.0.mamba.%s", of_mamba[i]);
        ck_fails(calm_model_open(ctx, tiny_model_write(&spec), &model), CALM_ENOTFOUND, spec.missing);
    }
    spec.missing = NULL;
    spec.transposed = "model.layers.0.mamba.in_proj.weight";
    ck_fails(calm_model_open(ctx, tiny_model_write(&spec), &model), CALM_EFORMAT, "mamba_d_state (ssm_state_size)");
}
END_OF_TEST

int main(void)
{
    return run_tests("mixer_kinds", (const TTest *[]){hook_points, what_gates_show, what_steps_show, same_bytes, causal,
                                                      memory,
                                                      plain_tensors_are_checked, NULL});
}
