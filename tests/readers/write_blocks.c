/* Writes sample blocks of every type that calm reads:
 *
 *   write_blocks FOLDER
 *
 *   FOLDER/model.gguf      a tensor per type, with the type's name
 *   FOLDER/values.f32      the values that calm reads from them, tensor after tensor */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/io/gguf_write.h"
#include "tests/support/ggml_sample.h"
#include "tests/support/harness.h"

#define MOST_TYPES 64

static const char *folder;

static size_t list_types(calm_gguf_tensor *list)
{
    size_t n = 0;
    for (uint32_t number = 0; number < MOST_TYPES; number++) {
        const calm_ggml_info *info = calm_ggml_find(number);
        if (info && calm_ggml_blocks_find((calm_ggml_type)number))
            list[n++] = (calm_gguf_tensor){.name = info->name, .type = (calm_ggml_type)number, .n_dims = 2,
                                           .dims = {info->elements, GGML_SAMPLE_BLOCKS}};
    }
    return n;
}

TEST(write_all)
{
    calm_gguf_tensor list[MOST_TYPES];
    const size_t n = list_types(list);
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    ck_ok(calm_make_directories(ctx, folder));
    FILE *values = fopen(test_format("%s/values.f32", folder), "wb");
    ck_assert_ptr_nonnull(values);
    calm_gguf_keys_init(&keys);
    calm_gguf_add_string(&keys, "general.architecture", "llama");
    ck_ok(calm_gguf_begin(ctx, &writer, test_format("%s/model.gguf", folder), &keys, list, n));
    for (size_t i = 0; i < n; i++) {
        const size_t elements = list[i].dims[0] * list[i].dims[1];
        size_t bytes;
        const uint8_t *blocks = ggml_sample(list[i].type, &bytes);
        float *wide;
        ck_ok(CALM_NEW(ctx, ctx->out, wide, elements));
        ck_ok(calm_ggml_to_f32(ctx, list[i].type, blocks, elements, wide));
        ck_assert_uint_eq(fwrite(wide, sizeof *wide, elements, values), elements);
        ck_ok(calm_gguf_put(ctx, &writer, blocks, bytes));
    }
    ck_ok(calm_gguf_end(ctx, &writer));
    calm_gguf_keys_clear(&keys);
    ck_assert_int_eq(fclose(values), 0);
}
END_OF_TEST

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: write_blocks FOLDER\n", stderr);
        return 2;
    }
    folder = argv[1];
    return run_tests("write_blocks", (const TTest *[]){write_all, NULL});
}
