/* Recipes as lists: one entry per value, by its JSON pointer (RFC 6901). */
#pragma once

#include "ptq/io/json.h"

/* Receives one value: its `pointer` ("/choice/metric"; "" is the whole document) and its JSON text in each document;
 * NULL: the document has no such value.  The texts are valid during the call. */
typedef calm_status calm_inspect_value_fn(calm_ctx *ctx, void *user, const char *pointer, const char *first,
                                          const char *second);

/* Calls `fn` for every value of two documents (either may be NULL), in the order of the first; members that only the
 * second has come last.  Empty objects and arrays count as values.  Fails as fn, or CALM_ENOMEM. */
calm_status calm_inspect_walk(calm_ctx *ctx, const calm_json *first, const calm_json *second, calm_inspect_value_fn *fn,
                              void *user);
