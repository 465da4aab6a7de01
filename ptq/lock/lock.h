/* Locks: digests of all inputs and outputs of a run, to repeat the run and compare; and checks of a recipe file without
 * a run. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/recipe/resolve.h"
#include "ptq/recipe/spec.h"
#include "ptq/run/run.h"
#include "ptq/state/result.h"

#define CALM_LOCK_VERSION 1

/* Size limit of a lock file, bytes. */
#define CALM_LOCK_BYTES ((size_t)256 << 20)

/* Returns the path for the lock of a run, in ctx->out: FILE.lock.json next to a recipe FILE.json that was given by its
 * path; otherwise, and for the calm_recipe.json of a checkpoint, where no file is added, OUTPUT.lock.json next to the
 * output directory. */
calm_status calm_lock_path(calm_ctx *ctx, const char *recipe_file, const char *output, const char **path);

/* Computes "inputs" before a run: files and tensors of the model, texts.  tensors: the tensors of a model directory
 * that the run has open; NULL: the directory is opened.  The caller frees *out. */
calm_status calm_lock_inputs(calm_ctx *ctx, const calm_recipe *recipe, const calm_safetensors *tensors,
                             calm_json **out);

/* Computes "outputs": files and tensors of a directory.  files [n]: from calm_outputs_digests of the run; NULL: the
 * files are read.  The caller frees *out.  CALM_ENOTFOUND: there is no such directory. */
calm_status calm_lock_outputs(calm_ctx *ctx, const char *dir, const calm_written_file *files, size_t n,
                              calm_json **out);

/* Builds the lock of a finished run with recipe document `document`; takes ownership of `inputs` from calm_lock_inputs.
 * The caller frees *out. */
calm_status calm_lock_new(calm_ctx *ctx, const calm_result *result, const calm_json *document, calm_json *inputs,
                          calm_json **out);

/* Writes a lock under a temporary name next to `path`, and renames it. */
calm_status calm_lock_write(calm_ctx *ctx, const calm_json *lock, const char *path);

/* Reads a lock and checks its parts; the caller frees *out.  CALM_EFORMAT: not JSON, a lock of another program, a
 * missing part, or an invalid digest.  CALM_EUNSUPPORTED: a lock of a newer calm. */
calm_status calm_lock_read(calm_ctx *ctx, const char *path, calm_json **out);

/* Returns the kernel family in a lock (borrowed); NULL: it has none. */
const char *calm_lock_kernels(const calm_json *lock);

/* Replaces the spec's `calibration.dtype` auto by the dtype in the lock (from calm_lock_read). */
void calm_lock_apply_dtype(const calm_json *lock, calm_recipe_spec *spec);

typedef struct calm_differences {
    calm_difference *items;           /* [n] in ctx->out                                 */
    size_t n, room;
    size_t checked;                   /* number of compared values */
} calm_differences;

/* Compares member `part` ("inputs", "outputs", "plan", "result", "environment") of a lock with `found`, and appends the
 * differences to *out in the order of names.  Members that `found` lacks, such as the windows of inputs before a run,
 * are not compared. */
calm_status calm_lock_compare(calm_ctx *ctx, const calm_json *lock, const char *part, const calm_json *found,
                              calm_differences *out);

/* Returns the first member in which the recipe documents differ, in ctx->out; NULL: they are equal. */
calm_status calm_lock_recipe_differs(calm_ctx *ctx, const calm_json *lock, const calm_json *document, const char **key);

/* ---- a run of a recipe with its lock (lock_run.c) ---- */

typedef struct calm_locked_run {
    calm_run *run;                   /* NULL: there was no run, because inputs differ */
    calm_json *lock;                 /* the run's lock; NULL: several budgets, which have none */
    calm_differences differences;    /* differences from the expected lock */
} calm_locked_run;

/* _do runs the recipe of a spec and builds the run's lock; call _close even after a failure.
 *   expected   a lock: inputs are compared before the run, which is skipped if they differ; outputs are compared after
 *              the run.  NULL: nothing is compared
 * Fails as calm_lock_inputs, calm_run_quantize and calm_lock_new do. */
calm_status calm_locked_run_start(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe,
                                  const calm_run_options *options, const calm_json *expected, calm_locked_run *out);
void calm_locked_run_close(calm_locked_run *run);

/* ---- repeat a run and compare: `calm verify` (verify.c) ---- */

typedef struct calm_verify_options {
    const char *output;                     /* compare this directory without a run; NULL: run again */
    const char *work;                       /* folder in which the run's folder is created, and removed again */
    const char *model, *store, *memory;     /* override the recipe; NULL: the recipe's model, no store, the recipe's */
    const char *command;                    /* the command line as typed, for the store */
    calm_events events;
} calm_verify_options;

typedef struct calm_verified {
    bool ran;                               /* false: an output was compared, or inputs differ */
    size_t n_cached;                        /* candidates found in the store */
    calm_differences differences;
    calm_differences environment;           /* of program and machine from the lock's; no fault */
} calm_verified;

/* Compares with an open lock, which was read from `path`; differences are no failure.  CALM_EFORMAT: its recipe writes
 * no checkpoint.  Fails as resolving and running the recipe do. */
calm_status calm_lock_verify(calm_ctx *ctx, const char *path, const calm_json *lock, const calm_verify_options *options,
                             calm_verified *out);

/* ---- check a recipe file: `calm recipe check` (check_recipe.c) ---- */

/* Lists the faults of a recipe file: of its structure; if there are none, those of calm_recipe_check; if there are none
 * and the model is on this machine, blocks, pins, target, budgets and gates that do not fit its layout.  Reads no
 * weights.  CALM_ENOMEM; CALM_EIO: the file cannot be read; CALM_EFORMAT: it is not JSON. */
calm_status calm_recipe_file_faults(calm_ctx *ctx, const char *path, calm_faults *faults);
