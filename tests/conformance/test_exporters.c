/* What every exporter must do, whichever it is: loops over export.def.
 *
 * The directory that is written, opened again, has float32 weights equal bit for bit to those that the guard measured
 * (calm_qblock_apply of the same plan), for every scheme and for plans that mix schemes, float jobs and input scales. */
#include "ptq/hybrid/export.h"

#include <stdio.h>

#include "algorithms/algorithm.h"
#include "ptq/base/file.h"
#include "ptq/base/rng.h"
#include "ptq/base/text.h"
#include "ptq/calib/capture.h"
#include "ptq/hybrid/assemble.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N_BLOCKS 2
#define N_JOBS (N_BLOCKS * CALM_N_JOBS)
#define N_WINDOWS 3
#define WINDOW 20

/* A model, a plan and the quantized jobs that it fetches. */
typedef struct bench {
    calm_model *model;
    calm_plan plan;
    calm_plan_job jobs[N_JOBS];
    calm_qjob qjobs[N_JOBS];
} bench;

/* 64 and 96 columns: groups of 32 divide both. */
static tiny_model wide_model(void)
{
    tiny_model spec = tiny_default;
    spec.hidden = 64;
    spec.inner = 96;
    spec.head_dim = 16;
    return spec;
}

/* ---- a plan ---- */

static calm_status fetch(void *user, calm_ctx *task, const calm_plan_job *job, calm_qjob *out)
{
    const bench *b = user;
    *out = b->qjobs[job - b->jobs];
    /* What is fetched belongs to the assembly, which changes its scales. */
    const float *scales = out->scales;
    CALM_TRY(CALM_NEW(task, task->out, out->scales, out->out * out->n_groups));
    memcpy(out->scales, scales, out->out * out->n_groups * sizeof *scales);
    return CALM_OK;
}

static calm_windows new_windows(size_t vocab)
{
    calm_windows windows = {.n = N_WINDOWS, .longest = WINDOW};
    ck_ok(CALM_NEW(ctx, ctx->out, windows.begin, N_WINDOWS + 1));
    ck_ok(CALM_NEW(ctx, ctx->out, windows.ids, N_WINDOWS * WINDOW));
    for (size_t w = 0; w <= N_WINDOWS; w++)
        windows.begin[w] = w * WINDOW;
    for (size_t i = 0; i < N_WINDOWS * WINDOW; i++)
        windows.ids[i] = (uint32_t)(calm_rng_u64(17, 0, i) % vocab);
    return windows;
}

/* Quantize job `kind` of the block as the pipeline does; smoothing and rounding take turns over the jobs. */
static void quantize(bench *b, const calm_block *block, calm_job_kind kind, const calm_stats *stats)
{
    const calm_config *config = block->config;
    const size_t index = block->index * CALM_N_JOBS + kind, d = config->head_dim;
    calm_linear linears[CALM_N_ROLES];
    calm_job job = {.name = "job", .linears = linears, .stats = stats, .scheme = b->jobs[index].scheme, .can_absorb = true};
    calm_algorithm *algorithm;
    uint32_t *groups;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *weight = &block->weight[role];
        if (calm_role_job(role) == kind)
            linears[job.n_linears++] = (calm_linear){weight->name, weight->out, weight->in, weight->w};
    }
    if (kind == CALM_JOB_O) {    /* query heads of one kv head share a row of v */
        ck_ok(CALM_NEW(ctx, ctx->out, groups, config->n_heads * d));
        for (size_t i = 0; i < config->n_heads * d; i++)
            groups[i] = (uint32_t)(i / d / (config->n_heads / config->n_kv) * d + i % d);
        job.absorb_group = groups;
        job.n_absorb_groups = config->n_kv * d;
    }
    b->jobs[index].algorithm = (index + block->index) % 2 ? "rtn" : "smoothquant";
    ck_ok(calm_algorithm_parse(ctx, b->jobs[index].algorithm, &algorithm));
    ck_ok(calm_algorithm_run(ctx, algorithm, &job, &b->qjobs[index]));
}

/* schemes [n] take turns over the jobs; "float" leaves a job as it is. */
static void new_bench(bench *b, const tiny_model *spec, const char *const *schemes, size_t n)
{
    const calm_capture_options options = {.grams = true};
    calm_rope rope;
    calm_batch batch;
    *b = (bench){.plan = {.n_blocks = N_BLOCKS, .jobs = b->jobs, .fetch = fetch, .user = b}};
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &b->model));
    const calm_windows windows = new_windows(spec->vocab);
    ck_ok(calm_rope_init(ctx, calm_model_config(b->model), WINDOW, &rope));
    ck_ok(calm_batch_embed(ctx, b->model, &windows, 0, windows.n, ctx->out, &batch));
    for (size_t i = 0; i < N_BLOCKS; i++) {
        calm_block block;
        calm_capture capture;
        ck_ok(calm_model_load_block(ctx, b->model, i, &block));
        ck_ok(calm_capture_block(ctx, &block, &rope, &batch, &options, &capture));
        for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
            calm_plan_job *job = &b->jobs[i * CALM_N_JOBS + kind];
            ck_ok(calm_scheme_parse(ctx, schemes[(i * CALM_N_JOBS + kind) % n], &job->scheme));
            job->quantized = job->scheme.bits != 0;
            if (job->quantized)
                quantize(b, &block, kind, &capture.stats[kind]);
        }
    }
}

static calm_export_input input_of(const bench *b)
{
    return (calm_export_input){.model = b->model, .plan = &b->plan};
}

static const char *export(const calm_exporter *exporter, const bench *b)
{
    const calm_export_input input = input_of(b);
    const char *dir = test_directory();
    ck_ok(exporter->check(ctx, &input));
    ck_ok(exporter->write(ctx, &input, dir));
    return dir;
}

/* ---- read back ---- */

static void check_floats(const char *what, const float *found, const float *expected, size_t n)
{
    ck_assert_msg(!found == !expected, "%s: is%s there", what, found ? "" : " not");
    for (size_t i = 0; found && i < n; i++)
        ck_assert_msg(memcmp(&found[i], &expected[i], sizeof *found) == 0, "%s [%zu]: %.9g, expected %.9g", what, i,
                      (double)found[i], (double)expected[i]);
}

static void check_block(const bench *b, const calm_model *written, size_t index)
{
    calm_block expected, found;
    calm_qblock assembled;
    ck_ok(calm_model_load_block(ctx, b->model, index, &expected));
    ck_ok(calm_assemble_block(ctx, b->model, &b->plan, &expected, &assembled));
    ck_ok(calm_qblock_apply(ctx, &assembled, &expected));
    ck_ok(calm_model_load_block(ctx, written, index, &found));
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *f = &found.weight[role], *e = &expected.weight[role];
        check_floats(e->name, f->w, e->w, e->out * e->in);
        check_floats(test_format("%s.bias", e->name), f->bias, e->bias, e->out);
        ck_assert_ptr_null(f->in_scale);
        ck_assert_msg(f->act_bits == e->act_bits, "%s: activations of %d bits, expected %d", e->name, f->act_bits, e->act_bits);
    }
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        check_floats("norm", found.norm[s], expected.norm[s], expected.config->hidden);
    check_floats("q_norm", found.q_norm, expected.q_norm, expected.config->head_dim);
}

static void check_written(const bench *b, const char *dir)
{
    calm_model *written;
    calm_head found, expected;
    ck_ok(calm_model_open(ctx, dir, &written));
    ck_assert(calm_model_is_quantized(written));
    for (size_t i = 0; i < N_BLOCKS; i++)
        check_block(b, written, i);
    ck_ok(calm_model_load_head(ctx, b->model, &expected));
    ck_ok(calm_model_load_head(ctx, written, &found));
    check_floats("final norm", found.norm, expected.norm, expected.hidden);
    check_floats("head", found.w, expected.w, expected.vocab * expected.hidden);
    calm_model_close(written);
}

static void check_plan(const tiny_model *spec, const char *const *schemes, size_t n)
{
    size_t n_exporters;
    bench b;
    new_bench(&b, spec, schemes, n);
    for (size_t e = 0; e < (calm_exporters(&n_exporters), n_exporters); e++)
        check_written(&b, export(calm_exporters(&n_exporters)[e], &b));
    calm_model_close(b.model);
}

/* ---- tests ---- */

TEST(one_scheme)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a16", "w2a16_g32", "w3a16_g32", "w8a8", "w4a4_g32",
                                          "w4a16_g32_asym", "w4a16_g32_f16s", "w2a16_g32_asym", "w8a16_asym"};
    const tiny_model spec = wide_model();
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
        check_plan(&spec, &schemes[s], 1);
}
END_OF_TEST

TEST(mixed_schemes)
{
    static const char *const pair[] = {"w4a16_g32", "w8a8"}, *const same_format[] = {"w4a16_g32", "w2a16_g32", "w8a16"};
    static const char *const with_float[] = {"w4a16_g32", "float", "w8a8", "w3a16_g32", "float"};
    const tiny_model spec = wide_model();
    check_plan(&spec, pair, 2);
    check_plan(&spec, same_format, 3);
    check_plan(&spec, with_float, 5);
}
END_OF_TEST

/* Biases, an untied head, other dtypes of the checkpoint. */
TEST(other_models)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a8", "float"};
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16};
    for (size_t i = 0; i < 3; i++) {
        tiny_model spec = wide_model();
        spec.bias = true;
        spec.tied = false;
        spec.dtype = dtypes[i];
        check_plan(&spec, schemes, 3);
    }
}
END_OF_TEST

/* Every member of the float config.json is in the written one, unchanged, before what the format adds. */
TEST(config_keeps_every_key)
{
    static const char *const scheme = "w4a16_g32";
    const tiny_model spec = wide_model();
    size_t n;
    bench b;
    new_bench(&b, &spec, &scheme, 1);
    for (size_t e = 0; e < (calm_exporters(&n), n); e++) {
        const char *dir = export(calm_exporters(&n)[e], &b), *key, *found;
        const calm_json *value;
        void *iter = NULL, *found_iter = NULL;
        calm_json *config;
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &config));
        while (calm_json_next(calm_model_json(b.model), &iter, &key, &value)) {
            const calm_json *other;
            calm_text x, y;
            ck_assert(calm_json_next(config, &found_iter, &found, &other));
            ck_assert_str_eq(found, key);
            calm_text_init(&x);
            calm_text_init(&y);
            ck_ok(calm_json_write(ctx, value, 0, &x));
            ck_ok(calm_json_write(ctx, other, 0, &y));
            ck_assert_str_eq(x.data, y.data);
            calm_text_clear(&x);
            calm_text_clear(&y);
        }
        ck_assert_uint_gt(calm_json_size(config), calm_json_size(calm_model_json(b.model)));
        calm_json_free(config);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* Block of a tensor's name, -1 outside. */
static long block_of(const char *name)
{
    const char *at = strstr(name, "layers.");
    return at ? atol(at + strlen("layers.")) : -1;
}

/* One block after the other in the file, so that one is in memory at a time: by data address. */
static void check_order(const char *dir)
{
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        for (size_t j = 0; j < calm_safetensors_count(set); j++) {
            const calm_tensor *a = calm_safetensors_at(set, i), *b = calm_safetensors_at(set, j);
            ck_assert_msg(a->data >= b->data || block_of(a->name) <= block_of(b->name), "%s before %s", a->name, b->name);
        }
    calm_safetensors_close(set);
}

TEST(same_bytes_in_a_fixed_order)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a8"};
    const tiny_model spec = wide_model();
    size_t n;
    bench b;
    new_bench(&b, &spec, schemes, 2);
    for (size_t e = 0; e < (calm_exporters(&n), n); e++) {
        ctx->n_threads = 1;
        const char *first = export(calm_exporters(&n)[e], &b);
        ctx->n_threads = 4;
        const char *second = export(calm_exporters(&n)[e], &b);
        static const char *const files[] = {"model.safetensors", "config.json"};
        for (size_t i = 0; i < 2; i++) {
            char x[CALM_SHA256_HEX], y[CALM_SHA256_HEX];
            ck_ok(calm_sha256_file(ctx, test_format("%s/%s", first, files[i]), x));
            ck_ok(calm_sha256_file(ctx, test_format("%s/%s", second, files[i]), y));
            ck_assert_str_eq(x, y);
        }
        check_order(first);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* The plan is refused before anything is written. */
static void check_refused(const tiny_model *spec, const char *scheme, const char *words)
{
    size_t n;
    bench b = {.plan = {.n_blocks = N_BLOCKS, .jobs = b.jobs}};
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &b.model));
    for (size_t i = 0; i < N_JOBS; i++) {
        b.jobs[i].quantized = true;
        ck_ok(calm_scheme_parse(ctx, scheme, &b.jobs[i].scheme));
    }
    const calm_export_input input = input_of(&b);
    ck_fails(calm_exporters(&n)[0]->check(ctx, &input), CALM_EUNSUPPORTED, words);
    calm_model_close(b.model);
}

TEST(refused_by_name)
{
    tiny_model spec = wide_model(), odd = wide_model();
    odd.inner = 50;
    check_refused(&spec, "w4a16_g64", "model.layers.0.mlp.down_proj has 96 input columns, which groups of 64 do not divide; "
                                      "groups of 32 do (--scheme w4a16_g32)");
    check_refused(&odd, "w4a16_g32", "model.layers.0.mlp.down_proj has 50 input columns");
    check_refused(&odd, "w4a16_g32", "use a scheme without groups");
    check_refused(&spec, "w8a8_asym", "symmetric");
}
END_OF_TEST

TEST(every_allocation_fails)
{
    static const char *const schemes[] = {"w4a16_g32_asym", "w8a8"};
    const tiny_model spec = wide_model();
    size_t n, failures = 0;
    bench b;
    new_bench(&b, &spec, schemes, 2);
    const calm_export_input input = input_of(&b);
    for (size_t e = 0; e < (calm_exporters(&n), n); e++)
        for (int which = 0; which < 2; which++) {
            calm_arena *arena = which ? ctx->out : ctx->scratch;
            bool used = true;
            for (size_t k = 1; used; k++) {
                arena->fail_in = k;
                const calm_status status = calm_exporters(&n)[e]->write(ctx, &input, test_directory());
                used = arena->fail_in == 0;
                arena->fail_in = 0;
                ck_assert_int_eq(status, used ? CALM_ENOMEM : CALM_OK);
                failures += used;
                calm_ctx_forgive(ctx);
            }
        }
    ck_assert_uint_gt(failures, 50);
    calm_model_close(b.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("exporters", (const TTest *[]){one_scheme, mixed_schemes, other_models, config_keeps_every_key,
                                                    same_bytes_in_a_fixed_order, refused_by_name, every_allocation_fails,
                                                    NULL});
}
