/* Evaluates the expressions of a template. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* Evaluates an expression. */
calm_status calm_jinja_eval(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out);

/* Applies a chain of filters to `body`; the innermost filter has no operand. */
calm_status calm_jinja_filter_body(calm_jinja_run *run, const calm_jinja_node *filters, calm_jinja_value body,
                                   calm_jinja_value *out);

/* Implementations of run->filter and run->test, which lower layers call. */
calm_status calm_jinja_call_filter(calm_jinja_run *run, const char *name, const calm_jinja_args *args,
                                   calm_jinja_value *out);
calm_status calm_jinja_call_test(calm_jinja_run *run, const char *name, const calm_jinja_args *args,
                                 calm_jinja_value *out);
