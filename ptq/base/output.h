/* Outputs: may a command write to this path without destroying one of its inputs or a file of the user?
 *
 * A folder that calm writes has the file CALM_OUTPUT_LIST, which names every file that calm wrote there.  `force`
 * replaces a folder only when that file is there and names everything else in it. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"

#define CALM_OUTPUT_LIST ".calm-files"

/* CALM_EARG: `target` is, in any spelling, one of the inputs (files or folders; NULL items are skipped) or a folder
 * that holds one, or the working directory or a folder that holds it.  Spellings are compared by device and inode, so
 * that links, mounts and `..` do not matter; paths that do not exist yet by their names. */
calm_status calm_output_apart(calm_ctx *ctx, const char *target, const calm_words *inputs);

/* May the folder `target` be written?  Yes when it does not exist.  CALM_EARG: it holds a file that calm did not write
 * (an empty folder holds none), is no folder, or has a new one's name that ends as files do, in .gguf or .safetensors.
 * CALM_EEXIST: calm may replace it, and `force` is not given.  CALM_EIO: files cannot be made in the nearest folder
 * above that exists.  Fails as calm_output_apart. */
calm_status calm_output_folder(calm_ctx *ctx, const char *target, bool force, const calm_words *inputs);

/* May the file `target` be written?  CALM_EEXIST: it exists, and `force` is not given.  CALM_EARG: it is a folder or
 * another special file, it is in a folder that is an input, or its bytes do not begin with `begins` (NULL: anything; an
 * empty file will do).  CALM_EIO as calm_output_folder.  Fails as calm_output_apart. */
calm_status calm_output_file(calm_ctx *ctx, const char *target, bool force, const char *begins,
                             const calm_words *inputs);

/* Write CALM_OUTPUT_LIST into a folder whose files are all written. */
calm_status calm_output_list(calm_ctx *ctx, const char *folder);
