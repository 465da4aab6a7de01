/* Allocation of bits: picks one scheme per unit so that the total loss of the plan is least within a bit budget.
 * Schemes that the engine cannot run are excluded, and the units of one set share one scheme (ptq/plan/limits.h).
 */
#pragma once

#include "ptq/plan/knapsack.h"

/* The best pool entry of one scheme for one unit. */
typedef struct calm_unit_option {
    size_t entry, scheme;              /* indices into the pool's entries and schemes                   */
    const char *reason;                /* why this entry is the best of its scheme                      */
    bool held;                         /* true: the engine cannot run the scheme for this unit          */
    calm_knapsack_option weight;       /* cost: bits of weights; loss; second: bits of activations      */
} calm_unit_option;

/* The options of one unit, sorted by bits of weights, then by bits of activations. */
typedef struct calm_unit_options {
    calm_unit_option *of;              /* [n] options                                                   */
    size_t n;
    size_t set;                        /* first unit of the set that shares a scheme; the unit's own number
                                        * if the unit is free or the first of its set                   */
} calm_unit_options;

/* _new allocates an empty list for up to `room` options in ctx->out; _add inserts an option at its sorted place. */
calm_status calm_unit_options_new(calm_ctx *ctx, size_t room, calm_unit_options *out);
void calm_unit_options_add(calm_unit_options *unit, calm_unit_option option);

/* Returns KL per unit of score: the probed KL of an option divided by its score.  Returns 0 if the probe is not finite
 * or the score is not positive. */
double calm_unit_kappa(double probe, double score);

/* The loss of a plan, and the part of it that the engine's limits cause. */
typedef struct calm_allocation {
    double loss;                       /* total loss of the plan                                        */
    double unconstrained;              /* total loss of the best plan without the engine's limits       */
    size_t held;                       /* number of units with another option in that plan; 0 if the losses are equal */
} calm_allocation;

/* A budget that limits nothing. */
#define CALM_NO_LIMIT ((uint64_t)1 << 62)

/* Computes the plan of least total loss within bits[0] bits of weights and bits[1] bits of activations (CALM_NO_LIMIT:
 * no budget).  picked [n] receives an option index per unit; no picked option is held, and the units of a set have one
 * scheme.  Temporaries are in ctx->scratch.  Fails as calm_knapsack and calm_knapsack_two do; CALM_ENUMERIC: the units
 * of a set have no scheme in common, because candidates failed. */
calm_status calm_allocate(calm_ctx *ctx, const calm_unit_options *units, size_t n, const uint64_t bits[2],
                          size_t *picked, calm_allocation *out);
