/* A pull, as people see it. */
#include "cli/pull.h"

#include "cli/progress.h"

typedef struct view {
    calm_progress progress;
    size_t unit;    /* bytes in what the bar counts; 0 before the first tick */
} view;

/* Small models in kB, others in MB. */
static void tick(void *user, size_t done, size_t total)
{
    view *v = user;
    if (!v->unit) {
        v->unit = total < 20000000 ? 1000 : 1000000;
        calm_progress_add(&v->progress, "pull", v->unit == 1000 ? "kB" : "MB");
    }
    const size_t all = (total + v->unit - 1) / v->unit;
    calm_progress_update(&v->progress, 0, done >= total ? all : done / v->unit, all);
}

calm_status calm_pull_shown(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name, bool quiet,
                            calm_hub_snapshot *out)
{
    view v = {.unit = 0};
    calm_log_fn *const log = ctx->log;
    void *const log_user = ctx->log_user;
    calm_progress_init(&v.progress, quiet);
    ctx->log = calm_progress_log;
    ctx->log_user = &v.progress;
    if (!settings->offline)
        calm_log(ctx, CALM_LOG_INFO, "%s@%s: asking %s", name->repo, name->revision, settings->endpoint);
    const calm_status status = calm_hub_pull(ctx, settings, name, tick, &v, out);
    calm_progress_end(&v.progress);
    ctx->log = log;
    ctx->log_user = log_user;
    return status;
}
