/* Texts of a file: documents of JSON lines, lines of other files, and whose they are in messages. */
#include "ptq/data/texts.h"

#include "tests/support/harness.h"

static const char *put(const char *name, const char *text)
{
    const char *path = test_format("%s/%s", test_directory(), name);
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

/* All texts of a file, each in brackets. */
static const char *texts_of(const char *path)
{
    const char *all = "", *text;
    calm_texts texts;
    size_t n;
    ck_ok(calm_texts_open(ctx, path, 1000, &texts));
    for (;;) {
        ck_ok(calm_texts_next(ctx, &texts, &text, &n));
        if (!text)
            break;
        all = test_format("%s[%.*s]", all, (int)n, text);
    }
    calm_texts_close(&texts);
    return all;
}

TEST(lines_and_documents)
{
    ck_assert_str_eq(texts_of(put("a.txt", "one\r\n\n  \ntwo\r\r\nthree")), "[one][two][three]");
    ck_assert_str_eq(texts_of(put("a.jsonl", "\"one\"\n\n{\"text\": \"two\\r\", \"id\": 3}\r\n")), "[one][two\r]");
    ck_assert_str_eq(texts_of(put("b.txt", "")), "");
}
END_OF_TEST

TEST(failures_name_the_line)
{
    const char *path = put("a.jsonl", "\"one\"\n\n{\"txt\": 3}\n[1\n");
    calm_texts texts;
    const calm_json *json;
    const char *text;
    size_t n;
    ck_ok(calm_texts_open(ctx, path, 1000, &texts));
    ck_assert_str_eq(texts.where, path);
    ck_ok(calm_texts_next(ctx, &texts, &text, &n));
    ck_fails(calm_texts_next(ctx, &texts, &text, &n), CALM_EFORMAT,
             test_format("%s: line 3: expected a string or an object with \"text\"", path));
    ck_fails(calm_texts_next_json(ctx, &texts, 0, &json), CALM_EFORMAT,
             test_format("%s: line 4: not valid JSON", path));
    ck_assert_ptr_null(json);
    ck_ok(calm_texts_next_json(ctx, &texts, 0, &json));
    ck_assert_ptr_null(json);
    calm_texts_close(&texts);
    ck_ok(calm_texts_open(ctx, path, 1000, &texts));
    ck_fails(calm_texts_next_json(ctx, &texts, 4, &json), CALM_EFORMAT, "line 1: expected at most 4 bytes, found 5");
    calm_texts_close(&texts);
    ck_fails(calm_texts_open(ctx, path, 10, &texts), CALM_EFORMAT, "expected at most 10");
    calm_texts_close(&texts);
    ck_fails(calm_texts_open(ctx, "/nowhere.txt", 10, &texts), CALM_ENOTFOUND, "/nowhere.txt");
    calm_texts_close(&texts);
}
END_OF_TEST

TEST(ids_outside_the_vocabulary)
{
    static const uint32_t ids[] = {3, 7, 5};
    ck_ok(calm_texts_check_ids(ctx, "x", ids, 3, 8));
    ck_ok(calm_texts_check_ids(ctx, "x", ids, 3, 0));
    ck_fails(calm_texts_check_ids(ctx, "x", ids, 3, 7), CALM_EFORMAT,
             "x: token 1 has id 7, but the model's vocabulary has 7");
}
END_OF_TEST

int main(void)
{
    return run_tests("texts", (const TTest *[]){lines_and_documents, failures_name_the_line,
                                                ids_outside_the_vocabulary, NULL});
}
