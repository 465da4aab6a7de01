/* calm quantize: reads a float checkpoint and writes a quantized one, with the evidence. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/interrupt.h"
#include "cli/kernels.h"
#include "cli/lock_report.h"
#include "cli/progress.h"
#include "cli/rank_options.h"
#include "cli/report.h"
#include "cli/report_page/report_page.h"
#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/recipe/resolve.h"
#include "ptq/recipe/shipped.h"
#include "ptq/lock/lock.h"

typedef struct options {
    calm_common common;
    calm_recipe_spec spec;
    const char *recipe_file, *lock, *report;
    bool dry_run, locked, json;
} options;

static const calm_option table[] = {
    CALM_OPT("recipe", recipe_file, STRING, "recipe with values for all options not given here: a file, or the name "
             "of a shipped recipe", .metavar = "FILE", .basic = true),
    CALM_OPT("dry-run", dry_run, BOOL, "forecast memory, disk, time and size, without the run",
             .basic = true),
    CALM_OPT("lock", lock, STRING, "file for the digests of inputs and outputs, for calm verify (default: next to "
             "the recipe file, else next to the output)", .metavar = "FILE"),
    CALM_OPT("locked", locked, BOOL, "compare with the lock and do not write it; exit status 3 if something differs"),
    CALM_OPT("json", json, BOOL, "print the report as JSON"),
    CALM_OPT("report", report, STRING, "write the page of calm report to this file after the run; --force replaces "
             "the file", .metavar = "FILE"),
    CALM_OPT_COMMON,
    {0},
};

/* Reads the lock for --locked; the caller frees it, also after a failure.  If the spec leaves the operands' dtype to
 * the CPU, it takes the lock's.  CALM_EMISMATCH: the lock belongs to another recipe. */
static calm_status read_lock(calm_ctx *ctx, calm_recipe_spec *spec, const char *path, calm_json **out)
{
    const char *key = NULL;
    CALM_SCOPED_JSON(document);
    CALM_TRY(calm_lock_read(ctx, path, out));
    calm_lock_apply_dtype(*out, spec);
    CALM_TRY(calm_spec_write(ctx, spec, &document));
    CALM_TRY(calm_lock_recipe_differs(ctx, *out, document, &key));
    if (!key)
        return CALM_OK;
    return calm_fail(ctx, CALM_EMISMATCH, "%s: belongs to another recipe: \"%s\" differs; run without --locked to "
                                          "write it again", path, key);
}

/* Writes the lock; with --locked compares with it instead.  CALM_EMISMATCH: something differs. */
static calm_status settle(calm_ctx *ctx, const options *o, const calm_locked_run *run)
{
    if (!o->locked) {
        if (run->lock && calm_lock_write(ctx, run->lock, o->lock) != CALM_OK)
            calm_run_failed(ctx, run->run);
        return ctx->status;
    }
    if (!run->differences.n)
        return CALM_OK;
    CALM_TRY(calm_lock_print(ctx, &run->differences, stderr));
    return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu of %zu things differ from the lock%s", o->lock,
                     run->differences.n, run->differences.checked,
                     run->run ? "" : "; inputs differ, so nothing was computed");
}

/* Computes the blocks of a rank other than 0; rank 0 writes results and reports. */
static calm_status help_with(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *how)
{
    calm_run *run;
    const calm_status status = calm_run_quantize(ctx, recipe, how, &run);
    calm_run_close(&run);
    return status;
}

static calm_status say_result(calm_ctx *ctx, const options *o, const calm_run *run, const char *lock)
{
    calm_forecast *forecast;
    CALM_TRY(calm_stages_forecast(ctx, run, &forecast));
    return (o->json ? calm_report_json : calm_report_print)(ctx, calm_run_result(run), forecast, lock);
}

static calm_status run_and_report(calm_ctx *ctx, const options *o, const calm_recipe *recipe, const calm_json *expected,
                                  calm_progress *progress)
{
    calm_run_options how = {.command = o->common.command, .events = calm_progress_events(progress)};
    calm_locked_run run;
    CALM_TRY(calm_ranks_join(ctx, &how.cluster));
    if (calm_cluster_rank(how.cluster) != 0)
        return help_with(ctx, recipe, &how);
    calm_progress_add_run(progress);
    calm_interrupt_resumes(recipe->store);
    calm_locked_run_start(ctx, &o->spec, recipe, &how, expected, &run);
    calm_status status = calm_progress_end(ctx, progress);
    const char *lock = o->locked || recipe->n_budgets > 1 ? NULL : o->lock;
    if (status == CALM_OK && run.run)
        status = say_result(ctx, o, run.run, lock);
    if (status == CALM_OK)
        status = settle(ctx, o, &run);
    if (status == CALM_OK && run.run && o->report)
        status = calm_report_page_save(ctx, recipe->store, &calm_run_result(run.run)->run_id, 1, o->report);
    if (status == CALM_OK && run.run)
        status = calm_gates_verdict(ctx, calm_run_result(run.run));
    calm_locked_run_close(&run);
    return status;
}

/* Checks that checkpoint, page and lock replace no input, and that the lock replaces only a lock. */
static calm_status check_outputs(calm_ctx *ctx, const options *o, const calm_recipe *recipe)
{
    calm_words inputs;
    CALM_TRY(calm_recipe_inputs(ctx, recipe, &inputs));
    /* A run may replace the checkpoint that holds its recipe; a name that is no file names a shipped recipe. */
    if (o->recipe_file && calm_path_exists(o->recipe_file) &&
        strcmp(calm_path_name(o->recipe_file), "calm_recipe.json") != 0)
        CALM_TRY(calm_words_add(ctx, &inputs, o->recipe_file));
    if (recipe->output)
        CALM_TRY(calm_output_apart(ctx, recipe->output, &inputs));
    if (o->report)
        CALM_TRY(calm_output_apart(ctx, o->report, &inputs));
    return o->locked ? CALM_OK : calm_output_file(ctx, o->lock, true, "{\n  \"calm_lock\"", &inputs);
}

static calm_status quantize(calm_ctx *ctx, options *o, calm_progress *progress)
{
    const calm_events events = calm_progress_events(progress);
    calm_recipe recipe;
    CALM_SCOPED_JSON(lock);
    if (o->report)
        CALM_TRY(calm_report_page_target(ctx, o->report, o->spec.force, true, NULL));
    CALM_TRY(calm_recipe_resolve(ctx, &o->spec, &events, &recipe));
    if (o->dry_run) {
        calm_progress_end(ctx, progress);    /* a dry run prints the facts of its notes anyway */
        return calm_dry_run(ctx, &o->spec, &recipe, o->json);
    }
    if (!o->lock)
        CALM_TRY(calm_lock_path(ctx, o->recipe_file, recipe.output, &o->lock));
    CALM_TRY(check_outputs(ctx, o, &recipe));
    if (o->locked) {
        CALM_TRY(read_lock(ctx, &o->spec, o->lock, &lock));
        CALM_TRY(calm_kernels_pin(ctx, calm_lock_kernels(lock)));
        CALM_TRY(calm_recipe_resolve(ctx, &o->spec, &events, &recipe));
    }
    return run_and_report(ctx, o, &recipe, lock, progress);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    options o = *(const options *)opts;
    calm_progress progress;
    if (o.recipe_file)
        CALM_TRY(calm_recipe_file_apply(ctx, o.recipe_file, &o.spec));
    /* The lock names the kernels of its run, which apply if the recipe names none. */
    if (o.spec.kernels || !o.locked)
        CALM_TRY(calm_kernels_pin(ctx, o.spec.kernels));
    calm_progress_begin(ctx, &progress, o.common.quiet || !calm_ranks_print());
    quantize(ctx, &o, &progress);
    return calm_progress_end(ctx, &progress);
}

const calm_command calm_cmd_quantize = {
    .name = "quantize",
    .summary = "quantize a checkpoint, choosing the best algorithm per layer",
    .description =
        "Runs several algorithms on every job of every block, scores each by CKA and error against the float "
        "output, chooses per job, and writes a checkpoint.  The store keeps all results, and the next run continues "
        "from there: after an interrupt, a kill or a full disk, start the same command again.  "
        "The checkpoint appears under the output's name when it is complete.",
    .examples = "  calm quantize --model qwen --bits 4\n"
                "  calm quantize --recipe qwen-w4 --output out   (shipped: calm recipe list)\n"
                "  calm quantize --model /models/Qwen3-0.6B --scheme w4a16_g64 --output out\n"
                "  calm quantize --model qwen --format gguf --bits-per-weight 5   (of the file)\n"
                "  calm quantize --model qwen --scheme W8A8 --algorithms rtn,gptq,smoothquant\n",
    .spec = CALM_SPEC_ALL,
    .spec_at = offsetof(options, spec),
    .divides = true,
    CALM_COMMAND_PARTS,
};
