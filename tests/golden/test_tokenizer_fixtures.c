/* Token ids against the Hugging Face tokenizers library: every tokenizer of fixtures/tokenizers on every text of its
 * cases.jsonl.  The tokenizer of every model fixture opens. */
#include <inttypes.h>
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/io/json.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

#define CASES_MAX ((size_t)1 << 30)

static void check_ids(const calm_tokenizer *tok, const char *where, const calm_json *expected, const calm_json *text,
                      bool special)
{
    uint32_t *ids;
    size_t n;
    ck_ok(calm_tokenizer_encode(ctx, tok, calm_json_string(text, NULL), calm_json_string_length(text), special, &ids,
                                &n));
    for (size_t i = 0; i < n && i < calm_json_size(expected); i++)
        ck_assert_msg(calm_json_int(calm_json_at(expected, i), -1) == ids[i],
                      "%s%s: id %zu is %" PRIu32 " (%s), expected %" PRId64, where, special ? " (special)" : "", i,
                      ids[i], calm_tokenizer_token(tok, ids[i]), calm_json_int(calm_json_at(expected, i), -1));
    ck_assert_msg(n == calm_json_size(expected), "%s%s: %zu ids, expected %zu", where, special ? " (special)" : "", n,
                  calm_json_size(expected));
}

static void check_decoded(const calm_tokenizer *tok, const char *where, const calm_json *list,
                          const calm_json *expected)
{
    uint32_t *ids;
    char *text;
    size_t n_bytes, n = calm_json_size(list);
    ck_ok(CALM_NEW(ctx, ctx->out, ids, n));
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)calm_json_int(calm_json_at(list, i), -1);
    ck_ok(calm_tokenizer_decode(ctx, tok, ids, n, true, &text, &n_bytes));
    ck_assert_msg(n_bytes == calm_json_string_length(expected) &&
                      memcmp(text, calm_json_string(expected, ""), n_bytes) == 0,
                  "%s: decoded \"%s\", expected \"%s\"", where, text, calm_json_string(expected, ""));
}

static void check_case(const calm_tokenizer *tok, const char *where, const char *line, size_t n)
{
    calm_json *json;
    ck_ok(calm_json_parse(ctx, where, line, n, &json));
    const calm_json *text = calm_json_get(json, "text");
    check_ids(tok, where, calm_json_get(json, "ids"), text, false);
    check_ids(tok, where, calm_json_get(json, "ids_special"), text, true);
    check_decoded(tok, where, calm_json_get(json, "ids"), calm_json_get(json, "decoded"));
    calm_json_free(json);
    calm_arena_clear(ctx->out);
}

/* Checks all lines.  A line ends at 0x0A and nowhere else: some texts contain U+0085 or U+2028. */
static size_t check_cases(const calm_tokenizer *tok, const char *path)
{
    calm_mapping file;
    size_t n_cases = 0;
    ck_ok(calm_map_file(ctx, path, &file));
    const char *at = (const char *)file.data, *end = at + file.bytes;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (stop > at)
            check_case(tok, test_format("%s: case %zu", path, ++n_cases), at, (size_t)(stop - at));
        at = stop + 1;
    }
    calm_unmap_file(&file);
    return n_cases;
}

TEST(every_fixture)
{
    if (!fixtures_root())
        return;
    for (char **names = fixture_entries("tokenizers", NULL); *names; names++) {
        const char *folder = test_format("%s/tokenizers/%s", fixtures_root(), *names);
        calm_tokenizer *tok;
        ck_ok(calm_tokenizer_open(ctx, test_format("%s/tokenizer.json", folder), &tok));
        ck_assert_uint_gt(check_cases(tok, test_format("%s/cases.jsonl", folder)), 0);
        calm_tokenizer_close(tok);
    }
}
END_OF_TEST

/* The tokenizer of a model fixture opens and has no more ids than the model. */
TEST(every_model_fixture)
{
    if (!fixtures_root())
        return;
    for (char **names = fixture_entries("models", NULL); *names; names++) {
        const char *folder = test_format("%s/models/%s", fixtures_root(), *names);
        calm_tokenizer *tok;
        calm_json *config;
        ck_ok(calm_tokenizer_open(ctx, test_format("%s/tokenizer.json", folder), &tok));
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", folder), CASES_MAX, &config));
        ck_assert_uint_le(calm_tokenizer_size(tok), (size_t)calm_json_int(calm_json_get(config, "vocab_size"), 0));
        calm_json_free(config);
        calm_tokenizer_close(tok);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("tokenizer_fixtures", (const TTest *[]){every_fixture, every_model_fixture, NULL});
}
