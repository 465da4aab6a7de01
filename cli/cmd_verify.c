/* calm verify: repeat the run of a lock, or read its output, and compare the digests. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/lock_report.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "ptq/base/file.h"
#include "ptq/recipe/resolve.h"
#include "ptq/run/environment.h"
#include "ptq/run/lock_run.h"

typedef struct options {
    calm_common common;
    const char *output_only, *store, *model, *memory, *work;
    bool json;
} options;

static const calm_option table[] = {
    CALM_OPT("output-only", output_only, STRING, "compute nothing: compare this directory with the lock's outputs",
             .metavar = "DIR"),
    CALM_OPT("store", store, STRING, "take candidates that are in this store from there (default: an empty one, so "
             "that all is computed)", .metavar = "FILE", .key = 's'),
    CALM_OPT("model", model, STRING, "where the model is, when not where the recipe says; its digests must be the "
             "lock's all the same", .metavar = "MODEL", .key = 'm'),
    CALM_OPT("memory", memory, STRING, "most memory this process may have resident: 6GB, 1500MiB (default: 70 % of "
             "what is free)", .metavar = "SIZE"),
    CALM_OPT("work", work, STRING, "where a folder for the repeated run is made and removed again",
             .fallback = "calm-out", .metavar = "DIR"),
    CALM_OPT("json", json, BOOL, "print {lock, mode, equal, checked, differences, environment}"),
    CALM_OPT_COMMON,
    {0},
};

/* ---- what was found ---- */

/* Facts of this program and machine that differ from the lock's.  They explain a mismatch and are none themselves. */
static calm_status compare_environment(calm_ctx *ctx, const calm_json *lock, calm_differences *out)
{
    calm_fact facts[CALM_N_FACTS];
    calm_json *root = calm_json_new_object(), *environment = calm_json_new_object();
    calm_status status = calm_environment(ctx, facts);
    for (size_t i = 0; i < CALM_N_FACTS && status == CALM_OK; i++)
        calm_json_set_string(environment, facts[i].name, facts[i].value);
    calm_json_set(root, "environment", environment);
    if (status == CALM_OK)
        status = calm_lock_compare(ctx, lock, root, "environment", out);
    calm_json_free(root);
    return status;
}

static calm_status print_json(calm_ctx *ctx, const char *path, const options *o, const calm_differences *found,
                              const calm_differences *environment)
{
    return calm_print_json(
        ctx, CALM_OBJECT(CALM_KV("lock", path), CALM_KV("mode", o->output_only ? "output" : "run"),
                         CALM_KV("equal", (bool)(found->n == 0)), CALM_KV("checked", found->checked),
                         CALM_KV("differences", calm_lock_report_json(ctx, found)),
                         CALM_KV("environment", calm_lock_report_json(ctx, environment))));
}

/* Print the outcome.  CALM_EMISMATCH: something differs. */
static calm_status report(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock, bool ran,
                          const calm_differences *found)
{
    calm_differences environment = {0};
    CALM_TRY(compare_environment(ctx, lock, &environment));
    if (o->json)
        CALM_TRY(print_json(ctx, path, o, found, &environment));
    else if (found->n)
        CALM_TRY(calm_lock_print(ctx, found, stdout));
    for (size_t i = 0; i < environment.n && found->n && !o->common.quiet && !o->json; i++)
        printf("here %s is %s, the lock was written with %s\n", environment.items[i].name,
               environment.items[i].found ? environment.items[i].found : "unknown",
               environment.items[i].expected ? environment.items[i].expected : "unknown");
    if (found->n)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu of %zu things are not as the lock says%s", path, found->n,
                         found->checked, ran || o->output_only ? "" : "; inputs differ, so nothing was computed");
    if (!o->json)
        printf("%s: %zu files, tensors, choices and figures are as the lock says\n", path, found->checked);
    return CALM_OK;
}

/* ---- the two ways ---- */

static calm_status verify_output(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock)
{
    calm_differences differences = {0};
    calm_json *outputs, *found = calm_json_new_object();
    calm_status status = calm_lock_outputs(ctx, o->output_only, &outputs);
    if (status == CALM_OK) {
        calm_json_set(found, "outputs", outputs);
        status = calm_lock_compare(ctx, lock, found, "outputs", &differences);
    }
    calm_json_free(found);
    return status == CALM_OK ? report(ctx, path, o, lock, false, &differences) : status;
}

/* The lock's recipe, with output and store inside `folder`. */
static calm_status make_spec(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock,
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

/* Repeat the run; it ends early when its inputs differ from the lock's. */
static calm_status repeat(calm_ctx *ctx, const options *o, const calm_recipe_spec *spec, const calm_json *lock,
                          calm_locked_run *run)
{
    calm_progress progress;
    calm_recipe recipe;
    const calm_run_options how = {.command = o->common.command,
                                  .events = calm_progress_begin(ctx, &progress, o->common.quiet)};
    calm_status status = calm_recipe_resolve(ctx, spec, &how.events, &recipe);
    calm_progress_add_run(&progress);
    if (status == CALM_OK)
        status = calm_locked_run_do(ctx, spec, &recipe, &how, lock, run);
    calm_progress_end(ctx, &progress);
    return status;
}

static calm_status report_run(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock,
                              const calm_locked_run *run)
{
    if (run->run && !run->lock)
        return calm_fail(ctx, CALM_EFORMAT, "%s: its recipe writes no checkpoint", path);
    if (run->run && calm_run_result(run->run)->n_cached && !o->common.quiet)
        fprintf(stderr, "calm: %zu candidates were taken from %s, not computed again\n",
                calm_run_result(run->run)->n_cached, o->store);
    return report(ctx, path, o, lock, run->run != NULL, &run->differences);
}

static calm_status verify_run_in(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock,
                                 const char *folder)
{
    calm_locked_run run = {0};
    calm_recipe_spec spec;
    CALM_TRY(make_spec(ctx, path, o, lock, folder, &spec));
    calm_status status = repeat(ctx, o, &spec, lock, &run);
    if (status == CALM_OK)
        status = report_run(ctx, path, o, lock, &run);
    calm_locked_run_close(ctx, &run);
    return status;
}

static calm_status verify_run(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock)
{
    char *folder;
    CALM_TRY(calm_kernels_pin(ctx, calm_lock_kernels(lock)));
    CALM_TRY(calm_make_directories(ctx, o->work));
    CALM_TRY(calm_path_join(ctx, ctx->out, &folder, o->work, "verify-XXXXXX"));
    if (!mkdtemp(folder))
        return calm_fail_errno(ctx, errno, "%s: cannot create", folder);
    const calm_status status = verify_run_in(ctx, path, o, lock, folder);
    calm_ctx quiet = *ctx;    /* the first failure is the one to report */
    calm_ctx_forgive(&quiet);
    calm_remove_tree(&quiet, folder);
    return status;
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const char *path = o->common.args.of[0];
    calm_json *lock;
    CALM_TRY(calm_lock_read(ctx, path, &lock));
    const calm_status status = o->output_only ? verify_output(ctx, path, o, lock) : verify_run(ctx, path, o, lock);
    calm_json_free(lock);
    return status;
}

const calm_command calm_cmd_verify = {
    .name = "verify",
    .summary = "repeat a run from its lock and compare every byte",
    .arguments = "LOCK",
    .description =
        "Repeats the run that a lock (FILE.lock.json, which calm quantize writes) stands for, with the kernels it was "
        "made with, and compares choices, figures and the digests of every tensor and file.  Exit status 3 and a "
        "table when something differs; inputs are compared first.",
    .examples = "  calm verify qwen-w4.lock.json\n"
                "  calm verify --output-only calm-out/qwen-w4a16_g128 qwen-w4.lock.json    (seconds: nothing is "
                "computed)\n  calm verify --store calm-out/calm.db qwen-w4.lock.json    (candidates of the store are "
                "trusted)\n",
    .options = table,
    .opts_size = sizeof(options),
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
