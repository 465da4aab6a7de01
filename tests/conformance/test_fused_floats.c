/* Experts that the checkpoint stores in one tensor per block.  If they stay float, compressed-tensors keeps that
 * tensor, and calm check accepts it, in a float checkpoint as well; if they are quantized, each expert has separate
 * tensors with the names that vLLM looks for. */
#include "ptq/check/check.h"
#include "ptq/export/export.h"
#include "tests/support/good_checkpoint.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/write_tensors.h"

enum { MOST = 128 };

static const float *floats_of(const calm_safetensors *set, const char *name, size_t *n)
{
    const calm_tensor *tensor = calm_safetensors_find(set, name);
    float *values;
    ck_assert_msg(tensor != NULL, "%s", name);
    ck_ok(CALM_NEW(ctx, ctx->out, values, tensor->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    *n = tensor->n_elements;
    return values;
}

/* Makes the tensor of all experts of a block: for each expert the rows of `words`, one after the other. */
static calm_tensor fuse(const calm_safetensors *set, size_t block, const char *name, const char *const *words,
                        size_t n_words, size_t rows, size_t columns, size_t experts)
{
    float *all, *to;
    ck_ok(CALM_NEW(ctx, ctx->out, all, experts * rows * columns));
    to = all;
    for (size_t e = 0; e < experts; e++)
        for (size_t w = 0; w < n_words; w++) {
            size_t n;
            const float *from = floats_of(
                set, test_format("model.layers.%zu.block_sparse_moe.experts.%zu.%s.weight", block, e, words[w]), &n);
            memcpy(to, from, n * sizeof *to);
            to += n;
        }
    ck_assert(to == all + experts * rows * columns);
    return float_tensor(test_format("model.layers.%zu.block_sparse_moe.%s.weight", block, name), all, experts, rows,
                        columns);
}

/* Writes a small Granite mixture with the tensors of the published ones. */
static const char *published(void)
{
    static const char *const both[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    const tiny_model spec = tiny_wide("granitemoe");
    const char *dir = test_directory();
    calm_tensor tensors[MOST];
    calm_model *model;
    size_t n = 0;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const calm_config *config = calm_model_config(model);
    const calm_safetensors *set = calm_model_tensors(model);
    const size_t inner = config->moe.inner, width = config->hidden, experts = config->moe.n_experts;
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        ck_assert(n < MOST - 2 * config->n_blocks);
        if (!strstr(tensor->name, ".experts."))
            tensors[n++] = *tensor;
    }
    for (size_t b = 0; b < config->n_blocks; b++) {
        tensors[n++] = fuse(set, b, "input_linear", both, 2, 2 * inner, width, experts);
        tensors[n++] = fuse(set, b, "output_linear", down, 1, width, inner, experts);
    }
    tiny_model_write_config(&spec, dir);
    write_tensors(dir, tensors, n);
    good_tokenizer(dir, spec.vocab);
    calm_model_close(model);
    return dir;
}

/* Writes it with all jobs at 4 bits, or with float experts. */
static const char *quantized(const char *from, bool experts)
{
    const char *dir = test_directory();
    const calm_export_options options = {.asymmetric = true};
    const calm_exporter *how;
    tiny_plan p;
    tiny_plan_open(&p, from);
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        tiny_plan_quantize(&p, j, layout->jobs[j].expert < 0 || experts ? "w4a16_g32" : "float", TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    ck_ok(calm_exporter_find(ctx, "compressed-tensors", &how));
    ck_ok(calm_exporter_write(ctx, how, &input, dir));
    good_tokenizer(dir, calm_model_config(p.model)->vocab);
    calm_model_close(p.model);
    return dir;
}

static void check_findings(const char *dir, calm_check_engine engine, size_t expected)
{
    calm_check_report report;
    ck_ok(calm_check(ctx, dir, engine, &report));
    ck_assert_msg(report.n == expected, "%zu findings, of %s: %s", report.n,
                  report.n ? report.findings[0].rule->id : "", report.n ? report.findings[0].what : "");
}

TEST(floats_stay_in_their_tensor)
{
    static const char name[] = "model.layers.1.block_sparse_moe.input_linear.weight";
    const char *from = published(), *dir = quantized(from, false);
    calm_safetensors *before, *after;
    size_t n, m;
    ck_ok(calm_safetensors_open(ctx, from, &before));
    ck_ok(calm_safetensors_open(ctx, dir, &after));
    const float *expected = floats_of(before, name, &n), *found = floats_of(after, name, &m);
    ck_assert(n == m && memcmp(expected, found, n * sizeof *found) == 0);
    for (size_t i = 0; i < calm_safetensors_count(after); i++)
        ck_assert(!strstr(calm_safetensors_at(after, i)->name, ".experts."));
    check_findings(dir, CALM_CHECK_VLLM, 0);
    check_findings(dir, CALM_CHECK_TRANSFORMERS, 0);
    calm_safetensors_close(before);
    calm_safetensors_close(after);
}
END_OF_TEST

TEST(quantized_ones_have_their_own)
{
    const char *dir = quantized(published(), true);
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    ck_assert(calm_safetensors_find(set, "model.layers.0.block_sparse_moe.experts.1.up_proj.weight_packed"));
    ck_assert(!calm_safetensors_find(set, "model.layers.0.block_sparse_moe.input_linear.weight"));
    calm_safetensors_close(set);
    check_findings(dir, CALM_CHECK_ANY, 0);
    check_findings(dir, CALM_CHECK_TRANSFORMERS, 1);
}
END_OF_TEST

/* calm check gives one note: nothing is quantized. */
TEST(a_float_checkpoint)
{
    check_findings(published(), CALM_CHECK_ANY, 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("fused_floats", (const TTest *[]){floats_stay_in_their_tensor, quantized_ones_have_their_own,
                                                       a_float_checkpoint, NULL});
}
