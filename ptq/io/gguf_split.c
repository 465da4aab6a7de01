/* GGUF models in several files. */
#include "ptq/io/gguf_split.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/io/gguf_impl.h"

#define SUFFIX ".gguf"
#define PART_LENGTH 20    /* "-00001-of-00003.gguf" */

/* ---- names ---- */

calm_status calm_gguf_split_path(calm_ctx *ctx, const char *path, size_t index, size_t n, char **out)
{
    const size_t length = strlen(path), end = strlen(SUFFIX);
    const bool named = length > end && strcmp(path + length - end, SUFFIX) == 0;
    if (n == 1)
        return calm_strf(ctx, ctx->out, out, "%s", path);
    return calm_strf(ctx, ctx->out, out, "%.*s-%05zu-of-%05zu" SUFFIX, (int)(named ? length - end : length), path,
                     index + 1, n);
}

/* Parses a name that ends in "-00001-of-00003.gguf"; *index counts from 0. */
static bool parse_name(const char *name, size_t *index, size_t *n)
{
    const size_t length = strlen(name);
    unsigned first = 0, last = 0;
    int read = 0;
    if (length <= PART_LENGTH || sscanf(name + length - PART_LENGTH, "-%5u-of-%5u.gguf%n", &first, &last, &read) != 2 ||
        read != PART_LENGTH || first < 1 || first > last)
        return false;
    *index = first - 1;
    *n = last;
    return true;
}

calm_status calm_gguf_split_find(calm_ctx *ctx, const char *path, char **out)
{
    const char *name = calm_path_name(path);
    const size_t stem = strlen(name) > strlen(SUFFIX) ? strlen(name) - strlen(SUFFIX) : strlen(name);
    char *folder;
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%s", path));
    if (calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(calm_path_parent(ctx, path, &folder));
    DIR *dir = opendir(folder);
    calm_status status = calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file; expected a GGUF file, or "
                                                        "name-00001-of-0000N.gguf of its parts", path);
    for (struct dirent *entry; dir && status == CALM_ENOTFOUND && (entry = readdir(dir));) {
        size_t index, n;
        if (strlen(entry->d_name) != stem + PART_LENGTH || strncmp(entry->d_name, name, stem) != 0 ||
            !parse_name(entry->d_name, &index, &n) || index)
            continue;
        calm_ctx_clear_failure(ctx);
        status = calm_path_join(ctx, ctx->out, out, folder, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return status;
}

/* ---- opening ---- */

static calm_status need_key(calm_ctx *ctx, const calm_gguf *file, const char *key, int64_t wanted)
{
    int64_t found;
    if (!calm_gguf_int(calm_gguf_find_key(file, key), 0, &found))
        return calm_fail(ctx, CALM_EFORMAT, "%s: has no key %s", calm_gguf_path(file), key);
    return found == wanted ? CALM_OK : calm_fail(ctx, CALM_EFORMAT, "%s: key %s is %lld, expected %lld",
                                                 calm_gguf_path(file), key, (long long)found, (long long)wanted);
}

/* Opens the parts after the first, and adds their tensors to the first. */
static calm_status join(calm_ctx *ctx, const char *stem, size_t n, calm_gguf *first)
{
    CALM_SCOPED_RESULTS(ctx);
    for (size_t i = 1; i < n; i++) {
        calm_gguf *part;
        char *path;
        CALM_TRY(calm_gguf_split_path(ctx, stem, i, n, &path));
        if (!calm_path_exists(path))
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: part %zu of %zu is missing; download or copy it", path, i + 1,
                             n);
        CALM_TRY(calm_gguf_open(ctx, path, &part));
        CALM_TRY(calm_gguf_adopt(ctx, first, part));
        CALM_TRY(need_key(ctx, part, "split.no", (int64_t)i));
        CALM_TRY(need_key(ctx, part, "split.count", (int64_t)n));
    }
    return need_key(ctx, first, "split.tensors.count", (int64_t)calm_gguf_n_tensors(first));
}

/* Opens all parts of a set; the name of `path` has part number `index`. */
static calm_status open_parts(calm_ctx *ctx, const char *path, size_t index, size_t n, calm_gguf **out)
{
    calm_gguf *first;
    char *stem, *name;
    CALM_TRY(calm_strf(ctx, ctx->out, &stem, "%.*s" SUFFIX, (int)(strlen(path) - PART_LENGTH), path));
    CALM_TRY(calm_gguf_split_path(ctx, stem, 0, n, &name));
    if (index && !calm_path_exists(name))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: part 1 of %zu is missing; download or copy it", name, n);
    CALM_TRY(calm_gguf_open(ctx, name, &first));
    calm_status status = need_key(ctx, first, "split.no", 0);
    if (status == CALM_OK)
        status = need_key(ctx, first, "split.count", (int64_t)n);
    if (status == CALM_OK)
        status = join(ctx, stem, n, first);
    if (status != CALM_OK)
        calm_gguf_close(first);
    else
        *out = first;
    return status;
}

calm_status calm_gguf_open_split(calm_ctx *ctx, const char *path, calm_gguf **out)
{
    int64_t count = 0;
    size_t index, n;
    *out = NULL;
    CALM_TRY(calm_gguf_open(ctx, path, out));
    if (!calm_gguf_int(calm_gguf_find_key(*out, "split.count"), 0, &count) || count <= 1)
        return CALM_OK;
    calm_gguf_close(*out);
    *out = NULL;
    if (!parse_name(path, &index, &n) || count != (int64_t)n)
        return calm_fail(ctx, CALM_EFORMAT, "%s: is one of %lld files by its key split.count, and its name does not "
                         "end in -0000N-of-%05lld.gguf: give it the name that llama-gguf-split gave it", path,
                         (long long)count, (long long)count);
    return open_parts(ctx, path, index, n, out);
}
