/* Runs the real program in its own process, undisturbed or under tests/tools/fault_shim.c. */
#ifndef CALM_TESTS_PROGRAM_H
#define CALM_TESTS_PROGRAM_H

#include "tests/support/play.h"

/* What the shim does to the program; NULL: nothing. */
typedef struct disturbance {
    long at;             /* number of the operation on the disk, from 1 */
    const char *what;    /* kill, tear, ENOSPC, EIO                     */
    bool sticky;
} disturbance;

/* How a program ended. */
typedef struct program_end {
    int status;          /* exit status; -1: a signal                   */
    int signal;          /* 0: none                                     */
    char said[4096];     /* on standard error, cut off                  */
} program_end;

/* A run of `calm quantize` in its own directory, with the model, texts, pool and threads of `of`. */
typedef struct program {
    play of;
    const char *dir, *store, *output;
    char *operations;    /* of an undisturbed run, a line each; NULL before program_count */
} program;

/* Returns the settings of a run: a model of this many blocks with one token per byte, so that a run takes some tens
 * of milliseconds, and one thread. */
play program_play(size_t n_blocks, const char *algorithms);

/* Makes the directory of a run, called `name`, below the test's. */
program program_new(const play *of, const char *name);

/* Removes the store, the output and all else that is in the directory. */
void program_clear(const program *p);

/* Runs the program, with --force if `force`. */
program_end program_run(const program *p, const disturbance *wanted, bool force);

/* Runs the program, sends it a signal as soon as its store has this many blobs, and waits until it has stopped.
 * Fails when that takes long. */
program_end program_interrupt(const program *p, int signal, size_t n_blobs);

/* Returns the number of blobs in the store. */
size_t program_blobs(const program *p);

/* Returns how many candidates the last successful run found in the store, according to its report. */
int64_t program_cached(const program *p);

/* Runs `calm` with these words (NULL at the end); standard output is discarded. */
program_end program_call(const char *const *words, const disturbance *wanted);

/* Returns the number of operations of an undisturbed run, which must succeed; their names are kept for
 * program_operation(). */
long program_count(program *p);

/* "57 rename /tmp/x/calm.db", with the test's directory cut off. */
const char *program_operation(const program *p, long number);

/* Checks what must hold of the directory whatever happened: under the output's name is nothing or exactly the files
 * that `expected` lists (play_digest), and the store, if there is one, is sound with all its blobs.  `where` begins
 * the message.  Returns the number of complete candidates. */
int64_t program_check(const program *p, const char *expected, const char *where);

/* Returns the names in the directory, joined by a space, with "calm.db.blobs/tmp/..." where a temporary blob is
 * left. */
const char *program_files(const program *p);

/* Calls `fn` for every point from 0 to n - 1 in two processes, and fails where one of them fails.  Counts must be in
 * memory from program_shared, which is zeroed and shared by the processes; `worker` is 0 or 1. */
void program_spread(long n, void (*fn)(void *user, long point, int worker), void *user);
void *program_shared(size_t bytes);

/* Returns the first column of the first row, as text ("" when there is none) or as a number. */
const char *program_text(const program *p, const char *select);
int64_t program_number(const program *p, const char *select);

#endif
