/* Lists the files below a directory by name, for a push or a signature, and says whether they are a model. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_folder_file {
    const char *name;    /* below the directory, with slashes */
    const char *path;
    size_t bytes;
} calm_folder_file;

typedef enum calm_folder_take {
    CALM_FOLDER_HIDDEN = 1,      /* also files and folders whose names begin with a dot       */
    CALM_FOLDER_NO_LINKS = 2,    /* a symbolic link is an error; otherwise links are followed */
} calm_folder_take;

/* All regular files below `dir`, *out [*n] in the order of strcmp of their names, in ctx->out; `take` are bits of
 * calm_folder_take.  The failures of calm_folder_is_there; CALM_EARG: a file, a link under CALM_FOLDER_NO_LINKS, more
 * than 10,000 files or more than 4 folders in each other. */
calm_status calm_folder_files(calm_ctx *ctx, const char *dir, int take, calm_folder_file **out, size_t *n);

/* Are there safetensors in a directory, in one file or by their index? */
bool calm_folder_has_weights(const char *dir);

/* In place of a directory without safetensors its model.gguf, as calm writes it, in ctx->out; other paths stay. */
calm_status calm_folder_gguf(calm_ctx *ctx, const char **path);

/* Is there anything at a path that is to be a model's, or the first part of a GGUF file by the whole's name, and may it
 * be read?  CALM_ENOTFOUND, CALM_EIO: the sentence that says so, the same wherever a model is given. */
calm_status calm_folder_is_there(calm_ctx *ctx, const char *path);

/* CALM_OK for a directory with config.json and safetensors, and for a GGUF file.  Otherwise the failure that says what
 * stands there and what to give: those of calm_folder_is_there; CALM_EARG for another file; CALM_ENOTFOUND for a
 * repository in the hub's cache, a directory whose model is a GGUF file, and one without config.json or weights;
 * CALM_EUNSUPPORTED for weights of torch.save (pickles). */
calm_status calm_folder_is_no_model(calm_ctx *ctx, const char *path);
