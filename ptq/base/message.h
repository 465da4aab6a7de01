/* Messages: prefixes of failures, and suggestions for unknown names. */
#pragma once

#include "ptq/base/context.h"

/* Put a text and ": " before the message of the failure in ctx: for callers that know the file or line that the failing
 * function does not.  The status stays and is returned; CALM_OK, and nothing done, when ctx has no failure. */
calm_status calm_fail_prefix(calm_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The end of a message about an unknown name: "; did you mean \"gptq\"?" with the name in `names` [n] that is nearest
 * to `word` (calm_nearest), of at most 100 bytes; "" when none is near.  Returns `hint`. */
#define CALM_HINT_MAX 128
const char *calm_did_you_mean(char hint[CALM_HINT_MAX], const char *word, const char *const *names, size_t n);
