/* Prints values of a template as text, as Python's str() and the filter tojson do. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* Appends str(v), which {{ v }} prints. */
calm_status calm_jinja_print(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v);

/* Returns str(v) as a string value; a string is returned unchanged. */
calm_status calm_jinja_str(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value *out);

/* Appends repr(v), the form in which lists and dicts print their elements. */
calm_status calm_jinja_repr(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v);

/* Options of Python's json.dumps. */
typedef struct calm_jinja_json_style {
    bool ascii, sorted;
    bool indented;
    calm_jinja_string indent;                /* indentation per level */
    calm_jinja_string comma, colon;
} calm_jinja_json_style;

/* Appends json.dumps(v). */
calm_status calm_jinja_dump(calm_jinja_run *run, calm_jinja_buffer *to, const calm_jinja_json_style *style,
                            calm_jinja_value v);

/* Sorts pairs [n] by their keys in Python's order; stable. */
calm_status calm_jinja_sort(calm_jinja_run *run, calm_jinja_pair *pairs, size_t n, bool reverse);
