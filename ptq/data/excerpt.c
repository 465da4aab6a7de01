/* Text excerpts of token windows. */
#include "ptq/data/excerpt.h"

#include <string.h>

#include "ptq/base/text.h"

/* Replaces each NUL by U+FFFD: a decoder keeps NUL as any other character, but it would end the text for readers.
 * Incomplete sequences at the ends of an excerpt are U+FFFD already. */
static calm_status without_nul(calm_ctx *ctx, char **text, size_t n)
{
    CALM_SCOPED_TEXT(shown);
    const char *end;
    if (!memchr(*text, 0, n))
        return CALM_OK;
    for (const char *at = *text; n; n -= (size_t)(end - at), at = end) {
        const char *nul = memchr(at, 0, n);
        end = nul == at ? at + 1 : nul ? nul : at + n;
        if (nul == at)
            calm_text_printf(&shown, "\xEF\xBF\xBD");
        else
            calm_text_append(&shown, at, (size_t)(end - at));
    }
    return calm_text_take(ctx, ctx->out, &shown, text, NULL);
}

static bool all_have_tokens(const calm_tokenizer *tokenizer, const uint32_t *ids, size_t n)
{
    size_t i = 0;
    while (i < n && calm_tokenizer_token(tokenizer, ids[i])[0])
        i++;
    return i == n;
}

calm_status calm_excerpt(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids, size_t n, char **out)
{
    size_t n_bytes;
    if (tokenizer && all_have_tokens(tokenizer, ids, n)) {
        CALM_TRY(calm_tokenizer_decode(ctx, tokenizer, ids, n, true, out, &n_bytes));
        return without_nul(ctx, out, n_bytes);
    }
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%s", ""));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_strf(ctx, ctx->out, out, "%s%s%u", *out, i ? " " : "", ids[i]));
    return CALM_OK;
}
