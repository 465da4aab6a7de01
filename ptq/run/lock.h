/* Lock: digests of the inputs and outputs of a run, so that the run can be repeated elsewhere and compared.
 *
 *   {"calm_lock": 1,
 *    "recipe": {...},          the recipe document (ptq/recipe/shipped.h): what calm verify runs
 *    "resolved": {...},        the same with every value filled in; not compared
 *    "environment": {...},     calm, commit, kernels, ... (ptq/run/environment.h); kernels are pinned by calm verify
 *    "inputs": {"files": {NAME: SHA-256}, "tensors": {...}, "texts": {...}, "windows": {...}},
 *    "plan": {JOB: "ALGORITHM SCHEME"},
 *    "outputs": {"files": {...}, "tensors": {...}},
 *    "result": {...}}          figures, which are part of what must come out again
 *
 * A tensor's digest is over its bytes alone; names, types and shapes are in the file that holds it, which has
 * its own. */
#ifndef CALM_RUN_LOCK_H
#define CALM_RUN_LOCK_H

#include "ptq/run/result.h"
#include "ptq/io/json.h"

#define CALM_LOCK_VERSION 1

/* Larger files are no locks. */
#define CALM_LOCK_BYTES ((size_t)256 << 20)

/* Where the lock of a run belongs: FILE.lock.json beside a recipe FILE.json that was given by its path, else (and for
 * the calm_recipe.json of a checkpoint, where nothing is added) OUTPUT.lock.json beside the output directory.  In
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

/* Write under a temporary name beside it, and rename. */
calm_status calm_lock_write(calm_ctx *ctx, const calm_json *lock, const char *path);

/* Read and check its parts.  Freed by the caller.  CALM_EFORMAT: not JSON, a lock of another program, a part that is
 * missing or no digest.  CALM_EUNSUPPORTED: of a newer calm. */
calm_status calm_lock_read(calm_ctx *ctx, const char *path, calm_json **out);

/* The kernel family that a lock was written with; borrowed; NULL: it does not say. */
const char *calm_lock_kernels(const calm_json *lock);

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

#endif
