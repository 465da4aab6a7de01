/* The error for a WHAT that there is not. */
#include "cli/inspect/inspect_print.h"

#include "ptq/base/text.h"

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
