/* calm inspect: stores (inspect_store.c), model directories and GGUF files (inspect_model.c). */
#pragma once

#include <stdint.h>

#include "ptq/text/table.h"
#include "ptq/base/context.h"
#include "ptq/model/model.h"

typedef enum calm_inspect_form { CALM_INSPECT_TEXT, CALM_INSPECT_JSON, CALM_INSPECT_CSV } calm_inspect_form;

/* The words and options of one call. */
typedef struct calm_inspect_query {
    const char *what;            /* the view, "choices"; NULL: "summary"                           */
    const char *const *args;     /* [n_args] words behind it: runs, or a SELECT                    */
    size_t n_args;
    calm_inspect_form form;
    const char *unit;            /* --unit; NULL: all                                              */
    const char *metric;          /* --metric; NULL: the run's own                                  */
    calm_model_how how;          /* a model is opened                                              */
    bool colour;                 /* the output is a terminal that needs colours                   */
    bool ascii;                  /* nothing but ASCII in strips                                    */
} calm_inspect_query;

/* Print a view of the store at `path`, which is opened read-only.
 * CALM_EARG: no such view (suggests the nearest), words or options that it does not have, a SELECT that is wrong or
 * would write.  CALM_ENOTFOUND: no such run or unit.  Else as calm_store_open. */
calm_status calm_inspect_store(calm_ctx *ctx, const char *path, const calm_inspect_query *query);

/* Always CALM_EARG: "OWNER: cannot show WHAT", with the nearest of names [n] as a suggestion, and all of them. */
calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names,
                                 size_t n);

/* The names of a store's views, [*n], static storage. */
const char *const *calm_inspect_views(size_t *n);

/* Print a view of the model directory or GGUF file `dir`; `note` (may be NULL) is a member of its summary.  CALM_EARG;
 * else as calm_model_open. */
calm_status calm_inspect_model(calm_ctx *ctx, const char *dir, const char *note, const calm_inspect_query *query);
