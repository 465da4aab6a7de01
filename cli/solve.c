/* Choices from rows. */
#include "cli/solve.h"

#include <math.h>
#include <string.h>

/* "smooth iff crest > 6" chose as CKA did in 23 of 24 jobs at W4A4 (docs/method.md section 5). */
#define SMOOTH_CREST 6.0

/* Bits per weight that no scheme takes, with a scale per weight. */
#define WIDEST 64.0

/* ---- one unit ---- */

const char *calm_pick_advice(double crest)
{
    return isnan(crest) ? NULL : crest > SMOOTH_CREST ? "smooth" : "plain";
}

/* A unit whose candidates could not be scored: the first that did not fail. */
static calm_status pick_blindly(calm_ctx *ctx, const calm_contender *contenders, size_t *winner, char **reason)
{
    *winner = 0;
    while (contenders[*winner].failure)
        ++*winner;
    return calm_strf(ctx, ctx->out, reason,
                     "too few scoring tokens were routed to this expert to compare: the first of the list");
}

calm_status calm_pick_one(calm_ctx *ctx, const calm_pick *pick, const calm_contender *contenders, size_t n,
                          size_t *winner, char **reason)
{
    size_t scored = 0, alive = 0;
    for (size_t i = 0; i < n; i++) {
        alive += !contenders[i].failure;
        scored += !contenders[i].failure && !isnan(contenders[i].metric);
    }
    if (alive && !scored && pick->expert)
        return pick_blindly(ctx, contenders, winner, reason);
    if (alive && !scored && n > 1)
        return calm_fail(ctx, CALM_EARG, "%s: no candidate has a %s; %s", pick->unit, pick->metric, pick->remedy);
    if (alive && n == 1) {
        *winner = 0;
        return calm_strf(ctx, ctx->out, reason, "the only candidate");
    }
    return calm_choose(ctx, pick->rule, pick->metric, contenders, n, winner, reason);
}

/* ---- a pool ---- */

const calm_solve_row *calm_solve_at(const calm_solve_pool *pool, size_t job, size_t entry)
{
    return &pool->rows[job * pool->n_entries + entry];
}

double calm_solve_bits(const calm_solve_pool *pool, size_t begin, size_t end, const calm_scheme *scheme)
{
    double bits = 0;
    for (size_t job = begin; job < end; job++) {
        const size_t out = pool->jobs[job].out, in = pool->jobs[job].in;
        bits += calm_scheme_bits_per_weight(scheme, out, in) * (double)out * (double)in;
    }
    return bits;
}

static double weights_of(const calm_solve_pool *pool, size_t begin, size_t end)
{
    double weights = 0;
    for (size_t job = begin; job < end; job++)
        weights += (double)pool->jobs[job].out * (double)pool->jobs[job].in;
    return weights;
}

/* Why an entry cannot be had for jobs begin .. end - 1; NULL: it can. */
static const char *failure_of(const calm_solve_pool *pool, size_t begin, size_t end, size_t entry)
{
    const char *failure = NULL;
    for (size_t job = begin; job < end && !failure; job++) {
        const calm_solve_row *row = calm_solve_at(pool, job, entry);
        failure = row->id ? row->failure : CALM_NOT_TRIED;
    }
    return failure;
}

static calm_status list_units(calm_ctx *ctx, const calm_solve_pool *pool, calm_solution *out)
{
    *out = (calm_solution){.bits_per_weight = NAN};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, pool->n_jobs + 1));
    for (size_t job = 0; job < pool->n_jobs; job++)
        if (job == 0 || strcmp(pool->jobs[job].unit, pool->jobs[job - 1].unit) != 0)
            out->begin[out->n_units++] = job;
    out->begin[out->n_units] = pool->n_jobs;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->choice, out->n_units));
    return CALM_NEW(ctx, ctx->out, out->reasons, out->n_units);
}

/* What one unit is chosen from: the allowed entries among first .. first + n - 1. */
typedef struct field {
    const calm_solve_pool *pool;
    size_t begin, end;           /* jobs                                                          */
    const bool *allowed;         /* [n_entries]                                                   */
    const calm_solve_pin *pin;   /* NULL: none                                                    */
} field;

static field field_of(const calm_solve_pool *pool, const calm_solve_wishes *wishes, const bool *allowed,
                      const size_t *pinned, const calm_solution *units, size_t u)
{
    return (field){pool, units->begin[u], units->begin[u + 1], allowed + u * pool->n_entries,
                   pinned[u] ? &wishes->pins[pinned[u] - 1] : NULL};
}

/* The number of allowed entries; *last is one of them. */
static size_t count_allowed(const field *f, size_t *last)
{
    size_t n = 0;
    for (size_t i = 0; i < f->pool->n_entries; i++)
        if (f->allowed[i]) {
            *last = i;
            n++;
        }
    return n;
}

/* The one entry that a pin leaves. */
static bool is_settled(const field *f, size_t *entry)
{
    return f->pin && count_allowed(f, entry) == 1;
}

static bool is_expert(const calm_solve_pool *pool, size_t job)
{
    return pool->unit != CALM_UNIT_BLOCK && strncmp(pool->jobs[job].role, "experts.", 8) == 0;
}

/* Everywhere but in the run itself, a score that some candidates lack would make them lose for no fault of theirs. */
static calm_status check_scored(calm_ctx *ctx, const field *f, const calm_contender *contender)
{
    const calm_solve_pool *pool = f->pool;
    if (!pool->every || contender->failure || !isnan(contender->metric) || is_expert(pool, f->begin))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "%s: %s has no %s of a %s in the store; %s", pool->jobs[f->begin].unit,
                     contender->algorithm, pool->metric, calm_unit_name(pool->unit), pool->remedy);
}

static calm_status choose(calm_ctx *ctx, const field *f, size_t first, size_t n, size_t *entry, char **reason)
{
    const calm_solve_pool *pool = f->pool;
    const calm_pick pick = {pool->jobs[f->begin].unit, pool->rule, pool->metric, is_expert(pool, f->begin),
                            pool->remedy};
    calm_contender *contenders;
    size_t *of, n_allowed = 0, winner;
    if (is_settled(f, entry) && !failure_of(pool, f->begin, f->end, *entry))
        return calm_strf(ctx, ctx->out, reason, f->pin->of_recipe ? "pinned by the recipe" : "pinned");
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, contenders, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, of, n));
    for (size_t i = first; i < first + n; i++) {
        const calm_solve_row *row = calm_solve_at(pool, f->begin, i);
        if (!f->allowed[i])
            continue;
        contenders[n_allowed] = (calm_contender){row->key ? row->key : "", pool->entries[i].name,
                                                 failure_of(pool, f->begin, f->end, i), row->metric, row->tie};
        of[n_allowed++] = i;
    }
    for (size_t i = 0; i < n_allowed && n_allowed > 1; i++)
        CALM_TRY(check_scored(ctx, f, &contenders[i]));
    CALM_TRY(calm_pick_one(ctx, &pick, contenders, n_allowed, &winner, reason));
    *entry = of[winner];
    return CALM_OK;
}

/* A failure of its candidates, told with the unit's name. */
static calm_status name_unit(calm_ctx *ctx, const field *f, calm_status status)
{
    char message[CALM_MESSAGE_MAX];
    if (status != CALM_ENUMERIC)
        return status;
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_forgive(ctx);
    return calm_fail(ctx, CALM_ENUMERIC, "%s: %.800s", f->pool->jobs[f->begin].unit, message);
}

static calm_status refuse_pin(calm_ctx *ctx, const field *f)
{
    size_t last = 0;
    count_allowed(f, &last);
    return calm_fail(ctx, CALM_EARG, "--pin %s=%s: %s has no such result: %s", f->pin->unit, f->pin->candidate,
                     f->pool->jobs[f->begin].unit, failure_of(f->pool, f->begin, f->end, last));
}

/* A pin to one entry decides; one to an algorithm at several widths leaves those to the rule. */
static calm_status pinned_reason(calm_ctx *ctx, const field *f, const char *rule, const char **out)
{
    size_t entry;
    char *text;
    *out = rule;
    if (!f->pin || f->pin->of_recipe)
        return CALM_OK;
    *out = "pinned";
    if (is_settled(f, &entry))
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "pinned; %s", rule));
    *out = text;
    return CALM_OK;
}

static bool can_be_had(const field *f)
{
    for (size_t i = 0; i < f->pool->n_entries; i++)
        if (f->allowed[i] && !failure_of(f->pool, f->begin, f->end, i))
            return true;
    return false;
}

/* ---- the target ---- */

/* "model.layers.0." of "model.layers.0.qkv": what the jobs of a block share. */
static bool same_block(const calm_solve_job *a, const calm_solve_job *b)
{
    const size_t n = strlen(a->name), m = strlen(b->name), r = strlen(a->role), q = strlen(b->role);
    return n >= r && m >= q && n - r == m - q && memcmp(a->name, b->name, n - r) == 0;
}

static bool is_down(const char *role)
{
    const size_t n = strlen(role);
    return n >= 4 && strcmp(role + n - 4, "down") == 0;
}

calm_status calm_solve_constrain(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                                 const calm_solution *units, const bool *allowed, calm_constraint *out)
{
    calm_constraint_job *jobs;
    calm_scheme *schemes;
    bool *offered;
    *out = (calm_constraint){.target = wishes->target, .format = wishes->format};
    out->tie = calm_tie_both(calm_engine_tie(wishes->target, wishes->format), wishes->tie);
    CALM_TRY(CALM_NEW(ctx, ctx->out, jobs, pool->n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, schemes, pool->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, offered, units->n_units * pool->n_schemes));
    for (size_t i = 0; i < pool->n_entries; i++)
        schemes[pool->entries[i].of_scheme] = pool->entries[i].scheme;
    for (size_t u = 0; u < units->n_units; u++) {
        for (size_t i = 0; i < pool->n_entries; i++)
            offered[u * pool->n_schemes + pool->entries[i].of_scheme] |= allowed[u * pool->n_entries + i];
        for (size_t j = units->begin[u]; j < units->begin[u + 1]; j++) {
            const calm_solve_job *job = &pool->jobs[j];
            const size_t block = !j ? 0 : jobs[j - 1].block + !same_block(job, &pool->jobs[j - 1]);
            jobs[j] = (calm_constraint_job){.name = job->name, .out = job->out, .in = job->in, .block = block, .unit = u,
                                            .expert = strncmp(job->role, "experts.", 8) == 0, .down = is_down(job->role)};
        }
    }
    out->schemes = schemes;
    out->n_schemes = pool->n_schemes;
    out->jobs = jobs;
    out->n_jobs = pool->n_jobs;
    return calm_constraint_apply(ctx, offered, out);
}

/* ---- without a budget ---- */

static calm_status choose_all(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                              const bool *allowed, const size_t *pinned, calm_solution *out)
{
    for (size_t u = 0; u < out->n_units; u++) {
        const field f = field_of(pool, wishes, allowed, pinned, out, u);
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        char *reason;
        CALM_TRY(name_unit(ctx, &f, choose(ctx, &f, 0, pool->n_entries, &out->choice[u], &reason)));
        calm_arena_rewind(ctx->scratch, mark);
        CALM_TRY(pinned_reason(ctx, &f, reason, &out->reasons[u]));
    }
    return CALM_OK;
}

/* ---- with one ---- */

/* The entry of each scheme that has one for unit `u`, in the order of their bits. */
static calm_status list_options(calm_ctx *ctx, const field *f, const calm_constraint *constraint, size_t u,
                                calm_share *out)
{
    const calm_solve_pool *pool = f->pool;
    CALM_TRY(calm_share_new(ctx, pool->n_schemes, out));
    out->begin = f->begin;
    out->end = f->end;
    out->set = constraint->set ? constraint->set[u] : u;
    for (size_t first = 0, n; first < pool->n_entries; first += n) {
        const size_t scheme = pool->entries[first].of_scheme;
        size_t entry = 0, n_allowed = 0;
        char *reason = NULL;
        for (n = 0; first + n < pool->n_entries && pool->entries[first + n].of_scheme == scheme; n++)
            n_allowed += f->allowed[first + n];
        if (!n_allowed)
            continue;
        const calm_status status = choose(ctx, f, first, n, &entry, &reason);
        if (status == CALM_ENUMERIC) {    /* nothing reached this width: the others are left */
            calm_ctx_forgive(ctx);
            continue;
        }
        CALM_TRY(status);
        calm_share_add(out, entry, scheme, !calm_constraint_takes(constraint, u, scheme), reason,
                       calm_solve_bits(pool, f->begin, f->end, &pool->entries[first].scheme));
    }
    return out->n ? CALM_OK : calm_fail(ctx, CALM_ENUMERIC, "%s: every candidate of every width failed",
                                        pool->jobs[f->begin].unit);
}

/* Probe over score of the unit: of its narrowest option that was probed, else of any entry; NaN: nothing was probed. */
static double kappa_of(const calm_solve_pool *pool, const calm_share *share)
{
    for (size_t i = 0; i < share->n; i++) {
        const calm_solve_row *row = calm_solve_at(pool, share->begin, share->entries[i]);
        if (isfinite(row->probe))
            return calm_share_kappa(row->probe, row->metric);
    }
    for (size_t i = 0; i < pool->n_entries; i++) {
        const calm_solve_row *row = calm_solve_at(pool, share->begin, i);
        if (row->id && isfinite(row->probe) && row->metric > 0)
            return calm_share_kappa(row->probe, row->metric);
    }
    return NAN;
}

/* Probes count only when every unit with scores has one: predicted KL and a score are not to be added up. */
static calm_status set_losses(calm_ctx *ctx, const calm_solve_pool *pool, calm_share *shares, calm_solution *out)
{
    const double weights = weights_of(pool, 0, pool->n_jobs);
    double *scores;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, scores, pool->n_schemes));
    for (size_t u = 0; u < out->n_units; u++)
        out->unprobed += isnan(kappa_of(pool, &shares[u])) &&
                         !isnan(calm_solve_at(pool, shares[u].begin, shares[u].entries[0])->metric);
    for (size_t u = 0; u < out->n_units; u++) {
        const double kappa = kappa_of(pool, &shares[u]);
        for (size_t i = 0; i < shares[u].n; i++)
            scores[i] = calm_solve_at(pool, shares[u].begin, shares[u].entries[i])->metric;
        const double share = weights_of(pool, shares[u].begin, shares[u].end) / weights;
        calm_share_lose(&shares[u], out->unprobed ? share : isnan(kappa) ? 0 : kappa, scores);
    }
    return CALM_OK;
}

/* CALM_EARG when no plan takes so many bits: below the narrowest there is, or above the widest that is allowed. */
static calm_status check_budget(calm_ctx *ctx, const calm_solve_pool *pool, const bool *allowed,
                                const calm_constraint *constraint, const calm_share *shares, size_t n, double budget)
{
    const double weights = weights_of(pool, 0, pool->n_jobs);
    double least = 0, most = 0;
    for (size_t u = 0; u < n; u++) {
        double high = 0;
        size_t narrowest = 0;
        for (size_t i = 0; i < pool->n_entries; i++)
            if (allowed[u * pool->n_entries + i] && calm_constraint_takes(constraint, u, pool->entries[i].of_scheme))
                high = fmax(high, calm_solve_bits(pool, shares[u].begin, shares[u].end, &pool->entries[i].scheme));
        while (narrowest + 1 < shares[u].n && shares[u].held[narrowest])
            narrowest++;
        least += (double)shares[u].options[narrowest].cost;
        most += high;
    }
    /* As whole bits, which is what the knapsack is given. */
    if (floor(budget * weights + 0.5) < least || budget * weights > most * (1 + 1e-12))
        return calm_fail(ctx, CALM_EARG, "--budget %g: the plans of this pool take from %.4f to %.4f bits per weight%s%s",
                         budget, least / weights, most / weights, constraint->takes ? " for " : "",
                         constraint->takes ? constraint->asks : "");
    return CALM_OK;
}

static calm_status share_bits(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                              const bool *allowed, const size_t *pinned, const calm_constraint *constraint,
                              calm_solution *out)
{
    const bool limited = !isnan(wishes->budget);
    const double weights = weights_of(pool, 0, pool->n_jobs);
    calm_share *shares;
    size_t *picked;
    CALM_TRY(CALM_NEW(ctx, ctx->out, shares, out->n_units));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, picked, out->n_units));
    for (size_t u = 0; u < out->n_units; u++) {
        const field f = field_of(pool, wishes, allowed, pinned, out, u);
        CALM_TRY(list_options(ctx, &f, constraint, u, &shares[u]));
    }
    if (limited)
        CALM_TRY(check_budget(ctx, pool, allowed, constraint, shares, out->n_units, wishes->budget));
    CALM_TRY(set_losses(ctx, pool, shares, out));
    CALM_TRY(calm_share_fill(ctx, shares, out->n_units, (limited ? wishes->budget : WIDEST) * weights, picked, &out->total));
    const char *loss = out->unprobed ? "score by share of weights" : "predicted KL";
    for (size_t u = 0; u < out->n_units; u++) {
        const field f = field_of(pool, wishes, allowed, pinned, out, u);
        char *reason;
        out->choice[u] = shares[u].entries[picked[u]];
        CALM_TRY(calm_share_reason(ctx, &shares[u], picked[u],
                                   loss, &reason));
        CALM_TRY(pinned_reason(ctx, &f, reason, &out->reasons[u]));
    }
    if (!constraint->takes)
        return CALM_OK;
    return calm_constraint_cost(ctx, constraint, out->total.held, loss, out->total.loss, out->total.unconstrained,
                                &out->cost);
}

/* ---- all of it ---- */

static void add_bits(const calm_solve_pool *pool, calm_solution *out)
{
    double bits = 0;
    for (size_t u = 0; u < out->n_units; u++)
        bits += calm_solve_bits(pool, out->begin[u], out->begin[u + 1], &pool->entries[out->choice[u]].scheme);
    out->bits_per_weight = bits / weights_of(pool, 0, pool->n_jobs);
}

calm_status calm_solve(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes, calm_solution *out)
{
    bool *allowed;
    size_t *pinned;
    calm_constraint constraint;
    CALM_TRY(list_units(ctx, pool, out));
    CALM_TRY(calm_solve_allow(ctx, pool, wishes, out, &allowed, &pinned));
    for (size_t u = 0; u < out->n_units; u++) {
        const field f = field_of(pool, wishes, allowed, pinned, out, u);
        if (f.pin && !can_be_had(&f))
            return refuse_pin(ctx, &f);
    }
    CALM_TRY(calm_solve_constrain(ctx, pool, wishes, out, allowed, &constraint));
    /* Units of a set are one decision only where losses can be added up. */
    const bool shared = !isnan(wishes->budget) || (constraint.takes && pool->n_schemes > 1);
    CALM_TRY(shared ? share_bits(ctx, pool, wishes, allowed, pinned, &constraint, out)
                    : choose_all(ctx, pool, wishes, allowed, pinned, out));
    if (constraint.takes && !shared)
        CALM_TRY(calm_constraint_cost(ctx, &constraint, 0, "", 0, 0, &out->cost));
    add_bits(pool, out);
    return CALM_OK;
}

calm_status calm_solve_uniform(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                               size_t entry, calm_solution *out)
{
    bool *allowed;
    size_t *pinned;
    CALM_TRY(list_units(ctx, pool, out));
    CALM_TRY(calm_solve_allow(ctx, pool, wishes, out, &allowed, &pinned));
    for (size_t u = 0; u < out->n_units; u++) {
        const field f = field_of(pool, wishes, allowed, pinned, out, u);
        size_t settled;
        out->choice[u] = is_settled(&f, &settled) ? settled : entry;
        out->reasons[u] = "the same everywhere";
    }
    add_bits(pool, out);
    return CALM_OK;
}

calm_status calm_solve_width(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes, size_t scheme,
                             calm_solution *out)
{
    bool *allowed;
    size_t *pinned;
    CALM_TRY(list_units(ctx, pool, out));
    CALM_TRY(calm_solve_allow(ctx, pool, wishes, out, &allowed, &pinned));
    for (size_t u = 0; u < out->n_units; u++) {
        const field f = field_of(pool, wishes, allowed, pinned, out, u);
        char *reason;
        for (size_t i = 0; i < pool->n_entries && !f.pin; i++)
            allowed[u * pool->n_entries + i] &= pool->entries[i].of_scheme == scheme;
        CALM_TRY(name_unit(ctx, &f, choose(ctx, &f, 0, pool->n_entries, &out->choice[u], &reason)));
        out->reasons[u] = reason;
    }
    add_bits(pool, out);
    return CALM_OK;
}
