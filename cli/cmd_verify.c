/* calm verify: repeats the run of a lock, or reads its output, and compares digests. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/lock_report.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verify_signature.h"
#include "ptq/base/file.h"
#include "ptq/lock/lock.h"

typedef struct options {
    calm_common common;
    const char *output_only, *store, *model, *memory, *work, *signature, *key, *certificates;
    bool json;
} options;

static const calm_option table[] = {
    CALM_OPT("output-only", output_only, STRING, "compare this directory with the lock's outputs, without a run",
             .metavar = "DIR"),
    CALM_OPT("store", store, STRING, "take candidates from this store (default: an empty store, so that all is "
             "computed)", .metavar = "FILE", .key = 's'),
    CALM_OPT("model", model, STRING, "the model's directory, if it is not where the recipe says; its digests must "
             "be the lock's", .metavar = "MODEL", .key = 'm'),
    CALM_OPT("memory", memory, STRING, "limit of resident memory: 6GB, 1500MiB (default: 70 % of what is free)",
             .metavar = "SIZE"),
    CALM_OPT("work", work, STRING, "folder in which the repeated run gets a temporary folder",
             .fallback = "calm-out", .metavar = "DIR"),
    CALM_OPT("signature", signature, STRING, "check a model folder with this signature (calm sign, model_signing) "
             "instead of a lock", .metavar = "FILE"),
    CALM_OPT("key", key, STRING, "PEM file of the signer's public key, for --signature", .metavar = "FILE"),
    CALM_OPT("certificates", certificates, STRING, "PEM file of trusted root certificates, for --signature",
             .metavar = "FILE"),
    CALM_OPT("json", json, BOOL, "print {lock, mode, equal, checked, differences, environment}"),
    CALM_OPT_COMMON,
    {0},
};

/* ---- what was found ---- */

/* Prints the outcome.  CALM_EMISMATCH: something differs. */
static calm_status report(calm_ctx *ctx, const char *path, const options *o, const calm_verified *verified)
{
    const calm_differences *found = &verified->differences, *environment = &verified->environment;
    if (verified->n_cached && !o->common.quiet)
        fprintf(stderr, "calm: %zu candidates were taken from %s, not computed again\n", verified->n_cached, o->store);
    if (o->json)
        CALM_TRY(calm_print_json(ctx, CALM_OBJECT(
            CALM_KV("lock", path), CALM_KV("mode", o->output_only ? "output" : "run"),
            CALM_KV("equal", (bool)(found->n == 0)), CALM_KV("checked", found->checked),
            CALM_KV("differences", calm_lock_report_json(ctx, found)),
            CALM_KV("environment", calm_lock_report_json(ctx, environment)))));
    else if (found->n)
        CALM_TRY(calm_lock_print(ctx, found, stdout));
    for (size_t i = 0; i < environment->n && found->n && !o->common.quiet && !o->json; i++)
        CALM_TRY(calm_print_line(ctx, "here %s is %s, the lock was written with %s", environment->items[i].name,
                                 environment->items[i].found ? environment->items[i].found : "unknown",
                                 environment->items[i].expected ? environment->items[i].expected : "unknown"));
    if (found->n)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu of %zu things differ from the lock%s", path, found->n,
                         found->checked,
                         verified->ran || o->output_only ? "" : "; inputs differ, so nothing was computed");
    return o->json ? CALM_OK : calm_print_line(ctx, "%s: %zu files, tensors, choices and figures are as the lock says",
                                               path, found->checked);
}

static calm_status verify(calm_ctx *ctx, const char *path, const options *o, const calm_json *lock,
                          calm_verified *out)
{
    calm_verify_options how = {.output = o->output_only, .work = o->work, .model = o->model, .store = o->store,
                               .memory = o->memory, .command = o->common.command};
    calm_progress progress;
    if (!how.output)
        CALM_TRY(calm_kernels_pin(ctx, calm_lock_kernels(lock)));
    how.events = calm_progress_begin(ctx, &progress, o->common.quiet);
    if (!how.output)
        calm_progress_add_run(&progress);
    calm_lock_verify(ctx, path, lock, &how, out);
    return calm_progress_end(ctx, &progress);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const char *path = o->common.args.of[0];
    calm_verified verified;
    CALM_SCOPED_JSON(lock);
    if (o->signature || o->key || o->certificates)
        return calm_verify_signature(ctx, path, &(calm_signature_options){
            .signature = o->signature, .key = o->key, .certificates = o->certificates, .json = o->json,
            .quiet = o->common.quiet});
    if (calm_is_directory(path))
        return calm_fail(ctx, CALM_EARG,
                         "%s: a directory, not a lock; try: calm verify --output-only %s %s.lock.json; a signature is "
                         "checked by --signature FILE with --key or --certificates", path, path, path);
    CALM_TRY(calm_lock_read(ctx, path, &lock));
    CALM_TRY(verify(ctx, path, o, lock, &verified));
    return report(ctx, path, o, &verified);
}

const calm_command calm_cmd_verify = {
    .name = "verify",
    .summary = "repeat a run from its lock and compare every byte",
    .arguments = "LOCK|DIR",
    .description =
        "Repeats the run of a lock (FILE.lock.json, written by calm quantize) with the same kernels, and compares "
        "choices, figures and the digests of every tensor and file.  It compares inputs first.  If something "
        "differs, it prints a table and the exit status is 3.",
    .examples = "  calm verify qwen-w4.lock.json\n"
                "  calm verify --output-only calm-out/qwen-w4a16_g128 qwen-w4.lock.json    (seconds: nothing is "
                "computed)\n"
                "  calm verify --signature out/model.sig --key key.pub out    (as `model_signing verify key` does)\n"
                "  calm verify --store calm-out/calm.db qwen-w4.lock.json    (trust the candidates of "
                "the store)\n",
    .min_args = 1,
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
