/* The exporter gguf: a written file, read through calm's own parser, has float32 weights equal bit for bit to those
 * that the guard measured, for every family of llama.cpp and every scheme that GGUF's types hold.  Q4_1's minimum is
 * rounded to float16. */
#include <stdio.h>
#include <strings.h>

#include "ptq/base/file.h"
#include "ptq/base/sha256.h"
#include "ptq/base/text.h"
#include "ptq/plan/assemble_impl.h"
#include "ptq/export/export.h"
#include "ptq/export/gguf_layout.h"
#include "ptq/arch/arch.h"
#include "ptq/gguf/gguf_names.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static const char *const families[] = {
    "llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma2", "gemma3", "olmo2", "mixtral", "olmoe",
    "glm4_moe", "minimax_m2", "ernie4_5_moe", "deepseek_v2", "deepseek_v3", "qwen3_5", "qwen3_5_moe", "qwen3_next",
    "lfm2", "lfm2_moe"};
#define N_FAMILIES (sizeof families / sizeof *families)

static const calm_exporter *gguf(void)
{
    const calm_exporter *found;
    ck_ok(calm_exporter_find(ctx, "gguf", &found));
    return found;
}

/* Returns a model of the family, 64 and 96 columns wide, with settings that llama.cpp has. */
static tiny_model model_of(const char *family)
{
    const bool gemma = strncmp(family, "gemma", 5) == 0;    /* so that query_pre_attn_scalar, 12, is the head size */
    tiny_model spec = tiny_wide(family);
    spec.bias = false;
    spec.head_dim = gemma ? 12 : spec.hidden / spec.n_heads;
    spec.n_heads = gemma ? 8 : spec.n_heads;
    spec.n_kv = strcmp(family, "olmoe") == 0 ? spec.n_heads : spec.n_kv;
    spec.tied |= strcmp(family, "gemma2") == 0;
    if (calm_text_listed("qwen3_5 qwen3_5_moe qwen3_next", ' ', family))
        spec.head_dim = 32;    /* so that a head is a whole block of Q4_0 */
    return spec;
}

static const char *export(const tiny_plan *p, const calm_export_options *options)
{
    const calm_export_input input = {.model = p->model, .plan = &p->plan, .options = options};
    const char *dir = test_directory();
    ck_ok(gguf()->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, gguf(), &input, dir));
    return test_format("%s/%s", dir, gguf()->file);
}

/* ---- reading back ---- */

/* An opened file, and its tensors under the checkpoint's names. */
typedef struct opened {
    calm_gguf *file;
    calm_gguf_list list;
} opened;

static opened open_written(const char *path)
{
    opened out;
    ck_ok(calm_gguf_open(ctx, path, &out.file));
    ck_ok(calm_gguf_list_tensors(ctx, out.file, &out.list));
    ck_assert_uint_eq(calm_gguf_spare(out.file), 0);
    return out;
}

static const calm_gguf_entry *find(const opened *in, const char *name)
{
    for (size_t i = 0; i < in->list.n; i++)
        if (in->list.entries[i].name && strcmp(in->list.entries[i].name, name) == 0)
            return &in->list.entries[i];
    return NULL;
}

/* Returns the tensor as float32; NULL if the file lacks it. */
static float *read_floats(const opened *in, const char *name, size_t rows, size_t cols)
{
    const calm_gguf_entry *entry = find(in, name);
    float *out;
    if (!entry)
        return NULL;
    ck_assert_msg(entry->shape[0] == rows && entry->shape[1] == cols, "%s: [%zu, %zu], expected [%zu, %zu]", name,
                  entry->shape[0], entry->shape[1], rows, cols);
    ck_ok(CALM_NEW(ctx, ctx->out, out, rows * cols));
    ck_ok(calm_gguf_entry_to_f32(ctx, &in->list, entry, 0, rows, out));
    if (rows > 2) {    /* a part of the tensor, read separately, has the same values */
        float *part;
        ck_ok(CALM_NEW(ctx, ctx->out, part, cols));
        ck_ok(calm_gguf_entry_to_f32(ctx, &in->list, entry, rows - 2, 1, part));
        ck_assert(memcmp(part, out + (rows - 2) * cols, cols * sizeof *part) == 0);
    }
    return out;
}

static void check_floats(const char *what, const float *found, const float *expected, size_t n)
{
    ck_assert_msg(!found == !expected, "%s: is%s there", what, found ? "" : " not");
    for (size_t i = 0; found && i < n; i++)
        ck_assert_msg(memcmp(&found[i], &expected[i], sizeof *found) == 0, "%s [%zu]: %.9g, expected %.9g", what, i,
                      (double)found[i], (double)expected[i]);
}

/* Writes the weight as Q4_1 stores it: u s + m with m = -z s in float16. */
static void round_minimum(const calm_qlinear *linear, float *w)
{
    for (size_t row = 0; row < linear->out; row++)
        for (size_t i = 0; i < linear->in; i++) {
            const size_t group = row * linear->n_groups + i / linear->group;
            const float s = linear->scales[group];
            const float m = calm_f16_to_f32(calm_f32_to_f16(-(float)linear->zeros[group] * s));
            w[row * linear->in + i] = (float)linear->codes[row * linear->in + i] * s + m;
        }
}

/* Checks the linears of a sublayer or expert: as the plan leaves them, Q4_1 rounded. */
static void check_weights(const opened *in, const tiny_plan *p, const calm_block *floats, calm_sublayer sublayer,
                          long expert, const calm_weight expected[CALM_N_ROLES])
{
    const calm_fold_set_ref group = {floats, sublayer, expert, tiny_plan_weights(floats, expert)};
    calm_fold_set assembled;
    ck_ok(calm_assemble_fold_set(ctx, p->model, &p->plan, &group, &assembled));
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *e = &expected[role];
        if (!e->w || calm_job_sublayer(calm_role_job(role)) != sublayer)
            continue;
        const char *name = test_format("%s.weight", e->name);
        const calm_gguf_entry *entry = find(in, name);
        ck_assert_msg(entry != NULL, "%s is not there", name);
        float *w;
        ck_ok(CALM_NEW(ctx, ctx->out, w, e->out * e->in));
        memcpy(w, e->w, e->out * e->in * sizeof *w);
        if (entry->stored->type == CALM_GGML_Q4_1 && !assembled.linear[role].scheme.family)
            round_minimum(&assembled.linear[role], w);
        check_floats(name, read_floats(in, name, e->out, e->in), w, e->out * e->in);
        check_floats(test_format("%s.bias", e->name), read_floats(in, test_format("%s.bias", e->name), e->out, 1),
                     e->bias, e->out);
    }
}

/* Checks that a norm multiplies by the same numbers; Gemma multiplies by 1 + w. */
static void check_norm(const opened *in, const tiny_plan *p, size_t block, const char *module,
                       const calm_norm *expected)
{
    const float added = calm_model_config(p->model)->arch->norm == CALM_NORM_RMS_PLUS_ONE ? 1 : 0;
    if (!module)
        return;
    const char *name = test_format("%slayers.%zu.%s.weight", calm_model_prefix(p->model), block, module);
    float *found = read_floats(in, name, expected->width, 1);
    for (size_t i = 0; found && i < expected->width; i++)
        found[i] += added;
    check_floats(name, found, expected->w, expected->width);
}

static void check_block(const opened *in, const tiny_plan *p, size_t index)
{
    calm_plan_override override = {p->model, &p->plan};
    const calm_config *config = calm_model_config(p->model);
    const calm_names *names = config->arch->names;
    calm_block expected, floats;
    ck_ok(calm_model_load_block(ctx, p->model, index, &floats));
    ck_ok(calm_model_load_block(ctx, p->model, index, &expected));
    ck_ok(calm_plan_apply(&override, ctx, index, &expected));
    const bool mixture = expected.moe.router != NULL;
    check_weights(in, p, &floats, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, expected.weight);
    if (!mixture)
        check_weights(in, p, &floats, CALM_SUBLAYER_MLP, CALM_NO_EXPERT, expected.weight);
    if (mixture && config->moe.shared_inner)
        check_weights(in, p, &floats, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, expected.moe.shared);
    for (size_t e = 0; mixture && e < config->moe.n_experts; e++)
        check_weights(in, p, &floats, CALM_SUBLAYER_MLP, (long)e, tiny_plan_weights(&expected, (long)e));
    if (mixture) {
        const char *router = test_format("model.layers.%zu.%s.weight", index, names->moe.router);
        check_floats(router, read_floats(in, router, config->moe.n_experts, config->hidden), expected.moe.router,
                     config->moe.n_experts * config->hidden);
    }
    if (mixture && expected.moe.choice_bias) {
        const char *bias = test_format("model.layers.%zu.%s", index, names->moe.choice_bias);
        const size_t n = config->moe.n_experts, rows = find(in, bias)->shape[0];
        check_floats(bias, read_floats(in, bias, rows, n / rows), expected.moe.choice_bias, n);
        ck_assert(find(in, bias)->stored->type == CALM_GGML_F32 && find(in, bias)->stored->n_dims == 1);
    }
    if (mixture && expected.moe.shared_gate) {
        const char *gate = test_format("model.layers.%zu.%s.weight", index, names->moe.shared_gate);
        check_floats(gate, read_floats(in, gate, 1, config->hidden), expected.moe.shared_gate, config->hidden);
    }
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            check_norm(in, p, index, names->norm[s][place], &expected.norm[s][place]);
    for (calm_plain norm = CALM_PLAIN_Q_NORM; norm <= CALM_PLAIN_K_NORM && expected.weight[CALM_ROLE_Q].w; norm++)
        check_norm(in, p, index, names->plain[norm], &expected.plain[norm]);
}

static void check_table(const opened *in, const tiny_plan *p, bool head)
{
    const calm_tensor *table;
    float *values;
    ck_ok(calm_model_table(ctx, p->model, head, &table));
    ck_ok(CALM_NEW(ctx, ctx->out, values, table->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, table, values));
    check_floats(table->name, read_floats(in, table->name, table->shape[0], table->shape[1]), values,
                 table->n_elements);
}

/* Checks that the file has every tensor of the checkpoint and no other. */
static void check_names(const opened *in, const tiny_plan *p)
{
    const calm_safetensors *set = calm_model_tensors(p->model);
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        ck_assert_msg(find(in, calm_safetensors_at(set, i)->name) != NULL, "%s is not there",
                      calm_safetensors_at(set, i)->name);
    for (size_t i = 0; i < in->list.n; i++)
        if (in->list.entries[i].name)
            n += calm_safetensors_find(set, in->list.entries[i].name) != NULL;
        else
            ck_assert(in->list.entries[i].is_rest || !strcmp(in->list.entries[i].spot.name, "rope_freqs.weight"));
    ck_assert_uint_eq(n, calm_safetensors_count(set));
}

static void check_written(const tiny_plan *p, const char *path)
{
    opened in = open_written(path);
    check_names(&in, p);
    for (size_t i = 0; i < calm_model_config(p->model)->n_blocks; i++)
        check_block(&in, p, i);
    check_table(&in, p, false);
    if (!calm_model_config(p->model)->tied)
        check_table(&in, p, true);
    calm_gguf_close(in.file);
}

static void check_plan(const tiny_model *spec, const char *const *schemes, size_t n)
{
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(spec));
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const size_t turn = job->expert >= 0 ? 0 : (job->block * CALM_N_JOBS + job->kind) % n;
        tiny_plan_quantize(&p, j, job->kind == CALM_JOB_KV_B ? "float" : schemes[turn], TINY_GENERAL);
        tiny_plan_correct(&p, j);
    }
    check_written(&p, export(&p, NULL));
    calm_model_close(p.model);
}

/* ---- tests ---- */

TEST(every_scheme)
{
    static const char *const schemes[] = {"w4a16_g32",      "w4a16",          "w4a16_g32_asym", "w8a16",
                                          "w8a16_g32",      "w3a16_g32",      "w2a16_g32",      "w3a16_g32_asym",
                                          "w2a16_g32_asym", "w4a16_g32_f16s", "w4a16_g64",      "float"};
    const tiny_model spec = model_of("llama");
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
        check_plan(&spec, &schemes[s], 1);
}
END_OF_TEST

/* Returns the type that llama.cpp uses for rows that super-blocks do not divide. */
static calm_ggml_type type_in_place(const calm_family *row)
{
    return row->instead == CALM_TYPE_Q4_0   ? CALM_GGML_Q4_0
           : row->instead == CALM_TYPE_Q8_0 ? CALM_GGML_Q8_0
           : row->instead                   ? (calm_ggml_type)calm_families[row->instead].ggml
                                            : (calm_ggml_type)row->ggml;
}

/* Schemes that are types of GGUF are stored in the type of that name, with the values that calm computes with.  Rows
 * that are not a whole number of super-blocks are stored in the type that llama.cpp falls back to. */
TEST(every_type)
{
    tiny_model spec = model_of("llama");
    spec.hidden = 256;
    spec.head_dim = spec.hidden / spec.n_heads;
    spec.inner = 96;
    spec.n_blocks = 1;
    for (int family = 1; family < CALM_N_FAMILIES; family++) {
        const calm_family *row = &calm_families[family];
        const char *scheme = test_format("%s%s", row->name, row->act_bits ? "a16" : "");
        tiny_plan p;
        if (!row->ggml || row->scale == CALM_SCALE_E4M3)    /* NVFP4 has global scales: test_export_nvfp4.c */
            continue;
        ck_assert_int_eq(strcasecmp(calm_ggml_find(row->ggml)->name, row->name), 0);
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, &scheme, 1, TINY_UNSCALED);
        const char *path = export(&p, NULL);
        opened in = open_written(path);
        ck_assert_int_eq(find(&in, "model.layers.0.mlp.up_proj.weight")->stored->type, row->ggml);
        ck_assert_int_eq(find(&in, "model.layers.0.mlp.down_proj.weight")->stored->type, type_in_place(row));
        calm_gguf_close(in.file);
        check_written(&p, path);
        calm_model_close(p.model);
    }
}
END_OF_TEST

TEST(every_family)
{
    static const char *const one[] = {"w4a16_g32"};
    static const char *const mixed[] = {"w4a16_g32_asym", "w8a16", "float", "w3a16_g32", "w4a16_g32"};
    for (size_t f = 0; f < N_FAMILIES; f++) {
        tiny_model spec = model_of(families[f]);
        check_plan(&spec, one, 1);
        spec.tied = strcmp(families[f], "gemma2") == 0;
        spec.n_dense = calm_text_listed("glm4_moe ernie4_5_moe deepseek_v2 deepseek_v3 lfm2_moe", ' ', families[f]);
        check_plan(&spec, mixed, 5);
    }
}
END_OF_TEST

/* Biases, in families for which llama.cpp reads them, and every float dtype of a checkpoint. */
TEST(biases_and_dtypes)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a16", "float"};
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16};
    static const calm_ggml_type types[] = {CALM_GGML_F32, CALM_GGML_F16, CALM_GGML_BF16};
    for (size_t i = 0; i < 3; i++) {
        tiny_model spec = model_of("llama");
        tiny_plan p;
        spec.bias = true;
        spec.dtype = dtypes[i];
        check_plan(&spec, schemes, 3);
        tiny_plan_open(&p, tiny_model_write(&spec));
        opened in = open_written(export(&p, NULL));
        ck_assert_int_eq(find(&in, "model.embed_tokens.weight")->stored->type, types[i]);
        ck_assert_int_eq(find(&in, "model.norm.weight")->stored->type, CALM_GGML_F32);
        calm_gguf_close(in.file);
        calm_model_close(p.model);
    }
}
END_OF_TEST

TEST(float_types)
{
    static const calm_ggml_type types[] = {CALM_GGML_BF16, CALM_GGML_F16, CALM_GGML_BF16, CALM_GGML_F32};
    const tiny_model spec = model_of("qwen3_moe");
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    for (calm_export_float f = CALM_EXPORT_AS_STORED; f <= CALM_EXPORT_F32; f++) {
        const calm_export_options options = {.gguf_float = f};
        opened in = open_written(export(&p, &options));
        ck_assert_int_eq(find(&in, "model.embed_tokens.weight")->stored->type, types[f]);
        ck_assert_int_eq(find(&in, "model.layers.1.mlp.experts.3.up_proj.weight")->stored->type, types[f]);
        ck_assert_int_eq(find(&in, "model.layers.1.mlp.gate.weight")->stored->type, CALM_GGML_F32);
        calm_gguf_close(in.file);
    }
    calm_model_close(p.model);
}
END_OF_TEST

/* Experts with different schemes are stored as Q8_0, which holds all their codes. */
TEST(experts_of_different_schemes)
{
    const tiny_model spec = model_of("qwen3_moe");
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    const calm_layout *layout = calm_model_layout(p.model);
    static const char *const schemes[] = {"w4a16_g32", "w4a16_g32_asym", "w8a16", "w3a16_g32"};
    for (size_t j = 0; j < layout->n_jobs; j++)
        tiny_plan_quantize(&p, j, layout->jobs[j].expert >= 0 ? schemes[(size_t)layout->jobs[j].expert % 4] : "float",
                           TINY_GENERAL);
    const char *path = export(&p, NULL);
    opened in = open_written(path);
    ck_assert_int_eq(find(&in, "model.layers.0.mlp.experts.1.down_proj.weight")->stored->type, CALM_GGML_Q8_0);
    calm_gguf_close(in.file);
    check_written(&p, path);
    tiny_plan_quantize(&p, layout->n_jobs - 1, "float", TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_fails(gguf()->check(ctx, &input), CALM_EUNSUPPORTED,
             "model.layers.1.experts.4.down is float, but model.layers.1.experts.0.down is quantized");
    calm_model_close(p.model);
}
END_OF_TEST

/* Rows of q and k are permuted for interleaved rotary embeddings, as llama.cpp defines them. */
TEST(rows_are_turned)
{
    const tiny_model spec = model_of("llama");
    const size_t half = spec.head_dim / 2;
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    opened in = open_written(export(&p, NULL));
    const calm_tensor *source = calm_safetensors_find(calm_model_tensors(p.model),
                                                      "model.layers.0.self_attn.k_proj.weight");
    const calm_gguf_tensor *stored = calm_gguf_find_tensor(in.file, "blk.0.attn_k.weight");
    const size_t bytes = spec.hidden * 2;    /* BF16 is copied */
    for (size_t h = 0; h < spec.n_kv; h++)
        for (size_t t = 0; t < 2; t++)
            for (size_t j = 0; j < half; j++) {
                const size_t old_row = h * spec.head_dim + t * half + j, new_row = h * spec.head_dim + 2 * j + t;
                const calm_gguf_order order = calm_gguf_order_of(CALM_GGUF_K, spec.head_dim, NULL);
                ck_assert_uint_eq(calm_gguf_order_row(&order, new_row), old_row);
                ck_assert(memcmp(stored->data + new_row * bytes, source->data + old_row * bytes, bytes) == 0);
            }
    calm_gguf_close(in.file);
    calm_model_close(p.model);
}
END_OF_TEST

/* llama.cpp divides the angles of llama3's rope scaling by factors in the file: 1 for wavelengths below 1000 / 4, 8
 * above 1000 / 1, and in between such that the frequency is interpolated. */
TEST(factors_of_llama3)
{
    static const double original = 1000, low = 1, high = 4, factor = 8;
    tiny_model spec = model_of("llama");
    size_t n_kept = 0, n_divided = 0;
    tiny_plan p;
    spec.extra = "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                 "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 1000}";
    tiny_plan_open(&p, tiny_model_write(&spec));
    const char *path = export(&p, NULL);
    check_written(&p, path);
    opened in = open_written(path);
    const calm_gguf_tensor *stored = calm_gguf_find_tensor(in.file, "rope_freqs.weight");
    ck_assert_ptr_nonnull(stored);
    ck_assert(stored->type == CALM_GGML_F32 && stored->n_dims == 1 && stored->dims[0] == spec.head_dim / 2);
    for (size_t i = 0; i < spec.head_dim / 2; i++) {
        const double frequency = pow(10000, -2 * (double)i / (double)spec.head_dim), length = 2 * M_PI / frequency;
        const double smooth = (original / length - low) / (high - low);
        const double scaled = length < original / high  ? frequency
                              : length > original / low ? frequency / factor
                                                        : (1 - smooth) * frequency / factor + smooth * frequency;
        float found;
        memcpy(&found, stored->data + 4 * i, sizeof found);
        ck_near(found, frequency / scaled, 1e-6 * factor);
        n_kept += found == 1;
        n_divided += found == 8;
    }
    ck_assert(n_kept > 0 && n_divided > 0 && n_kept + n_divided < spec.head_dim / 2);
    calm_gguf_close(in.file);
    calm_model_close(p.model);
}
END_OF_TEST

static void check_refused(const tiny_model *spec, const char *scheme, const char *words)
{
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(spec));
    for (size_t i = 0; i < p.plan.n_jobs; i++) {
        ck_ok(calm_scheme_parse(ctx, scheme, &p.plan.jobs[i].scheme));
        p.plan.jobs[i].quantized = p.plan.jobs[i].scheme.bits != 0;
    }
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_fails(calm_exporter_check(ctx, gguf(), &input), CALM_EUNSUPPORTED, words);
    calm_model_close(p.model);
}

TEST(refused_by_name)
{
    tiny_model spec = model_of("llama"), odd = model_of("llama");
    tiny_model gemma = model_of("gemma2"), moe = model_of("qwen2_moe"), square = model_of("qwen2");
    check_refused(&spec, "w8a8", "model.layers.0.qkv is w8a8: GGUF has no quantized activations");
    check_refused(&spec, "w4a4_g32", "is w4a4_g32: GGUF has no quantized activations");
    check_refused(&spec, "mxfp4", "is mxfp4: GGUF has no quantized activations");
    check_refused(&spec, "fp8a16", "is fp8a16: the format has no such type; formats that hold it: compressed-tensors");
    check_refused(&spec, "w4a16_g16", "is w4a16_g16: GGUF's blocks have 32 columns, which must divide the groups; "
                                      "formats that hold it: compressed-tensors, gptq, awq");
    check_refused(&spec, "w8a16_asym", "is w8a16_asym: GGUF has no asymmetric type of 8 bits");
    odd.inner = 80;
    check_refused(&odd, "w4a16_g32",
                  "model.layers.0.mlp.down_proj has 80 input columns, which GGUF's blocks of 32 do not divide");
    gemma.head_dim = 16;
    check_refused(&gemma, "float", "query_pre_attn_scalar");
    moe.extra = "\"norm_topk_prob\": true";
    check_refused(&moe, "float", "norm_topk_prob is set");
    square.head_dim = 32;
    check_refused(&square, "float", "heads times head_dim is not the hidden size");
    tiny_model ernie = model_of("ernie4_5_moe");
    ernie.extra = "\"moe_norm_min\": 0.01";
    check_refused(&ernie, "float", "moe_norm_min");
    const tiny_model mpnet = tiny_wide("mpnet"), phi = tiny_wide("phi3"), phimoe = tiny_wide("phimoe");
    check_refused(&phimoe, "float", "llama.cpp computes another function of phimoe models");
    check_refused(&mpnet, "float", "calm does not write mpnet models to GGUF");
    check_refused(&phi, "float", "calm does not write phi3 models to GGUF");
}
END_OF_TEST

static void count_lines(void *user, calm_log_level level, const char *line)
{
    (void)line;
    *(size_t *)user += level == CALM_LOG_WARNING;
}

/* Models for which llama.cpp computes differently beyond a length give one warning. */
TEST(warned_of_windows)
{
    static const char *const names[] = {"mistral", "gemma3"};
    for (size_t i = 0; i < 2; i++) {
        tiny_model spec = model_of(names[i]);
        size_t lines = 0;
        tiny_plan p;
        spec.window = 5;
        tiny_plan_open(&p, tiny_model_write(&spec));
        const calm_export_input input = {.model = p.model, .plan = &p.plan};
        ctx->log = count_lines, ctx->log_user = &lines;
        ck_ok(gguf()->check(ctx, &input));
        const size_t said = lines;    /* the missing tokenizer gives a warning, too */
        ck_assert_uint_eq(said, i == 0 ? 2 : 1);
        ck_ok(calm_exporter_write(ctx, gguf(), &input, test_directory()));
        ck_assert_uint_eq(lines, said);
        ctx->log = NULL;
        calm_model_close(p.model);
    }
}
END_OF_TEST

TEST(same_bytes)
{
    const tiny_model spec = model_of("qwen2_moe");
    char first[CALM_SHA256_HEX], second[CALM_SHA256_HEX];
    static const char *const schemes[] = {"w4a16_g32", "w8a16"};
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 2, TINY_GENERAL);
    ctx->n_threads = 1;
    ck_ok(calm_sha256_file(ctx, export(&p, NULL), first));
    ctx->n_threads = 4;
    ck_ok(calm_sha256_file(ctx, export(&p, NULL), second));
    ck_assert_str_eq(first, second);
    calm_model_close(p.model);
}
END_OF_TEST

TEST(every_allocation_fails)
{
    static const char *const schemes[] = {"w4a16_g32_asym", "w8a16", "float"};
    const tiny_model spec = model_of("qwen3_moe");
    size_t failures = 0;
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 1, TINY_GENERAL);
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    for (int which = 0; which < 2; which++) {
        calm_arena *arena = which ? ctx->out : ctx->scratch;
        bool used = true;
        for (long k = 1; used; k += 1 + k / 8) {
            arena->fail_in = k;
            const calm_status status = calm_exporter_write(ctx, gguf(), &input, test_directory());
            used = arena->fail_in == 0;
            arena->fail_in = 0;
            ck_assert_int_eq(status, used ? CALM_ENOMEM : CALM_OK);
            failures += used;
            calm_ctx_clear_failure(ctx);
        }
    }
    ck_assert_uint_gt(failures, 30);
    calm_model_close(p.model);
}
END_OF_TEST

/* The peak while a row is written may be below the estimate by input scales that jobs lack and by pieces of float
 * matrices, which these blocks lack; and above it by the layout and a chunk in each of four arenas. */
TEST(memory)
{
    static const char *const few[] = {"qwen3", "qwen2_moe"}, *const scheme = "w4a16_g32";
    for (size_t f = 0; f < sizeof few / sizeof *few; f++) {
        tiny_model spec = model_of(few[f]);
        calm_scheme parsed;
        tiny_plan p;
        size_t scales = 0;    /* pieces have 64 Ki floats */
        spec.hidden = 256;
        spec.head_dim = 64;
        spec.inner = 512;
        spec.expert_inner = spec.shared_inner = 384;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, &scheme, 1, TINY_GENERAL);
        tiny_plan_pack(&p);
        ck_ok(calm_scheme_parse(ctx, scheme, &parsed));
        const calm_layout *layout = calm_model_layout(p.model);
        for (size_t j = 0; j < layout->n_jobs; j++)
            scales += CALM_BYTES(float, layout->jobs[j].in);
        const size_t said = calm_exporter_write_bytes(gguf(), p.model, &parsed, true);
        const size_t per_tensor = sizeof(calm_gguf_part) + sizeof(calm_gguf_tensor) + sizeof(calm_gguf_spot) + 256;
        const size_t more = calm_safetensors_count(calm_model_tensors(p.model)) * per_tensor + 4 * CALM_ARENA_CHUNK;
        const calm_export_input input = {.model = p.model, .plan = &p.plan};
        const char *dir = test_directory();
        test_memory_begin();
        ck_ok(calm_exporter_write(ctx, gguf(), &input, dir));
        const size_t most = test_memory_end().most;
        ck_assert_msg(most + scales + 3 * CALM_BYTES(float, 64 * 1024) >= said && most <= said + more,
                      "%s: took %zu, said %zu", few[f], most, said);
        calm_model_close(p.model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("export_gguf", (const TTest *[]){every_scheme, every_type, every_family, biases_and_dtypes,
                                                      float_types, experts_of_different_schemes, rows_are_turned,
                                                      factors_of_llama3, refused_by_name, warned_of_windows,
                                                      same_bytes, every_allocation_fails, memory, NULL});
}
