/* Values: truth, order, members, slices. */
#include <math.h>
#include <string.h>

#include "ptq/jinja/jinja_value_ops.h"
#include "ptq/text/unicode.h"

const char *calm_jinja_kind_name(calm_jinja_kind kind)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "list", "tuple",
                                        "generator", "dict", "Namespace", "Macro", "function", "method", "LoopContext"};
    return names[kind];
}

calm_jinja_value calm_jinja_undefined(const char *name)
{
    return (calm_jinja_value){.kind = CALM_JINJA_UNDEFINED, .text = {name, strlen(name)}};
}

calm_status calm_jinja_undefined_failure(calm_jinja_run *run, calm_jinja_value v)
{
    return calm_jinja_fail(run, "'%.100s' is undefined", v.text.bytes ? v.text.bytes : "argument");
}

bool calm_jinja_truth(calm_jinja_value v)
{
    switch (v.kind) {
    case CALM_JINJA_UNDEFINED:
    case CALM_JINJA_NONE:
        return false;
    case CALM_JINJA_BOOL:
    case CALM_JINJA_INT:
        return v.integer != 0;
    case CALM_JINJA_REAL:
        return v.real != 0;
    case CALM_JINJA_STRING:
        return v.text.n != 0;
    case CALM_JINJA_LIST:
    case CALM_JINJA_TUPLE:
        return v.list->n != 0;
    case CALM_JINJA_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

/* ---- equality and order ---- */

static bool equal_text(calm_jinja_string a, calm_jinja_string b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.bytes, b.bytes, a.n) == 0);
}

static int order_numbers(calm_jinja_value a, calm_jinja_value b)
{
    if (calm_jinja_is_whole(a) && calm_jinja_is_whole(b))
        return (a.integer > b.integer) - (a.integer < b.integer);
    const double x = calm_jinja_number(a), y = calm_jinja_number(b);
    return (x > y) - (x < y);
}

static calm_status equal_lists(calm_jinja_run *run, const calm_jinja_list *a, const calm_jinja_list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        CALM_TRY(calm_jinja_equal(run, a->of[i], b->of[i], out));
    return CALM_OK;
}

static calm_status equal_dicts(calm_jinja_run *run, const calm_jinja_dict *a, const calm_jinja_dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const calm_jinja_value *other;
        CALM_TRY(calm_jinja_find(run, b, a->of[i].key, &other));
        *out = other != NULL;
        if (other)
            CALM_TRY(calm_jinja_equal(run, a->of[i].value, *other, out));
    }
    return CALM_OK;
}

static calm_status equal_contents(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, bool *out)
{
    CALM_TRY(calm_jinja_level(run));
    CALM_TRY(a.kind == CALM_JINJA_DICT ? equal_dicts(run, a.dict, b.dict, out) : equal_lists(run, a.list, b.list, out));
    run->levels--;
    return CALM_OK;
}

calm_status calm_jinja_equal(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, bool *out)
{
    CALM_TRY(calm_jinja_step(run, 1));
    if (calm_jinja_is_number(a) && calm_jinja_is_number(b)) {
        *out = order_numbers(a, b) == 0 && !isnan(calm_jinja_number(a)) && !isnan(calm_jinja_number(b));
        return CALM_OK;
    }
    *out = a.kind == b.kind;
    if (!*out || a.kind == CALM_JINJA_NONE || a.kind == CALM_JINJA_UNDEFINED)
        return CALM_OK;
    if (a.kind == CALM_JINJA_DICT || calm_jinja_is_list(a))
        return equal_contents(run, a, b, out);
    /* Other kinds are equal if they are the same object. */
    *out = calm_jinja_is_string(a) ? equal_text(a.text, b.text) : a.dict == b.dict;
    return CALM_OK;
}

static int order_text(calm_jinja_string a, calm_jinja_string b)
{
    const size_t n = calm_size_min(a.n, b.n);
    const int order = n ? memcmp(a.bytes, b.bytes, n) : 0;    /* the byte order of UTF-8 is that of its characters */
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static calm_status order_lists(calm_jinja_run *run, const calm_jinja_list *a, const calm_jinja_list *b, int *out)
{
    bool equal = true;
    CALM_TRY(calm_jinja_level(run));
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        CALM_TRY(calm_jinja_equal(run, a->of[i], b->of[i], &equal));
        if (!equal) {
            run->levels--;
            return calm_jinja_order(run, a->of[i], b->of[i], out);
        }
    }
    run->levels--;
    *out = (a->n > b->n) - (a->n < b->n);
    return CALM_OK;
}

calm_status calm_jinja_order(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, int *out)
{
    CALM_TRY(calm_jinja_step(run, 1));
    if (calm_jinja_is_number(a) && calm_jinja_is_number(b))
        *out = order_numbers(a, b);
    else if (calm_jinja_is_string(a) && calm_jinja_is_string(b))
        *out = order_text(a.text, b.text);
    else if (calm_jinja_is_list(a) && a.kind == b.kind)
        return order_lists(run, a.list, b.list, out);
    else if (a.kind == CALM_JINJA_UNDEFINED || b.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, a.kind == CALM_JINJA_UNDEFINED ? a : b);
    else
        return calm_jinja_fail(run, "a %s and a %s have no order", calm_jinja_kind_name(a.kind),
                               calm_jinja_kind_name(b.kind));
    return CALM_OK;
}

/* ---- members ---- */

/* Returns whether a value may be a key: Python's lists and dicts are not hashable. */
static bool may_be_key(calm_jinja_value key)
{
    return key.kind != CALM_JINJA_LIST && key.kind != CALM_JINJA_DICT;
}

calm_status calm_jinja_find(calm_jinja_run *run, const calm_jinja_dict *dict, calm_jinja_value key,
                            const calm_jinja_value **out)
{
    *out = NULL;
    if (!may_be_key(key))
        return calm_jinja_fail(run, "a %s cannot be a key", calm_jinja_kind_name(key.kind));
    CALM_TRY(calm_jinja_step(run, 1 + dict->n / 8));
    for (size_t i = 0; i < dict->n && !*out; i++) {
        bool same = false;
        if (calm_jinja_is_string(key))
            same = calm_jinja_is_string(dict->of[i].key) && equal_text(key.text, dict->of[i].key.text);
        else
            CALM_TRY(calm_jinja_equal(run, key, dict->of[i].key, &same));
        *out = same ? &dict->of[i].value : NULL;
    }
    return CALM_OK;
}

calm_status calm_jinja_store(calm_jinja_run *run, calm_jinja_dict *dict, calm_jinja_value key, calm_jinja_value value)
{
    const calm_jinja_value *there;
    CALM_TRY(calm_jinja_find(run, dict, key, &there));
    if (!there)
        return calm_jinja_put_pair(run, dict, key, value);
    for (size_t i = 0; i < dict->n; i++)
        if (&dict->of[i].value == there)
            dict->of[i].value = value;
    return CALM_OK;
}

calm_status calm_jinja_contains(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value item, bool *out)
{
    *out = false;
    if (v.kind == CALM_JINJA_UNDEFINED)
        return CALM_OK;
    if (v.kind == CALM_JINJA_DICT) {
        const calm_jinja_value *found;
        CALM_TRY(calm_jinja_find(run, v.dict, item, &found));
        *out = found != NULL;
        return CALM_OK;
    }
    if (calm_jinja_is_string(v)) {
        if (!calm_jinja_is_string(item))
            return calm_jinja_fail(run, "'in' a string: expected a string, found a %s",
                                   calm_jinja_kind_name(item.kind));
        CALM_TRY(calm_jinja_step_bytes(run, v.text.n));
        *out = item.text.n == 0 || memmem(v.text.bytes, v.text.n, item.text.bytes, item.text.n);
        return CALM_OK;
    }
    const calm_jinja_list *list;
    CALM_TRY(calm_jinja_elements(run, v, &list));
    for (size_t i = 0; i < list->n && !*out; i++)
        CALM_TRY(calm_jinja_equal(run, list->of[i], item, out));
    return CALM_OK;
}

/* ---- elements ---- */

static calm_status characters(calm_jinja_run *run, calm_jinja_string s, calm_jinja_list *to)
{
    uint32_t character;
    for (size_t at = 0, length; at < s.n; at += length) {
        length = calm_utf8_decode(s.bytes + at, &character);
        CALM_TRY(calm_jinja_append(run, to, calm_jinja_text(s.bytes + at, length)));
    }
    return CALM_OK;
}

calm_status calm_jinja_elements(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_list **out)
{
    calm_jinja_value list;
    if (calm_jinja_is_list(v)) {
        *out = v.list;
        return CALM_OK;
    }
    if (v.kind != CALM_JINJA_DICT && v.kind != CALM_JINJA_STRING && v.kind != CALM_JINJA_UNDEFINED &&
        v.kind != CALM_JINJA_GENERATOR)
        return calm_jinja_fail(run, "a %s cannot be iterated over", calm_jinja_kind_name(v.kind));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, &list));
    *out = list.list;
    if (v.kind == CALM_JINJA_GENERATOR) {    /* the generator is empty afterwards */
        *list.list = *v.list;
        *v.list = (calm_jinja_list){0};
        return CALM_OK;
    }
    if (v.kind == CALM_JINJA_STRING)
        return characters(run, v.text, list.list);
    for (size_t i = 0; v.kind == CALM_JINJA_DICT && i < v.dict->n; i++)
        CALM_TRY(calm_jinja_append(run, list.list, v.dict->of[i].key));
    return CALM_OK;
}

calm_status calm_jinja_length(calm_jinja_run *run, calm_jinja_value v, size_t *out)
{
    *out = 0;
    if (calm_jinja_is_string(v)) {
        CALM_TRY(calm_jinja_step_bytes(run, v.text.n));
        *out = calm_utf8_count(v.text.bytes, v.text.n);
    } else if (calm_jinja_is_list(v)) {
        *out = v.list->n;
    } else if (v.kind == CALM_JINJA_DICT) {
        *out = v.dict->n;
    } else if (v.kind != CALM_JINJA_UNDEFINED) {
        return calm_jinja_fail(run, "a %s has no length", calm_jinja_kind_name(v.kind));
    }
    return CALM_OK;
}

/* Returns the byte offset of the character `index` of a string. */
static size_t offset_of(calm_jinja_string s, size_t index)
{
    size_t at = 0;
    uint32_t character;
    for (; index && at < s.n; index--)
        at += calm_utf8_decode(s.bytes + at, &character);
    return at;
}

/* Finds element `index` (negative: from the end) of a list or a string; out of range: *out stays. */
static calm_status item_at(calm_jinja_run *run, calm_jinja_value v, int64_t index, calm_jinja_value *out)
{
    size_t n;
    uint32_t character;
    CALM_TRY(calm_jinja_length(run, v, &n));
    if (index < 0)
        index += (int64_t)n;
    if (index < 0 || index >= (int64_t)n)
        return CALM_OK;
    if (calm_jinja_is_list(v)) {
        *out = v.list->of[index];
        return CALM_OK;
    }
    const char *at = v.text.bytes + offset_of(v.text, (size_t)index);
    *out = calm_jinja_text(at, calm_utf8_decode(at, &character));
    return CALM_OK;
}

calm_status calm_jinja_item(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value key, calm_jinja_value *out)
{
    *out = calm_jinja_undefined("element");
    if (calm_jinja_is_string(key)) {    /* name of the undefined value            */
        char *name;
        CALM_TRY(CALM_JINJA_NEW(run, name, key.text.n + 1));
        memcpy(name, key.text.bytes, key.text.n);
        name[key.text.n] = '\0';
        *out = calm_jinja_undefined(name);
    }
    if (v.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, v);
    if ((v.kind == CALM_JINJA_DICT || v.kind == CALM_JINJA_NAMESPACE) && may_be_key(key)) {
        const calm_jinja_value *found;
        CALM_TRY(calm_jinja_find(run, v.dict, key, &found));
        *out = found ? *found : *out;
        return CALM_OK;
    }
    if ((calm_jinja_is_list(v) || calm_jinja_is_string(v)) && calm_jinja_is_whole(key))
        return item_at(run, v, key.integer, out);
    return CALM_OK;
}

/* ---- slices ---- */

/* Clamps a part of a slice to low .. high, as Python does. */
static calm_status slice_part(calm_jinja_run *run, calm_jinja_value v, int64_t n, int64_t low, int64_t high,
                              int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (!calm_jinja_given(v) || v.kind == CALM_JINJA_NONE)
        return CALM_OK;
    if (!calm_jinja_is_whole(v))
        return calm_jinja_fail(run, "a slice: expected whole numbers, found a %s", calm_jinja_kind_name(v.kind));
    int64_t at = v.integer < 0 ? (v.integer < -n ? low : v.integer + n) : v.integer;
    *out = at < low ? low : at > high ? high : at;
    return CALM_OK;
}

static calm_status slice_step(calm_jinja_run *run, calm_jinja_value v, int64_t *out)
{
    *out = 1;
    if (!calm_jinja_given(v) || v.kind == CALM_JINJA_NONE)
        return CALM_OK;
    if (!calm_jinja_is_whole(v) || v.integer == 0 || v.integer == INT64_MIN)
        return calm_jinja_fail(run, "the step of a slice: expected a whole number that is not 0");
    *out = v.integer;
    return CALM_OK;
}

static calm_status slice_list(calm_jinja_run *run, const calm_jinja_list *from, int64_t start, int64_t stop,
                              int64_t step, calm_jinja_list *to)
{
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        CALM_TRY(calm_jinja_append(run, to, from->of[i]));
        if (step > (int64_t)from->n || -step > (int64_t)from->n)    /* the next index is out of range, and i must
                                                                     * not overflow */
            break;
    }
    return CALM_OK;
}

/* Concatenates the characters of a string. */
static calm_status join_characters(calm_jinja_run *run, const calm_jinja_list *list, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    for (size_t i = 0; i < list->n; i++)
        CALM_TRY(calm_jinja_put_string(run, &buffer, list->of[i].text));
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

calm_status calm_jinja_slice(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_value parts[3],
                             calm_jinja_value *out)
{
    const calm_jinja_list *from;
    calm_jinja_value list;
    size_t length;
    int64_t start, stop, step;
    if (v.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, v);
    if (!calm_jinja_is_list(v) && !calm_jinja_is_string(v))
        return calm_jinja_fail(run, "a %s has no slices", calm_jinja_kind_name(v.kind));
    CALM_TRY(calm_jinja_length(run, v, &length));
    const int64_t n = (int64_t)length;
    CALM_TRY(slice_step(run, parts[2], &step));
    CALM_TRY(slice_part(run, parts[0], n, step < 0 ? -1 : 0, step < 0 ? n - 1 : n, step < 0 ? n - 1 : 0, &start));
    CALM_TRY(slice_part(run, parts[1], n, step < 0 ? -1 : 0, step < 0 ? n - 1 : n, step < 0 ? -1 : n, &stop));
    if (calm_jinja_is_string(v) && step == 1) {
        const size_t first = offset_of(v.text, (size_t)start), last = offset_of(v.text, (size_t)(stop > start ? stop
                                                                                                             : start));
        *out = calm_jinja_text(v.text.bytes + first, last - first);
        return CALM_OK;
    }
    CALM_TRY(calm_jinja_elements(run, v, &from));
    CALM_TRY(calm_jinja_new_list(run, v.kind == CALM_JINJA_TUPLE ? CALM_JINJA_TUPLE : CALM_JINJA_LIST, &list));
    CALM_TRY(slice_list(run, from, start, stop, step, list.list));
    *out = list;
    return calm_jinja_is_string(v) ? join_characters(run, list.list, out) : CALM_OK;
}
