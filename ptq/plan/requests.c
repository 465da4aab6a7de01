/* Computes from requests what each unit may have. */
#include "ptq/plan/requests.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/base/scope.h"

#define PIN    "`choice.pins`"
#define FORBID "`choice.forbid`"

/* ---- words ---- */

bool calm_word_is_number(const calm_word *word)
{
    return word->said[0] == '#';
}

/* Returns true if a word names the entry by its algorithm, name or chain, alone or with the scheme appended. */
static bool names_entry(const calm_pool_entry *entry, const char *word)
{
    /* A chain is compared character by character, because its punctuation has a meaning in patterns. */
    const char *const heads[] = {entry->algorithm, entry->chain};
    bool named = strcmp(word, entry->name) == 0 || fnmatch(word, entry->name, 0) == 0 ||
                 fnmatch(word, entry->algorithm, 0) == 0;
    for (size_t i = 0; i < 2 && !named; i++) {
        const size_t n = strlen(heads[i]);
        named = strncmp(word, heads[i], n) == 0 &&
                (word[n] == '\0' || (word[n] == ' ' && strcmp(word + n + 1, entry->scheme_name) == 0));
    }
    return named;
}

/* Fails with all entries' names: "there are rtn, gptq". */
static calm_status unknown_entry(calm_ctx *ctx, const calm_pool_entry *entries, size_t n, const char *key,
                                 const char *word)
{
    const char **names;
    CALM_SCOPED_TEXT(all);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, 2 * n));
    for (size_t i = 0; i < n; i++) {
        names[2 * i] = entries[i].algorithm;
        names[2 * i + 1] = entries[i].name;
        calm_text_printf(&all, "%s%s", i ? ", " : "", entries[i].name);
    }
    const char *near = calm_nearest(word, names, 2 * n);
    return calm_fail(ctx, CALM_EARG, "`%s` %s: no candidate has that name%s%s%s; there are %.600s", key, word,
                     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "",
                     all.data ? all.data : "none");
}

calm_status calm_word_entries(calm_ctx *ctx, const calm_pool_entry *entries, size_t n, const char *key,
                              const calm_word *word, bool *marks)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        /* As typed, and with the canonical chain, because options in another order are the same chain. */
        any |= marks[i] = names_entry(&entries[i], word->said) || names_entry(&entries[i], word->means);
    return any ? CALM_OK : unknown_entry(ctx, entries, n, key, word->said);
}

/* What a word names: entries in all units, or a candidate, which is one entry of one unit. */
typedef struct named {
    bool *entries;      /* [n_entries]                 */
    bool number;        /* the word is a candidate's number */
    size_t unit;        /* the candidate's unit */
} named;

/* Finds the candidate of "#123". */
static calm_status find_number(calm_ctx *ctx, const calm_pool *pool, const char *key, const char *said, named *out)
{
    char *end;
    const long long id = strtoll(said + 1, &end, 10);
    /* Candidates get numbers when they are stored; before that the word is accepted and names nothing. */
    out->number = true;
    out->unit = SIZE_MAX;
    if (!pool->numbered)
        return CALM_OK;
    for (size_t u = 0; u < pool->n_units && id > 0 && !*end; u++)
        for (size_t i = pool->unit_begin[u] * pool->n_entries; i < pool->unit_begin[u + 1] * pool->n_entries; i++)
            if (pool->cells[i].id == id) {
                out->entries[i % pool->n_entries] = true;
                out->unit = u;
                return CALM_OK;
            }
    return calm_fail(ctx, CALM_EARG, "`%s` %s: the run has no such candidate; calm inspect shows their numbers", key,
                     said);
}

static calm_status find_named(calm_ctx *ctx, const calm_pool *pool, const char *key, const calm_word *word, named *out)
{
    *out = (named){0};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->entries, pool->n_entries));
    return calm_word_is_number(word)
               ? find_number(ctx, pool, key, word->said, out)
               : calm_word_entries(ctx, pool->entries, pool->n_entries, key, word, out->entries);
}

/* ---- forbidden entries ---- */

static calm_status forbid(calm_ctx *ctx, const calm_pool *pool, const calm_word *word, bool *allowed)
{
    named what;
    CALM_TRY(find_named(ctx, pool, "choice.forbid", word, &what));
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t i = 0; i < pool->n_entries && (!what.number || u == what.unit); i++)
            allowed[u * pool->n_entries + i] &= !what.entries[i];
    return CALM_OK;
}

static calm_status check_left(calm_ctx *ctx, const calm_pool *pool, const bool *allowed)
{
    /* Checked before pins, so that the message names the right option. */
    for (size_t u = 0; u < pool->n_units; u++)
        if (!memchr(allowed + u * pool->n_entries, true, pool->n_entries))
            return calm_fail(ctx, CALM_EARG, FORBID " leaves nothing for %s", calm_pool_unit(pool, u));
    return CALM_OK;
}

/* ---- pins ---- */

const char *calm_unit_short_name(const char *unit)
{
    for (const char *at = unit; at; at = strchr(at, '.'), at = at ? at + 1 : NULL)
        /* The first component that begins with a digit is the block's number; all units share what is before it. */
        if (*at >= '0' && *at <= '9')
            return at;
    return unit;
}

calm_pin_fit calm_pin_fits(const char *pin, const char *unit)
{
    const char *brief = calm_unit_short_name(unit);
    if (strcmp(pin, unit) == 0 || strcmp(pin, brief) == 0)
        return CALM_FITS_NAME;
    return fnmatch(pin, unit, 0) == 0 || fnmatch(pin, brief, 0) == 0 ? CALM_FITS_PATTERN : CALM_FITS_NOT;
}

static calm_status unknown_unit(calm_ctx *ctx, const calm_pool *pool, const calm_pin *pin)
{
    const char **names;
    char hint[CALM_HINT_MAX];
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, 2 * pool->n_units));
    for (size_t u = 0; u < pool->n_units; u++) {
        names[2 * u] = calm_unit_short_name(calm_pool_unit(pool, u));
        names[2 * u + 1] = calm_pool_unit(pool, u);
    }
    return calm_fail(ctx, CALM_EARG, PIN " %s=%s: this run has no %s of that name%s; they are like %s", pin->unit,
                     pin->candidate.said, calm_unit_name(pool->unit),
                     calm_did_you_mean(hint, pin->unit, names, 2 * pool->n_units), names[0]);
}

/* Fails unless a pin names a unit, even if a later pin overrides it; a numbered candidate must belong to that unit. */
static calm_status check_pin(calm_ctx *ctx, const calm_pool *pool, const calm_pin *pin, named *what)
{
    bool any = false;
    CALM_TRY(find_named(ctx, pool, "choice.pins", &pin->candidate, what));
    for (size_t u = 0; u < pool->n_units; u++) {
        if (calm_pin_fits(pin->unit, calm_pool_unit(pool, u)) == CALM_FITS_NOT)
            continue;
        any = true;
        if (what->number && pool->numbered && what->unit != u)
            return calm_fail(ctx, CALM_EARG, PIN " %s=%s: that candidate is of %s, not of %s", pin->unit,
                             pin->candidate.said, calm_pool_unit(pool, what->unit), calm_pool_unit(pool, u));
    }
    return any ? CALM_OK : unknown_unit(ctx, pool, pin);
}

/* Finds the pin in force for a unit: of the last round that names it, an exact name before a pattern. */
static calm_status find_pin(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, const named *what,
                            size_t unit, size_t *out)
{
    calm_pin_fit best = CALM_FITS_NOT;
    *out = SIZE_MAX;
    for (size_t i = 0; i < requests->n_pins; i++) {
        const calm_pin *pin = &requests->pins[i], *before = *out == SIZE_MAX ? NULL : &requests->pins[*out];
        const calm_pin_fit how = calm_pin_fits(pin->unit, calm_pool_unit(pool, unit));
        if (how == CALM_FITS_NOT || (before && before->round == pin->round && how < best))
            continue;
        if (before && before->round == pin->round && how == best &&
            memcmp(what[*out].entries, what[i].entries, pool->n_entries) != 0)
            return calm_fail(ctx, CALM_EARG, PIN ": %s is to be %s (%s) and %s (%s)", calm_pool_unit(pool, unit),
                             before->candidate.said, before->unit, pin->candidate.said, pin->unit);
        best = how;
        *out = i;
    }
    return CALM_OK;
}

static calm_status pin_unit(calm_ctx *ctx, const calm_pool *pool, const calm_pin *pin, const named *what, size_t unit,
                            calm_scope *out)
{
    bool *allowed = out->allowed + unit * pool->n_entries, had = false;
    out->pin[unit] = pin;
    if (what->number && !pool->numbered)
        return CALM_OK;
    for (size_t i = 0; i < pool->n_entries; i++)
        allowed[i] &= what->entries[i];
    if (!memchr(allowed, true, pool->n_entries))
        return calm_fail(ctx, CALM_EARG, PIN " %s=%s: " FORBID " leaves that out for %s", pin->unit,
                         pin->candidate.said, calm_pool_unit(pool, unit));
    /* If a pin names several entries, one that succeeded is enough. */
    const char *failure = NULL;
    for (size_t i = 0; i < pool->n_entries; i++)
        if (allowed[i]) {
            const char *of_entry = calm_pool_failure(pool, unit, i);
            failure = of_entry ? of_entry : failure;
            had |= !of_entry;
        }
    return had ? CALM_OK : calm_fail(ctx, CALM_ENUMERIC, PIN " %s=%s: %s has no such result: %s", pin->unit,
                                     pin->candidate.said, calm_pool_unit(pool, unit), failure);
}

static calm_status pin_all(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_scope *out)
{
    named *what;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, what, requests->n_pins));
    for (size_t i = 0; i < requests->n_pins; i++)
        CALM_TRY(check_pin(ctx, pool, &requests->pins[i], &what[i]));
    for (size_t u = 0; u < pool->n_units && requests->n_pins; u++) {
        size_t pin;
        CALM_TRY(find_pin(ctx, pool, requests, what, u, &pin));
        if (pin != SIZE_MAX)
            CALM_TRY(pin_unit(ctx, pool, &requests->pins[pin], &what[pin], u, out));
    }
    return CALM_OK;
}

bool calm_scope_only_entry(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t *entry)
{
    size_t n = 0;
    for (size_t i = 0; i < pool->n_entries && scope->pin[unit]; i++)
        if (scope->allowed[unit * pool->n_entries + i]) {
            *entry = i;
            n++;
        }
    return n == 1;
}

bool calm_scope_pins(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t entry)
{
    return scope->pin[unit] && scope->allowed[unit * pool->n_entries + entry];
}

/* ---- the scope ---- */

/* Computes the engine's limits for the schemes of each unit's allowed entries. */
static calm_status limit(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_scope *out)
{
    bool *offered;
    out->limits = (calm_limits){.engine = requests->engine, .format = requests->format};
    out->limits.tie = calm_tie_stronger(calm_engine_tie(requests->engine, requests->format), requests->tie);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, offered, pool->n_units * pool->n_schemes));
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t i = 0; i < pool->n_entries; i++)
            offered[u * pool->n_schemes + pool->entries[i].of_scheme] |= out->allowed[u * pool->n_entries + i];
    return calm_limits_apply(ctx, pool, offered, &out->limits);
}

calm_status calm_scope_open(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_scope *out)
{
    size_t n;
    *out = (calm_scope){0};
    if (!calm_size_mul(&n, pool->n_units, pool->n_entries))
        return calm_fail(ctx, CALM_ENOMEM, "%zu units of %zu candidates", pool->n_units, pool->n_entries);
    /* Everything is allowed at first; forbidden entries and pins only remove. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->allowed, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->pin, pool->n_units));
    memset(out->allowed, true, n);
    for (size_t i = 0; i < requests->n_forbid; i++)
        CALM_TRY(forbid(ctx, pool, &requests->forbid[i], out->allowed));
    CALM_TRY(check_left(ctx, pool, out->allowed));
    CALM_TRY(pin_all(ctx, pool, requests, out));
    return limit(ctx, pool, requests, out);
}
