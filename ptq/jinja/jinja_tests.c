/* Jinja's tests.  a[0] is the tested value. */
#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_value_ops.h"

#define TEST_OF CALM_JINJA_BUILTIN

/* Defines a test that only depends on the kind of value. */
#define IS(name, condition)                                                                                            \
    TEST_OF(name)                                                                                                      \
    {                                                                                                                  \
        const calm_jinja_value v = a[0];                                                                               \
        *out = calm_jinja_bool(condition);                                                                             \
        return CALM_OK;                                                                                                \
    }

IS(is_defined, v.kind != CALM_JINJA_UNDEFINED)
IS(is_undefined, v.kind == CALM_JINJA_UNDEFINED)
IS(is_none, v.kind == CALM_JINJA_NONE)
IS(is_string, v.kind == CALM_JINJA_STRING)
IS(is_mapping, v.kind == CALM_JINJA_DICT)
IS(is_number, calm_jinja_is_number(v))
IS(is_integer, v.kind == CALM_JINJA_INT)
IS(is_float, v.kind == CALM_JINJA_REAL)
IS(is_boolean, v.kind == CALM_JINJA_BOOL)
IS(is_true, v.kind == CALM_JINJA_BOOL && v.integer)
IS(is_false, v.kind == CALM_JINJA_BOOL && !v.integer)
IS(is_callable, v.kind == CALM_JINJA_MACRO || v.kind == CALM_JINJA_FUNCTION || v.kind == CALM_JINJA_METHOD)
/* Kinds that Python's len() and iter() accept; an undefined value is an empty list to both. */
IS(is_sequence, calm_jinja_is_string(v) || calm_jinja_is_list(v) || v.kind == CALM_JINJA_DICT ||
                    v.kind == CALM_JINJA_UNDEFINED)
IS(is_iterable, calm_jinja_is_string(v) || calm_jinja_is_list(v) || v.kind == CALM_JINJA_DICT ||
                    v.kind == CALM_JINJA_UNDEFINED || v.kind == CALM_JINJA_GENERATOR)

/* Tests whether the order of a[0] and a[1] is in low .. high. */
static calm_status compare(calm_jinja_run *run, const calm_jinja_value *a, int low, int high, calm_jinja_value *out)
{
    int order;
    CALM_TRY(calm_jinja_order(run, a[0], a[1], &order));
    *out = calm_jinja_bool(order >= low && order <= high);
    return CALM_OK;
}

TEST_OF(is_equal)
{
    bool equal;
    CALM_TRY(calm_jinja_equal(run, a[0], a[1], &equal));
    *out = calm_jinja_bool(equal);
    return CALM_OK;
}

TEST_OF(is_different)
{
    CALM_TRY(is_equal(run, a, args, out));
    out->integer = !out->integer;
    return CALM_OK;
}

CALM_JINJA_BUILTIN(is_less) { return compare(run, a, INT32_MIN, -1, out); }
CALM_JINJA_BUILTIN(is_less_or_equal) { return compare(run, a, INT32_MIN, 0, out); }
CALM_JINJA_BUILTIN(is_greater) { return compare(run, a, 1, INT32_MAX, out); }
CALM_JINJA_BUILTIN(is_greater_or_equal) { return compare(run, a, 0, INT32_MAX, out); }

TEST_OF(is_in)
{
    bool there;
    CALM_TRY(calm_jinja_contains(run, a[1], a[0], &there));
    *out = calm_jinja_bool(there);
    return CALM_OK;
}

/* Tests whether v % by equals `rest`. */
static calm_status divides(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value by, int64_t rest,
                           calm_jinja_value *out)
{
    calm_jinja_value found;
    bool equal;
    CALM_TRY(calm_jinja_operate(run, '%', v, by, &found));
    CALM_TRY(calm_jinja_equal(run, found, calm_jinja_int(rest), &equal));
    *out = calm_jinja_bool(equal);
    return CALM_OK;
}

CALM_JINJA_BUILTIN(is_odd) { return divides(run, a[0], calm_jinja_int(2), 1, out); }
CALM_JINJA_BUILTIN(is_even) { return divides(run, a[0], calm_jinja_int(2), 0, out); }
CALM_JINJA_BUILTIN(is_divisible) { return divides(run, a[0], a[1], 0, out); }

/* Implements str(v).islower() and isupper() by the methods of strings. */
static calm_status has_case(calm_jinja_run *run, const calm_jinja_value *a, const char *method, calm_jinja_value *out)
{
    const calm_jinja_args args = {.of = a, .n = 1};
    if (!calm_jinja_is_string(a[0]))
        return calm_jinja_refuse(run, "the test for the case of a %s", calm_jinja_kind_name(a[0].kind));
    return calm_jinja_invoke(run, "method", calm_jinja_find_builtin(calm_jinja_string_methods, method), &args, out);
}

CALM_JINJA_BUILTIN(is_lower) { return has_case(run, a, "islower", out); }
CALM_JINJA_BUILTIN(is_upper) { return has_case(run, a, "isupper", out); }

const calm_jinja_builtin calm_jinja_tests[] = {
    {"defined", "value", is_defined}, {"undefined", "value", is_undefined}, {"none", "value", is_none},
    {"string", "value", is_string}, {"mapping", "value", is_mapping}, {"number", "value", is_number},
    {"integer", "value", is_integer}, {"float", "value", is_float}, {"boolean", "value", is_boolean},
    {"true", "value", is_true}, {"false", "value", is_false}, {"callable", "value", is_callable},
    {"sequence", "value", is_sequence}, {"iterable", "value", is_iterable},
    {"eq", "value other", is_equal}, {"equalto", "value other", is_equal}, {"==", "value other", is_equal},
    {"ne", "value other", is_different}, {"!=", "value other", is_different},
    {"lt", "value other", is_less}, {"lessthan", "value other", is_less}, {"<", "value other", is_less},
    {"le", "value other", is_less_or_equal}, {"<=", "value other", is_less_or_equal},
    {"gt", "value other", is_greater}, {"greaterthan", "value other", is_greater}, {">", "value other", is_greater},
    {"ge", "value other", is_greater_or_equal}, {">=", "value other", is_greater_or_equal},
    {"in", "value seq", is_in}, {"odd", "value", is_odd}, {"even", "value", is_even},
    {"divisibleby", "value num", is_divisible}, {"lower", "value", is_lower}, {"upper", "value", is_upper},
    {"sameas", NULL, NULL}, {"escaped", NULL, NULL}, {"filter", NULL, NULL}, {"test", NULL, NULL},
    {0},
};
