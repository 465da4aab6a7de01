/* Two recipes next to each other, by JSON pointers. */
#include "cli/inspect/inspect_recipe.h"

#include "ptq/io/json.h"
#include "tests/support/harness.h"

static calm_status note(calm_ctx *c, void *user, const char *pointer, const char *first, const char *second)
{
    (void)c;
    calm_text_printf(user, "%s %s %s\n", pointer, first ? first : "-", second ? second : "-");
    return CALM_OK;
}

static calm_json *parse(const char *text)
{
    calm_json *out = NULL;
    if (text)
        ck_ok(calm_json_parse(ctx, "test", text, strlen(text), &out));
    return out;
}

/* Returns all values of both documents. */
static const char *walked(const char *first, const char *second)
{
    calm_json *a = parse(first), *b = parse(second);
    calm_text out;
    calm_text_init(&out);
    ck_ok(calm_inspect_walk(ctx, a, b, note, &out));
    const char *copy = test_format("%s", out.data ? out.data : "");
    calm_text_clear(&out);
    calm_json_free(a);
    calm_json_free(b);
    return copy;
}

TEST(every_value_once)
{
    ck_assert_str_eq(walked("{\"a\":{\"b\":[1,\"x\",null]},\"c\":true}", NULL),
                     "/a/b/0 1 -\n/a/b/1 \"x\" -\n/a/b/2 null -\n/c true -\n");
    ck_assert_str_eq(walked("{\"a\":1}", "{\"b\":2,\"a\":3}"), "/a 1 3\n/b - 2\n");
    ck_assert_str_eq(walked("[1,2]", "[1]"), "/0 1 1\n/1 2 -\n");
    ck_assert_str_eq(walked(NULL, NULL), "");
}
END_OF_TEST

TEST(kinds_that_differ_are_told_whole)
{
    ck_assert_str_eq(walked("{\"a\":{\"b\":1}}", "{\"a\":[1]}"), "/a {\"b\":1} [1]\n");
    ck_assert_str_eq(walked("{\"a\":{}}", "{\"a\":{\"b\":1}}"), "/a {} {\"b\":1}\n");
    ck_assert_str_eq(walked("{\"a\":[]}", "{\"a\":[]}"), "/a [] []\n");
    ck_assert_str_eq(walked("{\"a/b\":{\"~\":1}}", "{}"), " {\"a/b\":{\"~\":1}} {}\n");
    ck_assert_str_eq(walked("{\"a/b\":{\"~\":1}}", "{\"a/b\":{\"~\":2}}"), "/a~1b/~0 1 2\n");
}
END_OF_TEST

static calm_status stop(calm_ctx *c, void *user, const char *pointer, const char *first, const char *second)
{
    (void)user, (void)first, (void)second;
    return calm_fail(c, CALM_EIO, "stopped at %s", pointer);
}

TEST(the_first_failure_ends_it)
{
    calm_json *a = parse("{\"a\":{\"b\":1,\"c\":2}}");
    ck_fails(calm_inspect_walk(ctx, a, NULL, stop, NULL), CALM_EIO, "stopped at /a/b");
    calm_json_free(a);
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_recipe", (const TTest *[]){every_value_once, kinds_that_differ_are_told_whole,
                                                         the_first_failure_ends_it, NULL});
}
