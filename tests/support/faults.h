/* A machine that fails: the n-th call that changes the disk kills the process or fails.
 *
 * A program that links this file defines such functions of the C library itself (open that creates or truncates,
 * write and similar, fopen, fwrite, fflush, fsync, fdatasync, ftruncate, fallocate, rename, link, unlink, rmdir,
 * mkdir ...), so that SQLite and calm's code call them.  They count calls; at a chosen count the process kills itself
 * or the call fails.  So the points of failure are operations, not times, and are the same in every run. Nothing is
 * flushed to the disk: data that a killed process gave to the kernel stays.  Calls on standard output, standard
 * error, terminals, pipes and sockets do not count, nor do writes through a mapping (SQLite's WAL index).
 *
 * tests/tools/fault_shim.c does the same for an unchanged program (LD_PRELOAD). */
#ifndef CALM_TESTS_FAULTS_H
#define CALM_TESTS_FAULTS_H

#include <stdbool.h>

typedef struct fault {
    long at;        /* number of the call, from 1; 0: none                                */
    int error;      /* errno of the failing call; 0: the process is killed                */
    bool stays;     /* later calls fail too, as on a full disk; calls that free room work */
    bool before;    /* kill before a write; otherwise after half of its bytes             */
    bool no_exchange;    /* renameat2 gives EINVAL, as on a file system without it        */
} fault;

/* Restarts the count at 0 and sets the fault. */
void fault_plan(fault wanted);

/* Returns the number of calls since fault_plan. */
long fault_calls(void);

/* Appends "NUMBER CALL PATH" to the open file `fd` for every later call; -1: stops that. */
void fault_list(int fd);

#endif
