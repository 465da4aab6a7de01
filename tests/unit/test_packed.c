/* Operands that are packed once: the bytes of calm_multiply() for any rows, columns and terms, whole and in parts. */
#include "ptq/tensor/packed.h"

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/dtype.h"
#include "tests/support/product_case.h"

enum { M = 1100, N = 345, K = 2710 };    /* more than blocks have, and than are summed at once; no whole steps */

/* Both operands, and packed ones. */
typedef struct operands {
    const float *a, *b, *turned;    /* [M, K], [N, K], and its transpose [K, N] */
    const float *a_turned;          /* [K, M] */
    calm_packed left, left_columns, right, columns;
} operands;

static void pack_lines(size_t first, size_t n, void *user)
{
    operands *of = user;
    calm_packed_store(&of->right, first, n, 0, K, of->b + first * K, K);
}

/* Packs rows at once; columns by threads, line by line; and columns from a transposed matrix, term by term. */
static void pack_all(operands *of)
{
    ck_ok(calm_packed_new(ctx, false, M, K, &of->left));
    ck_ok(calm_packed_new(ctx, true, N, K, &of->right));
    ck_ok(calm_packed_new(ctx, true, N, K, &of->columns));
    ck_ok(calm_packed_new(ctx, false, M, K, &of->left_columns));
    calm_packed_store(&of->left, 0, M, 0, K, of->a, K);
    for (size_t k = 0; k < K; k += 480)
        calm_packed_put_columns(&of->left_columns, 0, M, k, calm_size_min(480, K - k), of->a_turned + k * M, M);
    ctx->n_threads = 3;
    calm_parallel_each_rows(ctx, N, pack_lines, of);
    ctx->n_threads = 1;
    for (size_t k = 0; k < K; k += 96)
        calm_packed_put_columns(&of->columns, 0, N, k, calm_size_min(96, K - k), of->turned + k * N, N);
}

static operands new_operands(bool exact)
{
    operands of = {.a = random_matrix((size_t)M * K, 1)};
    float *b = random_matrix((size_t)N * K, 2), *turned = random_matrix((size_t)N * K, 3);
    if (exact)    /* no second parts */
        calm_dtype_round_all(CALM_BF16, b, (size_t)N * K);
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < K; k++)
            turned[k * N + i] = b[i * K + k];
    float *a_turned = random_matrix((size_t)M * K, 5);
    for (size_t i = 0; i < M; i++)
        for (size_t k = 0; k < K; k++)
            a_turned[k * M + i] = of.a[i * K + k];
    of.b = b;
    of.turned = turned;
    of.a_turned = a_turned;
    pack_all(&of);
    return of;
}

/* Compares n columns from `column` on, over k terms from `term` on, for m rows, with calm_multiply(). */
static void check(const operands *of, size_t m, size_t column, size_t n, size_t term, size_t k, float beta)
{
    float *c = random_matrix(m * (n + 3), 4), *same = random_matrix(m * (n + 3), 4);
    const calm_packed *left[] = {&of->left, &of->left_columns}, *right[] = {&of->right, &of->columns};
    ck_ok(calm_multiply(ctx, CALM_PRODUCT_NT, m, n, k, of->a + term, K, of->b + column * K + term, K, beta, same,
                        n + 3));
    for (size_t i = 0; i < 2; i++) {
        float *again = random_matrix(m * (n + 3), 4);
        ck_ok(calm_packed_multiply(ctx, m, n, k, (calm_packed_part){left[i], 0, term},
                                   (calm_packed_part){right[i], column, term}, beta, again, n + 3));
        ck_assert_msg(memcmp(again, same, m * (n + 3) * sizeof *c) == 0, "%zu x %zu x %zu from %zu, %zu, %zu", m, n, k,
                      column, term, i);
    }
    calm_arena_clear(ctx->out);
}

static void check_kind(calm_operands kind, bool exact)
{
    /* Rows around a panel and a block; terms around those of a block, and of the four that are summed together. */
    static const size_t rows[] = {1, 15, 31, 32, 33, 64, 127, 128, 200, 1024, 1057};
    static const size_t terms[] = {32, 64, 128, 480, 512, 544, 608, 2048, 2080, 2688, K};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OPERANDS(ctx, kind);
    CALM_SCOPED_ARENA(results);    /* of one product */
    calm_arena *const out = ctx->out;
    const operands of = new_operands(exact);
    ctx->out = &results;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof terms / sizeof *terms; j++)
            if (i % 3 == j % 3 || rows[i] < 130)
                check(&of, rows[i], 0, i % 2 ? 288 : 33, 0, terms[j], j % 2 ? 0.5f : 0);
    check(&of, 100, 64, 281, 0, 128, 1);       /* parts: columns, terms, both to the end */
    check(&of, 100, 0, 17, 1024, 128, 0);
    check(&of, 130, 320, 25, 2016, K - 2016, 1);
    check(&of, 0, 0, 32, 0, 32, 1);
    ctx->out = out;
}

TEST(the_bytes_of_products_that_pack)
{
    calm_linalg_setup();
    if (!calm_packed_fits(CALM_OPERANDS_BF16X2, CALM_PACKED_STEP))
        return;
    check_kind(CALM_OPERANDS_BF16X2, false);
    check_kind(CALM_OPERANDS_BF16X2, true);
    check_kind(CALM_OPERANDS_BF16, false);
}
END_OF_TEST

/* A part that is packed again in place has the new values, and the rest stays. */
TEST(parts_change)
{
    calm_linalg_setup();
    if (!calm_packed_fits(CALM_OPERANDS_BF16X2, CALM_PACKED_STEP))
        return;
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
    CALM_SCOPED_SCRATCH(ctx);
    enum { ROWS = 40, COLS = 64, TERMS = 160 };
    float *a = random_matrix(ROWS * TERMS, 1), *b = random_matrix(COLS * TERMS, 2), *c = random_matrix(ROWS * COLS, 3),
          *same = random_matrix(ROWS * COLS, 3);
    calm_packed left, right;
    ck_ok(calm_packed_new(ctx, false, ROWS, TERMS, &left));
    ck_ok(calm_packed_new(ctx, true, COLS, TERMS, &right));
    calm_packed_store(&left, 0, ROWS, 0, TERMS, a, TERMS);
    calm_packed_store(&right, 0, COLS, 0, TERMS, b, TERMS);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 64; k < 128; k++)
            a[i * TERMS + k] += 1;
    calm_packed_store(&left, 0, ROWS, 64, 64, a + 64, TERMS);
    ck_ok(calm_packed_multiply(ctx, ROWS, COLS, TERMS, (calm_packed_part){&left, 0, 0},
                               (calm_packed_part){&right, 0, 0}, 0, c, COLS));
    ck_ok(calm_multiply(ctx, CALM_PRODUCT_NT, ROWS, COLS, TERMS, a, TERMS, b, TERMS, 0, same, COLS));
    ck_assert_mem_eq(c, same, ROWS * COLS * sizeof *c);
}
END_OF_TEST

/* float32 has no packed operands; the estimate of memory is exact; two parts with whole steps as in float32. */
TEST(memory)
{
    calm_linalg_setup();
    ck_assert(!calm_packed_fits(CALM_OPERANDS_F32, CALM_PACKED_STEP));
    ck_assert_uint_eq(calm_packed_bytes(CALM_OPERANDS_BF16X2, 64, 96), CALM_BYTES(float, 64 * 96));
    ck_assert_uint_eq(calm_packed_bytes(CALM_OPERANDS_BF16, 64, 96), CALM_BYTES(uint16_t, 64 * 96));
    ck_assert_uint_eq(calm_packed_bytes(CALM_OPERANDS_BF16X2, 33, 65), calm_packed_bytes(CALM_OPERANDS_BF16X2, 64, 96));
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
    CALM_SCOPED_SCRATCH(ctx);
    calm_packed left, right;
    const size_t before = ctx->scratch->used_bytes;
    ck_ok(calm_packed_new(ctx, false, 1024, 2720, &left));
    ck_assert_uint_eq(ctx->scratch->used_bytes - before, calm_packed_bytes(CALM_OPERANDS_BF16X2, 1024, 2720));
    if (!calm_packed_fits(CALM_OPERANDS_BF16X2, CALM_PACKED_STEP))
        return;
    ck_ok(calm_packed_new(ctx, true, 320, 2720, &right));
    float *a = random_matrix(1024 * 2720, 1), *c = random_matrix(1024 * 320, 2);
    calm_packed_store(&left, 0, 1024, 0, 2720, a, 2720);
    calm_packed_store(&right, 0, 320, 0, 2720, a, 2720);
    test_memory_begin();
    ck_ok(calm_packed_multiply(ctx, 1024, 320, 2720, (calm_packed_part){&left, 0, 0}, (calm_packed_part){&right, 0, 0},
                               0, c, 320));
    ck_assert_uint_le(test_memory_end().scratch, calm_multiply_scratch_bytes(CALM_OPERANDS_BF16X2, 1024));
}
END_OF_TEST

int main(void)
{
    return run_tests("packed", (const TTest *[]){the_bytes_of_products_that_pack, parts_change, memory, NULL});
}
