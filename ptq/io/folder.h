/* Lists the files below a directory, for a push or a signature, and checks whether a path is a model. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_folder_file {
    const char *name;    /* relative to the directory, with slashes */
    const char *path;
    size_t bytes;
} calm_folder_file;

typedef enum calm_folder_take {
    CALM_FOLDER_HIDDEN = 1,      /* include files and folders whose names begin with a dot    */
    CALM_FOLDER_NO_LINKS = 2,    /* a symbolic link is an error; otherwise links are followed */
} calm_folder_take;

/* Lists all regular files below `dir`: *out [*n] in ctx->out, in the order of strcmp of their names; `take` is a
 * bit set of calm_folder_take.  Fails as calm_folder_require; CALM_EARG: `dir` is a file, a link under
 * CALM_FOLDER_NO_LINKS, more than 10,000 files or more than 4 levels of folders. */
calm_status calm_folder_files(calm_ctx *ctx, const char *dir, int take, calm_folder_file **out, size_t *n);

/* Returns whether a directory contains safetensors, in one file or with an index. */
bool calm_folder_has_weights(const char *dir);

/* Replaces the path of a directory without safetensors by its model.gguf, as calm writes it, in ctx->out; leaves
 * other paths. */
calm_status calm_folder_gguf(calm_ctx *ctx, const char **path);

/* Checks that something exists at the path of a model, or that the first part of a GGUF file with this name exists,
 * and that it can be read.  CALM_ENOTFOUND, CALM_EIO, with the same sentence wherever a model is given. */
calm_status calm_folder_require(calm_ctx *ctx, const char *path);

/* Returns CALM_OK for a directory with config.json and safetensors, and for a GGUF file.  Otherwise it fails with a
 * message that says what the path is and what to give instead: the failures of calm_folder_require; CALM_EARG for
 * another file; CALM_ENOTFOUND for a repository in the hub's cache, a directory whose model is a GGUF file, and one
 * without config.json or weights; CALM_EUNSUPPORTED for weights of torch.save (pickles). */
calm_status calm_folder_require_model(calm_ctx *ctx, const char *path);
