/* Limits: the schemes that the engine and the written formats allow for each unit (ptq/plan/engines.h).
 *
 *   takes    a unit may have a scheme if the engine runs it for each of the unit's jobs
 *   set      units that share a scheme, because engine or format tie their jobs; the set may have the schemes that all
 *            its units may have
 *
 * Every plan within the limits is legal for the engine. */
#pragma once

#include "ptq/plan/engines.h"
#include "ptq/plan/pool.h"

/* The limits of a pool.  All fields 0: no engine and no tie, every scheme is allowed. */
typedef struct calm_limits {
    const calm_engine *engine;           /* NULL: no engine                                              */
    const char *format;                  /* written format; NULL: the engine's first                     */
    calm_tie tie;                        /* the stronger tie of engine and written format                */
    size_t n_schemes;
    bool *takes;                         /* [n_units][n_schemes]; NULL: every scheme is allowed          */
    char *asks;                          /* who limits: "target vllm", without engine "the format written" */
    size_t *set;                         /* [n_units] first unit of the unit's set; its own number if it is free or the
                                          * first; NULL: all units are free                              */
} calm_limits;

/* Fills out->takes, out->set and out->asks (in ctx->out) from an indexed pool; the caller fills engine, format and tie.
 * offered [n_units][n_schemes]: the schemes that other requests leave.  takes and set stay NULL if there is no engine
 * and every unit is free.
 * CALM_EARG: no scheme is left for a set; the message says which job refuses which scheme, and has a remedy. */
calm_status calm_limits_apply(calm_ctx *ctx, const calm_pool *pool, const bool *offered, calm_limits *out);

/* Returns true if the unit may have the scheme; always true without limits. */
bool calm_limits_allow(const calm_limits *limits, size_t unit, size_t scheme);

/* Returns true if the engine runs the scheme for at least one job of the pool, ignoring sets.  Reads only engine and
 * format. */
bool calm_limits_any_job_allows(const calm_limits *limits, const calm_pool *pool, size_t scheme);

/* Returns a job as a linear of the engine's table. */
calm_engine_linear calm_limits_linear(const calm_pool_job *job);

/* Describes what the limits cost a choice, in ctx->out: "target vllm: 3 units were held back, predicted KL 1.230e-02
 * instead of 1.200e-02"; `loss` is the name of the loss.  With held 0: "target vllm: nothing was held back". */
calm_status calm_limits_cost(calm_ctx *ctx, const calm_limits *limits, size_t held, const char *loss,
                             double constrained, double unconstrained, char **out);
