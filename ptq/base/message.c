/* Messages of failures, and lines that are logged once. */
#include "ptq/base/message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

calm_status calm_fail_prefix(calm_ctx *ctx, const char *format, ...)
{
    char prefix[CALM_MESSAGE_MAX], reason[CALM_MESSAGE_MAX];
    const calm_status status = ctx->status;
    va_list args;
    if (status == CALM_OK)
        return CALM_OK;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    /* A context keeps its first failure: clear it before recording the longer message. */
    memcpy(reason, ctx->message, sizeof reason);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, status, "%s: %s", prefix, reason);
}

const char *calm_did_you_mean(char hint[CALM_HINT_MAX], const char *word, const char *const *names, size_t n)
{
    const char *near = calm_nearest(word, names, n);
    hint[0] = '\0';
    if (near)
        snprintf(hint, CALM_HINT_MAX, "; did you mean \"%.100s\"?", near);
    return hint;
}

void calm_log_once(void *said_once, calm_log_level level, const char *line)
{
    calm_said_once *once = said_once;
    if (calm_text_listed(once->said->data, '\n', line))
        return;
    calm_text_printf(once->said, "%s\n", line);
    once->log(once->user, level, line);
}
