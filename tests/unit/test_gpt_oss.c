/* gpt-oss as published, with experts in MXFP4 and biases in tensors of all experts, gate and up interleaved: against
 * the same model with separate float experts; to compressed-tensors and back; and refusals. */
#include "ptq/base/file.h"
#include "ptq/base/rng.h"
#include "ptq/export/export.h"
#include "ptq/model/model.h"
#include "ptq/weights/source_codes.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/write_tensors.h"

enum { MOST = 256 };

#define MXFP4 "\"quantization_config\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"lm_head\"]}"

/* The tensors of a tiny model with separate experts, and stacked. */
typedef struct fixture {
    tiny_model spec;
    calm_model *model;               /* before its experts became MXFP4 */
    calm_tensor one_by_one[MOST], stacked[MOST];
    size_t n_ones, n_stacked;
} fixture;

static const float levels[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

static float *values_of(const calm_tensor *tensor)
{
    float *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, tensor->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    return values;
}

static const calm_tensor *find(const fixture *f, const char *name)
{
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(f->model), name);
    ck_assert_msg(tensor != NULL, "%s", name);
    return tensor;
}

/* Returns the code of element `at` of a stacked tensor: all codes occur, groups of small values, and zeros of both
 * signs. */
static uint8_t code_at(uint64_t stream, size_t at)
{
    const unsigned size = (unsigned)(calm_rng_uniform(5, stream, at) * (at / 32 % 3 ? 8 : 5));
    return (uint8_t)(size | (calm_rng_uniform(6, stream, at) < 0.5 ? 8 : 0));
}

static uint8_t exponent_at(uint64_t stream, size_t group)
{
    return (uint8_t)(124 - (int)(calm_rng_uniform(7, stream, group) * 4));
}

static float value_at(uint64_t stream, size_t at)
{
    const uint8_t code = code_at(stream, at);
    return (code & 8 ? -1 : 1) * levels[code & 7] * ldexpf(1, exponent_at(stream, at / 32) - 127);
}

/* Adds "_blocks" and "_scales" of all experts, [experts, rows, in]. */
static void add_blocks(fixture *f, const char *stem, uint64_t stream, size_t rows, size_t in)
{
    const size_t experts = f->spec.n_experts, n = experts * rows * in;
    uint8_t *blocks, *scales;
    ck_ok(CALM_NEW(ctx, ctx->out, blocks, n / 2));
    ck_ok(CALM_NEW(ctx, ctx->out, scales, n / 32));
    for (size_t i = 0; i < n; i++) {
        blocks[i / 2] |= (uint8_t)(code_at(stream, i) << (i % 2 * 4));
        scales[i / 32] = exponent_at(stream, i / 32);
    }
    f->stacked[f->n_stacked++] = (calm_tensor){.name = test_format("%s_blocks", stem), .dtype = CALM_U8, .n_dims = 4,
                                               .shape = {experts, rows, in / 32, 16}, .data = blocks, .bytes = n / 2};
    f->stacked[f->n_stacked++] = (calm_tensor){.name = test_format("%s_scales", stem), .dtype = CALM_U8, .n_dims = 3,
                                               .shape = {experts, rows, in / 32}, .data = scales, .bytes = n / 32};
}

/* Returns a float tensor of the checkpoint's dtype, which holds the values exactly. */
static calm_tensor half_tensor(const char *name, const float *values, size_t a, size_t b)
{
    calm_tensor out = float_tensor(name, values, a, b, 0);
    uint8_t *data;
    ck_ok(CALM_NEW(ctx, ctx->out, data, out.n_elements * 2));
    ck_ok(calm_from_f32(ctx, CALM_BF16, values, out.n_elements, data));
    out.dtype = CALM_BF16;
    out.data = data;
    out.bytes = out.n_elements * 2;
    return out;
}

static void add_expert(fixture *f, const char *module, uint64_t stream, size_t expert, int part, size_t rows, size_t in)
{
    float *values;
    const size_t step = part < 2 ? 2 : 1;
    ck_ok(CALM_NEW(ctx, ctx->out, values, rows * in));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < in; c++)
            values[r * in + c] = value_at(stream, ((expert * rows + r) * step + (size_t)(part == 1)) * in + c);
    f->one_by_one[f->n_ones++] = half_tensor(test_format("%s.weight", module), values, rows, in);
}

/* Adds the biases of all experts as one tensor; those of gate and up alternate. */
static void add_biases(fixture *f, const char *stem, size_t block, size_t width, bool down)
{
    const size_t experts = f->spec.n_experts, n = down ? width : 2 * width;
    float *all;
    ck_ok(CALM_NEW(ctx, ctx->out, all, experts * n));
    for (size_t e = 0; e < experts; e++)
        for (int part = down ? 2 : 0; part < (down ? 3 : 2); part++) {
            static const char *const words[] = {"gate_proj", "up_proj", "down_proj"};
            const calm_tensor *own =
                find(f, test_format("model.layers.%zu.mlp.experts.%zu.%s.bias", block, e, words[part]));
            const float *values = values_of(own);
            for (size_t i = 0; i < width; i++)
                all[e * n + (down ? i : 2 * i + (size_t)part)] = values[i];
            f->one_by_one[f->n_ones++] = *own;
        }
    f->stacked[f->n_stacked++] = half_tensor(stem, all, experts, n);
}

static void add_block(fixture *f, size_t block)
{
    const size_t inner = f->spec.inner, width = f->spec.hidden;
    const char *stem = test_format("model.layers.%zu.mlp.experts", block);
    const uint64_t up = 2 * block, down = up + 1;
    add_blocks(f, test_format("%s.gate_up_proj", stem), up, 2 * inner, width);
    add_blocks(f, test_format("%s.down_proj", stem), down, width, inner);
    for (size_t e = 0; e < f->spec.n_experts; e++) {
        add_expert(f, test_format("%s.%zu.gate_proj", stem, e), up, e, 0, inner, width);
        add_expert(f, test_format("%s.%zu.up_proj", stem, e), up, e, 1, inner, width);
        add_expert(f, test_format("%s.%zu.down_proj", stem, e), down, e, 2, width, inner);
    }
    add_biases(f, test_format("%s.gate_up_proj_bias", stem), block, inner, false);
    add_biases(f, test_format("%s.down_proj_bias", stem), block, width, true);
}

static void new_fixture(fixture *f)
{
    *f = (fixture){.spec = tiny_wide("gpt_oss")};
    ck_ok(calm_model_open(ctx, tiny_model_write(&f->spec), &f->model));
    const calm_safetensors *set = calm_model_tensors(f->model);
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        if (!strstr(calm_safetensors_at(set, i)->name, ".experts."))
            f->one_by_one[f->n_ones++] = f->stacked[f->n_stacked++] = *calm_safetensors_at(set, i);
    for (size_t b = 0; b < f->spec.n_blocks; b++)
        add_block(f, b);
    ck_assert(f->n_ones < MOST && f->n_stacked < MOST);
}

/* Writes a checkpoint of one of the two lists. */
static const char *write_list(fixture *f, bool stacked)
{
    const char *dir = test_directory();
    f->spec.extra = stacked ? MXFP4 : NULL;
    tiny_model_write_config(&f->spec, dir);
    write_tensors(dir, stacked ? f->stacked : f->one_by_one, stacked ? f->n_stacked : f->n_ones);
    return dir;
}

static calm_model *open_list(fixture *f, bool stacked)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, write_list(f, stacked), &model));
    return model;
}

/* The tensors have the same values, and the forward pass gives the same bits. */
TEST(mxfp4_is_the_float_model)
{
    fixture f;
    new_fixture(&f);
    calm_model *floats = open_list(&f, false), *source = open_list(&f, true);
    ck_assert_str_eq(calm_model_published(source), "mxfp4");
    const calm_safetensors *a = calm_model_tensors(floats), *b = calm_model_tensors(source);
    ck_assert_uint_eq(calm_safetensors_count(a), calm_safetensors_count(b));
    for (size_t i = 0; i < calm_safetensors_count(a); i++) {
        const calm_tensor *one = calm_safetensors_at(a, i), *other = calm_safetensors_at(b, i);
        ck_assert_str_eq(one->name, other->name);
        ck_assert(one->n_dims == other->n_dims && one->shape[0] == other->shape[0]);
        ck_assert_uint_eq(one->n_elements, other->n_elements);
        ck_assert_msg(memcmp(values_of(one), values_of(other), one->n_elements * sizeof(float)) == 0, "%s", one->name);
    }
    ck_assert_uint_eq(calm_model_load_expert_bytes(floats, 1), calm_model_load_expert_bytes(source, 1));
    calm_model_close(floats);
    calm_model_close(source);
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- to compressed-tensors and back ---- */

static const char *export_plan(const tiny_plan *p)
{
    const char *dir = test_directory();
    const calm_export_options options = {0};
    const calm_export_input input = {.model = p->model, .plan = &p->plan, .options = &options};
    const calm_exporter *exporter;
    ck_ok(calm_exporter_find(ctx, "compressed_tensors", &exporter));
    ck_ok(exporter->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
    return dir;
}

static const char *export_as(tiny_plan *p, const char *scheme)
{
    tiny_plan_quantize_all(p, &scheme, 1, TINY_UNSCALED);
    return export_plan(p);
}

/* Checks that a linear of the file has the codes and exponents of the source. */
static void check_codes(const calm_safetensors *set, const char *module, uint64_t stream, size_t expert, int part,
                        size_t rows, size_t in)
{
    const calm_tensor *codes = calm_safetensors_find(set, test_format("%s.weight_packed", module));
    const calm_tensor *scales = calm_safetensors_find(set, test_format("%s.weight_scale", module));
    ck_assert_msg(codes && scales && codes->bytes == rows * in / 2 && scales->bytes == rows * in / 32, "%s", module);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < in; c++) {
            const size_t i = r * in + c;
            const size_t at = ((expert * rows + r) * (part < 2 ? 2 : 1) + (size_t)(part == 1)) * in + c;
            ck_assert_msg((codes->data[i / 2] >> (i % 2 * 4) & 15) == code_at(stream, at), "%s: code %zu", module, i);
            ck_assert_msg(scales->data[i / 32] == exponent_at(stream, at / 32), "%s: scale %zu", module, i / 32);
        }
}

/* Rounding to nearest keeps all values of the source.  The source's codes are written, although rounding would
 * choose others for groups of small values and has a single zero. */
TEST(mxfp4_stays_bit_for_bit)
{
    fixture f;
    tiny_plan p;
    calm_safetensors *set;
    new_fixture(&f);
    tiny_plan_open(&p, write_list(&f, true));
    ck_ok(calm_safetensors_open(ctx, export_as(&p, "mxfp4a16"), &set));
    for (size_t b = 0; b < f.spec.n_blocks; b++)
        for (size_t e = 0; e < f.spec.n_experts; e++) {
            const char *stem = test_format("model.layers.%zu.mlp.experts.%zu", b, e);
            check_codes(set, test_format("%s.gate_proj", stem), 2 * b, e, 0, f.spec.inner, f.spec.hidden);
            check_codes(set, test_format("%s.up_proj", stem), 2 * b, e, 1, f.spec.inner, f.spec.hidden);
            check_codes(set, test_format("%s.down_proj", stem), 2 * b + 1, e, 2, f.spec.hidden, f.spec.inner);
        }
    calm_safetensors_close(set);
    calm_model_close(p.model);
    calm_model_close(f.model);
}
END_OF_TEST

/* Experts that stay float are written as separate tensors, as are their biases, which were floats in one tensor; the
 * checkpoint can be opened again. */
TEST(float_experts_of_mxfp4)
{
    fixture f;
    tiny_plan p;
    calm_model *model;
    calm_block block;
    calm_weight w[CALM_N_ROLES] = {{0}};
    new_fixture(&f);
    tiny_plan_open(&p, write_list(&f, true));
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        tiny_plan_quantize(&p, j, layout->jobs[j].expert < 0 ? "w4a16_g32" : "float", TINY_UNSCALED);
    ck_ok(calm_model_open(ctx, export_plan(&p), &model));
    ck_ok(calm_model_load_block(ctx, model, 1, &block));
    ck_ok(block.moe.load(block.moe.user, ctx, 1, 2, w));
    const calm_tensor *bias = find(&f, "model.layers.1.mlp.experts.2.up_proj.bias");
    const float *expected = values_of(bias);
    for (size_t i = 0; i < bias->n_elements; i++)
        ck_assert(w[CALM_ROLE_UP].bias[i] == expected[i]);
    calm_model_close(model);
    calm_model_close(p.model);
    calm_model_close(f.model);
}
END_OF_TEST

/* The source's codes of a group are not restored if one of its codes was changed. */
TEST(changed_groups_stay_changed)
{
    fixture f;
    uint8_t codes[2][16], exponents[2];
    new_fixture(&f);
    calm_model *source = open_list(&f, true);
    const calm_tensor *up =
        calm_safetensors_find(calm_model_tensors(source), "model.layers.0.mlp.experts.1.up_proj.weight");
    const size_t first = ((f.spec.inner + 0) * 2 + 1) * f.spec.hidden;    /* expert 1, row 0 of up */
    calm_tensor row = *up;
    row.shape[0] = 1;
    row.n_elements = row.shape[1];
    ck_assert_uint_eq(row.shape[1], 64);
    for (size_t i = 0; i < 64; i++) {
        const uint8_t code = code_at(0, first + i);
        codes[i / 32][i % 32 / 2] = (uint8_t)(i % 2 ? codes[i / 32][i % 32 / 2] | (code & 7 ? code : 0) << 4
                                                    : (code & 7 ? code : 0));
        exponents[i / 32] = exponent_at(0, (first + i) / 32);
    }
    codes[1][3] ^= 1;
    const uint8_t kept = codes[1][3];
    calm_source_codes_restore(&row, codes[0], exponents);
    for (size_t i = 0; i < 32; i++)
        ck_assert((codes[0][i / 2] >> (i % 2 * 4) & 15) == code_at(0, first + i));
    ck_assert(codes[1][3] == kept);
    /* A float model has no source codes. */
    calm_source_codes_restore(find(&f, "model.layers.0.self_attn.q_proj.weight"), codes[0], exponents);
    ck_assert(codes[1][3] == kept);
    calm_model_close(source);
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- experts ---- */

/* An expert by its definition in double, with many gates and ups clamped.  Products of 64 terms and of 96 are each
 * off by at most so many roundings of the sum of their terms' magnitudes, and the function between them. */
TEST(clamped_expert)
{
    enum { N = 7 };
    fixture f;
    float h[N * 64], y[N * 64];
    calm_block block;
    calm_weight w[CALM_N_ROLES] = {{0}};
    size_t cut = 0;
    new_fixture(&f);
    calm_config config = *calm_model_config(f.model);
    config.glu_limit = 0.6f;
    config.glu_alpha = 1.9f;
    ck_ok(calm_model_load_block(ctx, f.model, 0, &block));
    ck_ok(block.moe.load(block.moe.user, ctx, 0, 2, w));
    for (size_t i = 0; i < sizeof h / sizeof *h; i++)
        h[i] = (float)calm_rng_normal(3, 1, i);
    ck_ok(calm_mlp_run(ctx, &config, w, h, N, y, NULL, &(calm_observation){.expert = 2}));
    for (size_t t = 0; t < N; t++) {
        double inner[96], size = 0;
        for (size_t r = 0; r < 96; r++) {
            double g = (double)w[CALM_ROLE_GATE].bias[r], u = (double)w[CALM_ROLE_UP].bias[r];
            for (size_t c = 0; c < 64; c++) {
                g += (double)h[t * 64 + c] * (double)w[CALM_ROLE_GATE].w[r * 64 + c];
                u += (double)h[t * 64 + c] * (double)w[CALM_ROLE_UP].w[r * 64 + c];
            }
            cut += (g > 0.6) + (fabs(u) > 0.6);
            g = fmin(g, (double)config.glu_limit);
            u = fmin(fmax(u, -(double)config.glu_limit), (double)config.glu_limit);
            inner[r] = (u + 1) * g / (1 + exp(-(double)config.glu_alpha * g));
            size += fabs(inner[r]) + 1;
        }
        for (size_t o = 0; o < 64; o++) {
            double expected = (double)w[CALM_ROLE_DOWN].bias[o];
            for (size_t r = 0; r < 96; r++)
                expected += inner[r] * (double)w[CALM_ROLE_DOWN].w[o * 96 + r];
            ck_near(y[t * 64 + o], expected, (64 + 96 + 20) * 0x1p-24 * size);
        }
    }
    ck_assert(cut > 100);
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- refusals ---- */

static calm_tensor *tensor_of(fixture *f, const char *name)
{
    for (size_t i = 0; i < f->n_stacked; i++)
        if (strcmp(f->stacked[i].name, name) == 0)
            return &f->stacked[i];
    ck_abort_msg("no tensor %s", name);
    return NULL;
}

static void refuses(fixture *f, calm_status expected, const char *name, const char *text)
{
    calm_model *model;
    ck_assert_int_eq(calm_model_open(ctx, write_list(f, true), &model), expected);
    ck_assert_msg(strstr(ctx->message, name) && strstr(ctx->message, text), "%s", ctx->message);
    calm_ctx_clear_failure(ctx);
    calm_model_close(f->model);
}

/* Removes a tensor, in whose place the last one goes. */
static void refuses_without(const char *name, const char *text)
{
    fixture f;
    new_fixture(&f);
    *tensor_of(&f, name) = f.stacked[--f.n_stacked];
    refuses(&f, CALM_ENOTFOUND, name, text);
}

static void refuses_shape(const char *name, size_t rows, size_t cols, const char *text)
{
    fixture f;
    new_fixture(&f);
    calm_tensor *tensor = tensor_of(&f, name);
    float *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, rows * (cols ? cols : 1)));
    *tensor = half_tensor(tensor->name, values, rows, cols);
    refuses(&f, CALM_EFORMAT, name, text);
}

TEST(refusals)
{
    refuses_without("model.layers.1.mlp.experts.gate_up_proj_scales", "has no scales");
    refuses_without("model.layers.1.mlp.experts.gate_up_proj_blocks", "expected the weight that it scales");
    refuses_without("model.layers.0.mlp.experts.down_proj_bias", "is missing");
    refuses_without("model.layers.0.self_attn.sinks", "");
    refuses_without("model.layers.0.mlp.router.bias", "");
    refuses_shape("model.layers.1.self_attn.sinks", 5, 0, "[5], expected [4]");
    refuses_shape("model.layers.1.mlp.router.bias", 4, 0, "[4], expected [5]");
    refuses_shape("model.layers.1.mlp.experts.gate_up_proj_bias", 5, 96, "[5, 96], expected floats [5, 192]");
    refuses_shape("model.layers.1.mlp.experts.down_proj_bias", 4, 64, "[4, 64], expected floats [5, 64]");
}
END_OF_TEST

int main(void)
{
    return run_tests("gpt_oss", (const TTest *[]){mxfp4_is_the_float_model, mxfp4_stays_bit_for_bit,
                                                  float_experts_of_mxfp4, changed_groups_stay_changed,
                                                  clamped_expert, refusals, NULL});
}
