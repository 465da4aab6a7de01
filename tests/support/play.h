/* Runs of the pipeline on a tiny model, each in a child process: undisturbed, killed, or with calls that fail. */
#ifndef CALM_TESTS_PLAY_H
#define CALM_TESTS_PLAY_H

#include <sys/types.h>

#include "ptq/recipe/recipe.h"
#include "tests/support/run_rooms.h"
#include "tests/support/faults.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* Settings of a run; a copy with other members is another run. */
typedef struct play {
    const char *dir;       /* the test's directory: holds text.txt, and later store and output */
    calm_recipe recipe;
    int threads;
    size_t kill_at_step;   /* SIGKILL after this many steps of learning; 0: never */
} play;

/* Facts that a run reports. */
typedef struct outcome {
    bool killed;
    calm_status status;
    char message[CALM_MESSAGE_MAX];
    long calls;                  /* calls that write, as faults.h counts them                                 */
    size_t cached;               /* candidates from the store                                                 */
    size_t guarded;              /* windows that the guard measured, counted per plan and for the float model */
    calm_memory_plan memory;
    calm_memory_held held;
    size_t resident;             /* peak resident bytes of the process */
    char result[64], verdict[512], log[4096];
} outcome;

/* Makes a model of 2 blocks with the bundled tokenizer in a new directory, and a recipe of 4 windows of 32 tokens for
 * it. `spec` NULL: tiny_default with that tokenizer's vocabulary.  Limits the test itself to one thread. */
play play_new(const tiny_model *spec, const char *scheme, const char *algorithms);

/* Sets the recipe's schemes (NULL: no change) and algorithms, as lists. */
void play_pool(play *run, const char *schemes, const char *algorithms);

/* Returns the path of `name` in the run's directory. */
const char *play_path(const play *run, const char *name);

/* Runs in a child process and waits for it. */
outcome play_run(const play *run, fault wanted);

/* Runs in a child process; the run must succeed. */
outcome play_must_run(const play *run);

/* Returns the same run with another output and store, named after `name`. */
play play_elsewhere(const play *run, const char *name);

/* Starts the run in a child process and returns its process id; `said` is memory shared with the child. */
pid_t play_start(const play *run, fault wanted, outcome **said);
outcome play_wait(pid_t child, outcome *said);

/* Runs in a child process with `stages` (user is NULL) instead of choice, guard and export (calm_run_stages).  The
 * run must succeed; otherwise its message is printed. */
void play_stages(const play *run, calm_stages_fn *stages);

/* Returns "name sha256" of every file of a directory, sorted; NULL if there is no directory. */
const char *play_digest(const char *dir);

/* Multiplies a bfloat16 tensor of the model by 2^exponent. */
void play_scale_tensor(const play *run, const char *tensor, int exponent);

/* Returns the names in the test's directory that contain `part`, joined by spaces. */
const char *play_list(const play *run, const char *part);

/* Runs one SQL statement on the store.  Returns the first column of the first row of a SELECT as a number, else 0. */
int64_t play_sql(const play *run, const char *statement);

/* Returns the first column of the rows of a SELECT, one row per line. */
const char *play_text(const play *run, const char *statement);

#endif
