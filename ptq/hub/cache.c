/* The cache on disk.  Every change is one rename, so that no reader, including huggingface_hub, sees a partial one. */
#include "ptq/hub/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/threads.h"

#define REF_MAX ((size_t)1024)
#define POLL_MS 50L    /* between two looks at a lock */

calm_status calm_hub_repo_dir(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                              calm_string_out out)
{
    return calm_path_join(ctx, ctx->out, out, settings->cache, name->folder);
}

calm_status calm_hub_snapshot_dir(calm_ctx *ctx, const char *repo_dir, const char *commit, calm_string_out out)
{
    return calm_strf(ctx, ctx->out, out, "%s/snapshots/%s", repo_dir, commit);
}

calm_status calm_hub_blob_path(calm_ctx *ctx, const char *repo_dir, const char *etag, calm_string_out out)
{
    return calm_strf(ctx, ctx->out, out, "%s/blobs/%s", repo_dir, etag);
}

/* Returns the bytes of the regular file dir/name, following links; -1: there is none. */
static int64_t file_bytes(calm_ctx *ctx, const char *dir, const char *name)
{
    struct stat info;
    char *path;
    if (calm_path_join(ctx, ctx->scratch, &path, dir, name) != CALM_OK)
        return -1;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

/* ---- refs ---- */

calm_status calm_hub_ref_read(calm_ctx *ctx, const char *repo_dir, const char *revision, char commit[CALM_HUB_COMMIT],
                              bool *known)
{
    char *path, *text;
    size_t n_bytes;
    *known = true;
    if (calm_hub_is_commit(revision)) {
        memcpy(commit, revision, CALM_HUB_COMMIT);
        return CALM_OK;
    }
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/refs/%s", repo_dir, revision));
    *known = calm_path_exists(path) && !calm_is_directory(path);
    if (!*known)
        return CALM_OK;
    CALM_TRY(calm_read_file(ctx, path, REF_MAX, &text, &n_bytes));
    text[strcspn(text, " \r\n")] = '\0';
    if (!calm_hub_is_commit(text))
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected a commit (40 hexadecimal digits), found \"%.60s\"; remove "
                                            "that file and pull again", path, text);
    memcpy(commit, text, CALM_HUB_COMMIT);
    return CALM_OK;
}

calm_status calm_hub_ref_write(calm_ctx *ctx, const char *repo_dir, const char *revision, const char *commit)
{
    char *path, *text;
    size_t n_bytes;
    if (strcmp(revision, commit) == 0)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/refs/%s", repo_dir, revision));
    if (calm_path_exists(path)) {
        CALM_TRY(calm_read_file(ctx, path, REF_MAX, &text, &n_bytes));
        if (strcmp(text, commit) == 0)    /* the cache may be one that we cannot write */
            return CALM_OK;
    }
    CALM_TRY(calm_make_parent(ctx, path));
    return calm_write_file(ctx, path, commit, strlen(commit));
}

/* ---- snapshots ---- */

calm_status calm_hub_link(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name, const char *etag)
{
    char *path, *temporary, found[512];
    CALM_SCOPED_TEXT(target);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/snapshots/%s/%s", repo_dir, commit, name));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &temporary, "%s.tmp.%ld", path, (long)getpid()));
    CALM_TRY(calm_make_parent(ctx, path));
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        calm_text_printf(&target, "../");
    calm_text_printf(&target, "../blobs/%s", etag);
    CALM_TRY(calm_text_check(ctx, &target));
    const ssize_t n = readlink(path, found, sizeof found);
    if (n >= 0 && (size_t)n == target.length && memcmp(found, target.data, target.length) == 0)
        return CALM_OK;
    unlink(temporary);
    if (symlink(target.data, temporary) == 0 && rename(temporary, path) == 0)
        return CALM_OK;
    calm_fail_errno(ctx, errno, "%s: cannot link it to blobs/%s", path, etag);
    unlink(temporary);
    return ctx->status;
}

/* Returns the path by which huggingface_hub marks that a commit has no file of that name. */
static calm_status absent_path(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name, char **out)
{
    return calm_strf(ctx, ctx->scratch, out, "%s/.no_exist/%s/%s", repo_dir, commit, name);
}

calm_status calm_hub_mark_absent(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name)
{
    char *path;
    CALM_TRY(absent_path(ctx, repo_dir, commit, name, &path));
    if (calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(calm_make_parent(ctx, path));
    return calm_write_file(ctx, path, "", 0);
}

static bool is_absent(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name)
{
    char *path;
    return absent_path(ctx, repo_dir, commit, name, &path) == CALM_OK && calm_path_exists(path);
}

/* Appends the name if there is no such file. */
static void note_missing(calm_ctx *ctx, const char *snapshot, const char *name, calm_text *missing)
{
    if (file_bytes(ctx, snapshot, name) < 0)
        calm_text_printf(missing, "%s%s", missing->length ? ", " : "", name);
}

calm_status calm_hub_missing(calm_ctx *ctx, const char *repo_dir, const char *commit, bool tokenizer,
                             calm_text *missing)
{
    char *snapshot, *index, *text;
    const char **shards;
    size_t n_bytes, n_shards;
    CALM_TRY(calm_hub_snapshot_dir(ctx, repo_dir, commit, &snapshot));
    note_missing(ctx, snapshot, "config.json", missing);
    if (tokenizer && !is_absent(ctx, repo_dir, commit, "tokenizer.json"))
        note_missing(ctx, snapshot, "tokenizer.json", missing);
    if (file_bytes(ctx, snapshot, CALM_HUB_INDEX) < 0) {
        note_missing(ctx, snapshot, CALM_HUB_SINGLE, missing);
        return calm_text_check(ctx, missing);
    }
    CALM_TRY(calm_path_join(ctx, ctx->out, &index, snapshot, CALM_HUB_INDEX));
    CALM_TRY(calm_read_file(ctx, index, CALM_HUB_INDEX_MAX, &text, &n_bytes));
    CALM_TRY(calm_hub_index_shards(ctx, index, text, n_bytes, &shards, &n_shards));
    for (size_t i = 0; i < n_shards; i++)
        note_missing(ctx, snapshot, shards[i], missing);
    return calm_text_check(ctx, missing);
}

static bool is_listed(const char *name)
{
    return calm_hub_is_wanted(name) || strcmp(name, CALM_HUB_INDEX) == 0 ||
           (name[0] && calm_text_ends_with(name + 1, ".safetensors"));
}

/* Adds a file if it exists. */
static calm_status add_file(calm_ctx *ctx, const char *snapshot, const char *name, size_t max, calm_hub_file *files,
                            size_t *n)
{
    const int64_t bytes = file_bytes(ctx, snapshot, name);
    if (bytes < 0 || *n == max)
        return CALM_OK;
    files[*n] = (calm_hub_file){.bytes = bytes};
    return calm_strf(ctx, ctx->out, &files[(*n)++].name, "%s", name);
}

calm_status calm_hub_snapshot_files(calm_ctx *ctx, const char *snapshot, calm_hub_file **out, size_t *n)
{
    struct dirent **entries = NULL;
    const char *const *fixed = calm_hub_fixed_names();
    size_t max = 0;
    *n = 0;
    const int n_entries = scandir(snapshot, &entries, NULL, NULL);
    if (n_entries < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", snapshot);
    while (fixed[max])
        max++;
    max += (size_t)n_entries;
    calm_status status = CALM_NEW(ctx, ctx->out, *out, max);
    for (int i = 0; i < n_entries; i++) {
        if (status == CALM_OK && is_listed(entries[i]->d_name))
            status = add_file(ctx, snapshot, entries[i]->d_name, max, *out, n);
        free(entries[i]);
    }
    free(entries);
    for (size_t i = 0; fixed[i] && status == CALM_OK; i++)
        if (strchr(fixed[i], '/'))
            status = add_file(ctx, snapshot, fixed[i], max, *out, n);
    if (status == CALM_OK)
        calm_hub_files_sort(*out, *n);
    return status;
}

/* ---- locks ---- */

/* Locks `fd`.  A file system without locks is no failure, because the checksum detects what two processes wrote. */
static calm_status wait_for(calm_ctx *ctx, int fd, const char *etag, bool *locked)
{
    bool told = false;
    while (!(*locked = flock(fd, LOCK_EX | LOCK_NB) == 0)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return CALM_OK;
        if (!told)
            calm_log(ctx, CALM_LOG_INFO, "waiting: another process is fetching blobs/%s", etag);
        told = true;
        CALM_TRY(calm_sleep(ctx, POLL_MS));
    }
    return CALM_OK;
}

calm_status calm_hub_lock(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          const char *etag, int *fd)
{
    char *path;
    bool locked;
    *fd = -1;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/.locks/%s/%s.lock", settings->cache, name->folder, etag));
    CALM_TRY(calm_make_parent(ctx, path));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (*fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot open", path);
    calm_status status = wait_for(ctx, *fd, etag, &locked);
    if (!locked) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

void calm_hub_unlock(int fd)
{
    if (fd >= 0)
        close(fd);    /* the file stays, as with huggingface_hub, because removing it would race */
}

calm_status calm_hub_tag_cache(calm_ctx *ctx, const char *cache)
{
    static const char tag[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                              "# This file is a cache directory tag created by calm.\n"
                              "# For information about cache directory tags, see:\n"
                              "#\thttps://bford.info/cachedir/\n";
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, cache, "CACHEDIR.TAG"));
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return CALM_OK;
    const ssize_t n = write(fd, tag, sizeof tag - 1);
    close(fd);
    if (n != (ssize_t)sizeof tag - 1)
        unlink(path);
    return CALM_OK;
}
