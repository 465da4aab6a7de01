/* Python's arithmetic. */
#include <math.h>
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_value_ops.h"

static calm_status overflow(calm_jinja_run *run)
{
    return calm_jinja_refuse(run, "a whole number of more than 64 bits");
}

/* Computes quotient or remainder, rounded down. */
static calm_status divide(calm_jinja_run *run, int op, int64_t a, int64_t b, int64_t *out)
{
    if (b == 0)
        return calm_jinja_fail(run, "division by zero");
    if (b == -1)
        return op == '%' ? (*out = 0, CALM_OK) : __builtin_sub_overflow((int64_t)0, a, out) ? overflow(run) : CALM_OK;
    const int64_t rest = a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    *out = op == '%' ? rest + (down ? b : 0) : a / b - down;
    return CALM_OK;
}

static calm_status power(calm_jinja_run *run, int64_t base, int64_t exponent, int64_t *out)
{
    for (*out = 1; exponent > 0; exponent--) {
        if (__builtin_mul_overflow(*out, base, out))
            return overflow(run);
        if (*out == 0 || base == 1)
            break;
        if (base == -1) {
            *out = exponent % 2 ? -1 : 1;
            break;
        }
    }
    return CALM_OK;
}

static calm_status operate_whole(calm_jinja_run *run, int op, int64_t a, int64_t b, calm_jinja_value *out)
{
    int64_t result = 0;
    bool over = false;
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &result);
        break;
    case CALM_JINJA_POWER:
        CALM_TRY(power(run, a, b, &result));
        break;
    default:
        CALM_TRY(divide(run, op, a, b, &result));
    }
    *out = calm_jinja_int(result);
    return over ? overflow(run) : CALM_OK;
}

static calm_status operate_real(calm_jinja_run *run, int op, double a, double b, calm_jinja_value *out)
{
    double result;
    if ((b == 0 && (op == '/' || op == '%' || op == CALM_JINJA_FLOOR)) || (a == 0 && b < 0 && op == CALM_JINJA_POWER))
        return calm_jinja_fail(run, "division by zero");
    switch (op) {
    case '+':
        result = a + b;
        break;
    case '-':
        result = a - b;
        break;
    case '*':
        result = a * b;
        break;
    case '/':
        result = a / b;
        break;
    case CALM_JINJA_FLOOR:
        result = floor(a / b);
        break;
    case '%':
        result = fmod(a, b);
        result += result != 0 && (result < 0) != (b < 0) ? b : 0;
        break;
    default:
        result = pow(a, b);
    }
    *out = calm_jinja_real(result);
    return CALM_OK;
}

/* Appends a string with HTML characters escaped. */
static calm_status put_escaped(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_string s)
{
    static const char special[] = "&<>'\"", *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (size_t i = 0; i < s.n; i++) {
        const char *found = s.bytes[i] ? strchr(special, s.bytes[i]) : NULL;
        CALM_TRY(found ? calm_jinja_put_text(run, to, escapes[found - special])
                       : calm_jinja_put(run, to, s.bytes + i, 1));
    }
    return CALM_OK;
}

/* Concatenates strings; if one is markup, the other is escaped, as nowhere else in a chat template. */
static calm_status join(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    const bool markup = a.markup || b.markup;
    CALM_TRY(markup && !a.markup ? put_escaped(run, &buffer, a.text) : calm_jinja_put_string(run, &buffer, a.text));
    CALM_TRY(markup && !b.markup ? put_escaped(run, &buffer, b.text) : calm_jinja_put_string(run, &buffer, b.text));
    *out = calm_jinja_of_buffer(&buffer);
    out->markup = markup;
    return CALM_OK;
}

static calm_status append_all(calm_jinja_run *run, const calm_jinja_list *from, calm_jinja_list *to)
{
    for (size_t i = 0; i < from->n; i++)
        CALM_TRY(calm_jinja_append(run, to, from->of[i]));
    return CALM_OK;
}

/* Repeats a string or a list n times. */
static calm_status repeat(calm_jinja_run *run, calm_jinja_value v, int64_t n, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    if (calm_jinja_is_list(v))
        CALM_TRY(calm_jinja_new_list(run, v.kind, out));
    for (; n > 0; n--) {
        CALM_TRY(calm_jinja_step(run, 1));
        if (calm_jinja_is_list(v))
            CALM_TRY(append_all(run, v.list, out->list));
        else
            CALM_TRY(calm_jinja_put_string(run, &buffer, v.text));
    }
    if (!calm_jinja_is_list(v))
        *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

static bool repeats(calm_jinja_value v)
{
    return calm_jinja_is_string(v) || calm_jinja_is_list(v);
}

calm_status calm_jinja_operate(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value b,
                               calm_jinja_value *out)
{
    if (op == '%' && a.markup)
        return calm_jinja_refuse(run, "the operator %% on text that the filter safe gave");
    if (op == '%' && calm_jinja_is_string(a))
        return calm_jinja_format_percent(run, a.text, b, out);
    if (a.kind == CALM_JINJA_UNDEFINED || b.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, a.kind == CALM_JINJA_UNDEFINED ? a : b);
    if (calm_jinja_is_whole(a) && calm_jinja_is_whole(b) && op != '/' && !(op == CALM_JINJA_POWER && b.integer < 0))
        return operate_whole(run, op, a.integer, b.integer, out);
    if (calm_jinja_is_number(a) && calm_jinja_is_number(b))
        return operate_real(run, op, calm_jinja_number(a), calm_jinja_number(b), out);
    if (op == '+' && calm_jinja_is_string(a) && calm_jinja_is_string(b))
        return join(run, a, b, out);
    if (op == '+' && calm_jinja_is_list(a) && a.kind == b.kind) {
        CALM_TRY(calm_jinja_new_list(run, a.kind, out));
        CALM_TRY(append_all(run, a.list, out->list));
        return append_all(run, b.list, out->list);
    }
    if (op == '*' && repeats(a) && calm_jinja_is_whole(b))
        return repeat(run, a, b.integer, out);
    if (op == '*' && repeats(b) && calm_jinja_is_whole(a))
        return repeat(run, b, a.integer, out);
    return calm_jinja_fail(run, "an operator does not take a %s and a %s", calm_jinja_kind_name(a.kind),
                           calm_jinja_kind_name(b.kind));
}

calm_status calm_jinja_negate(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value *out)
{
    if (a.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, a);
    if (!calm_jinja_is_number(a))
        return calm_jinja_fail(run, "an operator does not take a %s", calm_jinja_kind_name(a.kind));
    if (a.kind == CALM_JINJA_REAL) {
        *out = calm_jinja_real(op == '-' ? -a.real : a.real);
        return CALM_OK;
    }
    return operate_whole(run, op, 0, a.integer, out);
}
