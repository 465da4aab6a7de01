/* Properties that every exporter must have; the tests loop over export.def.
 *
 * A written directory, opened as a model, has float32 weights equal bit for bit to those that the guard measured
 * (calm_plan_apply() of the same plan), for every family, every scheme, and plans with several schemes, float jobs,
 * input scales and corrected biases.  So the weights do not depend on the format. */
#include "ptq/export/export.h"

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/plan/assemble.h"
#include "ptq/arch/arch.h"
#include "ptq/model/head.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Returns a model of 64 and 96 columns, which groups of 32 divide. */
static tiny_model wide_model(void)
{
    tiny_model spec = tiny_default;
    spec.hidden = 64;
    spec.inner = 96;
    spec.head_dim = 16;
    return spec;
}

static void new_plan(tiny_plan *p, const tiny_model *spec, const char *const *schemes, size_t n)
{
    tiny_plan_open(p, tiny_model_write(spec));
    tiny_plan_quantize_all(p, schemes, n, TINY_GENERAL);
    tiny_plan_correct_all(p);
}

static calm_export_options options = {.asymmetric = true};

static calm_export_input input_of(const tiny_plan *p)
{
    return (calm_export_input){.model = p->model, .plan = &p->plan, .options = &options};
}

/* Returns exporter `e` of checkpoints, which come first in export.def; those of single files have separate tests. */
static const calm_exporter *exporter_at(size_t e)
{
    size_t n;
    const calm_exporter *const *all = calm_exporters(&n);
    return e < n && !all[e]->file ? all[e] : NULL;
}

static bool is(const calm_exporter *exporter, const char *name)
{
    return strcmp(exporter->name, name) == 0;
}

/* Returns n schemes that the exporter takes for all jobs. */
static const char *const *schemes_of(const calm_exporter *exporter, size_t *n)
{
    static const char *const all[] = {"w4a16_g32", "w8a8"}, *const weights[] = {"w4a16_g32", "w8a16"},
                      *const four[] = {"w4a16_g32", "w4a16_g32_asym"};
    *n = 2;
    return is(exporter, "compressed_tensors") ? all : is(exporter, "awq") ? four : weights;
}

/* Tells whether the exporter takes the plan; otherwise checks that its message names the exporter. */
static bool takes(const calm_exporter *exporter, const tiny_plan *p)
{
    const calm_export_input input = input_of(p);
    const calm_status status = calm_exporter_check(ctx, exporter, &input);
    if (status == CALM_OK)
        return true;
    ck_assert_msg(status == CALM_EUNSUPPORTED && !is(exporter, "compressed_tensors"), "%s: %s", exporter->name,
                  ctx->message);
    ck_assert_msg(strstr(ctx->message, exporter->name) != NULL, "%s", ctx->message);
    calm_ctx_clear_failure(ctx);
    return false;
}

static const char *export(const calm_exporter *exporter, const tiny_plan *p)
{
    const calm_export_input input = input_of(p);
    const char *dir = test_directory();
    ck_ok(exporter->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
    return dir;
}

/* ---- reading back ---- */

static void check_floats(const char *what, const float *found, const float *expected, size_t n)
{
    ck_assert_msg(!found == !expected, "%s: is%s there", what, found ? "" : " not");
    for (size_t i = 0; found && i < n; i++)
        ck_assert_msg(memcmp(&found[i], &expected[i], sizeof *found) == 0, "%s [%zu]: %.9g, expected %.9g", what, i,
                      (double)found[i], (double)expected[i]);
}

static void check_weights(const calm_weight found[CALM_N_ROLES], const calm_weight expected[CALM_N_ROLES])
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *f = &found[role], *e = &expected[role];
        check_floats(e->name, f->w, e->w, e->out * e->in);
        check_floats(test_format("%s.bias", e->name), f->bias, e->bias, e->out);
        ck_assert_ptr_null(f->in_scale);
        ck_assert_msg(f->act_bits == e->act_bits, "%s: activations of %d bits, expected %d", e->name, f->act_bits,
                      e->act_bits);
        ck_assert(f->act_rule == e->act_rule && f->act_global == e->act_global);
        ck_assert_msg(f->act_asymmetric == e->act_asymmetric, "%s: activations are %s", e->name,
                      f->act_asymmetric ? "asymmetric" : "symmetric");
    }
}

static void check_norm(const char *what, const calm_norm *found, const calm_norm *expected)
{
    check_floats(what, found->w, expected->w, expected->width);
    check_floats(what, found->b, expected->b, expected->width);
}

static void check_block(const tiny_plan *p, const calm_model *written, size_t index)
{
    calm_plan_override override = {p->model, &p->plan};
    const calm_config *config = calm_model_config(p->model);
    calm_block expected, found;
    ck_ok(calm_model_load_block(ctx, p->model, index, &expected));
    ck_ok(calm_plan_apply(&override, ctx, index, &expected));
    ck_ok(calm_model_load_block(ctx, written, index, &found));
    check_weights(found.weight, expected.weight);
    check_weights(found.moe.shared, expected.moe.shared);
    check_floats("router", found.moe.router, expected.moe.router, config->moe.n_experts * config->hidden);
    check_floats("shared gate", found.moe.shared_gate, expected.moe.shared_gate, config->hidden);
    for (size_t e = 0; expected.moe.router && e < config->moe.n_experts; e++)
        check_weights(tiny_plan_weights(&found, (long)e), tiny_plan_weights(&expected, (long)e));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            check_norm("norm", &found.norm[s][place], &expected.norm[s][place]);
    check_norm("q_norm", &found.plain[CALM_PLAIN_Q_NORM], &expected.plain[CALM_PLAIN_Q_NORM]);
    check_norm("k_norm", &found.plain[CALM_PLAIN_K_NORM], &expected.plain[CALM_PLAIN_K_NORM]);
}

static void check_table(const calm_tensor *found, const calm_tensor *expected)
{
    ck_assert(!found == !expected);
    ck_assert(!found || (found->bytes == expected->bytes && memcmp(found->data, expected->data, found->bytes) == 0));
}

static void check_head(const calm_model *model, const calm_model *written)
{
    const calm_tensor *found_table, *expected_table;
    calm_head found, expected;
    ck_ok(calm_model_load_head(ctx, model, &expected));
    ck_ok(calm_model_load_head(ctx, written, &found));
    check_norm("final norm", &found.norm, &expected.norm);
    check_table(found.table, expected.table);
    check_floats("head's bias", found.bias, expected.bias, expected.vocab);
    check_floats("transform", found.transform.w, expected.transform.w, expected.hidden * expected.hidden);
    check_norm("transform's norm", &found.transform_norm, &expected.transform_norm);
    check_floats("pooler", found.pooler.w, expected.pooler.w, expected.hidden * expected.hidden);
    ck_ok(calm_model_table(ctx, model, false, &expected_table));
    ck_ok(calm_model_table(ctx, written, false, &found_table));
    check_table(found_table, expected_table);
}

/* The reader can be set to vLLM's rule for rounding activations if some linear has quantized activations. */
static void check_rule(const tiny_plan *p, calm_model *written)
{
    calm_block block;
    bool quantizes = false;
    for (size_t j = 0; j < calm_model_layout(p->model)->n_jobs; j++)
        quantizes |= p->plan.jobs[j].quantized && p->plan.jobs[j].scheme.act_bits;
    if (!quantizes) {
        ck_fails(calm_model_set_act_rule(ctx, written, CALM_ACT_RULE_VLLM), CALM_EARG, "does not quantize activations");
        return;
    }
    ck_ok(calm_model_set_act_rule(ctx, written, CALM_ACT_RULE_VLLM));
    ck_ok(calm_model_load_block(ctx, written, 0, &block));
    for (calm_role role = 0; role < CALM_N_ROLES; role++)    /* no weight keeps the other rule */
        ck_assert(!block.weight[role].w || block.weight[role].act_rule != CALM_ACT_RULE_COMPRESSED_TENSORS);
}

static void check_written(const tiny_plan *p, const char *dir)
{
    calm_model *written;
    ck_ok(calm_model_open(ctx, dir, &written));
    ck_assert(calm_model_is_quantized(written));
    for (size_t i = 0; i < calm_model_config(p->model)->n_blocks; i++)
        check_block(p, written, i);
    check_head(p->model, written);
    check_rule(p, written);
    calm_model_close(written);
}

/* Writes and reads the plan in every format that takes it; returns the formats' names, separated by spaces. */
static const char *check_formats(const tiny_plan *p)
{
    const char *names = "";
    const calm_exporter *exporter;
    for (size_t e = 0; (exporter = exporter_at(e)); e++)
        if (takes(exporter, p)) {
            check_written(p, export(exporter, p));
            names = test_format("%s%s%s", names, *names ? " " : "", exporter->name);
        }
    return names;
}

static void check_plan(const tiny_model *spec, const char *const *schemes, size_t n, const char *formats)
{
    tiny_plan p;
    new_plan(&p, spec, schemes, n);
    const char *names = check_formats(&p);
    ck_assert_msg(strcmp(names, formats) == 0, "%s and %zu more: written as %s, expected %s", schemes[0], n - 1, names,
                  formats);
    calm_model_close(p.model);
}

#define ALL "compressed_tensors gptq awq mlx"

/* ---- tests ---- */

TEST(one_scheme)
{
    static const struct {
        const char *formats, *schemes[10];
    } rows[] = {
        {ALL, {"w4a16_g32", "w4a16_g32_asym", "w4a16_g32_f16s", "w4a16", "w4a16_asym"}},
        {"compressed_tensors gptq mlx", {"w8a16", "w2a16_g32", "w3a16_g32", "w2a16_g32_asym", "w3a16_g32_asym",
                                         "w8a16_asym", "w8a16_g32_asym_f16s"}},
        {"compressed_tensors", {"w8a8", "w4a4_g32", "w8a8_asymact", "w8a8_static", "w8a8_static_f16s",
                                "fp8_static_f16s", "w4afp8_g32", "w3afp8", "fp8_tensor_static_f16s"}},
        {"compressed_tensors gptq awq", {"w4a16_g16"}},
    };
    const tiny_model spec = wide_model();
    for (size_t r = 0, s; r < sizeof rows / sizeof *rows; r++)
        for (s = 0; rows[r].schemes[s]; s++)
            check_plan(&spec, &rows[r].schemes[s], 1, rows[r].formats);
}
END_OF_TEST

/* Every exporter that claims a row of schemes.def writes it, with the activations of its name and without. */
TEST(every_row)
{
    size_t n_written = 0;
    tiny_model spec = wide_model();
    spec.hidden = spec.inner = 4 * (spec.head_dim = 32);    /* block sizes divide these */
    for (int family = 1; family < CALM_N_FAMILIES; family++)
        for (size_t e = 0, alone; exporter_at(e); e++)
            for (alone = 0; alone < 2 && exporter_at(e)->families >> family & 1; alone++, n_written++) {
                tiny_plan p;
                const char *scheme = test_format("%s%s", calm_families[family].name, alone ? "a16" : "");
                new_plan(&p, &spec, &scheme, 1);
                check_written(&p, export(exporter_at(e), &p));
                calm_model_close(p.model);
            }
    ck_assert_uint_ge(n_written, 8);
}
END_OF_TEST

TEST(mixed_schemes)
{
    static const char *const pair[] = {"w4a16_g32", "w8a8_asymact"}, *const fixed[] = {"w8a8", "w8a8_static"},
        *const floats[] = {"fp8", "fp8_static", "w4afp8_g32", "w4a16_g32", "fp8a16", "fp8_tensor_static"},
        *const same_format[] = {"w4a16_g32", "w2a16_g32", "w8a16"}, *const groups[] = {"w4a16_g32", "w4a16"},
        *const with_float[] = {"w4a16_g32", "float", "w8a8", "w3a16_g32", "w8a8_asymact", "float"},
        *const weights[] = {"w4a16_g32", "float", "w8a16_asym", "w3a16_g32"},
        *const four[] = {"w4a16_g32", "float", "w4a16_g32_asym"};
    const tiny_model spec = wide_model();
    check_plan(&spec, pair, 2, "compressed_tensors");
    check_plan(&spec, fixed, 2, "compressed_tensors");
    check_plan(&spec, floats, 6, "compressed_tensors");
    check_plan(&spec, same_format, 3, "compressed_tensors gptq mlx");
    check_plan(&spec, with_float, 5, "compressed_tensors");
    check_plan(&spec, weights, 4, "compressed_tensors gptq mlx");
    check_plan(&spec, four, 3, ALL);
    check_plan(&spec, groups, 2, "compressed_tensors gptq mlx");
}
END_OF_TEST

/* Models with biases, with an untied head, and with each float dtype. */
TEST(other_models)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a8", "float"}, *const weights[] = {"w4a16_g32", "float"};
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16};
    for (size_t i = 0; i < 3; i++) {
        tiny_model spec = wide_model();
        spec.bias = true;
        spec.tied = false;
        spec.dtype = dtypes[i];
        check_plan(&spec, schemes, 3, "compressed_tensors");
        check_plan(&spec, weights, 2, ALL);
    }
}
END_OF_TEST

TEST(every_family)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a8", "float"}, *const weights[] = {"w4a16_g32", "w8a16",
                                                                                             "float"};
    for (size_t f = 0; tiny_families[f]; f++)
        for (size_t n = 1; n <= 5; n += 2) {
            tiny_model spec = tiny_wide(tiny_families[f]);
            tiny_plan p;
            spec.tied = n == 1;
            tiny_plan_open(&p, tiny_model_write(&spec));
            tiny_plan_quantize_family(&p, n == 5 ? weights : schemes, n < 3 ? n : 3);
            tiny_plan_correct_all(&p);
            const char *names = check_formats(&p);    /* MLX has no biases of experts */
            const char *mlx = calm_model_config(p.model)->moe.bias ? "" : " mlx";
            const char *most = test_format("compressed_tensors gptq%s%s", n == 5 ? "" : " awq", mlx);
            ck_assert_msg(!strcmp(names, n == 3 ? "compressed_tensors" : most), "%s: %s", tiny_families[f], names);
            calm_model_close(p.model);
        }
}
END_OF_TEST

/* ---- the written files ---- */

/* The written config.json has every member of the model's, unchanged and in order, and then what the format adds. */
TEST(config_keeps_every_key)
{
    static const char *const scheme = "w4a16_g32";
    const tiny_model spec = wide_model();
    tiny_plan p;
    new_plan(&p, &spec, &scheme, 1);
    for (size_t e = 0; exporter_at(e); e++) {
        const char *dir = export(exporter_at(e), &p), *key, *found;
        const calm_json *value;
        void *iter = NULL, *found_iter = NULL;
        calm_json *config;
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &config));
        while (calm_json_next(calm_model_json(p.model), &iter, &key, &value)) {
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
        ck_assert_uint_gt(calm_json_size(config), calm_json_size(calm_model_json(p.model)));
        calm_json_free(config);
    }
    calm_model_close(p.model);
}
END_OF_TEST

/* Returns the block number in a tensor's name, -1 for tensors outside of blocks. */
static long block_of(const char *name)
{
    const char *at = strstr(name, "layers.");
    return at ? atol(at + strlen("layers.")) : -1;
}

/* Checks by data addresses that the file has the blocks in order, so that a writer holds one block at a time. */
static void check_order(const char *dir)
{
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        for (size_t j = 0; j < calm_safetensors_count(set); j++) {
            const calm_tensor *a = calm_safetensors_at(set, i), *b = calm_safetensors_at(set, j);
            ck_assert_msg(a->data >= b->data || block_of(a->name) <= block_of(b->name), "%s before %s", a->name,
                          b->name);
        }
    calm_safetensors_close(set);
}

TEST(same_bytes_in_a_fixed_order)
{
    const tiny_model spec = wide_model();
    for (size_t e = 0, n; exporter_at(e); e++) {
        tiny_plan p;
        const char *const *schemes = schemes_of(exporter_at(e), &n);
        new_plan(&p, &spec, schemes, n);
        ctx->n_threads = 1;
        const char *first = export(exporter_at(e), &p);
        ctx->n_threads = 4;
        const char *second = export(exporter_at(e), &p);
        static const char *const files[] = {"model.safetensors", "config.json"};
        for (size_t i = 0; i < 2; i++) {
            char x[CALM_SHA256_HEX], y[CALM_SHA256_HEX];
            ck_ok(calm_sha256_file(ctx, test_format("%s/%s", first, files[i]), x));
            ck_ok(calm_sha256_file(ctx, test_format("%s/%s", second, files[i]), y));
            ck_assert_str_eq(x, y);
        }
        check_order(first);
        calm_model_close(p.model);
    }
}
END_OF_TEST

/* Checks that every file with several tensors is within the limit; returns the number of files. */
static size_t check_shards(const char *dir, size_t limit)
{
    calm_safetensors *set;
    size_t bytes[64] = {0}, tensors[64] = {0}, n = 0, total = 0;
    calm_json *index;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        ck_assert_uint_lt(tensor->shard, 64);
        bytes[tensor->shard] += tensor->bytes;
        tensors[tensor->shard]++;
        total += tensor->bytes;
        n = tensor->shard >= n ? tensor->shard + 1 : n;
    }
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(bytes[i] <= limit || tensors[i] == 1, "file %zu has %zu bytes", i, bytes[i]);
    ck_ok(calm_json_read(ctx, test_format("%s/model.safetensors.index.json", dir), 1 << 20, &index));
    ck_assert_int_eq(calm_json_int(calm_json_get(calm_json_get(index, "metadata"), "total_size"), 0), (int64_t)total);
    ck_assert_uint_eq(calm_json_size(calm_json_get(index, "weight_map")), calm_safetensors_count(set));
    calm_json_free(index);
    calm_safetensors_close(set);
    return n;
}

/* Files of at most 20 kB have the same tensors as one file. */
TEST(shards)
{
    const size_t limit = 20000;
    const tiny_model spec = wide_model();
    for (size_t e = 0, n; exporter_at(e); e++) {
        tiny_plan p;
        const char *const *schemes = schemes_of(exporter_at(e), &n);
        calm_safetensors *one, *many;
        new_plan(&p, &spec, schemes, n);
        const char *whole = export(exporter_at(e), &p);
        options.max_shard_bytes = limit;
        const char *dir = export(exporter_at(e), &p);
        options.max_shard_bytes = 0;
        ck_assert(!calm_path_exists(test_format("%s/model.safetensors.index.json", whole)));
        ck_assert(!calm_path_exists(test_format("%s/model.safetensors", dir)));
        const size_t files = check_shards(dir, limit);
        ck_assert_uint_gt(files, 2);
        ck_assert(calm_path_exists(test_format("%s/model-00001-of-%05zu.safetensors", dir, files)));
        ck_ok(calm_safetensors_open(ctx, whole, &one));
        ck_ok(calm_safetensors_open(ctx, dir, &many));
        ck_assert_uint_eq(calm_safetensors_count(one), calm_safetensors_count(many));
        for (size_t i = 0; i < calm_safetensors_count(one); i++) {
            const calm_tensor *a = calm_safetensors_at(one, i), *b = calm_safetensors_find(many, a->name);
            ck_assert(b && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0);
        }
        calm_safetensors_close(one);
        calm_safetensors_close(many);
        check_written(&p, dir);
        calm_model_close(p.model);
    }
}
END_OF_TEST

/* Checks that the exporter refuses the plan before it writes anything. */
static void check_refused(const char *format, const tiny_model *spec, const char *scheme, const char *words)
{
    const calm_exporter *exporter;
    tiny_plan p;
    ck_ok(calm_exporter_find(ctx, format, &exporter));
    tiny_plan_open(&p, tiny_model_write(spec));
    for (size_t i = 0; i < p.plan.n_jobs; i++) {
        p.plan.jobs[i].quantized = true;
        ck_ok(calm_scheme_parse(ctx, scheme, &p.plan.jobs[i].scheme));
    }
    const calm_export_input input = input_of(&p);
    ck_fails(calm_exporter_check(ctx, exporter, &input), CALM_EUNSUPPORTED, words);
    calm_model_close(p.model);
}

TEST(refused_by_name)
{
    static const char *const formats[] = {"compressed-tensors", "gptq", "awq", "mlx"};
    tiny_model spec = wide_model(), odd = wide_model(), thin = wide_model();
    odd.inner = 50;
    thin.inner = 44;
    for (size_t i = 0; i < 4; i++) {
        check_refused(formats[i], &spec, "w4a16_g64",
                      "model.layers.0.mlp.down_proj has 96 input columns, which groups of 64 do not divide; "
                      "groups of 32 do (`schemes` w4a16_g32; `group_fallback` 32 where they must), or `group_fallback` "
                      "float leaves it float");
        check_refused(formats[i], &odd, "w4a16_g32",
                      "mlp.down_proj has 50 input columns, which groups of 32 do not divide");
        check_refused(formats[i], &spec, "w4a16_g128", "groups of 32 do (");    /* 64 does in q_proj alone */
        if (i)
            check_refused(formats[i], &spec, "w8a8",
                          "model.layers.0.qkv is w8a8: the format has no quantized activations");
    }
    check_refused("compressed-tensors", &spec, "w8a8_asym", "symmetric");
    check_refused("gptq", &thin, "w4a16",
                  "model.layers.0.mlp.gate_proj has 44 rows of 4 bits, which do not fill 32-bit words");
    check_refused("awq", &spec, "w8a16_g32", "the format has weights of 4 bits alone");
    check_refused("mlx", &spec, "w4a16_g16", "the format has groups of 32, 64 and 128");
    check_refused("mlx", &odd, "w8a16", "with 50 columns");
    options.asymmetric = false;
    check_refused("compressed-tensors", &spec, "w4a16_g32_asym", "`asymmetric`");
    options.asymmetric = true;
}
END_OF_TEST

TEST(every_allocation_fails)
{
    const tiny_model spec = wide_model();
    for (size_t e = 0, n, failures = 0; exporter_at(e); e++, failures = 0) {
        tiny_plan p;
        const char *const *schemes = schemes_of(exporter_at(e), &n);
        new_plan(&p, &spec, schemes, n);
        const calm_export_input input = input_of(&p);
        for (int which = 0; which < 2; which++) {
            calm_arena *arena = which ? ctx->out : ctx->scratch;
            bool used = true;
            for (size_t k = 1; used; k++) {
                arena->fail_in = k;
                const calm_status status = calm_exporter_write(ctx, exporter_at(e), &input, test_directory());
                used = arena->fail_in == 0;
                arena->fail_in = 0;
                ck_assert_int_eq(status, used ? CALM_ENOMEM : CALM_OK);
                failures += used;
                calm_ctx_clear_failure(ctx);
            }
        }
        ck_assert_uint_gt(failures, 50);
        calm_model_close(p.model);
    }
}
END_OF_TEST

TEST(found_by_name)
{
    static const char *const names[] = {"compressed-tensors", "compressed_tensors", "gptq", "awq", "mlx"};
    const calm_exporter *exporter;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_ok(calm_exporter_find(ctx, names[i], &exporter));
        ck_assert_int_eq(exporter->name[0], names[i][0]);
    }
    ck_fails(calm_exporter_find(ctx, "gtpq", &exporter), CALM_EARG, "did you mean gptq?");
    ck_fails(calm_exporter_find(ctx, "compressed_tensor", &exporter), CALM_EARG, "did you mean compressed-tensors?");
    ck_fails(calm_exporter_find(ctx, "onnx", &exporter), CALM_EARG,
             "no such format; there is compressed-tensors, gptq");
    ck_fails(calm_exporter_find(ctx, "", &exporter), CALM_EARG, "no such format");
}
END_OF_TEST

/* ---- memory ---- */

/* The estimate of memory holds while the largest tensor of a block is written.  The peak may be below it by what a
 * format does not transpose and by input scales that jobs lack; it may be above it by a chunk in each of four
 * arenas, the names and the index. */
static void check_memory(const calm_exporter *exporter, const char *family, const char *scheme)
{
    tiny_model spec = tiny_wide(family);
    calm_scheme parsed;
    tiny_plan p;
    size_t largest = 0, scales = 0;
    spec.hidden = 256;
    spec.head_dim = 64;
    spec.inner = 512;
    spec.expert_inner = spec.shared_inner = 384;
    new_plan(&p, &spec, &scheme, 1);
    tiny_plan_pack(&p);
    ck_ok(calm_scheme_parse(ctx, scheme, &parsed));
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t i = 0; i < layout->n_linears; i++)
        largest = calm_size_max(largest, layout->linears[i].out * layout->linears[i].in);
    for (size_t j = 0; j < layout->n_jobs; j++)
        scales += CALM_BYTES(float, layout->jobs[j].in);
    const size_t said = calm_exporter_write_bytes(exporter, p.model, &parsed, true);
    const size_t names = 4 * 128 * calm_safetensors_count(calm_model_tensors(p.model));
    const calm_export_input input = input_of(&p);
    const char *dir = test_directory();
    test_memory_begin();
    ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
    const size_t most = test_memory_end().most;
    ck_assert_msg(most + 2 * largest + scales >= said, "%s, %s: took %zu, said %zu", exporter->name, family, most,
                  said);
    ck_assert_msg(most <= said + names + 4 * CALM_ARENA_CHUNK, "%s, %s: took %zu, said %zu", exporter->name, family,
                  most, said);
    calm_model_close(p.model);
}

TEST(memory)
{
    size_t n, checked = 0;
    for (size_t e = 0; e < (calm_exporters(&n), n); e++) {
        const calm_exporter *exporter = calm_exporters(&n)[e];
        ck_assert_int_eq(!exporter->form && !exporter->write_bytes,
                         is(exporter, "imatrix") || is(exporter, "tensor_types"));
        if (!exporter->form)
            continue;
        check_memory(exporter, "qwen3", "w4a16_g32");
        check_memory(exporter, "qwen3_moe", "w4a16_g32");
        check_memory(exporter, "qwen2_moe", is(exporter, "awq") ? "w4a16_g32_asym" : "w8a16");
        checked++;
    }
    ck_assert_uint_ge(checked, 4);
}
END_OF_TEST

int main(void)
{
    return run_tests("exporters", (const TTest *[]){
        one_scheme, every_row, mixed_schemes, other_models, every_family, config_keeps_every_key,
        same_bytes_in_a_fixed_order, shards, found_by_name, refused_by_name, every_allocation_fails, memory, NULL});
}
