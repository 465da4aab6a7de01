/* Two budgets: each alone first, then dynamic programming within a Lagrangian bound.
 *
 * If the best choice within one budget is within the other too, it is the answer.  Otherwise two multipliers
 * a, b >= 0 give a lower bound of every choice within both,
 *
 *   sum_u min_j (loss + a cost + b second) - a capacity - b second_capacity
 *
 * and choices found on the way give an upper bound.  The search enumerates the frontier of (cost, second, loss) over
 * the last units, from the last to the first, without states that exceed a budget, are dominated, or cannot get below
 * the upper bound.  Losses are integers; bounds are in double, with a margin larger than their rounding error. */
#include "ptq/plan/knapsack_two.h"

#include <math.h>
#include <stdlib.h>

#include "ptq/base/scope.h"

enum { LOSS_BITS = 52, BISECTIONS = 40 };    /* sums of losses are exact in double too */

typedef struct state {
    uint64_t cost, second;
    int64_t loss;
    uint32_t link, option;       /* parent state * number of options + option; the option */
} state;

typedef struct problem {
    const calm_knapsack_unit *units;
    size_t n;
    uint64_t capacity, second;
    int64_t **loss;              /* [n][options] above the unit's least, rounded          */
    double a, b;                 /* multipliers                                           */
    double bound;                /* lower bound from the best multipliers */
    int64_t best;                /* loss of the best known choice; INT64_MAX: none */
    int64_t limit;               /* largest loss that is searched; INT64_MAX: none */
    double *ahead;               /* [n + 1] sum of the minima of units 0 .. u - 1         */
    uint64_t *least, *least_second;    /* [n + 1] least costs of units 0 .. u - 1         */
} problem;

/* ---- losses as integers ---- */

static calm_status round_losses(calm_ctx *ctx, problem *it)
{
    double range = 0;
    int exponent;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->loss, it->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->ahead, it->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->least, it->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->least_second, it->n + 1));
    for (int pass = 0; pass < 2; pass++)
        for (size_t u = 0; u < it->n; u++) {
            const calm_knapsack_unit *unit = &it->units[u];
            double low = INFINITY, high = -INFINITY;
            uint64_t cost = UINT64_MAX, second = UINT64_MAX;
            for (size_t j = 0; j < unit->n; j++) {
                low = fmin(low, unit->options[j].loss);
                high = fmax(high, unit->options[j].loss);
                cost = unit->options[j].cost < cost ? unit->options[j].cost : cost;
                second = unit->options[j].second < second ? unit->options[j].second : second;
            }
            if (!pass) {
                range += high - low;
                continue;
            }
            frexp(range, &exponent);
            it->least[u + 1] = it->least[u] + cost;
            it->least_second[u + 1] = it->least_second[u] + second;
            CALM_TRY(CALM_NEW(ctx, ctx->scratch, it->loss[u], unit->n));
            for (size_t j = 0; j < unit->n; j++)
                it->loss[u][j] = llrint(ldexp(unit->options[j].loss - low, LOSS_BITS - exponent));
        }
    return CALM_OK;
}

/* ---- bounds ---- */

static double priced(const problem *it, size_t u, size_t j, double a, double b)
{
    const calm_knapsack_option *option = &it->units[u].options[j];
    return (double)it->loss[u][j] + a * (double)option->cost + b * (double)option->second;
}

/* Finds the choice of least priced loss and its costs; improves the lower and the upper bound if it can. */
static void price(problem *it, double a, double b, double *cost, double *second)
{
    double bound = -a * (double)it->capacity - b * (double)it->second;
    int64_t loss = 0;
    *cost = *second = 0;
    for (size_t u = 0; u < it->n; u++) {
        size_t least = 0;
        for (size_t j = 1; j < it->units[u].n; j++)
            if (priced(it, u, j, a, b) < priced(it, u, least, a, b))
                least = j;
        bound += priced(it, u, least, a, b);
        loss += it->loss[u][least];
        *cost += (double)it->units[u].options[least].cost;
        *second += (double)it->units[u].options[least].second;
    }
    if (bound > it->bound) {
        it->bound = bound;
        it->a = a;
        it->b = b;
    }
    /* Sums of integers below 2^53 are exact; larger sums err by less than a unit's smallest step. */
    if (*cost <= (double)it->capacity && *second <= (double)it->second && loss < it->best)
        it->best = loss;
}

/* Finds the multiplier of the cost for a given one of the second: the least with a choice within capacity. */
static double price_cost(problem *it, double b, double most, double *second)
{
    double low = 0, high = most, cost;
    price(it, 0, b, &cost, second);
    if (cost <= (double)it->capacity)
        return 0;
    for (int i = 0; i < BISECTIONS; i++) {
        const double middle = (low + high) / 2;
        price(it, middle, b, &cost, second);
        if (cost <= (double)it->capacity)
            high = middle;
        else
            low = middle;
    }
    price(it, high, b, &cost, second);
    return high;
}

static void find_bounds(problem *it)
{
    double low = 0, second, most = ldexp(1, LOSS_BITS), high = most;
    it->bound = -INFINITY;
    it->best = INT64_MAX;
    price_cost(it, 0, most, &second);
    for (int i = 0; i < BISECTIONS; i++) {
        const double middle = (low + high) / 2;
        price_cost(it, middle, most, &second);
        if (second <= (double)it->second)
            high = middle;
        else
            low = middle;
    }
    price_cost(it, high, most, &second);
    for (size_t u = 0; u < it->n; u++) {
        double least = INFINITY;
        for (size_t j = 0; j < it->units[u].n; j++)
            least = fmin(least, priced(it, u, j, it->a, it->b));
        it->ahead[u + 1] = it->ahead[u] + least;
    }
}

/* Returns true if a state of units u .. n - 1 can be part of a choice within both budgets and the search's limit. */
static bool within(const problem *it, size_t u, uint64_t cost, uint64_t second, int64_t loss)
{
    if (cost + it->least[u] > it->capacity || second + it->least_second[u] > it->second)
        return false;
    if (it->limit == INT64_MAX)
        return true;
    const double room = it->a * (double)(it->capacity - cost), room_second = it->b * (double)(it->second - second);
    const double bound = (double)loss + it->ahead[u] - room - room_second;
    /* Thousands of terms, each with a relative rounding error of 2^-53. */
    const double margin = 0x1p-36 * ((double)loss + it->ahead[u] + room + room_second) + 1;
    return bound <= (double)it->limit + margin;
}

/* ---- search ---- */

static int by_costs(const void *x, const void *y)
{
    const state *a = x, *b = y;
    if (a->cost != b->cost)
        return a->cost < b->cost ? -1 : 1;
    if (a->second != b->second)
        return a->second < b->second ? -1 : 1;
    if (a->loss != b->loss)
        return a->loss < b->loss ? -1 : 1;
    return a->option < b->option ? -1 : a->option > b->option;
}

static int by_value(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

/* Removes dominated states from states [n], which are sorted by costs.  A Fenwick tree over the ranks of the second
 * cost has the least loss of all states so far with no larger rank. */
static calm_status drop_dominated(calm_ctx *ctx, state *states, size_t *n)
{
    CALM_SCOPED_SCRATCH(ctx);
    uint64_t *ranks;
    int64_t *tree;
    size_t n_ranks = 0, kept = 0;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, ranks, *n));
    for (size_t i = 0; i < *n; i++)
        ranks[i] = states[i].second;
    qsort(ranks, *n, sizeof *ranks, by_value);
    for (size_t i = 0; i < *n; i++)
        if (n_ranks == 0 || ranks[i] != ranks[n_ranks - 1])
            ranks[n_ranks++] = ranks[i];
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tree, n_ranks + 1));
    for (size_t i = 0; i <= n_ranks; i++)
        tree[i] = INT64_MAX;
    for (size_t i = 0; i < *n; i++) {
        const uint64_t *found = bsearch(&states[i].second, ranks, n_ranks, sizeof *ranks, by_value);
        const size_t rank = (size_t)(found - ranks) + 1;
        int64_t least = INT64_MAX;
        for (size_t at = rank; at; at &= at - 1)
            least = tree[at] < least ? tree[at] : least;
        if (least <= states[i].loss)
            continue;
        for (size_t at = rank; at <= n_ranks; at += at & (0 - at))
            tree[at] = states[i].loss < tree[at] ? states[i].loss : tree[at];
        states[kept++] = states[i];
    }
    *n = kept;
    return CALM_OK;
}

static calm_status too_many(calm_ctx *ctx, const problem *it, size_t u)
{
    return calm_fail(ctx, CALM_ENOMEM, "knapsack: more than %zu states of two budgets at unit %zu of %zu; offer fewer "
                     "options per unit, or one budget", CALM_KNAPSACK_TWO_STATES, u, it->n);
}

/* Computes the states with unit u in `next` from those without it; links [*n] are in ctx->scratch. */
static calm_status add_unit(calm_ctx *ctx, const problem *it, size_t u, const state *now, size_t *n, state *next,
                            uint32_t **links)
{
    const calm_knapsack_unit *unit = &it->units[u];
    size_t made = 0;
    if (*n > UINT32_MAX / unit->n)
        return too_many(ctx, it, u);
    for (size_t i = 0; i < *n; i++)
        for (size_t j = 0; j < unit->n; j++) {
            const state sum = {now[i].cost + unit->options[j].cost, now[i].second + unit->options[j].second,
                               now[i].loss + it->loss[u][j], (uint32_t)(i * unit->n + j), (uint32_t)j};
            if (!within(it, u, sum.cost, sum.second, sum.loss))
                continue;
            if (made == CALM_KNAPSACK_TWO_STATES)
                return too_many(ctx, it, u);
            next[made++] = sum;
        }
    qsort(next, made, sizeof *next, by_costs);
    CALM_TRY(drop_dominated(ctx, next, &made));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *links, made));
    for (size_t i = 0; i < made; i++)
        (*links)[i] = next[i].link;
    *n = made;
    return CALM_OK;
}

/* Finds the best choice within the limit; *found false: there is none. */
static calm_status search(calm_ctx *ctx, const problem *it, size_t *choice, size_t *n_states, bool *found)
{
    CALM_SCOPED_SCRATCH(ctx);
    state *now, *next;
    uint32_t **links;
    size_t n = 1, best = 0, room = 1;
    /* There are no more states than choices. */
    for (size_t u = 0; u < it->n; u++)
        room = calm_size_min(room * calm_size_min(it->units[u].n, CALM_KNAPSACK_TWO_STATES), CALM_KNAPSACK_TWO_STATES);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, now, room));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, next, room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, links, it->n));
    now[0] = (state){0};
    for (size_t u = it->n; u-- > 0 && n;) {
        CALM_TRY(add_unit(ctx, it, u, now, &n, next, &links[u]));
        state *const other = now;
        now = next;
        next = other;
        *n_states += n;
    }
    /* Sorted by costs, so of equal losses the first has the least cost. */
    for (size_t i = 1; i < n; i++)
        best = now[i].loss < now[best].loss ? i : best;
    /* Beyond the limit a better choice may have been left out. */
    *found = n && now[best].loss <= it->limit;
    if (!*found)
        return CALM_OK;
    for (size_t u = 0; u < it->n; u++) {
        const uint32_t link = links[u][best];
        choice[u] = link % it->units[u].n;
        best = link / it->units[u].n;
    }
    return CALM_OK;
}

/* Searches near the lower bound first, where there are few states, and farther until there is a choice. */
static calm_status widen(calm_ctx *ctx, problem *it, size_t *choice, size_t *n_states)
{
    const double most = ldexp(1, LOSS_BITS + 1), reach = it->best == INT64_MAX ? most : (double)it->best;
    bool found = false;
    for (double gap = (reach - it->bound) * 0x1p-12 + 1; !found; gap *= 4) {
        const double limit = it->bound + gap;
        const bool last = limit >= reach;
        it->limit = last ? it->best : (int64_t)limit;
        CALM_TRY(search(ctx, it, choice, n_states, &found));
        if (last && !found)
            return calm_fail(ctx, CALM_EARG, "no choice is within both, though each can be reached alone");
    }
    return CALM_OK;
}

/* ---- the whole search ---- */

static void add_up(const calm_knapsack_unit *units, size_t n, const size_t *choice, calm_knapsack_total *total)
{
    total->cost = total->second = 0;
    total->loss = 0;
    for (size_t u = 0; u < n; u++) {
        total->cost += units[u].options[choice[u]].cost;
        total->second += units[u].options[choice[u]].second;
        total->loss += units[u].options[choice[u]].loss;
    }
}

/* Copies the units with their costs exchanged. */
static calm_status exchange(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, calm_knapsack_unit **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, n));
    for (size_t u = 0; u < n; u++) {
        calm_knapsack_option *options;
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, options, units[u].n));
        for (size_t j = 0; j < units[u].n; j++) {
            const calm_knapsack_option *from = &units[u].options[j];
            options[j] = (calm_knapsack_option){from->second, from->loss, from->cost};
        }
        (*out)[u] = (calm_knapsack_unit){units[u].n, options};
    }
    return CALM_OK;
}

calm_status calm_knapsack_two(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, uint64_t capacity,
                              uint64_t second, size_t *choice, calm_knapsack_total *total)
{
    CALM_SCOPED_SCRATCH(ctx);
    problem it = {.units = units, .n = n, .capacity = capacity, .second = second};
    calm_knapsack_unit *exchanged;
    calm_knapsack_total alone;
    /* Both calls also check options, losses and capacities.  A single-budget answer is used only if it is the answer by
     * the order of ties too: if it leaves room in the other budget. */
    CALM_TRY(exchange(ctx, units, n, &exchanged));
    CALM_TRY(calm_knapsack(ctx, exchanged, n, second, choice, &alone));
    CALM_TRY(calm_knapsack(ctx, units, n, capacity, choice, total));
    add_up(units, n, choice, total);
    if (total->second <= second)
        return CALM_OK;
    CALM_TRY(round_losses(ctx, &it));
    find_bounds(&it);
    CALM_TRY(widen(ctx, &it, choice, &total->n_states));
    add_up(units, n, choice, total);
    return CALM_OK;
}
