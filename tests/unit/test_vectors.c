/* Named vectors as blobs: encoded and decoded, and damaged blobs refused by name. */
#include "ptq/quant/vectors.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define COUNT 5

static calm_vectors sample(void)
{
    static const char *const names[COUNT] = {"model.layers.0.input_layernorm.weight", "a", "b.bias", "", "last"};
    calm_vectors out = {.count = COUNT};
    ck_ok(CALM_NEW(ctx, ctx->out, out.of, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        const size_t n = i == 2 ? 0 : 3 + 7 * i;
        float *values;
        ck_ok(CALM_NEW(ctx, ctx->out, values, n));
        for (size_t j = 0; j < n; j++)
            values[j] = (float)calm_rng_normal(3, i, j);
        out.of[i] = (calm_named_vector){names[i], n, values};
    }
    return out;
}

TEST(there_and_back)
{
    const calm_vectors vectors = sample();
    calm_vectors back;
    void *bytes, *again;
    size_t n, n_again;
    ck_ok(calm_vectors_encode(ctx, &vectors, &bytes, &n));
    ck_assert_uint_eq(n % 4, 0);
    ck_ok(calm_vectors_decode(ctx, "blob", bytes, n, &back));
    ck_assert_uint_eq(back.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const calm_named_vector *of = calm_vectors_find(&back, vectors.of[i].name);
        ck_assert(of == &back.of[i] && of->n == vectors.of[i].n);
        ck_assert_mem_eq(of->values, vectors.of[i].values, of->n * sizeof(float));
    }
    ck_ok(calm_vectors_encode(ctx, &back, &again, &n_again));
    ck_assert_uint_eq(n_again, n);
    ck_assert_mem_eq(again, bytes, n);
    ck_assert_ptr_null(calm_vectors_find(&back, "c"));
    ck_assert_ptr_null(calm_vectors_find(NULL, "a"));
}
END_OF_TEST

TEST(none_at_all)
{
    const calm_vectors vectors = {.count = 0};
    calm_vectors back;
    void *bytes;
    size_t n;
    ck_ok(calm_vectors_encode(ctx, &vectors, &bytes, &n));
    ck_ok(calm_vectors_decode(ctx, "blob", bytes, n, &back));
    ck_assert_uint_eq(back.count, 0);
}
END_OF_TEST

/* The sample's blob has 8 bytes of magic, 8 of the count, and 16 for each vector. */
TEST(broken_blobs_are_refused)
{
    const calm_vectors vectors = sample();
    calm_vectors back;
    void *bytes;
    size_t n;
    ck_ok(calm_vectors_encode(ctx, &vectors, &bytes, &n));
    const struct {
        size_t at;
        uint64_t value;
        const char *text;
    } cases[] = {{0, 0, "it does not begin with CALMVEC1"},
                 {8, 4097, "its length does not fit its number of vectors"},
                 {8, UINT64_MAX, "its length does not fit its number of vectors"},
                 {8, 4, "its length does not fit its vectors"},
                 {16, UINT64_MAX, "its length does not fit its vectors"},
                 {16, 38, "a name does not end where it should"},
                 {24, UINT64_MAX / 2, "its length does not fit its vectors"},
                 {24, 4, "its length does not fit its vectors"},
                 {n - 8, 0x7f8000007fc00000, "a value is not finite"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *copy;
        ck_ok(calm_alloc(ctx, ctx->out, &copy, n, 1, "copy"));
        memcpy(copy, bytes, n);
        memcpy(copy + cases[i].at, &cases[i].value, sizeof cases[i].value);
        ck_fails(calm_vectors_decode(ctx, "blob 7", copy, n, &back), CALM_EFORMAT, cases[i].text);
    }
    for (size_t cut = 0; cut < n; cut++) {
        ck_fails(calm_vectors_decode(ctx, "blob 7", bytes, cut, &back), CALM_EFORMAT,
                 "blob 7: not the vectors of a block");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("vectors", (const TTest *[]){there_and_back, none_at_all, broken_blobs_are_refused, NULL});
}
