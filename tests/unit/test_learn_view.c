/* A block as learners see it: a gradient that is derived from others equals that of the backward pass. */
#include "ptq/learn/learn_impl.h"

#include <math.h>

#include "ptq/base/rng.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

enum { TOKENS = 24 };

/* For families whose blocks read them. */
static const uint32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4};

/* Runs one window through the view's block and back, with dx as asked for. */
static void both(const calm_learn_view *view, const calm_rope *rope, size_t width)
{
    const calm_span span = {.n_tokens = TOKENS, .ids = ids};
    calm_block_tape *tape;
    float *x, *z;
    ck_ok(CALM_NEW(ctx, ctx->out, x, TOKENS * width));
    ck_ok(CALM_NEW(ctx, ctx->out, z, TOKENS * width));
    for (size_t i = 0; i < TOKENS * width; i++)
        x[i] = (float)calm_rng_normal(5, 1, i);
    calm_learn_view_clear(view);
    ck_ok(calm_block_forward_tape(ctx, &view->block, rope, x, &span, z, &tape));
    ck_ok(calm_block_back(ctx, &view->block, rope, tape, z, &view->grads, NULL));
    calm_learn_view_complete(view);
}

/* Both sum about T O products in float, in other orders: 1e-5 of the largest covers 24 x 96 of them. */
static void check_family(const char *family, bool implied)
{
    static const char *const schemes[] = {"w4a16_g16"};
    const tiny_model spec = tiny_of(family);
    const calm_learn_view_options options = {.targets = true};
    calm_learn_view view;
    calm_rope rope;
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 1, TINY_GENERAL);
    tiny_plan_pack(&p);
    ck_ok(calm_rope_init(ctx, calm_model_config(p.model), TOKENS, &rope));
    ck_ok(calm_learn_view_open(ctx, p.model, &p.plan, 1, &options, &view));
    ck_assert_msg((view.input_norm_grad != NULL) == implied, "%s", family);
    if (implied) {
        float **slot = &view.grads.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN], found[64], *expected;
        double most = 0;
        ck_assert_uint_le(spec.hidden, 64);
        both(&view, &rope, spec.hidden);
        memcpy(found, view.input_norm_grad, spec.hidden * sizeof *found);
        ck_ok(CALM_NEW(ctx, ctx->out, expected, spec.hidden));
        *slot = expected;
        view.input_norm_grad = NULL;
        both(&view, &rope, spec.hidden);
        for (size_t i = 0; i < spec.hidden; i++)
            most = fmax(most, fabs((double)expected[i]));
        ck_assert(most > 0);
        for (size_t i = 0; i < spec.hidden; i++)
            ck_assert_msg(fabs((double)found[i] - (double)expected[i]) <= 1e-5 * most, "%s: %zu: %g, not %g", family, i,
                          (double)found[i], (double)expected[i]);
    }
    calm_model_close(p.model);
}

TEST(the_input_norms_gradient)
{
    calm_linalg_setup();
    check_family("qwen3", true);
    check_family("gemma3", true);    /* norms stored less one */
    check_family("phi3", true);      /* fused q, k and v                */
    check_family("bert", false);     /* no norm before attention        */
}
END_OF_TEST

/* Returns z [TOKENS, D] of a block. */
static float *output_of(const calm_block *block, const calm_rope *rope, size_t width)
{
    const calm_span span = {.n_tokens = TOKENS, .ids = ids};
    calm_block_tape *tape;
    float *x, *z;
    ck_ok(CALM_NEW(ctx, ctx->out, x, TOKENS * width));
    ck_ok(CALM_NEW(ctx, ctx->out, z, TOKENS * width));
    for (size_t i = 0; i < TOKENS * width; i++)
        x[i] = (float)calm_rng_normal(5, 1, i);
    ck_ok(calm_block_forward_tape(ctx, block, rope, x, &span, z, &tape));
    return z;
}

/* A calm_plan_vectors_fn whose `source` is the vectors. */
static calm_status fetch_vectors(void *user, calm_ctx *task, const void *source, calm_vectors *out)
{
    (void)user;
    (void)task;
    *out = *(const calm_vectors *)source;
    return CALM_OK;
}

/* Block 1, with the jobs of `left` (bits of calm_job_kind) float, is opened, changed as by a learner, and assembled
 * from what would be stored of it: its output is the same to the last bit. */
static void check_kept(const char *family, unsigned left)
{
    static const char *const schemes[] = {"w4a16_g16"};
    const tiny_model spec = tiny_of(family);
    const calm_learn_view_options options = {.targets = true};
    const calm_layout *layout;
    calm_learn_view view;
    calm_vectors vectors;
    calm_rope rope;
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 1, TINY_GENERAL);
    layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        if (left >> layout->jobs[j].kind & 1)
            tiny_plan_quantize(&p, j, "float", TINY_UNSCALED);
    ck_ok(calm_rope_init(ctx, calm_model_config(p.model), TOKENS, &rope));
    ck_ok(calm_learn_view_open(ctx, p.model, &p.plan, 1, &options, &view));
    for (size_t i = 0; i < view.n_linears; i++)
        view.linears[i].codes[0] ^= 1;
    for (size_t i = 0; i < view.n_vectors; i++)
        view.vectors[i].values[0] = calm_dtype_round(view.vectors[i].dtype, view.vectors[i].values[0] + .25f);
    calm_learn_view_decode(ctx, &view);
    const float *expected = output_of(&view.block, &rope, spec.hidden);
    /* What the store keeps. */
    calm_plan learned = p.plan;
    const void **blocks;
    ck_ok(calm_learn_view_vectors(ctx, &view, &vectors));
    ck_ok(CALM_NEW(ctx, ctx->out, blocks, spec.n_blocks));
    blocks[1] = &vectors;
    learned.blocks = blocks;
    learned.vectors = fetch_vectors;
    size_t n_scaled = 0;
    for (size_t j = view.begin; j < view.end; j++) {
        ck_assert(!(p.plan.jobs[j].quantized && view.jobs[j - view.begin].codes == NULL));
        p.qjobs[j] = view.jobs[j - view.begin];
        n_scaled += p.qjobs[j].in_scale != NULL;
    }
    ck_assert_msg((n_scaled > 0) == (left != 0), "%s: %zu input scales are left", family, n_scaled);
    calm_block block;
    calm_plan_override override = {p.model, &learned};
    ck_ok(calm_model_load_block(ctx, p.model, 1, &block));
    ck_ok(calm_plan_apply(&override, ctx, 1, &block));
    const float *found = output_of(&block, &rope, spec.hidden);
    ck_assert_msg(memcmp(found, expected, TOKENS * spec.hidden * sizeof *found) == 0, "%s", family);
    calm_model_close(p.model);
}

TEST(what_is_kept_is_assembled_again)
{
    calm_linalg_setup();
    check_kept("qwen3", 0);
    check_kept("qwen3", 1u << CALM_JOB_QKV | 1u << CALM_JOB_GATE_UP);    /* v and up take scales */
    check_kept("qwen2_moe", 1u << CALM_JOB_GATE_UP);                     /* of each expert       */
    check_kept("deepseek_v3", 1u << CALM_JOB_KV_B);
}
END_OF_TEST

/* Every allocation of the view's arenas fails, and all arenas at rising limits, since assembly has a temporary
 * arena. */
TEST(no_memory)
{
    static const char *const families[] = {"qwen3", "qwen2_moe"};
    static const char *const schemes[] = {"w4a16_g16_asym"};
    for (int i = 0; i < 2; i++) {
        const tiny_model spec = tiny_of(families[i]);
        const calm_learn_view_options options = {.targets = true};
        calm_learn_view view;
        calm_vectors vectors;
        tiny_plan p;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, schemes, 1, TINY_GENERAL);
        tiny_plan_pack(&p);
        ck_allocations(ctx->out, 20, calm_learn_view_open(ctx, p.model, &p.plan, 1, &options, &view));
        ck_allocations(ctx->scratch, 1, calm_learn_view_open(ctx, p.model, &p.plan, 1, &options, &view));
        ck_limits((size_t)1 << 15, 2, calm_learn_view_open(ctx, p.model, &p.plan, 1, &options, &view));
        ck_assert_uint_gt(view.n_linears, 6);
        ((float *)(uintptr_t)*view.all[0].at)[0] += 1;
        ck_allocations(ctx->out, 2, calm_learn_view_vectors(ctx, &view, &vectors));
        ck_assert_uint_gt(vectors.count, 0);
        calm_model_close(p.model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("learn_view", (const TTest *[]){the_input_norms_gradient, what_is_kept_is_assembled_again,
                                                     no_memory, NULL});
}
