/* How this process was started: alone, or as one rank of several by mpirun or srun. */
#pragma once

typedef struct calm_launch {
    const char *by;     /* the launcher, "mpirun" or "srun"; NULL: neither */
    int rank, ranks;    /* number of this rank, number of ranks; without a launcher 0 and 1 */
} calm_launch;

/* Reads the launcher's environment variables; starts nothing. */
calm_launch calm_launch_read(void);
