/* Pins: units whose candidate the recipe says, and candidates that it forbids. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "cli/pipeline.h"

/* ---- names of the pool ---- */

/* Is `name` this entry's, or a chain that means the same (with the scheme behind it, where several compete)? */
static bool names_entry(const calm_recipe *recipe, size_t entry, const char *name, const char *canonical,
                        const char *scheme)
{
    char of_entry[CALM_SCHEME_NAME_MAX];
    calm_scheme_name(&recipe->pool[entry].scheme, of_entry);
    return strcmp(recipe->pool[entry].name, name) == 0 ||
           (canonical && strcmp(calm_algorithm_canonical(recipe->pool[entry].algorithm), canonical) == 0 &&
            (!scheme || strcmp(scheme, of_entry) == 0));
}

static calm_status unknown_entry(calm_ctx *ctx, const calm_recipe *recipe, const char *option, const char *name)
{
    const char **names;
    calm_text all;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, recipe->n_pool));
    calm_text_init(&all);
    for (size_t i = 0; i < recipe->n_pool; i++) {
        names[i] = recipe->pool[i].name;
        calm_text_printf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = calm_nearest(name, names, recipe->n_pool);
    const calm_status status =
        calm_fail(ctx, CALM_EARG, "--%s: no candidate is called \"%s\"%s%s%s; there are %s", option, name,
                  near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "", all.data ? all.data : "none");
    calm_text_clear(&all);
    return status;
}

/* Mark the entries that a name means, at least one. */
static calm_status find_entries(calm_ctx *ctx, const calm_recipe *recipe, const char *option, const char *name,
                                bool *marks, size_t *n)
{
    char *chain;
    calm_algorithm *algorithm;
    const char *scheme = strrchr(name, ' '), *canonical = NULL;
    *n = 0;
    CALM_TRY(calm_strf(ctx, ctx->out, &chain, "%.*s", scheme ? (int)(scheme - name) : (int)strlen(name), name));
    const calm_status status = calm_algorithm_parse(ctx, chain, &algorithm);
    if (status == CALM_EARG)
        calm_ctx_forgive(ctx);
    else if (status != CALM_OK)
        return status;
    else
        canonical = calm_algorithm_canonical(algorithm);
    for (size_t i = 0; i < recipe->n_pool; i++) {
        marks[i] = names_entry(recipe, i, name, canonical, scheme ? scheme + 1 : NULL);
        *n += marks[i];
    }
    return *n ? CALM_OK : unknown_entry(ctx, recipe, option, name);
}

static calm_status forbid_one(calm_ctx *ctx, calm_recipe *recipe, const char *name, bool *marks)
{
    size_t n, kept = 0;
    CALM_TRY(find_entries(ctx, recipe, "forbid", name, marks, &n));
    if (n == recipe->n_pool)
        return calm_fail(ctx, CALM_EARG, "--forbid %s: no candidate is left", name);
    for (size_t i = 0; i < recipe->n_pool; i++)
        if (!marks[i])
            recipe->pool[kept++] = recipe->pool[i];
    recipe->n_pool = kept;
    return CALM_OK;
}

calm_status calm_recipe_forbid(calm_ctx *ctx, const char *list, calm_recipe *recipe)
{
    bool *marks;
    char *name;
    const char *at = list;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, marks, recipe->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->forbidden, strlen(list) + 1));
    for (recipe->n_forbidden = 0;;) {
        CALM_TRY(calm_list_next(ctx, &at, &name));
        if (!name)
            break;
        CALM_TRY(forbid_one(ctx, recipe, name, marks));
        recipe->forbidden[recipe->n_forbidden++] = name;
    }
    for (size_t s = 0; s < recipe->n_schemes; s++) {
        char scheme[CALM_SCHEME_NAME_MAX];
        size_t i = 0;
        while (i < recipe->n_pool && recipe->pool[i].of_scheme != s)
            i++;
        calm_scheme_name(&recipe->schemes[s], scheme);
        if (i == recipe->n_pool)
            return calm_fail(ctx, CALM_EARG, "--forbid %s: no candidate of %s is left", list, scheme);
    }
    return CALM_OK;
}

static calm_status take_pin(calm_ctx *ctx, const calm_recipe *recipe, char *text, bool *marks, calm_pin *out)
{
    char *equals = strchr(text, '=');
    size_t n, entry = 0;
    if (!equals || equals == text || !equals[1])
        return calm_fail(ctx, CALM_EARG, "--pin %s: expected UNIT=NAME, as --pin '*.down=gptq'", text);
    *equals = '\0';
    CALM_TRY(find_entries(ctx, recipe, "pin", equals + 1, marks, &n));
    while (!marks[entry])
        entry++;
    if (n > 1)
        return calm_fail(ctx, CALM_EARG, "--pin %s=%s: with several widths the scheme belongs to the name: \"%s\"", text,
                         equals + 1, recipe->pool[entry].name);
    *out = (calm_pin){text, entry};
    return CALM_OK;
}

calm_status calm_recipe_pins(calm_ctx *ctx, const char *list, calm_recipe *recipe)
{
    bool *marks;
    char *text;
    const char *at = list;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, marks, recipe->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->pins, strlen(list) + 1));
    for (recipe->n_pins = 0;; recipe->n_pins++) {
        CALM_TRY(calm_list_next(ctx, &at, &text));
        if (!text)
            return CALM_OK;
        CALM_TRY(take_pin(ctx, recipe, text, marks, &recipe->pins[recipe->n_pins]));
    }
}

/* ---- units of the model ---- */

/* "model.layers.0.qkv" without what all units share: "0.qkv". */
static const char *short_name(const char *unit)
{
    for (const char *at = unit; at; at = strchr(at, '.'), at = at ? at + 1 : NULL)
        if (*at >= '0' && *at <= '9')
            return at;
    return unit;
}

typedef enum fit { FITS_NOT, FITS_PATTERN, FITS_NAME } fit;

static fit fits(const char *pattern, const char *unit)
{
    if (strcmp(pattern, unit) == 0 || strcmp(pattern, short_name(unit)) == 0)
        return FITS_NAME;
    return fnmatch(pattern, unit, 0) == 0 || fnmatch(pattern, short_name(unit), 0) == 0 ? FITS_PATTERN : FITS_NOT;
}

static calm_status unknown_unit(calm_ctx *ctx, const calm_recipe *recipe, const char *pattern, char *const *units,
                                size_t n)
{
    const char **names;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, 2 * n));
    for (size_t i = 0; i < n; i++) {
        names[2 * i] = short_name(units[i]);
        names[2 * i + 1] = units[i];
    }
    const char *near = calm_nearest(pattern, names, 2 * n);
    return calm_fail(ctx, CALM_EARG, "--pin %s: no unit of this run has such a name (--unit %s)%s%s%s; they are like %s",
                     pattern, calm_unit_name(recipe->selection.unit), near ? "; did you mean \"" : "", near ? near : "",
                     near ? "\"?" : "", short_name(units[0]));
}

/* The entry that the pins say for a unit: by its name, else by patterns, which must agree. */
static calm_status pin_unit(calm_ctx *ctx, const calm_recipe *recipe, const char *unit, bool *used, size_t *entry)
{
    fit best = FITS_NOT;
    *entry = CALM_NO_PIN;
    for (size_t i = 0; i < recipe->n_pins; i++) {
        const fit how = fits(recipe->pins[i].unit, unit);
        used[i] |= how != FITS_NOT;
        if (how == FITS_NOT || how < best)
            continue;
        if (how == best && *entry != recipe->pins[i].entry)
            return calm_fail(ctx, CALM_EARG, "--pin: %s is to be %s and %s", unit, recipe->pool[*entry].name,
                             recipe->pool[recipe->pins[i].entry].name);
        best = how;
        *entry = recipe->pins[i].entry;
    }
    return CALM_OK;
}

calm_status calm_pipeline_pin(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_recipe *recipe = p->recipe;
    size_t first, end, n = 0;
    char **units;
    bool *used;
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->pinned, layout->n_jobs));
    for (size_t job = 0; job < layout->n_jobs; job++)
        p->pinned[job] = CALM_NO_PIN;
    if (!recipe->n_pins)
        return CALM_OK;
    calm_pipeline_jobs(p, &first, &end);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, units, end - first));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, used, recipe->n_pins));
    for (size_t job = first, unit_end; job < end; job = unit_end, n++) {
        size_t begin, entry;
        calm_layout_unit(layout, recipe->selection.unit, job, &begin, &unit_end);
        CALM_TRY(calm_layout_unit_name(ctx, layout, recipe->selection.unit, job, &units[n]));
        CALM_TRY(pin_unit(ctx, recipe, units[n], used, &entry));
        for (size_t j = begin; j < unit_end; j++)
            p->pinned[j] = entry;
    }
    for (size_t i = 0; i < recipe->n_pins; i++)
        if (!used[i])
            return unknown_unit(ctx, recipe, recipe->pins[i].unit, units, n);
    return CALM_OK;
}

size_t calm_pipeline_pinned(const calm_pipeline *p, size_t job)
{
    return p->pinned ? p->pinned[job] : CALM_NO_PIN;
}

calm_status calm_pipeline_uniform_pinned(calm_ctx *ctx, const calm_pipeline *p, size_t entry, size_t **choice)
{
    size_t first, end;
    calm_pipeline_jobs(p, &first, &end);
    CALM_TRY(calm_pipeline_uniform(ctx, p, entry, choice));
    for (size_t job = first; job < end; job++)
        if (calm_pipeline_pinned(p, job) != CALM_NO_PIN)
            (*choice)[job] = p->pinned[job];
    return CALM_OK;
}
