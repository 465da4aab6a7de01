/* Messages: prefixes of failures, suggestions for unknown names, and lines that are said once. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* Put a text and ": " before the message of the failure in ctx: for callers that know the file or line that the failing
 * function does not.  The status stays and is returned; CALM_OK, and nothing done, when ctx has no failure. */
calm_status calm_fail_prefix(calm_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The end of a message about an unknown name: "; did you mean \"gptq\"?" with the name in `names` [n] that is nearest
 * to `word` (calm_nearest), of at most 100 bytes; "" when none is near.  Returns `hint`. */
#define CALM_HINT_MAX 128
const char *calm_did_you_mean(char hint[CALM_HINT_MAX], const char *word, const char *const *names, size_t n);

/* A log that passes each line on to `log` once, for CALM_SCOPED_LOG(ctx, ctx->log ? calm_log_once : NULL, &once). */
typedef struct calm_said_once {
    calm_log_fn *log;
    void *user;
    calm_text *said;    /* the lines that were passed on; the caller's */
} calm_said_once;

/* A calm_log_fn; `said_once` is a calm_said_once. */
void calm_log_once(void *said_once, calm_log_level level, const char *line);
