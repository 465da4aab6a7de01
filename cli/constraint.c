/* The target's part in a choice. */
#include "cli/constraint.h"

#include <string.h>

#include "ptq/base/text.h"

static calm_engine_linear linear_of(const calm_constraint_job *job)
{
    return (calm_engine_linear){job->name, job->out, job->in, job->expert};
}

static bool takes(const calm_constraint *c, const calm_constraint_job *job, size_t scheme)
{
    const calm_engine_linear linear = linear_of(job);
    return calm_engine_verdict(c->target, c->format, &linear, &c->schemes[scheme]) == CALM_ENGINE_TAKES;
}

bool calm_constraint_takes(const calm_constraint *c, size_t unit, size_t scheme)
{
    return !c->takes || c->takes[unit * c->n_schemes + scheme];
}

bool calm_constraint_knows(const calm_constraint *c, size_t scheme)
{
    for (size_t j = 0; j < c->n_jobs; j++)
        if (takes(c, &c->jobs[j], scheme))
            return true;
    return false;
}

/* ---- sets ---- */

static size_t first_of(const size_t *set, size_t unit)
{
    while (set[unit] != unit)
        unit = set[unit];
    return unit;
}

/* The lower number is the first of both. */
static void join(size_t *set, size_t a, size_t b)
{
    a = first_of(set, a);
    b = first_of(set, b);
    set[a < b ? b : a] = a < b ? a : b;
}

/* Units of jobs with one tie number are one set. */
static calm_status find_sets(calm_ctx *ctx, calm_constraint *c)
{
    size_t most = 0, *unit_of;    /* [most + 1] the number's first unit + 1 */
    for (size_t j = 0; j < c->n_jobs; j++) {
        const size_t number = calm_tie_number(c->tie, c->jobs[j].block, c->jobs[j].expert, c->jobs[j].down);
        most = number > most ? number : most;
    }
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, unit_of, most + 1));
    for (size_t u = 0; u < c->n_units; u++)
        c->set[u] = u;
    for (size_t j = 0; j < c->n_jobs; j++) {
        const size_t number = calm_tie_number(c->tie, c->jobs[j].block, c->jobs[j].expert, c->jobs[j].down);
        if (number && unit_of[number])
            join(c->set, unit_of[number] - 1, c->jobs[j].unit);
        if (number)
            unit_of[number] = c->jobs[j].unit + 1;
    }
    for (size_t u = 0; u < c->n_units; u++)
        c->set[u] = first_of(c->set, u);
    return CALM_OK;
}

/* Does a set have several units, and are there several schemes to differ in? */
static bool ties(const calm_constraint *c)
{
    for (size_t u = 0; u < c->n_units; u++)
        if (c->set[u] != u)
            return c->n_schemes > 1;
    return false;
}

/* ---- sets that nothing is left to ---- */

static bool is_offered(const calm_constraint *c, const bool *offered, size_t unit, size_t scheme)
{
    return !offered || offered[unit * c->n_schemes + scheme];
}

/* A job that refuses everything that is offered is told by itself. */
static calm_status refuse_job(calm_ctx *ctx, const calm_constraint *c, const bool *offered,
                              const calm_constraint_job *job)
{
    const calm_engine_linear linear = linear_of(job);
    size_t first = c->n_schemes;
    for (size_t s = c->n_schemes; s-- > 0;) {
        if (!is_offered(c, offered, job->unit, s))
            continue;
        if (takes(c, job, s))
            return CALM_OK;
        first = s;
    }
    return first == c->n_schemes ? CALM_OK
                                 : calm_engine_check_scheme(ctx, c->target, c->format, &linear, &c->schemes[first]);
}

/* Each scheme with the first job that keeps it from the set. */
static calm_status print_keepers(calm_ctx *ctx, const calm_constraint *c, const bool *offered, size_t set,
                                 calm_text *out)
{
    for (size_t s = 0; s < c->n_schemes; s++)
        for (size_t j = 0; j < c->n_jobs; j++) {
            const calm_constraint_job *job = &c->jobs[j];
            const bool may = is_offered(c, offered, job->unit, s);
            const calm_engine_linear linear = linear_of(job);
            char name[CALM_SCHEME_NAME_MAX], *why = "another is pinned";
            if (c->set[job->unit] != set || (may && takes(c, job, s)))
                continue;
            calm_scheme_name(&c->schemes[s], name);
            if (may)
                CALM_TRY(calm_engine_explain(ctx, c->target, c->format, &linear, &c->schemes[s], &why));
            calm_text_printf(out, "%s%s not %s (%s)", s ? ", " : "", job->name, name, why);
            break;
        }
    return CALM_OK;
}

static calm_status refuse_set(calm_ctx *ctx, const calm_constraint *c, const bool *offered, size_t set)
{
    calm_text text;
    for (size_t j = 0; j < c->n_jobs; j++)
        if (c->set[c->jobs[j].unit] == set)
            CALM_TRY(refuse_job(ctx, c, offered, &c->jobs[j]));
    calm_text_init(&text);
    calm_status status = print_keepers(ctx, c, offered, set, &text);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = calm_fail(ctx, CALM_EARG, "%s%s: %s share a scheme, and none is left to them: %.700s",
                           calm_engine_is_any(c->target) ? "" : "--", c->asks, calm_tie_text(c->tie), text.data);
    calm_text_clear(&text);
    return status;
}

/* ---- all of it ---- */

calm_status calm_constraint_apply(calm_ctx *ctx, const bool *offered, calm_constraint *c)
{
    size_t n;
    c->n_units = c->n_jobs ? c->jobs[c->n_jobs - 1].unit + 1 : 0;
    if (!calm_size_mul(&n, c->n_units, c->n_schemes))
        return calm_fail(ctx, CALM_ENOMEM, "%zu units of %zu schemes", c->n_units, c->n_schemes);
    CALM_TRY(CALM_NEW(ctx, ctx->out, c->set, c->n_units));
    CALM_TRY(find_sets(ctx, c));
    c->takes = NULL;
    if (calm_engine_is_any(c->target) && !ties(c)) {
        c->set = NULL;
        return CALM_OK;
    }
    CALM_TRY(calm_engine_is_any(c->target)
                 ? calm_strf(ctx, ctx->out, &c->asks, "the format written")
                 : calm_strf(ctx, ctx->out, &c->asks, "target %s", calm_engine_name(c->target)));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, c->takes, n));
    memset(c->takes, true, n);
    for (size_t j = 0; j < c->n_jobs; j++)
        for (size_t s = 0; s < c->n_schemes; s++)
            c->takes[c->set[c->jobs[j].unit] * c->n_schemes + s] &=
                takes(c, &c->jobs[j], s) && is_offered(c, offered, c->jobs[j].unit, s);
    for (size_t u = 0; u < c->n_units; u++) {
        memcpy(c->takes + u * c->n_schemes, c->takes + c->set[u] * c->n_schemes, c->n_schemes);
        if (!memchr(c->takes + u * c->n_schemes, true, c->n_schemes))
            return refuse_set(ctx, c, offered, c->set[u]);
    }
    return CALM_OK;
}

calm_status calm_constraint_cost(calm_ctx *ctx, const calm_constraint *c, size_t held, const char *loss,
                                 double constrained, double unconstrained, char **out)
{
    if (!held)
        return calm_strf(ctx, ctx->out, out, "%s: nothing was held back", c->asks);
    return calm_strf(ctx, ctx->out, out, "%s: %zu unit%s held back, %s %.3e instead of %.3e", c->asks, held,
                     held == 1 ? " was" : "s were", loss, constrained, unconstrained);
}
