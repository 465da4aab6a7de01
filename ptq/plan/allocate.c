/* Computes the best plan within a budget, with and without the engine's limits. */
#include "ptq/plan/allocate.h"

#include <math.h>

#include "ptq/plan/knapsack_two.h"

calm_status calm_unit_options_new(calm_ctx *ctx, size_t room, calm_unit_options *out)
{
    *out = (calm_unit_options){0};
    return CALM_NEW(ctx, ctx->out, out->of, room);
}

/* Compares bits of weights, then of activations: the first option is the narrowest. */
static bool is_wider(const calm_knapsack_option *a, const calm_knapsack_option *b)
{
    return a->cost != b->cost ? a->cost > b->cost : a->second > b->second;
}

/* Insertion sort: there are only as many options as schemes, and of two at equal costs the first stays first. */
void calm_unit_options_add(calm_unit_options *unit, calm_unit_option option)
{
    size_t at = unit->n++;
    for (; at && is_wider(&unit->of[at - 1].weight, &option.weight); at--)
        unit->of[at] = unit->of[at - 1];
    unit->of[at] = option;
}

/* Scores compare the options of one unit but have no common scale across units; the probe, a KL of the whole model,
 * gives it.  A mean KL of few tokens may be negative because of noise; then it counts as 0. */
double calm_unit_kappa(double probe, double score)
{
    return score > 0 && isfinite(probe) ? fmax(probe, 0) / score : 0;
}

/* ---- sets ---- */

/* Sets as units of the knapsack: an option is a scheme that all units of the set have, with the sums of their costs and
 * losses. */
typedef struct sets {
    const calm_unit_options *units;
    bool free;                         /* ignore sets and held options: every unit is a set of one         */
    calm_knapsack_unit *of;            /* [n] units of the knapsack                                */
    calm_knapsack_option **sums;       /* [n] the same options, writable                           */
    size_t **schemes;                  /* [n][] scheme of each option                              */
    size_t *of_unit;                   /* [units] number of each unit's set                        */
    size_t n;
} sets;

/* Returns the index of the unit's option with this scheme that is not held; unit->n: there is none. */
static size_t option_of(const calm_unit_options *unit, size_t scheme, bool free)
{
    size_t i = 0;
    while (i < unit->n && ((unit->of[i].held && !free) || unit->of[i].scheme != scheme))
        i++;
    return i;
}

/* Adds a unit to an existing set, which keeps the schemes that this unit has too, with the sums of costs and losses. */
static void join_set(sets *s, const calm_unit_options *unit, size_t set)
{
    /* In place: kept <= i, so entry i is read before it is written over. */
    size_t kept = 0;
    for (size_t i = 0; i < s->of[set].n; i++) {
        const size_t scheme = s->schemes[set][i], option = option_of(unit, scheme, s->free);
        if (option == unit->n)
            continue;
        s->schemes[set][kept] = scheme;
        const calm_knapsack_option *before = &s->sums[set][i], *more = &unit->of[option].weight;
        s->sums[set][kept++] = (calm_knapsack_option){before->cost + more->cost, before->loss + more->loss,
                                                      before->second + more->second};
    }
    s->of[set].n = kept;
}

static calm_status open_set(calm_ctx *ctx, sets *s, size_t u)
{
    const calm_unit_options *unit = &s->units[u];
    const size_t set = s->n++;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->sums[set], unit->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->schemes[set], unit->n));
    /* The knapsack reads through `of`; units that join later are added through `sums`, the same memory. */
    s->of[set] = (calm_knapsack_unit){0, s->sums[set]};
    for (size_t i = 0; i < unit->n; i++)
        if (s->free || !unit->of[i].held) {
            s->schemes[set][s->of[set].n] = unit->of[i].scheme;
            s->sums[set][s->of[set].n++] = unit->of[i].weight;
        }
    s->of_unit[u] = set;
    return CALM_OK;
}

static calm_status make_sets(calm_ctx *ctx, const calm_unit_options *units, size_t n, bool free, sets *out)
{
    *out = (sets){.units = units, .free = free};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->of, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->sums, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->schemes, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->of_unit, n));
    /* Losses within a set add up like losses of different sets, so a set is an ordinary unit of the knapsack. */
    for (size_t u = 0; u < n; u++) {
        if (free || units[u].set == u) {
            CALM_TRY(open_set(ctx, out, u));
        } else {    /* the set's first unit came before */
            out->of_unit[u] = out->of_unit[units[u].set];
            join_set(out, &units[u], out->of_unit[u]);
        }
        if (!out->of[out->of_unit[u]].n)
            return calm_fail(ctx, CALM_ENUMERIC, "units that share a scheme for the target have none in common: "
                                                 "candidates of every width failed in some of them");
    }
    return CALM_OK;
}

/* Computes the best plan of sets; `free`: without the engine's limits. */
static calm_status fill(calm_ctx *ctx, const calm_unit_options *units, size_t n, bool free, const uint64_t bits[2],
                        size_t *picked, double *loss)
{
    calm_knapsack_total total;
    size_t *of_set;
    sets s;
    CALM_TRY(make_sets(ctx, units, n, free, &s));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, of_set, s.n));
    CALM_TRY(bits[1] == CALM_NO_LIMIT ? calm_knapsack(ctx, s.of, s.n, bits[0], of_set, &total)
                                      : calm_knapsack_two(ctx, s.of, s.n, bits[0], bits[1], of_set, &total));
    for (size_t u = 0; u < n; u++)
        picked[u] = option_of(&units[u], s.schemes[s.of_unit[u]][of_set[s.of_unit[u]]], free);
    *loss = total.loss;
    return CALM_OK;
}

/* ---- with and without limits ---- */

static bool is_constrained(const calm_unit_options *units, size_t n)
{
    bool any = false;
    for (size_t u = 0; u < n; u++) {
        any |= units[u].set != u;
        for (size_t i = 0; i < units[u].n; i++)
            any |= units[u].of[i].held;
    }
    return any;
}

calm_status calm_allocate(calm_ctx *ctx, const calm_unit_options *units, size_t n, const uint64_t bits[2],
                          size_t *picked, calm_allocation *out)
{
    size_t *freely;
    *out = (calm_allocation){0};
    CALM_TRY(fill(ctx, units, n, false, bits, picked, &out->loss));
    out->unconstrained = out->loss;
    if (!is_constrained(units, n))
        return CALM_OK;
    /* Solved again without the engine's limits: the difference is their cost.  If both plans have the same loss, they
     * differ only in ties, and no unit counts as held back. */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, freely, n));
    CALM_TRY(fill(ctx, units, n, true, bits, freely, &out->unconstrained));
    for (size_t u = 0; u < n && out->loss > out->unconstrained; u++)
        out->held += picked[u] != freely[u];
    return CALM_OK;
}
