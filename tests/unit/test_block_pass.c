/* A window through a block, run to measure its time: the values of the passes themselves, and operations by hand. */
#include "ptq/layers/block_pass.h"

#include "ptq/base/rng.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { TOKENS = 9, HIDDEN = 32 };

typedef struct fixture {
    calm_model *model;
    calm_block block;
    calm_rope rope;
    float *x;    /* [T, D] */
} fixture;

static void open_fixture(const char *family, fixture *f)
{
    const tiny_model spec = tiny_of(family);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    ck_ok(calm_model_load_block(ctx, f->model, 1, &f->block));
    ck_ok(calm_rope_init(ctx, calm_model_config(f->model), TOKENS, &f->rope));
    ck_ok(CALM_NEW(ctx, ctx->out, f->x, TOKENS * HIDDEN));
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        f->x[i] = (float)calm_rng_normal(31, 0, i);
}

/* A forward pass leaves gradients unchanged; each backward pass adds the same values; the first norm's gradient is
 * computed only if wanted. */
static void check_pass(const char *family)
{
    fixture f;
    calm_block_pass pass, narrow;
    calm_block_tape *tape;
    float *z;
    const calm_span span = {.n_tokens = TOKENS};
    open_fixture(family, &f);
    ck_ok(calm_block_pass_new(ctx, &f.block, &f.rope, TOKENS, true, &pass));
    ck_ok(calm_block_pass_new(ctx, &f.block, &f.rope, TOKENS, false, &narrow));
    ck_ok(CALM_NEW(ctx, ctx->out, z, TOKENS * HIDDEN));
    ck_ok(calm_block_forward_tape(ctx, &f.block, &f.rope, f.x, &span, z, &tape));
    ck_ok(calm_block_pass_run(ctx, &pass, f.x, TOKENS, false));
    ck_assert_mem_eq(pass.z, z, TOKENS * HIDDEN * sizeof *z);
    const float *const o = pass.grads.weight[CALM_ROLE_O];
    ck_assert(o[0] == 0);
    ck_ok(calm_block_pass_run(ctx, &pass, f.x, TOKENS, true));
    const float once = o[0], *norm = pass.grads.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN];
    ck_assert(once != 0);
    ck_ok(calm_block_pass_run(ctx, &pass, f.x, TOKENS, true));
    ck_assert(o[0] == 2 * once);
    ck_assert_int_eq(norm != NULL, f.block.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN].w != NULL);
    ck_assert(!norm || norm[0] != 0);
    ck_ok(calm_block_pass_run(ctx, &narrow, f.x, TOKENS, true));
    ck_assert_ptr_null(narrow.grads.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN]);
    ck_assert(narrow.grads.weight[CALM_ROLE_O][0] == once);
    calm_model_close(f.model);
}

TEST(passes_are_those_of_the_block)
{
    check_pass("qwen3");
    check_pass("phi3");
    check_pass("bert");
}
END_OF_TEST

/* Only a block whose values are not finite stops the pass. */
TEST(a_value_that_is_not_finite)
{
    fixture f;
    calm_block_pass pass;
    open_fixture("qwen3", &f);
    ck_ok(calm_block_pass_new(ctx, &f.block, &f.rope, TOKENS, false, &pass));
    f.x[3] = NAN;
    ck_fails(calm_block_pass_run(ctx, &pass, f.x, TOKENS, true), CALM_ENUMERIC, "block 1: the output is not finite");
    calm_model_close(f.model);
}
END_OF_TEST

/* q and o of 4 heads of 8; k and v of 2 heads, in the encoder 4; three matrices of 48 in the MLP, in the encoder
 * two; scores and contexts of half a window, in the encoder of a whole one. */
TEST(operations_by_hand)
{
    const double weights = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32, encoder = 4 * 32 * 32 + 2 * 48 * 32;
    fixture f;
    open_fixture("qwen3", &f);
    ck_near(calm_block_operations(f.block.config, weights, 10), 2 * weights + 2 * 10 * 32, 0);
    ck_near(calm_block_window_operations(&f.block, 10), 10 * (2 * weights + 2 * 10 * 32), 0);
    calm_model_close(f.model);
    open_fixture("phi3", &f);    /* fused products count as their parts */
    ck_near(calm_block_window_operations(&f.block, 0), 0, 0);
    ck_near(calm_block_window_operations(&f.block, 1), calm_block_operations(f.block.config, weights, 1), 0);
    calm_model_close(f.model);
    open_fixture("bert", &f);
    ck_near(calm_block_window_operations(&f.block, 10), 10 * (2 * encoder + 4 * 10 * 32), 0);
    calm_model_close(f.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("block_pass", (const TTest *[]){passes_are_those_of_the_block, a_value_that_is_not_finite,
                                                     operations_by_hand, NULL});
}
