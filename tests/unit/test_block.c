/* One block: the values at its hooks fit together, and linears apply scales, quantized inputs and biases. */
#include "ptq/layers/block.h"

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/rng.h"
#include "ptq/model/model.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { TOKENS = 9, HIDDEN = 32, WIDEST = 48 };

#include "tests/support/seen_hooks.h"

static void fill(float *x, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)calm_rng_normal(3, stream, i);
}

/* ---- linears ---- */

/* y = A(x / s) W^T + b: sums of n products and b, at most n + 1 roundings of 2^-24 of the terms' magnitudes. */
TEST(linears)
{
    enum { IN = 5, OUT = 3, N = 4 };
    float w[OUT * IN], bias[OUT], scale[IN], x[N * IN], prepared[N * IN], y[N * OUT];
    fill(w, OUT * IN, 1);
    fill(bias, OUT, 2);
    fill(x, N * IN, 3);
    for (size_t i = 0; i < IN; i++)
        scale[i] = 0.5f + (float)i;
    for (int variant = 0; variant < 16; variant++) {
        const calm_weight weight = {.name = "w", .out = OUT, .in = IN, .w = w, .bias = variant & 1 ? bias : NULL,
                                    .in_scale = variant & 2 ? scale : NULL, .act_bits = variant >= 4 ? 8 : 0,
                                    .act_asymmetric = variant >= 8 && variant < 12,
                                    .act_rule = variant >= 12 ? CALM_ACT_RULE_VLLM : CALM_ACT_RULE_COMPRESSED_TENSORS};
        for (size_t i = 0; i < N * IN; i++)
            prepared[i] = variant & 2 ? x[i] / scale[i % IN] : x[i];
        if (variant >= 4)
            calm_actquant_rows(prepared, N, IN, 8, weight.act_asymmetric, weight.act_rule, 0, prepared);
        const size_t used = ctx->scratch->used_bytes;
        ck_ok(calm_weight_apply(ctx, &weight, x, N, y));
        ck_assert_uint_eq(ctx->scratch->used_bytes, used);
        for (size_t t = 0; t < N; t++)
            for (size_t o = 0; o < OUT; o++) {
                double sum = variant & 1 ? (double)bias[o] : 0, magnitude = fabs(sum);
                for (size_t i = 0; i < IN; i++) {
                    sum += (double)prepared[t * IN + i] * (double)w[o * IN + i];
                    magnitude += fabs((double)prepared[t * IN + i] * (double)w[o * IN + i]);
                }
                ck_near(y[t * OUT + o], sum, (IN + 1) * 0x1p-24 * magnitude);
            }
    }
}
END_OF_TEST

/* dw = dy^T A(x / s), dx = dy W / s (straight through A), dbias = the sum of dy.  Sums of n float32 products and of
 * what was there before, divided by s: at most n + 3 roundings of 2^-24 of the terms' magnitudes. */
TEST(linears_back)
{
    enum { IN = 5, OUT = 3, N = 7 };
    float w[OUT * IN], scale[IN], x[N * IN], prepared[N * IN], dy[N * OUT], dw[OUT * IN], dbias[OUT], dx[N * IN];
    fill(w, OUT * IN, 11);
    fill(x, N * IN, 12);
    fill(dy, N * OUT, 13);
    for (size_t i = 0; i < IN; i++)
        scale[i] = 0.5f + (float)i;
    for (int variant = 0; variant < 8; variant++) {
        const bool add = variant & 4;
        const calm_weight weight = {.name = "w",
                                    .out = OUT,
                                    .in = IN,
                                    .w = w,
                                    .in_scale = variant & 1 ? scale : NULL,
                                    .act_bits = variant & 2 ? 4 : 0,
                                    .act_rule = CALM_ACT_RULE_COMPRESSED_TENSORS};
        for (size_t i = 0; i < N * IN; i++)
            prepared[i] = variant & 1 ? x[i] / scale[i % IN] : x[i];
        if (variant & 2)
            calm_actquant_rows(prepared, N, IN, 4, false, weight.act_rule, 0, prepared);
        for (size_t i = 0; i < OUT * IN; i++)
            dw[i] = 1;
        for (size_t i = 0; i < N * IN; i++)
            dx[i] = 2;
        memset(dbias, 0, sizeof dbias);
        ck_ok(calm_weight_back(ctx, &weight, x, N, dy, dw, dbias, add, dx));
        for (size_t o = 0; o < OUT; o++) {
            double bias = 0, of_bias = 0;
            for (size_t i = 0; i < IN; i++) {
                double sum = 1, magnitude = 1;
                for (size_t t = 0; t < N; t++) {
                    sum += (double)dy[t * OUT + o] * (double)prepared[t * IN + i];
                    magnitude += fabs((double)dy[t * OUT + o] * (double)prepared[t * IN + i]);
                }
                ck_near(dw[o * IN + i], sum, (N + 3) * 0x1p-24 * magnitude);
            }
            for (size_t t = 0; t < N; t++) {
                bias += (double)dy[t * OUT + o];
                of_bias += fabs((double)dy[t * OUT + o]);
            }
            ck_near(dbias[o], bias, (N + 3) * 0x1p-24 * of_bias);
        }
        for (size_t t = 0; t < N; t++)
            for (size_t i = 0; i < IN; i++) {
                const double s = variant & 1 ? (double)scale[i] : 1, before = add ? 2 : 0;
                double sum = before, magnitude = before;
                for (size_t o = 0; o < OUT; o++) {
                    sum += (double)dy[t * OUT + o] * (double)w[o * IN + i] / s;
                    magnitude += fabs((double)dy[t * OUT + o] * (double)w[o * IN + i]) / s;
                }
                ck_near(dx[t * IN + i], sum, (OUT + 3) * 0x1p-24 * magnitude);
            }
    }
}
END_OF_TEST

/* ---- hooks ---- */

typedef struct fixture {
    calm_model *model;
    calm_block block;
    calm_rope rope;
} fixture;

static void open_fixture(const char *family, fixture *f)
{
    tiny_model spec = tiny_of(family);
    spec.window = 4;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    ck_ok(calm_model_load_block(ctx, f->model, 1, &f->block));
    ck_ok(calm_rope_init(ctx, calm_model_config(f->model), TOKENS, &f->rope));
}

/* Tells whether a dense block has the hook in one of its sublayers. */
static bool in_block(const calm_config *config, calm_hook hook)
{
    return calm_hook_in_slot(config, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, hook) !=
           calm_hook_in_slot(config, CALM_SUBLAYER_MLP, CALM_NO_EXPERT, hook);
}

/* Each hook is called once; the block's output is its input plus the outputs of both sublayers; and from the input
 * of each job the sublayer's output is computed again to the bit, on which the scores of candidates rely. */
TEST(hook_points)
{
    static const char *const families[] = {"llama", "qwen2", "gemma2", "gemma3", "phi3", "olmo2", "bert"};
    const calm_span span = {.window = 4, .n_tokens = TOKENS};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        static seen all;
        fixture at;
        float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN], before[TOKENS * HIDDEN];
        memset(&all, 0, sizeof all);
        open_fixture(families[f], &at);
        const calm_config *config = calm_model_config(at.model);
        fill(x, TOKENS * HIDDEN, 5);
        memcpy(before, x, sizeof x);
        ck_ok(calm_block_run(ctx, &at.block, &at.rope, x, &span, &(calm_observer){keep, &all}));
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            ck_assert_msg(all.n[hook] == in_block(config, hook), "%s: %s", families[f], calm_hook_name(hook));
        ck_assert(all.width[CALM_HOOK_GATE] == 48 && all.width[CALM_HOOK_DOWN_IN] == 48 &&
                  all.width[CALM_HOOK_O_IN] == 32);
        ck_assert(memcmp(all.x[CALM_HOOK_BLOCK_OUT], x, sizeof x) == 0);
        for (size_t i = 0; i < TOKENS * HIDDEN && !config->arch->encoder; i++)
            ck_assert(x[i] == (before[i] + all.x[CALM_HOOK_ATTN_OUT][i]) + all.x[CALM_HOOK_MLP_OUT][i]);
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
            if (!calm_slot_has_job(at.block.config, calm_job_sublayer(job), job))
                continue;
            const calm_hook out =
                calm_job_sublayer(job) == CALM_SUBLAYER_ATTENTION ? CALM_HOOK_ATTN_OUT : CALM_HOOK_MLP_OUT;
            ck_ok(calm_block_from_job(ctx, &at.block, &at.rope, job, all.x[calm_job_input(job)], &span, y));
            ck_assert_msg(memcmp(y, all.x[out], sizeof y) == 0, "%s: %s", families[f], calm_job_name(job));
        }
        calm_model_close(at.model);
    }
}
END_OF_TEST

/* Which rows the norms around a sublayer are applied to, by family. */
TEST(where_norms_stand)
{
    static const struct {
        const char *family;
        bool in, out, residual;
    } all[] = {{"llama", true, false, false},
               {"gemma2", true, true, false},
               {"olmo2", false, true, false},
               {"bert", false, false, true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fixture f;
        open_fixture(all[i].family, &f);
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
            ck_assert_int_eq(f.block.norm[s][CALM_NORM_IN].w != NULL, all[i].in);
            ck_assert_int_eq(f.block.norm[s][CALM_NORM_OUT].w != NULL, all[i].out);
            ck_assert_int_eq(f.block.norm[s][CALM_NORM_RESIDUAL].w != NULL, all[i].residual);
        }
        calm_model_close(f.model);
    }
}
END_OF_TEST

static calm_status stop(void *user, calm_ctx *task, const calm_observation *what)
{
    return what->hook == *(const calm_hook *)user ? calm_fail(task, CALM_EINTERRUPTED, "stopped") : CALM_OK;
}

/* An observer that fails ends the block there, at any hook. */
TEST(observers_that_fail)
{
    const calm_span span = {.n_tokens = TOKENS};
    fixture f;
    float x[TOKENS * HIDDEN];
    open_fixture("gemma3", &f);
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
        const calm_observer observer = {stop, &hook};
        fill(x, TOKENS * HIDDEN, 5);
        if (in_block(calm_model_config(f.model), hook))
            ck_fails(calm_block_run(ctx, &f.block, &f.rope, x, &span, &observer), CALM_EINTERRUPTED, "stopped");
    }
    calm_model_close(f.model);
}
END_OF_TEST

TEST(no_memory)
{
    const calm_span span = {.n_tokens = TOKENS};
    fixture f;
    float x[TOKENS * HIDDEN];
    long n = 0;
    calm_status status;
    open_fixture("phi3", &f);
    do {
        fill(x, TOKENS * HIDDEN, 5);
        ctx->scratch->fail_in = ++n;
        status = calm_block_run(ctx, &f.block, &f.rope, x, &span, NULL);
        ck_assert(status == CALM_OK || status == CALM_ENOMEM);
        calm_ctx_clear_failure(ctx);
    } while (status != CALM_OK);
    ck_assert_int_gt(n, 8);
    ctx->scratch->fail_in = 0;
    calm_model_close(f.model);
}
END_OF_TEST

/* Windows of one tile of query rows and of several, with float inputs and quantized ones. */
static void check_memory(const char *family, size_t tokens, bool prepared)
{
    const calm_span span = {.n_tokens = tokens};
    tiny_model spec = tiny_of(family);
    calm_model *model;
    calm_block block;
    calm_rope rope;
    float *x, *y;
    if (strcmp(family, "qwen3") == 0)
        spec.extra = "\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}";
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    calm_config changed = *calm_model_config(model), *config = &changed;
    /* Transforms of all inputs, where each sublayer has a norm before it. */
    for (calm_job_kind job = 0; job < CALM_N_JOBS && tokens > 100 && !prepared; job++)
        changed.hadamard[job] = job == CALM_JOB_DOWN || calm_has_norm(changed.arch, 1, 0, CALM_NORM_IN) ? 16 : 0;
    changed.max_positions = 16;    /* beyond it a window has separate tables */
    ck_ok(calm_model_load_block(ctx, model, 1, &block));
    block.config = config;
    ck_ok(calm_rope_init(ctx, config, tokens, &rope));
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        block.weight[role].act_bits = prepared ? 8 : 0;
    ck_ok(CALM_NEW(ctx, ctx->out, x, tokens * HIDDEN));
    ck_ok(CALM_NEW(ctx, ctx->out, y, tokens * HIDDEN));
    fill(x, tokens * HIDDEN, 7);
    /* Workers hold blocks of query rows; for a wide input of o these are less than its quantization needs. */
    const size_t heads = calm_heads_attend_bytes(config, tokens);
    ck_memory_of_workers(calm_block_attention(ctx, &block, &rope, x, &span, y, NULL), 0,
                         calm_block_attention_scratch_bytes(config, tokens, prepared), 4, heads);
    ck_memory_of_workers(calm_block_sublayer(ctx, &block, CALM_SUBLAYER_ATTENTION, &rope, x, &span, NULL), 0,
                         calm_block_sublayer_scratch_bytes(config, CALM_SUBLAYER_ATTENTION, tokens, prepared), 4,
                         heads);
    ck_memory(calm_block_sublayer(ctx, &block, CALM_SUBLAYER_MLP, &rope, x, &span, NULL), 0,
              calm_block_sublayer_scratch_bytes(config, CALM_SUBLAYER_MLP, tokens, prepared));
    ck_memory(calm_mlp_run(ctx, config, block.weight, x, tokens, y, NULL,
                           &(calm_observation){.expert = CALM_NO_EXPERT}), 0,
              calm_mlp_run_scratch_bytes(config, CALM_NO_EXPERT, tokens, prepared));
    ck_memory(calm_weight_apply(ctx, &block.weight[CALM_ROLE_O], x, tokens, y), 0,
              prepared ? calm_weight_apply_scratch_bytes(config->n_heads * config->head_dim, tokens) : 0);
    calm_model_close(model);
}

TEST(memory)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "bert"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int variant = 0; variant < 4; variant++)
            check_memory(families[f], variant & 1 ? 200 : 9, variant & 2);
}
END_OF_TEST

int main(void)
{
    return run_tests("block",
                     (const TTest *[]){linears, linears_back, hook_points, where_norms_stand, observers_that_fail,
                                       no_memory, memory, NULL});
}
