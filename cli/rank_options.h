/* Ranks: runs a command that mpirun or srun started several times.  Rank 0 prints and writes results, the others
 * compute without output. */
#pragma once

#include "cli/command.h"
#include "ptq/cluster/cluster.h"

/* 0 done, 1 failed, 2 usage, 3 verification mismatch */
int calm_exit_status(calm_status status);

/* Does this process print?  Rank 0 alone does. */
bool calm_ranks_speak(void);

/* Before a command: several ranks take a command that divides its work, and a calm with MPI.  CALM_EUNSUPPORTED. */
calm_status calm_ranks_check(calm_ctx *ctx, const calm_command *command);

/* Join the ranks of this run, which leave together at the end; *out NULL: there is one rank. */
calm_status calm_ranks_join(calm_ctx *ctx, calm_cluster **out);

/* Before the failure of a command is printed: where it failed before it joined, all ranks are told. */
void calm_ranks_settle(calm_ctx *ctx);

/* At the end of the process; may not return where another rank is the one that failed. */
void calm_ranks_leave(calm_ctx *ctx);
