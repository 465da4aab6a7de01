/* Allocation of bits: units with the schemes that each may take, and the plan of least total loss within a budget - or
 * the best legal one, where the engine holds schemes back and units of a set share theirs (ptq/plan/limits.h). */
#ifndef CALM_PLAN_ALLOCATE_H
#define CALM_PLAN_ALLOCATE_H

#include "ptq/plan/knapsack.h"

/* The best entry of one scheme for a unit. */
typedef struct calm_unit_option {
    size_t entry, scheme;              /* of the pool                                                   */
    const char *reason;                /* why that entry at its scheme                                  */
    bool held;                         /* the engine does not take it                                   */
    calm_knapsack_option weight;       /* bits, loss                                                    */
} calm_unit_option;

/* What one unit may take; options rise in bits. */
typedef struct calm_unit_options {
    calm_unit_option *of;              /* [n]                                                           */
    size_t n;
    size_t set;                        /* first of the units that share a scheme; its own number: none  */
} calm_unit_options;

/* Room for so many options, in ctx->out; and one more, in its place by bits. */
calm_status calm_unit_options_new(calm_ctx *ctx, size_t room, calm_unit_options *out);
void calm_unit_options_add(calm_unit_options *unit, calm_unit_option option);

/* What one unit of a score costs the model: the probed KL of an option over its score.  0 where one of them says
 * nothing. */
double calm_unit_kappa(double probe, double score);

/* What a plan loses, and what it lost to the engine. */
typedef struct calm_allocation {
    double loss;                       /* of the plan                                                   */
    double unconstrained;              /* of the best plan that ignores the engine                      */
    size_t held;                       /* units that are another option there                           */
} calm_allocation;

/* The best plan of units [n] within so many bits: picked [n], an option of each, none that is held, those of a set at
 * one scheme.  Temporaries in ctx->scratch.  Fails as calm_knapsack does; CALM_ENUMERIC: candidates failed so that a
 * set has no scheme. */
calm_status calm_allocate(calm_ctx *ctx, const calm_unit_options *units, size_t n, uint64_t bits, size_t *picked,
                          calm_allocation *out);

#endif
