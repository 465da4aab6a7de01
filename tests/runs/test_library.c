/* calm.h as a program outside of the tree uses it: a run from a spec to a verified checkpoint, several contexts at
 * once, and every mistake that a caller can make. */
#include "calm.h"

#include <math.h>
#include <stdatomic.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"
#include "tests/support/play.h"

/* The library's context; the harness has another one. */
static calm_ctx *lib;

static void begin(void)
{
    ck_assert_int_eq(calm_start(&lib), CALM_OK);
    ck_assert_str_eq(calm_error_text(lib), "");
}

#define lib_ok(expression) ck_assert_msg((expression) == CALM_OK, "%s", calm_error_text(lib))

static void set(calm_ctx *to, calm_recipe_spec *spec, const char *key, const char *value)
{
    ck_assert_msg(calm_spec_set(to, spec, key, value) == CALM_OK, "%s", calm_error_text(to));
}

/* Returns the spec of a small run of a play's tiny model. */
static calm_recipe_spec *spec_of(calm_ctx *to, const play *run)
{
    static const char *const values[][2] = {
        {"calibration.samples", "4"}, {"calibration.seqlen", "32"},       {"calibration.score_samples", "2"},
        {"calibration.guard_samples", "3"}, {"evaluation.samples", "2"}, {"schemes", "w4a16_g16"},
        {"algorithms", "rtn,gptq"},
    };
    calm_recipe_spec *spec;
    ck_assert_int_eq(calm_spec_new(to, &spec), CALM_OK);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        set(to, spec, values[i][0], values[i][1]);
    set(to, spec, "model", run->recipe.model.dir);
    set(to, spec, "calibration.text", run->recipe.calib_path);
    set(to, spec, "evaluation.text", run->recipe.calib_path);
    set(to, spec, "output", run->recipe.output);
    set(to, spec, "store", run->recipe.store);
    return spec;
}

static size_t progress[CALM_N_STAGES];

static void note(void *user, calm_stage stage, size_t done, size_t total)
{
    ck_assert_ptr_eq(user, progress);
    ck_assert_int_lt(stage, CALM_N_STAGES);
    ck_assert(done <= total || !total);
#pragma omp atomic
    progress[stage]++;
}

TEST(a_run_from_spec_to_verified_checkpoint)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    const char *lock = play_path(&run, "run.lock.json"), *json;
    calm_outcome first, again, chosen, assembled;
    calm_needs needs;
    begin();
    lib_ok(calm_set_events(lib, note, progress));
    calm_recipe_spec *spec = spec_of(lib, &run);
    lib_ok(calm_spec_text(lib, spec, &json));
    ck_assert_ptr_nonnull(strstr(json, "\"calm_recipe\""));
    lib_ok(calm_spec_resolve(lib, spec, &json));
    ck_assert_ptr_nonnull(strstr(json, "w4a16_g16"));
    lib_ok(calm_forecast_run(lib, spec, &needs));
    ck_assert_uint_eq(needs.n_candidates, 2 * 8);
    ck_assert(needs.seconds > 0 && needs.memory_bytes > 0 && needs.bytes_after < needs.bytes_before);
    lib_ok(calm_quantize(lib, spec, lock, &first));
    ck_assert_int_eq(first.run, 1);
    ck_assert_uint_eq(first.n_cached, 0);
    ck_assert_str_eq(first.output, run.recipe.output);
    ck_assert_str_eq(first.lock, lock);
    ck_assert(first.ppl > 1 && first.ppl_float > 1 && first.kl > 0 && isnan(first.cosine));
    ck_assert(first.bits_per_weight > 4 && first.bits_per_weight < 6 && first.bytes_after < first.bytes_before);
    for (calm_stage stage = CALM_STAGE_CALIBRATE; stage <= CALM_STAGE_EVALUATE; stage++)
        ck_assert_msg(stage == CALM_STAGE_PROBE || stage == CALM_STAGE_LEARN || progress[stage],
                      "no event of stage %d", (int)stage);
    const char *digest = play_digest(run.recipe.output);

    set(lib, spec, "force", "true");
    lib_ok(calm_quantize(lib, spec, NULL, &again));
    ck_assert_uint_eq(again.n_cached, 2 * 8);
    ck_assert_ptr_null(again.lock);
    ck_assert_str_eq(play_digest(run.recipe.output), digest);

    const char *pins[] = {"model.layers.0.*", "rtn"};
    const calm_select_request select = {.store = run.recipe.store, .run = 1, .pins = pins, .n_pins = 1};
    lib_ok(calm_select(lib, &select, &chosen));
    ck_assert_int_gt(chosen.run, 1);
    const calm_assemble_request assemble = {.store = run.recipe.store, .run = chosen.run, .hybrid = true,
                                            .output = play_path(&run, "chosen")};
    lib_ok(calm_assemble(lib, &assemble, &assembled));
    ck_assert_int_gt(assembled.bytes_after, 0);
    ck_assert_ptr_nonnull(play_digest(assemble.output));
    calm_stop(&lib);
    ck_assert_ptr_null(lib);
}
END_OF_TEST

/* A calm_event_fn that interrupts the run at the first event of a stage. */
static void interrupt_once(void *user, calm_stage stage, size_t done, size_t total)
{
    atomic_int *at = user;
    int wanted = (int)stage;
    (void)done;
    (void)total;
    if (atomic_compare_exchange_strong(at, &wanted, -1))
        calm_interrupt(lib);
}

/* At whatever stage a run is interrupted, the same call continues it to the same bytes. */
TEST(an_interrupted_run_continues)
{
    static const calm_stage stages[] = {CALM_STAGE_CALIBRATE, CALM_STAGE_QUANTIZE, CALM_STAGE_SCORE,
                                        CALM_STAGE_CHOOSE};
    const char *digest = NULL;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
        atomic_int at = (int)stages[i];
        calm_outcome came;
        begin();
        lib_ok(calm_set_events(lib, interrupt_once, &at));
        calm_recipe_spec *spec = spec_of(lib, &run);
        ck_assert_int_eq(calm_quantize(lib, spec, NULL, &came), CALM_EINTERRUPTED);
        ck_assert_str_eq(calm_error_text(lib), test_format("interrupted; what is done is in %s: the same call "
                                                           "continues from there", run.recipe.store));
        ck_assert_int_eq(atomic_load(&at), -1);
        ck_assert_str_eq(play_text(&run, "SELECT status FROM run"), "interrupted\n");
        set(lib, spec, "force", "true");
        lib_ok(calm_quantize(lib, spec, NULL, &came));
        const char *files = strstr(play_digest(run.recipe.output), "config.json");    /* other files contain paths */
        ck_assert_ptr_nonnull(files);
        digest = digest ? digest : files;
        ck_assert_str_eq(files, digest);
        calm_stop(&lib);
    }
}
END_OF_TEST

TEST(locks_and_stores)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    const char *lock = play_path(&run, "run.lock.json");
    calm_outcome came;
    calm_verification found;
    calm_gc_outcome freed;
    begin();
    lib_ok(calm_quantize(lib, spec_of(lib, &run), lock, &came));
    calm_verify_request request = {.lock = lock, .output = run.recipe.output};
    lib_ok(calm_verify(lib, &request, &found));
    ck_assert_uint_gt(found.n_checked, 4);
    ck_assert_uint_eq(found.n_differences, 0);
    ck_ok(calm_write_file(ctx, test_format("%s/generation_config.json", run.recipe.output), "{}", 2));
    ck_assert_int_eq(calm_verify(lib, &request, &found), CALM_EMISMATCH);
    ck_assert_uint_ge(found.n_differences, 1);
    ck_assert_ptr_nonnull(strstr(found.differences[0].name, "generation_config"));
    request = (calm_verify_request){.lock = lock, .work = play_path(&run, "work")};
    lib_ok(calm_verify(lib, &request, &found));    /* the lock is run again */
    ck_assert_uint_eq(found.n_differences, 0);
    const calm_gc_request gc = {.store = run.recipe.store, .keep = 0, .dry_run = true};
    lib_ok(calm_gc(lib, &gc, &freed));
    ck_assert_uint_eq(freed.n_dropped, 1);
    ck_assert(freed.rows > 0 && freed.blob_bytes > 0 && freed.bytes_before == freed.bytes_after);
    calm_stop(&lib);
}
END_OF_TEST

TEST(evaluations)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    calm_outcome came;
    calm_figures itself, quantized;
    calm_check_outcome checked;
    calm_model *model;
    calm_tokenizer *tokenizer;
    uint32_t *ids;
    char *text;
    size_t n, n_bytes;
    begin();
    lib_ok(calm_quantize(lib, spec_of(lib, &run), NULL, &came));
    calm_measure_request request = {.model = run.recipe.model.dir, .reference = run.recipe.model.dir,
                                    .text = run.recipe.calib_path, .seqlen = 32, .samples = 4};
    lib_ok(calm_measure_model(lib, &request, &itself));
    ck_assert_uint_eq(itself.n_windows, 4);
    ck_assert_uint_eq(itself.n_tokens, 4 * 31);
    ck_assert_double_eq_tol(itself.kl, 0, 1e-6);    /* the float model against itself */
    ck_assert_double_eq(itself.top1, 1);
    request.model = run.recipe.output;
    lib_ok(calm_measure_model(lib, &request, &quantized));
    ck_assert(quantized.kl > itself.kl && isnan(quantized.cosine));
    lib_ok(calm_check_path(lib, run.recipe.output, "vllm", &checked));
    ck_assert_str_eq(checked.format, "compressed-tensors");
    ck_assert_uint_gt(checked.n_quantized, 0);
    for (size_t i = 0; i < checked.n_faults; i++)
        ck_assert(checked.faults[i].rule && checked.faults[i].severity && checked.faults[i].where);
    lib_ok(calm_dequantize_to(lib, run.recipe.output, play_path(&run, "floats"), "f32", false));
    lib_ok(calm_model_open(lib, play_path(&run, "floats"), &model));
    calm_model_close(model);
    lib_ok(calm_tokenizer_open(lib, test_format("%s/tokenizer.json", run.recipe.model.dir), &tokenizer));
    lib_ok(calm_tokenizer_encode(lib, tokenizer, "Hello world", 11, false, &ids, &n));
    lib_ok(calm_tokenizer_decode(lib, tokenizer, ids, n, false, &text, &n_bytes));
    ck_assert_str_eq(text, "Hello world");
    calm_tokenizer_close(tokenizer);
    calm_stop(&lib);
}
END_OF_TEST

/* ---- plain matrices ---- */

enum { OUT = 24, IN = 64, ROWS = 256 };

static float weights[OUT * IN], inputs[ROWS * IN];

static void fill(void)
{
    uint32_t state = 1;
    for (size_t i = 0; i < OUT * IN + ROWS * IN; i++) {
        state = state * 1664525u + 1013904223u;    /* Numerical Recipes, 7.1 */
        const float value = (float)(state >> 8) / (float)(1u << 24) - 0.5f;
        if (i < OUT * IN)
            weights[i] = value;
        else    /* neighbouring channels correlate, which GPTQ uses */
            inputs[i - OUT * IN] = value + (i % IN ? 0.8f * inputs[i - OUT * IN - 1] : 0);
    }
}

/* Computes y [ROWS, OUT] = x w^T. */
static void multiply(const float *w, float *y)
{
    for (size_t t = 0; t < ROWS; t++)
        for (size_t o = 0; o < OUT; o++) {
            float sum = 0;
            for (size_t i = 0; i < IN; i++)
                sum += inputs[t * IN + i] * w[o * IN + i];
            y[t * OUT + o] = sum;
        }
}

/* Returns the relative squared error of an algorithm's outputs. */
static double loss_of(const char *name, calm_qjob *q)
{
    static float y[ROWS * OUT], z[ROWS * OUT], w[OUT * IN];
    const calm_linear linear = {"matrix", OUT, IN, weights, false};
    calm_algorithm *algorithm;
    calm_stats stats;
    calm_score_ref *reference;
    calm_scores scores;
    calm_job job = {.name = "job", .linears = &linear, .n_linears = 1, .stats = &stats};
    lib_ok(calm_scheme_parse(lib, "w3a16_g32", &job.scheme));
    lib_ok(calm_algorithm_parse(lib, name, &algorithm));
    lib_ok(calm_stats_new(lib, inputs, ROWS, IN, &stats));
    lib_ok(calm_algorithm_run(lib, algorithm, &job, q));
    calm_qjob_effective(q, w);
    multiply(weights, y);
    multiply(w, z);
    lib_ok(calm_score_prepare(lib, y, ROWS, OUT, &reference));
    lib_ok(calm_score(lib, reference, z, &scores));
    ck_assert_uint_eq(scores.n_rows, ROWS);
    return scores.value[CALM_METRIC_REL_MSE];
}

TEST(matrices)
{
    calm_qjob rtn, gptq;
    begin();
    fill();
    const double nearest = loss_of("rtn", &rtn), second_order = loss_of("gptq", &gptq);
    ck_assert(nearest > 0 && second_order > 0 && second_order < nearest);
    ck_assert_uint_eq(gptq.n_groups, IN / 32);
    ck_assert_ptr_null(gptq.zeros);
    for (size_t i = 0; i < OUT * IN; i++)
        ck_assert_uint_lt(gptq.codes[i], 8);
    calm_clear(lib);
    calm_stop(&lib);
}
END_OF_TEST

/* ---- several contexts at once ---- */

typedef struct side {
    const play *run;
    const char *memory;
    calm_status status;
    char message[1024];
} side;

static void *run_side(void *user)
{
    side *s = user;
    calm_ctx *own;
    calm_outcome came;
    calm_start(&own);
    calm_set_threads(own, 1);
    calm_recipe_spec *spec = spec_of(own, s->run);
    if (s->memory)
        set(own, spec, "memory", s->memory);
    s->status = calm_quantize(own, spec, NULL, &came);
    snprintf(s->message, sizeof s->message, "%s", calm_error_text(own));
    calm_stop(&own);
    return NULL;
}

/* One context has too little memory and fails; the other's limit, errors and bytes are not affected. */
TEST(contexts_do_not_disturb_each_other)
{
    const play alone = play_new(NULL, "w4a16_g16", "rtn,gptq"), beside = play_elsewhere(&alone, "beside"),
               poor = play_elsewhere(&alone, "poor");
    side sides[] = {{.run = &alone}, {.run = &beside}, {.run = &poor, .memory = "1MB"}};
    pthread_t threads[2];
    run_side(&sides[0]);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_side, &sides[i + 1]), 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ck_assert_msg(sides[0].status == CALM_OK, "%s", sides[0].message);
    ck_assert_msg(sides[1].status == CALM_OK, "%s", sides[1].message);
    ck_assert_int_eq(sides[2].status, CALM_ENOMEM);
    ck_assert_ptr_nonnull(strstr(sides[2].message, "`memory`"));
    ck_assert_str_eq(sides[1].message, "");
    ck_assert_str_eq(play_digest(alone.recipe.output), play_digest(beside.recipe.output));
}
END_OF_TEST

/* ---- mistakes of a caller ---- */

static void refused(calm_status status, calm_status expected, const char *words)
{
    ck_assert_msg(status == expected, "status %d (%s), expected %d", (int)status, calm_error_text(lib), (int)expected);
    ck_assert_msg(strstr(calm_error_text(lib), words), "\"%s\" is not in \"%s\"", words, calm_error_text(lib));
}

TEST(null_is_refused)
{
    calm_recipe_spec *spec;
    calm_outcome came;
    calm_needs needs;
    calm_verification verification;
    calm_gc_outcome freed;
    calm_figures figures;
    calm_task_figures answers;
    calm_check_outcome checked;
    calm_scheme scheme;
    calm_algorithm *algorithm;
    calm_stats stats;
    calm_qjob qjob;
    calm_score_ref *reference;
    calm_model *model;
    calm_tokenizer *tokenizer;
    const double *x;
    const char *text;
    uint32_t *ids;
    char *decoded;
    size_t n;
    begin();
    calm_ctx *const contexts[] = {NULL, lib};
    lib_ok(calm_spec_new(lib, &spec));
    for (size_t i = 0; i < 2; i++) {
        calm_ctx *const c = contexts[i];
        const calm_status statuses[] = {
            calm_spec_new(c, NULL), calm_spec_load(c, NULL, "qwen-ci"), calm_spec_load(c, spec, NULL),
            calm_spec_set(c, NULL, "bits", "4"), calm_spec_set(c, spec, NULL, "4"),
            calm_spec_set(c, spec, "bits", NULL),
            calm_spec_text(c, NULL, &text), calm_spec_text(c, spec, NULL), calm_spec_resolve(c, NULL, &text),
            calm_forecast_run(c, NULL, &needs), calm_quantize(c, NULL, NULL, &came),
            calm_quantize(c, spec, NULL, NULL),
            calm_select(c, NULL, &came), calm_select(c, &(calm_select_request){.run = 1}, &came),
            calm_assemble(c, NULL, &came), calm_assemble(c, &(calm_assemble_request){.store = "x"}, &came),
            calm_gc(c, NULL, &freed), calm_gc(c, &(calm_gc_request){.store = "x", .n_drop = 1}, &freed),
            calm_verify(c, NULL, &verification), calm_verify(c, &(calm_verify_request){.output = "x"}, &verification),
            calm_find(c, NULL, &text), calm_model_open(c, NULL, &model), calm_model_open(c, "x", NULL),
            calm_tokenizer_open(c, NULL, &tokenizer), calm_tokenizer_encode(c, NULL, "x", 1, false, &ids, &n),
            calm_tokenizer_decode(c, NULL, NULL, 0, false, &decoded, &n), calm_measure_model(c, NULL, &figures),
            calm_measure_model(c, &(calm_measure_request){.text = "x"}, &figures), calm_embed(c, NULL, &x, &n, &n),
            calm_answer(c, &(calm_measure_request){.model = "x"}, &answers), calm_check_path(c, NULL, "vllm", &checked),
            calm_check_path(c, "x", NULL, &checked), calm_dequantize_to(c, "x", NULL, NULL, false),
            calm_scheme_parse(c, NULL, &scheme), calm_algorithm_parse(c, NULL, &algorithm),
            calm_stats_new(c, NULL, 1, 1, &stats), calm_algorithm_run(c, NULL, NULL, &qjob),
            calm_score_prepare(c, NULL, 8, 8, &reference), calm_score(c, NULL, NULL, NULL),
        };
        for (size_t k = 0; k < sizeof statuses / sizeof *statuses; k++)
            ck_assert_msg(statuses[k] == CALM_EARG, "call %zu: status %d", k, (int)statuses[k]);
        ck_assert_ptr_nonnull(strstr(calm_error_text(c), c ? "calm_score: a pointer" : "there is no context"));
    }
    ck_assert_int_eq(calm_set_threads(NULL, 1), CALM_EARG);
    ck_assert_int_eq(calm_set_log(NULL, NULL, NULL), CALM_EARG);
    ck_assert_int_eq(calm_set_events(NULL, NULL, NULL), CALM_EARG);
    ck_assert_int_eq(calm_start(NULL), CALM_EARG);
    refused(calm_set_threads(lib, -1), CALM_EARG, "-1");
    calm_qjob_effective(NULL, NULL);
    calm_model_close(NULL);
    calm_tokenizer_close(NULL);
    calm_clear(NULL);
    calm_stop(NULL);
    calm_stop(&lib);
    ck_assert_ptr_nonnull(strstr(calm_error_text(lib), "calm_stop"));    /* the context is gone */
    calm_stop(&lib);
}
END_OF_TEST

static const char *file_of(const play *run, const char *text)
{
    const char *path = play_path(run, "bad.json");
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

TEST(bad_recipes)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    calm_outcome came;
    calm_recipe_spec *spec;
    const char *json;
    begin();
    lib_ok(calm_spec_new(lib, &spec));
    refused(calm_spec_set(lib, spec, "calibration.samples", "many"), CALM_EARG, "many");
    refused(calm_spec_set(lib, spec, "calibration.sample", "4"), CALM_EARG, "calibration.samples");
    refused(calm_spec_load(lib, spec, "no-such-recipe"), CALM_ENOTFOUND, "no-such-recipe");
    refused(calm_spec_load(lib, spec, file_of(&run, "{")), CALM_EFORMAT, "bad.json");
    const char *four = "{\"calm_recipe\": 1, \"model\": \"qwen\", \"calibration\": {\"samples\": \"four\"}}";
    refused(calm_spec_load(lib, spec, file_of(&run, four)), CALM_EFORMAT, "/calibration/samples");
    refused(calm_quantize(lib, spec, NULL, &came), CALM_EARG, "`model`");
    /* The demo's recipe, which has digests of its files, with another model. */
    lib_ok(calm_spec_load(lib, spec, "qwen-ci"));
    lib_ok(calm_spec_text(lib, spec, &json));
    char *other = test_format("%s", json), *name = strstr(other, "\"qwen\"");
    ck_assert_ptr_nonnull(name);
    const char *swapped = test_format("%.*s\"%s\"%s", (int)(name - other), other, run.recipe.model.dir, name + 6);
    lib_ok(calm_spec_new(lib, &spec));
    lib_ok(calm_spec_load(lib, spec, file_of(&run, swapped)));
    refused(calm_quantize(lib, spec, NULL, &came), CALM_EMISMATCH, "config.json");
    ck_assert(isnan(came.bits_per_weight) && came.run == 0);
    lib_ok(calm_spec_new(lib, &spec));    /* a call that succeeds clears the message */
    ck_assert_str_eq(calm_error_text(lib), "");
    calm_stop(&lib);
}
END_OF_TEST

TEST(bad_requests)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    calm_outcome came;
    calm_verification verification;
    calm_gc_outcome freed;
    calm_check_outcome checked;
    calm_figures figures;
    begin();
    lib_ok(calm_quantize(lib, spec_of(lib, &run), NULL, &came));
    calm_select_request select = {.store = run.recipe.store, .run = 7};
    refused(calm_select(lib, &select, &came), CALM_ENOTFOUND, "run 7");
    select = (calm_select_request){.store = run.recipe.store, .run = 1, .unit = "layer"};
    refused(calm_select(lib, &select, &came), CALM_EARG, "`choice.unit` layer");
    select = (calm_select_request){.store = run.recipe.store, .run = 1, .budget = 2};
    refused(calm_select(lib, &select, &came), CALM_EARG, "`choice.budget`");
    refused(calm_gc(lib, &(calm_gc_request){.store = play_path(&run, "none.db"), .keep = -1}, &freed), CALM_ENOTFOUND,
            "none.db");
    refused(calm_verify(lib, &(calm_verify_request){.lock = play_path(&run, "text.txt")}, &verification), CALM_EFORMAT,
            "text.txt");
    refused(calm_check_path(lib, run.recipe.output, "vlm", &checked), CALM_EARG, "vllm");
    refused(calm_dequantize_to(lib, run.recipe.output, play_path(&run, "f"), "f8", false), CALM_EARG, "f8");
    refused(calm_measure_model(lib, &(calm_measure_request){.model = play_path(&run, "nothing")}, &figures),
            CALM_ENOTFOUND, "nothing");
    calm_stop(&lib);
}
END_OF_TEST

TEST(bad_matrices)
{
    const calm_linear linear = {"matrix", OUT, IN, weights, false}, narrow = {"narrow", OUT, IN - 1, weights, false};
    const calm_linear both[] = {linear, narrow}, empty = {"empty", OUT, IN, NULL, false};
    calm_algorithm *gptq;
    calm_stats stats, none = {0};
    calm_score_ref *reference;
    calm_qjob q;
    uint32_t groups[IN] = {[5] = 9};
    begin();
    fill();
    lib_ok(calm_algorithm_parse(lib, "gptq", &gptq));
    lib_ok(calm_stats_new(lib, inputs, ROWS, IN, &stats));
    calm_job job = {.name = "job", .linears = both, .n_linears = 2, .stats = &stats};
    lib_ok(calm_scheme_parse(lib, "w4a16_g32", &job.scheme));
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_EARG, "narrow");
    job.n_linears = 0;
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_EARG, "without weights");
    job.linears = &empty, job.n_linears = 1;
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_EARG, "no weights");
    job.linears = &linear, job.stats = &none;
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_EARG, "Gram matrix");
    job.stats = &stats, job.absorb_group = groups, job.n_absorb_groups = 9;
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_EARG, "absorb_group[5]");
    job.absorb_group = NULL, job.scheme.bits = 31;
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_EARG, "31 bits");
    weights[3] = NAN;
    job.scheme.bits = 4;
    refused(calm_algorithm_run(lib, gptq, &job, &q), CALM_ENUMERIC, "matrix.weight[0, 3]");
    refused(calm_algorithm_parse(lib, "gtpq", &gptq), CALM_EARG, "gptq");
    refused(calm_stats_new(lib, inputs, 0, IN, &stats), CALM_EARG, "[0, 64]");
    inputs[IN + 1] = INFINITY;
    refused(calm_stats_new(lib, inputs, ROWS, IN, &stats), CALM_ENUMERIC, "x[1, 1]");
    refused(calm_score_prepare(lib, inputs, 3, IN, &reference), CALM_EARG, "3");
    calm_stop(&lib);
}
END_OF_TEST

int main(void)
{
    return run_tests("library", (const TTest *[]){
        a_run_from_spec_to_verified_checkpoint, an_interrupted_run_continues, locks_and_stores, evaluations, matrices,
        contexts_do_not_disturb_each_other, null_is_refused, bad_recipes, bad_requests, bad_matrices, NULL});
}
