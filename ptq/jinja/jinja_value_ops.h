/* Operations on values of any kind: truth, order, members. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* Returns Python's name of a kind ("str"). */
const char *calm_jinja_kind_name(calm_jinja_kind kind);

/* Fails with "NAME is undefined", for operations that an undefined value does not support. */
calm_status calm_jinja_undefined_failure(calm_jinja_run *run, calm_jinja_value v);

/* Returns the truth value of v in an "if". */
bool calm_jinja_truth(calm_jinja_value v);

/* Compares two values with Python's ==. */
calm_status calm_jinja_equal(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, bool *out);

/* Orders two values: *out < 0, 0 or > 0.  CALM_EFORMAT: Python does not order them. */
calm_status calm_jinja_order(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, int *out);

/* Returns whether `item` is in `v`, a string, list, or dict. */
calm_status calm_jinja_contains(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value item, bool *out);

/* Returns the elements that a loop iterates over: of a list, keys of a dict, characters of a string; none for
 * undefined. */
calm_status calm_jinja_elements(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_list **out);

/* Computes len(v). */
calm_status calm_jinja_length(calm_jinja_run *run, calm_jinja_value v, size_t *out);

/* Finds the value of a key; NULL: the dict does not have it. */
calm_status calm_jinja_find(calm_jinja_run *run, const calm_jinja_dict *dict, calm_jinja_value key,
                            const calm_jinja_value **out);

/* Sets a member of a dict, new or existing. */
calm_status calm_jinja_store(calm_jinja_run *run, calm_jinja_dict *dict, calm_jinja_value key, calm_jinja_value value);

/* Evaluates v[key] without attributes; undefined if there is none. */
calm_status calm_jinja_item(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value key, calm_jinja_value *out);

/* Evaluates v[start:stop:step]; a part that is not given or none has Python's default. */
calm_status calm_jinja_slice(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_value parts[3],
                             calm_jinja_value *out);

/* Makes an undefined value with a name. */
calm_jinja_value calm_jinja_undefined(const char *name);
