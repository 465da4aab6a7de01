/* Verifies a lock by comparing an output, or by running again. */
#include "ptq/lock/lock.h"

#include <errno.h>
#include <stdlib.h>

#include "ptq/base/file.h"
#include "ptq/recipe/resolve.h"
#include "ptq/state/environment.h"

/* Compares the environment, which may explain other differences; it is no mismatch by itself. */
static calm_status compare_environment(calm_ctx *ctx, const calm_json *lock, calm_differences *out)
{
    CALM_SCOPED_JSON(found);
    CALM_TRY(calm_environment_json(ctx, &found));
    return calm_lock_compare(ctx, lock, "environment", found, out);
}

/* Compares existing files without a run. */
static calm_status verify_output(calm_ctx *ctx, const calm_json *lock, const char *dir, calm_verified *out)
{
    CALM_SCOPED_JSON(found);
    CALM_TRY(calm_lock_outputs(ctx, dir, NULL, 0, &found));
    return calm_lock_compare(ctx, lock, "outputs", found, &out->differences);
}

/* Builds the spec of the lock's recipe, with this run's folder. */
static calm_status make_spec(calm_ctx *ctx, const char *path, const calm_verify_options *o, const calm_json *lock,
                             const char *folder, calm_recipe_spec *out)
{
    char *output, *store;
    CALM_TRY(calm_spec_init(ctx, out));
    CALM_TRY(calm_spec_read(ctx, calm_json_get(lock, "recipe"), path, out));
    CALM_TRY(calm_path_join(ctx, ctx->out, &output, folder, "out"));
    CALM_TRY(calm_path_join(ctx, ctx->out, &store, folder, "calm.db"));
    out->output = output;
    out->store = o->store ? o->store : store;
    out->model = o->model ? o->model : out->model;
    out->memory = o->memory;
    return CALM_OK;
}

/* Runs again, in `folder`, and compares all parts of the lock. */
static calm_status run_in(calm_ctx *ctx, const char *path, const calm_verify_options *o, const calm_json *lock,
                          const char *folder, calm_verified *out)
{
    const calm_run_options how = {.command = o->command, .events = o->events};
    CALM_SCOPED(calm_locked_run, calm_locked_run_close) run = {0};
    calm_recipe_spec spec;
    calm_recipe recipe;
    CALM_TRY(make_spec(ctx, path, o, lock, folder, &spec));
    CALM_TRY(calm_recipe_resolve(ctx, &spec, &how.events, &recipe));
    CALM_TRY(calm_locked_run_start(ctx, &spec, &recipe, &how, lock, &run));
    if (run.run && !run.lock)
        return calm_fail(ctx, CALM_EFORMAT, "%s: its recipe writes no checkpoint", path);
    out->ran = run.run != NULL;
    out->n_cached = run.run ? calm_run_result(run.run)->n_cached : 0;
    out->differences = run.differences;
    return CALM_OK;
}

/* Runs in a new folder, so that nothing of an earlier run is verified by mistake. */
static calm_status verify_run(calm_ctx *ctx, const char *path, const calm_verify_options *o, const calm_json *lock,
                              calm_verified *out)
{
    char *folder;
    CALM_TRY(calm_make_directories(ctx, o->work));
    CALM_TRY(calm_path_join(ctx, ctx->out, &folder, o->work, "verify-XXXXXX"));
    if (!mkdtemp(folder))
        return calm_fail_errno(ctx, errno, "%s: cannot create", folder);
    const calm_status status = run_in(ctx, path, o, lock, folder, out);
    calm_ctx quiet = *ctx;    /* the first failure is reported */
    calm_ctx_clear_failure(&quiet);
    calm_remove_tree(&quiet, folder);
    return status;
}

calm_status calm_lock_verify(calm_ctx *ctx, const char *path, const calm_json *lock, const calm_verify_options *options,
                             calm_verified *out)
{
    *out = (calm_verified){0};
    if (options->output)    /* nothing is computed, so the environment explains no difference */
        return verify_output(ctx, lock, options->output, out);
    CALM_TRY(verify_run(ctx, path, options, lock, out));
    return compare_environment(ctx, lock, &out->environment);
}
