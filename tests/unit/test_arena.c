/* The arena: alignment, overflow, rewinding, injected failures, and redzones for sanitizers. */
#include <stdint.h>
#include <stdio.h>

#include "ptq/base/memory.h"
#include "tests/support/harness.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

TEST(blocks_are_aligned_and_apart)
{
    unsigned char *blocks[200];
    for (size_t i = 0; i < 200; i++) {
        size_t bytes = i * 37 % 4096;
        blocks[i] = calm_arena_alloc(ctx->scratch, bytes, 1);
        ck_assert_ptr_nonnull(blocks[i]);
        ck_assert_uint_eq((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], (int)i, bytes);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t k = 0; k < i * 37 % 4096; k++)
            ck_assert_uint_eq(blocks[i][k], i);
}
END_OF_TEST

TEST(zero_bytes_are_a_block_too)
{
    void *a = calm_arena_alloc(ctx->scratch, 0, 8), *b = calm_arena_alloc(ctx->scratch, 8, 0);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_ne(a, b);
}
END_OF_TEST

TEST(zalloc_clears_memory_that_was_used)
{
    ck_assert_ptr_nonnull(calm_arena_alloc(ctx->scratch, 1, 1));    /* so that the chunk stays */
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    unsigned char *used = calm_arena_alloc(ctx->scratch, 1000, 1);
    memset(used, 0xff, 1000);
    calm_arena_rewind(ctx->scratch, mark);
    unsigned char *block = calm_arena_zalloc(ctx->scratch, 1000, 1);
    ck_assert_ptr_eq(block, used);
    for (size_t i = 0; i < 1000; i++)
        ck_assert_uint_eq(block[i], 0);
}
END_OF_TEST

TEST(sizes_that_overflow_are_refused)
{
    ck_assert_ptr_null(calm_arena_alloc(ctx->scratch, SIZE_MAX, 2));
    ck_assert_ptr_null(calm_arena_alloc(ctx->scratch, SIZE_MAX / 8 + 1, 8));
    ck_assert_ptr_null(calm_arena_alloc(ctx->scratch, SIZE_MAX, 1));
    ck_assert_ptr_null(calm_arena_alloc(ctx->scratch, SIZE_MAX - 100, 1));
    ck_assert_ptr_null(calm_arena_zalloc(ctx->scratch, SIZE_MAX - 300, 1));
    ck_assert_ptr_nonnull(calm_arena_alloc(ctx->scratch, 16, 1));
}
END_OF_TEST

TEST(size_arithmetic_sees_overflow)
{
    size_t out;
    ck_assert(calm_size_mul(&out, 3, 5));
    ck_assert_uint_eq(out, 15);
    ck_assert(calm_size_mul(&out, SIZE_MAX, 1));
    ck_assert(calm_size_mul(&out, SIZE_MAX, 0));
    ck_assert(!calm_size_mul(&out, SIZE_MAX / 2 + 1, 2));
    ck_assert(calm_size_add(&out, SIZE_MAX - 1, 1));
    ck_assert(!calm_size_add(&out, SIZE_MAX, 1));
}
END_OF_TEST

TEST(rewind_frees_what_came_later_and_keeps_the_rest)
{
    calm_arena *arena = ctx->scratch;
    char *kept = calm_arena_alloc(arena, 32, 1);
    strcpy(kept, "kept");
    size_t before = arena->used_bytes;
    calm_arena_mark mark = calm_arena_save(arena);
    void *first = calm_arena_alloc(arena, 100, 1);
    for (int i = 0; i < 50; i++)
        ck_assert_ptr_nonnull(calm_arena_alloc(arena, 10000, 1));    /* several chunks */
    ck_assert_ptr_nonnull(calm_arena_alloc(arena, 1 << 20, 1));      /* larger than a chunk */
    ck_assert_uint_gt(arena->used_bytes, 50 * 10000 + (1 << 20));
    calm_arena_rewind(arena, mark);
    ck_assert_uint_eq(arena->used_bytes, before);
    ck_assert_str_eq(kept, "kept");
    ck_assert_ptr_eq(calm_arena_alloc(arena, 100, 1), first);
}
END_OF_TEST

TEST(marks_nest)
{
    calm_arena *arena = ctx->scratch;
    calm_arena_mark outer = calm_arena_save(arena);
    calm_arena_alloc(arena, 5000, 1);
    size_t between = arena->used_bytes;
    calm_arena_mark inner = calm_arena_save(arena);
    calm_arena_alloc(arena, 500000, 1);
    calm_arena_rewind(arena, inner);
    ck_assert_uint_eq(arena->used_bytes, between);
    calm_arena_rewind(arena, outer);
    ck_assert_uint_eq(arena->used_bytes, 0);
}
END_OF_TEST

TEST(the_kth_allocation_can_be_made_to_fail)
{
    calm_arena *arena = ctx->scratch;
    arena->fail_in = 3;
    ck_assert_ptr_nonnull(calm_arena_alloc(arena, 1, 1));
    ck_assert_ptr_nonnull(calm_arena_zalloc(arena, 1, 1));
    ck_assert_ptr_null(calm_arena_alloc(arena, 1, 1));
    ck_assert_ptr_nonnull(calm_arena_alloc(arena, 1, 1));
}
END_OF_TEST

TEST(clear_keeps_the_countdown)
{
    calm_arena *arena = ctx->scratch;
    arena->fail_in = 2;
    calm_arena_alloc(arena, 1, 1);
    calm_arena_clear(arena);
    ck_assert_uint_eq(arena->used_bytes, 0);
    ck_assert_int_eq(arena->fail_in, 1);
    ck_assert_ptr_null(calm_arena_alloc(arena, 1, 1));
}
END_OF_TEST

TEST(what_lies_outside_a_block_is_poisoned)
{
#ifdef __SANITIZE_ADDRESS__
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    char *block = calm_arena_alloc(ctx->scratch, 100, 1), *next = calm_arena_alloc(ctx->scratch, 1, 1);
    ck_assert(!__asan_address_is_poisoned(block) && !__asan_address_is_poisoned(block + 99));
    ck_assert(__asan_address_is_poisoned(block + 100));
    ck_assert(__asan_address_is_poisoned(next - 1));
    char *kept = calm_arena_alloc(ctx->scratch, 1, 1);
    calm_arena_mark later = calm_arena_save(ctx->scratch);
    char *gone = calm_arena_alloc(ctx->scratch, 1, 1);
    calm_arena_rewind(ctx->scratch, later);
    ck_assert(!__asan_address_is_poisoned(kept));
    ck_assert(__asan_address_is_poisoned(gone));
    calm_arena_rewind(ctx->scratch, mark);
#else
    puts("SKIP: what_lies_outside_a_block_is_poisoned: a build without AddressSanitizer (tests/run --sanitize)");
#endif
}
END_OF_TEST

/* A large request between two small ones does not end their common chunk, and gets exactly its size. */
TEST(large_requests_have_chunks_of_their_own)
{
    calm_arena arena;
    size_t large = 0;
    const size_t before = calm_memory_used(ctx->memory);
    calm_arena_init(&arena);
    arena.memory = ctx->memory;
    for (size_t i = 0; i < 100; i++) {
        unsigned char *small = calm_arena_alloc(&arena, 100, 1), *own = calm_arena_alloc(&arena, 20000 + 999 * i, 1);
        ck_assert(small && own);
        memset(small, 1, 100);
        memset(own, 2, 20000 + 999 * i);
        large += calm_arena_bytes(20000 + 999 * i, 1);
    }
    ck_assert_uint_eq(calm_memory_used(ctx->memory) - before, large + CALM_ARENA_CHUNK);
    const calm_arena_mark mark = calm_arena_save(&arena);
    ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 1 << 20, 1));
    ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 1 << 20, 1));
    for (size_t i = 0; i < 2 * CALM_ARENA_CHUNK; i += 16000)
        ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 16000, 1));
    calm_arena_rewind(&arena, mark);
    ck_assert_uint_eq(calm_memory_used(ctx->memory) - before, large + CALM_ARENA_CHUNK);
    calm_arena_clear(&arena);
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before);
}
END_OF_TEST

/* used_bytes grows by calm_arena_bytes(); most_bytes is its maximum. */
TEST(bytes_of_an_allocation)
{
    calm_arena arena;
    size_t all = 0;
    calm_arena_init(&arena);
    arena.memory = ctx->memory;
    for (size_t count = 0; count < 300; count += 7) {
        ck_assert_ptr_nonnull(calm_arena_alloc(&arena, count, 5));
        all += calm_arena_bytes(count, 5);
        ck_assert_uint_ge(calm_arena_bytes(count, 5), count * 5);
        ck_assert_uint_eq(calm_arena_bytes(count, 5) % 64, 0);
        ck_assert_uint_eq(arena.used_bytes, all);
    }
    ck_assert_uint_eq(CALM_BYTES(double, 1000), calm_arena_bytes(1000, 8));
    const calm_arena_mark mark = calm_arena_save(&arena);
    ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 1 << 20, 1));
    calm_arena_rewind(&arena, mark);
    ck_assert_uint_eq(arena.used_bytes, all);
    ck_assert_uint_eq(arena.most_bytes, all + calm_arena_bytes(1 << 20, 1));
    calm_arena_clear(&arena);
    ck_assert_uint_eq(arena.most_bytes, 0);
    ck_assert_uint_eq(calm_arena_bytes(SIZE_MAX / 8 + 1, 8), SIZE_MAX);
    ck_assert_uint_eq(calm_arena_bytes(SIZE_MAX, 1), SIZE_MAX);
    ck_assert_uint_eq(calm_size_min(3, 5), 3);
    ck_assert_uint_eq(calm_size_max(3, 5), 5);
}
END_OF_TEST

int main(void)
{
    return run_tests("arena",
                     (const TTest *[]){blocks_are_aligned_and_apart, zero_bytes_are_a_block_too,
                                       zalloc_clears_memory_that_was_used, sizes_that_overflow_are_refused,
                                       size_arithmetic_sees_overflow, rewind_frees_what_came_later_and_keeps_the_rest,
                                       marks_nest, the_kth_allocation_can_be_made_to_fail, clear_keeps_the_countdown,
                                       what_lies_outside_a_block_is_poisoned,
                                       large_requests_have_chunks_of_their_own, bytes_of_an_allocation, NULL});
}
