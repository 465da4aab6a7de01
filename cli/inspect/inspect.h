/* calm inspect: stores (inspect_store.c), model directories and GGUF files (inspect_model.c). */
#pragma once

#include <stdint.h>

#include "ptq/text/table.h"
#include "ptq/base/context.h"
#include "ptq/model/model.h"

typedef enum calm_inspect_form { CALM_INSPECT_TEXT, CALM_INSPECT_JSON, CALM_INSPECT_CSV } calm_inspect_form;

/* The words and options of one call. */
typedef struct calm_inspect_query {
    const char *what;            /* the view, "choices"; NULL: "summary"           */
    const char *const *args;     /* [n_args] words after `what`: runs, or a SELECT */
    size_t n_args;
    calm_inspect_form form;
    const char *unit;            /* --unit; NULL: all                          */
    const char *metric;          /* --metric; NULL: that of the run            */
    calm_model_how how;          /* options to open a model                    */
    bool colour;                 /* colour the cells: the output is a terminal */
    bool ascii;                  /* draw strips with ASCII only                */
} calm_inspect_query;

/* Prints a view of the store at `path`, which it opens read-only.  CALM_EARG: no such view (the message suggests the
 * nearest), words or options that the view does not have, a SELECT that is wrong or would write.  CALM_ENOTFOUND: no
 * such run or unit.  Otherwise fails as calm_store_open. */
calm_status calm_inspect_store(calm_ctx *ctx, const char *path, const calm_inspect_query *query);

/* Returns CALM_EARG with the message "OWNER: cannot show WHAT", the nearest of names [n] as a suggestion, and all
 * names. */
calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names,
                                 size_t n);

/* Returns the names of a store's views [*n], in static storage. */
const char *const *calm_inspect_views(size_t *n);

/* Prints a view of the model directory or GGUF file `dir`; `note`, unless NULL, is a member of the summary.  CALM_EARG:
 * no such view, or words that it does not have.  Otherwise fails as calm_model_open. */
calm_status calm_inspect_model(calm_ctx *ctx, const char *dir, const char *note, const calm_inspect_query *query);
