/* Texts of a recipe: their paths, names and digest. */
#include <string.h>

#include "ptq/base/text.h"
#include "ptq/recipe/recipe_impl.h"
#include "ptq/recipe/resolve.h"

/* Windows of the guard unless the spec says how many: tokens decide, because its cost grows with them; a standard error
 * needs a few windows. */
#define GUARD_TOKENS 8192
#define GUARD_FEWEST 4
#define GUARD_MOST   16

calm_status calm_recipe_find_text(calm_ctx *ctx, const char *given, const char *bundled, const char **path,
                                  const char **name)
{
    char *text;
    *path = *name = given;
    if (given)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "text/%s", bundled));
    CALM_TRY(calm_recipes_path(ctx, text, path));
    return calm_strf(ctx, ctx->out, name, CALM_BUNDLED "%s", bundled);
}

calm_status calm_recipe_texts_name(calm_ctx *ctx, const calm_words *names, const char **out)
{
    CALM_SCOPED_TEXT(text);
    char *joined;
    for (size_t i = 0; i < names->n; i++)
        calm_text_printf(&text, "%s%s", i ? " + " : "", names->of[i]);
    CALM_TRY(calm_text_check(ctx, &text));
    CALM_TRY(calm_strf(ctx, ctx->out, &joined, "%s", text.data));
    *out = joined;
    return CALM_OK;
}

/* Resolves several texts: each is a domain with separate windows. */
static calm_status resolve_more_texts(calm_ctx *ctx, const calm_words *texts, calm_recipe *recipe)
{
    for (size_t i = 0; i < texts->n; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(texts->of[i], texts->of[j]) == 0)
                return calm_fail(ctx, CALM_EARG, "`calibration.text`: %s is named twice", texts->of[i]);
    if (recipe->calib_windows < (long long)texts->n)
        return calm_fail(ctx, CALM_EARG, "`calibration.samples` %lld: expected at least %zu, one window for each "
                         "`calibration.text`", recipe->calib_windows, texts->n);
    recipe->more_texts = texts->of + 1;
    recipe->n_more_texts = texts->n - 1;
    return calm_recipe_texts_name(ctx, texts, &recipe->calib_name);
}

static long long guard_windows(const calm_recipe_spec *spec)
{
    const long long windows = GUARD_TOKENS / spec->seqlen;
    if (spec->guard_samples >= 0)
        return spec->guard_samples;
    return windows < GUARD_FEWEST ? GUARD_FEWEST : windows > GUARD_MOST ? GUARD_MOST : windows;
}

calm_status calm_recipe_calibration(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const char *first = spec->calib.n ? spec->calib.of[0] : NULL;
    if (spec->tokens && first)
        return calm_fail(ctx, CALM_EARG, "`calibration.tokens` replaces `calibration.text`; give one");
    recipe->calib_windows = spec->samples;
    recipe->seqlen = spec->seqlen;
    recipe->seed = spec->seed;
    recipe->guard_windows = guard_windows(spec);
    recipe->add_special_tokens = !spec->no_special;
    recipe->encoder_stream = spec->encoder_stream;
    recipe->calib_is_token_ids = spec->tokens != NULL;
    CALM_TRY(calm_recipe_find_text(ctx, spec->tokens ? spec->tokens : first, "wikitext2-valid.txt",
                                   &recipe->calib_path, &recipe->calib_name));
    return spec->calib.n > 1 ? resolve_more_texts(ctx, &spec->calib, recipe) : CALM_OK;
}

/* Returns the union of what the pool's algorithms need, each at its scheme. */
static unsigned pool_needs(const calm_recipe *recipe)
{
    unsigned needs = 0;
    for (size_t i = 0; i < recipe->n_pool; i++)
        needs |= calm_algorithm_needs(recipe->pool[i].algorithm, &recipe->pool[i].scheme, true);
    return needs;
}

calm_status calm_recipe_check_imatrix(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    (void)spec;
    if (!recipe->imatrix)
        return CALM_OK;
    if (recipe->rotate)
        return calm_fail(ctx, CALM_EARG, "`calibration.imatrix` describes the inputs of the given model, and "
                         "`rotate` changes these inputs: leave out one of the two");
    if (recipe->prefix == CALM_PREFIX_ASYMMETRIC)
        return calm_fail(ctx, CALM_EARG, "`calibration.prefix` asymmetric needs products of float and quantized "
                         "rows, which `calibration.imatrix` does not have: leave out one of the two");
    if (pool_needs(recipe) & CALM_NEEDS_GRAM)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "`calibration.imatrix` weights the columns that algorithms fit; %s %s no data: "
                     "add hls+nearest or gptq-hls to `algorithms`", recipe->pool[0].name,
                     recipe->n_pool > 1 ? "and the others read" : "reads");
}

calm_status calm_recipe_check_weight(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    (void)spec;
    if (recipe->weight == CALM_WEIGHT_NONE || recipe->weight == CALM_WEIGHT_AUTO)
        return CALM_OK;
    const char *by = recipe->weight == CALM_WEIGHT_FIRST ? "first" : "gradient";
    for (size_t i = 0; i < recipe->n_pool; i++) {
        /* Kept rows are multiplied by their weights, but a static scale needs the unweighted values. */
        if (recipe->pool[i].scheme.act_rule == CALM_ACT_RULE_STATIC)
            return calm_fail(ctx, CALM_EARG, "`calibration.weight` %s: the activation scale of a _static scheme "
                             "needs rows of equal weight; leave out one of the two", by);
    }
    /* A maximum does not depend on weights. */
    if (pool_needs(recipe) & CALM_NEEDS_DATA & ~CALM_NEEDS_ABSMAX)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "`calibration.weight` %s weights the rows that algorithms fit; %s %s no data: "
                     "add gptq or mkq-full to `algorithms`", by, recipe->pool[0].name,
                     recipe->n_pool > 1 ? "and the others read" : "reads");
}

const char *calm_recipe_text(const calm_recipe *recipe, size_t i)
{
    return i ? recipe->more_texts[i - 1] : recipe->calib_path;
}

calm_status calm_recipe_inputs(calm_ctx *ctx, const calm_recipe *recipe, calm_words *out)
{
    char *blobs;
    *out = (calm_words){0};
    CALM_TRY(calm_words_add(ctx, out, recipe->model.dir));
    if (recipe->how.adapter)
        CALM_TRY(calm_words_add(ctx, out, recipe->how.adapter));
    for (size_t i = 0; recipe->calib_path && i <= recipe->n_more_texts; i++)
        CALM_TRY(calm_words_add(ctx, out, calm_recipe_text(recipe, i)));
    if (recipe->eval_path)
        CALM_TRY(calm_words_add(ctx, out, recipe->eval_path));
    if (recipe->imatrix)
        CALM_TRY(calm_words_add(ctx, out, recipe->imatrix));
    if (!recipe->store)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &blobs, "%s.blobs", recipe->store));
    CALM_TRY(calm_words_add(ctx, out, recipe->store));
    return calm_words_add(ctx, out, blobs);
}

calm_status calm_recipe_text_digest(calm_ctx *ctx, const calm_recipe *recipe, char hex[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    if (!recipe->n_more_texts)
        return calm_sha256_file(ctx, recipe->calib_path, hex);
    calm_sha256_init(&sha);
    for (size_t i = 0; i <= recipe->n_more_texts && ctx->status == CALM_OK; i++)
        if (calm_sha256_file(ctx, calm_recipe_text(recipe, i), hex) == CALM_OK)
            calm_sha256_field(&sha, hex);
    calm_sha256_finish(ctx, &sha, hex);    /* after a failure too, because it frees memory */
    return ctx->status;
}
