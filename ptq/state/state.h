/* The state of a run: its inputs, its result so far, and data that stages pass to each other.
 *
 * Only the rooms of a run and their tests include this header.  Data of one stage only are in a struct of its room, to
 * which calm_run points. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/cluster/cluster.h"
#include "ptq/plan/solve.h"
#include "ptq/state/inputs.h"
#include "ptq/state/memory_plan.h"
#include "ptq/state/outer_rows.h"

/* Calls from the candidate search and from measurements into the guard, if it runs together with the blocks.  The
 * guard's folder is above theirs; it registers its functions here (calm_guard_hooks_set in ptq/choose/choose.h). */
typedef struct calm_guard_hooks {
    /* Called before the blocks run; missing: candidates must be computed.  CALM_ENOSPC, CALM_EIO: the rows' file. */
    calm_status (*begin)(calm_ctx *ctx, calm_run *run, bool missing);
    /* Called when all candidates of a block are computed.  Fails likewise. */
    calm_status (*block_done)(calm_ctx *ctx, calm_run *run, size_t block);
    /* Returns true if hidden states behind the last block are stored, of the float model (key NULL) or of a plan; then
     * the subject reads them instead of running the blocks. */
    bool (*rows)(const calm_run *run, const char *key, const calm_windows *windows, calm_subject *subject);
} calm_guard_hooks;

/* A run.  All memory is in the context's arenas or is released by calm_run_close. */
struct calm_run {
    calm_inputs in;
    calm_result result;
    calm_events events;
    const char *command;                       /* the command line as typed */
    calm_arena *arena;                         /* lives as long as the run */
    calm_memory *account;                      /* memory account whose limit the run sets; NULL: none */

    /* Several ranks */
    calm_cluster *cluster;                     /* NULL: one rank                                       */
    bool several;                              /* memory is planned for several ranks                  */
    struct calm_rank_state *ranks;              /* ptq/ranks                                            */
    struct calm_learn_share *learn_share;      /* ptq/learn: work of a rank other than 0; NULL: none */

    /* Keys of the store, and ids of its rows */
    char key[CALM_SHA256_HEX], model_key[CALM_SHA256_HEX], calib_key[CALM_SHA256_HEX];
    int64_t *job_ids;                          /* [n_jobs] store ids in the layout's order */
    int64_t *text_ids;                         /* [texts] calibration ids of several texts; NULL: one text */
    bool resumed;                              /* the run continues an earlier run with this key */

    /* Memory */
    calm_memory_plan memory;                   /* memory plan; its knobs change no result */
    calm_memory_held held;                     /* memory that arenas held */
    const char *spill_dir;                     /* folder of the file of hidden states; NULL: they are in memory */

    /* Candidates */
    calm_rope rope;
    float *const *row_factors;                 /* [n_blocks * CALM_N_JOBS] of [calibration rows] while candidates are
                                                * computed (calm_run_weigh_rows); NULL: all factors are 1 */
    const calm_algorithm *fallback;            /* for experts with too few tokens */
    const calm_algorithm *outer;               /* for embedding and head */
    bool surveyed, computed;                   /* the store was searched for candidates; all are computed */
    calm_pool pool;                            /* pool of the recipe's selection, as far as it is known */
    const calm_pool_file *pool_file;           /* bytes of each job in the file; NULL: no size limit */
    calm_scope scope;                          /* entries that pins and target leave to its units */
    size_t *choice;                            /* [n_jobs] pool entry of each job */
    struct calm_choosing *choosing;            /* ptq/choose                                           */
    struct calm_guard_rows *guard_rows;        /* ptq/choose; NULL: the guard runs after the blocks */
    const calm_guard_hooks *guard;             /* NULL: no guard runs together with the blocks */

    /* Results */
    const calm_model *written;                 /* the written model, read back; NULL: not open */
    calm_windows eval;                         /* windows of the evaluation's text */
};

/* ---- recipe and keys (run_recipe.c, store_rows.c) ---- */

/* Writes the recipe as the store has it; all: with the command line and the recipe file, which are not in the key. */
calm_status calm_run_recipe_text(calm_ctx *ctx, const calm_recipe *recipe, bool all, calm_text *out);

/* Stores the recipe with the decisions made so far in the run's row; `calm assemble` repeats them. */
calm_status calm_run_keep_recipe(calm_ctx *ctx, const calm_run *run);

/* Stores the end of a run: status "finished" with the result, or "failed" with the failure of ctx. */
calm_status calm_run_end(calm_ctx *ctx, const calm_run *run, const char *status);

/* Stores the rows of model, calibration, blocks and jobs, and computes the key of every candidate. */
calm_status calm_run_register(calm_ctx *ctx, calm_run *run);

/* Returns the name of a hook point of a block (< 0: outside the blocks) or of one of its experts, in ctx->out. */
calm_status calm_run_hook_name(calm_ctx *ctx, const calm_run *run, long block, long expert, calm_hook hook, char **out);

/* Computes run->calib_key, the digest of the calibration windows.  With a quantized prefix it includes all that decides
 * the choice in earlier blocks, so that candidates of different prefixes have different keys. */
calm_status calm_run_calibration_key(calm_ctx *ctx, calm_run *run);

/* Stores bytes as a blob, named by their digest. */
calm_status calm_run_put_blob(calm_ctx *ctx, const calm_run *run, const void *bytes, size_t n_bytes,
                              char digest[CALM_SHA256_HEX]);

/* Copies a row of the store to a candidate.  The caller checks whether the row is complete. */
void calm_run_adopt(calm_candidate *candidate, const calm_store_candidate *row);

/* Returns the crest factor of a job's input: median over tokens of max|x| / rms(x).  NaN: it is not in the store. */
double calm_run_crest(calm_ctx *ctx, const calm_run *run, size_t job);

/* The most models or plans that are in memory at once while they are measured. */
#define CALM_SUBJECTS_AT_ONCE ((size_t)12)
