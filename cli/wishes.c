/* What people wish of a choice: entries that are forbidden, units that are pinned. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cli/solve.h"

/* What a wish names: entries everywhere, or a candidate, which is one entry of one unit. */
typedef struct named {
    bool *entries;      /* [n_entries]                 */
    int64_t id;         /* 0: not a candidate's number */
    size_t unit;        /* of that candidate           */
} named;

static bool names_entry(const calm_solve_entry *entry, const char *word)
{
    const size_t length = strlen(entry->algorithm);
    return strcmp(word, entry->algorithm) == 0 || strcmp(word, entry->name) == 0 || strcmp(word, entry->chain) == 0 ||
           (strncmp(word, entry->algorithm, length) == 0 && word[length] == ' ' &&
            strcmp(word + length + 1, entry->scheme_name) == 0);
}

/* "#123" */
static calm_status find_number(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solution *units,
                               const char *option, const char *word, named *out)
{
    char *end;
    out->id = strtoll(word + 1, &end, 10);
    for (size_t u = 0; u < units->n_units && out->id > 0 && !*end; u++)
        for (size_t i = units->begin[u] * pool->n_entries; i < units->begin[u + 1] * pool->n_entries; i++)
            if (pool->rows[i].id == out->id) {
                out->entries[i % pool->n_entries] = true;
                out->unit = u;
                return CALM_OK;
            }
    return calm_fail(ctx, CALM_EARG, "%s %s: the run has no such candidate; calm inspect shows their numbers", option,
                     word);
}

static calm_status find_entries(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solution *units,
                                const char *option, const char *word, named *out)
{
    const char **names;
    bool any = false;
    *out = (named){0};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->entries, pool->n_entries));
    if (word[0] == '#')
        return find_number(ctx, pool, units, option, word, out);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, 2 * pool->n_entries));
    for (size_t i = 0; i < pool->n_entries; i++) {
        any |= out->entries[i] = names_entry(&pool->entries[i], word);
        names[2 * i] = pool->entries[i].algorithm;
        names[2 * i + 1] = pool->entries[i].name;
    }
    if (any)
        return CALM_OK;
    const char *near = calm_nearest(word, names, 2 * pool->n_entries);
    return calm_fail(ctx, CALM_EARG, "%s %s: nothing of that name competed%s%s%s", option, word,
                     near ? "; did you mean \"" : "; see calm inspect", near ? near : "", near ? "\"?" : "");
}

/* ---- forbidding ---- */

static calm_status forbid(calm_ctx *ctx, const calm_solve_pool *pool, const char *word, const calm_solution *units,
                          bool *allowed)
{
    named what;
    CALM_TRY(find_entries(ctx, pool, units, "--forbid", word, &what));
    for (size_t u = 0; u < units->n_units; u++)
        for (size_t i = 0; i < pool->n_entries && (!what.id || u == what.unit); i++)
            allowed[u * pool->n_entries + i] &= !what.entries[i];
    return CALM_OK;
}

static calm_status check_left(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solution *units,
                              const bool *allowed)
{
    for (size_t u = 0; u < units->n_units; u++) {
        bool any = false;
        for (size_t i = 0; i < pool->n_entries; i++)
            any |= allowed[u * pool->n_entries + i];
        if (!any)
            return calm_fail(ctx, CALM_EARG, "--forbid leaves nothing for %s", pool->jobs[units->begin[u]].unit);
    }
    return CALM_OK;
}

/* ---- pinning ---- */

static calm_status unknown_unit(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solution *units,
                                const calm_solve_pin *pin)
{
    const char **names;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, units->n_units));
    for (size_t u = 0; u < units->n_units; u++)
        names[u] = pool->jobs[units->begin[u]].unit;
    const char *near = calm_nearest(pin->unit, names, units->n_units);
    return calm_fail(ctx, CALM_EARG, "--pin %s=%s: no %s of that name%s%s%s", pin->unit, pin->candidate,
                     calm_unit_name(pool->unit), near ? "; did you mean \"" : ", as ", near ? near : names[0],
                     near ? "\"?" : "");
}

/* "model.layers.0.qkv" without what all units share: "0.qkv". */
static const char *short_name(const char *unit)
{
    for (const char *at = unit; at; at = strchr(at, '.'), at = at ? at + 1 : NULL)
        if (*at >= '0' && *at <= '9')
            return at;
    return unit;
}

static bool names_unit(const calm_solve_pin *pin, const char *unit)
{
    return strcmp(pin->unit, unit) == 0 || fnmatch(pin->unit, unit, 0) == 0 || fnmatch(pin->unit, short_name(unit),
                                                                                       0) == 0;
}

/* Leave a unit what its pin names. */
static calm_status pin_unit(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_pin *pin, const named *what,
                            const char *unit, bool *allowed)
{
    bool any = false;
    for (size_t i = 0; i < pool->n_entries; i++)
        any |= allowed[i] &= what->entries[i];
    return any ? CALM_OK : calm_fail(ctx, CALM_EARG, "--pin %s=%s: --forbid leaves that out for %s", pin->unit,
                                     pin->candidate, unit);
}

/* Every pin must name something, also one that another overrides. */
static calm_status check_pin(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solution *units,
                             const calm_solve_pin *pin, named *what)
{
    bool any = false;
    CALM_TRY(find_entries(ctx, pool, units, "--pin", pin->candidate, what));
    for (size_t u = 0; u < units->n_units; u++) {
        const char *unit = pool->jobs[units->begin[u]].unit;
        if (!names_unit(pin, unit))
            continue;
        any = true;
        if (what->id && what->unit != u)
            return calm_fail(ctx, CALM_EARG, "--pin %s=%s: that candidate is of %s, not of %s", pin->unit,
                             pin->candidate, pool->jobs[units->begin[what->unit]].unit, unit);
    }
    return any ? CALM_OK : unknown_unit(ctx, pool, units, pin);
}

static calm_status pin_all(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                           const calm_solution *units, bool *allowed, size_t *pinned)
{
    named *what;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, what, wishes->n_pins));
    for (size_t i = 0; i < wishes->n_pins; i++)
        CALM_TRY(check_pin(ctx, pool, units, &wishes->pins[i], &what[i]));
    for (size_t u = 0; u < units->n_units; u++) {
        const char *unit = pool->jobs[units->begin[u]].unit;
        for (size_t i = 0; i < wishes->n_pins; i++)
            pinned[u] = names_unit(&wishes->pins[i], unit) ? i + 1 : pinned[u];
        if (pinned[u])
            CALM_TRY(pin_unit(ctx, pool, &wishes->pins[pinned[u] - 1], &what[pinned[u] - 1], unit,
                              allowed + u * pool->n_entries));
    }
    return CALM_OK;
}

calm_status calm_solve_allow(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                             const calm_solution *units, bool **allowed, size_t **pinned)
{
    size_t n;
    if (!calm_size_mul(&n, units->n_units, pool->n_entries))
        return calm_fail(ctx, CALM_ENOMEM, "%zu units of %zu candidates", units->n_units, pool->n_entries);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, *allowed, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *pinned, units->n_units));
    memset(*allowed, true, n);
    for (size_t i = 0; i < wishes->n_forbid; i++)
        CALM_TRY(forbid(ctx, pool, wishes->forbid[i], units, *allowed));
    CALM_TRY(check_left(ctx, pool, units, *allowed));
    return wishes->n_pins ? pin_all(ctx, pool, wishes, units, *allowed, *pinned) : CALM_OK;
}
