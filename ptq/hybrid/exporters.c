/* The registry of exporters, and what all of them share: temporary directory, companions. */
#include "ptq/hybrid/export.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALM_EXPORT(name) extern const calm_exporter calm_export_##name;
#include "ptq/hybrid/export.def"
#undef CALM_EXPORT

const calm_exporter *const *calm_exporters(size_t *n)
{
    static const calm_exporter *const all[] = {
#define CALM_EXPORT(name) &calm_export_##name,
#include "ptq/hybrid/export.def"
#undef CALM_EXPORT
    };
    *n = sizeof all / sizeof *all;
    return all;
}

/* Remove the slashes at the end: the temporary name goes beside the target. */
static calm_status clean_target(calm_ctx *ctx, const char *target, char **out)
{
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/')
        length--;
    if (length == 0)
        return calm_fail(ctx, CALM_EARG, "the output directory's name is empty");
    return calm_strf(ctx, ctx->out, out, "%.*s", (int)length, target);
}

/* Does the directory hold what an exporter writes: a checkpoint's config.json, or the one file of another format? */
static calm_status is_export(calm_ctx *ctx, const char *dir, bool *out)
{
    size_t n;
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, "config.json"));
    *out = calm_path_exists(path);
    for (size_t i = 0; i < (calm_exporters(&n), n) && !*out; i++) {
        if (!calm_exporters(&n)[i]->file)
            continue;
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, calm_exporters(&n)[i]->file));
        *out = calm_path_exists(path);
    }
    return CALM_OK;
}

calm_status calm_export_target(calm_ctx *ctx, const char *target, bool force)
{
    char *clean;
    bool known;
    CALM_TRY(clean_target(ctx, target, &clean));
    if (!calm_path_exists(clean))
        return CALM_OK;
    if (!force)
        return calm_fail(ctx, CALM_EEXIST, "%s: exists already; give another --output, or --force to replace it",
                         clean);
    CALM_TRY(is_export(ctx, clean, &known));
    if (!known && rmdir(clean) != 0)
        return calm_fail(ctx, CALM_EARG,
                         "%s: exists and holds no config.json, so it is no checkpoint; --force does not "
                         "replace it",
                         clean);
    return CALM_OK;
}

/* The directory that `path` lies in, in ctx->scratch. */
static calm_status parent_of(calm_ctx *ctx, const char *path, char **out)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return calm_strf(ctx, ctx->scratch, out, ".");
    return calm_strf(ctx, ctx->scratch, out, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* Is `name` a temporary directory of `base` whose process is no more? */
static bool is_stale(const char *name, const char *base)
{
    const size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 ||
        (strncmp(name + length, ".tmp.", 5) != 0 && strncmp(name + length, ".old.", 5) != 0))
        return false;
    char *end;
    errno = 0;
    const long id = strtol(name + length + 5, &end, 10);
    return isdigit((unsigned char)name[length + 5]) && *end == '\0' && errno == 0 && id > 0 &&
           kill((pid_t)id, 0) != 0 && errno == ESRCH;
}

/* Remove what killed processes left beside the target: a checkpoint may be large. */
static calm_status sweep(calm_ctx *ctx, const char *clean)
{
    const char *slash = strrchr(clean, '/'), *base = slash ? slash + 1 : clean;
    char *parent, *path;
    CALM_TRY(parent_of(ctx, clean, &parent));
    DIR *dir = opendir(parent);
    calm_status status = CALM_OK;
    if (!dir)
        return CALM_OK;    /* not made yet */
    for (struct dirent *entry; status == CALM_OK && (entry = readdir(dir));) {
        if (!is_stale(entry->d_name, base))
            continue;
        status = calm_path_join(ctx, ctx->scratch, &path, parent, entry->d_name);
        if (status == CALM_OK)
            status = calm_remove_tree(ctx, path);
    }
    closedir(dir);
    return status;
}

calm_status calm_export_begin(calm_ctx *ctx, const char *target, char **temporary)
{
    char *clean;
    CALM_TRY(clean_target(ctx, target, &clean));
    CALM_TRY(sweep(ctx, clean));
    CALM_TRY(calm_strf(ctx, ctx->out, temporary, "%s.tmp.%ld", clean, (long)getpid()));
    CALM_TRY(calm_remove_tree(ctx, *temporary));
    return calm_make_directories(ctx, *temporary);
}

/* Where names cannot be exchanged: for a moment the target has no name but its old one. */
static calm_status replace_in_steps(calm_ctx *ctx, const char *temporary, const char *clean, char **old)
{
    CALM_TRY(calm_strf(ctx, ctx->scratch, old, "%s.old.%ld", clean, (long)getpid()));
    if (rename(clean, *old) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot move it aside", clean);
    if (rename(temporary, clean) == 0)
        return CALM_OK;
    const int reason = errno;
    if (rename(*old, clean) != 0)
        return calm_fail_errno(ctx, reason, "%s: cannot rename to it; the old one is %s", clean, *old);
    return calm_fail_errno(ctx, reason, "%s: cannot rename to it", clean);
}

/* Exchange both names in one step, so that at every moment the target is the old checkpoint or the new one; *old is
 * where the old one lies afterwards. */
static calm_status replace(calm_ctx *ctx, const char *temporary, const char *clean, char **old)
{
    CALM_TRY(calm_strf(ctx, ctx->scratch, old, "%s", temporary));
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, clean, RENAME_EXCHANGE) == 0)
        return CALM_OK;
    if (errno == EINVAL || errno == ENOSYS)
        return replace_in_steps(ctx, temporary, clean, old);
    return calm_fail_errno(ctx, errno, "%s: cannot rename to it", clean);
}

calm_status calm_export_commit(calm_ctx *ctx, const char *temporary, const char *target)
{
    char *clean, *parent, *old = NULL;
    CALM_TRY(clean_target(ctx, target, &clean));
    CALM_TRY(parent_of(ctx, clean, &parent));
    CALM_TRY(calm_sync_directory(ctx, temporary));
    if (calm_path_exists(clean))
        CALM_TRY(replace(ctx, temporary, clean, &old));
    else if (rename(temporary, clean) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot rename to it", clean);
    CALM_TRY(calm_sync_directory(ctx, parent));
    return old ? calm_remove_tree(ctx, old) : CALM_OK;
}

const char *const *calm_export_companions(size_t *n)
{
    static const char *const files[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json",
        "LICENSE",
    };
    *n = sizeof files / sizeof *files;
    return files;
}

calm_status calm_export_copy_companions(calm_ctx *ctx, const calm_model *model, const char *dir)
{
    size_t n;
    const char *const *files = calm_export_companions(&n);
    for (size_t i = 0; i < n; i++) {
        char *from, *to;
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &from, calm_model_dir(model), files[i]));
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &to, dir, files[i]));
        if (calm_path_exists(from))
            CALM_TRY(calm_copy_file(ctx, from, to));
    }
    return CALM_OK;
}
