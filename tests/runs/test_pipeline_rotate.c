/* Runs of a rotated model: written, read back, assembled and dequantized, it computes the function that was
 * measured.  Models that cannot be rotated are refused before anything is written; the temporary rotated model is
 * removed. */
#include "tests/support/run_rooms.h"
#include "ptq/base/file.h"
#include "ptq/eval/evaluate.h"
#include "ptq/export/dequantize.h"
#include "ptq/model/forward.h"
#include "ptq/model/transforms.h"
#include "ptq/stored/stored.h"
#include "tests/support/play.h"

static const fault none = {0};

static play new_play(const char *family, const char *scheme, calm_rotate_kind kind)
{
    tiny_model spec = tiny_wide(family);
    play run = play_new(&spec, scheme, "rtn");
    run.recipe.rotate = kind;
    run.recipe.rotate_seed = 5;
    run.recipe.keep_hybrid = true;    /* so that the result is the hybrid */
    return run;
}

/* Computes the hidden states [n, D] after the final norm for one window, in ctx->out, from the files of a model. */
static const float *hidden_of(const char *dir, size_t *n, bool *hadamard)
{
    const calm_windows windows = tiny_windows((const size_t[]){24}, 1);
    calm_model *model;
    calm_batch batch;
    calm_rope rope;
    calm_head head;
    ck_ok(calm_model_open(ctx, dir, &model));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows.longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, &windows, 0, 1, NULL, NULL, ctx->out, &batch));
    *n = batch.rows * batch.width;
    *hadamard = calm_transforms_any(calm_model_config(model));
    float *copy;
    ck_ok(CALM_NEW(ctx, ctx->out, copy, *n));
    memcpy(copy, batch.hidden.data, *n * sizeof *copy);
    calm_batch_close(&batch);
    calm_model_close(model);
    return copy;
}

/* Returns the largest difference over the root mean square. */
static double distance(const float *x, const float *y, size_t n)
{
    double worst = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        worst = test_worse(worst, fabs((double)x[i] - (double)y[i]));
        squares += (double)x[i] * (double)x[i];
    }
    return worst / sqrt(squares / (double)n);
}

/* 8-bit weights: the written model is near the float model (some percent with two blocks), and far from it without
 * the online transform.  Dequantized to float32 it is the same function in another basis of down's input, up to
 * float32 rounding: 1e-4, as in test_rotate. */
TEST(written_and_read)
{
    static const struct {
        const char *family;
        calm_rotate_kind kind;
    } cases[] = {{"llama", CALM_ROTATE_R1R2R4}, {"phi3", CALM_ROTATE_R1R2R4}, {"phi3", CALM_ROTATE_INPUTS},
                 {"gemma3", CALM_ROTATE_INPUTS}, {"gemma4", CALM_ROTATE_INPUTS}};
    for (size_t f = 0; f < sizeof cases / sizeof *cases; f++) {
        const char *family = cases[f].family;
        const play run = new_play(family, "w8a16", cases[f].kind);
        const outcome out = play_must_run(&run);
        ck_assert_str_eq(out.result, "rtn");
        ck_assert_str_eq(play_list(&run, "rotated"), "");
        const char *plain = play_path(&run, "plain");
        const calm_dequantize_options how = {.output = plain, .dtype = CALM_F32};
        calm_dequantize_result done;
        bool online, turned;
        size_t n, m;
        ck_ok(calm_dequantize(ctx, run.recipe.output, &how, &done));
        const float *x = hidden_of(run.recipe.output, &n, &online), *y = hidden_of(plain, &m, &turned);
        ck_assert_uint_eq(n, m);
        ck_assert(online && !turned);
        ck_assert_msg(distance(x, y, n) <= 1e-4, "%s: %g", family, distance(x, y, n));
        ck_assert(play_sql(&run, "SELECT max(kl) < 0.01 AND count(*) > 0 FROM evaluation WHERE subject = 'rtn'") == 1);
    }
}
END_OF_TEST

/* The bytes are the same for any number of threads, and when assembled from the store. */
TEST(threads_and_assembly)
{
    for (calm_rotate_kind kind = CALM_ROTATE_R1; kind <= CALM_ROTATE_INPUTS; kind++) {
        play run = new_play("qwen3", "w4a4_g16", kind);
        run.threads = 1;
        play_must_run(&run);
        play again = play_elsewhere(&run, "threads");
        again.threads = 4;
        play_must_run(&again);
        ck_assert_str_eq(play_digest(again.recipe.output), play_digest(run.recipe.output));
        calm_assembly assembly;
        const calm_assemble_options how = {.store = run.recipe.store, .run = 1, .output = play_path(&run, "assembled"),
                                           .command = "test"};
        ck_ok(calm_reassemble(ctx, &how, &assembly));
        calm_assembly_close(&assembly);
        calm_safetensors *a, *b;
        ck_ok(calm_safetensors_open(ctx, run.recipe.output, &a));
        ck_ok(calm_safetensors_open(ctx, how.output, &b));
        ck_assert_uint_eq(calm_safetensors_count(a), calm_safetensors_count(b));
        for (size_t i = 0; i < calm_safetensors_count(a); i++)
            ck_assert(memcmp(calm_safetensors_at(a, i)->data, calm_safetensors_at(b, i)->data,
                             calm_safetensors_at(a, i)->bytes) == 0);
        calm_safetensors_close(a);
        calm_safetensors_close(b);
        ck_assert_str_eq(play_list(&run, "rotated"), "");
    }
}
END_OF_TEST

/* Another seed gives another model, for which nothing in the store is used. */
TEST(seeds_are_other_models)
{
    play run = new_play("qwen2", "w8a16", CALM_ROTATE_R1R2);
    play_must_run(&run);
    play other = run;
    other.recipe.rotate_seed = 6;
    other.recipe.force = true;
    ck_assert_uint_eq(play_must_run(&other).cached, 0);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM model"), 2);
}
END_OF_TEST

/* Replaces text of the transforms of a written config.json, which must contain it, and opens the model. */
static void changed_config(const char *dir, const char *from, const char *to, const char *message)
{
    const char *path = test_format("%s/config.json", dir);
    char *text, *at;
    size_t n;
    calm_model *model;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &text, &n));
    at = strstr(text, "\"transform_config\"");
    at = at ? strstr(at, from) : NULL;
    ck_assert_msg(at != NULL, "%s", text);
    const char *changed = test_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    ck_ok(calm_write_file(ctx, path, changed, strlen(changed)));
    ck_fails(calm_model_open(ctx, dir, &model), CALM_EUNSUPPORTED, message);
    ck_ok(calm_write_file(ctx, path, text, n));
}

/* Transforms that the forward pass does not have: of some linears of a job, of a width that does not divide the input,
 * by another matrix. */
TEST(other_transforms)
{
    const play run = new_play("gemma3", "w8a16", CALM_ROTATE_INPUTS);
    play_must_run(&run);
    calm_model *model;
    ck_ok(calm_model_open(ctx, run.recipe.output, &model));
    const size_t width = calm_model_config(model)->hadamard[CALM_JOB_QKV];
    ck_assert_uint_gt(width, 1);
    calm_model_close(model);
    changed_config(run.recipe.output, "|k_proj|", "|none|", "self_attn.k_proj: calm computes transforms of the inputs");
    changed_config(run.recipe.output, test_format("\"head_dim\": %zu", width), "\"head_dim\": 1048576",
                   "transform of 1048576 channels at model.layers.0.self_attn.q_proj");
    changed_config(run.recipe.output, "\"hadamard\"", "\"random-matrix\"", "not a Hadamard matrix");
}
END_OF_TEST

static void refused(play run, const char *text)
{
    const outcome out = play_run(&run, none);
    ck_assert_msg(out.status == CALM_EUNSUPPORTED && strstr(out.message, text), "%s", out.message);
    ck_assert(!calm_path_exists(run.recipe.store));
    ck_assert_str_eq(play_list(&run, "rotated"), "");
}

TEST(refusals)
{
    refused(new_play("gemma2", "w8a16", CALM_ROTATE_R1), "family gemma2 cannot be rotated: ");
    refused(new_play("olmo2", "w8a16", CALM_ROTATE_R1R2), "family olmo2 cannot be rotated: ");
    refused(new_play("qwen3_moe", "w8a16", CALM_ROTATE_R1R2R4), "take `rotate` r1r2");
    refused(new_play("olmo2", "w8a16", CALM_ROTATE_INPUTS), "without a norm before it");
    refused(new_play("qwen3_moe", "w8a16", CALM_ROTATE_INPUTS), "take `rotate` none");
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_rotate", (const TTest *[]){written_and_read, threads_and_assembly,
                                                          seeds_are_other_models, other_transforms,
                                                          refusals, NULL});
}
