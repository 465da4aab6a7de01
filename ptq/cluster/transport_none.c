/* In place of transport_mpi.c where calm is built without MPI. */
#include "ptq/cluster/transport.h"

bool calm_transport_built(void)
{
    return false;
}

calm_status calm_transport_begin(calm_ctx *ctx, calm_transport *out)
{
    *out = (calm_transport){.ranks = 1};
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "this calm was built without MPI (cmake -DCALM_MPI=ON): start it without mpirun or srun");
}
