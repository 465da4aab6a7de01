/* Digests of directories and texts for locks.
 *
 * Each file has a digest; each tensor has another digest of only its bytes, so that two checkpoints with other shards
 * or headers can be recognized as the same weights. */
#include <string.h>

#include "ptq/lock/lock.h"
#include "ptq/base/file.h"
#include "ptq/export/companions.h"
#include "ptq/export/export.h"
#include "ptq/finish/finish.h"
#include "ptq/weights/adapter.h"

typedef char calm_digest[CALM_SHA256_HEX];

/* ---- tensors ---- */

/* Adds the digests of all tensors of a set by name, as member "tensors". */
static calm_status hash_set(calm_ctx *ctx, const calm_safetensors *set, calm_json *out)
{
    CALM_TRY(calm_safetensors_hash(ctx, set));
    calm_json *tensors = calm_json_new_object();
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {    /* sorted by name over all shards */
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        calm_json_set_string(tensors, tensor->name, calm_safetensors_digest(set, tensor));
    }
    calm_json_set(out, "tensors", tensors);
    return CALM_OK;
}

/* Does the same for a directory, whose files are mapped, so that nothing is copied to memory. */
static calm_status hash_tensors(calm_ctx *ctx, const char *dir, calm_json *out)
{
    CALM_SCOPED_SAFETENSORS(set);
    CALM_TRY(calm_safetensors_open(ctx, dir, &set));
    return hash_set(ctx, set, out);
}

/* ---- files ---- */

/* Adds the digests of files as member "files". */
static void set_files(const calm_written_file *files, size_t n, calm_json *out)
{
    calm_json *object = calm_json_new_object();
    for (size_t i = 0; i < n; i++)
        calm_json_set_string(object, files[i].name, files[i].sha256);
    calm_json_set(out, "files", object);
}

/* ---- parts of a lock ---- */

/* Hashes files first, because their names show whether there are tensors to open.  A single checkpoint is in `dir`
 * itself; several formats have a folder each, and the digests of their files are enough. */
calm_status calm_lock_outputs(calm_ctx *ctx, const char *dir, const calm_written_file *files, size_t n, calm_json **out)
{
    CALM_SCOPED_JSON(outputs);
    calm_written_file *found;
    bool tensors = false;
    if (!calm_is_directory(dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory", dir);
    if (!files) {
        CALM_TRY(calm_outputs_digests(ctx, dir, &found, &n));
        files = found;
    }
    for (size_t i = 0; i < n; i++)
        tensors |= calm_text_ends_with(files[i].name, ".safetensors") && !strchr(files[i].name, '/');
    outputs = calm_json_new_object();
    set_files(files, n, outputs);
    if (tensors)
        CALM_TRY(hash_tensors(ctx, dir, outputs));
    else
        calm_json_set(outputs, "tensors", calm_json_new_object());
    *out = outputs;
    outputs = NULL;
    return CALM_OK;
}

/* Hashes the files of a model that a run reads or copies, except weights, whose tensors have digests.  A changed
 * license changes the output, so it is an input. */
static calm_status hash_model_files(calm_ctx *ctx, const char *dir, calm_json *out)
{
    calm_words names = {0}, companions;
    calm_written_file *files;
    CALM_TRY(calm_words_add(ctx, &names, calm_is_file(dir) ? calm_path_name(dir) : "config.json"));
    CALM_TRY(calm_export_list_companions(ctx, dir, &companions, NULL));
    for (size_t i = 0; i < companions.n; i++)
        CALM_TRY(calm_words_add(ctx, &names, companions.of[i]));
    CALM_TRY(calm_files_digests(ctx, ctx->scratch, dir, names.of, names.n, &files));
    set_files(files, names.n, out);
    return CALM_OK;
}

/* Adds an adapter's files to those of the model, as "adapter/NAME". */
static calm_status hash_adapter(calm_ctx *ctx, const char *dir, calm_json *inputs)
{
    static const char *const names[] = {CALM_ADAPTER_CONFIG, CALM_ADAPTER_TENSORS};
    calm_json *files = calm_json_new_object();
    const char *key;
    const calm_json *value;
    calm_written_file *found;
    char *name;
    for (void *iter = NULL; calm_json_next(calm_json_get(inputs, "files"), &iter, &key, &value);)
        calm_json_set(files, key, calm_json_copy(value));
    calm_json_set(inputs, "files", files);    /* `inputs` owns it now */
    CALM_TRY(calm_files_digests(ctx, ctx->scratch, dir, (const char **)(uintptr_t)names, 2, &found));
    for (size_t i = 0; i < 2; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "adapter/%s", found[i].name));
        calm_json_set_string(files, name, found[i].sha256);
    }
    return CALM_OK;
}

/* Reads every byte of the model, unless its tensors were hashed with `tensors`. */
calm_status calm_lock_inputs(calm_ctx *ctx, const calm_recipe *recipe, const calm_safetensors *tensors, calm_json **out)
{
    CALM_SCOPED_JSON(inputs);
    CALM_SCOPED_JSON(texts);
    calm_digest digest;
    inputs = calm_json_new_object();
    texts = calm_json_new_object();
    CALM_TRY(hash_model_files(ctx, recipe->model.dir, inputs));
    if (calm_is_file(recipe->model.dir))    /* it is among the files as a whole */
        calm_json_set(inputs, "tensors", calm_json_new_object());
    else if (tensors && !recipe->how.adapter)    /* with an adapter they are the merged model's */
        CALM_TRY(hash_set(ctx, tensors, inputs));
    else
        CALM_TRY(hash_tensors(ctx, recipe->model.dir, inputs));
    if (recipe->how.adapter)
        CALM_TRY(hash_adapter(ctx, recipe->how.adapter, inputs));
    CALM_TRY(calm_recipe_text_digest(ctx, recipe, digest));
    calm_json_set_string(texts, "calibration", digest);
    if (recipe->imatrix) {
        CALM_TRY(calm_sha256_file(ctx, recipe->imatrix, digest));
        calm_json_set_string(texts, "imatrix", digest);
    }
    if (recipe->eval_path) {
        CALM_TRY(calm_sha256_file(ctx, recipe->eval_path, digest));
        calm_json_set_string(texts, "evaluation", digest);
    }
    *out = CALM_EXTEND(inputs, CALM_KV("texts", texts));
    inputs = texts = NULL;
    return CALM_OK;
}
