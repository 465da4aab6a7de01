/* Files: whole reads, mappings, and writes after which a reader sees either the old file or the new one. */
#pragma once

#include "ptq/base/scope.h"
#include <stdint.h>
#include <stdio.h>

#include "ptq/base/context.h"

/* A file mapped read-only.  If another process shortens the file, reading beyond its new end kills this process
 * (SIGBUS). */
typedef struct calm_mapping {
    const uint8_t *data;    /* never NULL while mapped, even for an empty file */
    size_t bytes;
} calm_mapping;

/* Maps a regular file.  CALM_ENOTFOUND, CALM_EIO; CALM_EARG, without waiting: a directory, or a special file. */
calm_status calm_map_file(calm_ctx *ctx, const char *path, calm_mapping *out);

/* Maps a file of at most `limit` bytes.  CALM_EFORMAT: it is larger; else as calm_map_file. */
calm_status calm_map_file_within(calm_ctx *ctx, const char *path, size_t limit, calm_mapping *out);

/* Unmaps a file.  Calling it again, or for a mapping that failed, does nothing. */
void calm_unmap_file(calm_mapping *map);

/* Drops a range of a mapping from resident memory, and the pages that the system maps around it.  Safe while other
 * threads read the range: their next access reads the pages from the file. */
void calm_mapping_release(const calm_mapping *map, size_t offset, size_t bytes);

/* Reads a whole file into ctx->out and appends a NUL.  CALM_EFORMAT: the file is larger than `limit` bytes. */
calm_status calm_read_file(calm_ctx *ctx, const char *path, size_t limit, char **out, size_t *n_bytes);

/* Writes `bytes` to a temporary file next to `path`, syncs it and renames it to `path`.  On failure `path` is
 * unchanged and the temporary file is removed. */
calm_status calm_write_file(calm_ctx *ctx, const char *path, const void *bytes, size_t n_bytes);

/* A file that gets its name when it is complete.  If `path` is a link, its target is replaced and the link stays.
 * A device or pipe (/dev/stdout, /dev/null) is written directly, since a rename would replace it by a file. */
typedef struct calm_new_file {
    char *target;       /* `path` with links resolved; all three strings are in ctx->scratch */
    char *folder;       /* directory of `target` */
    char *temporary;    /* path to write to: `target` with `ending` appended, or the device */
} calm_new_file;
calm_status calm_new_file_begin(calm_ctx *ctx, const char *path, const char *ending, calm_new_file *out);
/* Renames the temporary file to its target.  After a failure in ctx: removes the temporary file and returns the
 * failure. */
calm_status calm_new_file_end(calm_ctx *ctx, const calm_new_file *file);

/* A file that is written front to back, under its final name: callers write into a temporary directory that they
 * rename as a whole. */
typedef struct calm_writer {
    FILE *stream;
    const char *path;    /* borrowed */
    uint64_t written;
} calm_writer;
calm_status calm_writer_open(calm_ctx *ctx, calm_writer *writer, const char *path);
calm_status calm_writer_put(calm_ctx *ctx, calm_writer *writer, const void *bytes, size_t n_bytes);
/* Flushes, syncs and closes the file.  After a failure in ctx: only closes it and returns the failure. */
calm_status calm_writer_close(calm_ctx *ctx, calm_writer *writer);

/* calm_path_exists: something exists at `path`, even a broken link.  calm_is_directory: a directory or a link to
 * one. calm_is_file: something that is not a directory. */
bool calm_path_exists(const char *path);
bool calm_is_directory(const char *path);
bool calm_is_file(const char *path);

/* Returns whether `path` is, or links to, a device, a pipe or a socket. */
bool calm_path_is_special(const char *path);

/* Returns the path that a write to `path` reaches: the end of its links, even if nothing exists there; in
 * ctx->scratch.  The path of a special file stays. */
calm_status calm_path_target(calm_ctx *ctx, const char *path, char **out);

/* Fail with CALM_EARG if `path`, which is to be read as a file, is a directory; if it is special. */
calm_status calm_path_refuse_directory(calm_ctx *ctx, const char *path);
calm_status calm_path_refuse_special(calm_ctx *ctx, const char *path);

/* Returns whether the file begins with these characters; false if it cannot be read, or is special. */
bool calm_file_begins(const char *path, const char *magic);

/* Fails with CALM_EFORMAT if the bytes are a pointer that Git LFS leaves in place of a file that it has not
 * fetched. */
calm_status calm_refuse_pointer(calm_ctx *ctx, const char *path, const void *bytes, size_t n_bytes);

/* Returns whether the directory has an entry of this name. */
bool calm_path_has(const char *dir, const char *name);

/* Creates a directory and its parents; no error if it exists. */
calm_status calm_make_directories(calm_ctx *ctx, const char *path);

/* Creates the directory part of `path`, and its parents. */
calm_status calm_make_parent(calm_ctx *ctx, const char *path);

/* Removes a file or a directory tree; no error if it does not exist.  Links are not followed. */
calm_status calm_remove_tree(calm_ctx *ctx, const char *path);

/* Returns the part of a path behind its last slash. */
const char *calm_path_name(const char *path);

/* Returns the directory part of a path, "." if it has none; in ctx->scratch. */
calm_status calm_path_parent(calm_ctx *ctx, const char *path, char **out);

/* Returns the path itself if it exists, else the nearest folder above it that exists; in ctx->scratch. */
calm_status calm_path_existing(calm_ctx *ctx, const char *path, char **out);

/* Computes the free bytes of the disk that an existing path is on; false, with errno: the system does not say. */
bool calm_disk_free(const char *path, double *bytes);

/* Joins dir + "/" + name in `arena`. */
calm_status calm_path_join(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *dir, const char *name);

/* Returns the path of `name` in the directory `place`, or next to `place` if that is a file; in `arena`. */
calm_status calm_path_beside(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *place,
                             const char *name);

/* Syncs a directory, so that a rename in it survives a power cut. */
calm_status calm_sync_directory(calm_ctx *ctx, const char *path);

/* Copies the bytes of a file, without owner, mode and times. */
calm_status calm_copy_file(calm_ctx *ctx, const char *from, const char *to);

/* An empty mapping that is unmapped at the end of its scope. */
#define CALM_SCOPED_MAPPING(name) CALM_SCOPED(calm_mapping, calm_unmap_file) name = {0}
