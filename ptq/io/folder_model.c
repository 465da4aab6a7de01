/* Recognises paths that are not a model calm can read, and says what to give instead. */
#include "ptq/io/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/gguf_split.h"

#define CONVERT "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW) of transformers writes safetensors"

/* Pickles of torch.save: loading one runs code from the file. */
static bool is_pickle(const char *name)
{
    return calm_text_ends_with(name, ".bin") || calm_text_ends_with(name, ".pt") || calm_text_ends_with(name, ".pth") ||
           calm_text_ends_with(name, ".ckpt");
}

/* Returns whether a file is pickled weights; trainers also pickle other state (training_args.bin, optimizer.pt). */
static int takes_pickles(const struct dirent *entry)
{
    static const char *const names[] = {"pytorch_model", "consolidated", "model"};
    bool weights = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        weights = weights || strncmp(entry->d_name, names[i], strlen(names[i])) == 0;
    return weights && is_pickle(entry->d_name);
}

static int takes_ggufs(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && calm_text_ends_with(entry->d_name, ".gguf");
}

/* Finds the first file of a directory, by name, that `filter` accepts, in ctx->scratch; NULL: none, or the
 * directory cannot be read. */
static calm_status first_of(calm_ctx *ctx, const char *dir, int (*filter)(const struct dirent *), char **out)
{
    struct dirent **entries;
    const int n = scandir(dir, &entries, filter, alphasort);
    calm_status status = CALM_OK;
    *out = NULL;
    if (n < 0)
        return CALM_OK;
    if (n > 0)
        status = calm_strf(ctx, ctx->scratch, out, "%s", entries[0]->d_name);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return status;
}

calm_status calm_folder_require(calm_ctx *ctx, const char *path)
{
    char *part;
    if (access(path, calm_is_directory(path) ? R_OK | X_OK : R_OK) == 0)
        return CALM_OK;
    if (errno != ENOENT && errno != ENOTDIR)
        return calm_fail_errno(ctx, errno, "%s: cannot read", path);
    if (calm_text_ends_with(path, ".gguf"))
        return calm_gguf_split_find(ctx, path, &part);
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory; expected that of a model, with config.json and "
                                          "safetensors", path);
}

static calm_status refuse_part(calm_ctx *ctx, const char *path)
{
    char *dir;
    if (!calm_is_file(path) || calm_file_begins(path, "GGUF") || calm_text_ends_with(path, ".gguf"))
        return CALM_OK;
    CALM_TRY(calm_path_parent(ctx, path, &dir));
    if (calm_path_has(dir, "config.json"))
        return calm_fail(ctx, CALM_EARG, "%s: a file of a model; give its directory, %s", path, dir);
    return calm_fail(ctx, CALM_EARG, "%s: expected a directory with config.json and safetensors, or a GGUF file%s",
                     path, is_pickle(path) ? "; this looks like a pickle: " CONVERT : "");
}

bool calm_folder_has_weights(const char *dir)
{
    return calm_path_has(dir, "model.safetensors") || calm_path_has(dir, "model.safetensors.index.json");
}

calm_status calm_folder_gguf(calm_ctx *ctx, const char **path)
{
    char *file;
    if (!calm_is_directory(*path) || calm_folder_has_weights(*path))
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->out, &file, *path, "model.gguf"));
    if (calm_is_file(file))
        *path = file;
    return CALM_OK;
}

/* Suggests the first subfolder with a config.json: `path` may contain several exported formats, or be the working
 * folder. */
static calm_status refuse_parent(calm_ctx *ctx, const char *path)
{
    struct dirent **entries;
    const int n = scandir(path, &entries, NULL, alphasort);
    calm_status status = CALM_OK;
    for (int i = 0; i < n; i++) {
        char *folder;
        if (status == CALM_OK && entries[i]->d_name[0] != '.') {
            status = calm_path_join(ctx, ctx->scratch, &folder, path, entries[i]->d_name);
            if (status == CALM_OK && calm_path_has(folder, "config.json"))
                status = calm_fail(ctx, CALM_ENOTFOUND, "%s: no config.json here; did you mean %s?", path, folder);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return status;
}

calm_status calm_folder_require_model(calm_ctx *ctx, const char *path)
{
    char *gguf, *pickle;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_folder_require(ctx, path));
    if (!calm_is_directory(path))
        return refuse_part(ctx, path);
    const bool config = calm_path_has(path, "config.json");
    if (config && calm_folder_has_weights(path))
        return CALM_OK;
    if (calm_path_has(path, "snapshots") && calm_path_has(path, "refs"))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: a repository in the hub's cache; give the model's name, ORG/NAME, "
                                              "or one of the folders in %s/snapshots", path, path);
    CALM_TRY(first_of(ctx, path, takes_ggufs, &gguf));
    CALM_TRY(first_of(ctx, path, takes_pickles, &pickle));
    if (gguf && !calm_folder_has_weights(path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no safetensors here; did you mean the GGUF file %s/%s?", path, path,
                         gguf);
    if (pickle && !calm_folder_has_weights(path))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s is a pickle, which calm does not read, since loading one runs "
                                                 "code; " CONVERT, path, pickle);
    if (!config)
        CALM_TRY(refuse_parent(ctx, path));
    if (!config)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no config.json here; expected a checkpoint with config.json, "
                                              "safetensors and tokenizer.json, or a GGUF file", path);
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no weights here; expected model.safetensors, or "
                                          "model.safetensors.index.json and its parts: download the model again", path);
}
