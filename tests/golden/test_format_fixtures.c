/* Packed weights as the formats' own libraries write them (fixtures/packing).  Each case's matrix is the down_proj
 * of a tiny model, which calm's exporter writes; its tensors are compared with the case, and the checkpoint is read
 * back. */
#include <stdio.h>

#include "ptq/export/export.h"
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

#define MODULE "model.layers.0.mlp.down_proj"

static const calm_json *cell(const calm_json *rows, size_t r, size_t c)
{
    return calm_json_at(calm_json_at(rows, r), c);
}

/* Plans the case as the job "down" of block 0; all other jobs stay float. */
static void plan_case(tiny_plan *p, const calm_json *given, size_t *index)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_json *codes = calm_json_get(given, "codes"), *scales = calm_json_get(given, "scales"),
                    *zeros = calm_json_get(given, "zeros");
    *index = 0;
    while (strcmp(layout->jobs[*index].name, "model.layers.0.down") != 0)
        ++*index;
    calm_qjob *q = &p->qjobs[*index];
    *q = (calm_qjob){.out = calm_json_size(codes), .in = calm_json_size(calm_json_at(codes, 0))};
    q->group = (size_t)calm_json_int(calm_json_get(given, "group"), 0);
    q->n_groups = q->in / q->group;
    q->scheme = (calm_scheme){.bits = (int)calm_json_int(calm_json_get(given, "bits"), 0), .group = q->group,
                              .symmetric = calm_json_bool(calm_json_get(given, "symmetric"), false),
                              .scale_dtype = CALM_BF16};
    ck_assert(q->out == layout->jobs[*index].out && q->in == layout->jobs[*index].in);
    ck_ok(CALM_NEW(ctx, ctx->out, q->codes, q->out * q->in));
    ck_ok(CALM_NEW(ctx, ctx->out, q->scales, q->out * q->n_groups));
    ck_ok(CALM_NEW(ctx, ctx->out, q->zeros, q->out * q->n_groups));
    for (size_t o = 0; o < q->out; o++) {
        for (size_t i = 0; i < q->in; i++)
            q->codes[o * q->in + i] = (uint8_t)calm_json_int(cell(codes, o, i), 0);
        for (size_t g = 0; g < q->n_groups; g++) {
            q->scales[o * q->n_groups + g] = (float)calm_json_number(cell(scales, o, g), NAN);
            q->zeros[o * q->n_groups + g] = (uint8_t)calm_json_int(cell(zeros, o, g), 0);
        }
    }
    if (q->scheme.symmetric)
        q->zeros = NULL;
    p->plan.jobs[*index] = (calm_plan_job){.quantized = true, .scheme = q->scheme, .entry_name = "test"};
}

static const calm_tensor *tensor_of(const calm_safetensors *set, const char *suffix)
{
    const calm_tensor *tensor = calm_safetensors_find(set, test_format(MODULE ".%s", suffix));
    ck_assert_msg(tensor != NULL, "no %s", suffix);
    return tensor;
}

/* Compares words [rows][columns], in hexadecimal. */
static void check_words(const calm_safetensors *set, const char *suffix, const calm_json *expected)
{
    const calm_tensor *tensor = tensor_of(set, suffix);
    const size_t columns = calm_json_size(calm_json_at(expected, 0));
    ck_assert_uint_eq(tensor->shape[0], calm_json_size(expected));
    ck_assert_uint_eq(tensor->shape[1], columns);
    for (size_t i = 0; i < tensor->n_elements; i++) {
        uint32_t word;
        memcpy(&word, tensor->data + 4 * i, 4);
        ck_assert_msg(word == strtoul(calm_json_string(cell(expected, i / columns, i % columns), ""), NULL, 16),
                      "%s [%zu]: %08x", suffix, i, word);
    }
}

/* Compares numbers [rows][columns], or their transpose. */
static void check_numbers(const calm_safetensors *set, const char *suffix, const calm_json *expected, bool turned)
{
    const calm_tensor *tensor = tensor_of(set, suffix);
    const size_t rows = calm_json_size(expected), columns = calm_json_size(calm_json_at(expected, 0));
    float *values;
    ck_assert_uint_eq(tensor->n_elements, rows * columns);
    ck_assert_uint_eq(tensor->shape[turned ? 1 : 0], rows);
    ck_ok(CALM_NEW(ctx, ctx->out, values, rows * columns));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            ck_assert(values[turned ? c * rows + r : r * columns + c] ==
                      (float)calm_json_number(cell(expected, r, c), NAN));
}

/* Compares every tensor that the case has. */
static void check_tensors(const calm_json *given, const calm_safetensors *set)
{
    static const char *const words[] = {"weight_packed", "weight_zero_point", "qweight", "weight"};
    const calm_json *index = calm_json_get(given, "g_idx");
    const bool symmetric = calm_json_bool(calm_json_get(given, "symmetric"), false);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (calm_json_get(given, words[i]))
            check_words(set, words[i], calm_json_get(given, words[i]));
    if (calm_json_get(given, "qzeros_v1"))
        check_words(set, "qzeros", calm_json_get(given, symmetric ? "qzeros_v1" : "qzeros_v2"));
    if (calm_json_get(given, "biases"))
        check_numbers(set, "biases", calm_json_get(given, "biases"), false);
    check_numbers(set, calm_json_get(given, "weight_packed") ? "weight_scale" : "scales",
                  calm_json_get(given, "scales"), index != NULL);
    for (size_t i = 0; index && i < calm_json_size(index); i++) {
        int32_t group;
        memcpy(&group, tensor_of(set, "g_idx")->data + 4 * i, 4);
        ck_assert_int_eq(group, calm_json_int(calm_json_at(index, i), -1));
    }
}

static void check_case(const calm_exporter *exporter, const char *model, const calm_json *given)
{
    const calm_export_options options = {.asymmetric = true};
    const char *dir = test_directory();
    tiny_plan p;
    calm_model *written;
    calm_weight weight;
    size_t index;
    tiny_plan_open(&p, model);
    plan_case(&p, given, &index);
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    ck_ok(exporter->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
    ck_ok(calm_model_open(ctx, dir, &written));
    check_tensors(given, calm_model_tensors(written));
    const calm_qjob *q = &p.qjobs[index];
    ck_ok(calm_model_load_linear(ctx, written, MODULE, q->out, q->in, false, &weight));
    for (size_t i = 0; i < q->out * q->in; i++) {
        const size_t g = i / q->in * q->n_groups + i % q->in / q->group;
        const int zero = q->zeros ? q->zeros[g] : 1 << (q->scheme.bits - 1);
        ck_assert(weight.w[i] == (float)((int)q->codes[i] - zero) * q->scales[g]);
    }
    calm_model_close(written);
    calm_model_close(p.model);
}

TEST(checkpoints_have_the_words)
{
    static const char *const formats[] = {"compressed_tensors", "gptq", "mlx"};
    tiny_model spec = tiny_default;
    if (!fixtures_root())
        return;
    spec.inner = 64;
    for (char **name = fixture_entries("packing", ".json"); *name; name++) {
        calm_json *root;
        const char *model = tiny_model_write(&spec);
        size_t n = 0;
        ck_ok(calm_json_read(ctx, test_format("%s/packing/%s", fixtures_root(), *name), (size_t)1 << 26, &root));
        for (size_t f = 0; f < 3; f++) {
            const calm_json *cases = calm_json_get(root, formats[f]);
            const calm_exporter *exporter;
            ck_ok(calm_exporter_find(ctx, formats[f], &exporter));
            for (size_t i = 0; i < calm_json_size(cases); i++, n++)
                check_case(exporter, model, calm_json_at(cases, i));
        }
        ck_assert_uint_ge(n, 22);
        calm_json_free(root);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("format_fixtures", (const TTest *[]){checkpoints_have_the_words, NULL});
}
