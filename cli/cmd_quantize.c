/* calm quantize: a float checkpoint in, a smaller one out, with the evidence. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/kernels.h"
#include "cli/lock_report.h"
#include "cli/lock_run.h"
#include "cli/recipe_file.h"
#include "cli/report.h"

/* The lock that --locked demands, for the same recipe. */
static calm_status read_lock(calm_ctx *ctx, const calm_quantize_options *o, const char *path, calm_json **out)
{
    const char *key = NULL;
    calm_json *document;
    CALM_TRY(calm_recipe_file_json(ctx, o, &document));
    calm_status status = calm_lock_read(ctx, path, out);
    if (status == CALM_OK)
        status = calm_lock_recipe_differs(ctx, *out, document, &key);
    calm_json_free(document);
    if (status == CALM_OK && key)
        status = calm_fail(ctx, CALM_EMISMATCH, "%s: was written for another recipe: \"%s\" differs; run without --locked "
                                                "to write it anew", path, key);
    if (status != CALM_OK)
        calm_json_free(*out);
    return status;
}

/* Write the lock, or say what is not as it was. */
static calm_status settle(calm_ctx *ctx, const calm_quantize_options *o, const char *path, const calm_locked_run *run)
{
    if (!o->locked && !run->lock)
        return CALM_OK;
    if (!o->locked) {
        if (calm_lock_write(ctx, run->lock, path) != CALM_OK)
            calm_pipeline_failed(ctx, &run->pipeline);
        return ctx->status;
    }
    if (!run->differences.n)
        return CALM_OK;
    CALM_TRY(calm_lock_print(ctx, &run->differences, stderr));
    return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu of %zu things are not as the lock says%s", path, run->differences.n,
                     run->differences.checked, run->ran ? "" : "; inputs differ, so nothing was computed");
}

static calm_status run_and_report(calm_ctx *ctx, const calm_quantize_options *o, const calm_recipe *recipe,
                                  const char *path, const calm_json *expected)
{
    calm_locked_run run;
    calm_status status = calm_locked_run_do(ctx, o, recipe, expected, &run);
    if (status == CALM_OK && run.ran)
        status = o->json ? calm_report_json(ctx, &run.pipeline) : calm_report_print(ctx, &run.pipeline);
    if (status == CALM_OK)
        status = settle(ctx, o, path, &run);
    if (status == CALM_OK && run.ran)
        status = calm_gates_verdict(ctx, &run.pipeline);
    calm_locked_run_close(ctx, &run);
    return status;
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    calm_quantize_options options = *(const calm_quantize_options *)opts, *o = &options;
    calm_recipe recipe;
    calm_json *lock = NULL;
    const char *path = o->lock;
    (void)args;
    (void)n_args;
    CALM_TRY(calm_quantize_read_recipe(ctx, o));
    CALM_TRY(calm_kernels_pin(ctx, o->kernels));
    CALM_TRY(calm_quantize_resolve(ctx, o, &recipe));
    if (o->dry_run)
        return calm_dry_run(ctx, &recipe, o->json);
    if (!path)
        CALM_TRY(calm_lock_path(ctx, o->recipe_file, recipe.output, &path));
    recipe.lock = o->locked || recipe.n_budgets > 1 ? NULL : path;
    if (!o->locked)
        return run_and_report(ctx, o, &recipe, path, NULL);
    CALM_TRY(read_lock(ctx, o, path, &lock));
    calm_status status = calm_kernels_pin(ctx, calm_lock_kernels(lock));
    if (status == CALM_OK)
        status = run_and_report(ctx, o, &recipe, path, lock);
    calm_json_free(lock);
    return status;
}

const calm_command calm_cmd_quantize = {
    .name = "quantize",
    .summary = "quantize a checkpoint, choosing the best algorithm per layer",
    .description =
        "Runs several algorithms on every job of every block, scores each by CKA and error against the float output, "
        "chooses per job, and writes a compressed-tensors checkpoint.  Everything it computed is kept in the "
        "store, so the next run goes on from there: interrupted, killed or out of disk, start the same command again.  "
        "The output's name never stands for half a checkpoint.",
    .examples = "  calm quantize --model qwen --bits 4\n"
                "  calm quantize --recipe qwen-w4 --output out                    (a shipped recipe; see calm recipe list)\n"
                "  calm quantize --model /models/Qwen3-0.6B --scheme w4a16_g64 --output out --store out.db\n"
                "  calm quantize --model qwen --bits 4 --algorithms gptq          (a uniform run)\n"
                "  calm quantize --model qwen --scheme w4a4_g128 --algorithms rtn,gptq,smoothquant,mkq\n",
    .options = calm_quantize_table,
    .opts_size = sizeof(calm_quantize_options),
    .run = run,
};
