/* Texts of a file: documents of JSON lines, lines of other files, and their numbers in messages. */
#include "ptq/data/texts.h"

#include "tests/support/harness.h"

static const char *put(const char *name, const char *text)
{
    const char *path = test_format("%s/%s", test_directory(), name);
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

/* Returns all texts of a file, each in brackets. */
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

/* Checks that reading the last text of a file, or opening it, fails with `message`. */
static void refused(const char *name, const char *text, calm_status status, const char *message)
{
    const char *path = put(name, text), *next = "";
    calm_texts texts;
    size_t n;
    if (calm_texts_open(ctx, path, 1000, &texts) == CALM_OK)
        while (next && calm_texts_next(ctx, &texts, &next, &n) == CALM_OK)
            ;
    calm_texts_close(&texts);
    ck_fails(ctx->status, status, test_format("%s%s", path, message));
}

TEST(arrays_are_their_documents)
{
    static const char *const names[] = {"a.json", "a.jsonl", "a.txt", "a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_assert_str_eq(texts_of(put(names[i], "[{\"text\": \"one\", \"id\": 1}, \"two\"]")), "[one][two]");
        ck_assert_str_eq(texts_of(put(names[i], "\n[\n  {\r\n  \"text\":\n \"one\"}\n]\n")), "[one]");
        ck_assert_str_eq(texts_of(put(names[i], "{\"text\": \"one\"}\n{\"text\": \"two\"}\n")), "[one][two]");
        ck_assert_str_eq(texts_of(put(names[i], "[]\n")), "");
    }
    ck_assert_str_eq(texts_of(put("b.json", "{\n\"text\": \"one\"\n}\n")), "[one]");
    ck_assert_str_eq(texts_of(put("b.json", "\"one\"\n\"two\"\n")), "[one][two]");
    ck_assert_str_eq(texts_of(put("b.txt", "[1] A note.\n[[link]]\n")), "[[1] A note.][[[link]]]");
    ck_assert_str_eq(texts_of(put("b.txt", "{x} \\ud800\n")), "[{x} \\ud800]");
}
END_OF_TEST

TEST(marks_and_surrogates)
{
    ck_assert_str_eq(texts_of(put("a.txt", "\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo")), "[one][\xEF\xBB\xBFtwo]");
    ck_assert_str_eq(texts_of(put("a.jsonl", "\xEF\xBB\xBF\"one\"\n")), "[one]");
    ck_assert_str_eq(texts_of(put("a.json", "\xEF\xBB\xBF[\"one\"]")), "[one]");
    ck_assert_str_eq(texts_of(put("b.txt", "a\xED\xA0\x80\xED\xBF\xBFz \xED\x9F\xBF")),
                     "[a\xEF\xBF\xBD\xEF\xBF\xBDz \xED\x9F\xBF]");
    ck_assert_str_eq(texts_of(put("b.jsonl", "\"a\xED\xA0\x80z\"\n")), "[a\xEF\xBF\xBDz]");
    /* The two halves of a pair are one character, each half alone or in reverse order is not, and \\u is no escape. */
    ck_assert_str_eq(texts_of(put("b.jsonl", "\"\\ud83d\\ude00 \\uD83d \\uDE00\\uD83D \\\\ud800\"\n")),
                     "[\xF0\x9F\x98\x80 \xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD \\ud800]");
    ck_assert_str_eq(texts_of(put("b.json", "[{\"text\": \"\\ud800\\ud83d\\ude00\"}]")),
                     "[\xEF\xBF\xBD\xF0\x9F\x98\x80]");
}
END_OF_TEST

TEST(crlf_of_running_text)
{
    calm_texts texts;
    ck_ok(calm_texts_open(ctx, put("a.txt", "one\r\n\r\ntwo\rthree\r"), 1000, &texts));
    ck_assert_uint_eq(texts.n, strlen("one\n\ntwo\rthree\r"));
    ck_assert_int_eq(memcmp(texts.text, "one\n\ntwo\rthree\r", texts.n), 0);
    calm_texts_close(&texts);
}
END_OF_TEST

TEST(what_is_no_text)
{
    refused("a.json", "[{\"text\": \"one\"},\n {\"text\": }]", CALM_EARG,
            ": not valid JSON: unexpected token near '}' (line 2,");
    refused("a.txt", "[\"one\", \"two\"", CALM_EARG, ": not valid JSON");
    refused("a.txt", "{\"text\": \"one\"", CALM_EARG, ": not valid JSON");
    refused("a.json", "words", CALM_EARG, ": not valid JSON");
    refused("a.json", "[\"one\", {\"body\": \"x\", \"id\": 3}]", CALM_EFORMAT,
            ": document 2: expected a string or an object with \"text\", found the keys \"body\", \"id\"");
    refused("a.json", "{\"train\": []}", CALM_EFORMAT,
            ": line 1: expected a string or an object with \"text\", found the keys \"train\"");
    refused("a.jsonl", "{\"messages\": [{\"role\": \"user\"}]}", CALM_EFORMAT,
            ": line 1: expected a string or an object with \"text\", found the keys \"messages\"");
    refused("a.jsonl", "{\"text\": null}", CALM_EFORMAT,
            ": line 1: expected a string or an object with \"text\", a string; found null");
    refused("a.parquet", "PAR1 and more", CALM_EARG,
            ": expected UTF-8 text or JSON, found Parquet; convert it with the file's name for FILE: python -c \""
            "import pandas; pandas.read_parquet('FILE')");
    refused("a.arrow", "ARROW1", CALM_EARG, ": expected UTF-8 text or JSON, found Arrow");
    refused("a.jsonl", "\x28\xB5\x2F\xFD", CALM_EARG, ": expected UTF-8 text or JSON, found Zstandard");
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
    return run_tests("texts", (const TTest *[]){lines_and_documents, arrays_are_their_documents, marks_and_surrogates,
                                                crlf_of_running_text, what_is_no_text, failures_name_the_line,
                                                ids_outside_the_vocabulary, NULL});
}
