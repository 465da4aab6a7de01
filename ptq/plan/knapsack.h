/* Multiple-choice knapsack: one option per unit, least total loss within a budget (docs/method.md section 5.3).
 *
 *   least  sum_u loss(u, c_u)  with  sum_u cost(u, c_u) <= capacity
 *
 * The answer is exact.  Losses are taken relative to the unit's least loss and rounded to multiples of 2^-60 of the sum
 * of all units' ranges (rounded up to a power of two), which is finer than a sum in double.  They are added as
 * integers, so that the result does not depend on the order of additions.  Of equal losses the least cost wins, then
 * the lexicographically smallest choice. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

/* The most states (cost, loss) after one unit, 24 bytes each, and over all units, 4 bytes each. */
#define CALM_KNAPSACK_LEVEL_STATES ((size_t)1 << 23)
#define CALM_KNAPSACK_ALL_STATES   ((size_t)1 << 27)

typedef struct calm_knapsack_option {
    uint64_t cost;    /* bits, or another whole unit */
    double loss;      /* finite; may be negative */
    uint64_t second;  /* second cost; only ptq/plan/knapsack_two.h reads it */
} calm_knapsack_option;

typedef struct calm_knapsack_unit {
    size_t n;         /* number of options, >= 1 */
    const calm_knapsack_option *options;
} calm_knapsack_unit;

typedef struct calm_knapsack_total {
    uint64_t cost;      /* cost of the choice */
    uint64_t second;    /* second cost of the choice; 0 from calm_knapsack */
    double loss;        /* sum of the chosen losses, added in double in unit order */
    size_t n_states;    /* number of states that the search kept, for reports */
} calm_knapsack_total;

/* Computes the best choice [n], an option index per unit.  A capacity above the largest plan is no error.  Temporaries
 * are in ctx->scratch, released on return.
 * CALM_EARG: the capacity is below the smallest plan (the message has its cost), a unit has no options, or the costs of
 * all units add up to 2^63 or more.  CALM_ENUMERIC: a loss, or the sum of the ranges, is not finite.
 * CALM_ENOMEM: there are more states than the limits above; the message has a remedy. */
calm_status calm_knapsack(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, uint64_t capacity, size_t *choice,
                          calm_knapsack_total *total);
