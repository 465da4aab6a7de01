/* Files: whole reads, mappings, atomic writes, directories. */
#include "ptq/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MOST_LINKS 40    /* the limit of Linux       */

/* Closes a file descriptor at the end of a scope. */
static void close_fd(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static calm_status refuse(calm_ctx *ctx, const char *path, mode_t mode)
{
    return calm_fail(ctx, CALM_EARG, "%s: expected a file, found %s", path,
                     S_ISDIR(mode)    ? "a directory"
                     : S_ISFIFO(mode) ? "a pipe"
                     : S_ISSOCK(mode) ? "a socket"
                                      : "a device");
}

calm_status calm_map_file(calm_ctx *ctx, const char *path, calm_mapping *out)
{
    struct stat info;
    *out = (calm_mapping){NULL, 0};
    CALM_TRY(calm_path_refuse_special(ctx, path));
    /* O_NONBLOCK: a file may become a pipe in between, which would wait for its writer. */
    CALM_SCOPED(const int, close_fd) fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file", path);
    if (fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot open", path);
    if (fstat(fd, &info) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot stat", path);
    if (!S_ISREG(info.st_mode))
        return refuse(ctx, path, info.st_mode);
    const size_t bytes = (size_t)info.st_size;
    void *data = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (data == MAP_FAILED)
        return calm_fail_errno(ctx, errno, "%s: cannot map %zu bytes", path, bytes);
    *out = (calm_mapping){bytes ? data : (const uint8_t *)"", bytes};    /* mmap refuses 0 bytes */
    return CALM_OK;
}

calm_status calm_map_file_within(calm_ctx *ctx, const char *path, size_t limit, calm_mapping *out)
{
    CALM_TRY(calm_map_file(ctx, path, out));
    const size_t bytes = out->bytes;
    if (bytes <= limit)
        return CALM_OK;
    calm_unmap_file(out);
    return calm_fail(ctx, CALM_EFORMAT, "%s: %zu bytes, expected at most %zu", path, bytes, limit);
}

void calm_unmap_file(calm_mapping *map)
{
    if (map->data && map->bytes)
        munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (calm_mapping){NULL, 0};
}

/* Linux maps pages around an accessed page, in windows of 64 KiB, which may belong to neighbouring ranges. */
#define AROUND ((uintptr_t)64 * 1024)

void calm_mapping_release(const calm_mapping *map, size_t offset, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)map->data;
    if (!map->data || offset >= map->bytes || bytes == 0)
        return;
    const uintptr_t last = (first + map->bytes + page - 1) / page * page;
    uintptr_t begin = (first + offset) / AROUND * AROUND;
    uintptr_t end = first + (bytes < map->bytes - offset ? offset + bytes : map->bytes);
    end = (end + AROUND - 1) / AROUND * AROUND;
    begin = begin < first ? first : begin;
    end = end > last ? last : end;
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

calm_status calm_read_file(calm_ctx *ctx, const char *path, size_t limit, char **out, size_t *n_bytes)
{
    CALM_SCOPED_MAPPING(map);
    CALM_TRY(calm_map_file_within(ctx, path, limit, &map));
    CALM_TRY(calm_alloc(ctx, ctx->out, out, map.bytes + 1, 1, path));
    memcpy(*out, map.data, map.bytes);
    *n_bytes = map.bytes;
    return CALM_OK;
}

calm_status calm_writer_open(calm_ctx *ctx, calm_writer *writer, const char *path)
{
    *writer = (calm_writer){fopen(path, "wb"), path, 0};
    if (!writer->stream)
        return calm_fail_errno(ctx, errno, "%s: cannot create", path);
    return CALM_OK;
}

calm_status calm_writer_put(calm_ctx *ctx, calm_writer *writer, const void *bytes, size_t n_bytes)
{
    if (n_bytes && fwrite(bytes, 1, n_bytes, writer->stream) != n_bytes)
        return calm_fail_errno(ctx, errno, "%s: cannot write", writer->path);
    writer->written += n_bytes;
    return CALM_OK;
}

calm_status calm_writer_close(calm_ctx *ctx, calm_writer *writer)
{
    if (!writer->stream)
        return ctx->status;
    /* EINVAL: a device or a pipe, which cannot be synced. */
    if (ctx->status == CALM_OK &&
        (fflush(writer->stream) != 0 || (fsync(fileno(writer->stream)) != 0 && errno != EINVAL)))
        calm_fail_errno(ctx, errno, "%s: cannot write", writer->path);
    if (fclose(writer->stream) != 0 && ctx->status == CALM_OK)
        calm_fail_errno(ctx, errno, "%s: cannot write", writer->path);
    writer->stream = NULL;
    return ctx->status;
}

calm_status calm_path_parent(calm_ctx *ctx, const char *path, char **out)
{
    const char *slash = strrchr(path, '/');
    return slash ? calm_strf(ctx, ctx->scratch, out, "%.*s", slash == path ? 1 : (int)(slash - path), path)
                 : calm_strf(ctx, ctx->scratch, out, ".");
}

calm_status calm_path_existing(calm_ctx *ctx, const char *path, char **out)
{
    CALM_TRY(calm_strf(ctx, ctx->scratch, out, "%s", path));
    while (!calm_path_exists(*out) && strcmp(*out, ".") != 0)
        CALM_TRY(calm_path_parent(ctx, *out, out));
    return CALM_OK;
}

bool calm_disk_free(const char *path, double *bytes)
{
    struct statvfs disk;
    if (statvfs(path, &disk) != 0)
        return false;
    *bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    return true;
}

calm_status calm_path_target(calm_ctx *ctx, const char *path, char **out)
{
    char link[PATH_MAX];
    CALM_TRY(calm_strf(ctx, ctx->scratch, out, "%s", path));
    if (calm_path_is_special(path))
        return CALM_OK;
    for (int i = 0; i < MOST_LINKS; i++) {
        char *parent;
        const ssize_t n = readlink(*out, link, sizeof link - 1);
        if (n < 0)
            return CALM_OK;
        link[n] = '\0';
        CALM_TRY(calm_path_parent(ctx, *out, &parent));
        CALM_TRY(*link == '/' ? calm_strf(ctx, ctx->scratch, out, "%s", link)
                              : calm_path_join(ctx, ctx->scratch, out, parent, link));
    }
    return calm_fail(ctx, CALM_EARG, "%s: a link that leads to itself", path);
}

calm_status calm_new_file_begin(calm_ctx *ctx, const char *path, const char *ending, calm_new_file *out)
{
    CALM_TRY(calm_path_target(ctx, path, &out->target));
    CALM_TRY(calm_path_parent(ctx, out->target, &out->folder));
    return calm_strf(ctx, ctx->scratch, &out->temporary, "%s%s", out->target,
                     calm_path_is_special(out->target) ? "" : ending);
}

calm_status calm_new_file_end(calm_ctx *ctx, const calm_new_file *file)
{
    if (strcmp(file->temporary, file->target) == 0)    /* a device or pipe, which was written directly */
        return ctx->status;
    if (ctx->status == CALM_OK && rename(file->temporary, file->target) != 0)
        calm_fail_errno(ctx, errno, "%s: cannot rename to it", file->target);
    if (ctx->status != CALM_OK) {
        unlink(file->temporary);
        return ctx->status;
    }
    return calm_sync_directory(ctx, file->folder);
}

calm_status calm_write_file(calm_ctx *ctx, const char *path, const void *bytes, size_t n_bytes)
{
    char ending[32];
    calm_new_file file;
    calm_writer writer;
    snprintf(ending, sizeof ending, ".tmp.%ld", (long)getpid());
    CALM_TRY(calm_new_file_begin(ctx, path, ending, &file));
    CALM_TRY(calm_writer_open(ctx, &writer, file.temporary));
    calm_writer_put(ctx, &writer, bytes, n_bytes);
    calm_writer_close(ctx, &writer);
    return calm_new_file_end(ctx, &file);
}

bool calm_path_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

bool calm_path_has(const char *dir, const char *name)
{
    char path[PATH_MAX];    /* the system refuses longer paths       */
    return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path && calm_path_exists(path);
}

bool calm_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Returns true for a path that is neither a regular file nor a directory, with its kind in *mode. */
static bool find_special(const char *path, mode_t *mode)
{
    struct stat info;
    *mode = stat(path, &info) == 0 ? info.st_mode : S_IFREG;
    return !S_ISREG(*mode) && !S_ISDIR(*mode);
}

bool calm_path_is_special(const char *path)
{
    mode_t mode;
    return find_special(path, &mode);
}

calm_status calm_path_refuse_special(calm_ctx *ctx, const char *path)
{
    mode_t mode;
    return find_special(path, &mode) ? refuse(ctx, path, mode) : CALM_OK;
}

bool calm_is_file(const char *path)
{
    return calm_path_exists(path) && !calm_is_directory(path);
}

calm_status calm_path_refuse_directory(calm_ctx *ctx, const char *path)
{
    return calm_is_directory(path) ? refuse(ctx, path, S_IFDIR) : CALM_OK;
}

bool calm_file_begins(const char *path, const char *magic)
{
    char head[32];
    const size_t length = strlen(magic);
    FILE *stream = length <= sizeof head && !calm_path_is_special(path) ? fopen(path, "rb") : NULL;
    const size_t n = stream ? fread(head, 1, length, stream) : 0;
    if (stream)
        fclose(stream);
    return n == length && memcmp(head, magic, length) == 0;
}

calm_status calm_refuse_pointer(calm_ctx *ctx, const char *path, const void *bytes, size_t n_bytes)
{
    static const char pointer[] = "version https://git-lfs";
    const size_t length = sizeof pointer - 1;
    if (n_bytes < length || memcmp(bytes, pointer, length) != 0)
        return CALM_OK;
    return calm_fail(ctx, CALM_EFORMAT, "%s: a pointer of Git LFS, not the file itself: git lfs pull fetches it", path);
}

calm_status calm_make_directories(calm_ctx *ctx, const char *path)
{
    char *copy;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &copy, "%s", path));
    for (char *at = copy + (copy[0] == '/');; at++) {
        char keep = *at;
        if (keep != '/' && keep != '\0')
            continue;
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && !(errno == EEXIST && calm_is_directory(copy)))
            return calm_fail_errno(ctx, errno, "%s: cannot create the directory", copy);
        *at = keep;
        if (keep == '\0')
            return CALM_OK;
    }
}

calm_status calm_make_parent(calm_ctx *ctx, const char *path)
{
    char *parent;
    CALM_TRY(calm_path_parent(ctx, path, &parent));
    return calm_make_directories(ctx, parent);
}

/* Removes the entries of an open directory and closes it. */
static calm_status remove_entries(calm_ctx *ctx, int fd, const char *path)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", path);
    }
    for (struct dirent *entry; ctx->status == CALM_OK && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
            continue;
        int child = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child < 0 || (remove_entries(ctx, child, entry->d_name) == CALM_OK &&
                          unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) != 0))
            calm_fail_errno(ctx, errno, "%s/%s: cannot remove", path, entry->d_name);
    }
    closedir(dir);
    return ctx->status;
}

calm_status calm_remove_tree(calm_ctx *ctx, const char *path)
{
    if (!calm_path_exists(path) || unlink(path) == 0)
        return CALM_OK;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot remove", path);
    CALM_TRY(remove_entries(ctx, fd, path));
    if (rmdir(path) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot remove", path);
    return CALM_OK;
}

const char *calm_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

calm_status calm_path_join(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *dir, const char *name)
{
    size_t length = strlen(dir);
    return calm_strf(ctx, arena, out, "%s%s%s", dir, length && dir[length - 1] == '/' ? "" : "/", name);
}

calm_status calm_path_beside(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *place, const char *name)
{
    char *folder;
    if (!calm_is_file(place))
        return calm_path_join(ctx, arena, out, place, name);
    CALM_TRY(calm_path_parent(ctx, place, &folder));
    return calm_path_join(ctx, arena, out, folder, name);
}

calm_status calm_sync_directory(calm_ctx *ctx, const char *path)
{
    CALM_SCOPED(const int, close_fd) fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot open the directory", path);
    /* EINVAL: the file system cannot sync directories. */
    if (fsync(fd) != 0 && errno != EINVAL)
        return calm_fail_errno(ctx, errno, "%s: cannot sync the directory", path);
    return CALM_OK;
}

calm_status calm_copy_file(calm_ctx *ctx, const char *from, const char *to)
{
    CALM_SCOPED_MAPPING(map);
    calm_writer writer;
    CALM_TRY(calm_map_file(ctx, from, &map));
    CALM_TRY(calm_writer_open(ctx, &writer, to));
    calm_writer_put(ctx, &writer, map.data, map.bytes);
    return calm_writer_close(ctx, &writer);
}
