/* Guard between a rotated model and its unrotated baseline.
 *
 * The user asks for a rotation before anything is quantized, and with few outliers it costs more than it gains.  So the
 * unrotated model is also quantized, up to its guard.  Both results are measured on the same windows, each against its
 * own float model; both float models compute the same function.  The rotated result stays if it is better by more than
 * one paired standard error; else the unrotated one is the result, since it is simpler and any engine runs it. */
#include <string.h>

#include "ptq/choose/choose_impl.h"

bool calm_rotation_is_judged(calm_ctx *ctx, const calm_recipe *recipe, int n_ranks)
{
    const char *why = recipe->n_budgets ? "a budget or size" : n_ranks > 1 ? "several ranks" : NULL;
    if (recipe->rotate == CALM_ROTATE_NONE || recipe->keep_hybrid || !recipe->guard_windows)
        return false;
    if (why)
        calm_log(ctx, CALM_LOG_WARNING, "with %s calm does not compare the rotated model with the unrotated one: "
                 "compare with a run without `rotate`", why);
    return !why;
}

calm_status calm_baseline_of(calm_ctx *ctx, const calm_recipe *recipe, calm_baseline *out)
{
    calm_recipe *plain;
    *out = (calm_baseline){0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, plain, 1));
    *plain = *recipe;
    plain->rotate = CALM_ROTATE_NONE;
    out->recipe = plain;
    return CALM_OK;
}

void calm_baseline_record(const calm_run *p, calm_baseline *baseline)
{
    const calm_trial *trial = p->result.trial;
    if (!trial || !trial->id)
        return;
    baseline->measured = true;
    baseline->name = p->result.name;
    baseline->measure = trial->measure;
    memcpy(baseline->windows, p->in.guard.sha256, sizeof baseline->windows);
}

calm_status calm_baseline_judge(calm_ctx *ctx, calm_run *p, calm_baseline *baseline)
{
    const calm_trial *trial = p->result.trial;
    const char *kind = calm_rotate_name(p->in.recipe->rotate);
    double delta, se;
    /* If the guard had no windows or plans could not be measured, the rotation stays as the user asked. */
    if (!baseline->measured || !trial || !trial->id || strcmp(baseline->windows, p->in.guard.sha256) != 0)
        return CALM_OK;
    calm_measure_compare(&baseline->measure, &trial->measure, p->in.guard.n, &delta, &se);
    baseline->better = !(delta < -se);
    static const char better[] =
        "the unrotated model is the result: its %s has KL %.5f, at most one paired standard error more than %s of the "
        "model rotated by %s: %.5f, %+.5f, error %.5f (%zu windows)";
    static const char worse[] =
        "%s of the unrotated model has KL %.5f, %s of the model rotated by %s %.5f: %+.5f, paired standard error %.5f "
        "(%zu windows)";
    CALM_TRY(calm_strf(ctx, ctx->out, &baseline->verdict, baseline->better ? better : worse, baseline->name,
                       calm_measure_loss(&baseline->measure), p->result.name, kind, calm_measure_loss(&trial->measure),
                       delta, se, p->in.guard.n));
    return calm_verdict_add(ctx, baseline->verdict, &p->result.verdict);
}
