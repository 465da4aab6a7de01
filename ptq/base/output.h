/* Outputs: checks that a command can write to a path without destroying one of its inputs or a file of the user.
 *
 * A folder that calm writes contains the file CALM_OUTPUT_LIST, which names every file that calm wrote there.
 * `force` replaces a folder only if that file exists and names everything else in the folder. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"

#define CALM_OUTPUT_LIST ".calm-files"
/* Default name of the signature in a folder (calm sign). */
#define CALM_OUTPUT_SIGNATURE "model.sig"

/* Fails with CALM_EARG if `target` is the same path as one of the inputs (files or folders; NULL items are skipped)
 * or the working directory, or a folder that contains one of them.  Existing paths are compared by device and
 * inode, so that links, mounts and `..` do not matter; other paths by their names. */
calm_status calm_output_apart(calm_ctx *ctx, const char *target, const calm_words *inputs);

/* Checks that the folder `target` may be written.  CALM_EARG: it contains a file that calm did not write, is not a
 * folder, or does not exist and its name ends in .gguf or .safetensors.  CALM_EEXIST: calm wrote it, and `force` is
 * not given.  CALM_EIO: no file can be created in the nearest folder above that exists.  Fails as calm_output_apart. */
calm_status calm_output_folder(calm_ctx *ctx, const char *target, bool force, const calm_words *inputs);

/* Checks that the file `target` may be written.  CALM_EEXIST: it exists, and `force` is not given.  CALM_EARG: it
 * is a folder or another special file, it is in a folder that is an input, or it is a file that is not empty and
 * does not begin with `begins` (NULL: anything).  CALM_EIO as calm_output_folder.  Fails as calm_output_apart. */
calm_status calm_output_file(calm_ctx *ctx, const char *target, bool force, const char *begins,
                             const calm_words *inputs);

/* Writes CALM_OUTPUT_LIST into a folder whose files are complete. */
calm_status calm_output_list(calm_ctx *ctx, const char *folder);
