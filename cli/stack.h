/* Stacks: keeps the program working under a small `ulimit -s`. */
#pragma once

/* Return body(argc, argv), which has a stack of at least 8 MiB, as have threads of OpenMP that it starts.  Where the
 * system's limit is below 1 MiB, the program replaces itself once (execv) with OMP_STACKSIZE set, and `body` runs in a
 * its own thread.  Where that cannot be had, it runs as it is. */
int calm_with_stack(int (*body)(int argc, char **argv), int argc, char **argv);
