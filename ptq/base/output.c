/* Checks of output paths. */
#include "ptq/base/output.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"

#define LIST_BYTES ((size_t)16 << 20)    /* lists of calm are shorter             */
#define MOST_DEPTH 4                     /* folders below an output: formats, templates */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* ---- paths, existing or not ---- */

/* Appends the components of a path to the real path of its existing part: skips ".", and removes one component for
 * "..". */
static void append_parts(calm_text *out, const char *rest)
{
    for (const char *at = rest; *at;) {
        const size_t length = strcspn(at, "/");
        if (length == 2 && at[0] == '.' && at[1] == '.') {
            const char *slash = strrchr(out->data, '/');
            out->length = slash ? (size_t)(slash - out->data) : 0;
            out->data[out->length] = '\0';
        } else if (length && !(length == 1 && at[0] == '.')) {
            calm_text_printf(out, "/%.*s", (int)length, at);
        }
        at += length + (at[length] == '/');
    }
}

/* Computes the absolute path without links: the existing part as the system resolves it, the rest by name. */
static calm_status absolute(calm_ctx *ctx, const char *path, calm_text *out)
{
    char *begin, *real;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &begin, "%s%s", *path == '/' ? "" : "./", path));
    size_t length = strlen(begin);
    while (!(real = realpath(begin, NULL)) && length > 0) {    /* shorter by one part */
        while (length > 0 && begin[length - 1] == '/')
            length--;
        while (length > 0 && begin[length - 1] != '/')
            length--;
        begin[length] = '\0';
    }
    if (!real)
        return calm_fail_errno(ctx, errno, "%s: cannot find the working directory", path);
    calm_text_printf(out, "%s", strcmp(real, "/") != 0 ? real : "");
    free(real);
    if (calm_text_check(ctx, out) == CALM_OK)
        append_parts(out, path + (length - (*path == '/' ? 0 : 2)));
    return calm_text_check(ctx, out);
}

/* Returns whether the folder `target` is or contains the absolute path: compares device and inode with every
 * parent. */
static bool holds(const struct stat *target, const char *path)
{
    char step[4096];
    struct stat info;
    if (strlen(path) >= sizeof step)
        return false;
    strcpy(step, path);
    for (;;) {
        if (stat(*step ? step : "/", &info) == 0 && is_same(target, &info))
            return true;
        if (!*step)
            return false;
        char *slash = strrchr(step, '/');
        *(slash ? slash : step) = '\0';
    }
}

/* Does the same by names. */
static bool is_below(const char *path, const char *folder)
{
    const size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Fails if the target is or contains `path`, which the message calls `what`. */
static calm_status keep_apart(calm_ctx *ctx, const char *target, const calm_text *place, const char *what,
                              const char *path)
{
    struct stat info;
    CALM_SCOPED_TEXT(other);
    CALM_TRY(absolute(ctx, path, &other));
    const bool there = stat(target, &info) == 0;
    if (!is_below(other.data, place->data) && !(there && holds(&info, other.data)))
        return CALM_OK;
    struct stat same;
    const bool equal =
        strcmp(other.data, place->data) == 0 || (there && stat(path, &same) == 0 && is_same(&info, &same));
    return calm_fail(ctx, CALM_EARG, "%s: the output %s %s; nothing was written, give another name", target,
                     equal ? "is" : "would hold", what);
}

static calm_status keep_input_apart(calm_ctx *ctx, const char *target, const calm_text *place, const char *path)
{
    char *what;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &what, "the input %s", path));
    return keep_apart(ctx, target, place, what, path);
}

/* A snapshot of the hub's cache consists of links: refuses a target that contains what they point to. */
static calm_status keep_links_apart(calm_ctx *ctx, const char *target, const calm_text *place, const char *folder)
{
    DIR *dir = opendir(folder);
    calm_status status = CALM_OK;
    for (struct dirent *entry; dir && status == CALM_OK && (entry = readdir(dir));) {
        char *path;
        CALM_SCOPED_SCRATCH(ctx);
        if (entry->d_type != DT_LNK)
            continue;
        status = calm_path_join(ctx, ctx->scratch, &path, folder, entry->d_name);
        if (status == CALM_OK)
            status = keep_input_apart(ctx, target, place, path);
    }
    if (dir)
        closedir(dir);
    return status;
}

calm_status calm_output_apart(calm_ctx *ctx, const char *target, const calm_words *inputs)
{
    CALM_SCOPED_TEXT(place);
    if (!*target)
        return calm_fail(ctx, CALM_EARG, "the output's name is empty");
    CALM_TRY(absolute(ctx, target, &place));
    CALM_TRY(keep_apart(ctx, target, &place, "the working directory", "."));
    for (size_t i = 0; inputs && i < inputs->n; i++) {
        if (!inputs->of[i])
            continue;
        CALM_TRY(keep_input_apart(ctx, target, &place, inputs->of[i]));
        if (calm_is_directory(inputs->of[i]))
            CALM_TRY(keep_links_apart(ctx, target, &place, inputs->of[i]));
    }
    return CALM_OK;
}

/* ---- files that calm wrote ---- */

/* Appends the files below a folder; `prefix` is the folder's name in the list. */
static calm_status list_files(calm_ctx *ctx, const char *folder, const char *prefix, int depth, calm_words *out)
{
    DIR *dir = opendir(folder);
    calm_status status = dir ? CALM_OK : calm_fail_errno(ctx, errno, "%s: cannot read the folder", folder);
    for (struct dirent *entry; status == CALM_OK && (entry = readdir(dir));) {
        char *path, *name;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        status = calm_path_join(ctx, ctx->scratch, &path, folder, entry->d_name);
        if (status == CALM_OK)
            status = calm_strf(ctx, ctx->scratch, &name, "%s%s", prefix, entry->d_name);
        if (status != CALM_OK)
            break;
        struct stat info;
        if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && depth < MOST_DEPTH) {
            status = calm_strf(ctx, ctx->scratch, &name, "%s/", name);
            if (status == CALM_OK)
                status = list_files(ctx, path, name, depth + 1, out);
        } else if (strcmp(name, CALM_OUTPUT_LIST) != 0) {
            status = calm_words_add(ctx, out, name);
        }
    }
    if (dir)
        closedir(dir);
    return status;
}

static calm_status sorted_files(calm_ctx *ctx, const char *folder, calm_words *out)
{
    *out = (calm_words){0};
    CALM_TRY(list_files(ctx, folder, "", 0, out));
    if (out->n)
        qsort(out->of, out->n, sizeof *out->of, calm_words_compare);
    return CALM_OK;
}

calm_status calm_output_list(calm_ctx *ctx, const char *folder)
{
    char *path;
    calm_words files;
    CALM_SCOPED_TEXT(text);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(sorted_files(ctx, folder, &files));
    for (size_t i = 0; i < files.n; i++)
        calm_text_printf(&text, "%s\n", files.of[i]);
    CALM_TRY(calm_text_check(ctx, &text));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, folder, CALM_OUTPUT_LIST));
    return calm_write_file(ctx, path, text.data ? text.data : "", text.length);
}

/* Returns whether the list has a line with this name. */
static bool has_line(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; *at;) {
        const size_t line = strcspn(at, "\n");
        if (line == length && memcmp(at, name, length) == 0)
            return true;
        at += line + (at[line] == '\n');
    }
    return false;
}

/* Fails if an existing folder contains a file that its list does not name. */
static calm_status all_ours(calm_ctx *ctx, const char *target)
{
    char *path, *list = NULL;
    size_t n;
    calm_words files;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(sorted_files(ctx, target, &files));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, target, CALM_OUTPUT_LIST));
    if (calm_path_exists(path))
        CALM_TRY(calm_read_file(ctx, path, LIST_BYTES, &list, &n));
    for (size_t i = 0; i < files.n; i++)
        if (!list || !has_line(list, files.of[i]))
            return calm_fail(ctx, CALM_EARG, "%s: holds %s, which calm did not write; `force` replaces only a folder "
                             "that calm wrote: give another `output`, or move the file", target, files.of[i]);
    return CALM_OK;
}

/* ---- checks ---- */

/* Fails if no file can be created in the nearest existing folder above `target`: existing files are replaced by new
 * ones.  Checked before a run, which may take hours. */
static calm_status check_parent(calm_ctx *ctx, const char *target)
{
    char *folder;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_path_parent(ctx, target, &folder));
    CALM_TRY(calm_path_existing(ctx, folder, &folder));
    if (!calm_is_directory(folder))
        return calm_fail(ctx, CALM_EARG, "%s: cannot be written: %s is not a directory", target, folder);
    if (access(folder, W_OK | X_OK) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot be written in %s", target, folder);
    return CALM_OK;
}

/* Refuses a new folder with the name of a file, under which users would look for the output. */
static calm_status check_name(calm_ctx *ctx, const char *target)
{
    static const char *const ends[] = {".gguf", ".safetensors"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (calm_text_ends_with(target, ends[i]) && !calm_is_directory(target))
            return calm_fail(ctx, CALM_EARG, "%s: `output` names a folder, in which model%s is written; leave %s out",
                             target, ends[i], ends[i]);
    return CALM_OK;
}

calm_status calm_output_folder(calm_ctx *ctx, const char *target, bool force, const calm_words *inputs)
{
    char *end;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(check_name(ctx, target));
    CALM_TRY(calm_output_apart(ctx, target, inputs));
    CALM_TRY(calm_path_target(ctx, target, &end));
    if (!calm_path_exists(end))
        return check_parent(ctx, end);
    if (!calm_is_directory(end))
        return calm_fail(ctx, CALM_EARG, "%s: is no folder; give another `output`", target);
    CALM_TRY(all_ours(ctx, target));
    return force ? check_parent(ctx, end)
                 : calm_fail(ctx, CALM_EEXIST, "%s: exists already; give another `output`, or `force` to replace it",
                             target);
}

/* Returns whether the file begins with this text, or is empty. */
static bool begins_with(const char *path, const char *text)
{
    char start[64];
    const size_t length = strlen(text) < sizeof start ? strlen(text) : sizeof start;
    FILE *stream = fopen(path, "rb");
    const size_t n = stream ? fread(start, 1, length, stream) : 0;
    const bool readable = stream && !ferror(stream);
    if (stream)
        fclose(stream);
    return readable && (n == 0 || (n == length && memcmp(start, text, length) == 0));
}

/* Fails if the target is an existing file in an input's folder, and so belongs to the input. */
static calm_status outside_of(calm_ctx *ctx, const char *target, const calm_words *inputs)
{
    CALM_SCOPED_TEXT(place);
    CALM_TRY(absolute(ctx, target, &place));
    for (size_t i = 0; inputs && i < inputs->n; i++) {
        struct stat folder;
        if (inputs->of[i] && stat(inputs->of[i], &folder) == 0 && S_ISDIR(folder.st_mode) && holds(&folder, place.data))
            return calm_fail(ctx, CALM_EARG, "%s: is a file of the input %s; nothing was written, give another name",
                             target, inputs->of[i]);
    }
    return CALM_OK;
}

calm_status calm_output_file(calm_ctx *ctx, const char *target, bool force, const char *begins,
                             const calm_words *inputs)
{
    if (calm_is_directory(target))
        return calm_fail(ctx, CALM_EARG, "%s: a directory; expected the name of a file", target);
    char *end;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_output_apart(ctx, target, inputs));
    CALM_TRY(calm_path_target(ctx, target, &end));
    if (!calm_path_exists(end))
        return check_parent(ctx, end);
    CALM_TRY(outside_of(ctx, target, inputs));
    if (calm_path_is_special(end))    /* /dev/null or a pipe: no contents to lose    */
        return CALM_OK;
    if (!force)
        return calm_fail(ctx, CALM_EEXIST, "%s: exists already; give another name, or `force` to replace it", target);
    if (begins && !begins_with(target, begins))
        return calm_fail(ctx, CALM_EARG, "%s: exists and is not a file that calm wrote, so `force` does not replace "
                         "it; give another name", target);
    return check_parent(ctx, end);
}
