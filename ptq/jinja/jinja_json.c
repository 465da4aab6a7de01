/* JSON output as Python's json.dumps writes it, and stable sorting. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/jinja/jinja_print.h"
#include "ptq/jinja/jinja_value_ops.h"
#include "ptq/text/unicode.h"

/* ---- strings ---- */

/* Writes the escape of a character; false: it needs none. */
static bool escape(uint32_t c, bool ascii, char out[16])
{
    static const char from[] = "\"\\\n\r\t\f\b", into[] = "\"\\nrtfb";
    const char *known = c && c < 128 ? strchr(from, (int)c) : NULL;
    if (known)
        snprintf(out, 16, "\\%c", into[known - from]);
    else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000))
        snprintf(out, 16, "\\u%04" PRIx32, c);
    else if (ascii && c >= 0x10000)
        snprintf(out, 16, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
    else
        return false;
    return true;
}

static calm_status dump_string(calm_jinja_run *run, calm_jinja_buffer *to, bool ascii, calm_jinja_string s)
{
    uint32_t character;
    char code[16];
    size_t plain = 0, n;
    CALM_TRY(calm_jinja_put_text(run, to, "\""));
    for (size_t at = 0; at < s.n; at += n) {
        n = calm_utf8_decode(s.bytes + at, &character);
        if (!escape(character, ascii, code))
            continue;
        CALM_TRY(calm_jinja_put(run, to, s.bytes + plain, at - plain));
        CALM_TRY(calm_jinja_put_text(run, to, code));
        plain = at + n;
    }
    CALM_TRY(calm_jinja_put(run, to, s.bytes + plain, s.n - plain));
    return calm_jinja_put_text(run, to, "\"");
}

/* ---- lists and dicts ---- */

typedef struct dumper {
    calm_jinja_run *run;
    calm_jinja_buffer *to;
    const calm_jinja_json_style *style;
    size_t depth;
} dumper;

static calm_status dump(dumper *d, calm_jinja_value v);

/* Starts a new line with the current indentation; does nothing if JSON is on one line. */
static calm_status new_line(dumper *d)
{
    if (!d->style->indented)
        return CALM_OK;
    CALM_TRY(calm_jinja_put_text(d->run, d->to, "\n"));
    for (size_t i = 0; i < d->depth; i++)
        CALM_TRY(calm_jinja_put_string(d->run, d->to, d->style->indent));
    return CALM_OK;
}

static calm_status next_element(dumper *d, size_t i)
{
    if (i)
        CALM_TRY(calm_jinja_put_string(d->run, d->to, d->style->comma));
    return new_line(d);
}

static calm_status dump_list(dumper *d, const calm_jinja_list *list)
{
    CALM_TRY(calm_jinja_put_text(d->run, d->to, "["));
    d->depth++;
    for (size_t i = 0; i < list->n; i++) {
        CALM_TRY(next_element(d, i));
        CALM_TRY(dump(d, list->of[i]));
    }
    d->depth--;
    if (list->n)
        CALM_TRY(new_line(d));
    return calm_jinja_put_text(d->run, d->to, "]");
}

/* Writes a key: numbers and constants become strings. */
static calm_status dump_key(dumper *d, calm_jinja_value key)
{
    if (calm_jinja_is_string(key))
        return dump_string(d->run, d->to, d->style->ascii, key.text);
    if (!calm_jinja_is_number(key) && key.kind != CALM_JINJA_NONE)
        return calm_jinja_fail(d->run, "tojson: a %s cannot be a key", calm_jinja_kind_name(key.kind));
    CALM_TRY(calm_jinja_put_text(d->run, d->to, "\""));
    CALM_TRY(dump(d, key));
    return calm_jinja_put_text(d->run, d->to, "\"");
}

/* Returns the members, sorted if requested. */
static calm_status members(dumper *d, const calm_jinja_dict *dict, const calm_jinja_pair **out)
{
    calm_jinja_pair *sorted;
    *out = dict->of;
    if (!d->style->sorted)
        return CALM_OK;
    CALM_TRY(CALM_JINJA_NEW(d->run, sorted, dict->n));
    if (dict->n)
        memcpy(sorted, dict->of, dict->n * sizeof *sorted);
    *out = sorted;
    return calm_jinja_sort(d->run, sorted, dict->n, false);
}

static calm_status dump_dict(dumper *d, const calm_jinja_dict *dict)
{
    const calm_jinja_pair *pairs;
    CALM_TRY(members(d, dict, &pairs));
    CALM_TRY(calm_jinja_put_text(d->run, d->to, "{"));
    d->depth++;
    for (size_t i = 0; i < dict->n; i++) {
        CALM_TRY(next_element(d, i));
        CALM_TRY(dump_key(d, pairs[i].key));
        CALM_TRY(calm_jinja_put_string(d->run, d->to, d->style->colon));
        CALM_TRY(dump(d, pairs[i].value));
    }
    d->depth--;
    if (dict->n)
        CALM_TRY(new_line(d));
    return calm_jinja_put_text(d->run, d->to, "}");
}

static calm_status dump_value(dumper *d, calm_jinja_value v)
{
    switch (v.kind) {
    case CALM_JINJA_NONE:
        return calm_jinja_put_text(d->run, d->to, "null");
    case CALM_JINJA_BOOL:
        return calm_jinja_put_text(d->run, d->to, v.integer ? "true" : "false");
    case CALM_JINJA_REAL:
        if (isnan(v.real) || isinf(v.real))
            return calm_jinja_put_text(d->run, d->to, isnan(v.real) ? "NaN" : v.real > 0 ? "Infinity" : "-Infinity");
        return calm_jinja_repr(d->run, d->to, v);
    case CALM_JINJA_INT:
        return calm_jinja_repr(d->run, d->to, v);
    case CALM_JINJA_STRING:
        return dump_string(d->run, d->to, d->style->ascii, v.text);
    case CALM_JINJA_LIST:
    case CALM_JINJA_TUPLE:
        return dump_list(d, v.list);
    case CALM_JINJA_DICT:
        return dump_dict(d, v.dict);
    default:
        return calm_jinja_fail(d->run, "tojson: a %s cannot be written as JSON", calm_jinja_kind_name(v.kind));
    }
}

static calm_status dump(dumper *d, calm_jinja_value v)
{
    CALM_TRY(calm_jinja_level(d->run));
    CALM_TRY(calm_jinja_step(d->run, 1));
    CALM_TRY(dump_value(d, v));
    d->run->levels--;
    return CALM_OK;
}

calm_status calm_jinja_dump(calm_jinja_run *run, calm_jinja_buffer *to, const calm_jinja_json_style *style,
                            calm_jinja_value v)
{
    dumper d = {.run = run, .to = to, .style = style};
    return dump(&d, v);
}

/* ---- sorting ---- */

/* Merges two sorted halves of `pairs` [n] into `to`. */
static calm_status merge(calm_jinja_run *run, const calm_jinja_pair *pairs, size_t half, size_t n, bool reverse,
                         calm_jinja_pair *to)
{
    size_t a = 0, b = half;
    for (size_t i = 0; i < n; i++) {
        int order = 0;
        if (a < half && b < n)
            CALM_TRY(calm_jinja_order(run, pairs[a].key, pairs[b].key, &order));
        else
            order = a < half ? 0 : reverse ? -1 : 1;
        to[i] = (reverse ? order >= 0 : order <= 0) ? pairs[a++] : pairs[b++];
    }
    return CALM_OK;
}

static calm_status sort(calm_jinja_run *run, calm_jinja_pair *pairs, size_t n, bool reverse, calm_jinja_pair *spare)
{
    const size_t half = n / 2;
    if (n < 2)
        return CALM_OK;
    CALM_TRY(sort(run, pairs, half, reverse, spare));
    CALM_TRY(sort(run, pairs + half, n - half, reverse, spare));
    CALM_TRY(merge(run, pairs, half, n, reverse, spare));
    memcpy(pairs, spare, n * sizeof *pairs);
    return CALM_OK;
}

calm_status calm_jinja_sort(calm_jinja_run *run, calm_jinja_pair *pairs, size_t n, bool reverse)
{
    calm_jinja_pair *spare;
    CALM_TRY(CALM_JINJA_NEW(run, spare, n));
    return sort(run, pairs, n, reverse, spare);
}
