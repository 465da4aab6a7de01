/* Prints values as Python's str() and repr() do. */
#include "ptq/jinja/jinja_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/text.h"
#include "ptq/jinja/jinja_value_ops.h"
#include "ptq/text/unicode.h"

/* Formats a number with the fewest digits that read back the same, as repr(float): 0.1, 1e-05, 1e+16, 3.0. */
static void print_real(double value, char out[48])
{
    char digits[40];
    int exponent = 0;
    if (isnan(value) || isinf(value)) {
        snprintf(out, 48, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    const int needed = calm_digits_needed(value, 1);
    snprintf(digits, sizeof digits, "%.*e", needed - 1, value);
    sscanf(strchr(digits, 'e') + 1, "%d", &exponent);
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, 48, "%.*e", needed - 1, value);
        return;
    }
    /* Decimal places: as many as needed, at least one. */
    const int behind = needed - 1 - exponent;
    snprintf(out, 48, "%.*f", behind < 1 ? 1 : behind, value);
}

/* ---- repr of strings ---- */

static bool is_printable(uint32_t c)
{
    return c == ' ' || (!calm_unicode_is_unprintable(c) && !calm_unicode_is_space(c) && c != 0x7F && c >= 0x20);
}

static calm_status repr_character(calm_jinja_run *run, calm_jinja_buffer *to, const char *bytes, size_t n, uint32_t c,
                                  char quote)
{
    char escape[16];
    if (c == '\n' || c == '\r' || c == '\t')
        snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c == '\\' || c == (uint32_t)quote)
        snprintf(escape, sizeof escape, "\\%c", (int)c);
    else if (is_printable(c))
        return calm_jinja_put(run, to, bytes, n);
    else if (c < 0x100)
        snprintf(escape, sizeof escape, "\\x%02" PRIx32, c);
    else
        snprintf(escape, sizeof escape, c < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, c);
    return calm_jinja_put_text(run, to, escape);
}

static calm_status repr_string(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_string s)
{
    const bool doubled = s.n && memchr(s.bytes, '\'', s.n) && !memchr(s.bytes, '"', s.n);
    const char quote = doubled ? '"' : '\'';
    uint32_t character;
    CALM_TRY(calm_jinja_put(run, to, &quote, 1));
    for (size_t at = 0, n; at < s.n; at += n) {
        n = calm_utf8_decode(s.bytes + at, &character);
        CALM_TRY(repr_character(run, to, s.bytes + at, n, character, quote));
    }
    return calm_jinja_put(run, to, &quote, 1);
}

/* ---- repr of other kinds ---- */

static calm_status repr_list(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v)
{
    const bool tuple = v.kind == CALM_JINJA_TUPLE;
    CALM_TRY(calm_jinja_put_text(run, to, tuple ? "(" : "["));
    for (size_t i = 0; i < v.list->n; i++) {
        CALM_TRY(calm_jinja_put_text(run, to, i ? ", " : ""));
        CALM_TRY(calm_jinja_repr(run, to, v.list->of[i]));
    }
    return calm_jinja_put_text(run, to, !tuple ? "]" : v.list->n == 1 ? ",)" : ")");
}

static calm_status repr_dict(calm_jinja_run *run, calm_jinja_buffer *to, const calm_jinja_dict *dict)
{
    CALM_TRY(calm_jinja_put_text(run, to, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        CALM_TRY(calm_jinja_put_text(run, to, i ? ", " : ""));
        CALM_TRY(calm_jinja_repr(run, to, dict->of[i].key));
        CALM_TRY(calm_jinja_put_text(run, to, ": "));
        CALM_TRY(calm_jinja_repr(run, to, dict->of[i].value));
    }
    return calm_jinja_put_text(run, to, "}");
}

static calm_status repr_value(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v)
{
    char number[48];
    switch (v.kind) {
    case CALM_JINJA_UNDEFINED:
        return calm_jinja_put_text(run, to, "Undefined");
    case CALM_JINJA_NONE:
        return calm_jinja_put_text(run, to, "None");
    case CALM_JINJA_BOOL:
        return calm_jinja_put_text(run, to, v.integer ? "True" : "False");
    case CALM_JINJA_INT:
        snprintf(number, sizeof number, "%" PRId64, v.integer);
        return calm_jinja_put_text(run, to, number);
    case CALM_JINJA_REAL:
        print_real(v.real, number);
        return calm_jinja_put_text(run, to, number);
    case CALM_JINJA_STRING:
        return repr_string(run, to, v.text);
    case CALM_JINJA_LIST:
    case CALM_JINJA_TUPLE:
        return repr_list(run, to, v);
    case CALM_JINJA_DICT:
        return repr_dict(run, to, v.dict);
    default:
        return calm_jinja_refuse(run, "printing a %s", calm_jinja_kind_name(v.kind));
    }
}

calm_status calm_jinja_repr(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v)
{
    CALM_TRY(calm_jinja_level(run));
    CALM_TRY(calm_jinja_step(run, 1));
    CALM_TRY(repr_value(run, to, v));
    run->levels--;
    return CALM_OK;
}

calm_status calm_jinja_print(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v)
{
    if (v.kind == CALM_JINJA_UNDEFINED)
        return CALM_OK;
    return calm_jinja_is_string(v) ? calm_jinja_put_string(run, to, v.text) : calm_jinja_repr(run, to, v);
}

calm_status calm_jinja_str(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    *out = v;
    if (calm_jinja_is_string(v))
        return CALM_OK;
    CALM_TRY(calm_jinja_print(run, &buffer, v));
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}
