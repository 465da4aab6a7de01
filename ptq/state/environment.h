/* Environment: program, libraries and machine that a run is computed with, as texts for the store and the lock. */
#pragma once

#include "ptq/io/json.h"
#include "store/store.h"

/* calm, commit, kernels, openblas, libc, compiler, cpu, instructions, in that order, as an object of names and texts.
 * The commit is "unknown" where calm was not built from a repository, and ends with "-modified" where that had changes.
 * A lock has it, not as an input: another machine may well give the same bytes, and where it does not, this says what
 * differs. */
calm_status calm_environment_json(calm_ctx *ctx, calm_json **out);

/* Put the same into the store, as that of a run. */
calm_status calm_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id);
