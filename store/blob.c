/* Blobs: content-addressed files, complete under their name or absent. */
#include "store/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static calm_status write_all(calm_ctx *ctx, int fd, const char *root, const calm_blob_piece *piece)
{
    const char *at = piece->bytes;
    for (size_t left = piece->n_bytes; left;) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return calm_fail_errno(ctx, errno, "%s: cannot write a blob", root);
        at += n;
        left -= (size_t)n;
    }
    return CALM_OK;
}

/* Writes and flushes the pieces to the open temporary file `name`, then renames it to `path`. */
static calm_status fill_and_rename(calm_ctx *ctx, int fd, const char *root, const char *name, const char *path,
                                   const calm_blob_piece *pieces, size_t n_pieces)
{
    for (size_t i = 0; i < n_pieces; i++)
        CALM_TRY(write_all(ctx, fd, root, &pieces[i]));
    if (fsync(fd) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot write a blob", root);
    if (rename(name, path) == 0)
        return CALM_OK;
    if (errno != EISDIR)
        return calm_fail_errno(ctx, errno, "%s: cannot rename to it", path);
    /* A directory with a blob's name is damage, and is replaced. */
    CALM_TRY(calm_remove_tree(ctx, path));
    return rename(name, path) == 0 ? CALM_OK : calm_fail_errno(ctx, errno, "%s: cannot rename to it", path);
}

calm_status calm_blob_put(calm_ctx *ctx, const char *root, const calm_blob_piece *pieces, size_t n_pieces,
                          char digest[CALM_SHA256_HEX])
{
    char *folder, *path, *temporary;
    struct timespec now;
    calm_sha256 sha;
    CALM_SCOPED_SCRATCH(ctx);
    calm_sha256_init(&sha);
    for (size_t i = 0; i < n_pieces; i++)
        calm_sha256_update(&sha, pieces[i].bytes, pieces[i].n_bytes);
    CALM_TRY(calm_sha256_finish(ctx, &sha, digest));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &folder, "%s/tmp", root));
    CALM_TRY(calm_make_directories(ctx, folder));
    /* The thread's id separates equal blobs of two threads, the time those of two machines. */
    clock_gettime(CLOCK_REALTIME, &now);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &temporary, "%s/%s.%ld.%ld", folder, digest, (long)gettid(), now.tv_nsec));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &folder, "%s/%.2s", root, digest));
    CALM_TRY(calm_make_directories(ctx, folder));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/%s", folder, digest + 2));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot create a blob", root);
    calm_status status = fill_and_rename(ctx, fd, root, temporary, path, pieces, n_pieces);
    close(fd);
    if (status != CALM_OK) {
        unlink(temporary);
        return status;
    }
    return calm_sync_directory(ctx, folder);
}

/* Returns the path of a blob, in ctx->scratch. */
static calm_status path_of(calm_ctx *ctx, const char *root, const char *digest, char **out)
{
    if (!calm_is_hex(digest, CALM_SHA256_HEX - 1))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%.80s\" is not a digest", root, digest);
    return calm_strf(ctx, ctx->scratch, out, "%s/%.2s/%s", root, digest, digest + 2);
}

static calm_status map_checked(calm_ctx *ctx, const char *path, const char *digest, calm_mapping *map)
{
    char found[CALM_SHA256_HEX];
    CALM_TRY(calm_map_file(ctx, path, map));
    CALM_TRY(calm_sha256_bytes(ctx, map->data, map->bytes, found));
    if (strcmp(found, digest) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: damaged blob of %zu bytes: its content has the digest %.12s...",
                         path, map->bytes, found);
    return CALM_OK;
}

calm_status calm_blob_get(calm_ctx *ctx, const char *root, const char *digest, calm_mapping *out)
{
    char *path;
    CALM_SCOPED_SCRATCH(ctx);
    *out = (calm_mapping){NULL, 0};
    CALM_TRY(path_of(ctx, root, digest, &path));
    if (map_checked(ctx, path, digest, out) != CALM_OK)
        calm_unmap_file(out);
    return ctx->status;
}

bool calm_blob_present(const char *root, const char *digest, size_t n_bytes)
{
    char *path = NULL;
    struct stat info;
    if (!calm_is_hex(digest, CALM_SHA256_HEX - 1) || asprintf(&path, "%s/%.2s/%s", root, digest, digest + 2) < 0)
        return false;
    bool present = stat(path, &info) == 0 && S_ISREG(info.st_mode) && (size_t)info.st_size == n_bytes;
    free(path);
    return present;
}

/* Walks one folder of blobs, "ab". */
static calm_status walk_folder(calm_ctx *ctx, const char *root, const char *first, calm_blob_fn *fn, void *user)
{
    char *path, digest[CALM_SHA256_HEX];
    struct stat info;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/%s", root, first));
    /* No symbolic links, which could lead into another store's blobs. */
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return error == ENOTDIR || error == ELOOP ? CALM_OK : calm_fail_errno(ctx, error, "%s: cannot read", path);
    }
    for (struct dirent *entry; ctx->status == CALM_OK && (entry = readdir(folder));) {
        if (strlen(entry->d_name) != CALM_SHA256_HEX - 3)
            continue;
        memcpy(digest, first, 2);
        memcpy(digest + 2, entry->d_name, CALM_SHA256_HEX - 2);
        if (calm_is_hex(digest, CALM_SHA256_HEX - 1) &&
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            fn(ctx, user, digest, (size_t)info.st_size);
    }
    closedir(folder);
    return ctx->status;
}

calm_status calm_blob_walk(calm_ctx *ctx, const char *root, calm_blob_fn *fn, void *user)
{
    DIR *folder = opendir(root);
    if (!folder)
        return errno == ENOENT ? CALM_OK : calm_fail_errno(ctx, errno, "%s: cannot read", root);
    CALM_SCOPED_SCRATCH(ctx);
    for (struct dirent *entry; ctx->status == CALM_OK && (entry = readdir(folder));)
        if (calm_is_hex(entry->d_name, 2))
            walk_folder(ctx, root, entry->d_name, fn, user);
    closedir(folder);
    return ctx->status;
}

calm_status calm_blob_remove(calm_ctx *ctx, const char *root, const char *digest)
{
    char *path;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(path_of(ctx, root, digest, &path));
    return unlink(path) == 0 || errno == ENOENT ? CALM_OK : calm_fail_errno(ctx, errno, "%s: cannot remove", path);
}

calm_status calm_blob_sweep(calm_ctx *ctx, const char *root)
{
    char *folder;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &folder, "%s/tmp", root));
    return calm_remove_tree(ctx, folder);
}
