/* Fetches models with a progress bar. */
#include "cli/pull.h"

#include "cli/progress.h"
#include "ptq/base/text.h"
#include "ptq/io/folder.h"

calm_status calm_pull_shown(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name, bool quiet,
                            calm_hub_snapshot *out)
{
    calm_progress progress;
    const calm_events events = calm_progress_begin(ctx, &progress, quiet);
    calm_stage_events stage = {&events, CALM_STAGE_PULL};
    if (!settings->offline)
        calm_log(ctx, CALM_LOG_INFO, "%s@%s: asking %s", name->repo, name->revision, settings->endpoint);
    calm_hub_pull(ctx, settings, name, calm_stage_tick, &stage, out);
    return calm_progress_end(ctx, &progress);
}

calm_status calm_find_shown(calm_ctx *ctx, const char *name, bool quiet, calm_named_model *out)
{
    calm_progress progress;
    *out = (calm_named_model){0};
    if (!name)
        return CALM_OK;
    const calm_events events = calm_progress_begin(ctx, &progress, quiet);
    calm_stage_events stage = {&events, CALM_STAGE_PULL};
    calm_model_find(ctx, name, calm_stage_tick, &stage, out);
    return calm_progress_end(ctx, &progress);
}

calm_status calm_find_checkpoint(calm_ctx *ctx, const char *word, bool quiet, const char **path)
{
    calm_named_model named;
    *path = word;
    if (calm_is_path(word) || calm_text_ends_with(word, ".gguf"))
        return calm_folder_gguf(ctx, path);
    CALM_TRY(calm_find_shown(ctx, word, quiet, &named));
    *path = named.dir;
    return CALM_OK;
}
