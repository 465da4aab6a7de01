/* Multiple-choice knapsack with two budgets: bits of weights and bits of activations.
 *
 *   least  sum_u loss(u, c_u)  with  sum_u cost(u, c_u) <= capacity  and  sum_u second(u, c_u) <= second
 *
 * The answer is exact for losses rounded to multiples of 2^-52 of the sum of all units' ranges (rounded up to a power
 * of two).  Of equal losses the least cost wins; which of several such choices wins depends only on the problem. */
#pragma once

#include "ptq/plan/knapsack.h"

/* The most states (cost, second, loss) after one unit: two arrays of 40 bytes per state. */
#define CALM_KNAPSACK_TWO_STATES ((size_t)1 << 22)

/* Computes the best choice [n], an option index per unit.  Capacities above the largest plan are no error.  Temporaries
 * are in ctx->scratch, released on return.
 * CALM_EARG: as calm_knapsack for either cost; or no choice is within both capacities.  CALM_ENUMERIC, CALM_ENOMEM: as
 * calm_knapsack. */
calm_status calm_knapsack_two(calm_ctx *ctx, const calm_knapsack_unit *units, size_t n, uint64_t capacity,
                              uint64_t second, size_t *choice, calm_knapsack_total *total);
