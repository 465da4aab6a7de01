/* Function calls in a template: arguments, operators, and the tables of filters, tests and methods. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* Filters, tests, functions and methods; each ends with a row without a name. */
extern const calm_jinja_builtin calm_jinja_text_filters[], calm_jinja_list_filters[], calm_jinja_tests[],
    calm_jinja_functions[], calm_jinja_string_methods[], calm_jinja_dict_methods[], calm_jinja_list_methods[],
    calm_jinja_loop_methods[];

/* The head of a function of these tables: a[0] is the subject, `args` all arguments as they were given. */
#define CALM_JINJA_BUILTIN(name)                                                                                       \
    static calm_status name(__attribute__((unused)) calm_jinja_run *run,                                               \
                            __attribute__((unused)) const calm_jinja_value *a,                                         \
                            __attribute__((unused)) const calm_jinja_args *args, calm_jinja_value *out)

/* The row of a name; NULL when the table has none. */
const calm_jinja_builtin *calm_jinja_find_builtin(const calm_jinja_builtin *table, const char *name);

/* Call a row: `kind` ("filter") and its name stand in messages.  CALM_EFORMAT: arguments that it does not take.
 * CALM_EUNSUPPORTED: calm does not have it. */
calm_status calm_jinja_invoke(calm_jinja_run *run, const char *kind, const calm_jinja_builtin *function,
                              const calm_jinja_args *args, calm_jinja_value *out);

/* a OP b of arithmetic, and -a, +a. */
calm_status calm_jinja_operate(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value b,
                               calm_jinja_value *out);
calm_status calm_jinja_negate(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value *out);

/* `format` % values, a tuple or one value; format.format(args). */
calm_status calm_jinja_format_percent(calm_jinja_run *run, calm_jinja_string format, calm_jinja_value values,
                                      calm_jinja_value *out);
calm_status calm_jinja_format_braces(calm_jinja_run *run, calm_jinja_string format, const calm_jinja_args *args,
                                     calm_jinja_value *out);

/* v.name as Jinja finds it: a method, or a member; undefined when there is neither. */
calm_status calm_jinja_attribute(calm_jinja_run *run, calm_jinja_value v, const char *name, calm_jinja_value *out);

/* v[key] as Jinja finds it: a member, or a method. */
calm_status calm_jinja_subscript(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value key, calm_jinja_value *out);

/* str.strip(): `s` without the characters `set` (NULL bytes: white space) at its ends. */
calm_jinja_string calm_jinja_strip(calm_jinja_string s, calm_jinja_string set, bool left, bool right);

/* str.upper(), str.lower(), and of a title the words' first characters.  CALM_EUNSUPPORTED: a character whose other
 * case is several characters, or depends on its place. */
typedef enum calm_jinja_case {
    CALM_JINJA_UPPER, CALM_JINJA_LOWER, CALM_JINJA_CAPITALIZE, CALM_JINJA_TITLE
} calm_jinja_case;
calm_status calm_jinja_change_case(calm_jinja_run *run, calm_jinja_string s, calm_jinja_case to, calm_jinja_value *out);

/* str.replace(); count < 0: all. */
calm_status calm_jinja_replace(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string old, calm_jinja_string by,
                               int64_t count, calm_jinja_value *out);

/* str.splitlines() without ends of lines: the next line from *at on, false at the end. */
bool calm_jinja_next_line(calm_jinja_string s, size_t *at, calm_jinja_string *line);

/* The argument that is given by this name; NULL: none is. */
const calm_jinja_value *calm_jinja_named(const calm_jinja_args *args, const char *name);

/* An argument of a type, or the fallback where it is not given or none. */
calm_status calm_jinja_int_argument(calm_jinja_run *run, calm_jinja_value v, int64_t fallback, int64_t *out);
calm_status calm_jinja_string_argument(calm_jinja_run *run, calm_jinja_value v, const char *fallback,
                                       calm_jinja_string *out);
