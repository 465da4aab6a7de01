/* What every part of `calm inspect` ends with: printing its text, or the error for an unknown WHAT. */
#ifndef CALM_CLI_INSPECT_INSPECT_PRINT_H
#define CALM_CLI_INSPECT_INSPECT_PRINT_H

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* Write `text` to standard output and free it.  Writes nothing if ctx or `text` has failed already; returns the first
 * failure.  CALM_ENOMEM from `text`; CALM_EIO, CALM_ENOSPC: standard output cannot be written. */
calm_status calm_inspect_print(calm_ctx *ctx, calm_text *text);

/* Always CALM_EARG: "OWNER: cannot show WHAT", with the nearest of names [n] as a suggestion, and all of them. */
calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names,
                                 size_t n);

#endif
