/* The error for a WHAT that there is not. */
#ifndef CALM_CLI_INSPECT_INSPECT_PRINT_H
#define CALM_CLI_INSPECT_INSPECT_PRINT_H

#include "ptq/base/context.h"

/* Always CALM_EARG: "OWNER: cannot show WHAT", with the nearest of names [n] as a suggestion, and all of them. */
calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names,
                                 size_t n);

#endif
