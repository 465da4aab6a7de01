/* Joins and leaves the ranks; ends a process if another rank has ended the run. */
#include "cli/rank_options.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/flags.h"
#include "ptq/cluster/launch.h"

static calm_cluster *joined;
static bool tried, divides;

int calm_exit_status(calm_status status)
{
    if (status == CALM_OK)
        return 0;
    return status == CALM_EARG ? 2 : status == CALM_EMISMATCH ? 3 : 1;
}

bool calm_ranks_print(void)
{
    return calm_launch_read().rank == 0;
}

/* A calm_cluster_hooks.end.  It closes nothing, because the run's thread may be anywhere; the store copes as after a
 * kill. */
static void end_process(void *user, calm_status status, const char *sentence)
{
    (void)user;
    if (sentence) {
        calm_flags_print(stderr, "calm: ", sentence);
        fflush(stderr);
    }
    _exit(calm_exit_status(status));
}

calm_status calm_ranks_check(calm_ctx *ctx, const calm_command *command)
{
    const calm_launch launch = calm_launch_read();
    if (launch.ranks < 2)
        return CALM_OK;
    if (!command->divides)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "calm %s does not divide its work, and %s started it %d times: start it once", command->name,
                         launch.by, launch.ranks);
    if (!calm_transport_built())
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s started calm %d times, but this calm was built without MPI: every one would do the whole "
                         "run; start it once, or build it with -DCALM_MPI=ON (docs/cluster.md)", launch.by,
                         launch.ranks);
    divides = true;
    /* Line buffering: the launcher merges the messages of several processes. */
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    /* Only rank 0 prints reports. */
    if (launch.rank != 0 && !freopen("/dev/null", "w", stdout))
        return calm_fail(ctx, CALM_EIO, "/dev/null: cannot open");
    return CALM_OK;
}

calm_status calm_ranks_join(calm_ctx *ctx, calm_cluster **out)
{
    static const calm_cluster_hooks hooks = {.end = end_process};
    tried = true;
    const calm_status status = calm_cluster_start(ctx, &hooks, &joined);
    *out = joined;
    return status;
}

void calm_ranks_announce_failure(calm_ctx *ctx)
{
    if (divides && !tried && ctx->status != CALM_OK)
        calm_ranks_join(ctx, &joined);
}

void calm_ranks_leave(calm_ctx *ctx)
{
    calm_cluster_end(ctx, &joined);
}
