/* Excerpts of texts: parts of characters, control characters, ids without tokens. */
#include "ptq/data/excerpt.h"

#include <string.h>

#include "ptq/text/unicode.h"
#include "tests/support/harness.h"

static const char *bundled(void)
{
    return test_format("%s/recipes/models/qwen-demo/tokenizer.json", CALM_SOURCE_DIR);
}

TEST(words)
{
    CALM_SCOPED_TOKENIZER(tokenizer);
    uint32_t *ids;
    size_t n;
    char *text;
    static const char line[] = "The lobster = H. gammarus\n";
    ck_ok(calm_tokenizer_open(ctx, bundled(), &tokenizer));
    ck_ok(calm_tokenizer_encode(ctx, tokenizer, line, sizeof line - 1, false, &ids, &n));
    ck_ok(calm_excerpt(ctx, tokenizer, ids, n, &text));
    ck_assert_str_eq(text, line);
    ck_ok(calm_excerpt(ctx, tokenizer, ids, 0, &text));
    ck_assert_str_eq(text, "");
}
END_OF_TEST

/* A byte-level vocabulary has every byte: a character of four bytes is cut at every place, and is whole when joined. */
TEST(pieces_of_characters)
{
    CALM_SCOPED_TOKENIZER(tokenizer);
    uint32_t *ids;
    size_t n;
    char *text;
    static const char face[] = "\xF0\x9F\xA6\x9E";
    ck_ok(calm_tokenizer_open(ctx, bundled(), &tokenizer));
    ck_ok(calm_tokenizer_encode(ctx, tokenizer, face, sizeof face - 1, false, &ids, &n));
    ck_assert_uint_gt(n, 1);
    ck_ok(calm_excerpt(ctx, tokenizer, ids, n, &text));
    ck_assert_str_eq(text, face);
    for (size_t cut = 1; cut < n; cut++) {
        ck_ok(calm_excerpt(ctx, tokenizer, ids, cut, &text));
        ck_assert_ptr_nonnull(strstr(text, "\xEF\xBF\xBD"));
        ck_assert_uint_eq(calm_utf8_invalid_at(text, strlen(text)), strlen(text));
        ck_ok(calm_excerpt(ctx, tokenizer, ids + cut, n - cut, &text));
        ck_assert_ptr_nonnull(strstr(text, "\xEF\xBF\xBD"));
    }
}
END_OF_TEST

/* A NUL does not end the text. */
TEST(zeros)
{
    CALM_SCOPED_TOKENIZER(tokenizer);
    uint32_t *ids;
    size_t n;
    char *text;
    static const char line[] = "a\0\0b\0";
    ck_ok(calm_tokenizer_open(ctx, bundled(), &tokenizer));
    ck_ok(calm_tokenizer_encode(ctx, tokenizer, line, 5, false, &ids, &n));
    ck_ok(calm_excerpt(ctx, tokenizer, ids, n, &text));
    ck_assert_str_eq(text, "a\xEF\xBF\xBD\xEF\xBF\xBD" "b\xEF\xBF\xBD");
}
END_OF_TEST

TEST(ids)
{
    CALM_SCOPED_TOKENIZER(tokenizer);
    static const uint32_t some[] = {7, 100000, 9};
    char *text;
    ck_ok(calm_tokenizer_open(ctx, bundled(), &tokenizer));
    ck_ok(calm_excerpt(ctx, NULL, some, 3, &text));
    ck_assert_str_eq(text, "7 100000 9");
    ck_ok(calm_excerpt(ctx, tokenizer, some, 3, &text));    /* one id has no token */
    ck_assert_str_eq(text, "7 100000 9");
    ck_ok(calm_excerpt(ctx, NULL, some, 0, &text));
    ck_assert_str_eq(text, "");
}
END_OF_TEST

int main(void)
{
    return run_tests("excerpt", (const TTest *[]){words, pieces_of_characters, zeros, ids, NULL});
}
