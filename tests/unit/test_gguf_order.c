/* Orders of rows and columns in GGUF files: against the definitions of convert_hf_to_gguf.py, written out by hand,
 * and inverted. */
#include "ptq/arch/gguf_order.h"

#include "tests/support/harness.h"

/* Two key heads of 2 serve four value heads of 3; latent attention has two heads of 2 and 3 rows. */
static const calm_gguf_widths widths = {.key_heads = 2, .value_heads = 4, .key_dim = 2, .value_dim = 3, .heads = 2,
                                        .nope = 2, .value = 3, .groups = 3};

static void check_rows(calm_gguf_form form, const size_t *expected, size_t n, bool second)
{
    const calm_gguf_order order = calm_gguf_order_of(form, 4, &widths);
    for (size_t row = 0; row < n; row++) {
        bool other;
        ck_assert_uint_eq(calm_gguf_order_row(&order, row), expected[row]);
        ck_assert_uint_eq(calm_gguf_order_find(&order, expected[row], &other), row);
        ck_assert_int_eq(other, second);
    }
}

TEST(rows)
{
    static const size_t turned[] = {0, 2, 1, 3, 4, 6, 5, 7};
    static const size_t values[] = {0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11};    /* heads 0 2 1 3 */
    static const size_t gates[] = {0, 2, 1, 3};
    /* A key head has q 0 1, k 2 3, v 4 .. 9, z 10 .. 15; the second begins at 16. */
    static const size_t mixed_of_all[] = {0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23, 24, 25};
    static const size_t gate_of_all[] = {10, 11, 12, 13, 14, 15, 26, 27, 28, 29, 30, 31};
    static const size_t values_of_kv[] = {2, 3, 4, 7, 8, 9};
    size_t mixed[20];
    for (size_t i = 0; i < 20; i++)
        mixed[i] = i < 8 ? i : 8 + values[i - 8];
    check_rows(CALM_GGUF_Q, turned, 8, false);
    check_rows(CALM_GGUF_K, turned, 8, false);
    check_rows(CALM_GGUF_VALUES, values, 12, false);
    check_rows(CALM_GGUF_GATES, gates, 4, false);
    check_rows(CALM_GGUF_MIXED, mixed, 20, false);
    check_rows(CALM_GGUF_QKVZ_MIXED, mixed_of_all, 20, false);
    check_rows(CALM_GGUF_QKVZ_GATE, gate_of_all, 12, true);
    check_rows(CALM_GGUF_KV_VALUES, values_of_kv, 6, true);
}
END_OF_TEST

TEST(columns)
{
    static const size_t expected[] = {0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11};
    const calm_gguf_order order = calm_gguf_order_of(CALM_GGUF_VALUE_COLUMNS, 0, &widths), none = {0};
    for (size_t c = 0; c < 12; c++) {
        ck_assert_uint_eq(calm_gguf_order_column(&order, c), expected[c]);
        ck_assert_uint_eq(calm_gguf_order_find_column(&order, expected[c]), c);
        ck_assert_uint_eq(calm_gguf_order_column(&none, c), c);
        ck_assert_uint_eq(calm_gguf_order_row(&order, c), c);
    }
}
END_OF_TEST

/* Three rows of gate, then three of up: the first half and the second. */
TEST(halves)
{
    calm_gguf_order first = calm_gguf_order_of(CALM_GGUF_FIRST_HALF, 0, &widths);
    calm_gguf_order last = calm_gguf_order_of(CALM_GGUF_LAST_HALF, 0, &widths);
    size_t dims[3];
    bool other;
    first.half = last.half = 3;
    ck_assert_int_eq(calm_gguf_order_dims(&last, 6, 5, dims), 2);
    ck_assert(dims[0] == 5 && dims[1] == 3 && dims[2] == 1);
    for (size_t row = 0; row < 3; row++) {
        ck_assert_uint_eq(calm_gguf_order_row(&first, row), row);
        ck_assert_uint_eq(calm_gguf_order_row(&last, row), 3 + row);
        ck_assert(calm_gguf_order_find(&first, row, &other) == row && !other);
        ck_assert(calm_gguf_order_find(&first, 3 + row, &other) == row && other);
    }
    ck_assert(calm_gguf_order_is_part(CALM_GGUF_FIRST_HALF, &other) && other);
    ck_assert(calm_gguf_order_is_part(CALM_GGUF_LAST_HALF, &other) && !other);
}
END_OF_TEST

/* Two rows of padding before three positions. */
TEST(later_rows)
{
    calm_gguf_order order = calm_gguf_order_of(CALM_GGUF_LATER_ROWS, 0, &widths);
    size_t dims[3];
    bool other;
    order.skipped = 2;
    ck_assert_int_eq(calm_gguf_order_dims(&order, 5, 7, dims), 2);
    ck_assert(dims[0] == 7 && dims[1] == 3 && dims[2] == 1);
    for (size_t row = 0; row < 3; row++) {
        ck_assert_uint_eq(calm_gguf_order_row(&order, row), 2 + row);
        ck_assert(calm_gguf_order_find(&order, 2 + row, &other) == row && !other);
    }
    ck_assert(!calm_gguf_order_is_part(CALM_GGUF_LATER_ROWS, &other));
    ck_assert(!calm_gguf_order_is_vector(CALM_GGUF_LATER_ROWS));
}
END_OF_TEST

/* Vectors of Mamba-2: one element per row, or one row per group. */
TEST(vectors)
{
    const calm_gguf_order column = calm_gguf_order_of(CALM_GGUF_COLUMN, 0, &widths);
    const calm_gguf_order groups = calm_gguf_order_of(CALM_GGUF_GROUPS, 0, &widths);
    size_t dims[3];
    ck_assert(calm_gguf_order_is_vector(CALM_GGUF_COLUMN) && calm_gguf_order_is_vector(CALM_GGUF_GROUPS));
    ck_assert(!calm_gguf_order_is_vector(CALM_GGUF_AS_IS) && !calm_gguf_order_is_vector(CALM_GGUF_FIRST_HALF));
    ck_assert_int_eq(calm_gguf_order_dims(&column, 12, 1, dims), 2);
    ck_assert(dims[0] == 1 && dims[1] == 12 && dims[2] == 1);
    ck_assert_int_eq(calm_gguf_order_dims(&groups, 12, 1, dims), 2);
    ck_assert(dims[0] == 4 && dims[1] == 3 && dims[2] == 1);
    ck_assert(calm_gguf_order_row(&column, 7) == 7 && calm_gguf_order_row(&groups, 7) == 7);
}
END_OF_TEST

/* Key heads that serve one value head each are not permuted. */
TEST(one_to_one)
{
    calm_gguf_widths same = widths;
    same.key_heads = same.value_heads;
    ck_assert_int_eq(calm_gguf_order_of(CALM_GGUF_VALUE_COLUMNS, 0, &same).form, CALM_GGUF_AS_IS);
    ck_assert_int_eq(calm_gguf_order_of(CALM_GGUF_MIXED, 0, &same).form, CALM_GGUF_AS_IS);
    ck_assert_int_eq(calm_gguf_order_of(CALM_GGUF_QKVZ_GATE, 0, &same).form, CALM_GGUF_QKVZ_GATE);
}
END_OF_TEST

static void check_dims(calm_gguf_form form, size_t n_rows, size_t cols, int n, size_t a, size_t b, size_t c)
{
    const calm_gguf_order order = calm_gguf_order_of(form, 0, &widths);
    size_t dims[3];
    ck_assert_int_eq(calm_gguf_order_dims(&order, n_rows, cols, dims), n);
    ck_assert(dims[0] == a && dims[1] == b && dims[2] == c);
}

TEST(dims)
{
    check_dims(CALM_GGUF_AS_IS, 7, 5, 2, 5, 7, 1);
    check_dims(CALM_GGUF_KV_KEYS, 10, 6, 3, 2, 6, 2);
    check_dims(CALM_GGUF_KV_VALUES, 10, 6, 3, 6, 3, 2);
    check_dims(CALM_GGUF_QKVZ_MIXED, 32, 5, 2, 5, 20, 1);
    check_dims(CALM_GGUF_QKVZ_GATE, 32, 5, 2, 5, 12, 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_order", (const TTest *[]){rows, columns, halves, later_rows, vectors, one_to_one, dims,
                                                     NULL});
}
