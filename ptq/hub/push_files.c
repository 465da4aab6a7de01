/* The files below a directory, by name. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "ptq/hub/push_impl.h"

#define FILES_MAX  ((size_t)10000)
#define DEPTH_MAX  4

typedef struct listing {
    calm_push_file *files;    /* [n] on the heap, of `room` */
    size_t n, room;
} listing;

static void clear_listing(listing *l)
{
    free(l->files);
}

static calm_status add_file(calm_ctx *ctx, const char *path, const char *name, size_t bytes, listing *l)
{
    const char *fault = calm_hub_name_fault(name, strlen(name));
    if (fault)
        return calm_fail(ctx, CALM_EARG, "%s: a repository cannot have this name: it %s", path, fault);
    if (l->n == FILES_MAX)
        return calm_fail(ctx, CALM_EARG, "%s: more than %zu files; expected a checkpoint", path, FILES_MAX);
    if (l->n == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        calm_push_file *files = realloc(l->files, room * sizeof *files);
        if (!files)
            return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
        l->files = files;
        l->room = room;
    }
    l->files[l->n++] = (calm_push_file){.name = name, .path = path, .bytes = bytes};
    return CALM_OK;
}

static calm_status list_below(calm_ctx *ctx, const char *dir, const char *prefix, int depth, listing *l);

/* One entry of a directory: hidden ones and what is no file are left out. */
static calm_status add_entry(calm_ctx *ctx, const char *dir, const char *prefix, const char *entry, int depth,
                             listing *l)
{
    char *path, *name;
    struct stat info;
    if (entry[0] == '.')
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, entry));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s%s%s", prefix, prefix[0] ? "/" : "", entry));
    if (stat(path, &info) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot read", path);
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
    return strcmp(((const calm_push_file *)a)->name, ((const calm_push_file *)b)->name);
}

/* Of several formats each folder has its own. */
static bool has_model(const listing *l)
{
    bool any = false;
    for (size_t i = 0; i < l->n; i++)
        any |= strcmp(calm_path_name(l->files[i].name), "config.json") == 0 ||
               calm_text_ends_with(l->files[i].name, ".gguf");
    return any;
}

calm_status calm_hub_push_files(calm_ctx *ctx, const char *dir, calm_push_file **out, size_t *n)
{
    CALM_SCOPED(listing, clear_listing) l = {NULL};
    *n = 0;
    if (!calm_is_directory(dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory; expected one that calm quantize has written",
                         dir);
    CALM_TRY(list_below(ctx, dir, "", 0, &l));
    if (!has_model(&l))
        return calm_fail(ctx, CALM_EARG, "%s: no config.json and no GGUF file in it; expected a checkpoint that calm "
                         "quantize has written", dir);
    qsort(l.files, l.n, sizeof *l.files, by_name);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, l.n));
    memcpy(*out, l.files, l.n * sizeof *l.files);
    *n = l.n;
    return CALM_OK;
}
