/* The recipe and the end of a run in the store. */
#include <math.h>
#include <string.h>

#include "ptq/state/stage_times.h"
#include "ptq/state/state.h"

/* Adds a member to `json` from its JSON text; NULL: no member. */
static calm_status add_member(calm_ctx *ctx, calm_json *json, const char *key, const char *text)
{
    calm_json *value;
    if (!text)
        return CALM_OK;
    CALM_TRY(calm_json_parse(ctx, key, text, strlen(text), &value));
    calm_json_set(json, key, value);
    return CALM_OK;
}

calm_status calm_run_recipe_text(calm_ctx *ctx, const calm_recipe *recipe, bool all, calm_text *out)
{
    CALM_SCOPED_JSON(json);
    json = calm_recipe_json(recipe);
    if (all) {
        CALM_TRY(add_member(ctx, json, "overrides", recipe->overrides));
        CALM_TRY(add_member(ctx, json, "document", recipe->document));
    }
    return calm_json_write(ctx, json, 0, out);
}

calm_status calm_run_keep_recipe(calm_ctx *ctx, const calm_run *p)
{
    CALM_SCOPED_TEXT(recipe);
    CALM_TRY(calm_run_recipe_text(ctx, p->in.recipe, true, &recipe));
    return calm_store_run_recipe(ctx, p->in.store, p->result.run_id, recipe.data);
}

/* ---- the end of a run ---- */

/* Stores the times of the run's stages. */
static calm_status put_stages(calm_ctx *ctx, const calm_run *p)
{
    calm_times times = p->result.times;
    calm_stage_time *rows;
    size_t n;
    calm_times_settle(&times);
    CALM_TRY(calm_run_times_list(ctx, &times, p->in.recipe, p->result.pool_seconds, &rows, &n));
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (size_t i = 0; i < n; i++) {
        const calm_store_stage row = {p->result.run_id, (int64_t)i, rows[i].name, rows[i].time.wall, rows[i].time.cpu,
                                      NAN};
        CALM_TRY(calm_store_stage_put(ctx, p->in.store, &row));
    }
    return calm_store_commit(ctx, p->in.store);
}

calm_status calm_run_end(calm_ctx *ctx, const calm_run *p, const char *status)
{
    if (ctx->status == CALM_OK)
        CALM_TRY(put_stages(ctx, p));
    const calm_store_outcome outcome = {.status = status, .result = p->result.name,
                                        .reason = ctx->status == CALM_OK ? p->result.verdict : ctx->message,
                                        .bits_per_weight = p->result.bits_per_weight,
                                        .bytes_before = p->result.bytes_before,
                                        .bytes_after = p->result.bytes_after};
    return calm_store_run_end(ctx, p->in.store, p->result.run_id, &outcome);
}

/* Says that the work is not lost, for failures with a remedy outside of calm. */
static void say_what_is_done(calm_ctx *ctx, const char *store)
{
    if (ctx->status == CALM_EINTERRUPTED) {
        calm_ctx_clear_failure(ctx);    /* calm_check_interrupt cannot know the store */
        calm_fail(ctx, CALM_EINTERRUPTED, "interrupted; what is done is in %s: the same call continues from there",
                  store);
    } else if (ctx->status == CALM_ENOSPC || ctx->status == CALM_EIO) {
        calm_log(ctx, CALM_LOG_INFO, "what is done is in %s: the same command continues from there", store);
    }
}

void calm_run_failed(calm_ctx *ctx, const calm_run *p)
{
    /* A copy, so that a failure here does not replace the failure that is reported. */
    calm_ctx quiet = *ctx;
    if (!p || !p->in.store || !p->result.run_id)
        return;
    calm_run_end(&quiet, p, ctx->status == CALM_EINTERRUPTED ? "interrupted" : "failed");
    say_what_is_done(ctx, p->in.recipe->store);
}
