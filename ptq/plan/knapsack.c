/* Multiple-choice knapsack by dynamic programming within the gap of a Lagrangian bound.
 *
 * For a multiplier l = p / q >= 0 and any choice that fits (sums over the units u),
 *
 *   q loss(choice) - q L(l) = sum pen(u, c_u) + p slack
 *   pen(u, j) = q loss_j + p cost_j - min_i (q loss_i + p cost_i)
 *
 * with L the Lagrangian bound: all terms are whole numbers and none is negative.  So a choice that is better than the
 * bound by at most `gap` consists of options of pen <= gap, and the sum over any part of it is within the gap as well.
 * p / q is the slope at which the greedy walk along the convex hulls of all units runs out of capacity, which makes the
 * bound the best one (Sinha and Zoltners 1979).
 *
 * The search enumerates the Pareto frontier of (cost, loss) over the last units, from the last unit to the first, and
 * keeps states within the gap that can still use up the capacity.  It is repeated with a gap four times as large until
 * its best choice is within the gap: then no better choice, and no tie, was left out.  Going backwards makes the
 * lexicographic rule local: of equal states the smaller option of the current unit wins. */
#include "ptq/plan/knapsack.h"

#include <math.h>
#include <stdlib.h>

#include "ptq/base/scope.h"

/* Products of a cost (below 2^63) and a loss (about 2^60). */
typedef __int128 wide;

enum { LOSS_BITS = 60, FIRST_SHIFT = 8 };    /* the first gap is the greedy choice's divided by 2^8 */

/* An option that no other option of its unit dominates. */
typedef struct entry {
    uint64_t cost;       /* above the unit's least, divided by the common divisor */
    int64_t loss;        /* above the unit's least, rounded                       */
    size_t option;
    wide pen;
} entry;

/* One step along a unit's hull: to `target` from the entry before it. */
typedef struct step {
    size_t unit, target;
    uint64_t cost, loss;    /* increase of cost; decrease of loss */
} step;

typedef struct state {
    uint64_t cost;
    int64_t loss;
    uint32_t link;       /* parent state * number of live options + live option */
} state;

typedef struct problem {
    size_t n;
    const calm_knapsack_unit *units;
    entry *entries;      /* of unit u: begin[u] .. begin[u + 1] - 1, by rising cost and falling loss */
    size_t *begin;       /* [n + 1] */
    uint64_t capacity;   /* above the smallest plan, divided by the common divisor */
    uint64_t p, q;
    wide base;           /* sum of the minima in pen */
    wide greedy;         /* gap of the greedy choice */
} problem;

/* One round of the search: what is possible within the gap. */
typedef struct search {
    const problem *of;
    wide gap;
    size_t *alive, *n_alive;      /* live entries of unit u from alive[begin[u]] on; their number */
    uint64_t *low, *high;         /* [n + 1] least and largest cost of live entries of units 0 .. u-1 */
    uint32_t **links;             /* [n] per unit; NULL if only one entry is alive */
    state *now, *next;
    size_t n_now, room, room_next, kept;
} search;

/* ---- the problem in whole numbers ---- */

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Finds the least cost and the least loss of a unit. */
static void unit_least(const calm_knapsack_unit *unit, uint64_t *cost, double *loss)
{
    *cost = unit->options[0].cost;
    *loss = unit->options[0].loss;
    for (size_t j = 1; j < unit->n; j++) {
        if (unit->options[j].cost < *cost)
            *cost = unit->options[j].cost;
        if (unit->options[j].loss < *loss)
            *loss = unit->options[j].loss;
    }
}

/* What one pass over all options finds. */
typedef struct extent {
    uint64_t least, most, divisor;    /* costs of the smallest and largest plan; of all differences of costs */
    double range;                     /* sum of the units' ranges of loss                                     */
    size_t n_options;
} extent;

static calm_status measure(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, extent *out)
{
    *out = (extent){0};
    for (size_t u = 0; u < n; u++) {
        if (units[u].n == 0)
            return calm_fail(ctx, CALM_EARG, "knapsack: unit %zu has no options", u);
        uint64_t least, most = 0;
        double low, high = -INFINITY;
        unit_least(&units[u], &least, &low);
        for (size_t j = 0; j < units[u].n; j++) {
            const calm_knapsack_option *option = &units[u].options[j];
            if (!isfinite(option->loss))
                return calm_fail(ctx, CALM_ENUMERIC, "knapsack: the loss of unit %zu, option %zu is %f", u, j,
                                 option->loss);
            /* Costs are often multiples of a large number (weights of a job): dividing by it merges states of equal
             * cost. */
            out->divisor = divisor(option->cost - least, out->divisor);
            most = option->cost > most ? option->cost : most;
            high = fmax(high, option->loss);
        }
        /* Below 2^63, so that differences of sums fit a signed number. */
        if (__builtin_add_overflow(out->most, most, &out->most) || out->most >= (uint64_t)1 << 63)
            return calm_fail(ctx, CALM_EARG, "knapsack: the costs up to unit %zu add up to 2^63 or more", u);
        out->least += least;
        out->range += high - low;
        out->n_options += units[u].n;
    }
    if (!isfinite(out->range))
        return calm_fail(ctx, CALM_ENUMERIC, "knapsack: the losses are too far apart to be added");
    return CALM_OK;
}

static int by_cost(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    if (x->loss != y->loss)
        return x->loss < y->loss ? -1 : 1;
    return x->option < y->option ? -1 : x->option > y->option;
}

/* Fills `out` with the undominated entries of a unit; returns their number. */
static size_t unit_entries(const calm_knapsack_unit *unit, const extent *all, int shift, entry *out)
{
    uint64_t least;
    double low;
    size_t kept = 0;
    unit_least(unit, &least, &low);
    for (size_t j = 0; j < unit->n; j++) {
        uint64_t cost = unit->options[j].cost - least;
        out[j] = (entry){.cost = all->divisor ? cost / all->divisor : 0,
                         .loss = llrint(ldexp(unit->options[j].loss - low, shift)), .option = j};
    }
    qsort(out, unit->n, sizeof *out, by_cost);
    /* An option that is no better than a cheaper one is dominated: some best plan is without it. */
    for (size_t j = 0; j < unit->n; j++)
        if (kept == 0 || out[j].loss < out[kept - 1].loss)
            out[kept++] = out[j];
    return kept;
}

static calm_status reduce(calm_ctx *ctx, const extent *all, uint64_t capacity, problem *it)
{
    int exponent;
    /* range < 2^exponent: scaled by 2^(60 - exponent) no sum of losses reaches 2^60 plus half a unit each, so int64
     * holds it and p * cost + q * loss stays below 2^124. */
    frexp(all->range, &exponent);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, it->entries, all->n_options));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->begin, it->n + 1));
    for (size_t u = 0; u < it->n; u++)
        it->begin[u + 1] = it->begin[u] + unit_entries(&it->units[u], all, LOSS_BITS - exponent,
                                                       it->entries + it->begin[u]);
    /* Capacity beyond the largest plan would only enlarge the slack term. */
    if (capacity > all->most)
        capacity = all->most;
    it->capacity = all->divisor ? (capacity - all->least) / all->divisor : 0;
    return CALM_OK;
}

/* ---- bound ---- */

/* Returns true if the slope from a to b is at least as steep as from b to c. */
static bool convex(const entry *a, const entry *b, const entry *c)
{
    wide first = (wide)(a->loss - b->loss) * (wide)(c->cost - b->cost);
    return first >= (wide)(b->loss - c->loss) * (wide)(b->cost - a->cost);
}

/* Lists the steps along the lower convex hull of unit u and returns their number; `hull` has room for its entries. */
static size_t unit_steps(const problem *it, size_t u, size_t *hull, step *out)
{
    size_t n = 0;
    for (size_t e = it->begin[u]; e < it->begin[u + 1]; e++) {
        while (n >= 2 && !convex(&it->entries[hull[n - 2]], &it->entries[hull[n - 1]], &it->entries[e]))
            n--;
        hull[n++] = e;
    }
    for (size_t i = 1; i < n; i++) {
        const entry *from = &it->entries[hull[i - 1]], *to = &it->entries[hull[i]];
        out[i - 1] = (step){u, hull[i], to->cost - from->cost, (uint64_t)(from->loss - to->loss)};
    }
    return n - 1;
}

/* Steepest first, then by unit and cost. */
static int by_slope(const void *a, const void *b)
{
    const step *x = a, *y = b;
    wide left = (wide)x->loss * (wide)y->cost, right = (wide)y->loss * (wide)x->cost;
    if (left != right)
        return left > right ? -1 : 1;
    return x->target < y->target ? -1 : x->target > y->target;
}

/* Computes the multiplier, the penalties and the greedy choice's gap. */
static calm_status bound(calm_ctx *ctx, problem *it)
{
    size_t n_steps = 0, *hull, *at;
    step *steps;
    uint64_t room = it->capacity;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, hull, it->begin[it->n]));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, at, it->n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, steps, it->begin[it->n]));
    for (size_t u = 0; u < it->n; u++) {
        n_steps += unit_steps(it, u, hull, steps + n_steps);
        at[u] = it->begin[u];
    }
    qsort(steps, n_steps, sizeof *steps, by_slope);
    /* The greedy walk takes the steepest steps of all units.  The first that does not fit gives the multiplier; later,
     * cheaper steps may still fit, which improves the greedy choice and so the first gap. */
    it->p = 0;
    it->q = 1;
    for (size_t i = 0; i < n_steps; i++) {
        size_t *here = &at[steps[i].unit];
        uint64_t dearer = it->entries[steps[i].target].cost - it->entries[*here].cost;
        if (dearer <= room) {
            room -= dearer;
            *here = steps[i].target;
        } else if (it->p == 0) {
            it->p = steps[i].loss;
            it->q = steps[i].cost;
        }
    }
    /* The gap of a choice: its penalties, plus p per unit of unused capacity. */
    it->greedy = (wide)it->p * (wide)room;
    for (size_t u = 0; u < it->n; u++) {
        wide least = 0;
        for (size_t e = it->begin[u]; e < it->begin[u + 1]; e++) {
            entry *option = &it->entries[e];
            option->pen = (wide)it->q * option->loss + (wide)it->p * (wide)option->cost;
            if (e == it->begin[u] || option->pen < least)
                least = option->pen;
        }
        for (size_t e = it->begin[u]; e < it->begin[u + 1]; e++)
            it->entries[e].pen -= least;
        it->base += least;
        it->greedy += it->entries[at[u]].pen;
    }
    return CALM_OK;
}

/* ---- search ---- */

static calm_status too_many(calm_ctx *ctx, const search *s, size_t u)
{
    return calm_fail(ctx, CALM_ENOMEM,
                     "knapsack: more than %zu states at unit %zu of %zu (%zu in all); offer fewer options per unit, or "
                     "options whose costs have a larger common divisor", s->n_now, u, s->of->n, s->kept);
}

static calm_status search_new(calm_ctx *ctx, const problem *it, search *s)
{
    s->of = it;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s->alive, it->begin[it->n]));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->n_alive, it->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->low, it->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->high, it->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->links, it->n));
    for (size_t u = 0; u < it->n; u++) {
        size_t *alive = s->alive + it->begin[u], n = 0;
        for (size_t e = it->begin[u]; e < it->begin[u + 1]; e++)
            if (it->entries[e].pen <= s->gap)
                alive[n++] = e;
        s->n_alive[u] = n;
        s->low[u + 1] = s->low[u] + it->entries[alive[0]].cost;
        s->high[u + 1] = s->high[u] + it->entries[alive[n - 1]].cost;
    }
    return CALM_OK;
}

/* Makes room for `count` states in s->next.  Old buffers stay in scratch until the round ends, together no larger than
 * the last. */
static calm_status grow(calm_ctx *ctx, search *s, size_t count)
{
    if (count <= s->room_next)
        return CALM_OK;
    if (count < 2 * s->room_next)
        count = 2 * s->room_next;
    if (count > CALM_KNAPSACK_LEVEL_STATES)
        count = CALM_KNAPSACK_LEVEL_STATES;
    s->room_next = count;
    return CALM_NEW_RAW(ctx, ctx->scratch, s->next, count);
}

/* Returns true if a state of units u .. n-1 can be part of a choice within the gap; base: the sum of these units'
 * minima. */
static bool within(const search *s, size_t u, wide base, uint64_t cost, int64_t loss)
{
    const problem *it = s->of;
    if (cost > it->capacity || s->low[u] > it->capacity - cost)
        return false;
    wide pen = (wide)it->q * loss + (wide)it->p * (wide)cost - base;
    uint64_t room = it->capacity - cost;
    if (room > s->high[u])
        pen += (wide)it->p * (wide)(room - s->high[u]);
    return pen <= s->gap;
}

/* Computes the states with unit u: the shifted lists of its live options, merged by (cost, loss, option). */
static calm_status add_unit(calm_ctx *ctx, search *s, size_t u, wide base)
{
    const problem *it = s->of;
    const size_t *alive = s->alive + it->begin[u], m = s->n_alive[u];
    size_t *head, n = 0, most;
    /* A link of 32 bits holds the parent state and the option, one of m. */
    if (s->n_now > UINT32_MAX / m)
        return too_many(ctx, s, u);
    most = s->n_now * m < CALM_KNAPSACK_LEVEL_STATES ? s->n_now * m : CALM_KNAPSACK_LEVEL_STATES;
    CALM_TRY(grow(ctx, s, most));
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, head, m));
    for (;;) {
        size_t best = m;
        entry least = {0};
        for (size_t j = 0; j < m; j++) {
            if (head[j] == s->n_now)
                continue;
            const entry *option = &it->entries[alive[j]];
            entry sum = {.cost = s->now[head[j]].cost + option->cost, .loss = s->now[head[j]].loss + option->loss,
                         .option = option->option};
            if (best == m || by_cost(&sum, &least) < 0) {
                best = j;
                least = sum;
            }
        }
        if (best == m)
            break;
        uint32_t link = (uint32_t)(head[best]++ * m + best);
        /* Merged by cost, so a state with no less loss than the one before is dominated. */
        if ((n > 0 && least.loss >= s->next[n - 1].loss) || !within(s, u, base, least.cost, least.loss))
            continue;
        if (n == CALM_KNAPSACK_LEVEL_STATES)
            return too_many(ctx, s, u);
        s->next[n++] = (state){least.cost, least.loss, link};
    }
    calm_arena_rewind(ctx->scratch, mark);
    s->kept += n;
    if (s->kept > CALM_KNAPSACK_ALL_STATES)
        return too_many(ctx, s, u);
    /* Links are kept until the round ends; costs and losses are in two alternating buffers. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s->links[u], n));
    for (size_t i = 0; i < n; i++)
        s->links[u][i] = s->next[i].link;
    state *other = s->now;
    size_t room = s->room;
    s->now = s->next;
    s->room = s->room_next;
    s->next = other;
    s->room_next = room;
    s->n_now = n;
    return CALM_OK;
}

/* Runs one round within s->gap.  *best: gap of the best choice found (in `choice`); negative: none. */
static calm_status round_within(calm_ctx *ctx, const problem *it, search *s, wide *best, size_t *choice)
{
    wide base = 0;
    CALM_TRY(search_new(ctx, it, s));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->now, 1));
    s->room = s->n_now = 1;
    *best = -1;
    for (size_t u = it->n; u-- > 0 && s->n_now > 0;) {
        const entry *only = &it->entries[s->alive[it->begin[u]]];
        base += (wide)it->q * only->loss + (wide)it->p * (wide)only->cost - only->pen;
        /* A unit with one live option shifts all states equally, without merge and links. */
        if (s->n_alive[u] > 1) {
            CALM_TRY(add_unit(ctx, s, u, base));
            continue;
        }
        for (size_t i = 0; i < s->n_now; i++) {
            s->now[i].cost += only->cost;
            s->now[i].loss += only->loss;
        }
    }
    while (s->n_now > 0 && s->now[s->n_now - 1].cost > it->capacity)    /* possible if the last units had one option */
        s->n_now--;
    if (s->n_now == 0)
        return CALM_OK;
    /* Units were added from the last to the first, so links lead from unit 0 to the last. */
    size_t at = s->n_now - 1;    /* the dearest state of the frontier has the least loss */
    *best = (wide)it->q * s->now[at].loss - it->base + (wide)it->p * (wide)it->capacity;
    for (size_t u = 0; u < it->n; u++) {
        size_t which = 0;
        if (s->links[u]) {
            which = s->links[u][at] % s->n_alive[u];
            at = s->links[u][at] / s->n_alive[u];
        }
        choice[u] = it->entries[s->alive[it->begin[u] + which]].option;
    }
    return CALM_OK;
}

static calm_status solve(calm_ctx *ctx, problem *it, const extent *all, uint64_t capacity, size_t *choice,
                         size_t *n_states)
{
    CALM_TRY(reduce(ctx, all, capacity, it));
    CALM_TRY(bound(ctx, it));
    wide limit = it->greedy, gap = limit >> FIRST_SHIFT, best;
    for (;;) {
        CALM_SCOPED_SCRATCH(ctx);
        search s = {.gap = gap};
        CALM_TRY(round_within(ctx, it, &s, &best, choice));
        *n_states += s.kept;
        if (best >= 0 && best <= gap)
            return CALM_OK;
        /* A choice beyond the gap may not be the best, but bounds the gap that is needed. */
        if (best >= 0 && best < limit)
            limit = best;
        gap = gap < limit / 4 ? 4 * gap + 1 : limit;
    }
}

calm_status calm_knapsack(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, uint64_t capacity, size_t *choice,
                          calm_knapsack_total *total)
{
    extent all;
    problem it = {.n = n, .units = units};
    *total = (calm_knapsack_total){0};
    CALM_TRY(measure(ctx, units, n, &all));
    if (capacity < all.least)
        return calm_fail(ctx, CALM_EARG, "knapsack: %llu bits, but the smallest plan needs %llu",
                         (unsigned long long)capacity, (unsigned long long)all.least);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(solve(ctx, &it, &all, capacity, choice, &total->n_states));
    for (size_t u = 0; u < n; u++) {
        total->cost += units[u].options[choice[u]].cost;
        total->loss += units[u].options[choice[u]].loss;
    }
    return CALM_OK;
}
