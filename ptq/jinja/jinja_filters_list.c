/* Jinja's filters of lists and dicts.  a[0] is the filtered value. */
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_print.h"
#include "ptq/jinja/jinja_value_ops.h"

#define FILTER CALM_JINJA_BUILTIN

/* ---- members by name ---- */

/* Returns whether text [n] is a number of at most nine digits, and sets *out to it. */
static bool is_index(const char *text, size_t n, int64_t *out)
{
    size_t i = 0;
    for (*out = 0; i < n && i < 9 && text[i] >= '0' && text[i] <= '9'; i++)
        *out = *out * 10 + (text[i] - '0');
    return n > 0 && i == n;
}

/* Returns the member "a.b.0" of a value; v itself without a name. */
static calm_status member_of(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value name, calm_jinja_value *out)
{
    *out = v;
    if (!calm_jinja_given(name) || name.kind == CALM_JINJA_NONE)
        return CALM_OK;
    if (calm_jinja_is_whole(name))
        return calm_jinja_subscript(run, v, name, out);
    if (!calm_jinja_is_string(name))
        return calm_jinja_fail(run, "attribute: expected a string, found a %s", calm_jinja_kind_name(name.kind));
    for (size_t at = 0; at <= name.text.n;) {
        const char *dot = memchr(name.text.bytes + at, '.', name.text.n - at);
        const size_t n = dot ? (size_t)(dot - name.text.bytes) - at : name.text.n - at;
        const char *part = name.text.bytes + at;
        int64_t index;
        CALM_TRY(calm_jinja_subscript(run, *out, is_index(part, n, &index) ? calm_jinja_int(index)
                                                                           : calm_jinja_text(part, n), out));
        at += n + 1;
    }
    return CALM_OK;
}

/* Converts strings to lower case, which Jinja sorts and compares by default. */
static calm_status fold(calm_jinja_run *run, calm_jinja_value v, bool case_sensitive, calm_jinja_value *out)
{
    *out = v;
    return case_sensitive || !calm_jinja_is_string(v) ? CALM_OK
                                                      : calm_jinja_change_case(run, v.text, CALM_JINJA_LOWER, out);
}

/* ---- one element, and lists of the same elements ---- */

FILTER(filter_first)
{
    const calm_jinja_list *list;
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    *out = list->n ? list->of[0] : calm_jinja_undefined("the first element");
    return CALM_OK;
}

FILTER(filter_last)
{
    const calm_jinja_list *list;
    if (a[0].kind == CALM_JINJA_GENERATOR)
        return calm_jinja_fail(run, "last: a generator has no end to begin at; make a list of it first");
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    *out = list->n ? list->of[list->n - 1] : calm_jinja_undefined("the last element");
    return CALM_OK;
}

FILTER(filter_list)
{
    const calm_jinja_list *list;
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = 0; i < list->n; i++)
        CALM_TRY(calm_jinja_append(run, out->list, list->of[i]));
    return CALM_OK;
}

FILTER(filter_items)
{
    calm_jinja_value pair;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_GENERATOR, out));
    if (a[0].kind == CALM_JINJA_UNDEFINED)
        return CALM_OK;
    if (a[0].kind != CALM_JINJA_DICT)
        return calm_jinja_fail(run, "items: expected a dict, found a %s", calm_jinja_kind_name(a[0].kind));
    for (size_t i = 0; i < a[0].dict->n; i++) {
        CALM_TRY(calm_jinja_new_pair(run, a[0].dict->of[i].key, a[0].dict->of[i].value, &pair));
        CALM_TRY(calm_jinja_append(run, out->list, pair));
    }
    return CALM_OK;
}

FILTER(filter_reverse)
{
    const calm_jinja_list *list;
    calm_jinja_buffer buffer = {0};
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    const bool text = calm_jinja_is_string(a[0]);
    /* Python's reversed() does not accept generators; Jinja returns a list for them. */
    if (!text)
        CALM_TRY(calm_jinja_new_list(run, a[0].kind == CALM_JINJA_GENERATOR ? CALM_JINJA_LIST : CALM_JINJA_GENERATOR,
                                     out));
    for (size_t i = list->n; i-- > 0;)
        CALM_TRY(text ? calm_jinja_put_string(run, &buffer, list->of[i].text)
                      : calm_jinja_append(run, out->list, list->of[i]));
    if (text)
        *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

FILTER(filter_join)
{
    const calm_jinja_list *list;
    calm_jinja_buffer buffer = {0};
    calm_jinja_value by, member;
    CALM_TRY(calm_jinja_str(run, a[1], &by));
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    for (size_t i = 0; i < list->n; i++) {
        CALM_TRY(member_of(run, list->of[i], a[2], &member));
        CALM_TRY(calm_jinja_put(run, &buffer, by.text.bytes, i ? by.text.n : 0));
        CALM_TRY(calm_jinja_print(run, &buffer, member));
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

FILTER(filter_sum)
{
    const calm_jinja_list *list;
    calm_jinja_value member;
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    *out = calm_jinja_given(a[2]) ? a[2] : calm_jinja_int(0);
    for (size_t i = 0; i < list->n; i++) {
        CALM_TRY(member_of(run, list->of[i], a[1], &member));
        CALM_TRY(calm_jinja_operate(run, '+', *out, member, out));
    }
    return CALM_OK;
}

/* ---- map, select, reject ---- */

/* Copies the arguments of a call behind the first `skip`, and leaves room for the subject in front. */
static calm_status rest_of(calm_jinja_run *run, const calm_jinja_args *args, size_t skip, calm_jinja_value **values,
                           calm_jinja_args *out)
{
    const size_t n = args->n > skip ? args->n - skip : 0;
    CALM_TRY(CALM_JINJA_NEW(run, *values, n + 1));
    if (n)
        memcpy(*values + 1, args->of + skip, n * sizeof **values);
    *out = (calm_jinja_args){.of = *values, .n = n + 1, .named = args->named, .names = args->names,
                             .n_named = args->n_named};
    return CALM_OK;
}

/* Returns the elements that map and select iterate over; false values, such as none, have no elements. */
static calm_status elements_of(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_list **out)
{
    return calm_jinja_elements(run, calm_jinja_truth(v) ? v : calm_jinja_undefined("nothing"), out);
}

/* Copies the name of a filter or a test, NUL-terminated. */
static calm_status read_name(calm_jinja_run *run, calm_jinja_value v, char name[64])
{
    if (!calm_jinja_is_string(v) || v.text.n >= 64)
        return calm_jinja_fail(run, "expected the name of a filter or a test");
    memcpy(name, v.text.bytes, v.text.n);
    name[v.text.n] = '\0';
    return CALM_OK;
}

/* Implements map("filter", ...) and map(attribute="name", default=...). */
FILTER(filter_map)
{
    const calm_jinja_list *list;
    const calm_jinja_value *attribute = calm_jinja_named(args, "attribute");
    const calm_jinja_value *missing = calm_jinja_named(args, "default");
    calm_jinja_value *values = NULL, one;
    calm_jinja_args call = {0};
    char name[64];
    CALM_TRY(elements_of(run, a[0], &list));
    if (!attribute && args->n < 2)
        return calm_jinja_fail(run, "map: expected the name of a filter, or attribute");
    if (!attribute) {
        CALM_TRY(read_name(run, args->of[1], name));
        CALM_TRY(rest_of(run, args, 2, &values, &call));
    }
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_GENERATOR, out));
    for (size_t i = 0; i < list->n; i++) {
        if (attribute) {
            CALM_TRY(member_of(run, list->of[i], *attribute, &one));
            if (missing && one.kind == CALM_JINJA_UNDEFINED)
                one = *missing;
        } else {
            values[0] = list->of[i];
            CALM_TRY(run->filter(run, name, &call, &one));
        }
        CALM_TRY(calm_jinja_append(run, out->list, one));
    }
    return CALM_OK;
}

/* Selects the elements for which a test is `keep`; `by_member`: tests a member, whose name is the first argument. */
static calm_status choose(calm_jinja_run *run, const calm_jinja_args *args, bool keep, bool by_member,
                          calm_jinja_value *out)
{
    const size_t first = by_member ? 2 : 1;
    const calm_jinja_list *list;
    calm_jinja_value *values, result;
    calm_jinja_args call;
    char name[64] = "";
    if (by_member && args->n < 2)
        return calm_jinja_fail(run, "selectattr, rejectattr: expected the name of a member");
    CALM_TRY(elements_of(run, args->of[0], &list));
    if (args->n > first)
        CALM_TRY(read_name(run, args->of[first], name));
    CALM_TRY(rest_of(run, args, first + 1, &values, &call));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_GENERATOR, out));
    for (size_t i = 0; i < list->n; i++) {
        values[0] = list->of[i];
        if (by_member)
            CALM_TRY(member_of(run, list->of[i], args->of[1], &values[0]));
        result = values[0];
        if (*name)
            CALM_TRY(run->test(run, name, &call, &result));
        if (calm_jinja_truth(result) == keep)
            CALM_TRY(calm_jinja_append(run, out->list, list->of[i]));
    }
    return CALM_OK;
}

CALM_JINJA_BUILTIN(filter_select) { return choose(run, args, true, false, out); }
CALM_JINJA_BUILTIN(filter_reject) { return choose(run, args, false, false, out); }
CALM_JINJA_BUILTIN(filter_selectattr) { return choose(run, args, true, true, out); }
CALM_JINJA_BUILTIN(filter_rejectattr) { return choose(run, args, false, true, out); }

/* ---- order ---- */

/* Sorts elements by a member: returns pairs of sort key and element. */
static calm_status sort_by(calm_jinja_run *run, const calm_jinja_list *list, calm_jinja_value attribute, bool sensitive,
                           bool reverse, calm_jinja_pair **pairs)
{
    CALM_TRY(CALM_JINJA_NEW(run, *pairs, list->n));
    for (size_t i = 0; i < list->n; i++) {
        calm_jinja_value member;
        CALM_TRY(member_of(run, list->of[i], attribute, &member));
        CALM_TRY(fold(run, member, sensitive, &(*pairs)[i].key));
        (*pairs)[i].value = list->of[i];
    }
    return calm_jinja_sort(run, *pairs, list->n, reverse);
}

/* Implements sort(reverse, case_sensitive, attribute). */
FILTER(filter_sort)
{
    const calm_jinja_list *list;
    calm_jinja_pair *pairs;
    if (calm_jinja_is_string(a[3]) && memchr(a[3].text.bytes, ',', a[3].text.n))
        return calm_jinja_refuse(run, "sort by several attributes");
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    CALM_TRY(sort_by(run, list, a[3], calm_jinja_truth(a[2]), calm_jinja_truth(a[1]), &pairs));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = 0; i < list->n; i++)
        CALM_TRY(calm_jinja_append(run, out->list, pairs[i].value));
    return CALM_OK;
}

/* Returns the first element in rising or falling order. */
static calm_status extreme(calm_jinja_run *run, const calm_jinja_value *a, bool largest, calm_jinja_value *out)
{
    const calm_jinja_list *list;
    calm_jinja_pair *pairs;
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    CALM_TRY(sort_by(run, list, a[2], calm_jinja_truth(a[1]), largest, &pairs));
    *out = list->n ? pairs[0].value : calm_jinja_undefined("the extreme of an empty list");
    return CALM_OK;
}

CALM_JINJA_BUILTIN(filter_min) { return extreme(run, a, false, out); }
CALM_JINJA_BUILTIN(filter_max) { return extreme(run, a, true, out); }

/* Implements dictsort(case_sensitive, by, reverse). */
FILTER(filter_dictsort)
{
    calm_jinja_string by;
    calm_jinja_pair *pairs;
    CALM_TRY(calm_jinja_string_argument(run, a[2], "key", &by));
    const bool by_value = by.n == 5 && memcmp(by.bytes, "value", 5) == 0;
    calm_jinja_value list;
    if (a[0].kind != CALM_JINJA_DICT)
        return a[0].kind == CALM_JINJA_UNDEFINED
                   ? calm_jinja_undefined_failure(run, a[0])
                   : calm_jinja_fail(run, "dictsort: expected a dict, found a %s", calm_jinja_kind_name(a[0].kind));
    CALM_TRY(filter_items(run, a, args, &list));    /* pairs */
    CALM_TRY(sort_by(run, list.list, calm_jinja_int(by_value), calm_jinja_truth(a[1]), calm_jinja_truth(a[3]), &pairs));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = 0; i < list.list->n; i++)
        CALM_TRY(calm_jinja_append(run, out->list, pairs[i].value));
    return CALM_OK;
}

/* Implements unique(case_sensitive, attribute): keeps the first of equal elements. */
FILTER(filter_unique)
{
    const calm_jinja_list *list;
    calm_jinja_value seen, member;
    bool there;
    CALM_TRY(calm_jinja_elements(run, a[0], &list));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, &seen));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_GENERATOR, out));
    for (size_t i = 0; i < list->n; i++) {
        CALM_TRY(member_of(run, list->of[i], a[2], &member));
        CALM_TRY(fold(run, member, calm_jinja_truth(a[1]), &member));
        CALM_TRY(calm_jinja_contains(run, seen, member, &there));
        if (there)
            continue;
        CALM_TRY(calm_jinja_append(run, seen.list, member));
        CALM_TRY(calm_jinja_append(run, out->list, list->of[i]));
    }
    return CALM_OK;
}

const calm_jinja_builtin calm_jinja_list_filters[] = {
    {"first", "value", filter_first}, {"last", "value", filter_last}, {"list", "value", filter_list},
    {"items", "value", filter_items}, {"reverse", "value", filter_reverse},
    {"join", "value d? attribute?", filter_join}, {"sum", "value attribute? start?", filter_sum},
    {"map", "value *", filter_map}, {"select", "value *", filter_select}, {"reject", "value *", filter_reject},
    {"selectattr", "value *", filter_selectattr}, {"rejectattr", "value *", filter_rejectattr},
    {"sort", "value reverse? case_sensitive? attribute?", filter_sort},
    {"min", "value case_sensitive? attribute?", filter_min}, {"max", "value case_sensitive? attribute?", filter_max},
    {"dictsort", "value case_sensitive? by? reverse?", filter_dictsort},
    {"unique", "value case_sensitive? attribute?", filter_unique},
    {0},
};
