/* The launchers' variables. */
#include "ptq/cluster/launch.h"

#include <limits.h>
#include <stdlib.h>

/* A variable as a number from `least` on; -1: not set, or no such number. */
static int number(const char *name, int least)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return -1;
    const long value = strtol(text, &end, 10);
    return *end || value < least || value > INT_MAX ? -1 : (int)value;
}

calm_launch calm_launch_read(void)
{
    /* Of srun the variables of a step: those of the job are also set for the script of sbatch, which is one process. */
    static const struct {
        const char *by, *rank, *ranks;
    } launchers[] = {
        {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
        {"mpirun", "PMI_RANK", "PMI_SIZE"},
    };
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const int rank = number(launchers[i].rank, 0), ranks = number(launchers[i].ranks, 1);
        if (rank >= 0 && rank < ranks)
            return (calm_launch){launchers[i].by, rank, ranks};
    }
    return (calm_launch){.ranks = 1};
}
