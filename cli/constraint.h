/* Constraint: what the target and the formats written leave of the schemes of a run (ptq/plan/engines.h), by unit.
 *
 *   takes    a unit may have a scheme when the target takes it for each of its jobs
 *   set      units that share a scheme: of jobs that target or format tie; such a set has what all of its units may have
 *
 * The pipeline and `calm select` make it from a layout and from rows; the plans that it leaves are legal. */
#ifndef CALM_CLI_CONSTRAINT_H
#define CALM_CLI_CONSTRAINT_H

#include "ptq/plan/engines.h"

typedef struct calm_constraint_job {
    const char *name;      /* for messages                                                     */
    size_t out, in;        /* of its linears together                                          */
    size_t block, unit;    /* numbers that rise from job to job; units from 0 without gaps     */
    bool expert, down;
} calm_constraint_job;

/* Every field 0: no target and no tie, everything is taken. */
typedef struct calm_constraint {
    const calm_engine *target;           /* NULL: none                                         */
    const char *format;                  /* NULL: the target's first                           */
    calm_tie tie;                        /* of the target, and of what is written              */
    const calm_scheme *schemes;          /* [n_schemes]                                        */
    size_t n_schemes;
    const calm_constraint_job *jobs;     /* [n_jobs]                                           */
    size_t n_jobs, n_units;
    bool *takes;                         /* [n_units][n_schemes]                               */
    char *asks;                          /* "target vllm", or without one "the format written" */
    size_t *set;                         /* [n_units] first unit of its set; itself: it is free, or the first */
} calm_constraint;

/* Fill out->takes, out->set and out->asks in ctx->out; the other fields are the caller's.  offered [n_units][n_schemes] is
 * what pins and bans leave (NULL: everything).  Without a target, and with every unit a set of its own, takes and set are
 * NULL.
 * CALM_EARG: a set is left without a scheme; the message says which job refuses what, and what would do. */
calm_status calm_constraint_apply(calm_ctx *ctx, const bool *offered, calm_constraint *out);

/* May the unit have the scheme?  Without a constraint always. */
bool calm_constraint_takes(const calm_constraint *constraint, size_t unit, size_t scheme);

/* Would the target take the scheme for some job, whatever shares it? */
bool calm_constraint_knows(const calm_constraint *constraint, size_t scheme);

/* What it cost: "target vllm: 3 units were held back, predicted KL 1.23e-02 instead of 1.20e-02", in ctx->out; `loss` names
 * what was added up.  With held 0: "target vllm: nothing was held back". */
calm_status calm_constraint_cost(calm_ctx *ctx, const calm_constraint *constraint, size_t held, const char *loss,
                                 double constrained, double unconstrained, char **out);

#endif
