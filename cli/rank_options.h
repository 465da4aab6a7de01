/* Ranks: a command that mpirun or srun starts several times.  Rank 0 prints and writes results; the others compute
 * without output. */
#pragma once

#include "cli/command.h"
#include "ptq/cluster/cluster.h"

/* Returns the exit status of the program: 0 done, 1 failed, 2 usage, 3 verification mismatch. */
int calm_exit_status(calm_status status);

/* Does this process print?  Only rank 0 does. */
bool calm_ranks_print(void);

/* Checks, before a command runs, that several ranks can run it.  CALM_EUNSUPPORTED: the command does not divide its
 * work, or calm was built without MPI. */
calm_status calm_ranks_check(calm_ctx *ctx, const calm_command *command);

/* Joins the ranks of this run until calm_ranks_leave; *out is NULL if there is one rank. */
calm_status calm_ranks_join(calm_ctx *ctx, calm_cluster **out);

/* Tells all ranks about a failure of a command that failed before it joined them.  Call it before the failure is
 * printed. */
void calm_ranks_announce_failure(calm_ctx *ctx);

/* Leaves the ranks at the end of the process; may not return if another rank has failed. */
void calm_ranks_leave(calm_ctx *ctx);
