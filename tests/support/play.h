/* Runs of the pipeline on a tiny model, each in a child process: undisturbed, killed, or with calls that fail. */
#ifndef CALM_TESTS_PLAY_H
#define CALM_TESTS_PLAY_H

#include <sys/types.h>

#include "ptq/recipe/recipe.h"
#include "tests/support/run_rooms.h"
#include "tests/support/faults.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* What a run is given; a copy with other members is another run. */
typedef struct play {
    const char *dir;       /* of the test: text.txt is there, the store and the output will */
    calm_recipe recipe;
    int threads;
    size_t kill_at_step;   /* of learning: SIGKILL when this many are done; 0: at none */
} play;

/* What a run has to say. */
typedef struct outcome {
    bool killed;
    calm_status status;
    char message[CALM_MESSAGE_MAX];
    long calls;                  /* that write, as faults.h counts them           */
    size_t cached;               /* candidates that were in the store             */
    size_t guarded;              /* windows that the guard measured: one of each plan, and of the float model */
    calm_memory_plan memory;
    calm_memory_held held;
    size_t resident;             /* the most that the system saw, all included    */
    char result[64], verdict[512], log[4096];
} outcome;

/* A model of 2 blocks with the bundled tokenizer in a fresh directory, and a recipe of 4 windows of 32 tokens for it.
 * `spec` NULL: tiny_default with the vocabulary of that tokenizer.  The test itself has one thread from here on. */
play play_new(const tiny_model *spec, const char *scheme, const char *algorithms);

/* Other schemes (NULL: those that it has) and algorithms, as lists. */
void play_pool(play *run, const char *schemes, const char *algorithms);

/* The files of a run elsewhere: another output, another store. */
const char *play_path(const play *run, const char *name);

/* Run in a child, and wait. */
outcome play_run(const play *run, fault wanted);

/* The same, which must succeed. */
outcome play_must_run(const play *run);

/* The same run with output and its own store, named after `name`. */
play play_elsewhere(const play *run, const char *name);

/* The same without waiting: `said` is shared with the child, whose process id is returned. */
pid_t play_start(const play *run, fault wanted, outcome **said);
outcome play_wait(pid_t child, outcome *said);

/* Run in a child with `stages`, which gets user NULL, instead of choice, guard and export (calm_run_stages).  It must
 * succeed; else its message is printed. */
void play_stages(const play *run, calm_stages_fn *stages);

/* "name sha256" of every file of a directory, sorted; NULL when it is not there. */
const char *play_digest(const char *dir);

/* Raise the exponents of a tensor of bfloat16 values in the model by this: all are multiplied by that power of two. */
void play_scale_tensor(const play *run, const char *tensor, int exponent);

/* Names in the directory of the test that contain `part`, joined by a space. */
const char *play_list(const play *run, const char *part);

/* Run one SQL statement on the store; the first column of the first row as a number when it is a SELECT, else 0. */
int64_t play_sql(const play *run, const char *statement);

/* The first column of the rows of a SELECT, one a line. */
const char *play_text(const play *run, const char *statement);

#endif
