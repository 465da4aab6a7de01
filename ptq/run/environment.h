/* Environment: program, libraries and machine that a run is computed with, as texts for the store and the lock. */
#ifndef CALM_RUN_ENVIRONMENT_H
#define CALM_RUN_ENVIRONMENT_H

#include "store/store.h"

typedef struct calm_fact {
    const char *name;     /* "kernels" */
    const char *value;    /* "Haswell" */
} calm_fact;

enum { CALM_N_FACTS = 8 };

/* calm, commit, kernels, openblas, libc, compiler, cpu, instructions, in that order; in ctx->out.  The commit is
 * "unknown" where calm was not built from a repository, and ends with "-modified" where that had changes. */
calm_status calm_environment(calm_ctx *ctx, calm_fact facts[CALM_N_FACTS]);

/* Put these facts into the store, as those of a run. */
calm_status calm_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id);

#endif
