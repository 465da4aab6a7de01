/* The real program in its own process, undisturbed or under tests/tools/fault_shim.c. */
#ifndef CALM_TESTS_PROGRAM_H
#define CALM_TESTS_PROGRAM_H

#include "tests/support/play.h"

/* What the shim shall do; NULL: nothing. */
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

/* A run of `calm quantize` in its own directory: model, texts and pool of `of` (its threads too). */
typedef struct program {
    play of;
    const char *dir, *store, *output;
    char *operations;    /* of an undisturbed run, a line each; NULL before program_count */
} program;

/* What to run: a model of this many blocks with a token per byte, so that one run takes some tens of milliseconds; one
 * thread. */
play program_play(size_t n_blocks, const char *algorithms);

/* Make that directory, below the test's; `name` is its name. */
program program_new(const play *of, const char *name);

/* Start anew: remove the store, the output and all else that is in the directory. */
void program_clear(const program *p);

/* Run it; --force where `force`. */
program_end program_run(const program *p, const disturbance *wanted, bool force);

/* Run it, send it a signal as soon as its store has this many blobs, and wait until it has stopped, which must not take
 * long. */
program_end program_interrupt(const program *p, int signal, size_t n_blobs);

/* Blobs of its store. */
size_t program_blobs(const program *p);

/* How many candidates the last run that ended well found in the store, as its report says. */
int64_t program_cached(const program *p);

/* Run `calm` with these words (NULL at the end); standard output goes nowhere. */
program_end program_call(const char *const *words, const disturbance *wanted);

/* The number of operations of an undisturbed run, which must succeed; their names are kept for program_operation. */
long program_count(program *p);

/* "57 rename /tmp/x/calm.db", with the test's directory cut off. */
const char *program_operation(const program *p, long number);

/* What must hold of the directory whatever happened: the output's name represents nothing or for the files that
 * `expected` lists (play_digest), and the store, when there is one, is sound down to its blobs.  `where` begins the
 * message.  Returns the number of complete candidates. */
int64_t program_check(const program *p, const char *expected, const char *where);

/* Names in the directory, joined by a space; and "calm.db.blobs/tmp/..." where a temporary blob lies. */
const char *program_files(const program *p);

/* Call `fn` for every point from 0 to n - 1, in two processes that share them; where one of them fails, so does the
 * test. What they count must be in memory from program_shared, zeroed and the processes' own; `worker` is 0 or 1. */
void program_spread(long n, void (*fn)(void *user, long point, int worker), void *user);
void *program_shared(size_t bytes);

/* The store's first column of the first row, as text ("" when there is none), and the same as a number. */
const char *program_text(const program *p, const char *select);
int64_t program_number(const program *p, const char *select);

#endif
