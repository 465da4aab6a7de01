/* calm quantize: a float checkpoint in, a smaller one out, with the evidence. */
#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/pipeline.h"
#include "cli/quantize_options.h"
#include "cli/report.h"

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    calm_quantize_options options = *(const calm_quantize_options *)opts, *o = &options;
    calm_recipe recipe;
    calm_pipeline pipeline;
    calm_progress progress;
    (void)args;
    (void)n_args;
    CALM_TRY(calm_quantize_read_recipe(ctx, o));
    CALM_TRY(calm_quantize_resolve(ctx, o, &recipe));
    if (o->dry_run)
        return calm_dry_run(ctx, &recipe, o->json);
    calm_progress_init(&progress, o->common.quiet);
    ctx->log = calm_progress_log;
    ctx->log_user = &progress;
    if (recipe.model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe.model.note);
    if (recipe.scheme_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe.scheme_note);
    calm_status status = calm_pipeline_run(ctx, &recipe, o->common.command, &progress, &pipeline);
    if (status == CALM_OK)
        status = o->json ? calm_report_json(ctx, &pipeline) : calm_report_print(ctx, &pipeline);
    if (status == CALM_OK)
        status = calm_gates_verdict(ctx, &pipeline);
    calm_pipeline_close(&pipeline);
    ctx->log = NULL;
    return status;
}

const calm_command calm_cmd_quantize = {
    .name = "quantize",
    .summary = "quantize a checkpoint, choosing the best algorithm per layer",
    .description =
        "Runs several algorithms on every job of every block, scores each by CKA and error against the float output, "
        "chooses per job, and writes a compressed-tensors checkpoint.  Everything it computed is kept in the "
        "store, so the next run goes on from there.",
    .examples = "  calm quantize --model qwen --bits 4\n"
                "  calm quantize --model /models/Qwen3-0.6B --scheme w4a16_g64 --output out --store out.db\n"
                "  calm quantize --model qwen --bits 4 --algorithms gptq          (a uniform run)\n"
                "  calm quantize --model qwen --scheme w4a4_g128 --algorithms rtn,gptq,smoothquant,mkq\n"
                "  calm quantize --recipe qwen-w4 --output out                    (calm recipe list)\n",
    .options = calm_quantize_table,
    .opts_size = sizeof(calm_quantize_options),
    .run = run,
};
