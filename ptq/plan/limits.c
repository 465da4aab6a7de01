/* Which schemes each unit may have.
 *
 * Ties are between jobs (the experts of a block), choices are for units (a job, an expert, a block): a unit with a tied
 * job is tied as a whole, and its other jobs may extend the tie.  So sets of units are found by union-find, and a set
 * may have a scheme if the engine runs it for every job in the set. */
#include "ptq/plan/limits.h"

#include <string.h>

#include "ptq/base/scope.h"

calm_engine_linear calm_limits_linear(const calm_pool_job *job)
{
    return (calm_engine_linear){job->name, job->out, job->in, job->expert, job->part, false};
}

static bool takes(const calm_limits *limits, const calm_pool *pool, const calm_pool_job *job, size_t scheme)
{
    const calm_engine_linear linear = calm_limits_linear(job);
    return calm_engine_verdict(limits->engine, limits->format, &linear,
                               calm_pool_scheme(job, &pool->schemes[scheme])) == CALM_ENGINE_TAKES;
}

bool calm_limits_allow(const calm_limits *limits, size_t unit, size_t scheme)
{
    return !limits->takes || limits->takes[unit * limits->n_schemes + scheme];
}

bool calm_limits_any_job_allows(const calm_limits *limits, const calm_pool *pool, size_t scheme)
{
    for (size_t j = 0; j < pool->n_jobs; j++)
        if (takes(limits, pool, &pool->jobs[j], scheme))
            return true;
    return false;
}

/* ---- sets ---- */

/* Follows links to the first unit of a set; links point to lower numbers, so the loop ends. */
static size_t first_of(const size_t *set, size_t unit)
{
    while (set[unit] != unit)
        unit = set[unit];
    return unit;
}

/* The lower number becomes the first unit, by which a set is known. */
static void join(size_t *set, size_t a, size_t b)
{
    a = first_of(set, a);
    b = first_of(set, b);
    set[a < b ? b : a] = a < b ? a : b;
}

static size_t tie_of(const calm_limits *limits, const calm_pool_job *job)
{
    return calm_tie_number(limits->tie, job->block, job->expert, job->down);
}

/* Joins units whose jobs have the same tie number; a unit with several jobs may join several ties. */
static calm_status find_sets(calm_ctx *ctx, const calm_pool *pool, calm_limits *limits)
{
    size_t most = 0, *unit_of;    /* [most + 1] first unit of a tie number, plus 1 */
    CALM_TRY(CALM_NEW(ctx, ctx->out, limits->set, pool->n_units));
    for (size_t j = 0; j < pool->n_jobs; j++)
        most = tie_of(limits, &pool->jobs[j]) > most ? tie_of(limits, &pool->jobs[j]) : most;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, unit_of, most + 1));
    for (size_t u = 0; u < pool->n_units; u++)
        limits->set[u] = u;
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t j = pool->unit_begin[u]; j < pool->unit_begin[u + 1]; j++) {
            const size_t number = tie_of(limits, &pool->jobs[j]);
            if (number && unit_of[number])
                join(limits->set, unit_of[number] - 1, u);
            if (number)
                unit_of[number] = u + 1;
        }
    for (size_t u = 0; u < pool->n_units; u++)
        limits->set[u] = first_of(limits->set, u);
    return CALM_OK;
}

/* Returns true if a set has several units and there are several schemes; with one scheme a tie has no effect. */
static bool ties(const calm_limits *limits, const calm_pool *pool)
{
    for (size_t u = 0; u < pool->n_units; u++)
        if (limits->set[u] != u)
            return pool->n_schemes > 1;
    return false;
}

/* ---- sets without a scheme ---- */

/* Fails, with a remedy, if the engine runs none of the offered schemes for a job. */
static calm_status refuse_job(calm_ctx *ctx, const calm_limits *limits, const calm_pool *pool, const bool *offered,
                              const calm_pool_job *job)
{
    const calm_engine_linear linear = calm_limits_linear(job);
    /* From the last scheme to the first, so that the failure is about the first scheme offered. */
    size_t first = pool->n_schemes;
    for (size_t s = pool->n_schemes; s-- > 0;) {
        if (!offered[s])
            continue;
        if (takes(limits, pool, job, s))
            return CALM_OK;
        first = s;
    }
    return first == pool->n_schemes
               ? CALM_OK
               : calm_engine_check_scheme(ctx, limits->engine, limits->format, &linear,
                                          calm_pool_scheme(job, &pool->schemes[first]));
}

/* Appends why a job excludes a scheme from its set; *keeps false: it does not. */
static calm_status print_keeper(calm_ctx *ctx, const calm_limits *limits, const calm_pool *pool, bool offered,
                                const calm_pool_job *job, size_t scheme, calm_text *out, bool *keeps)
{
    const calm_engine_linear linear = calm_limits_linear(job);
    char *why = "another is pinned";
    *keeps = !offered || !takes(limits, pool, job, scheme);
    if (!*keeps)
        return CALM_OK;
    if (offered)
        CALM_TRY(calm_engine_explain(ctx, limits->engine, limits->format, &linear, &pool->schemes[scheme], &why));
    const char *name = CALM_SCHEME_NAME(&pool->schemes[scheme]);
    calm_text_printf(out, "%s%s not %s (%s)", scheme ? ", " : "", job->name, name, why);
    return CALM_OK;
}

/* Appends for each scheme the first job that excludes it from the set. */
static calm_status print_keepers(calm_ctx *ctx, const calm_limits *limits, const calm_pool *pool, const bool *offered,
                                 size_t set, calm_text *out)
{
    for (size_t s = 0; s < pool->n_schemes; s++) {
        bool found = false;
        for (size_t u = 0; u < pool->n_units && !found; u++)
            for (size_t j = pool->unit_begin[u]; j < pool->unit_begin[u + 1] && limits->set[u] == set && !found; j++)
                CALM_TRY(print_keeper(ctx, limits, pool, offered[u * pool->n_schemes + s], &pool->jobs[j], s, out,
                                      &found));
    }
    return CALM_OK;
}

static calm_status refuse_set(calm_ctx *ctx, const calm_limits *limits, const calm_pool *pool, const bool *offered,
                              size_t set)
{
    CALM_SCOPED_TEXT(text);
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t j = pool->unit_begin[u]; j < pool->unit_begin[u + 1] && limits->set[u] == set; j++)
            CALM_TRY(refuse_job(ctx, limits, pool, offered + u * pool->n_schemes, &pool->jobs[j]));
    CALM_TRY(print_keepers(ctx, limits, pool, offered, set, &text));
    CALM_TRY(calm_text_check(ctx, &text));
    return calm_fail(ctx, CALM_EARG, "%s%s: %s share a scheme, and none is left to them: %.700s",
                     calm_engine_is_any(limits->engine) ? limits->asks : "`target` ",
                     calm_engine_is_any(limits->engine) ? "" : calm_engine_name(limits->engine),
                     calm_tie_text(limits->tie), text.data);
}

/* ---- limits of a pool ---- */

calm_status calm_limits_apply(calm_ctx *ctx, const calm_pool *pool, const bool *offered, calm_limits *limits)
{
    size_t n;
    limits->n_schemes = pool->n_schemes;
    limits->takes = NULL;
    if (!calm_size_mul(&n, pool->n_units, pool->n_schemes))
        return calm_fail(ctx, CALM_ENOMEM, "%zu units of %zu schemes", pool->n_units, pool->n_schemes);
    CALM_TRY(find_sets(ctx, pool, limits));
    if (calm_engine_is_any(limits->engine) && !ties(limits, pool)) {
        limits->set = NULL;
        return CALM_OK;
    }
    CALM_TRY(calm_engine_is_any(limits->engine)
                 ? calm_strf(ctx, ctx->out, &limits->asks, "the format written")
                 : calm_strf(ctx, ctx->out, &limits->asks, "target %s", calm_engine_name(limits->engine)));
    /* All true at first: units of a set may then remove schemes in any order. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, limits->takes, n));
    memset(limits->takes, true, n);
    /* The row of a set's first unit becomes the schemes of all its units; the others copy it. */
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t j = pool->unit_begin[u]; j < pool->unit_begin[u + 1]; j++)
            for (size_t s = 0; s < pool->n_schemes; s++)
                limits->takes[limits->set[u] * pool->n_schemes + s] &=
                    takes(limits, pool, &pool->jobs[j], s) && offered[u * pool->n_schemes + s];
    for (size_t u = 0; u < pool->n_units; u++) {
        bool *row = limits->takes + u * pool->n_schemes;
        /* memmove: the first unit of a set copies its row onto itself. */
        memmove(row, limits->takes + limits->set[u] * pool->n_schemes, pool->n_schemes);
        if (!memchr(row, true, pool->n_schemes))
            return refuse_set(ctx, limits, pool, offered, limits->set[u]);
    }
    return CALM_OK;
}

calm_status calm_limits_cost(calm_ctx *ctx, const calm_limits *limits, size_t held, const char *loss,
                             double constrained, double unconstrained, char **out)
{
    if (!held)
        return calm_strf(ctx, ctx->out, out, "%s: nothing was held back", limits->asks);
    return calm_strf(ctx, ctx->out, out, "%s: %zu unit%s held back, %s %.3e instead of %.3e", limits->asks, held,
                     held == 1 ? " was" : "s were", loss, constrained, unconstrained);
}
