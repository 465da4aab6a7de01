/* The two things that `calm inspect` looks into: stores (inspect_store.c) and model directories (inspect_model.c). */
#ifndef CALM_CLI_INSPECT_H
#define CALM_CLI_INSPECT_H

#include <stdint.h>

#include "cli/table.h"
#include "ptq/base/context.h"

/* What is asked for. */
typedef struct calm_inspect_query {
    const char *what;    /* "choices"; NULL: "summary"  */
    int64_t run;         /* 0: the newest               */
    bool json;
} calm_inspect_query;

/* Print from the store at `path`, which is opened for reading alone.
 * CALM_EARG: no such WHAT (suggests the nearest).  CALM_ENOTFOUND: no such run.  Else as calm_store_open. */
calm_status calm_inspect_store(calm_ctx *ctx, const char *path, const calm_inspect_query *query);

/* Print from the model directory `dir`; `note` (may be NULL) stands above it.  CALM_EARG; else as calm_model_open. */
calm_status calm_inspect_model(calm_ctx *ctx, const char *dir, const char *note, const calm_inspect_query *query);

/* CALM_EARG: `owner` has no `what`; names [n] are what it has. */
calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names,
                                 size_t n);

/* Print `text` to stdout and free it; the first failure of ctx, of the text or of writing. */
calm_status calm_inspect_print(calm_ctx *ctx, calm_text *text);

#endif
