/* Chat templates in the style of fifteen model families, and one that uses every feature of calm's Jinja engine,
 * rendered as transformers renders them.  make_chat_templates.py wrote cases.jsonl and expected.jsonl of
 * tests/data/chat_templates. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/jinja/jinja.h"
#include "ptq/text/lines.h"
#include "tests/support/harness.h"

#define FOLDER CALM_SOURCE_DIR "/tests/data/chat_templates"

/* Returns the variables of case `number`, counted from 0. */
static calm_json *read_case(size_t number)
{
    CALM_SCOPED_MAPPING(file);
    const char *line = NULL;
    size_t n = 0;
    calm_json *json;
    ck_ok(calm_map_file(ctx, FOLDER "/cases.jsonl", &file));
    calm_lines lines = {.text = (const char *)file.data, .n = file.bytes};
    for (size_t i = 0; i <= number; i++)
        ck_assert(calm_lines_next(&lines, &line, &n));
    ck_ok(calm_json_parse(ctx, "cases.jsonl", line, n, &json));
    return json;
}

static calm_jinja *open_template(const char *name)
{
    calm_jinja *jinja;
    char *text;
    size_t n;
    ck_ok(calm_read_file(ctx, test_format(FOLDER "/%s", name), (size_t)1 << 20, &text, &n));
    ck_ok(calm_jinja_new(ctx, name, text, n, &jinja));
    return jinja;
}

static void check_text(const char *where, const calm_json *expected, const calm_text *text)
{
    const char *found = text->data ? text->data : "";
    ck_assert_msg(text->length == calm_json_string_length(expected) &&
                      memcmp(found, calm_json_string(expected, ""), text->length) == 0,
                  "%s:\n%s\nexpected:\n%s", where, found, calm_json_string(expected, ""));
}

/* Checks one line of expected.jsonl, whose "text" is null if the template refuses the chat. */
static void check_line(const char *where, const calm_json *line)
{
    const calm_json *expected = calm_json_get(line, "text");
    calm_jinja *jinja = open_template(calm_json_string(calm_json_get(line, "template"), ""));
    CALM_SCOPED_TEXT(text);
    CALM_SCOPED_JSON(variables);
    variables = read_case((size_t)calm_json_int(calm_json_get(line, "case"), 0));
    const calm_status status = calm_jinja_render(ctx, jinja, variables, &text);
    if (calm_json_typeof(expected) == CALM_JSON_NULL) {
        ck_fails(status, CALM_EFORMAT, ": line ");
    } else {
        ck_ok(status);
        check_text(where, expected, &text);
    }
    calm_jinja_free(jinja);
}

TEST(as_transformers)
{
    CALM_SCOPED_MAPPING(file);
    const char *line;
    size_t n;
    ck_ok(calm_map_file(ctx, FOLDER "/expected.jsonl", &file));
    calm_lines lines = {.text = (const char *)file.data, .n = file.bytes};
    while (calm_lines_next(&lines, &line, &n)) {
        CALM_SCOPED_JSON(json);
        ck_ok(calm_json_parse(ctx, "expected.jsonl", line, n, &json));
        check_line(test_format("line %zu: %s", lines.number, calm_json_string(calm_json_get(json, "template"), "")),
                   json);
        calm_arena_clear(ctx->out);
    }
    ck_assert_uint_gt(lines.number, 200);
}
END_OF_TEST

int main(void)
{
    return run_tests("chat_templates", (const TTest *[]){as_transformers, NULL});
}
