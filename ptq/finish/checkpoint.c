/* Checkpoint: the files next to the weights, and the order in which files are written.
 *
 * All files are written to a temporary directory, which is renamed at the end: under the output's name there is either
 * a complete checkpoint or none. */
#include "ptq/finish/finish.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "ptq/export/export.h"

/* ---- files next to the weights ---- */

/* Writes the given recipe document, or else the resolved recipe; `calm quantize --recipe` reads the document. */
static calm_status write_recipe(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir)
{
    const calm_recipe *recipe = checkpoint->in->recipe;
    CALM_SCOPED_JSON(json);
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, "calm_recipe.json"));
    if (recipe->document && !checkpoint->recipe)
        CALM_TRY(calm_json_parse(ctx, "calm_recipe.json", recipe->document, strlen(recipe->document), &json));
    else
        json = checkpoint->recipe ? calm_json_copy(checkpoint->recipe) : calm_recipe_json(recipe);
    /* The recipe that makes the checkpoint again: of a run the user's document, of a reassembly the document of its
     * run. */
    return calm_json_save(ctx, path, json);
}

/* ---- artifacts ---- */

/* Returns the role of a file for the store.  Formats name their weights; all other files belong to the tokenizer. */
static const char *file_role(const char *name)
{
    name = calm_path_name(name);    /* several formats have a folder each */
    if (strstr(name, ".safetensors") || strstr(name, ".gguf"))
        return "weights";
    if (strcmp(name, "README.md") == 0)
        return "card";
    if (strcmp(name, "calm_recipe.json") == 0)
        return "recipe";
    return strcmp(name, "config.json") == 0 || strcmp(name, "generation_config.json") == 0 ? "config" : "tokenizer";
}

static calm_status put_artifact(calm_ctx *ctx, const calm_result *result, const calm_written_file *file)
{
    char *path;
    struct stat info;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, result->recipe->output, file->name));
    if (stat(path, &info) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot stat", path);
    const calm_store_artifact row = {result->run_id, path, file_role(file->name), info.st_size, file->sha256};
    return calm_store_artifact_put(ctx, result->store, &row);
}

/* Digests are computed under the final names, so that rows and lock describe the final files. */
calm_status calm_checkpoint_put(calm_ctx *ctx, calm_result *result)
{
    CALM_TRY(calm_outputs_digests(ctx, result->recipe->output, &result->files, &result->n_files));
    /* One transaction: a run has all of its artifacts or none. */
    CALM_SCOPED_TRANSACTION(ctx, result->store);
    for (size_t i = 0; i < result->n_files; i++)
        CALM_TRY(put_artifact(ctx, result, &result->files[i]));
    return calm_store_commit(ctx, result->store);
}

/* ---- writing ---- */

/* Writes all files, in this order: weights, whose sizes are measured; then `written` (evaluation, gates) may read them;
 * then recipe and cards, which need all figures. */
static calm_status fill(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir)
{
    calm_result *result = checkpoint->result;    /* receives sizes and bits */
    calm_outer_plan outer;
    CALM_TRY(calm_outputs_write(ctx, checkpoint, dir));
    result->bytes_before = (int64_t)checkpoint->in->float_bytes;
    CALM_TRY(calm_outputs_bytes(ctx, &checkpoint->in->recipe->formats, dir, &result->bytes_after));
    result->bits_per_weight = calm_plan_bits(checkpoint->in, &result->plan);
    CALM_TRY(calm_outputs_measured(ctx, checkpoint->in, &result->plan, &result->measured, &outer));
    CALM_TRY(calm_card_tables(ctx, checkpoint, calm_formats_at(&checkpoint->in->recipe->formats, 0), &result->tables));
    if (checkpoint->written)
        CALM_TRY(checkpoint->written(ctx, checkpoint->user, dir));
    CALM_TRY(write_recipe(ctx, checkpoint, dir));
    return calm_cards_write(ctx, checkpoint, dir);
}

calm_status calm_checkpoint_write(calm_ctx *ctx, const calm_checkpoint *checkpoint)
{
    const char *output = checkpoint->in->recipe->output;
    calm_export_place place;
    CALM_TRY(calm_export_begin(ctx, output, &place));
    if (fill(ctx, checkpoint, place.temporary) != CALM_OK || calm_export_commit(ctx, &place, output) != CALM_OK) {
        /* Removes the temporary directory and returns the first failure. */
        calm_export_abandon(ctx, &place);
        return ctx->status;
    }
    return CALM_OK;
}
