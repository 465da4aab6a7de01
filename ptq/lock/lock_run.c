/* A run with a comparison of digests before and after it.
 *
 * Inputs are compared before the run, because a run on other inputs says nothing about the lock; plan, outputs and
 * figures after it. */
#include "ptq/lock/lock.h"

#include <string.h>

#include "ptq/recipe/document.h"
#include "ptq/recipe/resolve.h"

/* Compares the results of the run, and the windows, inputs that only the run makes known. */
static calm_status compare_outputs(calm_ctx *ctx, const calm_json *expected, calm_locked_run *run)
{
    static const char *const parts[] = {"plan", "outputs", "result"};
    const calm_json *windows = calm_json_get(calm_json_get(run->lock, "inputs"), "windows");
    CALM_SCOPED_JSON(alone);    /* only the windows; other inputs were compared before the run */
    alone = CALM_OBJECT(CALM_KV("windows", calm_json_copy(windows)));
    CALM_TRY(calm_lock_compare(ctx, expected, "inputs", alone, &run->differences));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CALM_TRY(calm_lock_compare(ctx, expected, parts[i], calm_json_get(run->lock, parts[i]), &run->differences));
    return CALM_OK;
}

calm_status calm_locked_run_start(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe,
                                  const calm_run_options *options, const calm_json *expected, calm_locked_run *out)
{
    CALM_SCOPED_JSON(inputs);
    CALM_SCOPED_JSON(document);
    memset(out, 0, sizeof *out);    /* from here on it can be closed */
    if (recipe->model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->model.note);
    if (recipe->scheme_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->scheme_note);
    if (recipe->pool_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->pool_note);
    /* This reads all bytes of the model; before the run only if a difference would save the run. */
    if (expected) {
        CALM_TRY(calm_lock_inputs(ctx, recipe, NULL, &inputs));
        /* Windows are not compared yet, because there are none. */
        CALM_TRY(calm_lock_compare(ctx, expected, "inputs", inputs, &out->differences));
    }
    /* Different inputs are a result, not a failure: the caller shows them. */
    if (out->differences.n)
        return CALM_OK;
    CALM_TRY(calm_run_quantize(ctx, recipe, options, &out->run));
    const calm_result *result = calm_run_result(out->run);
    if (!expected)
        CALM_TRY(calm_lock_inputs(ctx, recipe, result->tensors, &inputs));
    if (result->recipe->n_budgets > 1)    /* nothing was written */
        return CALM_OK;
    /* The document is written from the spec, so that the lock contains options of the command line as a recipe file
     * would. */
    const calm_recipe_spec settled = calm_spec_with_dtype(spec);
    CALM_TRY(calm_spec_write(ctx, &settled, &document));
    calm_json *taken = inputs;
    inputs = NULL;    /* the lock owns it, even after a failure */
    CALM_TRY(calm_lock_new(ctx, result, document, taken, &out->lock));
    return expected ? compare_outputs(ctx, expected, out) : CALM_OK;
}

void calm_locked_run_close(calm_locked_run *run)
{
    calm_run_close(&run->run);
    calm_json_free(run->lock);
    run->lock = NULL;
}
