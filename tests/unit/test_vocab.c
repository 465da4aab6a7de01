/* The hash table from texts to ids. */
#include "ptq/tokenizer/vocab.h"

#include "tests/support/harness.h"

TEST(many_texts_are_found_again)
{
    enum { N = 20000 };
    calm_vocab vocab;
    ck_ok(calm_vocab_init(ctx, ctx->out, &vocab, N));
    for (uint32_t i = 0; i < N; i++) {
        const char *text = test_format("token %u", i * 7919);
        ck_assert(calm_vocab_add(&vocab, text, (uint32_t)strlen(text), i));
        ck_assert(!calm_vocab_add(&vocab, text, (uint32_t)strlen(text), i + 1));
    }
    for (uint32_t i = 0; i < N; i++) {
        const char *text = test_format("token %u", i * 7919);
        ck_assert_uint_eq(calm_vocab_find(&vocab, text, strlen(text)), i);
        ck_assert_uint_eq(calm_vocab_find(&vocab, text, strlen(text) - 1) == i, 0);
    }
    ck_assert_uint_eq(calm_vocab_find(&vocab, "nothing", 7), CALM_NO_TOKEN);
}
END_OF_TEST

TEST(empty_and_zero_bytes_are_texts)
{
    calm_vocab vocab;
    ck_ok(calm_vocab_init(ctx, ctx->out, &vocab, 0));
    ck_assert_uint_eq(calm_vocab_find(&vocab, "", 0), CALM_NO_TOKEN);
    ck_assert(calm_vocab_add(&vocab, "", 0, 5));
    ck_assert(calm_vocab_add(&vocab, "\0", 1, 6));
    ck_assert(calm_vocab_add(&vocab, "\0\0", 2, 7));
    ck_assert_uint_eq(calm_vocab_find(&vocab, "", 0), 5);
    ck_assert_uint_eq(calm_vocab_find(&vocab, "\0", 1), 6);
    ck_assert_uint_eq(calm_vocab_find(&vocab, "\0\0", 2), 7);
}
END_OF_TEST

TEST(slots_leave_half_free)
{
    ck_assert_uint_ge(calm_hash_slots(0), 1);
    for (size_t n = 1; n < 100000; n = 2 * n + 1) {
        size_t slots = calm_hash_slots(n);
        ck_assert_uint_eq(slots & (slots - 1), 0);
        ck_assert_uint_ge(slots, 2 * n);
        ck_assert_uint_le(slots, 4 * n + 16);
    }
    ck_assert_uint_eq(calm_hash_slots(SIZE_MAX / 2), 0);
    calm_vocab vocab;
    ck_fails(calm_vocab_init(ctx, ctx->out, &vocab, SIZE_MAX / 2), CALM_ENOMEM, "out of memory");
}
END_OF_TEST

int main(void)
{
    return run_tests("vocab", (const TTest *[]){many_texts_are_found_again, empty_and_zero_bytes_are_texts,
                                                slots_leave_half_free, NULL});
}
