/* String formatting: the % operator and str.format. */
#include <stdio.h>
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_print.h"
#include "ptq/jinja/jinja_value_ops.h"
#include "ptq/text/unicode.h"

#define WIDTH_MAX 1000

/* A conversion: flags, width, precision (-1: none) and conversion letter. */
typedef struct conversion {
    bool left, zero, plus, blank, alternate;
    int width, precision;
    char letter;
} conversion;

/* ---- % ---- */

/* Reads a number up to WIDTH_MAX. */
static calm_status read_size(calm_jinja_run *run, calm_jinja_string f, size_t *at, int *out)
{
    for (*out = 0; *at < f.n && f.bytes[*at] >= '0' && f.bytes[*at] <= '9'; ++*at)
        if ((*out = *out * 10 + f.bytes[*at] - '0') > WIDTH_MAX)
            return calm_jinja_refuse(run, "a width above %d", WIDTH_MAX);
    return CALM_OK;
}

static calm_status read_conversion(calm_jinja_run *run, calm_jinja_string f, size_t *at, conversion *c)
{
    *c = (conversion){.precision = -1};
    for (; *at < f.n && f.bytes[*at] && strchr("-0+ #", f.bytes[*at]); ++*at) {
        c->left |= f.bytes[*at] == '-';
        c->zero |= f.bytes[*at] == '0';
        c->plus |= f.bytes[*at] == '+';
        c->blank |= f.bytes[*at] == ' ';
        c->alternate |= f.bytes[*at] == '#';
    }
    CALM_TRY(read_size(run, f, at, &c->width));
    if (*at < f.n && f.bytes[*at] == '.') {
        ++*at;
        CALM_TRY(read_size(run, f, at, &c->precision));
    }
    if (*at >= f.n)
        return calm_jinja_fail(run, "a format ends within a conversion");
    c->letter = f.bytes[(*at)++];
    return CALM_OK;
}

/* Appends text padded to the width. */
static calm_status put_padded(calm_jinja_run *run, calm_jinja_buffer *to, const conversion *c, calm_jinja_string s)
{
    const size_t n = calm_utf8_count(s.bytes, s.n), width = (size_t)c->width;
    if (c->left)
        CALM_TRY(calm_jinja_put_string(run, to, s));
    for (size_t i = n; i < width; i++)
        CALM_TRY(calm_jinja_put(run, to, " ", 1));
    return c->left ? CALM_OK : calm_jinja_put_string(run, to, s);
}

static calm_status put_text(calm_jinja_run *run, calm_jinja_buffer *to, const conversion *c, calm_jinja_value v)
{
    calm_jinja_buffer repr = {0};
    if (c->letter == 'r') {
        CALM_TRY(calm_jinja_repr(run, &repr, v));
        v = calm_jinja_of_buffer(&repr);
    }
    CALM_TRY(calm_jinja_str(run, v, &v));
    const calm_jinja_value parts[3] = {{0}, calm_jinja_int(c->precision), {0}};
    if (c->precision >= 0)
        CALM_TRY(calm_jinja_slice(run, v, parts, &v));
    return put_padded(run, to, c, v.text);
}

static calm_status put_number(calm_jinja_run *run, calm_jinja_buffer *to, const conversion *c, calm_jinja_value v)
{
    char format[24], text[WIDTH_MAX + 400];
    const bool whole = strchr("dixXo", c->letter) != NULL;
    if (!calm_jinja_is_number(v))
        return calm_jinja_fail(run, "a format: expected a number, found a %s", calm_jinja_kind_name(v.kind));
    if (whole && !calm_jinja_is_whole(v) && !(v.real > -9e18 && v.real < 9e18))
        return calm_jinja_fail(run, "a format: a number that is not whole");
    /* C's formats are the same, except for negative numbers in other bases. */
    if (strchr("xXo", c->letter) && (!calm_jinja_is_whole(v) || v.integer < 0))
        return calm_jinja_refuse(run, "the format %%%c of this number", c->letter);
    const long long integer = calm_jinja_is_whole(v) ? (long long)v.integer : (long long)v.real;
    snprintf(format, sizeof format, "%%%s%s%s%s%s*.*%s%c", c->left ? "-" : "", c->zero ? "0" : "", c->plus ? "+" : "",
             c->blank ? " " : "", c->alternate ? "#" : "", whole ? "ll" : "", c->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int n = whole ? snprintf(text, sizeof text, format, c->width, c->precision, integer)
                        : snprintf(text, sizeof text, format, c->width, c->precision, calm_jinja_number(v));
#pragma GCC diagnostic pop
    return n < 0 || (size_t)n >= sizeof text ? calm_jinja_refuse(run, "a number with too many digits")
                                             : calm_jinja_put(run, to, text, (size_t)n);
}

static calm_status put_conversion(calm_jinja_run *run, calm_jinja_buffer *to, const conversion *c, calm_jinja_value v)
{
    if (c->letter == 's' || c->letter == 'r')
        return put_text(run, to, c, v);
    if (!c->letter || !strchr("dixXofFeEgG", c->letter))
        return calm_jinja_refuse(run, "the format %%%c", c->letter);
    return put_number(run, to, c, v);
}

/* Returns the value of the next conversion: a dict's member for "(name)", else the next one of a tuple. */
static calm_status next_value(calm_jinja_run *run, calm_jinja_string f, size_t *at, calm_jinja_value values,
                              size_t *used, calm_jinja_value *out)
{
    if (*at < f.n && f.bytes[*at] == '(') {
        const char *end = memchr(f.bytes + *at, ')', f.n - *at);
        if (!end || values.kind != CALM_JINJA_DICT)
            return calm_jinja_fail(run, "a format: %%(name) needs a dict and an end");
        const size_t begin = *at + 1;
        *at = (size_t)(end - f.bytes) + 1;
        return calm_jinja_item(run, values, calm_jinja_text(f.bytes + begin, *at - 1 - begin), out);
    }
    const bool tuple = values.kind == CALM_JINJA_TUPLE;
    if (*used >= (tuple ? values.list->n : 1))
        return calm_jinja_fail(run, "a format has more conversions than values");
    *out = tuple ? values.list->of[*used] : values;
    ++*used;
    return CALM_OK;
}

calm_status calm_jinja_format_percent(calm_jinja_run *run, calm_jinja_string format, calm_jinja_value values,
                                      calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    size_t used = 0;
    for (size_t at = 0; at < format.n;) {
        const char *sign = memchr(format.bytes + at, '%', format.n - at);
        const size_t end = sign ? (size_t)(sign - format.bytes) : format.n;
        CALM_TRY(calm_jinja_put(run, &buffer, format.bytes + at, end - at));
        at = end + 1;
        if (sign && at < format.n && format.bytes[at] == '%') {
            CALM_TRY(calm_jinja_put(run, &buffer, "%", 1));
            at++;
        } else if (sign) {
            conversion c;
            calm_jinja_value value;
            CALM_TRY(next_value(run, format, &at, values, &used, &value));
            CALM_TRY(read_conversion(run, format, &at, &c));
            CALM_TRY(put_conversion(run, &buffer, &c, value));
        }
    }
    /* Values with members may have more of them than the format uses. */
    const bool by_key = values.kind == CALM_JINJA_DICT || values.kind == CALM_JINJA_LIST ||
                        values.kind == CALM_JINJA_UNDEFINED;
    if (values.kind == CALM_JINJA_TUPLE ? used < values.list->n : !used && !by_key)
        return calm_jinja_fail(run, "a format has fewer conversions than values");
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

/* ---- str.format ---- */

/* Returns the value of a field by its index, its name, or the next one; refuses members of values. */
static calm_status field_value(calm_jinja_run *run, calm_jinja_string name, const calm_jinja_args *args, size_t *next,
                               calm_jinja_value *out)
{
    size_t index = 0, digits = 0;
    if (memchr(name.bytes, '.', name.n) || memchr(name.bytes, '[', name.n))
        return calm_jinja_refuse(run, "the field {%.*s}", (int)calm_size_min(name.n, 40), name.bytes);
    for (; digits < name.n && digits < 4 && name.bytes[digits] >= '0' && name.bytes[digits] <= '9'; digits++)
        index = index * 10 + (size_t)(name.bytes[digits] - '0');
    if (name.n == 0)
        index = (*next)++;
    /* args->of[0] is the format string itself. */
    if (digits == name.n && index + 1 < args->n) {
        *out = args->of[index + 1];
        return CALM_OK;
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (strlen(args->names[i]) == name.n && strncmp(args->names[i], name.bytes, name.n) == 0) {
            *out = args->named[i];
            return CALM_OK;
        }
    return calm_jinja_fail(run, "format: no value for the field {%.*s}", (int)calm_size_min(name.n, 40), name.bytes);
}

/* Formats a value by the specification [0][width][.precision][letter] behind ':'. */
static calm_status put_field(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_string spec, calm_jinja_value v)
{
    conversion c;
    size_t at = 0;
    char bytes[32];
    if (spec.n == 0)
        return calm_jinja_print(run, to, v);
    if (spec.n + 2 > sizeof bytes)
        return calm_jinja_refuse(run, "a format with too many characters");
    memcpy(bytes, spec.bytes, spec.n);
    bytes[spec.n] = 's';    /* default letter                  */
    bytes[spec.n + 1] = '\0';
    CALM_TRY(read_conversion(run, (calm_jinja_string){bytes, spec.n + 1}, &at, &c));
    const bool letter = at == spec.n, number = calm_jinja_is_number(v);
    if (!letter && at != spec.n + 1)
        return calm_jinja_refuse(run, "the format {:%.*s}", (int)spec.n, spec.bytes);
    if (!letter && v.kind == CALM_JINJA_INT)
        c.letter = 'd';
    if (c.left || c.alternate || (letter && !strchr("sdfFeEgGxXo", c.letter)) || number == (c.letter == 's') ||
        (calm_jinja_is_whole(v) && c.precision >= 0 && c.letter == 'd'))
        return calm_jinja_refuse(run, "the format {:%.*s} of a %s", (int)spec.n, spec.bytes,
                                 calm_jinja_kind_name(v.kind));
    c.left = !number;    /* text is left-aligned    */
    return put_conversion(run, to, &c, v);
}

/* Formats the field that begins behind '{' at `at`. */
static calm_status read_field(calm_jinja_run *run, calm_jinja_string f, size_t *at, const calm_jinja_args *args,
                              size_t *next, calm_jinja_buffer *to)
{
    calm_jinja_value value;
    const char *end = memchr(f.bytes + *at, '}', f.n - *at);
    if (!end)
        return calm_jinja_fail(run, "format: a field {...} has no end");
    calm_jinja_string name = {f.bytes + *at, (size_t)(end - f.bytes) - *at}, spec = {"", 0};
    const char *colon = name.n ? memchr(name.bytes, ':', name.n) : NULL;
    if (memchr(name.bytes, '!', name.n) || memchr(name.bytes, '{', name.n))
        return calm_jinja_refuse(run, "the field {%.*s}", (int)calm_size_min(name.n, 40), name.bytes);
    if (colon) {
        spec = (calm_jinja_string){colon + 1, name.n - (size_t)(colon + 1 - name.bytes)};
        name.n = (size_t)(colon - name.bytes);
    }
    *at = (size_t)(end - f.bytes) + 1;
    CALM_TRY(field_value(run, name, args, next, &value));
    return put_field(run, to, spec, value);
}

calm_status calm_jinja_format_braces(calm_jinja_run *run, calm_jinja_string format, const calm_jinja_args *args,
                                     calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    size_t next = 0;
    for (size_t at = 0; at < format.n;) {
        const char c = format.bytes[at++];
        const bool twice = at < format.n && format.bytes[at] == c;
        if (c == '{' && !twice) {
            CALM_TRY(read_field(run, format, &at, args, &next, &buffer));
            continue;
        }
        if (c == '}' && !twice)
            return calm_jinja_fail(run, "format: a single '}'");
        CALM_TRY(calm_jinja_put(run, &buffer, &c, 1));
        at += c == '{' || c == '}';
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}
