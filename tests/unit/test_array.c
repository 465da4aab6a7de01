/* Arrays that grow in an arena. */
#include "ptq/base/array.h"

#include "tests/support/harness.h"

TEST(items_are_kept)
{
    uint32_t *items = NULL;
    size_t capacity = 0, moves = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        const uint32_t *before = items;
        ck_ok(CALM_GROW(ctx, ctx->out, items, i, &capacity, i + 1));
        ck_assert_uint_ge(capacity, i + 1);
        moves += items != before;
        items[i] = 3 * i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_uint_eq(items[i], 3 * i);
    ck_assert_uint_eq(moves, 11);    /* 1, 2, 4, ... 1024 items */
}
END_OF_TEST

TEST(what_is_needed_at_once_is_there)
{
    double *items = NULL;
    size_t capacity = 0;
    ck_ok(CALM_GROW(ctx, ctx->out, items, 0, &capacity, 0));
    ck_assert_ptr_null(items);
    ck_ok(CALM_GROW(ctx, ctx->out, items, 0, &capacity, 100));
    ck_assert_uint_eq(capacity, 100);
    const double *before = items;
    ck_ok(CALM_GROW(ctx, ctx->out, items, 50, &capacity, 100));
    ck_assert_ptr_eq(items, before);
    ck_ok(CALM_GROW(ctx, ctx->out, items, 100, &capacity, 101));
    ck_assert_uint_eq(capacity, 200);
}
END_OF_TEST

TEST(without_memory_the_array_stays)
{
    uint16_t *items = NULL;
    size_t capacity = 0;
    ck_ok(CALM_GROW(ctx, ctx->out, items, 0, &capacity, 4));
    items[3] = 9;
    const uint16_t *before = items;
    ctx->out->fail_in = 1;
    ck_fails(CALM_GROW(ctx, ctx->out, items, 4, &capacity, 5), CALM_ENOMEM, "8 x 2 bytes for items");
    ck_fails(CALM_GROW(ctx, ctx->out, items, 4, &capacity, SIZE_MAX), CALM_ENOMEM, "out of memory");
    ck_assert_ptr_eq(items, before);
    ck_assert_uint_eq(capacity, 4);
    ck_assert_uint_eq(items[3], 9);
}
END_OF_TEST

int main(void)
{
    return run_tests("array", (const TTest *[]){items_are_kept, what_is_needed_at_once_is_there,
                                                without_memory_the_array_stays, NULL});
}
