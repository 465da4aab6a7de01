/* How this process was started: alone, or as one rank of several by mpirun or srun. */
#pragma once

typedef struct calm_launch {
    const char *by;     /* "mpirun", "srun"; NULL: neither */
    int rank, ranks;    /* 0 of 1 where neither            */
} calm_launch;

/* What the launcher says in the environment; nothing is started by it. */
calm_launch calm_launch_read(void);
