/* Solve: one entry of a pool per unit, from scores and requests - the only place that chooses.
 *
 *   rule      without a budget: ptq/plan/rule.h takes the best of what the unit's scope allows
 *   budget    with one: at each scheme the entry that the rule takes, then the schemes of least total predicted loss
 *             within the bits (ptq/plan/allocate.h)
 *
 * A budget is of bits of weights, which may be those of the whole file that is written (calm_pool_file): then what
 * the file has next to the jobs is subtracted first, and the table that goes with the least loss is taken.  Or it is
 * of bits of activations (the mean over weights, that is over multiplications, of the bits of what they are
 * multiplied by; 16 where that stays float), or there are both.  The loss of an option is kappa * score, with kappa
 * = probe_kl / score of the unit's narrowest option: a score compares options of one unit only, the probe measures
 * its effect on the model.  Of a score that is a logarithm the error itself counts, e^score. */
#pragma once

#include "ptq/plan/allocate.h"
#include "ptq/plan/requests.h"

#define CALM_ANY_SCHEME SIZE_MAX

typedef struct calm_solution {
    size_t *choice;                    /* [n_units] entry of the pool                                   */
    const char **reasons;              /* [n_units]                                                     */
    uint64_t bits, act_bits;           /* of all units: of weights; of activations, by weights          */
    double bits_per_weight, mean_act_bits;
    size_t unprobed;                   /* with a budget: units without a probe; 0: losses are predicted KL */
    char *cost;                        /* what the engine cost; NULL: there is none                     */
    char *substituted;                 /* of a uniform plan: where its entry failed, and what is there
                                        * instead; NULL: nowhere                                        */
    calm_allocation total;             /* with a budget                                                 */
    size_t table;                      /* of a pool with a file: what its embedding and head are        */
} calm_solution;

/* Choose for every unit of an indexed pool; *out in ctx->out.
 * CALM_EARG: as calm_scope_open; a budget out of reach (the message has the range); a unit whose candidates lack the
 * score. CALM_ENUMERIC: a unit whose candidates all failed. */
calm_status calm_solve(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_solution *out);

/* Choose for one unit by the rule, among the entries of one scheme or of CALM_ANY_SCHEME; *reason in ctx->out.  Fails
 * as calm_solve does for that unit. */
calm_status calm_solve_unit(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit, size_t scheme,
                            size_t *entry, const char **reason);

/* The plans that a run measures next to its own choice.  One entry throughout; for each unit its own entry of one
 * scheme. Pinned units stay at what their pin allows.  CALM_ENUMERIC: a unit has no entry of the scheme.
 * Where the one entry failed a unit has what the rule takes of the same scheme, unless it failed in all units or
 * nothing of its scheme is left: then the unit keeps the failed entry, and there is no such plan. */
calm_status calm_solve_uniform(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t entry,
                               calm_solution *out);
calm_status calm_solve_scheme(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t scheme,
                              calm_solution *out);

/* The entries [n_units] of each unit's narrowest option, which are probed before a budget is spent; in ctx->out.
 * CALM_ENUMERIC: a unit whose candidates all failed. */
calm_status calm_solve_narrowest(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t **entries);

/* Whole bits that a budget of bits per weight gives to all units; an infinite one: those that the pool's file leaves
 * them next to its table, or of a pool without a file no limit. */
uint64_t calm_budget_bits(const calm_pool *pool, double budget);

/* CALM_EARG when no plan that the scope allows takes this many bits: fewer than the least, or more than the most.  An
 * infinite budget is the size of the pool's file; without a file it limits nothing. */
calm_status calm_budget_check(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget);

/* The same of a budget of activation bits, 0: none. */
calm_status calm_act_budget_check(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget);
