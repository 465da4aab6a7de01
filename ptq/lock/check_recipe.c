/* Checks a recipe against a model.
 *
 * A check lists all faults, a run stops at the first: both call the same functions, and the check notes each failure as
 * a fault (calm_fault_note).  A later check is made only if earlier ones found no fault that it depends on, so that
 * nothing is reported twice. */
#include "ptq/lock/lock.h"

#include "ptq/arch/arch.h"
#include "ptq/choose/choose.h"
#include "ptq/state/run_pool.h"

/* Checks that pins name units of the model and entries of the pool.  No candidate exists here, so numbers of candidates
 * are not checked. */
static calm_status check_pins(calm_ctx *ctx, const calm_run *run)
{
    calm_scope scope;
    calm_pool pool;
    CALM_TRY(calm_pool_of_run(ctx, run, &run->in.recipe->selection, &pool));
    return calm_run_check_pins(ctx, run, &pool, &scope);
}

/* Checks what depends only on shapes: the run has a model, but no texts, candidates or store. */
static calm_status check_layout(calm_ctx *ctx, calm_run *run, calm_faults *faults)
{
    const calm_recipe *recipe = run->in.recipe;
    const calm_config *config = calm_model_config(run->in.model);
    /* first <= last was checked with the names. */
    if (recipe->last_block >= 0 && (size_t)recipe->last_block >= config->n_blocks)
        return calm_fault_note(ctx, calm_fail(ctx, CALM_EARG, "the model has blocks 0 to %zu", config->n_blocks - 1),
                               "blocks", faults);
    run->in.first_block = (size_t)recipe->first_block;    /* the blocks with units and budgets */
    run->in.end_block = recipe->last_block < 0 ? config->n_blocks : (size_t)recipe->last_block + 1;
    CALM_TRY(calm_fault_note(ctx, calm_inputs_keep_float(ctx, &run->in), "keep_float", faults));
    CALM_TRY(calm_fault_note(ctx, calm_inputs_check_weight(ctx, &run->in), "calibration.weight", faults));
    CALM_TRY(calm_fault_note(ctx, calm_inputs_check_learn(ctx, &run->in), "learn", faults));
    CALM_TRY(calm_fault_note(ctx, calm_inputs_open_imatrix(ctx, &run->in), "calibration.imatrix", faults));
    CALM_TRY(calm_fault_note(ctx, calm_inputs_check_prefix(ctx, &run->in), "calibration.prefix", faults));
    CALM_TRY(calm_fault_note(ctx, check_pins(ctx, run), "choice.pins", faults));
    if (!faults->n)
        CALM_TRY(calm_fault_note(ctx, calm_run_restrict(ctx, run), "target", faults));
    if (!faults->n)
        CALM_TRY(calm_fault_note(ctx, calm_run_file_open(ctx, run), "choice.size", faults));
    if (!faults->n)
    {
        CALM_TRY(calm_fault_note(ctx, calm_run_check_budgets(ctx, run),
                                 recipe->file_bytes ? "choice.size" : recipe->file_bits > 0 ? "choice.bits_per_weight"
                                                                                           : "choice.budget", faults));
        CALM_TRY(calm_fault_note(ctx, calm_act_budget_check(ctx, &run->pool, &run->scope, recipe->act_budget),
                                 "choice.act_budget", faults));
    }
    /* Assumes an evaluation: a missing text is a separate fault. */
    for (size_t i = 0; i < recipe->n_gates; i++) {
        char *key;
        CALM_TRY(calm_strf(ctx, ctx->out, &key, "gates.%zu", i));
        CALM_TRY(calm_fault_note(ctx, calm_gates_check(ctx, &recipe->gates[i], 1, true, config->arch->encoder,
                                                       recipe->n_budgets > 1), key, faults));
    }
    return CALM_OK;
}

/* Checks names first, because without them there is no model to compare with. */
static calm_status spec_faults(calm_ctx *ctx, const calm_recipe_spec *spec, calm_faults *faults)
{
    calm_recipe recipe;
    calm_run run = {.in.recipe = &recipe};
    faults->n = 0;
    CALM_TRY(calm_choosing_open(ctx, &run));
    CALM_TRY(calm_recipe_check(ctx, spec, &recipe, faults));
    /* Without a directory the model is on the hub: a check downloads nothing. */
    if (faults->n || !recipe.model.dir)
        return CALM_OK;
    CALM_TRY(calm_fault_note(ctx, calm_inputs_open_given(ctx, &run.in), "model", faults));
    calm_status status = CALM_OK;
    if (!faults->n)
        status = calm_fault_note(ctx, calm_inputs_allow_rotation(ctx, &run.in), "rotate", faults);
    if (status == CALM_OK && !faults->n)
        status = check_layout(ctx, &run, faults);
    calm_inputs_close(&run.in);    /* even if the model could not be opened */
    return status;
}

/* Checks the structure, and if that is valid the names. */
calm_status calm_recipe_file_faults(calm_ctx *ctx, const char *path, calm_faults *faults)
{
    CALM_SCOPED_JSON(document);
    calm_recipe_spec spec;
    faults->n = 0;
    CALM_TRY(calm_json_read(ctx, path, CALM_RECIPE_BYTES, &document));
    CALM_TRY(calm_document_faults(ctx, document, faults));
    if (faults->n)
        return CALM_OK;
    CALM_TRY(calm_spec_init(ctx, &spec));
    CALM_TRY(calm_fault_note(ctx, calm_spec_read(ctx, document, path, &spec), NULL, faults));
    return faults->n ? CALM_OK : spec_faults(ctx, &spec, faults);
}
