/* NVFP4 in GGUF: blocks with e4m3 scales, and next to each matrix its global scale, under the name that llama.cpp's
 * converters give it. */
#include "ptq/export/export.h"
#include "ptq/export/gguf_linear.h"
#include "ptq/io/gguf.h"
#include "ptq/model/model.h"
#include "ptq/plan/assemble_impl.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static const char scheme[] = "nvfp4a16";

static const calm_exporter *gguf(void)
{
    const calm_exporter *found;
    ck_ok(calm_exporter_find(ctx, "gguf", &found));
    return found;
}

/* Returns a model whose rows have 64 and 128 columns. */
static tiny_model model_of(const char *family)
{
    tiny_model spec = tiny_wide(family);
    spec.bias = false;
    spec.hidden = spec.inner = spec.expert_inner = spec.shared_inner = 128;
    spec.head_dim = spec.hidden / spec.n_heads;
    return spec;
}

static const char *export(const tiny_plan *p)
{
    const calm_export_input input = {.model = p->model, .plan = &p->plan};
    const char *dir = test_directory();
    ck_ok(gguf()->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, gguf(), &input, dir));
    return test_format("%s/%s", dir, gguf()->file);
}

/* The plan divides by the global scale and a reader multiplies by its inverse: with the products four roundings. */
static void check_weight(const calm_weight *found, const calm_weight *expected)
{
    ck_assert(!found->w == !expected->w);
    for (size_t i = 0; found->w && i < expected->out * expected->in; i++)
        ck_assert_msg(fabsf(found->w[i] - expected->w[i]) <= 0x1p-22f * fabsf(expected->w[i]),
                      "%s [%zu]: %a, expected %a", expected->name, i, (double)found->w[i], (double)expected->w[i]);
}

static void check_read(const tiny_plan *p, const char *path)
{
    calm_plan_override override = {p->model, &p->plan};
    calm_model *written;
    ck_ok(calm_model_open(ctx, path, &written));
    for (size_t b = 0; b < calm_model_config(p->model)->n_blocks; b++) {
        calm_block found, expected;
        ck_ok(calm_model_load_block(ctx, written, b, &found));
        ck_ok(calm_model_load_block(ctx, p->model, b, &expected));
        ck_ok(calm_plan_apply(&override, ctx, b, &expected));
        for (long e = -1; e < (long)calm_model_config(p->model)->moe.n_experts; e++)
            for (calm_role role = 0; role < CALM_N_ROLES; role++)
                if (e >= 0)
                    check_weight(&tiny_plan_weights(&found, e)[role], &tiny_plan_weights(&expected, e)[role]);
                else
                    check_weight(&found.weight[role], &expected.weight[role]);
    }
    calm_model_close(written);
}

static const calm_gguf_tensor *need(const calm_gguf *file, const char *name, calm_ggml_type type, int n_dims, size_t n)
{
    const calm_gguf_tensor *tensor = calm_gguf_find_tensor(file, name);
    ck_assert_msg(tensor && tensor->type == type && tensor->n_dims == n_dims, "%s", name);
    ck_assert_uint_eq(tensor->dims[n_dims - 1], n);
    return tensor;
}

TEST(read_back_with_their_factors)
{
    static const char *const families[] = {"llama", "qwen3_moe"}, *const schemes[] = {scheme};
    for (size_t f = 0; f < 2; f++) {
        const tiny_model spec = model_of(families[f]);
        tiny_plan p;
        calm_gguf *file;
        int64_t label;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, schemes, 1, TINY_UNSCALED);
        const char *path = export(&p);
        ck_ok(calm_gguf_open(ctx, path, &file));
        const calm_gguf_tensor *up = f ? need(file, "blk.1.ffn_up_exps.weight", CALM_GGML_NVFP4, 3, spec.n_experts)
                                       : need(file, "blk.1.ffn_up.weight", CALM_GGML_NVFP4, 2, spec.inner);
        const calm_gguf_tensor *factor = f ? need(file, "blk.1.ffn_up_exps.scale", CALM_GGML_F32, 1, spec.n_experts)
                                           : need(file, "blk.1.ffn_up.scale", CALM_GGML_F32, 1, 1);
        ck_assert_ptr_eq(factor, up + 1);
        ck_assert(!calm_gguf_find_tensor(file, "token_embd.scale"));
        ck_assert(calm_gguf_int(calm_gguf_find_key(file, "general.file_type"), 0, &label) && label == 39);
        calm_gguf_close(file);
        check_read(&p, path);
        calm_model_close(p.model);
    }
}
END_OF_TEST

TEST(refused)
{
    tiny_model odd = model_of("llama");
    const char *const schemes[] = {scheme};
    tiny_plan p;
    calm_scheme table;
    odd.inner = 96;
    tiny_plan_open(&p, tiny_model_write(&odd));
    tiny_plan_quantize_all(&p, schemes, 1, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_fails(gguf()->check(ctx, &input), CALM_EUNSUPPORTED,
             "mlp.down_proj has 96 input columns, which the blocks of 64 of nvfp4a16 do not divide");
    calm_model_close(p.model);
    ck_ok(calm_scheme_parse(ctx, scheme, &table));
    ck_fails(gguf()->check_outer(ctx, &table, "lm_head", 128), CALM_EUNSUPPORTED,
             "lm_head is nvfp4a16: llama.cpp takes no global scale for tables; use q6_k or w8a16_g32");
    ck_assert_int_eq(gguf()->outer(CALM_OUTER_HEAD, &table, false).family, CALM_FAMILY_Q6_K);
    ck_assert_int_eq(gguf()->outer(CALM_OUTER_EMBEDDING, &table, false).bits, 8);
}
END_OF_TEST

/* Scales that no e4m3 number times the global scale equals, and a scale of 0. */
TEST(scales_that_do_not_fit)
{
    static const float bad[] = {1.03f, 0, 512, -1, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t codes[64] = {0};
        float scales[4] = {1, bad[i], 1, 1};
        calm_qlinear linear = {.quantized = true, .out = 1, .in = 64, .group = 16, .n_groups = 4, .codes = codes,
                               .scales = scales, .global = 1};
        calm_gguf_writer writer = {0};
        ck_ok(calm_scheme_parse(ctx, scheme, &linear.scheme));
        ck_fails(calm_gguf_put_row(ctx, &writer, &linear, "a.linear", 0, &(calm_gguf_order){0}, CALM_GGML_NVFP4),
                 CALM_ENUMERIC,
                 "gguf: a.linear: the scale");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("export_nvfp4", (const TTest *[]){read_back_with_their_factors, refused, scales_that_do_not_fit,
                                                       NULL});
}
