/* JSON: documents that are refused, checked members, and stable output. */
#include "ptq/io/json.h"

#include "ptq/base/file.h"
#include "tests/support/harness.h"

static calm_json *parse(const char *text)
{
    calm_json *root = NULL;
    ck_ok(calm_json_parse(ctx, "test", text, strlen(text), &root));
    return root;
}

static const char *written(const calm_json *value, int indent)
{
    calm_text text;
    calm_text_init(&text);
    ck_ok(calm_json_write(ctx, value, indent, &text));
    const char *copy = test_format("%s", text.data);
    calm_text_clear(&text);
    return copy;
}

TEST(malformed_documents_are_refused)
{
    static const char *const texts[] = {
        "", " ", "{", "[1,]", "{\"a\":1,}", "{\"a\":1,\"a\":2}", "{'a':1}", "01", "1e999", "nul", "\"\\ud800\"",
        "\"\xff\"", "[1] x", "99999999999999999999", "\"a\nb\"", "{\"a\" 1}", "NaN",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        calm_json *root = NULL;
        calm_status status = calm_json_parse(ctx, "a file", texts[i], strlen(texts[i]), &root);
        ck_assert_msg(status == CALM_EFORMAT, "accepted: %s", texts[i]);
        ck_assert_ptr_nonnull(strstr(ctx->message, "a file: not valid JSON"));
        ck_assert_ptr_null(root);
        calm_ctx_clear_failure(ctx);
    }
}
END_OF_TEST

TEST(deep_nesting_is_refused)
{
    static char text[200001];
    memset(text, '[', sizeof text - 1);
    calm_json *root = NULL;
    ck_fails(calm_json_parse(ctx, "deep", text, sizeof text - 1, &root), CALM_EFORMAT, "depth");
}
END_OF_TEST

TEST(values_are_read_by_type_with_a_fallback)
{
    calm_json *root = parse("{\"i\":-7,\"r\":2.5,\"b\":true,\"s\":\"x\\u0000y\",\"n\":null,\"a\":[1,[],{}]}");
    ck_assert_int_eq(calm_json_int(calm_json_get(root, "i"), 1), -7);
    ck_assert_int_eq(calm_json_int(calm_json_get(root, "r"), 1), 1);
    ck_near(calm_json_number(calm_json_get(root, "i"), 1), -7, 0);
    ck_near(calm_json_number(calm_json_get(root, "r"), 1), 2.5, 0);
    ck_near(calm_json_number(calm_json_get(root, "s"), 1), 1, 0);
    ck_assert(calm_json_bool(calm_json_get(root, "b"), false));
    ck_assert(calm_json_bool(calm_json_get(root, "i"), true));
    ck_assert_uint_eq(calm_json_string_length(calm_json_get(root, "s")), 3);
    ck_assert_mem_eq(calm_json_string(calm_json_get(root, "s"), ""), "x\0y", 4);
    ck_assert_str_eq(calm_json_string(calm_json_get(root, "none"), "fallback"), "fallback");

    const calm_json *array = calm_json_get(root, "a");
    ck_assert_uint_eq(calm_json_size(array), 3);
    ck_assert_int_eq(calm_json_int(calm_json_at(array, 0), 0), 1);
    ck_assert_ptr_null(calm_json_at(array, 3));
    ck_assert_ptr_null(calm_json_at(root, 0));
    ck_assert_ptr_null(calm_json_get(array, "i"));
    ck_assert_int_eq(calm_json_typeof(calm_json_get(root, "n")), CALM_JSON_NULL);
    ck_assert_int_eq(calm_json_typeof(NULL), CALM_JSON_NULL);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(root, "r")), CALM_JSON_REAL);
    ck_assert_int_eq(calm_json_typeof(calm_json_at(array, 2)), CALM_JSON_OBJECT);
    ck_assert_uint_eq(calm_json_size(NULL), 0);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "i")), 0);
    ck_assert_ptr_null(calm_json_get(NULL, "i"));
    ck_assert_ptr_null(calm_json_at(NULL, 0));
    calm_json_free(root);
}
END_OF_TEST

TEST(members_are_walked_in_document_order)
{
    calm_json *root = parse("{\"z\":1,\"a\":2,\"m\":3}");
    const char *key;
    const calm_json *value;
    char order[4] = "";
    int64_t expected = 1;
    for (void *iter = NULL; calm_json_next(root, &iter, &key, &value);) {
        strncat(order, key, 1);
        ck_assert_int_eq(calm_json_int(value, 0), expected++);
    }
    ck_assert_str_eq(order, "zam");
    void *iter = NULL;
    ck_assert(!calm_json_next(NULL, &iter, &key, &value));
    calm_json_free(root);
}
END_OF_TEST

TEST(checked_integers)
{
    calm_json *root = parse("{\"n\":64,\"r\":1.5,\"z\":null,\"s\":\"64\"}");
    int64_t out = 0, fallback = 12;
    ck_ok(calm_json_need_int(ctx, "config.json", root, "n", NULL, 1, 64, &out));
    ck_assert_int_eq(out, 64);
    ck_ok(calm_json_need_int(ctx, "config.json", root, "none", &fallback, 1, 64, &out));
    ck_assert_int_eq(out, 12);
    ck_ok(calm_json_need_int(ctx, "config.json", root, "z", &fallback, 1, 64, &out));
    ck_assert_int_eq(out, 12);
    ck_fails(calm_json_need_int(ctx, "config.json", root, "n", NULL, 1, 63, &out), CALM_EFORMAT,
             "config.json: \"n\": expected 1 to 63, found 64");
    ck_fails(calm_json_need_int(ctx, "config.json", root, "n", NULL, 65, 99, &out), CALM_EFORMAT, "found 64");
    ck_fails(calm_json_need_int(ctx, "config.json", root, "none", NULL, 1, 64, &out), CALM_EFORMAT,
             "config.json: \"none\" is missing");
    ck_fails(calm_json_need_int(ctx, "config.json", root, "z", NULL, 1, 64, &out), CALM_EFORMAT, "missing");
    ck_fails(calm_json_need_int(ctx, "config.json", root, "r", NULL, 1, 64, &out), CALM_EFORMAT,
             "expected a whole number, found a number");
    ck_fails(calm_json_need_int(ctx, "config.json", root, "s", &fallback, 1, 64, &out), CALM_EFORMAT,
             "found a string");
    calm_json_free(root);
}
END_OF_TEST

TEST(checked_numbers_booleans_and_strings)
{
    calm_json *root = parse("{\"i\":2,\"r\":1e-6,\"b\":false,\"s\":\"silu\",\"zero\":\"a\\u0000b\"}");
    double number = 0, tenth = 0.1;
    bool flag = true, yes = true;
    const char *text = NULL;
    ck_ok(calm_json_need_number(ctx, "c", root, "i", NULL, 0, 2, &number));
    ck_near(number, 2, 0);
    ck_ok(calm_json_need_number(ctx, "c", root, "r", NULL, 0, 1, &number));
    ck_near(number, 1e-6, 0);
    ck_ok(calm_json_need_number(ctx, "c", root, "none", &tenth, 0, 1, &number));
    ck_near(number, 0.1, 0);
    ck_fails(calm_json_need_number(ctx, "c", root, "i", NULL, 0, 1, &number), CALM_EFORMAT, "expected 0 to 1, found 2");
    ck_fails(calm_json_need_number(ctx, "c", root, "b", NULL, 0, 1, &number), CALM_EFORMAT, "found true or false");
    ck_fails(calm_json_need_number(ctx, "c", root, "none", NULL, 0, 1, &number), CALM_EFORMAT, "missing");

    ck_ok(calm_json_need_bool(ctx, "c", root, "b", NULL, &flag));
    ck_assert(!flag);
    ck_ok(calm_json_need_bool(ctx, "c", root, "none", &yes, &flag));
    ck_assert(flag);
    ck_fails(calm_json_need_bool(ctx, "c", root, "i", NULL, &flag), CALM_EFORMAT, "expected true or false");
    ck_fails(calm_json_need_bool(ctx, "c", root, "none", NULL, &flag), CALM_EFORMAT, "missing");

    ck_ok(calm_json_need_string(ctx, "c", root, "s", NULL, &text));
    ck_assert_str_eq(text, "silu");
    ck_ok(calm_json_need_string(ctx, "c", root, "none", "gelu", &text));
    ck_assert_str_eq(text, "gelu");
    ck_fails(calm_json_need_string(ctx, "c", root, "i", NULL, &text), CALM_EFORMAT, "expected a string");
    ck_fails(calm_json_need_string(ctx, "c", root, "none", NULL, &text), CALM_EFORMAT, "missing");
    ck_fails(calm_json_need_string(ctx, "c", root, "zero", NULL, &text), CALM_EFORMAT, "zero byte");
    calm_json_free(root);
}
END_OF_TEST

TEST(members_become_what_their_types_say)
{
    char text[] = "a";
    const char *none = NULL;
    const size_t size = SIZE_MAX / 4;
    const int64_t whole = INT64_MIN;
    const double number = 0.5;
    const bool yes = true;
    calm_json *absent = NULL, *list = calm_json_new_array();
    calm_json *root = CALM_OBJECT(CALM_KV("literal", "x"), CALM_KV("text", text), CALM_KV("none", none),
                                  CALM_KV("size", size), CALM_KV("whole", whole), CALM_KV("long", 7LL),
                                  CALM_KV("number", number), CALM_KV("nan", (double)NAN), CALM_KV("yes", yes),
                                  CALM_KV("no", (bool)(size == 0)), CALM_KV("absent", absent), CALM_KV("list", list));
    ck_assert_str_eq(written(root, 0), "{\"literal\":\"x\",\"text\":\"a\",\"none\":null,\"size\":4611686018427387903,"
                                       "\"whole\":-9223372036854775808,\"long\":7,\"number\":0.5,\"nan\":null,"
                                       "\"yes\":true,\"no\":false,\"list\":[]}");
    ck_assert_ptr_eq(CALM_EXTEND(root, CALM_KV("whole", size), CALM_KV("last", text)), root);
    ck_assert_int_eq(calm_json_int(calm_json_get(root, "whole"), 0), (int64_t)size);
    ck_assert_str_eq(calm_json_string(calm_json_get(root, "last"), ""), "a");
    calm_json_free(root);
}
END_OF_TEST

TEST(what_is_built_is_written_in_order)
{
    calm_json *root = calm_json_new_object(), *array = calm_json_new_array();
    calm_json_set_string(root, "z", "a \"quoted\" \n ü");
    calm_json_set_string(root, "none", NULL);
    calm_json_set_int(root, "a", INT64_MIN);
    calm_json_set_number(root, "half", 0.5);
    calm_json_set_number(root, "nan", NAN);
    calm_json_set_number(root, "infinity", -INFINITY);
    calm_json_set_bool(root, "yes", true);
    calm_json_add_string(array, "x");
    calm_json_add(array, calm_json_of_int(3));
    calm_json_add(array, calm_json_new_null());
    calm_json_set(root, "array", array);
    const char *line = "{\"z\":\"a \\\"quoted\\\" \\n ü\",\"none\":null,\"a\":-9223372036854775808,\"half\":0.5,"
                       "\"nan\":null,\"infinity\":null,\"yes\":true,\"array\":[\"x\",3,null]}";
    ck_assert_str_eq(written(root, 0), line);
    calm_json *again = parse(line);
    ck_assert_str_eq(written(again, 0), line);
    ck_assert_ptr_nonnull(strstr(written(root, 2), "\n  \"yes\": true,\n"));

    calm_json *copy = calm_json_copy(root);
    calm_json_set_int(copy, "a", 1);
    ck_assert_str_eq(written(root, 0), line);
    ck_assert_str_ne(written(copy, 0), line);
    calm_json_free(copy);
    calm_json_free(again);
    calm_json_free(root);
}
END_OF_TEST

TEST(numbers_survive_writing_and_reading)
{
    static const double values[] = {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 3};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        calm_json *root = calm_json_new_object();
        calm_json_set_number(root, "x", values[i]);
        calm_json *again = parse(written(root, 0));
        double back = calm_json_number(calm_json_get(again, "x"), 99);
        ck_assert_mem_eq(&back, &values[i], sizeof back);
        calm_json_free(again);
        calm_json_free(root);
    }
}
END_OF_TEST

TEST(files_are_read_up_to_a_limit)
{
    const char *path = test_format("%s/a.json", test_directory());
    calm_json *root;
    ck_ok(calm_write_file(ctx, path, "[1, 2]", 6));
    ck_ok(calm_json_read(ctx, path, 6, &root));
    ck_assert_uint_eq(calm_json_size(root), 2);
    calm_json_free(root);
    ck_fails(calm_json_read(ctx, path, 5, &root), CALM_EFORMAT, "6 bytes, expected at most 5");
    ck_assert_ptr_null(root);
    ck_ok(calm_write_file(ctx, path, "", 0));
    ck_fails(calm_json_read(ctx, path, 5, &root), CALM_EFORMAT, "a.json: not valid JSON");
    ck_fails(calm_json_read(ctx, "/nonexistent/a.json", 5, &root), CALM_ENOTFOUND, "/nonexistent/a.json");
    calm_json_free(NULL);
}
END_OF_TEST

/* Python's spellings of special floats, outside of strings; all else is still refused. */
TEST(floats_of_python)
{
    const char *path = test_format("%s/a.json", test_directory());
    static const char text[] = "{\"a\": [0.0, Infinity, -Infinity, NaN], \"Infinity \\\" NaN\": \"NaN\\\\\", "
                               "\"b\": NaN}";
    static const char *const wrong[] = {"[Infinity", "[Infinit]", "[+Infinity]", "Infinity]", "[NaN1]", "[\"Infinity]",
                                        "{NaN: 1}"};
    calm_json *root;
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    ck_ok(calm_json_read(ctx, path, 200, &root));
    const calm_json *list = calm_json_get(root, "a");
    static const char *const expected[] = {"", "Infinity", "-Infinity", "NaN"};
    ck_assert_uint_eq(calm_json_size(list), 4);
    for (size_t i = 1; i < 4; i++)
        ck_assert_str_eq(calm_json_string(calm_json_get(calm_json_at(list, i), "__float__"), "?"), expected[i]);
    ck_assert_str_eq(calm_json_string(calm_json_get(root, "Infinity \" NaN"), "?"), "NaN\\");
    ck_assert_str_eq(calm_json_string(calm_json_get(calm_json_get(root, "b"), "__float__"), "?"), "NaN");
    calm_json_free(root);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_ok(calm_write_file(ctx, path, wrong[i], strlen(wrong[i])));
        ck_fails(calm_json_read(ctx, path, 200, &root), CALM_EFORMAT, "a.json: not valid JSON");
        ck_assert_ptr_null(root);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("json",
                     (const TTest *[]){malformed_documents_are_refused, deep_nesting_is_refused,
                                       values_are_read_by_type_with_a_fallback, members_are_walked_in_document_order,
                                       checked_integers, checked_numbers_booleans_and_strings,
                                       members_become_what_their_types_say, what_is_built_is_written_in_order,
                                       numbers_survive_writing_and_reading, files_are_read_up_to_a_limit,
                                       floats_of_python, NULL});
}
