/* Function calls in a template: arguments, operators, and the tables of filters, tests and methods. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* Tables of filters, tests, functions and methods; each ends with a row without a name. */
extern const calm_jinja_builtin calm_jinja_text_filters[], calm_jinja_list_filters[], calm_jinja_tests[],
    calm_jinja_functions[], calm_jinja_string_methods[], calm_jinja_dict_methods[], calm_jinja_list_methods[],
    calm_jinja_loop_methods[];

/* Signature of a function in these tables: a[0] is the subject, `args` are all arguments of the call. */
#define CALM_JINJA_BUILTIN(name)                                                                                       \
    static calm_status name(__attribute__((unused)) calm_jinja_run *run,                                               \
                            __attribute__((unused)) const calm_jinja_value *a,                                         \
                            __attribute__((unused)) const calm_jinja_args *args, calm_jinja_value *out)

/* Returns the row with this name; NULL: the table has none. */
const calm_jinja_builtin *calm_jinja_find_builtin(const calm_jinja_builtin *table, const char *name);

/* Calls the function of a row; `kind` ("filter") and its name appear in messages.  CALM_EFORMAT: wrong arguments.
 * CALM_EUNSUPPORTED: calm does not implement it. */
calm_status calm_jinja_invoke(calm_jinja_run *run, const char *kind, const calm_jinja_builtin *function,
                              const calm_jinja_args *args, calm_jinja_value *out);

/* Compute the arithmetic operations a OP b; -a and +a. */
calm_status calm_jinja_operate(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value b,
                               calm_jinja_value *out);
calm_status calm_jinja_negate(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value *out);

/* Compute `format` % values, a tuple or one value; format.format(args). */
calm_status calm_jinja_format_percent(calm_jinja_run *run, calm_jinja_string format, calm_jinja_value values,
                                      calm_jinja_value *out);
calm_status calm_jinja_format_braces(calm_jinja_run *run, calm_jinja_string format, const calm_jinja_args *args,
                                     calm_jinja_value *out);

/* Evaluates v.name as Jinja does: a method, else a member, else undefined. */
calm_status calm_jinja_attribute(calm_jinja_run *run, calm_jinja_value v, const char *name, calm_jinja_value *out);

/* Evaluates v[key] as Jinja does: a member, else a method. */
calm_status calm_jinja_subscript(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value key, calm_jinja_value *out);

/* Computes str.strip(): `s` without the characters of `set` (NULL bytes: white space) at its ends. */
calm_jinja_string calm_jinja_strip(calm_jinja_string s, calm_jinja_string set, bool left, bool right);

/* Counts the steps of calm_jinja_strip(), which compares each character of `s` with those of `set`. */
calm_status calm_jinja_step_strip(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string set);

/* Computes str.upper(), str.lower(), str.capitalize() or str.title().  CALM_EUNSUPPORTED: a character whose other
 * case is several characters, or depends on its position. */
typedef enum calm_jinja_case {
    CALM_JINJA_UPPER, CALM_JINJA_LOWER, CALM_JINJA_CAPITALIZE, CALM_JINJA_TITLE
} calm_jinja_case;
calm_status calm_jinja_change_case(calm_jinja_run *run, calm_jinja_string s, calm_jinja_case to, calm_jinja_value *out);

/* Computes str.replace(); count < 0: all occurrences. */
calm_status calm_jinja_replace(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string old, calm_jinja_string by,
                               int64_t count, calm_jinja_value *out);

/* Reads the next line of str.splitlines() from *at on, without its line end; false at the end. */
bool calm_jinja_next_line(calm_jinja_string s, size_t *at, calm_jinja_string *line);

/* Returns the keyword argument of this name; NULL: there is none. */
const calm_jinja_value *calm_jinja_named(const calm_jinja_args *args, const char *name);

/* Convert an argument to a type; the fallback if the argument is missing or none. */
calm_status calm_jinja_int_argument(calm_jinja_run *run, calm_jinja_value v, int64_t fallback, int64_t *out);
calm_status calm_jinja_string_argument(calm_jinja_run *run, calm_jinja_value v, const char *fallback,
                                       calm_jinja_string *out);
