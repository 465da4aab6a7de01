/* Python's methods of dicts, lists and loops, and functions.  a[0] is the subject of a method. */
#include <string.h>
#include <time.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_value_ops.h"

#define FUNCTION CALM_JINJA_BUILTIN

/* Largest number of elements of range(), as in Jinja's sandbox. */
#define RANGE_MAX 100000

/* ---- dicts ---- */

FUNCTION(dict_get)
{
    const calm_jinja_value *found;
    CALM_TRY(calm_jinja_find(run, a[0].dict, a[1], &found));
    *out = found ? *found : calm_jinja_given(a[2]) ? a[2] : calm_jinja_none();
    return CALM_OK;
}

FUNCTION(dict_items)
{
    calm_jinja_value pair;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = 0; i < a[0].dict->n; i++) {
        CALM_TRY(calm_jinja_new_pair(run, a[0].dict->of[i].key, a[0].dict->of[i].value, &pair));
        CALM_TRY(calm_jinja_append(run, out->list, pair));
    }
    return CALM_OK;
}

static calm_status list_members(calm_jinja_run *run, const calm_jinja_dict *dict, bool keys, calm_jinja_value *out)
{
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = 0; i < dict->n; i++)
        CALM_TRY(calm_jinja_append(run, out->list, keys ? dict->of[i].key : dict->of[i].value));
    return CALM_OK;
}

CALM_JINJA_BUILTIN(dict_keys) { return list_members(run, a[0].dict, true, out); }
CALM_JINJA_BUILTIN(dict_values) { return list_members(run, a[0].dict, false, out); }

/* Stores the members of a dict, or of a list of pairs, in `to`. */
static calm_status update(calm_jinja_run *run, calm_jinja_value from, calm_jinja_dict *to)
{
    const calm_jinja_list *list;
    if (from.kind == CALM_JINJA_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            CALM_TRY(calm_jinja_store(run, to, from.dict->of[i].key, from.dict->of[i].value));
        return CALM_OK;
    }
    CALM_TRY(calm_jinja_elements(run, from, &list));
    for (size_t i = 0; i < list->n; i++) {
        const calm_jinja_value pair = list->of[i];
        if (!calm_jinja_is_list(pair) || pair.list->n != 2)
            return calm_jinja_fail(run, "dict: expected pairs of a key and a value");
        CALM_TRY(calm_jinja_store(run, to, pair.list->of[0], pair.list->of[1]));
    }
    return CALM_OK;
}

/* Implements dict(from, name=value, ...) and namespace(...). */
static calm_status build(calm_jinja_run *run, const calm_jinja_args *args, calm_jinja_kind kind, calm_jinja_value *out)
{
    if (args->n > 1)
        return calm_jinja_fail(run, "dict and namespace take one value without a name");
    CALM_TRY(calm_jinja_new_dict(run, kind, out));
    if (args->n)
        CALM_TRY(update(run, args->of[0], out->dict));
    for (size_t i = 0; i < args->n_named; i++)
        CALM_TRY(calm_jinja_store(run, out->dict, calm_jinja_text(args->names[i], strlen(args->names[i])),
                                  args->named[i]));
    return CALM_OK;
}

FUNCTION(dict_copy)
{
    CALM_TRY(calm_jinja_new_dict(run, CALM_JINJA_DICT, out));
    return update(run, a[0], out->dict);
}

/* As in transformers' sandbox, methods that change a list or a dict are refused. */
FUNCTION(changes)
{
    (void)out;
    return calm_jinja_fail(run, "a method that changes a list or a dict: transformers' sandbox refuses it too");
}

const calm_jinja_builtin calm_jinja_dict_methods[] = {
    {"get", "self key default?", dict_get}, {"items", "self", dict_items}, {"keys", "self", dict_keys},
    {"values", "self", dict_values}, {"copy", "self", dict_copy}, {"pop", "self *", changes},
    {"popitem", "self *", changes}, {"clear", "self *", changes}, {"update", "self *", changes},
    {"setdefault", "self *", changes}, {"fromkeys", NULL, NULL},
    {0},
};

/* ---- lists ---- */

FUNCTION(list_count)
{
    bool equal;
    *out = calm_jinja_int(0);
    for (size_t i = 0; i < a[0].list->n; i++) {
        CALM_TRY(calm_jinja_equal(run, a[0].list->of[i], a[1], &equal));
        out->integer += equal;
    }
    return CALM_OK;
}

FUNCTION(list_index)
{
    bool equal = false;
    for (size_t i = 0; i < a[0].list->n; i++) {
        CALM_TRY(calm_jinja_equal(run, a[0].list->of[i], a[1], &equal));
        *out = calm_jinja_int((int64_t)i);
        if (equal)
            return CALM_OK;
    }
    return calm_jinja_fail(run, "index: the value is not in the list");
}

FUNCTION(list_copy)
{
    *out = a[0];    /* lists never change     */
    return CALM_OK;
}

const calm_jinja_builtin calm_jinja_list_methods[] = {
    {"count", "self value", list_count}, {"index", "self value", list_index}, {"copy", "self", list_copy},
    {"append", "self *", changes}, {"extend", "self *", changes}, {"insert", "self *", changes},
    {"pop", "self *", changes}, {"remove", "self *", changes}, {"clear", "self *", changes},
    {"sort", "self *", changes}, {"reverse", "self *", changes},
    {0},
};

/* ---- loops ---- */

FUNCTION(loop_cycle)
{
    if (args->n < 2)
        return calm_jinja_fail(run, "loop.cycle: no values");
    *out = args->of[1 + a[0].loop->index % (args->n - 1)];
    return CALM_OK;
}

FUNCTION(loop_changed)
{
    calm_jinja_value values;
    bool equal = false;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_TUPLE, &values));
    for (size_t i = 1; i < args->n; i++)
        CALM_TRY(calm_jinja_append(run, values.list, args->of[i]));
    if (calm_jinja_given(a[0].loop->changed))
        CALM_TRY(calm_jinja_equal(run, a[0].loop->changed, values, &equal));
    a[0].loop->changed = values;
    *out = calm_jinja_bool(!equal);
    return CALM_OK;
}

const calm_jinja_builtin calm_jinja_loop_methods[] = {
    {"cycle", "self *", loop_cycle}, {"changed", "self *", loop_changed},
    {0},
};

/* ---- functions ---- */

FUNCTION(make_range)
{
    int64_t start, stop, step;
    const bool one = !calm_jinja_given(a[1]);
    CALM_TRY(calm_jinja_int_argument(run, a[one ? 1 : 0], 0, &start));
    CALM_TRY(calm_jinja_int_argument(run, a[one ? 0 : 1], 0, &stop));
    CALM_TRY(calm_jinja_int_argument(run, a[2], 1, &step));
    if (step == 0)
        return calm_jinja_fail(run, "range: the step is 0");
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (out->list->n == RANGE_MAX)
            return calm_jinja_fail(run, "range: more than %d numbers", RANGE_MAX);
        CALM_TRY(calm_jinja_append(run, out->list, calm_jinja_int(i)));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return CALM_OK;
}

CALM_JINJA_BUILTIN(make_dict) { return build(run, args, CALM_JINJA_DICT, out); }
CALM_JINJA_BUILTIN(make_namespace) { return build(run, args, CALM_JINJA_NAMESPACE, out); }

FUNCTION(raise_exception)
{
    (void)out;
    const bool text = calm_jinja_is_string(a[0]);
    return calm_jinja_fail(run, "the template refuses the chat: %.*s", text ? (int)calm_size_min(a[0].text.n, 400) : 0,
                           text ? a[0].text.bytes : "");
}

/* Uses a fixed day, so that all runs render the same text: the default day of Llama 3's templates. */
FUNCTION(strftime_now)
{
    const struct tm day = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 12, .tm_wday = 5, .tm_yday = 207};
    char format[128], text[512];
    calm_jinja_buffer buffer = {0};
    calm_jinja_string given;
    CALM_TRY(calm_jinja_string_argument(run, a[0], "", &given));
    if (given.n + 1 > sizeof format)
        return calm_jinja_fail(run, "strftime_now: a format of more than %zu bytes", sizeof format - 1);
    memcpy(format, given.bytes, given.n);
    format[given.n] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t n = strftime(text, sizeof text, format, &day);
#pragma GCC diagnostic pop
    CALM_TRY(calm_jinja_put(run, &buffer, text, n));
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

const calm_jinja_builtin calm_jinja_functions[] = {
    {"range", "start stop? step?", make_range}, {"dict", "*", make_dict}, {"namespace", "*", make_namespace},
    {"raise_exception", "message", raise_exception}, {"strftime_now", "format", strftime_now},
    {"lipsum", NULL, NULL}, {"cycler", NULL, NULL}, {"joiner", NULL, NULL},
    {0},
};
