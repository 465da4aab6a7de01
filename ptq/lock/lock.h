/* Locks: digests of all inputs and outputs of a run, to repeat the run and compare.
 *
 * Also: checks of a recipe file without a run. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/recipe/resolve.h"
#include "ptq/recipe/spec.h"
#include "ptq/run/run.h"
#include "ptq/state/result.h"

#define CALM_LOCK_VERSION 1

/* Larger files are no locks. */
#define CALM_LOCK_BYTES ((size_t)256 << 20)

/* Where the lock of a run belongs: FILE.lock.json next to a recipe FILE.json that was given by its path, else (and for
 * the calm_recipe.json of a checkpoint, where nothing is added) OUTPUT.lock.json next to the output directory.  In
 * ctx->out. */
calm_status calm_lock_path(calm_ctx *ctx, const char *recipe_file, const char *output, const char **path);

/* "inputs" as they are before a run: files and tensors of the model, texts.  `tensors`: those of a model directory, as
 * a run read them; NULL: they are opened.  Freed by the caller. */
calm_status calm_lock_inputs(calm_ctx *ctx, const calm_recipe *recipe, const calm_safetensors *tensors,
                             calm_json **out);

/* "outputs": files and tensors of a directory.  files[n]: those of calm_outputs_digests, as a run took them; NULL: they
 * are read.  Freed by the caller.  CALM_ENOTFOUND: there is none. */
calm_status calm_lock_outputs(calm_ctx *ctx, const char *dir, const calm_written_file *files, size_t n,
                              calm_json **out);

/* The lock of a finished run whose recipe document is `document`; `inputs` of calm_lock_inputs is taken over.  Freed by
 * the caller. */
calm_status calm_lock_new(calm_ctx *ctx, const calm_result *result, const calm_json *document, calm_json *inputs,
                          calm_json **out);

/* Write under a temporary name next to it, and rename. */
calm_status calm_lock_write(calm_ctx *ctx, const calm_json *lock, const char *path);

/* Read and check its parts.  Freed by the caller.  CALM_EFORMAT: not JSON, a lock of another program, a part that is
 * missing or no digest.  CALM_EUNSUPPORTED: of a newer calm. */
calm_status calm_lock_read(calm_ctx *ctx, const char *path, calm_json **out);

/* The kernel family that a lock was written with; borrowed; NULL: it does not say. */
const char *calm_lock_kernels(const calm_json *lock);

/* Operands of products that the spec leaves to the CPU: those of the lock, which calm_lock_read gave. */
void calm_lock_settle(const calm_json *lock, calm_recipe_spec *spec);

typedef struct calm_differences {
    calm_difference *items;           /* [n] in ctx->out                                 */
    size_t n, room;
    size_t checked;                   /* things that were compared                       */
} calm_differences;

/* Compare member `part` ("inputs", "outputs", "plan", "result", "environment") of a lock with what was found there;
 * what differs is added to *out in the order of names.  Members that are absent from `found`, such as the windows of
 * inputs before a run, are not compared. */
calm_status calm_lock_compare(calm_ctx *ctx, const calm_json *lock, const char *part, const calm_json *found,
                              calm_differences *out);

/* The first member of the recipe documents that differs; NULL: none does.  In ctx->out. */
calm_status calm_lock_recipe_differs(calm_ctx *ctx, const calm_json *lock, const calm_json *document, const char **key);

/* ---- a run of a recipe with its lock (lock_run.c) ---- */

typedef struct calm_locked_run {
    calm_run *run;                   /* NULL: inputs differ, so it did not                    */
    calm_json *lock;                 /* of the run; NULL: none is written (several budgets)   */
    calm_differences differences;    /* from the expected lock                                */
} calm_locked_run;

/* Run the recipe of a spec and make its lock.
 *   expected   a lock: inputs are compared before the run, which is skipped when they differ; outputs are compared
 *              after it.  NULL: nothing is compared
 * Close also after a failure.  Fails as calm_lock_inputs, calm_run_quantize and calm_lock_new do. */
calm_status calm_locked_run_do(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe,
                               const calm_run_options *options, const calm_json *expected, calm_locked_run *out);
void calm_locked_run_close(calm_locked_run *run);

/* ---- repeat a run and compare: `calm verify` (verify.c) ---- */

typedef struct calm_verify_options {
    const char *output;                     /* compare this directory, compute nothing; NULL: run again              */
    const char *work;                       /* where the folder of a run is made, and removed again                  */
    const char *model, *store, *memory;     /* instead of what the recipe says; NULL: model as it says, no store     */
    const char *command;                    /* as typed, for the store                                               */
    calm_events events;
} calm_verify_options;

typedef struct calm_verified {
    bool ran;                               /* false: an output was compared, or inputs differ                       */
    size_t n_cached;                        /* candidates that were taken from the store                             */
    calm_differences differences;
    calm_differences environment;           /* of a run: this program and machine against the lock's, no fault      */
} calm_verified;

/* Compare with an open lock, which was read from `path`.  What differs is no failure here.  CALM_EFORMAT: its recipe
 * writes no checkpoint.  Fails as resolving and running the recipe do. */
calm_status calm_lock_verify(calm_ctx *ctx, const char *path, const calm_json *lock, const calm_verify_options *options,
                             calm_verified *out);

/* ---- check a recipe file: `calm recipe check` (check_recipe.c) ---- */

/* List the faults of a recipe file: of its structure; without such, those of calm_recipe_check; without such, and where
 * the model is on this machine, blocks, pins, target, budgets and gates that do not suit its layout.  No weight is
 * read.  CALM_ENOMEM; CALM_EIO: the file cannot be read; CALM_EFORMAT: it is not JSON. */
calm_status calm_recipe_file_faults(calm_ctx *ctx, const char *path, calm_faults *faults);
