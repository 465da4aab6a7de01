/* Writers of shards: tensors are cut into files at the limit, and the index lists them. */
#include "ptq/io/shards.h"

#include "ptq/io/json.h"
#include "tests/support/harness.h"

/* Four tensors of 8, 16, 8 and 4 bytes with running numbers. */
static const calm_tensor tensors[] = {{.name = "a", .dtype = CALM_U8, .n_dims = 1, .shape = {8}},
                                      {.name = "b", .dtype = CALM_I32, .n_dims = 2, .shape = {2, 2}},
                                      {.name = "c", .dtype = CALM_I8, .n_dims = 1, .shape = {8}},
                                      {.name = "d", .dtype = CALM_F32, .n_dims = 1, .shape = {1}}};
static const size_t sizes[] = {8, 16, 8, 4};

static const char *write_all(size_t limit, size_t *n_shards)
{
    const char *dir = test_directory();
    calm_shards_writer writer;
    uint8_t next = 0;
    ck_ok(calm_shards_begin(ctx, &writer, dir, tensors, 4, limit));
    for (size_t i = 0; i < 4; i++)
        for (size_t at = 0; at < sizes[i]; at++, next++)    /* byte by byte: pieces */
            ck_ok(calm_shards_put(ctx, &writer, &next, 1));
    *n_shards = writer.n_shards;
    ck_ok(calm_shards_end(ctx, &writer));
    return dir;
}

static void check_contents(const char *dir)
{
    calm_safetensors *set;
    uint8_t next = 0;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    ck_assert_uint_eq(calm_safetensors_count(set), 4);
    for (size_t i = 0; i < 4; i++)
        for (size_t at = 0; at < sizes[i]; at++, next++)
            ck_assert_uint_eq(calm_safetensors_find(set, tensors[i].name)->data[at], next);
    calm_safetensors_close(set);
}

TEST(one_file_where_all_fits)
{
    static const size_t limits[] = {0, 36, 1000};
    for (size_t i = 0; i < 3; i++) {
        size_t n;
        const char *dir = write_all(limits[i], &n);
        ck_assert_uint_eq(n, 1);
        ck_assert(calm_path_exists(test_format("%s/model.safetensors", dir)));
        ck_assert(!calm_path_exists(test_format("%s/model.safetensors.index.json", dir)));
        check_contents(dir);
    }
}
END_OF_TEST

/* A tensor begins a new file if it would exceed the limit; one larger than the limit is alone. */
TEST(cut_at_the_limit)
{
    static const struct {
        size_t limit, n;
        const char *of_c;
    } rows[] = {{35, 2, "model-00001-of-00002.safetensors"}, {24, 2, "model-00002-of-00002.safetensors"},
                {12, 3, "model-00003-of-00003.safetensors"}, {1, 4, "model-00003-of-00004.safetensors"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        calm_json *index;
        const char *dir = write_all(rows[i].limit, &n);
        ck_assert_uint_eq(n, rows[i].n);
        ck_ok(calm_json_read(ctx, test_format("%s/model.safetensors.index.json", dir), 1 << 16, &index));
        ck_assert_str_eq(calm_json_string(calm_json_get(calm_json_get(index, "weight_map"), "c"), ""), rows[i].of_c);
        ck_assert_int_eq(calm_json_int(calm_json_get(calm_json_get(index, "metadata"), "total_size"), 0), 36);
        calm_json_free(index);
        check_contents(dir);
    }
}
END_OF_TEST

TEST(failures)
{
    calm_shards_writer writer;
    calm_tensor huge = {.name = "huge", .dtype = CALM_F32, .n_dims = 2, .shape = {SIZE_MAX / 2, 4}};
    ck_assert_int_eq(calm_shards_begin(ctx, &writer, test_directory(), &huge, 1, 0), CALM_EARG);
    ck_fails(calm_shards_end(ctx, &writer), CALM_EARG, "tensor huge: its size overflows");
    ck_assert_int_eq(calm_shards_begin(ctx, &writer, "/nowhere/at/all", tensors, 4, 8), CALM_ENOTFOUND);
    ck_fails(calm_shards_end(ctx, &writer), CALM_ENOTFOUND, "/nowhere/at/all/model-00001-of-00004.safetensors");
}
END_OF_TEST

int main(void)
{
    return run_tests("shards", (const TTest *[]){one_file_where_all_fits, cut_at_the_limit, failures, NULL});
}
