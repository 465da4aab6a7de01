/* What a preset changes in a recipe, and which options contradict it. */
#include "ptq/recipe/preset.h"


#include "ptq/arch/config.h"
#include "ptq/quant/act_levels.h"

static const struct {
    const char *name, *about;
} presets[] = {
    [CALM_RECIPE_FAST] = {"fast", "one algorithm (4-bit inputs: two); the bundled model at 4 bits: 7 % more KL"},
    [CALM_RECIPE_BALANCED] = {"balanced", "several algorithms per layer, and a guard that compares them"},
    [CALM_RECIPE_BEST] = {"best", "learns from the result as well; the bundled model at 4 bits: 28 % less KL"},
};

const char *calm_recipe_preset_name(calm_recipe_preset preset)
{
    return presets[preset].name;
}

const char *calm_recipe_preset_about(calm_recipe_preset preset)
{
    return presets[preset].about;
}

const char *calm_recipe_preset_pool(const calm_recipe_spec *spec, const calm_recipe *recipe)
{
    bool any4 = false;
    if (spec->preset != CALM_RECIPE_FAST)
        return NULL;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any4 |= recipe->schemes[i].act_bits == 4;
    /* Fitting to 4-bit inputs needs more calibration rows than wide jobs may have; those use the other algorithm. */
    return any4 ? "mkq-once,actfit-once" : "mkq-once";
}

calm_status calm_recipe_check_preset(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    (void)recipe;
    if (spec->preset == CALM_RECIPE_FAST && spec->algorithms.n)
        return calm_fail(ctx, CALM_EARG, "`preset` fast says which algorithm, and so does `algorithms`: leave one of "
                         "the two out");
    if (spec->preset == CALM_RECIPE_FAST && (spec->learn || spec->effort == CALM_EFFORT_HIGH))
        return calm_fail(ctx, CALM_EARG, "`preset` fast leaves out what learns: take `preset` best, or no preset");
    if (spec->preset != CALM_RECIPE_BEST)
        return CALM_OK;
    /* A document always contains these options, so only a typed one contradicts the preset. */
    if (!spec->learn && calm_spec_given(spec, "learn"))
        return calm_fail(ctx, CALM_EARG, "`preset` best learns, and `learn` none does not: take `preset` balanced");
    if (!spec->rotate && calm_spec_given(spec, "rotate"))
        return calm_fail(ctx, CALM_EARG, "`preset` best rotates where that helps: without it the same is "
                         "`preset` balanced with `learn` both");
    if (spec->budgets.n > 1)
        return calm_fail(ctx, CALM_EARG, "`preset` best learns from one result; several of `choice.budget` have none");
    return CALM_OK;
}

/* Returns true if a scheme has integer activations with dynamic scales, which a rotation helps. */
static bool rounds_inputs(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        const calm_scheme *scheme = &recipe->schemes[i];
        any |= scheme->act_bits && calm_act_rule_is_open(scheme->act_rule);
    }
    return any;
}

/* Returns true if a scheme has few enough codes that learning can change them. */
static bool leaves_codes(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any |= calm_learner_changes(recipe->learner, &recipe->schemes[i]);
    return any;
}

/* Finds the rotation that the model allows and its files can store.  Only a single format for any engine can store an
 * online rotation; NONE: there is no model on this machine, or it allows none. */
static calm_status find_rotation(calm_ctx *ctx, const calm_recipe *recipe, calm_rotate_kind *out)
{
    CALM_SCOPED_MODEL(model);
    static const calm_rotate_kind preferred[] = {CALM_ROTATE_R1R2R4, CALM_ROTATE_R1R2, CALM_ROTATE_INPUTS};
    const bool says = calm_formats_count(&recipe->formats) == 1 && calm_formats_at(&recipe->formats, 0)->transforms &&
                      !recipe->engine;
    *out = CALM_ROTATE_NONE;
    if (!recipe->model.dir)
        return CALM_OK;
    calm_model_how how = recipe->how;
    how.glance = true;
    CALM_TRY(calm_model_open_floats(ctx, recipe->model.dir, &how, &model));
    for (size_t i = 0; i < sizeof preferred / sizeof *preferred; i++) {
        if (calm_rotate_is_online(preferred[i]) && !says)
            continue;
        const calm_status status = calm_rotate_allow(ctx, model, preferred[i]);
        if (status == CALM_OK)
            *out = preferred[i];
        if (status != CALM_EUNSUPPORTED)
            return status;
        calm_ctx_clear_failure(ctx);
    }
    return CALM_OK;
}

/* Leaves the guard out where nothing is compared: its windows would only be measured, which the evaluation does. */
static void resolve_fast(const calm_recipe_spec *spec, calm_recipe *recipe)
{
    if (recipe->n_pool == 1 && !recipe->rotate && !spec->no_eval && spec->guard_samples < 0)
        recipe->guard_windows = 0;
}

calm_status calm_recipe_resolve_preset(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    if (spec->preset == CALM_RECIPE_FAST)
        resolve_fast(spec, recipe);
    if (spec->preset != CALM_RECIPE_BEST)
        return CALM_OK;
    /* The guard compares with the unrotated model, but not under a budget; an imatrix describes unrotated inputs. */
    if (!recipe->rotate && rounds_inputs(recipe) && !recipe->n_budgets && !recipe->imatrix && !recipe->keep_hybrid &&
        recipe->guard_windows)
        CALM_TRY(find_rotation(ctx, recipe, &recipe->rotate));
    if (recipe->rotate || !recipe->learner || leaves_codes(recipe))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "`preset` best learns codes and scales, and `schemes` %s leaves nothing to learn: "
                     "take `preset` balanced, or fewer bits", CALM_SCHEME_NAME(&recipe->schemes[0]));
}
