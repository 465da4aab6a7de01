/* Limits: the schemes that the engine and the written formats allow for each unit (ptq/plan/engines.h).
 *
 *   takes    a unit may have a scheme when the engine takes it for each of its jobs
 *   set      units that share a scheme, because engine or format tie their jobs; such a set has what all its units may
 * have
 *
 * The plans that limits leave are legal for the engine. */
#pragma once

#include "ptq/plan/engines.h"
#include "ptq/plan/pool.h"

/* Every field 0: no engine and no tie, everything is taken. */
typedef struct calm_limits {
    const calm_engine *engine;           /* NULL: none                                         */
    const char *format;                  /* NULL: the engine's first                           */
    calm_tie tie;                        /* of the engine, and of what is written              */
    size_t n_schemes;
    bool *takes;                         /* [n_units][n_schemes]; NULL: everything             */
    char *asks;                          /* "target vllm", or without one "the format written" */
    size_t *set;                         /* [n_units] first unit of its set; itself: it is free, or the first; NULL: all
                                          * units are free                                     */
} calm_limits;

/* Fill out->takes, out->set and out->asks in ctx->out from an indexed pool; target, format and tie are the caller's.
 * offered [n_units][n_schemes] is what other requests leave.  Without an engine, and with every unit its own set,
 * takes and set are NULL.
 * CALM_EARG: a set is left without a scheme; the message says which job refuses what, and what would do. */
calm_status calm_limits_apply(calm_ctx *ctx, const calm_pool *pool, const bool *offered, calm_limits *out);

/* May the unit have the scheme?  Without limits always. */
bool calm_limits_take(const calm_limits *limits, size_t unit, size_t scheme);

/* Would the engine take the scheme for some job of the pool, whatever shares it?  Reads target and format alone. */
bool calm_limits_know(const calm_limits *limits, const calm_pool *pool, size_t scheme);

/* A job as the engine's table knows it. */
calm_engine_linear calm_limits_linear(const calm_pool_job *job);

/* What limits cost a choice: "target vllm: 3 units were held back, predicted KL 1.23e-02 instead of 1.20e-02", in
 * ctx->out; `loss` names what was added up.  With held 0: "target vllm: nothing was held back". */
calm_status calm_limits_cost(calm_ctx *ctx, const calm_limits *limits, size_t held, const char *loss,
                             double constrained, double unconstrained, char **out);
