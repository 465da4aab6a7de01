/* Parses words for candidates. */
#include "ptq/recipe/words.h"

#include <string.h>

#include "algorithms/algorithm.h"

calm_status calm_word_parse(calm_ctx *ctx, const char *text, calm_word *out)
{
    const char *scheme = strrchr(text, ' ');
    /* "CHAIN SCHEME": chains have no spaces, so the last space separates them. */
    const int n = scheme ? (int)(scheme - text) : (int)strlen(text);
    calm_algorithm *algorithm;
    char *chain;
    *out = (calm_word){text, text};
    if (calm_word_is_number(out))
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &chain, "%.*s", n, text));
    const calm_status status = calm_algorithm_parse(ctx, chain, &algorithm);
    if (status == CALM_ENOMEM)
        return status;
    if (status != CALM_OK) {    /* a pattern, or a name of another version: matched against the pool later */
        calm_ctx_clear_failure(ctx);
        return CALM_OK;
    }
    return calm_strf(ctx, ctx->out, &out->means, "%s%s", calm_algorithm_canonical(algorithm), scheme ? scheme : "");
}

calm_status calm_words_parse(calm_ctx *ctx, const calm_words *words, calm_word *out, size_t *n)
{
    for (size_t i = 0; i < words->n; i++)
        CALM_TRY(calm_word_parse(ctx, words->of[i], &out[(*n)++]));
    return CALM_OK;
}

calm_status calm_pins_add(calm_ctx *ctx, const char *unit, const char *candidate, int round, calm_pin *out, size_t *n)
{
    if (!unit || !candidate)
        return CALM_OK;
    out[*n] = (calm_pin){.unit = unit, .round = round};
    return calm_word_parse(ctx, candidate, &out[(*n)++].candidate);
}

calm_status calm_pins_parse(calm_ctx *ctx, const calm_pairs *pairs, int round, calm_pin *out, size_t *n)
{
    for (size_t i = 0; i < pairs->n; i++)
        CALM_TRY(calm_pins_add(ctx, pairs->of[i].key, pairs->of[i].value, round, out, n));
    return CALM_OK;
}

/* ---- words of a recipe ---- */

calm_status calm_recipe_entries(calm_ctx *ctx, const calm_recipe *recipe, calm_pool_entry **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, recipe->n_pool));
    for (size_t i = 0; i < recipe->n_pool; i++) {
        const calm_entry *from = &recipe->pool[i];
        calm_pool_entry *to = &(*out)[i];
        *to = (calm_pool_entry){.name = from->name, .algorithm = calm_algorithm_name(from->algorithm),
                                .chain = calm_algorithm_canonical(from->algorithm), .scheme = from->scheme,
                                .of_scheme = from->of_scheme,
                                .smooths = calm_algorithm_smooths(from->algorithm)};
        CALM_TRY(calm_strf(ctx, ctx->out, &to->scheme_name, "%s", CALM_SCHEME_NAME(&from->scheme)));
    }
    return CALM_OK;
}

/* Marks the pool entries that a word names; a candidate's number names none yet. */
static calm_status find_entries(calm_ctx *ctx, const calm_recipe *recipe, const char *key, const calm_word *word,
                                bool *marks)
{
    calm_pool_entry *entries;
    CALM_TRY(calm_recipe_entries(ctx, recipe, &entries));
    return calm_word_entries(ctx, entries, recipe->n_pool, key, word, marks);
}

static calm_status forbid_one(calm_ctx *ctx, calm_recipe *recipe, const calm_word *word)
{
    bool *marks;
    size_t kept = 0;
    if (calm_word_is_number(word)) {
        recipe->forbid[recipe->n_forbid++] = *word;
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, marks, recipe->n_pool));
    CALM_TRY(find_entries(ctx, recipe, "choice.forbid", word, marks));
    for (size_t i = 0; i < recipe->n_pool; i++)
        /* Removed from the pool itself, so that nothing is computed for it. */
        if (!marks[i])
            recipe->pool[kept++] = recipe->pool[i];
    if (!kept)
        return calm_fail(ctx, CALM_EARG, "`choice.forbid` %s: no candidate is left", word->said);
    recipe->n_pool = kept;
    return CALM_OK;
}

calm_status calm_recipe_forbid(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const calm_words *words = &spec->forbid;
    if (!words->n)    /* then a scheme without entries is not caused by `forbid` */
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->forbidden, words->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->forbid, words->n));
    CALM_TRY(calm_words_parse(ctx, words, recipe->forbidden, &recipe->n_forbidden));
    for (size_t i = 0; i < recipe->n_forbidden; i++)
        CALM_TRY(forbid_one(ctx, recipe, &recipe->forbidden[i]));
    for (size_t s = 0; s < recipe->n_schemes; s++) {
        size_t i = 0;
        while (i < recipe->n_pool && recipe->pool[i].of_scheme != s)
            i++;
        const char *scheme = CALM_SCHEME_NAME(&recipe->schemes[s]);
        if (i == recipe->n_pool)
            return calm_fail(ctx, CALM_EARG, "`choice.forbid`: no candidate of %s is left", scheme);
    }
    return CALM_OK;
}

/* Replaces a pin's word by the entry's name if it names one entry, so that the recipe's JSON and key do not depend on
 * how it was typed. */
static calm_status settle_pin(calm_ctx *ctx, const calm_recipe *recipe, calm_pin *pin)
{
    size_t n = 0, entry = 0;
    bool *marks;
    if (calm_word_is_number(&pin->candidate))
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, marks, recipe->n_pool));
    CALM_TRY(find_entries(ctx, recipe, "choice.pins", &pin->candidate, marks));
    for (size_t i = 0; i < recipe->n_pool; i++)
        if (marks[i]) {
            entry = i;
            n++;
        }
    return n == 1 ? calm_word_parse(ctx, recipe->pool[entry].name, &pin->candidate) : CALM_OK;
}

calm_status calm_recipe_pins(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->pins, spec->pins.n));
    recipe->n_pins = 0;
    recipe->float_pins = (calm_words){0};
    for (size_t i = 0; i < spec->pins.n; i++) {
        const calm_pair *pin = &spec->pins.of[i];
        /* "float" is no candidate unless it competes: such units are not quantized at all. */
        if (strcmp(pin->value, CALM_FLOAT) == 0 && !calm_recipe_has_float(recipe))
            CALM_TRY(calm_words_add(ctx, &recipe->float_pins, pin->key));
        else
            CALM_TRY(calm_pins_add(ctx, pin->key, pin->value, 0, recipe->pins, &recipe->n_pins));
    }
    for (size_t i = 0; i < recipe->n_pins; i++)
        CALM_TRY(settle_pin(ctx, recipe, &recipe->pins[i]));
    return CALM_OK;
}
