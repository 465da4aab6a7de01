/* Batches of windows: the same bits however they are cut, stored, and distributed over threads. */
#include "ptq/model/forward.h"

#include "ptq/arch/arch.h"
#include "ptq/base/rng.h"
#include "ptq/layers/moe.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static const size_t lengths[] = {5, 1, 140, 12};
enum { N_WINDOWS = sizeof lengths / sizeof *lengths };

/* Returns the hidden states after all blocks and the final norm for windows first .. first + n - 1. */
static float *run_with(const calm_model *model, const calm_rope *rope, const calm_windows *windows, size_t first,
                       size_t n, const char *spill_dir)
{
    calm_batch batch;
    calm_head head;
    float *x, *copy;
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_embed(ctx, model, windows, first, n, ctx->out, spill_dir, &batch));
    ck_assert_int_eq(batch.hidden.file >= 0, spill_dir != NULL);
    for (size_t i = 0; i < calm_model_config(model)->n_blocks; i++) {
        calm_block block;
        ck_ok(calm_model_load_block(ctx, model, i, &block));
        ck_ok(calm_batch_block(ctx, &block, rope, &batch, NULL));
    }
    ck_ok(calm_batch_norm(ctx, &head.norm, &batch));
    ck_ok(calm_row_store_get(ctx, &batch.hidden, 0, batch.rows, &x));
    ck_ok(CALM_NEW(ctx, ctx->out, copy, batch.rows * batch.width));
    memcpy(copy, x, batch.rows * batch.width * sizeof *x);
    calm_batch_close(&batch);
    return copy;
}

static float *run(const calm_model *model, const calm_windows *windows, size_t first, size_t n, const char *spill_dir)
{
    calm_rope rope;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), calm_windows_reach(windows), &rope));
    return run_with(model, &rope, windows, first, n, spill_dir);
}

static calm_model *open_family(const char *family)
{
    calm_model *model;
    tiny_model spec = tiny_of(family);
    spec.window = 7;
    calm_linalg_setup();
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    return model;
}

TEST(threads_and_files)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        calm_model *model = open_family(tiny_families[f]);
        const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
        const size_t bytes = windows.begin[N_WINDOWS] * 32 * sizeof(float);
        const float *expected = run(model, &windows, 0, N_WINDOWS, NULL);
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            ck_assert(isfinite(expected[i]));
        for (int threads = 1; threads <= 3; threads += 2) {
            ctx->n_threads = threads;
            ck_assert(memcmp(run(model, &windows, 0, N_WINDOWS, NULL), expected, bytes) == 0);
            ck_assert(memcmp(run(model, &windows, 0, N_WINDOWS, test_directory()), expected, bytes) == 0);
        }
        ctx->n_threads = 1;
        calm_model_close(model);
    }
}
END_OF_TEST

/* Windows are independent: alone, each has the rows that it has among others.  In a mixture an expert's tokens are
 * then multiplied in other groups, which changes sums of 48 products by their rounding: 48 x 2^-24 x 100. */
TEST(windows_alone)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        calm_model *model = open_family(tiny_families[f]);
        const bool mixture = calm_model_config(model)->moe.n_experts > 0;
        const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
        const float *all = run(model, &windows, 0, N_WINDOWS, NULL);
        for (size_t w = 0; w < N_WINDOWS; w++) {
            const float *alone = run(model, &windows, w, 1, NULL), *among = all + windows.begin[w] * 32;
            for (size_t i = 0; i < lengths[w] * 32; i++)
                ck_near(alone[i], among[i], mixture ? 48 * 0x1p-24 * 100 : 0);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

/* Moves each angle of a table by 2^-24 of itself and of 1, up or down. */
static void move_angles(calm_rope_table *table)
{
    float *cosines, *sines;
    const size_t n = table->n_positions * table->half;
    ck_ok(CALM_NEW(ctx, ctx->out, cosines, n));
    ck_ok(CALM_NEW(ctx, ctx->out, sines, n));
    for (size_t i = 0; i < n; i++) {
        const size_t one = table->half + i % table->half;
        const double frequency = atan2((double)table->sin[one], (double)table->cos[one]);
        const double angle = (double)(i / table->half) * frequency, by = 0x1p-24 * (angle + 1);
        const double x = (double)table->cos[i], y = (double)table->sin[i];
        const double sign = calm_rng_uniform(9, 1, i) < 0.5 ? -1 : 1;
        cosines[i] = (float)(x - sign * by * y);
        sines[i] = (float)(y + sign * by * x);
    }
    table->cos = cosines;
    table->sin = sines;
}

static double farthest(const float *a, const float *b, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = test_worse(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

/* Returns how far outputs move with the angles. */
static double moved(const calm_model *model, const calm_windows *windows, const float *expected)
{
    calm_rope rope;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), calm_windows_reach(windows), &rope));
    for (calm_rope_set set = 0; set < CALM_N_ROPES; set++)
        for (size_t beyond = 0; beyond < 2; beyond++)
            if (rope.table[set][beyond].half)
                move_angles(&rope.table[set][beyond]);
    return farthest(run_with(model, &rope, windows, 0, N_WINDOWS, NULL), expected, windows->begin[N_WINDOWS] * 32);
}

/* Explicit positions 0, 1, ... are the default ones.  A shift by 9 changes encoders only, since rotary embeddings
 * depend on differences, up to roundings: of an angle by at most 2^-24 of it, with a third of that in the mean of
 * squares, in two runs; and of cos and sin by 2^-25.  Angles that move by more, up or down, move the outputs more; the
 * farthest of all outputs moves by at least the standard deviation of any, of which 8 are the bound. */
TEST(positions)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        calm_model *model = open_family(tiny_families[f]);
        calm_windows windows = tiny_windows(lengths, N_WINDOWS);
        const size_t n = windows.begin[N_WINDOWS];
        const float *expected = run(model, &windows, 0, N_WINDOWS, NULL);
        ck_ok(CALM_NEW(ctx, ctx->out, windows.positions, n));
        for (size_t w = 0; w < N_WINDOWS; w++)
            for (size_t i = windows.begin[w]; i < windows.begin[w + 1]; i++)
                windows.positions[i] = (uint32_t)(i - windows.begin[w]);
        ck_assert(memcmp(run(model, &windows, 0, N_WINDOWS, NULL), expected, n * 32 * sizeof *expected) == 0);
        const double most = 8 * moved(model, &windows, expected);
        for (size_t i = 0; i < n; i++)
            windows.positions[i] += 9;
        const float *shifted = run(model, &windows, 0, N_WINDOWS, NULL);
        const double worst = farthest(shifted, expected, n * 32);
        /* q of Ministral 3 grows with the position; Hunyuan weights rotated channels. */
        const calm_config *config = calm_model_config(model);
        if (config->arch->encoder || config->arch->late_qk_norm || config->query_growth.beta > 0) {
            ck_assert(worst > 0.1);
        } else {
            ck_assert_msg(worst <= most, "%s: off by %g, expected at most %g", tiny_families[f], worst, most);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

/* A later token changes nothing before it, except in encoders. */
TEST(causality)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        calm_model *model = open_family(tiny_families[f]);
        const size_t length = 20;
        calm_windows windows = tiny_windows(&length, 1);
        const float *before = run(model, &windows, 0, 1, NULL);
        windows.ids[19] = (windows.ids[19] + 1) % 61;
        const float *after = run(model, &windows, 0, 1, NULL);
        const bool same = memcmp(before, after, 19 * 32 * sizeof *before) == 0;
        ck_assert(memcmp(before + 19 * 32, after + 19 * 32, 32 * sizeof *before) != 0);
        if (calm_model_config(model)->arch->encoder)
            ck_assert(!same);
        else if (!calm_model_config(model)->moe.n_experts)    /* other tokens change an expert's group */
            ck_assert_msg(same, "%s", tiny_families[f]);
        calm_model_close(model);
    }
}
END_OF_TEST

static calm_status count_blocks(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    size_t *next = user;
    ck_assert(index == *next && block->index == index);
    (void)task;
    ++*next;
    return CALM_OK;
}

static calm_status refuse(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    (void)user;
    (void)block;
    return index == 0 ? CALM_OK : calm_fail(task, CALM_EARG, "no block %zu today", index);
}

TEST(whole_model)
{
    calm_model *model = open_family("gemma3");
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    const float *expected = run(model, &windows, 1, 2, NULL);
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    size_t next = 0;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows.longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, &windows, 1, 2, count_blocks, &next, ctx->out, &batch));
    ck_assert_uint_eq(next, 2);
    ck_assert(memcmp(batch.hidden.data, expected, batch.rows * 32 * sizeof *expected) == 0);
    calm_batch_close(&batch);
    ck_fails(calm_batch_forward(ctx, model, &rope, &head, &windows, 1, 2, refuse, NULL, ctx->out, &batch), CALM_EARG,
             "no block 1 today");
    calm_model_close(model);
}
END_OF_TEST

TEST(windows_within_a_budget)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);    /* the longest: 140 */
    const size_t one = 140 * 32 * sizeof(float);
    ck_assert_uint_eq(calm_batch_windows(&windows, 32, 0), 1);
    ck_assert_uint_eq(calm_batch_windows(&windows, 32, 2 * one - 1), 1);
    ck_assert_uint_eq(calm_batch_windows(&windows, 32, 2 * one), 2);
    ck_assert_uint_eq(calm_batch_count(N_WINDOWS, 140, 32, 2 * one), 2);
    ck_assert_uint_eq(calm_batch_count(N_WINDOWS, 0, 32, 2 * one), N_WINDOWS);
}
END_OF_TEST

TEST(failures)
{
    calm_model *model = open_family("qwen3");
    calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_batch batch;
    calm_rope rope;
    calm_block block;
    windows.ids[3] = 1000;
    ck_fails(calm_batch_embed(ctx, model, &windows, 0, N_WINDOWS, ctx->out, test_directory(), &batch), CALM_EARG,
             "token id 1000");
    ck_assert_int_eq(batch.hidden.file, -1);
    windows.ids[3] = 0;
    ck_fails(calm_batch_embed(ctx, model, &windows, 0, N_WINDOWS, ctx->out, "/nowhere", &batch), CALM_ENOTFOUND,
             "/nowhere");
    ck_ok(calm_batch_embed(ctx, model, &windows, 0, N_WINDOWS, ctx->out, NULL, &batch));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), 100, &rope));
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    ck_fails(calm_batch_block(ctx, &block, &rope, &batch, NULL), CALM_EARG, "a window of 140 positions");
    calm_model_close(model);
}
END_OF_TEST

/* Windows have one length, so that all workers hold the same, and are wide enough that chunks count little. */
TEST(memory)
{
    static const size_t same[] = {140, 140, 140, 140};
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        const calm_windows windows = tiny_windows(same, 4);
        calm_model *model;
        calm_batch batch;
        calm_rope rope;
        calm_block block;
        size_t begin, end;
        spec.hidden = 256;
        spec.head_dim = 64;
        spec.inner = 512;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        const calm_config *config = calm_model_config(model);
        const bool mixture = config->moe.n_experts > 0;
        ck_ok(calm_rope_init(ctx, config, 140, &rope));
        ck_ok(calm_model_load_block(ctx, model, 1, &block));
        ck_ok(calm_batch_embed(ctx, model, &windows, 0, 4, ctx->out, NULL, &batch));
        calm_layout_fold_set(calm_model_layout(model), 1, CALM_SUBLAYER_MLP, mixture ? 0 : CALM_NO_EXPERT, &begin,
                             &end);
        const size_t expert = mixture ? calm_model_load_jobs_bytes(model, begin, end) : 0;
        const size_t alone = calm_batch_block_scratch_bytes(config, 1, 4, 140, expert, false, 1);
        for (int threads = 1; threads <= 2; threads++) {
            ctx->n_threads = threads;
            const size_t said = calm_batch_block_scratch_bytes(config, 1, 4, 140, expert, false, (size_t)threads);
            /* Tokens are spread unevenly over five experts, which may halve what is held.  On a busy machine one worker
             * may do everything, so the lower bound is that of one.  The upper bound adds an expert with all
             * tokens. */
            const size_t more = mixture ? calm_moe_experts_scratch_bytes(config, 1, 560) +
                                              (size_t)threads * calm_moe_expert_scratch_bytes(config, 560) : 0;
            test_memory_begin();
            ck_ok(calm_batch_block(ctx, &block, &rope, &batch, NULL));
            const size_t most = test_memory_end().most;
            ck_assert_msg(2 * most >= alone && most <= said + more + 6 * CALM_ARENA_CHUNK, "%s: %zu, said %zu",
                          tiny_families[f], most, said);
        }
        ctx->n_threads = 1;
        calm_model_close(model);
    }
}
END_OF_TEST

/* Runs block 0 sublayer by sublayer, with rows in memory or in a file. */
static void run_apart(const calm_model *model, const calm_block *block, const calm_rope *rope,
                      const calm_windows *windows, const char *spill_dir, float *out)
{
    calm_batch batch;
    ck_ok(calm_batch_embed(ctx, model, windows, 0, windows->n, ctx->out, spill_dir, &batch));
    ck_ok(calm_batch_new_shared(ctx, calm_model_config(model), ctx->out, &batch));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        ck_ok(calm_batch_sublayer(ctx, block, s, rope, &batch, NULL));
    ck_ok(calm_row_store_read(ctx, &batch.hidden, 0, batch.rows, out));
    calm_batch_close(&batch);
}

/* The rows are those of both sublayers at once, also in a family whose MLP reads the attention's input; without
 * memory for that input the sublayers are refused. */
TEST(sublayers_one_by_one)
{
    static const char *const families[] = {"cohere2", "granite", "llama"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        calm_model *model = open_family(families[f]);
        const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
        const size_t n = windows.begin[N_WINDOWS] * 32;
        calm_rope rope;
        calm_block block;
        calm_batch batch;
        float *apart;
        ck_ok(CALM_NEW(ctx, ctx->out, apart, n));
        ck_ok(calm_rope_init(ctx, calm_model_config(model), calm_windows_reach(&windows), &rope));
        ck_ok(calm_model_load_block(ctx, model, 0, &block));
        ck_ok(calm_batch_embed(ctx, model, &windows, 0, N_WINDOWS, ctx->out, NULL, &batch));
        if (f == 0)
            ck_fails(calm_batch_sublayer(ctx, &block, CALM_SUBLAYER_ATTENTION, &rope, &batch, NULL), CALM_EARG,
                     "its sublayers read the same rows");
        ck_ok(calm_batch_block(ctx, &block, &rope, &batch, NULL));
        for (int file = 0; file < 2; file++) {
            run_apart(model, &block, &rope, &windows, file ? test_directory() : NULL, apart);
            ck_assert_mem_eq(apart, batch.hidden.data, n * sizeof *apart);
        }
        calm_batch_close(&batch);
        calm_model_close(model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("forward", (const TTest *[]){threads_and_files, windows_alone, positions, causality, whole_model,
                                                  windows_within_a_budget, failures, memory, sublayers_one_by_one,
                                                  NULL});
}
