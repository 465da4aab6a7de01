/* Words that name modules, compared with the names of a checkpoint. */
#include "ptq/model/module_words.h"

#include <string.h>

#include "ptq/text/regex.h"

/* As a mistake of the user, whatever the expression's fault is. */
static calm_status refuse(calm_ctx *ctx)
{
    char why[CALM_MESSAGE_MAX];
    memcpy(why, ctx->message, sizeof why);
    calm_ctx_forgive(ctx);
    return calm_fail(ctx, CALM_EARG, "%s", why);
}

/* Compiled once for all names. */
static calm_status match_pattern(calm_ctx *ctx, const char *pattern, const char *const *names, size_t n, bool *matched,
                                 bool *any)
{
    CALM_SCOPED_REGEX(regex);
    /* Limited: the pattern may be of a recipe that somebody else wrote. */
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
    /* The caller may have matched other words before: only `any` is of this one alone. */
    *any = false;
    if (strncmp(word, "re:", 3) == 0) {
        const calm_status status = match_pattern(ctx, word + 3, names, n, matched, any);
        return status == CALM_OK || status == CALM_ENOMEM ? status : refuse(ctx);
    }
    /* Without "re:" a name is a whole one, as in compressed-tensors: no part, no suffix. */
    for (size_t i = 0; i < n; i++) {
        const bool found = strcmp(names[i], word) == 0;
        matched[i] |= found;
        *any |= found;
    }
    return CALM_OK;
}
