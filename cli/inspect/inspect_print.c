/* What every part of `calm inspect` ends with: printing its text, or the error for an unknown WHAT. */
#include "cli/inspect/inspect_print.h"

#include <errno.h>
#include <stdio.h>

calm_status calm_inspect_print(calm_ctx *ctx, calm_text *text)
{
    if (ctx->status == CALM_OK && calm_text_check(ctx, text) == CALM_OK && text->length &&
        fwrite(text->data, 1, text->length, stdout) != text->length)
        calm_fail_errno(ctx, errno, "standard output: cannot write");
    calm_text_clear(text);
    return ctx->status;
}

calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names, size_t n)
{
    calm_text known;
    const char *near = calm_nearest(what, names, n);
    calm_text_init(&known);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&known, "%s%s", i ? ", " : "", names[i]);
    calm_status status = calm_fail(ctx, CALM_EARG, "%s: cannot show \"%s\"%s%s%s; known: %s", owner, what,
                                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                                   known.data ? known.data : "");
    calm_text_clear(&known);
    return status;
}
