/* Bits per weight that calm reports, compared with the bytes of matrices in the written files, for every format and
 * every scheme that it takes. */
#include "ptq/export/export.h"

#include <string.h>

#include "ptq/base/text.h"
#include "ptq/io/gguf.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static const char *const schemes[] = {"w4a16_g32", "w4a16_g32_asym", "w8a16_g32", "w8a16", "q5_0"};

/* All rows have 128 or 256 columns, which groups, words of 32 bits and GGUF's blocks divide. */
static tiny_model wide_model(void)
{
    tiny_model spec = tiny_default;
    spec.hidden = 128;
    spec.inner = 256;
    spec.head_dim = 32;
    return spec;
}

/* Returns the bits of the blocks' matrices in the safetensors files. */
static double bits_of_checkpoint(const char *dir)
{
    calm_safetensors *set;
    double bits = 0;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        if (strstr(tensor->name, ".layers.") && tensor->n_dims == 2)
            bits += 8.0 * (double)tensor->bytes;
    }
    calm_safetensors_close(set);
    return bits;
}

/* Returns the same of a GGUF file. */
static double bits_of_gguf(const char *path)
{
    calm_gguf *file;
    double bits = 0;
    ck_ok(calm_gguf_open(ctx, path, &file));
    for (size_t i = 0; i < calm_gguf_n_tensors(file); i++) {
        const calm_gguf_tensor *tensor = calm_gguf_tensor_at(file, i);
        const calm_ggml_info *type = calm_ggml_find(tensor->type);
        if (strncmp(tensor->name, "blk.", 4) == 0 && tensor->n_dims == 2)
            bits += 8.0 * (double)(tensor->n_elements / type->elements * type->bytes);
    }
    calm_gguf_close(file);
    return bits;
}

/* Returns the bits that calm reports for all linears. */
static double reported(const calm_exporter *exporter, const tiny_plan *p)
{
    const calm_layout *layout = calm_model_layout(p->model);
    double bits = 0;
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            const calm_linear_ref *linear = &layout->linears[i];
            bits += calm_exporter_bits(exporter, &p->plan.jobs[j].scheme, linear->out, linear->in) *
                    (double)linear->out * (double)linear->in;
        }
    return bits;
}

/* Writes a plan whose jobs all have the scheme; false: the exporter refuses it. */
static bool check_scheme(const calm_exporter *exporter, const char *scheme)
{
    const tiny_model spec = wide_model();
    const calm_export_options options = {.asymmetric = true};
    const char *dir = test_directory();
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, &scheme, 1, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    const bool takes = calm_exporter_check(ctx, exporter, &input) == CALM_OK;
    if (takes) {
        char *path;
        ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
        ck_ok(calm_strf(ctx, ctx->out, &path, "%s/%s", dir, exporter->file ? exporter->file : ""));
        const double written = exporter->form ? bits_of_checkpoint(dir) : bits_of_gguf(path);
        ck_assert_msg(written == reported(exporter, &p), "%s, %s: %g bits in the files, %g reported", exporter->name,
                      scheme, written, reported(exporter, &p));
    } else
        calm_ctx_clear_failure(ctx);
    calm_model_close(p.model);
    return takes;
}

TEST(reported_bits_are_written)
{
    size_t n;
    for (size_t e = 0; e < (calm_exporters(&n), n); e++) {
        const calm_exporter *exporter = calm_exporters(&n)[e];
        size_t taken = 0;
        if (!exporter->form && !exporter->bits)    /* files without weights */
            continue;
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
            taken += check_scheme(exporter, schemes[s]);
        ck_assert_msg(taken >= 2, "%s takes %zu of the schemes", exporter->name, taken);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("exporter_bits", (const TTest *[]){reported_bits_are_written, NULL});
}
