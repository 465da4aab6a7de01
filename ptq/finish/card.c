/* README.md of a checkpoint.
 *
 * Its tables are the report's, as preformatted text, so that card and report cannot differ. */
#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/arch/arch.h"
#include "ptq/finish/finish.h"
#include "ptq/model/transforms.h"
#include "ptq/recipe/model_names.h"

/* Appends the tables at full width: a file does not depend on the terminal. */
static calm_status put_tables(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    CALM_SCOPED_COLUMNS(ctx, 0);
    CALM_TRY(calm_summary_tables(ctx, r, out));
    return calm_summary_gates(ctx, r, out);
}

/* Appends the heading: the name on the hub or of the folder, because a card is published and paths are private. */
static calm_status put_title(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    const char *name = r->recipe->model.name;
    char *repo;
    CALM_TRY(calm_model_repo(ctx, name, &repo));
    if (!repo && *calm_path_name(name))
        name = calm_path_name(name);
    calm_text_printf(out, "\n# %s, ", repo ? repo : name);
    return CALM_OK;
}

calm_status calm_card_write(calm_ctx *ctx, const calm_model *model, const calm_result *r, calm_text *out)
{
    const calm_config *config = calm_model_config(model);
    const calm_selection *selection = &r->recipe->selection;
    CALM_TRY(calm_card_front(ctx, r, out));
    CALM_TRY(put_title(ctx, r, out));
    calm_summary_schemes(r, out);
    calm_text_printf(out, "\n\n");
    /* With the version, because another version may give other bytes for the same recipe. */
    calm_text_printf(out, "Quantized by calm %s from a %s of %zu blocks in %s", CALM_VERSION,
                     calm_model_class(model), config->n_blocks, calm_dtype_name(config->dtype));
    /* The published format limits the precision of the float weights. */
    if (calm_model_published(model))
        calm_text_printf(out, ", which were published as %s", calm_model_published(model));
    calm_text_printf(out, ".  Format: ");
    CALM_TRY(calm_formats_describe(ctx, &r->recipe->formats, r->loads.name, out));
    if (r->recipe->how.adapter)
        calm_text_printf(out, "The LoRA adapter `%s` is merged into its weights.\n\n", r->recipe->how.adapter);
    if (config->down_hadamard)
        calm_text_printf(out, "The input of `%s` is multiplied by a Hadamard matrix while the model runs "
                              "(`quantization_config.transform_config`).  A reader that does not do so by itself:\n\n"
                              "    import json, torch\n"
                              "    from compressed_tensors.transform import TransformConfig, apply_transform_config\n"
                              "    entry = json.load(open(\"DIRECTORY/config.json\"))[\"quantization_config\"]\n"
                              "    model(torch.zeros((1, 2), dtype=torch.int64))    # unpacks the weights\n"
                              "    apply_transform_config(model, TransformConfig(**entry[\"transform_config\"]))\n\n",
                         calm_transforms_module(config));
    calm_text_printf(out, "## Size\n\n```\n");
    calm_summary_size(r, out);
    calm_text_printf(out, "```\n\n## Plan and evidence\n\n");
    if (r->recipe->score_windows && !r->recipe->unscored)
        calm_text_printf(
            out, "One algorithm per unit, chosen by %s on %zu calibration tokens of %s (%zu windows).\n\n```\n",
            calm_score_name(selection->point, selection->score), r->calib.tokens, r->recipe->calib_name, r->calib.n);
    else
        calm_text_printf(out, "One algorithm for all units; they were not scored.\n\n```\n");
    CALM_TRY(put_tables(ctx, r, out));
    calm_text_printf(out, "```\n\nThe same run again: `calm quantize --recipe calm_recipe.json`.\n");
    return calm_text_check(ctx, out);    /* appends remember a failure, so one check is enough */
}
