/* Environment: the program, libraries and machine that compute a run, as texts for the store and the lock. */
#pragma once

#include "ptq/io/json.h"
#include "store/store.h"

/* Returns an object of names and texts: calm, commit, kernels, openblas, libc, compiler, cpu, instructions, in that
 * order.  The commit is "unknown" if calm was not built from a repository, and ends with "-modified" if the repository
 * had changes.  A lock contains the object for information: another machine may give the same bytes, and if it does
 * not, the object shows what differs. */
calm_status calm_environment_json(calm_ctx *ctx, calm_json **out);

/* Stores the same texts as the environment of a run. */
calm_status calm_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id);
