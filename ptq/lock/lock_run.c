/* A run between two looks at digests.
 *
 * Inputs are compared before the run, since a run on other inputs says nothing about the lock; plan, outputs and
 * figures after it. */
#include "ptq/lock/lock.h"

#include <string.h>

#include "ptq/recipe/document.h"
#include "ptq/recipe/resolve.h"

/* What came out.  Windows are inputs that only the run makes known. */
static calm_status compare_outputs(calm_ctx *ctx, const calm_json *expected, calm_locked_run *run)
{
    static const char *const parts[] = {"plan", "outputs", "result"};
    const calm_json *windows = calm_json_get(calm_json_get(run->lock, "inputs"), "windows");
    CALM_SCOPED_JSON(alone);    /* the others were compared before the run */
    alone = CALM_OBJECT(CALM_KV("windows", calm_json_copy(windows)));
    CALM_TRY(calm_lock_compare(ctx, expected, "inputs", alone, &run->differences));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CALM_TRY(calm_lock_compare(ctx, expected, parts[i], calm_json_get(run->lock, parts[i]), &run->differences));
    return CALM_OK;
}

calm_status calm_locked_run_do(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe,
                               const calm_run_options *options, const calm_json *expected, calm_locked_run *out)
{
    CALM_SCOPED_JSON(inputs);
    CALM_SCOPED_JSON(document);
    memset(out, 0, sizeof *out);    /* closing is right from here on */
    if (recipe->model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->model.note);
    if (recipe->scheme_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->scheme_note);
    if (recipe->pool_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->pool_note);
    /* All bytes of the model are read for it: before the run only where that may spare the run. */
    if (expected) {
        CALM_TRY(calm_lock_inputs(ctx, recipe, NULL, &inputs));
        /* The windows of `expected` are left out: there are none yet. */
        CALM_TRY(calm_lock_compare(ctx, expected, "inputs", inputs, &out->differences));
    }
    /* Differing inputs are a result, not a failure: the caller shows them. */
    if (out->differences.n)
        return CALM_OK;
    CALM_TRY(calm_run_quantize(ctx, recipe, options, &out->run));
    const calm_result *result = calm_run_result(out->run);
    if (!expected)
        CALM_TRY(calm_lock_inputs(ctx, recipe, result->tensors, &inputs));
    if (result->recipe->n_budgets > 1)    /* nothing was written */
        return CALM_OK;
    /* The document is written from the spec, so that options of the command line are in the lock as in a recipe
     * file. */
    const calm_recipe_spec settled = calm_spec_settled(spec);
    CALM_TRY(calm_spec_write(ctx, &settled, &document));
    calm_json *taken = inputs;
    inputs = NULL;    /* the lock's, also after a failure */
    CALM_TRY(calm_lock_new(ctx, result, document, taken, &out->lock));
    return expected ? compare_outputs(ctx, expected, out) : CALM_OK;
}

void calm_locked_run_close(calm_locked_run *run)
{
    calm_run_close(&run->run);
    calm_json_free(run->lock);
    run->lock = NULL;
}
