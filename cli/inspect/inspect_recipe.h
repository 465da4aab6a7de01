/* Recipes as lists: one entry per value, by its JSON pointer (RFC 6901). */
#pragma once

#include "ptq/io/json.h"

/* Receives one value: `pointer` ("/choice/metric"; "" is the whole document), and its JSON text in each document, NULL
 * where a document has nothing there.  Valid during the call. */
typedef calm_status calm_inspect_value_fn(calm_ctx *ctx, void *user, const char *pointer, const char *first,
                                          const char *second);

/* Walk two documents (either may be NULL) side by side, in the order of the first, then what the second has next to.
 * Empty objects and arrays are values.  Fails as fn, or CALM_ENOMEM. */
calm_status calm_inspect_walk(calm_ctx *ctx, const calm_json *first, const calm_json *second, calm_inspect_value_fn *fn,
                              void *user);
