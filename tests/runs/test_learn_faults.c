/* Faults while blocks are learned or a model is tuned: values that are not finite, losses that rise, a kill between
 * two steps of a block, too little memory; and what is not learned at all. */
#include <stdio.h>

#include "ptq/io/safetensors.h"
#include "ptq/learn/learn_impl.h"
#include "tests/support/play.h"

static const fault none = {0};

enum { STEPS = 50 };

/* Makes a run without a guard, which would decide by chance on three windows of a random model. */
static play learning(const char *scheme, const char *learner)
{
    play run = play_new(NULL, scheme, "rtn");
    run.recipe.calib_windows = 12;
    run.recipe.guard_windows = 0;
    run.recipe.score_windows = 0;    /* spoiled outputs have no score */
    run.recipe.learn = CALM_LEARN_BLOCKS;
    run.recipe.learn_steps = STEPS;
    ck_ok(calm_learner_parse(ctx, learner, &run.recipe.learner));
    return run;
}

static play tuning(const char *scheme)
{
    play run = learning(scheme, "learn(steps=50,tokens=1)");
    run.recipe.learn = CALM_LEARN_KL;
    run.recipe.learner = NULL;
    run.recipe.calib_windows = 20;
    run.recipe.score_windows = 4;
    run.recipe.tune_steps = 32;
    run.recipe.tune_rate = 3e-3;
    return run;
}

static const char *weights(const play *run, const char *output)
{
    char digest[CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", play_path(run, output)), digest));
    return test_format("%s", digest);
}

static void says(const outcome *said, const char *words)
{
    ck_assert_msg(strstr(said->log, words), "expected \"%s\" in: %s", words, said->log);
}

/* Checks that the output has the bytes of a run without learning. */
static void stays_plain(const play *run)
{
    play plain = play_elsewhere(run, "plain");
    plain.recipe.learn = CALM_LEARN_NONE;
    plain.recipe.learner = NULL;
    plain.recipe.tune_steps = 0;
    play_must_run(&plain);
    ck_assert_str_eq(weights(run, "out"), weights(&plain, "plain"));
}

/* ---- losses ---- */

/* A learning rate of 1 changes scales by a factor of up to e per step. */
TEST(a_loss_that_rises)
{
    const play run = learning("w3a16_g16", "learn(steps=50,tokens=1,rate=1)");
    const outcome said = play_must_run(&run);
    ck_assert_str_eq(said.result, "rtn");
    says(&said, "block 0 stays as it was: the loss rose from 0.");
    says(&said, "block 1 stays as it was: the loss rose from 0.");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned WHERE kept LIKE 'the loss rose from 0.% to %'"), 2);
    stays_plain(&run);
}
END_OF_TEST

/* The scales of `down`, up to .2 times 2^18, are near 65,280, the largest that a file can hold; the first step
 * exceeds it. */
TEST(a_scale_that_is_not_finite)
{
    const play run = learning("w3a16_g16", "learn(steps=50,tokens=1,rate=1)");
    play_scale_tensor(&run, "model.layers.1.mlp.up_proj.weight", -18);
    play_scale_tensor(&run, "model.layers.1.mlp.down_proj.weight", 18);
    const outcome said = play_must_run(&run);
    says(&said, "block 1 stays as it was: model.layers.1.mlp.down_proj: the learned scale of row ");
    stays_plain(&run);
}
END_OF_TEST

/* Hidden states of magnitude 2^-80: a gradient divided by their square, 2^-160, overflows float32.  Block 0's output
 * is larger, so block 1 is learned. */
TEST(a_gradient_that_is_not_finite)
{
    const play run = learning("w3a16_g16", "learn(steps=50,tokens=1)");
    play_scale_tensor(&run, "model.embed_tokens.weight", -80);
    const outcome said = play_must_run(&run);
    says(&said, "block 0 stays as it was: block 0: the gradient of the output is not finite (token 0, channel 0)");
    says(&said, "block 1 learned: loss ");
    ck_assert_str_eq(said.result, "rtn, learned");
    ck_assert_str_eq(play_text(&run, "SELECT block || (kept IS NULL) FROM v_learned ORDER BY block"), "00\n11\n");
}
END_OF_TEST

/* A scale out of range ends tuning at the best state so far; a loss that rises shortens the steps. */
TEST(tuning_that_fails)
{
    static const struct {
        double rate;
        const char *words, *not;
    } all[] = {{30, "tuning ends: model.layers.", "tuning, step 16"},
               {1, "tuning, step 16: the loss rose", "tuning ends"}};
    for (int i = 0; i < 2; i++) {
        play run = tuning("w3a16_g16");
        run.recipe.tune_rate = all[i].rate;
        const outcome said = play_must_run(&run);
        says(&said, all[i].words);
        ck_assert_msg(!strstr(said.log, all[i].not), "%s", said.log);
        says(&said, "tuning: the result stays as it was: no step lowered the divergence of the held-out windows");
        ck_assert_str_eq(said.result, "rtn");
        stays_plain(&run);
    }
}
END_OF_TEST

/* Without steps a block keeps its start, to the byte, and the log says so. */
TEST(no_steps_leave_the_start)
{
    const play run = learning("w3a16_g16", "learn(steps=0,tokens=1)");
    const outcome said = play_must_run(&run);
    says(&said, "block 0 stays as it was: no steps");
    says(&said, "block 1 stays as it was: no steps");
    ck_assert_str_eq(said.result, "rtn");
    stays_plain(&run);
}
END_OF_TEST

/* ---- the loss of another program ---- */

/* The mean square of block 0's outputs for the bundled model, over the first 128 windows of 512 tokens of its
 * calibration text: a float32 PyTorch program gives 856.278, with six digits.  The mean is over 65,536 rows, each
 * good to 1e-6: 1e-5. */
TEST(targets_are_as_large_as_the_studys)
{
    play run = play_new(NULL, "w4a16_g128", "rtn");
    calm_run *p;
    calm_batch batch = {.hidden.file = -1};
    double found;
    run.recipe.model.dir = test_format("%s/recipes/models/qwen-demo", CALM_SOURCE_DIR);
    run.recipe.calib_path = test_format("%s/recipes/text/wikitext2-valid.txt", CALM_SOURCE_DIR);
    run.recipe.calib_windows = 128;
    run.recipe.seqlen = 512;
    run.recipe.seed = -1;
    run.recipe.score_windows = 0;
    run.recipe.guard_windows = 0;
    ck_ok(calm_run_open(ctx, &run.recipe, &p));
    ck_assert_uint_eq(p->in.calib.begin[p->in.calib.n], 128 * 512);
    ck_ok(calm_batch_embed(ctx, p->in.model, &p->in.calib, 0, p->in.calib.n, ctx->out, NULL, &batch));
    ck_ok(calm_batch_load_block(ctx, p->in.model, &p->rope, 0, NULL, NULL, &batch));
    ck_ok(calm_learn_mean_square(ctx, &batch, &found));
    ck_near(found, 856.278, 1e-5 * 856.278);
    calm_batch_close(&batch);
    calm_run_close(&p);
}
END_OF_TEST

/* ---- a kill between two steps ---- */

/* Killed within block 0, within block 1, and at the last step before block 1 is stored. */
TEST(killed_within_a_block)
{
    static const struct {
        size_t step;
        int there; /* learned blocks in the store after the kill */
    } all[] = {{STEPS / 2, 0}, {STEPS + STEPS / 2, 1}, {2 * STEPS, 1}};
    const play whole = learning("w3a16_g16", "learn(steps=50,tokens=1)");
    play_must_run(&whole);
    for (int i = 0; i < 3; i++) {
        const char *name = test_format("killed%d", i);
        play run = play_elsewhere(&whole, name);
        run.kill_at_step = all[i].step;
        ck_assert(play_run(&run, none).killed);
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned"), all[i].there);
        run.kill_at_step = 0;
        const outcome said = play_must_run(&run);
        ck_assert_int_eq(strstr(said.log, "block 0 learned: ") == NULL, all[i].there);
        says(&said, "block 1 learned: ");
        ck_assert_str_eq(weights(&run, name), weights(&whole, "out"));
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned"), 2);
    }
}
END_OF_TEST

TEST(killed_while_it_tunes)
{
    const play whole = tuning("w2a16_g16");
    play_must_run(&whole);
    play run = play_elsewhere(&whole, "killed");
    run.kill_at_step = 17;    /* after the first evaluation, which kept a state */
    ck_assert(play_run(&run, none).killed);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned"), 0);
    run.kill_at_step = 0;
    play_must_run(&run);
    ck_assert_str_eq(weights(&run, "killed"), weights(&whole, "out"));
}
END_OF_TEST

/* ---- memory ---- */

/* The limit that the refusal names is enough, and changes no byte. */
TEST(the_limit_that_is_named_works)
{
    for (int tunes = 0; tunes < 2; tunes++) {
        const play whole = tunes ? tuning("w3a16_g16") : learning("w3a16_g16", "learn(steps=50,tokens=1)");
        play run = play_elsewhere(&whole, "small");
        char limit[32];
        run.recipe.memory = "10MB";
        const outcome refused = play_run(&run, none);
        ck_assert_int_eq(refused.status, CALM_ENOMEM);
        ck_assert_int_eq(refused.calls, 0);
        const char *at = strstr(refused.message, "the smallest limit it fits in is `memory` ");
        ck_assert_msg(at && sscanf(strstr(at, "`memory` ") + 9, "%31[0-9.GMB]", limit) == 1, "%s", refused.message);
        run.recipe.memory = limit;
        play_must_run(&run);
        play_must_run(&whole);
        ck_assert_str_eq(weights(&run, "small"), weights(&whole, "out"));
    }
}
END_OF_TEST

/* ---- what is not learned ---- */

/* Returns a tensor of an output; the caller closes `file`. */
static const calm_tensor *tensor_of(const calm_safetensors *file, const char *name)
{
    const calm_tensor *tensor = calm_safetensors_find(file, name);
    ck_assert_msg(tensor, "%s is not there", name);
    return tensor;
}

/* Tells whether a tensor is the same in both outputs. */
static bool same(const play *one, const char *output, const play *other, const char *another, const char *name)
{
    calm_safetensors *a, *b;
    ck_ok(calm_safetensors_open(ctx, test_format("%s/model.safetensors", play_path(one, output)), &a));
    ck_ok(calm_safetensors_open(ctx, test_format("%s/model.safetensors", play_path(other, another)), &b));
    const calm_tensor *x = tensor_of(a, name), *y = tensor_of(b, name);
    ck_assert_uint_eq(x->bytes, y->bytes);
    const bool equal = memcmp(x->data, y->data, x->bytes) == 0;
    calm_safetensors_close(a);
    calm_safetensors_close(b);
    return equal;
}

/* Jobs pinned to 8 bits keep codes and scales; the other jobs of the block and all norms are learned. */
TEST(eight_bits_beside_learned_ones)
{
    double bits = 5;
    play run = learning("w3a16_g16,w8a16_g16", "learn(steps=50,tokens=1)");
    calm_pin pin = {"*.down", {"rtn w8a16_g16", "rtn w8a16_g16"}, 0};
    run.recipe.score_windows = 2;
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    run.recipe.pins = &pin;
    run.recipe.n_pins = 1;
    const outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.result, ", learned"), "%s (%s)", said.result, said.log);
    play plain = play_elsewhere(&run, "plain");
    plain.recipe.learn = CALM_LEARN_NONE;
    plain.recipe.learner = NULL;
    play_must_run(&plain);
    for (int block = 0; block < 2; block++) {
        const char *prefix = test_format("model.layers.%d", block);
        ck_assert(same(&run, "out", &plain, "plain", test_format("%s.mlp.down_proj.weight_packed", prefix)));
        ck_assert(same(&run, "out", &plain, "plain", test_format("%s.mlp.down_proj.weight_scale", prefix)));
        ck_assert(!same(&run, "out", &plain, "plain", test_format("%s.input_layernorm.weight", prefix)));
    }
    /* The budget leaves three bits to some jobs. */
    ck_assert_int_gt(play_sql(&run, "SELECT min(changed) FROM learned"), 0);
}
END_OF_TEST

/* Blocks outside of the run keep the float model's tensors, before the learned blocks and after them. */
TEST(blocks_that_are_not_quantized)
{
    for (long long block = 0; block < 2; block++) {
        play run = learning("w3a16_g16", "learn(steps=50,tokens=1)");
        run.recipe.first_block = run.recipe.last_block = block;
        const outcome said = play_must_run(&run);
        says(&said, test_format("block %lld learned: ", block));
        ck_assert_msg(!strstr(said.log, test_format("block %lld learned", 1 - block)), "%s", said.log);
        ck_assert_str_eq(play_text(&run, "SELECT block FROM v_learned"), test_format("%lld\n", block));
        calm_safetensors *model, *written;
        ck_ok(calm_safetensors_open(ctx, test_format("%s/model.safetensors", run.recipe.model.dir), &model));
        ck_ok(calm_safetensors_open(ctx, test_format("%s/model.safetensors", play_path(&run, "out")), &written));
        size_t n = 0;
        for (size_t i = 0; i < calm_safetensors_count(model); i++) {
            const calm_tensor *tensor = calm_safetensors_at(model, i);
            if (strncmp(tensor->name, test_format("model.layers.%lld.", 1 - block), 15) != 0)
                continue;
            const calm_tensor *found = tensor_of(written, tensor->name);
            ck_assert(found->bytes == tensor->bytes && memcmp(found->data, tensor->data, tensor->bytes) == 0);
            n++;
        }
        ck_assert_uint_eq(n, 11);    /* seven linears, four norms */
        calm_safetensors_close(model);
        calm_safetensors_close(written);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("learn_faults",
                     (const TTest *[]){a_loss_that_rises, a_scale_that_is_not_finite, a_gradient_that_is_not_finite,
                                       tuning_that_fails, no_steps_leave_the_start, targets_are_as_large_as_the_studys,
                                       killed_within_a_block, killed_while_it_tunes, the_limit_that_is_named_works,
                                       eight_bits_beside_learned_ones, blocks_that_are_not_quantized, NULL});
}
