/* What can be done with any value: truth, order, members, printing. */
#pragma once

#include "ptq/jinja/jinja_run.h"

/* The name of a kind, as Python has it ("str"). */
const char *calm_jinja_kind_name(calm_jinja_kind kind);

/* "NAME is undefined": the failure of all that an undefined value cannot do. */
calm_status calm_jinja_undefined_failure(calm_jinja_run *run, calm_jinja_value v);

/* Does an "if" take it for true? */
bool calm_jinja_truth(calm_jinja_value v);

/* Are two values the same, as == of Python says? */
calm_status calm_jinja_equal(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, bool *out);

/* Order of two values: below 0, 0 or above.  CALM_EFORMAT: Python does not order them. */
calm_status calm_jinja_order(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, int *out);

/* Is `item` in `v`, a string, list, or dict? */
calm_status calm_jinja_contains(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value item, bool *out);

/* Elements of what a loop runs over: a list itself, keys of a dict, characters of a string, none of an undefined
 * value. */
calm_status calm_jinja_elements(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_list **out);

/* len(). */
calm_status calm_jinja_length(calm_jinja_run *run, calm_jinja_value v, size_t *out);

/* The value of a key; NULL when the dict has none. */
calm_status calm_jinja_find(calm_jinja_run *run, const calm_jinja_dict *dict, calm_jinja_value key,
                            const calm_jinja_value **out);

/* Set a member of a dict, there already or not. */
calm_status calm_jinja_store(calm_jinja_run *run, calm_jinja_dict *dict, calm_jinja_value key, calm_jinja_value value);

/* v[key] without attributes; undefined when there is none. */
calm_status calm_jinja_item(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value key, calm_jinja_value *out);

/* v[start:stop:step]; a part that is not given, or none, is Python's default. */
calm_status calm_jinja_slice(calm_jinja_run *run, calm_jinja_value v, const calm_jinja_value parts[3],
                             calm_jinja_value *out);

/* An undefined value of a name. */
calm_jinja_value calm_jinja_undefined(const char *name);
