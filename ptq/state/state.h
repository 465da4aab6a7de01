/* The state of a run: its inputs, its result so far, and what the stages hand to each other.
 *
 * Only the rooms of a run and their tests include this header.  Each stage keeps its own data in its own struct
 * room, to which calm_run points. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/cluster/cluster.h"
#include "ptq/plan/solve.h"
#include "ptq/state/inputs.h"
#include "ptq/state/memory_plan.h"
#include "ptq/state/outer_rows.h"

/* Calls from the candidate search and from measurements into the guard that runs next to the blocks.  The folder of the
 * guard is above theirs; it registers its functions here (calm_guard_hooks_set in ptq/choose/choose.h). */
typedef struct calm_guard_hooks {
    /* Before the blocks are run; `missing`: candidates have to be computed.  CALM_ENOSPC, CALM_EIO: the rows' file. */
    calm_status (*begin)(calm_ctx *ctx, calm_run *run, bool missing);
    /* Once the candidates of a block are complete.  Fails likewise. */
    calm_status (*block_done)(calm_ctx *ctx, calm_run *run, size_t block);
    /* Hidden rows of the float model (key NULL) or of a plan behind its last block, if they are there: true, and the
     * subject reads them instead of running the blocks. */
    bool (*rows)(const calm_run *run, const char *key, const calm_windows *windows, calm_subject *subject);
} calm_guard_hooks;

/* Everything is in the context's arenas or is released by calm_run_close. */
struct calm_run {
    calm_inputs in;
    calm_result result;
    calm_events events;
    const char *command;                       /* as typed                                             */
    calm_arena *arena;                         /* lives as long as the run                             */
    calm_memory *account;                      /* whose limit the run sets; NULL: none                 */

    /* Several ranks */
    calm_cluster *cluster;                     /* NULL: one rank                                       */
    bool several;                              /* memory is planned for several ranks                  */
    struct calm_rank_state *ranks;              /* ptq/ranks                                            */
    struct calm_learn_share *learn_share;      /* ptq/learn: of another rank than 0; NULL: nothing     */

    /* Keys of the store, and ids of its rows */
    char key[CALM_SHA256_HEX], model_key[CALM_SHA256_HEX], calib_key[CALM_SHA256_HEX];
    int64_t *job_ids;                          /* [n_jobs] numbered as in the layout                   */
    int64_t *text_ids;                         /* [texts] calibrations of each of several; NULL: one   */
    bool resumed;                              /* an earlier run with this key is continued            */

    /* Memory */
    calm_memory_plan memory;                   /* its knobs change no result                           */
    calm_memory_held held;
    const char *spill_dir;                     /* hidden rows are in a file there; NULL: in memory     */

    /* Candidates */
    calm_rope rope;
    float *const *row_factors;                 /* [n_blocks * CALM_N_JOBS] of [calibration rows] while candidates are
                                                * computed (calm_run_weigh_rows); NULL: all are 1              */
    const calm_algorithm *fallback;            /* for experts that saw too few tokens                  */
    const calm_algorithm *outer;               /* for embedding and head                               */
    bool surveyed, computed;                   /* the store was searched for the candidates; all are there */
    calm_pool pool;                            /* of the recipe's selection, as far as it is known     */
    const calm_pool_file *pool_file;           /* bytes of each job in the file; NULL: no size is asked for */
    calm_scope scope;                          /* what pins and target leave to its units              */
    size_t *choice;                            /* [n_jobs] entry of the pool                           */
    struct calm_choosing *choosing;            /* ptq/choose                                           */
    struct calm_guard_rows *guard_rows;        /* ptq/choose; NULL: the guard runs after the blocks    */
    const calm_guard_hooks *guard;             /* NULL: no guard runs next to the blocks               */

    /* Results */
    const calm_model *written;                 /* what was written, read back; NULL: not now           */
    calm_windows eval;                         /* of the evaluation's text                             */
};

/* ---- recipe and keys (run_recipe.c, store_rows.c) ---- */

/* The recipe as the store keeps it.  `all`: with the command line and the recipe file, which are not in the key. */
calm_status calm_run_recipe_text(calm_ctx *ctx, const calm_recipe *recipe, bool all, calm_text *out);

/* Put the recipe with the decisions made so far into the run's row: `calm assemble` repeats those. */
calm_status calm_run_keep_recipe(calm_ctx *ctx, const calm_run *run);

/* Put the end of a run: `status` "finished" or "failed", with the result or the failure of ctx. */
calm_status calm_run_end(calm_ctx *ctx, const calm_run *run, const char *status);

/* Put the rows of model, calibration, blocks and jobs, and compute every candidate's key. */
calm_status calm_run_register(calm_ctx *ctx, calm_run *run);

/* Name of a hook point of a block (< 0: outside the blocks) or one of its experts, in ctx->out. */
calm_status calm_run_hook_name(calm_ctx *ctx, const calm_run *run, long block, long expert, calm_hook hook, char **out);

/* run->calib_key: digest of the calibration windows; with a quantized prefix also of everything that decides what the
 * earlier blocks choose, so that candidates of different prefixes have different keys. */
calm_status calm_run_calibration_key(calm_ctx *ctx, calm_run *run);

/* Put bytes into the store's blobs, under their digest. */
calm_status calm_run_put_blob(calm_ctx *ctx, const calm_run *run, const void *bytes, size_t n_bytes,
                              char digest[CALM_SHA256_HEX]);

/* Copy a row of the store into a candidate.  Whether the row is complete is for the caller to see. */
void calm_run_adopt(calm_candidate *candidate, const calm_store_candidate *row);

/* Crest factor of a job's input: median over tokens of max|x| / rms(x).  NaN: the store does not know it. */
double calm_run_crest(calm_ctx *ctx, const calm_run *run, size_t job);

/* Most subjects that are in memory at once while they are measured. */
#define CALM_SUBJECTS_AT_ONCE ((size_t)12)
