/* Tensors of the float schemes in compressed-tensors, byte for byte as version 0.20.0 of the library packs the same
 * weights.  tests/golden/make_ct_digests.py computed the digests. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/sha256.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/io/safetensors.h"
#include "ptq/quant/levels.h"
#include "tests/support/harness.h"

/* Rows form one whole block and a short one. */
#define OUT ((size_t)160)
#define IN ((size_t)256)
#define GLOBAL 1075.2f

static const char *const schemes[] = {"fp8", "fp8_block", "mxfp4a16", "nvfp4a16"};

/* The random number generator of make_ct_digests.py. */
static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state;
}

/* Returns a scale that the format can store, from 32 random bits. */
static float scale_of(const calm_scheme *scheme, uint32_t bits)
{
    static const size_t positive = 127;    /* the first e4m3 level above 0 */
    if (scheme->family == CALM_FAMILY_MXFP4)
        return ldexpf(1, (int)(bits >> 26) - 30);
    if (scheme->family == CALM_FAMILY_NVFP4)
        return calm_levels_e4m3.value[positive + (bits >> 24) % 126] / GLOBAL;
    return ldexpf((float)(128 + (bits >> 16 & 127)), -11 - (int)(bits >> 28 & 7));
}

/* Makes a linear with random codes and scales. */
static void sample(size_t number, calm_qlinear *out)
{
    const calm_scheme *scheme = &out->scheme;
    uint32_t state = (uint32_t)number + 1;
    uint8_t *codes;
    *out = (calm_qlinear){.quantized = true, .out = OUT, .in = IN};
    ck_ok(calm_scheme_parse(ctx, schemes[number], &out->scheme));
    out->group = calm_scheme_group_size(scheme, IN);
    out->n_groups = calm_scheme_groups(scheme, IN);
    out->global = calm_scheme_has_global(scheme) ? GLOBAL : 0;
    ck_ok(CALM_NEW(ctx, ctx->out, codes, OUT * IN));
    ck_ok(CALM_NEW(ctx, ctx->out, out->scales, OUT * out->n_groups));
    for (size_t i = 0; i < OUT * IN; i++)
        codes[i] = (uint8_t)((draw(&state) >> 24) % calm_scheme_levels(scheme)->n);
    out->codes = codes;
    for (size_t i = 0; i < OUT; i++)
        for (size_t g = 0; g < out->n_groups; g++)
            out->scales[i * out->n_groups + g] = i % calm_scheme_rows(scheme) == 0
                                                     ? scale_of(scheme, draw(&state))
                                                     : out->scales[(i - 1) * out->n_groups + g];
}

/* Writes the linear's tensors to a file and returns it opened. */
static calm_safetensors *write(size_t number, const calm_qlinear *linear)
{
    const calm_exporter *exporter;
    const char *dir = test_format("%s/%zu", test_directory(), number);
    calm_export_tensor list[CALM_EXPORT_TENSORS];
    calm_tensor tensors[CALM_EXPORT_TENSORS];
    calm_shards_writer writer;
    calm_safetensors *file;
    ck_ok(calm_exporter_find(ctx, "compressed-tensors", &exporter));
    const calm_export_form *form = exporter->form;
    const size_t n = form->tensors(&linear->scheme, OUT, IN, list);
    for (size_t i = 0; i < n; i++)
        tensors[i] = (calm_tensor){.name = list[i].suffix, .dtype = list[i].dtype, .n_dims = list[i].n_dims,
                                   .shape = {list[i].shape[0], list[i].shape[1]}};
    ck_ok(calm_make_directories(ctx, dir));
    ck_ok(calm_shards_begin(ctx, &writer, dir, tensors, n, 0));
    for (size_t i = 0; i < n; i++)
        ck_ok(form->put(ctx, &writer, linear, i, false));
    ck_ok(calm_shards_end(ctx, &writer));
    ck_ok(calm_safetensors_open(ctx, dir, &file));
    return file;
}

TEST(as_the_library)
{
    FILE *golden = fopen(test_data("ct_tensors.txt"), "r");
    char scheme[32], name[64], expected[80];
    ck_assert_ptr_nonnull(golden);
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        calm_qlinear linear;
        sample(s, &linear);
        calm_safetensors *file = write(s, &linear);
        ck_ok(calm_safetensors_hash(ctx, file));
        for (size_t i = 0; i < calm_safetensors_count(file); i++) {    /* both sides sort by name */
            const calm_tensor *tensor = calm_safetensors_at(file, i);
            ck_assert_int_eq(fscanf(golden, "%31s %63s %79s", scheme, name, expected), 3);
            ck_assert_msg(strncmp(scheme, schemes[s], strlen(scheme)) == 0 && strcmp(name, tensor->name) == 0,
                          "%s %s, the library has %s %s", schemes[s], tensor->name, scheme, name);
            ck_assert_msg(strcmp(calm_safetensors_digest(file, tensor), expected) == 0,
                          "%s: %s has other bytes than the library's", schemes[s], name);
        }
        calm_safetensors_close(file);
    }
    ck_assert_int_eq(fscanf(golden, "%31s", scheme), EOF);
    fclose(golden);
}
END_OF_TEST

int main(void)
{
    return run_tests("ct_tensors", (const TTest *[]){as_the_library, NULL});
}
