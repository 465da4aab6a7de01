/* Prints values of a template as text, as Python's str() and the filter tojson do. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* Append str(v): what {{ v }} prints. */
calm_status calm_jinja_print(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v);

/* The same as a string value; a string is itself. */
calm_status calm_jinja_str(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value *out);

/* Append repr(v), as lists and dicts print what they hold. */
calm_status calm_jinja_repr(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_value v);

/* How JSON is written, as the options of Python's json.dumps say. */
typedef struct calm_jinja_json_style {
    bool ascii, sorted;
    bool indented;
    calm_jinja_string indent;                /* of one level */
    calm_jinja_string comma, colon;
} calm_jinja_json_style;

/* Append json.dumps(v). */
calm_status calm_jinja_dump(calm_jinja_run *run, calm_jinja_buffer *to, const calm_jinja_json_style *style,
                            calm_jinja_value v);

/* Sort pairs [n] by their keys in the order of Python; equal ones stay as they are. */
calm_status calm_jinja_sort(calm_jinja_run *run, calm_jinja_pair *pairs, size_t n, bool reverse);
