/* Matches words that name modules with the names of a checkpoint. */
#include "ptq/arch/module_words.h"

#include <string.h>

#include "ptq/text/regex.h"

/* Reports any fault of the expression as a mistake of the user. */
static calm_status refuse(calm_ctx *ctx)
{
    char why[CALM_MESSAGE_MAX];
    memcpy(why, ctx->message, sizeof why);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, CALM_EARG, "%s", why);
}

/* Compiles the pattern once for all names. */
static calm_status match_pattern(calm_ctx *ctx, const char *pattern, const char *const *names, size_t n, bool *matched,
                                 bool *any)
{
    CALM_SCOPED_REGEX(regex);
    /* Steps are limited, since the pattern may come from another person's recipe. */
    CALM_TRY(calm_regex_new(ctx, "`keep_float`", pattern, strlen(pattern), &regex));
    calm_regex_limit(regex, CALM_NAME_STEPS);
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        CALM_TRY(calm_regex_matches_prefix(ctx, regex, names[i], &found));
        matched[i] |= found;
        *any |= found;
    }
    return CALM_OK;
}

calm_status calm_model_module_word(calm_ctx *ctx, const char *word, const char *const *names, size_t n, bool *matched,
                             bool *any)
{
    /* The caller may have matched other words before: only `any` is about this one. */
    *any = false;
    if (strncmp(word, "re:", 3) == 0) {
        const calm_status status = match_pattern(ctx, word + 3, names, n, matched, any);
        return status == CALM_OK || status == CALM_ENOMEM ? status : refuse(ctx);
    }
    /* Without "re:" the word is a full name, as in compressed-tensors: no part, no suffix. */
    for (size_t i = 0; i < n; i++) {
        const bool found = strcmp(names[i], word) == 0;
        matched[i] |= found;
        *any |= found;
    }
    return CALM_OK;
}
