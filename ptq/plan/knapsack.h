/* Multiple-choice knapsack: one option per unit, least total loss within a budget (docs/method.md section 5.3).
 *
 *   least  sum_u loss(u, c_u)  with  sum_u cost(u, c_u) <= capacity
 *
 * The answer is exact.  Losses are taken relative to their unit's least and rounded to multiples of 2^-60 of the sum of
 * all units' ranges (rounded up to a power of two), finer than a sum in double would be, and then added as integers: no
 * order of addition enters, and a tie is a tie.  Among equal losses the least cost wins, then the lexicographically
 * smallest choice. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

/* Most states (cost, loss) after one unit, and most over all units: 24 and 4 bytes each. */
#define CALM_KNAPSACK_LEVEL_STATES ((size_t)1 << 23)
#define CALM_KNAPSACK_ALL_STATES   ((size_t)1 << 27)

typedef struct calm_knapsack_option {
    uint64_t cost;    /* bits, or any other whole unit                                */
    double loss;      /* finite; below 0 too                                          */
    uint64_t second;  /* another cost, of ptq/plan/knapsack_two.h alone               */
} calm_knapsack_option;

typedef struct calm_knapsack_unit {
    size_t n;         /* >= 1                                                         */
    const calm_knapsack_option *options;
} calm_knapsack_unit;

typedef struct calm_knapsack_total {
    uint64_t cost;      /* of the choice                                              */
    uint64_t second;    /* of the choice; only knapsack_two.h adds it up              */
    double loss;        /* of the choice: its losses added in double in unit order    */
    size_t n_states;    /* states the search kept, for reports                        */
} calm_knapsack_total;

/* The best choice [n], an option number per unit.  A capacity above the largest plan is no error.  Temporaries in
 * ctx->scratch, released on return.
 * CALM_EARG: the capacity is below the smallest plan (the message has its cost), a unit has no options, or the costs
 * of all units add up to 2^63 or more.  CALM_ENUMERIC: a loss, or the sum of their ranges, is not finite.
 * CALM_ENOMEM: more states than above; the message says what helps. */
calm_status calm_knapsack(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, uint64_t capacity, size_t *choice,
                          calm_knapsack_total *total);
