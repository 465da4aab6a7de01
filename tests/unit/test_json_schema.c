/* JSON Schema: each keyword, where faults are, and schemas that would not be checked whole. */
#include "ptq/io/json_schema.h"

#include "tests/support/harness.h"

static calm_json *parse(const char *text)
{
    calm_json *json;
    ck_ok(calm_json_parse(ctx, "test", text, strlen(text), &json));
    return json;
}

/* "POINTER: MESSAGE" of each fault, joined by " | "; "" when the document is valid. */
static const char *faults_of(const char *schema_text, const char *document)
{
    calm_json *schema = parse(schema_text), *value = parse(document);
    calm_json_fault *faults;
    size_t n;
    const char *text = "";
    ck_ok(calm_json_schema_check(ctx, "schema", schema));
    ck_ok(calm_json_schema_faults(ctx, schema, value, &faults, &n));
    for (size_t i = 0; i < n; i++)
        text = test_format("%s%s%s: %s", text, i ? " | " : "", faults[i].pointer, faults[i].message);
    calm_json_free(schema);
    calm_json_free(value);
    return text;
}

#define valid(schema, document) ck_assert_str_eq(faults_of(schema, document), "")
#define fault(schema, document, expected) ck_assert_str_eq(faults_of(schema, document), expected)

TEST(types_are_those_of_the_draft)
{
    fault("{\"type\": \"object\"}", "[1]", ": expected an object, found an array");
    valid("{\"items\": {\"type\": \"integer\"}}", "[1, -2, 3.0]");
    fault("{\"items\": {\"type\": \"integer\"}}", "[1, 2.5]", "/1: expected a whole number, found 2.5");
    fault("{\"items\": {\"type\": \"integer\"}}", "[true]", "/0: expected a whole number, found true");
    fault("{\"items\": {\"type\": [\"string\", \"null\"]}}", "[null, \"a\", 1]", "/2: expected a text or null, found 1");
    fault("{\"items\": {\"type\": \"boolean\"}}", "[0]", "/0: expected true or false, found 0");
    fault("{\"items\": {\"type\": \"number\"}}", "[1, 1.5, \"1\"]", "/2: expected a number, found \"1\"");
}
END_OF_TEST

TEST(bounds_of_numbers)
{
    valid("{\"items\": {\"minimum\": 1, \"maximum\": 3}}", "[1, 3, \"text\"]");
    fault("{\"items\": {\"minimum\": 1}}", "[0]", "/0: expected at least 1, found 0");
    fault("{\"items\": {\"maximum\": 3}}", "[3.5]", "/0: expected at most 3, found 3.5");
    fault("{\"items\": {\"exclusiveMinimum\": 0}}", "[0.1, 0]", "/1: expected more than 0, found 0");
    fault("{\"items\": {\"exclusiveMaximum\": 1}}", "[0.9, 1]", "/1: expected less than 1, found 1");
}
END_OF_TEST

TEST(texts_count_characters_and_match_anywhere)
{
    valid("{\"items\": {\"maxLength\": 2}}", "[\"\\u00e9\\u00e9\"]");
    fault("{\"items\": {\"maxLength\": 2}}", "[\"abc\"]", "/0: expected at most 2 characters, found 3");
    fault("{\"items\": {\"minLength\": 1}}", "[\"\"]", "/0: expected at least 1 characters, found 0");
    valid("{\"items\": {\"pattern\": \"b+\"}}", "[\"abbc\", 3]");
    fault("{\"items\": {\"pattern\": \"^b+$\"}}", "[\"abbc\"]", "/0: expected a text like ^b+$, found \"abbc\"");
}
END_OF_TEST

TEST(values_and_constants)
{
    valid("{\"items\": {\"enum\": [\"job\", 1, true, null]}}", "[\"job\", 1.0, true, null]");
    fault("{\"items\": {\"enum\": [\"job\", \"block\"]}}", "[\"blok\"]",
          "/0: expected one of \"job\", \"block\", found \"blok\"; did you mean \"block\"?");
    fault("{\"items\": {\"const\": 1}}", "[1, true]", "/1: expected 1, found true");
    fault("{\"items\": {\"const\": false}}", "[false, 0]", "/1: expected false, found 0");
}
END_OF_TEST

TEST(objects)
{
    static const char schema[] = "{\"properties\": {\"samples\": {\"type\": \"integer\"}}, \"required\": [\"samples\"], "
                                 "\"additionalProperties\": false}";
    valid(schema, "{\"samples\": 3}");
    fault(schema, "{\"sampels\": 3}", ": lacks the key \"samples\" | /sampels: unknown key; did you mean \"samples\"?");
    fault(schema, "{\"samples\": 3, \"zzz\": 1}", "/zzz: unknown key");
    fault("{\"additionalProperties\": {\"type\": \"string\"}}", "{\"a\": \"x\", \"b\": 1}",
          "/b: expected a text, found 1");
    fault("{\"propertyNames\": {\"pattern\": \"^[a-z]+$\"}}", "{\"ok\": 1, \"NO\": 2}",
          "/NO: its key: expected a text like ^[a-z]+$, found \"NO\"");
    fault("{\"minProperties\": 1, \"maxProperties\": 2}", "{}", ": expected at least 1 members, found 0");
    fault("{\"maxProperties\": 1}", "{\"a\": 1, \"b\": 1}", ": expected at most 1 members, found 2");
}
END_OF_TEST

TEST(arrays)
{
    valid("{\"minItems\": 1, \"maxItems\": 2}", "[1, 2]");
    fault("{\"minItems\": 1}", "[]", ": expected at least 1 items, found 0");
    fault("{\"maxItems\": 1}", "[1, 2]", ": expected at most 1 items, found 2");
}
END_OF_TEST

TEST(pointers_are_escaped_and_plain)
{
    fault("{\"additionalProperties\": {\"type\": \"null\"}}", "{\"a/b~c\": 1}", "/a~1b~0c: expected null, found 1");
    fault("{\"additionalProperties\": {\"additionalProperties\": {\"items\": {\"const\": 1}}}}",
          "{\"x\": {\"y\": [1, 1, 2]}}", "/x/y/2: expected 1, found 2");
    fault("{\"items\": {\"const\": 1}}", "[\"\\u001b[31m\"]", "/0: expected 1, found \"?[31m\"");
}
END_OF_TEST

TEST(alternatives_speak_for_the_one_that_fits_best)
{
    static const char schema[] =
        "{\"$defs\": {\"model\": {\"type\": \"object\", \"required\": [\"name\"], \"additionalProperties\": false, "
        "\"properties\": {\"name\": {\"type\": \"string\"}}}}, "
        "\"items\": {\"oneOf\": [{\"type\": \"string\"}, {\"$ref\": \"#/$defs/model\"}]}}";
    valid(schema, "[\"qwen\", {\"name\": \"qwen\"}]");
    fault(schema, "[3]", "/0: expected a text or an object, found 3");
    fault(schema, "[{\"name\": 3}]", "/0/name: expected a text, found 3");
    fault(schema, "[{}]", "/0: lacks the key \"name\"");
    fault("{\"items\": {\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}}", "[1.5, 1]",
          "/1: fits several of what it may be one of");
    valid("{\"items\": {\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}}", "[1.5, 1]");
}
END_OF_TEST

TEST(depth_is_limited)
{
    static const char schema[] = "{\"$defs\": {\"list\": {\"items\": {\"$ref\": \"#/$defs/list\"}}}, "
                                 "\"$ref\": \"#/$defs/list\"}";
    char text[300];
    memset(text, '[', 40);
    memset(text + 40, ']', 40);
    text[80] = '\0';
    valid(schema, text);
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    text[200] = '\0';
    ck_assert_ptr_nonnull(strstr(faults_of(schema, text), "is nested too deep"));
    valid("{\"$defs\": {\"a\": {\"type\": \"array\"}}, \"$ref\": \"#/$defs/a\"}", "[]");
}
END_OF_TEST

TEST(faults_are_limited)
{
    const char *document = "[0";
    calm_json *schema = parse("{\"items\": {\"type\": \"string\"}}"), *value;
    calm_json_fault *faults;
    size_t n;
    for (int i = 0; i < 99; i++)
        document = test_format("%s,0", document);
    value = parse(test_format("%s]", document));
    ck_ok(calm_json_schema_faults(ctx, schema, value, &faults, &n));
    ck_assert_uint_eq(n, CALM_SCHEMA_FAULTS);
    ck_assert_str_eq(faults[31].pointer, "/31");
    ck_fails(calm_json_schema_expect(ctx, "x.json", schema, value), CALM_EFORMAT, "x.json: /0: expected a text, found 0");
    calm_json_free(schema);
    calm_json_free(value);
}
END_OF_TEST

TEST(a_schema_that_is_not_read_whole_is_refused)
{
    static const char *const schemas[][2] = {
        {"{\"uniqueItems\": true}", "uniqueItems"},
        {"{\"properties\": {\"a\": {\"patternProperties\": {}}}}", "patternProperties"},
        {"{\"items\": {\"format\": \"uri\"}}", "format"},
        {"{\"anyOf\": [{\"not\": {}}]}", "not"},
        {"{\"$defs\": {\"a\": {\"if\": {}}}}", "if"},
        {"{\"type\": \"text\"}", "type"},
        {"{\"$ref\": \"#/$defs/none\"}", "$ref"},
        {"{\"$ref\": \"other.json\"}", "$ref"},
        {"{\"minimum\": \"1\"}", "minimum"},
        {"{\"maxItems\": -1}", "maxItems"},
        {"{\"required\": \"a\"}", "required"},
        {"{\"enum\": [[1]]}", "enum"},
        {"{\"items\": [{}]}", "items"},
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        calm_json *schema = parse(schemas[i][0]);
        ck_fails(calm_json_schema_check(ctx, "s.json", schema), CALM_EUNSUPPORTED, schemas[i][1]);
        calm_json_free(schema);
    }
    calm_json *schema = parse("{\"pattern\": \"(\"}");
    ck_assert_int_ne(calm_json_schema_check(ctx, "s.json", schema), CALM_OK);
    calm_ctx_forgive(ctx);
    calm_json_free(schema);
}
END_OF_TEST

int main(void)
{
    return run_tests("json_schema",
                     (const TTest *[]){types_are_those_of_the_draft, bounds_of_numbers,
                                       texts_count_characters_and_match_anywhere, values_and_constants, objects, arrays,
                                       pointers_are_escaped_and_plain, alternatives_speak_for_the_one_that_fits_best,
                                       depth_is_limited, faults_are_limited,
                                       a_schema_that_is_not_read_whole_is_refused, NULL});
}
