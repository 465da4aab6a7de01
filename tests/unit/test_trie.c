/* Trie: every string leads to its id, and no other string does; against a search through the list. */
#include "ptq/tokenizer/trie.h"

#include "ptq/base/rng_impl.h"
#include "tests/support/harness.h"

static uint32_t walk(const calm_trie *trie, const char *text, size_t n)
{
    uint32_t node = CALM_TRIE_ROOT;
    for (size_t i = 0; i < n && node != CALM_TRIE_NONE; i++)
        node = calm_trie_step(trie, node, (uint8_t)text[i]);
    return node == CALM_TRIE_NONE ? CALM_TRIE_NONE : trie->id[node];
}

TEST(strings_lead_to_their_ids)
{
    calm_trie_entry entries[] = {{"ab", 2, 0},       {"a", 1, 1}, {"abc", 3, 2},
                                 {"\xFF\x80", 2, 3}, {"b", 1, 4}, {"a", 1, 7}};
    calm_trie trie;
    ck_ok(calm_trie_init(ctx, ctx->out, &trie, entries, 6));
    ck_assert_uint_eq(walk(&trie, "ab", 2), 0);
    ck_assert_uint_eq(walk(&trie, "a", 1), 7);    /* of equal texts the highest id */
    ck_assert_uint_eq(walk(&trie, "abc", 3), 2);
    ck_assert_uint_eq(walk(&trie, "\xFF\x80", 2), 3);
    ck_assert_uint_eq(walk(&trie, "\xFF", 1), CALM_TRIE_NONE);
    ck_assert_uint_eq(walk(&trie, "abcd", 4), CALM_TRIE_NONE);
    ck_assert_uint_eq(walk(&trie, "c", 1), CALM_TRIE_NONE);
    ck_assert_uint_eq(walk(&trie, "", 0), CALM_TRIE_NONE);
    ck_ok(calm_trie_init(ctx, ctx->out, &trie, entries, 0));
    ck_assert_uint_eq(walk(&trie, "a", 1), CALM_TRIE_NONE);
}
END_OF_TEST

TEST(random_strings)
{
    enum { N = 500 };
    calm_trie_entry entries[N], sorted[N];
    calm_trie trie;
    for (uint32_t i = 0; i < N; i++) {
        const size_t n = 1 + calm_rng_u64(1, 0, i) % 5;
        char *text = test_format("%*s", (int)n, "");
        for (size_t k = 0; k < n; k++)
            text[k] = (char)('a' + calm_rng_u64(2, i, k) % 3);
        sorted[i] = entries[i] = (calm_trie_entry){text, (uint32_t)n, i};
    }
    ck_ok(calm_trie_init(ctx, ctx->out, &trie, sorted, N));
    for (uint32_t draw = 0; draw < 2000; draw++) {
        char text[6];
        const size_t n = 1 + calm_rng_u64(3, 0, draw) % 6;
        uint32_t expected = CALM_TRIE_NONE;
        for (size_t k = 0; k < n; k++)
            text[k] = (char)('a' + calm_rng_u64(4, draw, k) % 3);
        for (uint32_t i = 0; i < N; i++)
            if (entries[i].n == n && memcmp(entries[i].text, text, n) == 0)
                expected = i;
        ck_assert_uint_eq(walk(&trie, text, n), expected);
    }
}
END_OF_TEST

TEST(no_memory_is_an_error)
{
    calm_trie_entry entries[] = {{"ab", 2, 0}};
    calm_trie trie;
    for (long k = 1; k <= 3; k++) {
        ctx->out->fail_in = k;
        ck_fails(calm_trie_init(ctx, ctx->out, &trie, entries, 1), CALM_ENOMEM, "out of memory");
    }
    ctx->out->fail_in = 0;
    ctx->scratch->fail_in = 1;
    ck_fails(calm_trie_init(ctx, ctx->out, &trie, entries, 1), CALM_ENOMEM, "out of memory");
}
END_OF_TEST

int main(void)
{
    return run_tests("trie", (const TTest *[]){strings_lead_to_their_ids, random_strings, no_memory_is_an_error, NULL});
}
