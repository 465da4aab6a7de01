/* Accounting of arenas' memory, its limit, and the system's figures. */
#include "ptq/base/memory.h"

#include <stdint.h>
#include <stdio.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "tests/support/harness.h"

#define MIB ((size_t)1024 * 1024)

/* ---- accounting ---- */

TEST(what_is_taken_is_given_back)
{
    const size_t before = calm_memory_used(ctx->memory);
    calm_arena arena;
    calm_arena_init(&arena);
    arena.memory = ctx->memory;
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before);    /* an arena without blocks holds nothing */
    ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 1, 1));
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before + CALM_ARENA_CHUNK);
    ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 1000, 1));    /* of the same chunk */
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before + CALM_ARENA_CHUNK);
    const calm_arena_mark mark = calm_arena_save(&arena);
    ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 5, MIB));
    const size_t most = calm_memory_used(ctx->memory);
    ck_assert_uint_ge(most, before + CALM_ARENA_CHUNK + 5 * MIB);
    ck_assert_uint_le(most, before + CALM_ARENA_CHUNK + 5 * MIB + 4096);
    calm_arena_rewind(&arena, mark);
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before + CALM_ARENA_CHUNK);
    calm_arena_clear(&arena);
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before);
}
END_OF_TEST

TEST(peak_stays_until_it_is_restarted)
{
    calm_memory_restart(ctx->memory);
    const size_t before = calm_memory_used(ctx->memory);
    ck_assert_uint_eq(calm_memory_peak(ctx->memory), before);
    const calm_arena_mark mark = calm_arena_save(ctx->scratch);
    ck_assert_ptr_nonnull(calm_arena_alloc(ctx->scratch, 3, MIB));
    const size_t most = calm_memory_used(ctx->memory);
    calm_arena_rewind(ctx->scratch, mark);
    ck_assert_ptr_nonnull(calm_arena_alloc(ctx->scratch, 1, MIB));
    ck_assert_uint_lt(calm_memory_used(ctx->memory), most);
    ck_assert_uint_eq(calm_memory_peak(ctx->memory), most);
    calm_memory_restart(ctx->memory);
    ck_assert_uint_eq(calm_memory_peak(ctx->memory), calm_memory_used(ctx->memory));
}
END_OF_TEST

/* ---- spare pages ---- */

/* Pages are reused by the next request of their size, zeroed if zeros are asked for; those that do not fit next to
 * what is held are unmapped. */
TEST(spare_pages_come_back)
{
    calm_memory account = {0};
    calm_arena arena;
    calm_arena_init(&arena);
    arena.memory = &account;
    unsigned char *first = calm_arena_alloc(&arena, 8, MIB);
    ck_assert_ptr_nonnull(first);
    memset(first, 7, 8 * MIB);
    calm_arena_clear(&arena);
    const size_t spare = account.spare_bytes, most = account.most;
    ck_assert_uint_eq(calm_memory_used(&account), 0);
    ck_assert_uint_le(spare, most);
    unsigned char *again = calm_arena_zalloc(&arena, 8, MIB);
    ck_assert_ptr_nonnull(again);
    for (size_t i = 0; i < 8 * MIB; i += 4095)
        ck_assert_uint_eq(again[i], 0);
    ck_assert_uint_eq(account.spare_bytes, 0);
    if (spare) {    /* sanitizers have no such pages */
        ck_assert_ptr_eq(again, first);
        ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 9, MIB));
        calm_arena_clear(&arena);
        ck_assert_uint_gt(account.spare_bytes, 9 * MIB);
        /* Pages that do not fit next to it are unmapped. */
        ck_assert_ptr_nonnull(calm_arena_alloc(&arena, 20, MIB));
        ck_assert_uint_le(account.spare_bytes + calm_memory_used(&account), account.most);
        ck_assert_uint_eq(account.spare_bytes, 0);
    }
    calm_arena_clear(&arena);
    calm_memory_release(&account);
    ck_assert_uint_eq(account.spare_bytes, 0);
    ck_assert_uint_eq(account.most, 0);
}
END_OF_TEST

/* Holds 16 MiB, releases 1 and allocates 2: are there still spare pages? */
static bool keeps_small_pages(size_t limit)
{
    calm_memory account = {0};
    calm_arena arenas[3];
    for (size_t i = 0; i < 3; i++) {
        calm_arena_init(&arenas[i]);
        arenas[i].memory = &account;
    }
    calm_memory_set_limit(&account, limit);
    ck_assert_ptr_nonnull(calm_arena_alloc(&arenas[0], 16, MIB));
    ck_assert_ptr_nonnull(calm_arena_alloc(&arenas[1], 1, MIB));
    calm_arena_clear(&arenas[1]);
    ck_assert_ptr_nonnull(calm_arena_alloc(&arenas[2], 2, MIB));
    const size_t spare = account.spare_bytes;
    ck_assert_uint_le(spare + calm_memory_used(&account), account.most + calm_memory_room(account.most));
    ck_assert(!limit || spare + calm_memory_used(&account) <= limit);
    calm_arena_clear(&arenas[0]);
    calm_arena_clear(&arenas[2]);
    calm_memory_release(&account);
    return spare > 0;
}

/* Spare pages may be an eighth of what was held, within the limit. */
TEST(spare_pages_have_room)
{
    ck_assert_uint_eq(calm_memory_room(0), 0);
    ck_assert_uint_eq(calm_memory_room(64 * MIB), 8 * MIB);
    ck_assert_uint_eq(calm_memory_room((size_t)1 << 40), 32 * MIB);
#ifndef CALM_SANITIZED    /* sanitizers have no such pages */
    ck_assert(keeps_small_pages(0));
    ck_assert(keeps_small_pages(20 * MIB));
#endif
    ck_assert(!keeps_small_pages(19 * MIB));
}
END_OF_TEST

/* Smaller requests share the pages of a large one, which are joined for the next large one. */
TEST(spare_pages_are_cut_and_joined)
{
    calm_memory account = {0};
    calm_arena arena;
    calm_arena_init(&arena);
    arena.memory = &account;
    unsigned char *whole = calm_arena_alloc(&arena, 8, MIB);
    ck_assert_ptr_nonnull(whole);
    calm_arena_clear(&arena);
    if (account.spare_bytes) {    /* as above */
        const size_t spare = account.spare_bytes;
        unsigned char *part[3];
        for (size_t i = 0; i < 3; i++) {
            part[i] = calm_arena_zalloc(&arena, 2, MIB);
            ck_assert_ptr_nonnull(part[i]);
            ck_assert_uint_eq(part[i][2 * MIB - 1], 0);
            memset(part[i], 7, 2 * MIB);
            ck_assert(part[i] >= whole && part[i] + 2 * MIB <= whole + 8 * MIB);
        }
        ck_assert_uint_lt(account.spare_bytes, 2 * MIB);
        ck_assert_uint_eq(account.most, spare);    /* none of them is new */
        calm_arena_clear(&arena);
        ck_assert_uint_eq(account.spare_bytes, spare);
        ck_assert_ptr_eq(calm_arena_alloc(&arena, 8, MIB), whole);
        ck_assert_uint_eq(account.spare_bytes, 0);
    }
    calm_arena_clear(&arena);
    calm_memory_release(&account);
    ck_assert_uint_eq(account.spare_bytes, 0);
}
END_OF_TEST

/* Allocates and releases pages of three sizes, and counts bytes that were not written by this task. */
static calm_status churn_pages(calm_ctx *worker, size_t index, void *user)
{
    size_t *wrong = user;
    for (size_t round = 0; round < 20; round++) {
        CALM_SCOPED_SCRATCH(worker);
        const size_t n = (4 + (index + round) % 3) * MIB;
        unsigned char *block;
        size_t found = 0;
        CALM_TRY(CALM_NEW(worker, worker->scratch, block, n));
        for (size_t i = 0; i < n; i += 65536) {
            found += block[i] != 0;
            block[i] = (unsigned char)(1 + index);
        }
        for (size_t i = 0; i < n; i += 65536)
            found += block[i] != 1 + index;
#pragma omp atomic
        *wrong += found;
    }
    return CALM_OK;
}

TEST(spare_pages_belong_to_one_thread)
{
    size_t wrong = 0;
    ctx->n_threads = 4;
    ck_ok(calm_parallel_for(ctx, 16, churn_pages, &wrong));
    ck_assert_uint_eq(wrong, 0);
}
END_OF_TEST

/* ---- the limit ---- */

TEST(limit_refuses_and_says_so)
{
    char *block;
    calm_memory_set_limit(ctx->memory, calm_memory_used(ctx->memory) + 4 * MIB);
    ck_ok(CALM_NEW(ctx, ctx->scratch, block, 3 * MIB));
    memset(block, 1, 3 * MIB);
    const size_t held = calm_memory_used(ctx->memory);
    ck_fails(CALM_NEW(ctx, ctx->out, block, 2 * MIB), CALM_ENOMEM, "the limit of 0.00 GB (`memory`)");
    ck_assert_ptr_null(block);
    ck_assert_uint_eq(calm_memory_used(ctx->memory), held);    /* what is refused is not counted */
    calm_arena_clear(ctx->scratch);
    ck_ok(CALM_NEW(ctx, ctx->out, block, 2 * MIB));
    ck_fails(CALM_NEW(ctx, ctx->scratch, block, 3 * MIB), CALM_ENOMEM, "`memory`");
    calm_memory_set_limit(ctx->memory, 0);
    ck_ok(CALM_NEW(ctx, ctx->scratch, block, 2 * MIB));
    ck_assert_uint_eq(calm_memory_limit(ctx->memory), 0);
}
END_OF_TEST

/* A chunk is larger than the block that needs it; the reason is the limit nevertheless. */
TEST(limit_refuses_a_small_block)
{
    char *block;
    calm_memory_set_limit(ctx->memory, calm_memory_used(ctx->memory) + CALM_ARENA_CHUNK - 1);
    ck_fails(CALM_NEW(ctx, ctx->scratch, block, 8), CALM_ENOMEM, "`memory`");
    calm_memory_set_limit(ctx->memory, calm_memory_used(ctx->memory) + CALM_ARENA_CHUNK);
    ck_ok(CALM_NEW(ctx, ctx->scratch, block, 8));
    calm_memory_set_limit(ctx->memory, 0);
}
END_OF_TEST

/* A size that overflows is not blamed on --memory, with or without a limit. */
TEST(limit_is_not_blamed_for_overflow)
{
    double *block;
    calm_memory_set_limit(ctx->memory, (size_t)1 << 40);
    ck_assert_int_eq(CALM_NEW(ctx, ctx->scratch, block, SIZE_MAX / 4), CALM_ENOMEM);
    ck_assert_ptr_null(strstr(ctx->message, "`memory`"));
    ck_assert(!calm_memory_take(ctx->memory, SIZE_MAX - 5));
    calm_memory_set_limit(ctx->memory, 0);
    calm_memory_give(ctx->memory, 0);
    const size_t held = calm_memory_used(ctx->memory);
    ck_assert(calm_memory_take(ctx->memory, 1));
    ck_assert(!calm_memory_take(ctx->memory, SIZE_MAX));    /* the sum would wrap */
    ck_assert_uint_eq(calm_memory_used(ctx->memory), held + 1);
    calm_memory_give(ctx->memory, 1);
}
END_OF_TEST

typedef struct contest {
    size_t limit, refused, taken, passed;
} contest;

/* Small requests that always fit, next to large ones that never do. */
static calm_status compete(calm_ctx *worker, size_t index, void *user)
{
    contest *c = user;
    (void)worker;
    for (int i = 0; i < 20000; i++) {
        const size_t bytes = index % 2 ? 100 : c->limit + 1;
        const bool got = calm_memory_take(ctx->memory, bytes);
        const bool over = calm_memory_used(ctx->memory) > c->limit;
#pragma omp atomic
        c->passed += over;
#pragma omp atomic
        c->taken += got;
#pragma omp atomic
        c->refused += !got;
        if (got)
            calm_memory_give(ctx->memory, bytes);
    }
    return CALM_OK;
}

TEST(threads_never_pass_the_limit_together)
{
    const size_t before = calm_memory_used(ctx->memory);
    contest c = {.limit = before + 64 * MIB};
    calm_memory_restart(ctx->memory);
    calm_memory_set_limit(ctx->memory, c.limit);
    ctx->n_threads = 4;
    ck_ok(calm_parallel_for(ctx, 8, compete, &c));
    calm_memory_set_limit(ctx->memory, 0);
    ck_assert_uint_eq(c.passed, 0);
    ck_assert_uint_le(calm_memory_peak(ctx->memory), c.limit);
    ck_assert_uint_eq(c.taken, 4 * 20000);      /* what fits is not refused because of what does not */
    ck_assert_uint_eq(c.refused, 4 * 20000);
    ck_assert_uint_eq(calm_memory_used(ctx->memory), before);
}
END_OF_TEST

typedef struct crowd {
    size_t limit, passed, refused;
} crowd;

/* Arenas that grow at the same time. */
static calm_status fill(calm_ctx *worker, size_t index, void *user)
{
    crowd *c = user;
    (void)worker;
    for (size_t round = 0; round < 40; round++) {
        calm_arena arena;
        bool full = false;
        calm_arena_init(&arena);
        arena.memory = ctx->memory;
        for (size_t i = 0; i < 60 && !full; i++)
            full = !calm_arena_alloc(&arena, (index + i) % 7 * 30000 + 1, 1);
        const bool over = calm_memory_used(ctx->memory) > c->limit;
#pragma omp atomic
        c->passed += over;
#pragma omp atomic
        c->refused += full;
        calm_arena_clear(&arena);
    }
    return CALM_OK;
}

TEST(arenas_of_threads_share_the_limit)
{
    const size_t before = calm_memory_used(ctx->memory);
    crowd c = {.limit = before + 3 * MIB};    /* one of them alone would take 6 MB */
    calm_memory_restart(ctx->memory);
    calm_memory_set_limit(ctx->memory, c.limit);
    ctx->n_threads = 4;
    ck_ok(calm_parallel_for(ctx, 8, fill, &c));
    calm_memory_set_limit(ctx->memory, 0);
    ck_assert_uint_eq(c.passed, 0);
    ck_assert_uint_gt(c.refused, 0);
    ck_assert_uint_gt(calm_memory_peak(ctx->memory), before + 2 * MIB);
    ck_assert_uint_le(calm_memory_peak(ctx->memory), c.limit);
}
END_OF_TEST

/* ---- the system ---- */

TEST(resident_follows_what_is_touched)
{
    const size_t before = calm_memory_resident(), bytes = 96 * MIB;
    unsigned char *block;
    ck_assert_uint_gt(before, MIB / 2);
    ck_assert_uint_ge(test_resident_peak(), before);
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, block, bytes));
    memset(block, 7, bytes);
    ck_assert_int_eq(block[bytes / 2], 7);
    const size_t full = calm_memory_resident();
    ck_assert_uint_ge(full, before + bytes / 10 * 9);
    calm_arena_clear(ctx->scratch);
    calm_memory_release(ctx->memory);
    /* The peak stays.  The kernel's counters may lag by some pages per processor. */
    ck_assert_uint_ge(test_resident_peak() + 4 * MIB, full);
#ifndef CALM_SANITIZED    /* sanitizers keep freed memory */
    ck_assert_uint_lt(calm_memory_resident(), full - bytes / 2);
#endif
}
END_OF_TEST

TEST(available_is_some_of_what_there_is)
{
    const size_t available = calm_memory_available();
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    size_t total = 0;
    ck_assert_ptr_nonnull(file);
    while (!total && fgets(line, sizeof line, file))
        if (sscanf(line, "MemTotal: %zu", &total) != 1)
            total = 0;
    fclose(file);
    ck_assert_uint_gt(total, 0);
    ck_assert_uint_gt(available, MIB);
    ck_assert_uint_le(available, total * 1024);
}
END_OF_TEST

/* The reserve for libraries: a share of what was held, and at most what may be free in the heap of each thread. */
TEST(what_the_library_keeps)
{
    ck_assert_uint_eq(calm_memory_kept(0, 2), 0);
    ck_assert_uint_gt(calm_memory_kept(MIB, 2), 0);
    ck_assert_uint_lt(calm_memory_kept(MIB, 2), MIB);
    ck_assert_uint_eq(calm_memory_kept(20 * MIB, 2), 20 * calm_memory_kept(MIB, 2) + (20 * MIB / 5 - 20 * (MIB / 5)));
    ck_assert_uint_eq(calm_memory_kept((size_t)1 << 40, 2), 16 * MIB);
    ck_assert_uint_eq(calm_memory_kept((size_t)1 << 40, 4), 32 * MIB);
}
END_OF_TEST

int main(void)
{
    calm_memory_setup();
    return run_tests("memory",
                     (const TTest *[]){what_is_taken_is_given_back, peak_stays_until_it_is_restarted,
                                       spare_pages_come_back, spare_pages_have_room, spare_pages_are_cut_and_joined,
                                       spare_pages_belong_to_one_thread,
                                       limit_refuses_and_says_so, limit_refuses_a_small_block,
                                       limit_is_not_blamed_for_overflow, threads_never_pass_the_limit_together,
                                       arenas_of_threads_share_the_limit, resident_follows_what_is_touched,
                                       available_is_some_of_what_there_is, what_the_library_keeps, NULL});
}
