/* Adds options to a named chain. */
#include "ptq/recipe/chain_json.h"

#include <math.h>
#include <string.h>

#include "algorithms/part.h"
#include "ptq/base/message.h"
#include "ptq/recipe/recipe_impl.h"

#define OPTIONS_MAX 64

/* Returns true if a part of this name has the option; adds the part's option names to names [*n]. */
static bool part_has(const char *name, size_t length, const char *option, const char **names, size_t *n)
{
    size_t n_parts;
    bool has = false;
    const calm_part *const *parts = calm_parts(&n_parts);
    for (size_t i = 0; i < n_parts; i++) {
        if (strncmp(parts[i]->name, name, length) != 0 || parts[i]->name[length])
            continue;
        for (const calm_option *at = parts[i]->opts; at && at->name; at++) {
            has |= strcmp(at->name, option) == 0;
            if (*n < OPTIONS_MAX)
                names[(*n)++] = at->name;
        }
    }
    return has;
}

/* Returns the length of the first step of a chain, with its parentheses. */
static size_t step_length(const char *chain)
{
    int depth = 0;
    size_t i = 0;
    for (; chain[i] && !(chain[i] == '+' && depth == 0); i++)
        depth += (chain[i] == '(') - (chain[i] == ')');
    return i;
}

/* Adds "option=value" in the parentheses of the only step that has the option. */
static calm_status add_option(calm_ctx *ctx, const char *where, const char *name, const char *option,
                              const char *value, char **chain)
{
    const char *names[OPTIONS_MAX] = {NULL}, *step = NULL;
    char hint[CALM_HINT_MAX];
    size_t n = 0, n_steps = 0, length = 0;
    if (value[strcspn(value, "(),+=")])
        return calm_fail(ctx, CALM_EARG, "%s: `algorithms`: %s: option %s: found \"%s\"", where, name, option, value);
    for (const char *at = *chain; *at; at += step_length(at), at += *at == '+')
        if (part_has(at, strcspn(at, "(+"), option, names, &n)) {
            step = at;
            length = step_length(at);
            n_steps++;
        }
    if (!step)
        return calm_fail(ctx, CALM_EARG, "%s: `algorithms`: %s has no option \"%s\"%s", where, name, option,
                         calm_did_you_mean(hint, option, names, n));
    if (n_steps > 1)
        return calm_fail(ctx, CALM_EARG,
                         "%s: `algorithms`: several parts of %s have an option \"%s\"; write the chain: %s", where,
                         name, option, *chain);
    const bool open = step[length - 1] == ')';
    const size_t before = (size_t)(step - *chain) + length - open;
    return calm_strf(ctx, ctx->out, chain, "%.*s%s%s=%s)%s", (int)before, *chain, open ? "," : "(", option, value,
                     step + length);
}

calm_status calm_recipe_value_text(calm_ctx *ctx, const calm_json *value, char **out)
{
    const calm_json_type type = calm_json_typeof(value);
    const double number = calm_json_number(value, 0);
    const char *truth = calm_json_bool(value, false) ? "true" : "false";
    if (type == CALM_JSON_INT)
        return calm_strf(ctx, ctx->out, out, "%lld", (long long)calm_json_int(value, 0));
    if (type == CALM_JSON_REAL)    /* 4.0 is written as 4, without an exponent */
        return calm_strf(ctx, ctx->out, out, floor(number) == number ? "%.0f" : "%.17g", number);
    return calm_strf(ctx, ctx->out, out, "%s", type == CALM_JSON_BOOL ? truth : calm_json_string(value, ""));
}

calm_status calm_chain_of_json(calm_ctx *ctx, const char *where, const calm_json *item, char **out)
{
    const char *name = calm_json_string(calm_json_get(item, "name"), ""), *chain = name, *option;
    const calm_json *options = calm_json_get(item, "options"), *value;
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    for (size_t i = 0; i < n && calm_json_size(options); i++)
        if (strcmp(presets[i].name, name) == 0)
            chain = presets[i].chain;
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%s", chain));
    for (void *iter = NULL; calm_json_next(options, &iter, &option, &value);) {
        char *text;
        CALM_TRY(calm_recipe_value_text(ctx, value, &text));
        CALM_TRY(add_option(ctx, where, name, option, text, out));
    }
    return CALM_OK;
}
