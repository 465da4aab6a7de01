/* README.md of a checkpoint, and of each folder of several formats.
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

/* Appends front matter and heading, with the name on the hub or of the folder, because a card is published and paths
 * are private. */
static calm_status put_top(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    const char *name = r->recipe->model.name;
    char *repo;
    CALM_TRY(calm_model_repo(ctx, name, &repo));
    CALM_TRY(calm_card_front(ctx, r, repo, out));
    if (!repo && *calm_path_name(name))
        name = calm_path_name(name);
    calm_text_printf(out, "\n# %s, ", repo ? repo : name);
    return CALM_OK;
}

/* Appends which inputs are transformed, and how to read such a checkpoint. */
static void put_transforms(const calm_config *config, calm_text *out)
{
    const char *before = "The input of each ";
    if (!calm_transforms_any(config))
        return;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const char *module = calm_transforms_module(config, role);
        if (module)
            calm_text_printf(out, "%s`%s`", before, module);
        before = module ? ", " : before;
    }
    calm_text_printf(out, " is multiplied by a Hadamard matrix while the model runs "
                          "(`quantization_config.transform_config`).  A reader that does not do so by itself:\n\n"
                          "    import json, torch\n"
                          "    from compressed_tensors.transform import TransformConfig, apply_transform_config\n"
                          "    entry = json.load(open(\"DIRECTORY/config.json\"))[\"quantization_config\"]\n"
                          "    model(torch.zeros((1, 2), dtype=torch.int64))    # unpacks the weights\n"
                          "    apply_transform_config(model, TransformConfig(**entry[\"transform_config\"]))\n\n");
}

/* What only the card of one of several formats says. */
typedef struct part {
    const char *serve;       /* command that serves the folder; NULL: none */
    const char *measured;    /* format that the evaluation read; NULL: this one, or none */
} part;

/* Appends a card; `of` NULL: it is the only one, or the one above the folders of several formats. */
static calm_status put_card(calm_ctx *ctx, const calm_model *model, const calm_result *r, const part *of,
                            calm_text *out)
{
    const calm_config *config = calm_model_config(model);
    const calm_selection *selection = &r->recipe->selection;
    CALM_TRY(put_top(ctx, r, out));
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
    if (of && of->serve)
        calm_text_printf(out, "    %s\n\n", of->serve);
    if (r->recipe->how.adapter)
        calm_text_printf(out, "The LoRA adapter `%s` is merged into its weights.\n\n", r->recipe->how.adapter);
    put_transforms(config, out);
    calm_text_printf(out, "## Size\n\n```\n");
    calm_summary_size(r, out);
    if (of && of->measured)
        calm_text_printf(out, "  figures      losses are of the format %s\n", of->measured);
    calm_text_printf(out, "```\n\n## Plan and evidence\n\n");
    if (r->recipe->score_windows && !r->recipe->unscored)
        calm_text_printf(
            out, "One algorithm per unit, chosen by %s on %zu calibration tokens of %s (%zu windows).\n\n```\n",
            calm_score_name(selection->point, selection->score), r->calib.tokens, r->recipe->calib_name, r->calib.n);
    else
        calm_text_printf(out, "One algorithm for all units; they were not scored.\n\n```\n");
    CALM_TRY(put_tables(ctx, r, out));
    calm_text_printf(out, "```\n");
    if (!of)    /* the recipe of several formats is above their folders */
        calm_text_printf(out, "\nThe same run again: `calm quantize --recipe calm_recipe.json`.\n");
    return calm_text_check(ctx, out);    /* appends remember a failure, so one check is enough */
}

calm_status calm_card_tables(calm_ctx *ctx, const calm_checkpoint *checkpoint, const calm_exporter *exporter,
                             const char **out)
{
    const calm_inputs *in = checkpoint->in;
    calm_outer_plan outer;
    CALM_TRY(calm_formats_outer(ctx, &in->recipe->formats, exporter, in->model, &checkpoint->result->plan, &outer));
    CALM_TRY(calm_outer_describe(ctx, &outer, out));
    if (!checkpoint->fit->stats.gram || !*out || !outer.scheme[CALM_OUTER_HEAD].bits)
        return CALM_OK;
    return calm_strf(ctx, ctx->out, out, "%s by %s", *out, checkpoint->fit->algorithm);
}

/* ---- files ---- */

static calm_status write_card(calm_ctx *ctx, const calm_model *model, const calm_result *r, const part *of,
                              const char *dir)
{
    CALM_SCOPED_TEXT(text);
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, "README.md"));
    CALM_TRY(put_card(ctx, model, r, of, &text));
    return calm_write_file(ctx, path, text.data, text.length);
}

/* Finds what the card in `folder` says that others do not; r has one format, the folder's. */
static calm_status find_part(calm_ctx *ctx, const calm_result *r, const char *folder, part *out)
{
    const calm_formats *formats = &r->recipe->formats;
    const calm_exporter *exporter = calm_formats_at(formats, 0);
    char *name, *place;
    *out = (part){0};
    CALM_TRY(calm_format_name(ctx, exporter, &name));
    if (calm_outputs_served(r, name)) {
        CALM_TRY(calm_outputs_place(ctx, formats, exporter, folder, &place));
        CALM_TRY(calm_strf(ctx, ctx->scratch, &out->serve, "%s DIRECTORY%s%s", exporter->serve,
                           exporter->file ? "/" : "", exporter->file ? calm_path_name(place) : ""));
    }
    if (!r->evaluates || !r->measured || r->measured == exporter)
        return CALM_OK;
    CALM_TRY(calm_format_name(ctx, r->measured, &name));
    out->measured = name;
    return CALM_OK;
}

/* Writes the card of one of several formats, as if the run had written no other. */
static calm_status write_part(calm_ctx *ctx, const calm_checkpoint *checkpoint, size_t index, const char *dir)
{
    const calm_formats *formats = &checkpoint->in->recipe->formats;
    const calm_exporter *exporter = calm_formats_at(formats, index);
    calm_recipe recipe = *checkpoint->in->recipe;
    calm_inputs in = *checkpoint->in;
    calm_result result = *checkpoint->result;
    char *folder, *name;
    part of;
    if (!exporter->serve)    /* no model, but a list of types or an importance matrix */
        return CALM_OK;
    recipe.formats = (calm_formats){.exporters = formats->exporters + index, .n = 1, .options = formats->options};
    in.recipe = result.recipe = &recipe;
    result.bits_per_weight = calm_plan_bits(&in, &result.plan);
    CALM_TRY(calm_format_name(ctx, exporter, &name));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &folder, dir, name));
    CALM_TRY(calm_outputs_bytes(ctx, &recipe.formats, folder, &result.bytes_after));
    CALM_TRY(calm_card_tables(ctx, checkpoint, exporter, &result.tables));
    CALM_TRY(find_part(ctx, &result, folder, &of));
    return write_card(ctx, checkpoint->in->model, &result, &of, folder);
}

calm_status calm_cards_write(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir)
{
    const size_t n = calm_formats_count(&checkpoint->in->recipe->formats);
    CALM_TRY(write_card(ctx, checkpoint->in->model, checkpoint->result, NULL, dir));
    for (size_t i = 0; n > 1 && i < n; i++)
        CALM_TRY(write_part(ctx, checkpoint, i, dir));
    return CALM_OK;
}
