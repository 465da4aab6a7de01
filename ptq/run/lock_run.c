/* A run between two looks at digests.
 *
 * Inputs are compared before the run, since a run on other inputs says nothing about the lock; plan, outputs and
 * figures after it. */
#include "ptq/run/lock_run.h"

#include <string.h>

#include "ptq/recipe/document.h"


/* What came out.  Windows are inputs that only the run makes known. */
static calm_status compare_outputs(calm_ctx *ctx, const calm_json *expected, calm_locked_run *run)
{
    static const char *const parts[] = {"plan", "outputs", "result"};
    const calm_json *windows = calm_json_get(calm_json_get(run->lock, "inputs"), "windows");
    calm_json *alone = calm_json_new_object(), *inputs = calm_json_new_object();
    calm_json_set(inputs, "windows", calm_json_copy(windows));
    calm_json_set(alone, "inputs", inputs);    /* the others were compared before the run */
    calm_status status = calm_lock_compare(ctx, expected, alone, "inputs", &run->differences);
    calm_json_free(alone);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == CALM_OK; i++)
        status = calm_lock_compare(ctx, expected, run->lock, parts[i], &run->differences);
    return status;
}

/* The windows of `expected` are left out: `inputs` has none yet. */
static calm_status compare_inputs(calm_ctx *ctx, const calm_json *expected, const calm_json *inputs,
                                  calm_locked_run *run)
{
    calm_json *found = calm_json_new_object();
    calm_json_set(found, "inputs", calm_json_copy(inputs));
    const calm_status status = calm_lock_compare(ctx, expected, found, "inputs", &run->differences);
    calm_json_free(found);
    return status;
}

/* `inputs` is taken over. */
static calm_status make_lock(calm_ctx *ctx, const calm_recipe_spec *spec, calm_json *inputs, calm_locked_run *run)
{
    const calm_result *result = calm_run_result(run->run);
    calm_json *document;
    if (result->recipe->n_budgets > 1) {    /* nothing was written */
        calm_json_free(inputs);
        return CALM_OK;
    }
    /* The document is written from the spec, so that options of the command line are in the lock as in a recipe
     * file. */
    calm_status status = calm_spec_write(ctx, spec, &document);
    if (status != CALM_OK) {
        calm_json_free(inputs);
        return status;
    }
    status = calm_lock_new(ctx, result, document, inputs, &run->lock);
    calm_json_free(document);
    return status;
}

calm_status calm_locked_run_do(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe,
                               const calm_run_options *options, const calm_json *expected, calm_locked_run *out)
{
    calm_json *inputs = NULL;
    memset(out, 0, sizeof *out);    /* closing is right from here on */
    if (recipe->model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->model.note);
    if (recipe->scheme_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe->scheme_note);
    /* All bytes of the model are read for it: before the run only where that may spare the run. */
    if (expected)
        CALM_TRY(calm_lock_inputs(ctx, recipe, &inputs));
    calm_status status = expected ? compare_inputs(ctx, expected, inputs, out) : CALM_OK;
    if (status == CALM_OK && !out->differences.n)
        status = calm_run_quantize(ctx, recipe, options, &out->run);
    if (status == CALM_OK && !expected)
        status = calm_lock_inputs(ctx, recipe, &inputs);
    /* Differing inputs are a result, not a failure: the caller shows them. */
    if (status != CALM_OK || out->differences.n) {
        calm_json_free(inputs);
        return status;
    }
    CALM_TRY(make_lock(ctx, spec, inputs, out));
    return expected && out->lock ? compare_outputs(ctx, expected, out) : CALM_OK;
}

void calm_locked_run_close(calm_ctx *ctx, calm_locked_run *run)
{
    calm_run_close(ctx, run->run);
    calm_json_free(run->lock);
    run->lock = NULL;
    run->run = NULL;
}
