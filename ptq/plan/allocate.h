/* Allocation of bits: for each unit the schemes that it may take; over all units the plan of least total loss within a
 * budget.  Schemes that the engine does not take are left out, and units of a set get the same one (ptq/plan/limits.h).
 */
#pragma once

#include "ptq/plan/knapsack.h"

/* The best entry of one scheme for a unit. */
typedef struct calm_unit_option {
    size_t entry, scheme;              /* of the pool                                                   */
    const char *reason;                /* why that entry at its scheme                                  */
    bool held;                         /* the engine does not take it                                   */
    calm_knapsack_option weight;       /* bits, loss, bits of activations                                */
} calm_unit_option;

/* What one unit may take; options rise in bits, of equal bits in those of activations. */
typedef struct calm_unit_options {
    calm_unit_option *of;              /* [n]                                                           */
    size_t n;
    size_t set;                        /* first of the units that share a scheme; its own number: none  */
} calm_unit_options;

/* An empty list with room for `room` options, in ctx->out; add one at its place by bits. */
calm_status calm_unit_options_new(calm_ctx *ctx, size_t room, calm_unit_options *out);
void calm_unit_options_add(calm_unit_options *unit, calm_unit_option option);

/* KL per unit of score: the probed KL of an option divided by its score.  0 without a probe or for a score of 0 or
 * less. */
double calm_unit_kappa(double probe, double score);

/* The loss of a plan, and how much of it is due to the engine. */
typedef struct calm_allocation {
    double loss;                       /* of the plan                                                   */
    double unconstrained;              /* of the best plan that ignores the engine                      */
    size_t held;                       /* units that are another option there                           */
} calm_allocation;

/* A capacity that limits nothing. */
#define CALM_NO_LIMIT ((uint64_t)1 << 62)

/* The best plan of units [n] within this many bits of weights (bits[0]) and of activations (bits[1]), each
 * CALM_NO_LIMIT where it is free: picked [n], an option of each, none that is held, those of a set at one scheme.
 * Temporaries in ctx->scratch.  Fails as calm_knapsack and calm_knapsack_two do; CALM_ENUMERIC: candidates failed so
 * that a set has no scheme. */
calm_status calm_allocate(calm_ctx *ctx, const calm_unit_options *units, size_t n, const uint64_t bits[2],
                          size_t *picked, calm_allocation *out);
