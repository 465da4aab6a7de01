/* Lists the files below a directory by name. */
#include "ptq/io/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/array.h"
#include "ptq/base/file.h"

#define FILES_MAX  ((size_t)10000)
#define DEPTH_MAX  4

typedef struct listing {
    calm_folder_file *files;    /* [n] in ctx->out, with capacity `room` */
    size_t n, room;
    int take;
} listing;

static calm_status add_file(calm_ctx *ctx, const char *path, const char *name, size_t bytes, listing *l)
{
    if (l->n == FILES_MAX)
        return calm_fail(ctx, CALM_EARG, "%s: more than %zu files; expected a checkpoint", path, FILES_MAX);
    CALM_TRY(CALM_GROW(ctx, ctx->out, l->files, l->n, &l->room, l->n + 1));
    l->files[l->n++] = (calm_folder_file){.name = name, .path = path, .bytes = bytes};
    return CALM_OK;
}

static calm_status list_below(calm_ctx *ctx, const char *dir, const char *prefix, int depth, listing *l);

static calm_status add_entry(calm_ctx *ctx, const char *dir, const char *prefix, const char *entry, int depth,
                             listing *l)
{
    char *path, *name;
    struct stat info;
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0 || (entry[0] == '.' && !(l->take & CALM_FOLDER_HIDDEN)))
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, entry));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s%s%s", prefix, prefix[0] ? "/" : "", entry));
    if (((l->take & CALM_FOLDER_NO_LINKS) ? lstat : stat)(path, &info) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot read", path);
    if (S_ISLNK(info.st_mode))
        return calm_fail(ctx, CALM_EARG, "%s: a symbolic link; expected a file (copy the folder with cp -rL)", path);
    if (S_ISDIR(info.st_mode))
        return list_below(ctx, path, name, depth + 1, l);
    return S_ISREG(info.st_mode) ? add_file(ctx, path, name, (size_t)info.st_size, l) : CALM_OK;
}

static calm_status list_below(calm_ctx *ctx, const char *dir, const char *prefix, int depth, listing *l)
{
    struct dirent **entries;
    if (depth > DEPTH_MAX)
        return calm_fail(ctx, CALM_EARG, "%s: more than %d folders in each other; expected a checkpoint", dir,
                         DEPTH_MAX);
    const int n = scandir(dir, &entries, NULL, alphasort);
    if (n < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot read", dir);
    calm_status status = CALM_OK;
    for (int i = 0; i < n; i++) {
        if (status == CALM_OK)
            status = add_entry(ctx, dir, prefix, entries[i]->d_name, depth, l);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const calm_folder_file *)a)->name, ((const calm_folder_file *)b)->name);
}

static calm_status not_a_folder(calm_ctx *ctx, const char *path)
{
    char *dir;
    CALM_TRY(calm_path_parent(ctx, path, &dir));
    const bool model = calm_path_has(dir, "config.json") || calm_text_ends_with(path, ".gguf");
    return calm_fail(ctx, CALM_EARG, "%s: a file; expected the directory of a model%s%s", path, model ? ": " : "",
                     model ? dir : "");
}

calm_status calm_folder_files(calm_ctx *ctx, const char *dir, int take, calm_folder_file **out, size_t *n)
{
    listing l = {.take = take};
    *n = 0;
    *out = NULL;
    CALM_TRY(calm_folder_require(ctx, dir));
    if (!calm_is_directory(dir))
        return not_a_folder(ctx, dir);
    CALM_TRY(list_below(ctx, dir, "", 0, &l));
    if (l.n)
        qsort(l.files, l.n, sizeof *l.files, by_name);
    *out = l.files;
    *n = l.n;
    return CALM_OK;
}
