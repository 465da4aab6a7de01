/* Stacks: keeps the program working under a small `ulimit -s`. */
#pragma once

/* Returns body(argc, argv).  If the system's limit of the stack is below 1 MiB, the program replaces itself once
 * (execv) with OMP_STACKSIZE set, and `body` runs in a thread with a stack of 8 MiB, as OpenMP's threads have too.
 * If that fails, `body` runs on the small stack. */
int calm_with_stack(int (*body)(int argc, char **argv), int argc, char **argv);
