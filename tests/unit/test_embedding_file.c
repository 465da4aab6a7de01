/* Files of embeddings, byte by byte as numpy's documentation describes the format, and their lengths. */
#include "ptq/eval/embedding_file.h"

#include <string.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"

static char *written(const calm_embeddings *embeddings, const char *name, size_t *n)
{
    char *bytes;
    const char *path = test_format("%s/%s", test_directory(), name);
    ck_ok(calm_embeddings_write(ctx, embeddings, path));
    ck_ok(calm_read_file(ctx, path, 1 << 16, &bytes, n));
    return bytes;
}

TEST(npy_is_a_padded_header_and_floats)
{
    double x[] = {1, -2.5, 0.1, 4, 0, 1e-30};
    const calm_embeddings embeddings = {.n = 2, .width = 3, .x = x};
    size_t n;
    char *bytes = written(&embeddings, "e.npy", &n);
    ck_assert_uint_eq(n, 128 + sizeof(float) * 6);
    ck_assert(memcmp(bytes, "\x93NUMPY\x01\x00\x76\x00", 10) == 0);    /* 118 = 128 - 10 */
    ck_assert(strncmp(bytes + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ", 60) == 0);
    ck_assert_int_eq(bytes[127], '\n');
    for (size_t i = 0; i < 6; i++) {
        float value;
        memcpy(&value, bytes + 128 + i * sizeof value, sizeof value);
        ck_assert(value == (float)x[i]);
    }
}
END_OF_TEST

TEST(lines_read_back_as_the_same_floats)
{
    double x[] = {0.1, -1.0 / 3, 16777217, 1e-42};
    const calm_embeddings embeddings = {.n = 2, .width = 2, .x = x};
    size_t n;
    char *line = written(&embeddings, "e.jsonl", &n);
    for (size_t i = 0; i < 2; i++) {
        float a, b;
        ck_assert_int_eq(sscanf(line, "{\"embedding\": [%f, %f]}", &a, &b), 2);
        ck_assert(a == (float)x[2 * i] && b == (float)x[2 * i + 1]);
        line = strchr(line, '\n') + 1;
    }
    ck_assert_int_eq(*line, 0);
}
END_OF_TEST

TEST(lengths_become_one)
{
    double x[] = {3, 4, 0, 0};
    calm_embeddings embeddings = {.n = 2, .width = 2, .x = x};
    calm_embeddings_normalize(&embeddings);
    ck_assert(x[0] == 0.6 && x[1] == 0.8 && x[2] == 0 && x[3] == 0);
}
END_OF_TEST

TEST(other_suffixes_are_refused)
{
    double x[] = {1};
    const calm_embeddings embeddings = {.n = 1, .width = 1, .x = x};
    ck_fails(calm_embeddings_write(ctx, &embeddings, "e.txt"), CALM_EARG, ".npy or .jsonl");
    ck_assert(calm_embeddings_named("a/b.npy") && !calm_embeddings_named("npy"));
}
END_OF_TEST

int main(void)
{
    return run_tests("embedding_file", (const TTest *[]){
        npy_is_a_padded_header_and_floats, lines_read_back_as_the_same_floats, lengths_become_one,
        other_suffixes_are_refused, NULL});
}
