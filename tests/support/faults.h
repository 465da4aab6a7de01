/* A machine that fails: the n-th call that changes the disk kills the process or is refused.
 *
 * A program that links this defines those functions of the C library itself (open that creates or truncates, write and
 * its kin, fopen, fwrite, fflush, fsync, fdatasync, ftruncate, fallocate, rename, link, unlink, rmdir, mkdir ...), so
 * that SQLite and calm's own code both call these.  Calls are counted; at a chosen count the process kills itself or
 * the call fails.  The points are thus spread over the operations, not over time, and are the same on every run.
 * Nothing is flushed to the disk: what a killed process gave to the kernel stays.  Standard output, standard error,
 * terminals, pipes and sockets are not counted, nor is what is stored through a mapping (SQLite's WAL index).
 *
 * tests/tools/fault_shim.c is the same for a program that does not know of it. */
#ifndef CALM_TESTS_FAULTS_H
#define CALM_TESTS_FAULTS_H

#include <stdbool.h>

typedef struct fault {
    long at;        /* number of the call, from 1; 0: none                  */
    int error;      /* errno of the failing call; 0: the process is killed  */
    bool stays;     /* every later call fails too, as on a full disk; what frees room works  */
    bool before;    /* killed before a write; otherwise half of its bytes are out            */
    bool no_exchange;    /* renameat2 gives EINVAL, as on a file system without it */
} fault;

/* From here on: count from 0, and strike as `wanted` says. */
void fault_plan(fault wanted);

/* Calls since then. */
long fault_calls(void);

/* Append "NUMBER CALL PATH" to the open file `fd` for every call from here on; -1: no more. */
void fault_list(int fd);

#endif
