/* The store for tests of `calm inspect`. */
#include "tests/support/inspect_sample.h"

#include <stdio.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

/* A store while it is filled. */
typedef struct filling {
    calm_store *store;
    int64_t model, calibration, jobs[4], run;
    const char *prefix;    /* prefix of keys */
} filling;

/* Adds a candidate with cka_token, rel_mse and log_rel_mse at a unit, or with a failure. */
static int64_t put(const filling *f, size_t job, const char *algorithm, const char *scheme, const char *unit,
                   double cka_token, double rel_mse, double log_rel_mse, const char *failure)
{
    const calm_store_score scores[] = {
        {unit, "cka_token", cka_token}, {unit, "rel_mse", rel_mse}, {unit, "log_rel_mse", log_rel_mse}};
    const calm_store_candidate candidate = {
        .key = test_format("%s%zu %s %s", f->prefix, job, algorithm, scheme), .job_id = f->jobs[job],
        .calibration_id = f->calibration, .algorithm = algorithm, .chain = test_format("%s@1", algorithm),
        .scheme = scheme, .failure = failure, .blob = failure ? NULL : "b", .blob_bytes = failure ? 0 : 4096,
        .bits_per_weight = failure ? NAN : 4.125, .damp = NAN, .scores = scores, .n_scores = failure ? 0 : 3};
    int64_t id;
    ck_ok(calm_store_candidate_put(ctx, f->store, &candidate, &id));
    ck_ok(calm_store_run_candidate(ctx, f->store, f->run, id));
    return id;
}

static void choose(const filling *f, size_t job, int64_t candidate, const char *reason)
{
    static const char *const units[] = {"model.layers.0.qkv", "model.layers.0.down", "model.layers.1.qkv",
                                        "model.layers.1.down"};
    ck_ok(calm_store_choice_put(ctx, f->store, &(calm_store_choice){.run_id = f->run, .job_id = f->jobs[job],
                                                                   .candidate_id = candidate, .unit = units[job],
                                                                   .reason = reason}));
}

static void begin(filling *f, const char *key, const char *unit, const char *rule, const char *metric,
                  const char *recipe)
{
    const calm_store_run run = {.key = key, .model_id = f->model, .calibration_id = f->calibration, .unit = unit,
                                .command = "calm quantize", .recipe = recipe, .rule = rule, .metric = metric,
                                .version = test_format("0.%s", key), .n_threads = 2};
    f->prefix = key;
    ck_ok(calm_store_run_begin(ctx, f->store, &run, &f->run, NULL));
}

static void evaluate(const filling *f, const char *key, const char *role, const char *subject, double ppl, double kl)
{
    const calm_store_evaluation evaluation = {.key = key, .model_id = f->model, .subject = subject, .ppl = ppl,
                                              .text_name = "test.txt", .window_tokens = 512, .tokens = 1000,
                                              .nll = log(ppl), .kl = kl, .top1 = 0.5};
    int64_t id;
    ck_ok(calm_store_evaluation_put(ctx, f->store, &evaluation, &id));
    ck_ok(calm_store_verdict_put(ctx, f->store,
                                 &(calm_store_verdict){.run_id = f->run,
                                                       .evaluation_id = id,
                                                       .role = role,
                                                       .subject = subject,
                                                       .delta = NAN,
                                                       .delta_se = NAN}));
}

static void activate(const filling *f, const char *hook, int block, double peak, const char *text)
{
    const calm_store_peak peaks[] = {{-peak, 3, 17, 42, text}, {peak / 2, 0, 1, 41, "the"}};
    const calm_store_activation activation = {.model_id = f->model, .calibration_id = f->calibration, .hook = hook,
                                              .point = "block_out", .block = block, .channels = 64, .count = 640,
                                              .n_tokens = 10, .max_abs = peak, .q50 = 0.5, .peaks = peaks,
                                              .n_peaks = 2};
    ck_ok(calm_store_activation_put(ctx, f->store, &activation));
}

static void fill_first(filling *f)
{
    begin(f, "r1", "job", "token", "cka_token",
          "{\"scheme\":\"w4a16_g128\",\"algorithms\":[{\"name\":\"rtn\"},{\"name\":\"gptq\"},{\"name\":\"gptq-hls\"}],"
          "\"choice\":{\"rule\":\"token\",\"metric\":\"cka_token\"},\"empty\":{}}");
    const char *scheme = "w4a16_g128";
    put(f, 0, "gptq-hls", scheme, "job", 1e-4, 2e-3, -6.5, NULL);
    const int64_t gptq = put(f, 0, "gptq", scheme, "job", 1.04e-4, 1e-3, -7, NULL);
    put(f, 0, "rtn", scheme, "job", 1e-3, 9e-3, -4, NULL);
    choose(f, 0, gptq, "least log_rel_mse of 2 within 1.05 of the least cka_token (not the least itself)");
    put(f, 1, "gptq", scheme, "job", NAN, NAN, NAN, "not positive definite");
    const int64_t rtn = put(f, 1, "rtn", scheme, "job", 2e-3, 5e-3, -4, NULL);
    put(f, 1, "gptq-hls", scheme, "job", 1e-3, 4e-3, -5, NULL);
    choose(f, 1, rtn, "pinned by the recipe");
    put(f, 2, "gptq", scheme, "job", 1e-4, 1e-3, -7, NULL);
    const int64_t hls = put(f, 2, "gptq-hls", scheme, "job", 2e-4, 2e-3, -6, NULL);
    choose(f, 2, hls, "least cka_token of 2");
    put(f, 3, "gptq", scheme, "job", 1e-4, 1e-3, -7, NULL);
    choose(f, 3, 0, "stays float");
    evaluate(f, "e1", "test", "float", 12.25, 0);
    evaluate(f, "e2", "test", "hybrid", 12.5, 0.0125);
    activate(f, "model.layers.0.block_out", 0, 4, "the");
    activate(f, "model.layers.1.block_out", 1, 400, "\033[31mred\n");
    ck_ok(calm_store_environment_put(ctx, f->store, f->run, "kernels", "Haswell"));
    ck_ok(calm_store_environment_put(ctx, f->store, f->run, "sqlite", "3.40.1"));
    ck_ok(calm_store_gate_put(ctx, f->store, &(calm_store_gate){f->run, 0, "ppl_ratio <= 1.05", 1.02, true}));
    ck_ok(calm_store_artifact_put(ctx, f->store, &(calm_store_artifact){f->run, "out/model.safetensors", "weights", 77,
                                                                        "abcd"}));
    ck_ok(
        calm_store_run_end(ctx, f->store, f->run,
                           &(calm_store_outcome){"finished", "hybrid", "no uniform run is better", 4.125, 1000, 400}));
}

static void fill_second(filling *f)
{
    begin(f, "r2", "job", "argmax", "rel_mse",
          "{\"scheme\":\"w4a16_g128\",\"algorithms\":[{\"name\":\"rtn\"},{\"name\":\"gptq\"}],"
          "\"choice\":{\"rule\":\"argmax\",\"metric\":\"rel_mse\"},\"a/b~c\":4,\"empty\":{}}");
    const char *scheme = "w4a16_g128";
    for (size_t job = 0; job < 3; job++) {
        put(f, job, "rtn", scheme, "job", 3e-3, 3e-3, -4, NULL);
        const int64_t gptq = put(f, job, "gptq", scheme, "job", 2e-4, 1.5e-3, -6, NULL);
        choose(f, job, gptq, "least rel_mse of 2");
    }
    evaluate(f, "e3", "test", "float", 12.25, 0);
    evaluate(f, "e4", "test", "gptq", 12.75, 0.025);
    ck_ok(calm_store_environment_put(ctx, f->store, f->run, "kernels", "Zen"));
    ck_ok(calm_store_environment_put(ctx, f->store, f->run, "sqlite", "3.40.1"));
    ck_ok(calm_store_run_end(ctx, f->store, f->run, &(calm_store_outcome){"finished", "gptq", "uniform gptq is better",
                                                                          4.125, 1000, 390}));
}

static void fill_others(filling *f)
{
    begin(f, "r3", "job", "token", "cka_token",
          "{\"schemes\":[\"w4a16_g128\",\"w3a16_g128\"],\"budget\":[3.5],\"algorithms\":[{\"name\":\"gptq\"}]}");
    put(f, 0, "gptq", "w4a16_g128", "job", 1e-4, 1e-3, -7, NULL);
    const int64_t narrow = put(f, 0, "gptq", "w3a16_g128", "job", 9e-4, 9e-3, -4, NULL);
    choose(f, 0, narrow, "predicted KL 1e-3 of 1e-3 at the narrowest width; there: the only candidate");
    begin(f, "r4", "sublayer", "token", "cka_token",
          "{\"scheme\":\"w4a16_g128\",\"algorithms\":[{\"name\":\"rtn\"},{\"name\":\"gptq\"}]}");
    put(f, 0, "rtn for gptq", "w4a16_g128", "sublayer", 2e-4, 1e-3, -7, NULL);
    put(f, 0, "rtn", "w4a16_g128", "sublayer", 1e-4, 1e-3, -7, NULL);
}

calm_store *inspect_sample_open(const char **path)
{
    filling f = {.store = NULL};
    calm_store_calibration other = sample_calibration;
    int64_t block;
    *path = sample_path();
    f.store = sample_open(*path, CALM_STORE_WRITE);
    ck_ok(calm_store_model_id(ctx, f.store, &sample_model, &f.model));
    ck_ok(calm_store_calibration_id(ctx, f.store, &sample_calibration, &f.calibration));
    for (int b = 0; b < 2; b++) {
        const char *name = test_format("model.layers.%d", b);
        ck_ok(calm_store_block_id(ctx, f.store, &(calm_store_block){f.model, b, name, "decoder"}, &block));
        for (int j = 0; j < 2; j++) {
            const char *role = j ? "down" : "qkv";
            const calm_store_job job = {.block_id = block,
                                        .role = role,
                                        .position = j,
                                        .sublayer = j ? "mlp" : "attention",
                                        .name = test_format("%s.%s", name, role),
                                        .linears = role,
                                        .out = 128,
                                        .in = 64,
                                        .input_hook = test_format("%s.block_out", name)};
            ck_ok(calm_store_job_id(ctx, f.store, &job, &f.jobs[2 * b + j]));
        }
    }
    fill_first(&f);
    other.key = "c2";
    other.seed = 7;
    ck_ok(calm_store_calibration_id(ctx, f.store, &other, &f.calibration));
    fill_second(&f);
    fill_others(&f);
    return f.store;
}

const char *inspect_sample(void)
{
    const char *path;
    calm_store_close(inspect_sample_open(&path));
    return path;
}

calm_status inspect_printed(const char *path, const calm_inspect_query *query, const char **out)
{
    const char *file = test_format("%s/stdout", test_directory());
    char message[CALM_MESSAGE_MAX], *text;
    size_t n;
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    ck_assert_ptr_nonnull(freopen(file, "wb", stdout));
    const calm_status status = calm_inspect_store(ctx, path, query), kept = ctx->status;
    fflush(stdout);
    ck_assert_int_ge(dup2(saved, STDOUT_FILENO), 0);
    close(saved);
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_clear_failure(ctx);
    ck_ok(calm_read_file(ctx, file, 1 << 24, &text, &n));
    ck_assert(status == CALM_OK || n == 0);    /* a failure prints nothing */
    ctx->status = kept;
    memcpy(ctx->message, message, sizeof message);
    *out = text;
    return status;
}

const char *inspect_shown(const char *path, const char *what, const char *run, const char *unit, calm_inspect_form form)
{
    const char *args[] = {run}, *out;
    const calm_inspect_query query = {.what = what, .args = args, .n_args = run != NULL, .unit = unit, .form = form};
    ck_ok(inspect_printed(path, &query, &out));
    return out;
}
