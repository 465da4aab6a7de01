/* Solve: chooses one entry of a pool per unit, from scores and requests.  No other code chooses.
 *
 *   rule      without a budget: ptq/plan/rule.h picks the best of the unit's allowed entries
 *   budget    with a budget: the rule picks one entry per scheme; then the schemes of least total predicted loss within
 *             the budget are chosen (ptq/plan/allocate.h)
 *
 * A budget limits bits of weights, bits of activations, or both.  Bits of weights may be given as the size of the
 * written file (calm_pool_file): then the bits of all other tensors are subtracted, and the solver picks the table
 * (types of embedding and head) of least total loss.  Bits of activations are a mean over weights, that is over
 * multiplications; a float activation counts as 16.  The loss of an option is kappa * score, with kappa = probe_kl /
 * score of the unit's narrowest option: scores can be compared within one unit only, the probe measures the unit's
 * effect on the model.  For a logarithmic score, the error e^score counts. */
#pragma once

#include "ptq/plan/allocate.h"
#include "ptq/plan/requests.h"

#define CALM_ANY_SCHEME SIZE_MAX

typedef struct calm_solution {
    size_t *choice;                    /* [n_units] entry of the pool                                   */
    const char **reasons;              /* [n_units] sentence that explains the choice                   */
    uint64_t bits, act_bits;           /* bits of all weights; sum over weights of their activations' bits */
    double bits_per_weight, mean_act_bits;
    size_t unprobed;                   /* with a budget: units without a probe; 0: losses are predicted KL */
    char *cost;                        /* what the engine's limits cost, a sentence; NULL: no limits    */
    char *substituted;                 /* uniform plan: where its entry failed and what replaces it, a sentence;
                                        * NULL: it failed nowhere                                       */
    calm_allocation total;             /* with a budget: loss of the plan                               */
    size_t table;                      /* with a file: index of the chosen calm_pool_table              */
} calm_solution;

/* Chooses for every unit of an indexed pool; memory of *out is in ctx->out.
 * CALM_EARG: as calm_scope_open; the budget is out of reach (the message has the range); a unit's candidates lack the
 * score.  CALM_ENUMERIC: all candidates of a unit failed. */
calm_status calm_solve(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_solution *out);

/* Chooses for one unit by the rule, among the entries of one scheme or of CALM_ANY_SCHEME; *reason is in ctx->out.
 * Fails as calm_solve does for that unit. */
calm_status calm_solve_unit(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit, size_t scheme,
                            size_t *entry, const char **reason);

/* Build the baselines that a run measures next to its own choice: _uniform has one entry in all units, _scheme has for
 * each unit the rule's choice at one scheme.  Pinned units keep what their pin allows.  CALM_ENUMERIC: a unit has no
 * usable entry of the scheme.
 * If the uniform plan's entry failed in a unit, the unit has the rule's choice at the same scheme.  If there is none,
 * or if the entry failed in all units, the unit keeps the failed entry, and the plan cannot be measured. */
calm_status calm_solve_uniform(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t entry,
                               calm_solution *out);
calm_status calm_solve_scheme(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t scheme,
                              calm_solution *out);

/* Returns the entries [n_units] of each unit's narrowest option, in ctx->out; they are probed before a budget is spent.
 * CALM_ENUMERIC: all candidates of a unit failed. */
calm_status calm_solve_narrowest(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t **entries);

/* Returns the bits of all units at a budget of bits per weight, rounded to the nearest bit.  Infinite budget: the bits
 * that the pool's file leaves for the jobs, or CALM_NO_LIMIT without a file. */
uint64_t calm_budget_bits(const calm_pool *pool, double budget);

/* Fails with CALM_EARG if the budget is below the smallest or above the largest plan of the scope.  An infinite budget
 * is the size of the pool's file; without a file it limits nothing. */
calm_status calm_budget_check(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget);

/* Does the same for a budget of activation bits; 0: no budget. */
calm_status calm_act_budget_check(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget);
