/* Messages: prefixes of failures, suggestions for unknown names, and lines that are logged once. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* Puts a text and ": " before the message of the failure in ctx: for callers that know the file or line.  Returns
 * the status, which does not change; without a failure it does nothing and returns CALM_OK. */
calm_status calm_fail_prefix(calm_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes the end of a message about an unknown name: "; did you mean \"gptq\"?" with the name in `names` [n] that
 * is nearest to `word` (calm_nearest) and has at most 100 bytes; "" if none is near.  Returns `hint`. */
#define CALM_HINT_MAX 128
const char *calm_did_you_mean(char hint[CALM_HINT_MAX], const char *word, const char *const *names, size_t n);

/* A log function's state that passes each different line on once: CALM_SCOPED_LOG(ctx, ctx->log ? calm_log_once :
 * NULL, &once). */
typedef struct calm_said_once {
    calm_log_fn *log;
    void *user;
    calm_text *said;    /* lines that were passed on; owned by the caller */
} calm_said_once;

/* A calm_log_fn; `said_once` is a calm_said_once. */
void calm_log_once(void *said_once, calm_log_level level, const char *line);
