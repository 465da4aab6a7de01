/* Chat templates: what is refused, limits on untrusted ones, and failures with file and line.
 * golden.test_chat_templates tests what the engine renders. */
#include "ptq/jinja/jinja.h"

#include "tests/support/harness.h"

/* Renders a template with the variables {"x": [1, 2], "s": "text", "messages": []}. */
static const char *rendered(const char *template)
{
    CALM_SCOPED_JSON(variables);
    CALM_SCOPED_TEXT(text);
    calm_jinja *jinja;
    const char *json = "{\"x\": [1, 2], \"s\": \"text\", \"messages\": [], \"n\": null}";
    ck_ok(calm_json_parse(ctx, "variables", json, strlen(json), &variables));
    ck_ok(calm_jinja_new(ctx, "t.jinja", template, strlen(template), &jinja));
    const calm_status status = calm_jinja_render(ctx, jinja, variables, &text);
    calm_jinja_free(jinja);
    ck_ok(status);
    return test_format("%.*s", (int)text.length, text.data ? text.data : "");
}

/* Checks that a template cannot be parsed, or fails when it is rendered. */
static void fails(const char *template, calm_status expected, const char *message)
{
    CALM_SCOPED_JSON(variables);
    CALM_SCOPED_TEXT(text);
    calm_jinja *jinja;
    variables = calm_json_new_object();
    calm_status status = calm_jinja_new(ctx, "t.jinja", template, strlen(template), &jinja);
    if (status == CALM_OK)
        status = calm_jinja_render(ctx, jinja, variables, &text);
    calm_jinja_free(jinja);
    ck_fails(status, expected, message);
    ck_assert_uint_eq(text.length, 0);
}

TEST(blocks_and_lines)
{
    ck_assert_str_eq(rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
    ck_assert_str_eq(rendered("a\n  {%+ if true +%}\n  b\n  {%- endif -%}\n c"), "a\n  \n  bc");
    ck_assert_str_eq(rendered("  {# no #}\n  x {#- no -#}  y\r\nz\rw"), "  xy\nz\nw");
    ck_assert_str_eq(rendered("{{ {'a': {}} }}{{ '}}' }}"), "{'a': {}}}}");
}
END_OF_TEST

TEST(names_and_scopes)
{
    ck_assert_str_eq(rendered("{% set y = 0 %}{% for i in x %}{% set y = y + i %}{{ y }}{% endfor %}{{ y }}"), "120");
    ck_assert_str_eq(rendered("{% if true %}{% set y = 1 %}{% endif %}{{ y }}{{ z }}{{ n }}"), "1None");
    ck_assert_str_eq(rendered("{% for i in x %}{{ loop.previtem }}{{ i }}{{ loop.last }}{% endfor %}"), "1False12True");
    ck_assert_str_eq(rendered("{% macro f(a) %}{% if a %}{{ f(a - 1) }}{{ a }}{% endif %}{% endmacro %}{{ f(3) }}"),
                     "123");
}
END_OF_TEST

/* The results of map, select and the like can be iterated once, are true and have no length, as in Python. */
TEST(generators)
{
    ck_assert_str_eq(rendered("{% set g = x|select('odd') %}{{ g|list }}{{ g|list }}{{ 1 if n|map('upper') else 2 }}"),
                     "[1][]1");
    fails("{{ ([1]|map('string'))|length }}", CALM_EFORMAT, "t.jinja: line 1: a generator has no length");
    fails("{{ [1]|map('string')|tojson }}", CALM_EFORMAT, "tojson: a generator");
}
END_OF_TEST

TEST(failures_have_a_line)
{
    fails("\n\n{{ 1 +", CALM_EFORMAT, "t.jinja: line 3: expected \"}}\"");
    fails("{% if a %}\n", CALM_EFORMAT, "expected {% elif %}");
    fails("\n{% endif %}", CALM_EFORMAT, "line 2: expected a statement, found \"endif\"");
    fails("{{ a b }}", CALM_EFORMAT, "expected the end of the tag, found \"b\"");
    fails("\n{{ a.b.c }}", CALM_EFORMAT, "t.jinja: line 2: 'a' is undefined");
    fails("{{ 1 + 'x' }}", CALM_EFORMAT, "an operator does not take a int and a str");
    fails("{% for a in 3 %}{% endfor %}", CALM_EFORMAT, "a int cannot be iterated over");
    fails("{{ raise_exception('Roles must alternate') }}", CALM_EFORMAT, "refuses the chat: Roles must alternate");
    fails("{% break %}", CALM_EFORMAT, "\"break\" outside of a loop");
    fails("{{ 'open }}", CALM_EFORMAT, "a string has no end");
    fails("{# open", CALM_EFORMAT, "the comment {# has no end #}");
    fails("{{ 9999999999999999999999 }}", CALM_EFORMAT, "more digits");
    fails("\xFF", CALM_EFORMAT, "not UTF-8");
    fails("{% set a.b = 1 %}", CALM_EFORMAT, "\"a\" is no namespace");
    fails("{% set a, b = [1] %}", CALM_EFORMAT, "1 values for 2 names");
    fails("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", CALM_EFORMAT, "the macro \"f\" does not take");
    fails("{{ [1].append(2) }}", CALM_EFORMAT, "sandbox refuses it too");
}
END_OF_TEST

TEST(unknown_things_by_name)
{
    fails("\n{% include 'x' %}", CALM_EUNSUPPORTED, "t.jinja: line 2: the statement \"include\" is not supported");
    fails("{{ 1|wordwrap }}", CALM_EUNSUPPORTED, "the filter \"wordwrap\" is not supported");
    fails("{{ 1 is sameas 1 }}", CALM_EUNSUPPORTED, "the test \"sameas\"");
    fails("{{ 'x'.zfill(3) }}", CALM_EUNSUPPORTED, "the method \"zfill\"");
    fails("{% macro f() %}{{ varargs }}{% endmacro %}{{ f(1) }}", CALM_EFORMAT, "does not take these arguments");
    fails("{% macro f() %}{{ varargs }}{% endmacro %}{{ f() }}", CALM_EUNSUPPORTED, "the name \"varargs\"");
    fails("{{ lipsum() }}", CALM_EUNSUPPORTED, "the function \"lipsum\"");
    fails("{% for a in b recursive %}{% endfor %}", CALM_EUNSUPPORTED, "a recursive loop");
    fails("{{ 9223372036854775807 + 1 }}", CALM_EFORMAT, "more digits");
    fails("{{ 999999999999999999 * 999999999999999999 }}", CALM_EUNSUPPORTED, "more than 64 bits");
    fails("{{ '\xC3\x9F'|upper }}", CALM_EUNSUPPORTED, "the other case of U+00DF");
    /* Features that are not reached do no harm. */
    ck_assert_str_eq(rendered("{% if false %}{{ 1|wordwrap }}{% endif %}ok"), "ok");
}
END_OF_TEST

TEST(members_and_formats)
{
    ck_assert_str_eq(rendered("{{ [[1, 2, 3]]|map(attribute='12'[:1])|list }}"), "[2]");
    ck_assert_str_eq(rendered("{% set d = {'a': items} %}{{ d['a'] is defined }}"), "False");
    fails("{{ '%\\0' % 1 }}", CALM_EUNSUPPORTED, "the format %");
}
END_OF_TEST

TEST(limits)
{
    fails("{% set s = 'a' * 600000 %}{{ s.rfind(s[300000:] ~ 'b') }}", CALM_EFORMAT, "the template takes more than");
    fails("{% set s = 'a' * 200000 %}{{ s.strip('b' * 200000 ~ 'a') }}", CALM_EFORMAT, "the template takes more than");
    fails("{% set s = 'a' * 200000 %}{{ s|trim('b' * 200000 ~ 'a') }}", CALM_EFORMAT, "the template takes more than");
    fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", CALM_EFORMAT, "nests deeper than 400");
    char deep[300] = "{{ ";
    memset(deep + 3, '-', 250);
    strcpy(deep + 253, "1 }}");
    fails(deep, CALM_EFORMAT, "nested deeper than 200");
    fails("{% set l = range(90000)|list %}{% for i in range(300) %}{{ -1 in l }}{% endfor %}", CALM_EFORMAT,
          "more than 10000000 steps");
    fails("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", CALM_EFORMAT,
          "the template takes more than");
    fails("{{ range(100001) }}", CALM_EFORMAT, "more than 100000 numbers");
    fails("{% set n = namespace(s='0123456789abcdef') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
          CALM_EFORMAT, "t.jinja: line 1: the template takes more than");
    fails("{{ 'x' * 999999999999 }}", CALM_EFORMAT, "the template takes more than");
    fails("{% set a = namespace() %}{% set a.a = a %}{{ a }}", CALM_EUNSUPPORTED, "printing a Namespace");
}
END_OF_TEST

int main(void)
{
    return run_tests("jinja", (const TTest *[]){blocks_and_lines, names_and_scopes, generators, failures_have_a_line,
                                                unknown_things_by_name, members_and_formats, limits, NULL});
}
