/* A machine that fails: the n-th call that writes kills the process or is refused.
 *
 * A program that links this defines write, pwrite64, fwrite, fflush, fsync, fdatasync, ftruncate64, rename, renameat2
 * and mkdir itself, so that SQLite and calm's own code both call these.  Calls are counted; at a chosen count the
 * process kills itself (in the middle of a write, half of the bytes are out) or the call fails.  The points are thus
 * spread over the operations, not over time, and are the same on every run.  Nothing is flushed to the disk: what a
 * killed process gave to the kernel stays.  Standard output and standard error are not counted. */
#ifndef CALM_TESTS_FAULTS_H
#define CALM_TESTS_FAULTS_H

#include <stdbool.h>

typedef struct fault {
    long at;        /* number of the call, from 1; 0: none                  */
    int error;      /* errno of the failing call; 0: the process is killed  */
    bool stays;     /* every later call fails too, as on a full disk        */
    bool no_exchange;    /* renameat2 gives EINVAL, as on a file system without it */
} fault;

/* From here on: count from 0, and strike as `wanted` says. */
void fault_plan(fault wanted);

/* Calls since then. */
long fault_calls(void);

#endif
