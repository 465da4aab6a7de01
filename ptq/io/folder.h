/* Files below a directory, by name: what a push sends and a signature covers. */
#ifndef CALM_IO_FOLDER_H
#define CALM_IO_FOLDER_H

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
 * calm_folder_take.  CALM_ENOTFOUND: no such directory.  CALM_EARG: a link under CALM_FOLDER_NO_LINKS, more than 10,000
 * files or more than 4 folders in each other. */
calm_status calm_folder_files(calm_ctx *ctx, const char *dir, int take, calm_folder_file **out, size_t *n);

#endif
