/* Jinja's filters of single values.  a[0] is the filtered value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_print.h"
#include "ptq/jinja/jinja_value_ops.h"

#define FILTER CALM_JINJA_BUILTIN

/* ---- text ---- */

CALM_JINJA_BUILTIN(filter_string) { return calm_jinja_str(run, a[0], out); }

FILTER(filter_trim)
{
    calm_jinja_value text;
    calm_jinja_string set;
    CALM_TRY(calm_jinja_str(run, a[0], &text));
    CALM_TRY(calm_jinja_string_argument(run, a[1], NULL, &set));
    CALM_TRY(calm_jinja_step_strip(run, text.text, set));
    const calm_jinja_string s = calm_jinja_strip(text.text, set, true, true);
    *out = calm_jinja_text(s.bytes, s.n);
    out->markup = text.markup;
    return CALM_OK;
}

static calm_status change_case(calm_jinja_run *run, calm_jinja_value v, calm_jinja_case to, calm_jinja_value *out)
{
    calm_jinja_value text;
    CALM_TRY(calm_jinja_str(run, v, &text));
    return calm_jinja_change_case(run, text.text, to, out);
}

CALM_JINJA_BUILTIN(filter_upper) { return change_case(run, a[0], CALM_JINJA_UPPER, out); }
CALM_JINJA_BUILTIN(filter_lower) { return change_case(run, a[0], CALM_JINJA_LOWER, out); }
CALM_JINJA_BUILTIN(filter_capitalize) { return change_case(run, a[0], CALM_JINJA_CAPITALIZE, out); }
CALM_JINJA_BUILTIN(filter_title) { return change_case(run, a[0], CALM_JINJA_TITLE, out); }

FILTER(filter_replace)
{
    calm_jinja_value text, old, by;
    int64_t count;
    CALM_TRY(calm_jinja_str(run, a[0], &text));
    CALM_TRY(calm_jinja_str(run, a[1], &old));
    CALM_TRY(calm_jinja_str(run, a[2], &by));
    CALM_TRY(calm_jinja_int_argument(run, a[3], -1, &count));
    return calm_jinja_replace(run, text.text, old.text, by.text, count, out);
}

/* Implements "FORMAT"|format(values). */
FILTER(filter_format)
{
    calm_jinja_value text, values;
    const bool named = args->n_named > 0;
    CALM_TRY(calm_jinja_str(run, a[0], &text));
    if (named && args->n > 1)
        return calm_jinja_fail(run, "format: values with names next to values without");
    CALM_TRY(named ? calm_jinja_new_dict(run, CALM_JINJA_DICT, &values)
                   : calm_jinja_new_list(run, CALM_JINJA_TUPLE, &values));
    for (size_t i = 0; i < args->n_named; i++)
        CALM_TRY(calm_jinja_store(run, values.dict, calm_jinja_text(args->names[i], strlen(args->names[i])),
                                  args->named[i]));
    for (size_t i = 1; i < args->n; i++)
        CALM_TRY(calm_jinja_append(run, values.list, args->of[i]));
    return calm_jinja_format_percent(run, text.text, values, out);
}

/* Appends the indentation of the filter indent: a string, or a number of blanks. */
static calm_status indent_text(calm_jinja_run *run, calm_jinja_value width, calm_jinja_buffer *out)
{
    int64_t n;
    if (calm_jinja_is_string(width))
        return calm_jinja_put_string(run, out, width.text);
    CALM_TRY(calm_jinja_int_argument(run, width, 4, &n));
    for (; n > 0; n--)
        CALM_TRY(calm_jinja_put(run, out, " ", 1));
    return CALM_OK;
}

/* Indents all lines but the first; blank ones only with `blank`, the first one with `first`. */
FILTER(filter_indent)
{
    calm_jinja_buffer buffer = {0}, indent = {0};
    calm_jinja_string line;
    bool begun = false;
    if (!calm_jinja_is_string(a[0]))
        return calm_jinja_fail(run, "indent: expected a string, found a %s", calm_jinja_kind_name(a[0].kind));
    CALM_TRY(indent_text(run, a[1], &indent));
    if (calm_jinja_truth(a[2]))
        CALM_TRY(calm_jinja_put(run, &buffer, indent.data, indent.n));
    /* A text that ends with a newline has an empty last line. */
    const calm_jinja_string s = a[0].text;
    for (size_t at = 0; calm_jinja_next_line(s, &at, &line); begun = true) {
        CALM_TRY(calm_jinja_put_text(run, &buffer, begun ? "\n" : ""));
        if (begun && (line.n || calm_jinja_truth(a[3])))
            CALM_TRY(calm_jinja_put(run, &buffer, indent.data, indent.n));
        CALM_TRY(calm_jinja_put_string(run, &buffer, line));
    }
    if (s.n && line.bytes + line.n < s.bytes + s.n) {
        CALM_TRY(calm_jinja_put_text(run, &buffer, "\n"));
        if (calm_jinja_truth(a[3]))
            CALM_TRY(calm_jinja_put(run, &buffer, indent.data, indent.n));
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

FILTER(filter_safe)
{
    CALM_TRY(calm_jinja_str(run, a[0], out));
    out->markup = true;
    return CALM_OK;
}

/* ---- JSON ---- */

/* Reads the separators from a tuple (comma, colon). */
static calm_status read_separators(calm_jinja_run *run, calm_jinja_value v, calm_jinja_json_style *style)
{
    if (!calm_jinja_given(v) || v.kind == CALM_JINJA_NONE)
        return CALM_OK;
    if (!calm_jinja_is_list(v) || v.list->n != 2)
        return calm_jinja_fail(run, "tojson: expected two separators");
    CALM_TRY(calm_jinja_string_argument(run, v.list->of[0], ", ", &style->comma));
    return calm_jinja_string_argument(run, v.list->of[1], ": ", &style->colon);
}

FILTER(filter_tojson)
{
    calm_jinja_buffer buffer = {0}, indent = {0};
    const bool indented = calm_jinja_given(a[2]) && a[2].kind != CALM_JINJA_NONE;
    calm_jinja_json_style style = {.ascii = calm_jinja_truth(a[1]), .sorted = calm_jinja_truth(a[4]),
                                   .indented = indented, .comma = {indented ? "," : ", ", indented ? 1 : 2},
                                   .colon = {": ", 2}};
    if (indented)
        CALM_TRY(indent_text(run, a[2], &indent));
    style.indent = calm_jinja_of_buffer(&indent).text;
    CALM_TRY(read_separators(run, a[3], &style));
    CALM_TRY(calm_jinja_dump(run, &buffer, &style, a[0]));
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

/* ---- numbers ---- */

/* Parses a whole string as Python's int() or float() do; false: it is not a number. */
static bool read_number(calm_jinja_string s, bool whole, int base, calm_jinja_value *out)
{
    char text[80], *end;
    s = calm_jinja_strip(s, (calm_jinja_string){0}, true, true);
    if (s.n == 0 || s.n >= sizeof text || memchr(s.bytes, '_', s.n) || memchr(s.bytes, 'x', s.n) ||
        memchr(s.bytes, 'X', s.n) || memchr(s.bytes, '(', s.n))
        return false;
    memcpy(text, s.bytes, s.n);
    text[s.n] = '\0';
    if (whole) {
        const long long integer = strtoll(text, &end, base);
        *out = calm_jinja_int(integer);
        return !*end && integer != INT64_MAX && integer != INT64_MIN;
    }
    *out = calm_jinja_real(strtod(text, &end));
    return !*end;
}

FILTER(filter_int)
{
    calm_jinja_value v = a[0];
    int64_t base;
    CALM_TRY(calm_jinja_int_argument(run, a[2], 10, &base));
    *out = calm_jinja_given(a[1]) ? a[1] : calm_jinja_int(0);
    if (v.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, v);
    if (base < 2 || base > 36)
        return calm_jinja_refuse(run, "int of this base");
    if (calm_jinja_is_string(v)) {
        calm_jinja_value number;
        if (read_number(v.text, true, (int)base, &number)) {
            *out = number;
            return CALM_OK;
        }
        if (!read_number(v.text, false, 10, &v))
            return CALM_OK;
    }
    if (calm_jinja_is_whole(v))
        *out = calm_jinja_int(v.integer);
    else if (v.kind == CALM_JINJA_REAL && fabs(v.real) < 9e18)
        *out = calm_jinja_int((int64_t)v.real);
    else if (v.kind == CALM_JINJA_REAL && isfinite(v.real))
        return calm_jinja_refuse(run, "a whole number of more than 64 bits");
    return CALM_OK;
}

FILTER(filter_float)
{
    calm_jinja_value number;
    *out = calm_jinja_given(a[1]) ? a[1] : calm_jinja_real(0);
    if (a[0].kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, a[0]);
    if (calm_jinja_is_number(a[0]))
        *out = calm_jinja_real(calm_jinja_number(a[0]));
    else if (calm_jinja_is_string(a[0]) && read_number(a[0].text, false, 10, &number))
        *out = number;
    return CALM_OK;
}

FILTER(filter_abs)
{
    const bool negative = calm_jinja_is_number(a[0]) && calm_jinja_number(a[0]) < 0;
    return calm_jinja_negate(run, negative ? '-' : '+', a[0], out);
}

/* Rounds to a multiple of 10^-digits, exact halves to even, as Python's round(). */
FILTER(filter_round)
{
    int64_t digits;
    calm_jinja_string how;
    char text[400];
    CALM_TRY(calm_jinja_int_argument(run, a[1], 0, &digits));
    CALM_TRY(calm_jinja_string_argument(run, a[2], "common", &how));
    if (!calm_jinja_is_number(a[0]))
        return calm_jinja_fail(run, "round: expected a number, found a %s", calm_jinja_kind_name(a[0].kind));
    if (digits < 0 || digits > 17)
        return calm_jinja_refuse(run, "round to this precision");
    const bool common = how.n == 6 && memcmp(how.bytes, "common", 6) == 0, up = how.n == 4;
    if (common && calm_jinja_is_whole(a[0])) {
        *out = calm_jinja_int(a[0].integer);
        return CALM_OK;
    }
    const double value = calm_jinja_number(a[0]), scale = pow(10, (double)digits);
    if (!common && !(how.n == 4 && memcmp(how.bytes, "ceil", 4) == 0) &&
        !(how.n == 5 && memcmp(how.bytes, "floor", 5) == 0))
        return calm_jinja_fail(run, "round: expected common, ceil or floor");
    snprintf(text, sizeof text, "%.*f", (int)digits, value);
    *out = calm_jinja_real(common ? strtod(text, NULL) : (up ? ceil(value * scale) : floor(value * scale)) / scale);
    return CALM_OK;
}

/* ---- any value ---- */

FILTER(filter_default)
{
    const bool missing = a[0].kind == CALM_JINJA_UNDEFINED || (calm_jinja_truth(a[2]) && !calm_jinja_truth(a[0]));
    *out = !missing ? a[0] : calm_jinja_given(a[1]) ? a[1] : calm_jinja_text("", 0);
    return CALM_OK;
}

FILTER(filter_length)
{
    size_t n;
    CALM_TRY(calm_jinja_length(run, a[0], &n));
    *out = calm_jinja_int((int64_t)n);
    return CALM_OK;
}

FILTER(filter_attr)
{
    calm_jinja_string name;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &name));
    /* Only attributes, such as those of a loop, and not the members of a dict. */
    if (a[0].kind == CALM_JINJA_DICT || a[0].kind == CALM_JINJA_NAMESPACE)
        return calm_jinja_refuse(run, "the filter \"attr\" of a %s", calm_jinja_kind_name(a[0].kind));
    return calm_jinja_subscript(run, a[0], a[1], out);
}

const calm_jinja_builtin calm_jinja_text_filters[] = {
    {"string", "value", filter_string}, {"trim", "value chars?", filter_trim}, {"upper", "value", filter_upper},
    {"lower", "value", filter_lower}, {"capitalize", "value", filter_capitalize}, {"title", "value", filter_title},
    {"replace", "value old new count?", filter_replace}, {"format", "value *", filter_format},
    {"indent", "value width? first? blank?", filter_indent}, {"safe", "value", filter_safe},
    {"tojson", "value ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"int", "value default? base?", filter_int}, {"float", "value default?", filter_float},
    {"abs", "value", filter_abs}, {"round", "value precision? method?", filter_round},
    {"default", "value default_value? boolean?", filter_default},
    {"d", "value default_value? boolean?", filter_default}, {"length", "value", filter_length},
    {"count", "value", filter_length}, {"attr", "value name", filter_attr},
    {0},
};
