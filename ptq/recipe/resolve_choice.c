/* Resolves budgets, selection and sensitivity, and checks them against each other. */
#include <math.h>
#include <stdlib.h>

#include "ptq/base/array.h"
#include "ptq/recipe/recipe_impl.h"

/* Resolves the size limit of the only written file. */
static calm_status resolve_size(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    char *asked;
    if (!calm_spec_sized(spec))
        return CALM_OK;
    if ((spec->size && spec->file_bits > 0) || spec->budgets.n)
        return calm_fail(ctx, CALM_EARG, "`choice.size`, `choice.bits_per_weight` and `choice.budget` say what the "
                         "same weights may take; leave all but one of them out");
    if (calm_formats_count(&recipe->formats) > 1)
        return calm_fail(ctx, CALM_EARG, "`choice.%s` is of one file; found %zu `formats`, whose files differ in size",
                         spec->size ? "size" : "bits_per_weight", calm_formats_count(&recipe->formats));
    if (spec->size)
        CALM_TRY(calm_size_parse_file(ctx, "choice.size", spec->size, &recipe->file_bytes));
    recipe->file_bits = spec->file_bits;
    CALM_TRY(spec->size ? calm_strf(ctx, ctx->out, &asked, "`choice.size` %s", spec->size)
                        : calm_strf(ctx, ctx->out, &asked, "`choice.bits_per_weight` %g", spec->file_bits));
    recipe->file_asked = asked;
    return CALM_OK;
}

calm_status calm_recipe_resolve_budgets(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const calm_numbers *budgets = &spec->budgets;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->budgets, budgets->n + 1));
    for (size_t i = 0; i < budgets->n; i++)
        recipe->budgets[i] = budgets->of[i];
    recipe->n_budgets = budgets->n;
    recipe->act_budget = spec->act_budget;
    CALM_TRY(resolve_size(ctx, spec, recipe));
    /* A budget of only activations is stored as an infinite budget of weights, and so is a size, whose limit is
     * computed when the model is known. */
    if ((recipe->act_budget > 0 || recipe->file_asked) && !budgets->n)
        recipe->budgets[recipe->n_budgets++] = INFINITY;
    /* qsort does not accept NULL, the pointer of an empty list. */
    if (budgets->n)
        qsort(recipe->budgets, budgets->n, sizeof *recipe->budgets, calm_compare_doubles);
    return CALM_OK;
}

/* Resolves the rule and its metric: the given one, or the rule's default. */
calm_status calm_recipe_resolve_selection(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    calm_selection *selection = &recipe->selection;
    *selection = (calm_selection){.unit = (calm_unit)spec->unit, .rule = (calm_choice_rule)spec->rule,
                                  .shortlist = spec->shortlist > 0 ? spec->shortlist : CALM_SHORTLIST_DEFAULT};
    if (spec->shortlist > 0 && selection->rule == CALM_CHOICE_RULE_ARGMAX)
        return calm_fail(ctx, CALM_EARG, "`choice.shortlist` %g: `choice.rule` argmax takes the least score and has no "
                         "shortlist; take `choice.rule` token, or leave it out", spec->shortlist);
    CALM_TRY(calm_score_need(ctx, selection->unit,
                             spec->metric ? spec->metric : calm_choice_rule_metric(selection->rule),
                             &selection->point, &selection->score));
    recipe->want_cka_linear |= selection->score == CALM_SCORE_CKA_LINEAR;
    recipe->score_points |= 1u << selection->point | 1u << calm_unit_point(selection->unit);
    if (recipe->score_windows == 0 && recipe->n_pool > 1)
        return calm_fail(ctx, CALM_EARG,
                         "`calibration.score_samples` 0: %zu candidates compete for each unit, which takes their "
                         "scores; name one of `algorithms` and one of `schemes`", recipe->n_pool);
    /* The only candidate needs no score, unless windows or metric are given. */
    recipe->unscored = recipe->n_pool == 1 && spec->score_samples < 0 && !spec->metric;
    if (recipe->score_windows == 0 || recipe->unscored)
        recipe->score_points = 1u << CALM_POINT_JOB;
    if (selection->score == CALM_SCORE_CKA_LINEAR && calm_recipe_quantizes_activations(recipe))
        return calm_fail(ctx, CALM_EARG, "`choice.metric` cka_linear is of float inputs; this scheme quantizes them");
    if (selection->score == CALM_SCORE_CKA_LINEAR && !(calm_recipe_caps(recipe) & CALM_NEEDS_GRAM))
        return calm_fail(ctx, CALM_EARG,
                         "`choice.metric` cka_linear needs the inputs' Gram matrix, which none of these "
                         "algorithms collects; add gptq");
    /* Without a budget float, which has no error, would win in every unit. */
    if (calm_recipe_has_float(recipe) && (!recipe->n_budgets || (isinf(recipe->budgets[0]) && !recipe->file_asked)))
        return calm_fail(ctx, CALM_EARG, "`schemes` float competes under a `choice.budget` or `choice.size` alone; "
                         "name what is to stay float with `keep_float` or `choice.pins` UNIT=float");
    if (selection->score == CALM_SCORE_CKA_LINEAR && recipe->imatrix)
        return calm_fail(ctx, CALM_EARG, "`choice.metric` cka_linear is of the calibration's own mean squares, which "
                         "`calibration.imatrix` replaces; take another metric");
    if (selection->score == CALM_SCORE_PROBE_KL && recipe->prefix != CALM_PREFIX_FLOAT)
        return calm_fail(ctx, CALM_EARG,
                         "`choice.metric` probe_kl measures units one by one in the float model; it has no "
                         "`calibration.prefix` quantized or asymmetric");
    if (selection->score == CALM_SCORE_GRADIENT_KL)
        return calm_fail(ctx, CALM_EARG, "`choice.metric` gradient_kl is what `choice.sensitivity` gradient predicts "
                         "probe_kl to be, for a budget; take probe_kl");
    const bool crosses = calm_recipe_caps(recipe) & CALM_NEEDS_CROSS;
    if (crosses && recipe->prefix != CALM_PREFIX_ASYMMETRIC)
        return calm_fail(ctx, CALM_EARG, "the transform asym of `algorithms` fits to the input behind quantized "
                         "blocks; it needs `calibration.prefix` asymmetric");
    /* Scores of whole blocks compare with the float block on the same rows, which is not the target of asym. */
    if (recipe->prefix == CALM_PREFIX_ASYMMETRIC && selection->unit == CALM_UNIT_BLOCK)
        return calm_fail(ctx, CALM_EARG, "`calibration.prefix` asymmetric scores sublayers against those behind float "
                         "blocks; it has no `choice.unit` block");
    return CALM_OK;
}

/* Returns the option that limits the bits of weights. */
static const char *limit_of(const calm_recipe *recipe)
{
    return recipe->file_bytes ? "size" : recipe->file_bits > 0 ? "bits_per_weight" : "budget";
}

/* Gradients agree with probes within 10 % on decoders without experts (docs/evidence/sensitivity.csv). */
calm_status calm_recipe_resolve_sensitivity(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    calm_model_kind kind;
    recipe->sensitivity = (calm_sensitivity)spec->sensitivity;
    if (spec->sensitivity != CALM_SENSITIVITY_AUTO)
        return CALM_OK;
    recipe->sensitivity = CALM_SENSITIVITY_PROBE;
    if (!recipe->n_budgets)
        return CALM_OK;
    CALM_TRY(calm_recipe_find_kind(ctx, recipe, &kind));
    if (!kind.encoder && !kind.mixture && kind.back)
        recipe->sensitivity = CALM_SENSITIVITY_GRADIENT;
    return CALM_OK;
}

/* Fails if options of the choice contradict each other. */
calm_status calm_recipe_check_choice(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    if (recipe->skip_smoothing && recipe->selection.unit != CALM_UNIT_JOB)
        return calm_fail(ctx, CALM_EARG, "`choice.effort` light decides job by job; it has no `choice.unit` %s",
                         calm_unit_name(recipe->selection.unit));
    if (recipe->n_budgets && recipe->prefix != CALM_PREFIX_FLOAT)
        return calm_fail(ctx, CALM_EARG,
                         "`choice.%s` decides over all blocks together; it has no `calibration.prefix` quantized "
                         "or asymmetric", limit_of(recipe));
    if (recipe->n_budgets && recipe->selection.score == CALM_SCORE_PROBE_KL)
        return calm_fail(ctx, CALM_EARG,
                         "`choice.%s` probes one width of each unit itself; it has no `choice.metric` probe_kl",
                         limit_of(recipe));
    if (recipe->sensitivity == CALM_SENSITIVITY_GRADIENT && !recipe->n_budgets)
        return calm_fail(ctx, CALM_EARG, "`choice.sensitivity` gradient says how units share a budget; it needs "
                         "`choice.budget`, `choice.size` or `choice.act_budget`");
    const char *name = CALM_SCHEME_NAME(&recipe->schemes[0]);
    if (!recipe->n_budgets && recipe->n_schemes > 1)
        return calm_fail(ctx, CALM_EARG, "`schemes` %s and others: several widths compete under `choice.budget`, "
                         "`choice.size` or `choice.act_budget` alone", name);
    bool several = false;
    for (size_t i = 1; i < recipe->n_schemes; i++)
        several |= recipe->schemes[i].act_bits != recipe->schemes[0].act_bits;
    if (recipe->act_budget > 0 && !several)
        return calm_fail(ctx, CALM_EARG, "`choice.act_budget` needs schemes of several activation widths to choose "
                         "from, as `schemes` w4a4_g128,w4a8_g128,w4a16_g128; found only those of %s", name);
    if (recipe->n_budgets && recipe->n_schemes == 1)
        return calm_fail(ctx, CALM_EARG, "`choice.%s` needs several widths to choose from: `schemes` %s",
                         limit_of(recipe), calm_spec_default_schemes(spec));
    return CALM_OK;
}
