/* Files: whole reads, mappings, and writing so that a reader sees either the old file or the new one. */
#pragma once

#include "ptq/base/scope.h"
#include <stdint.h>
#include <stdio.h>

#include "ptq/base/context.h"

/* A file mapped read-only.  Reading it after another process has shortened the file ends this process (SIGBUS). */
typedef struct calm_mapping {
    const uint8_t *data;    /* never NULL while mapped, also of an empty file */
    size_t bytes;
} calm_mapping;

/* Map a regular file.  CALM_ENOTFOUND, CALM_EIO; CALM_EARG when it is a directory or another special file. */
calm_status calm_map_file(calm_ctx *ctx, const char *path, calm_mapping *out);

/* The same for a file of at most `limit` bytes.  CALM_EFORMAT when it is larger. */
calm_status calm_map_file_within(calm_ctx *ctx, const char *path, size_t limit, calm_mapping *out);

/* Safe to call again, and on a mapping that failed. */
void calm_unmap_file(calm_mapping *map);

/* Drop a range of a mapping from resident memory, with what the system maps around it.  Safe while others read there:
 * the pages are read from the file again. */
void calm_mapping_release(const calm_mapping *map, size_t offset, size_t bytes);

/* Read a whole file into ctx->out, with a NUL after the last byte.
 * CALM_EFORMAT when it is larger than `limit` bytes. */
calm_status calm_read_file(calm_ctx *ctx, const char *path, size_t limit, char **out, size_t *n_bytes);

/* Write `bytes` to a temporary name next to `path`, fsync, rename.  Nothing half-written stays under `path`;
 * on failure the temporary file is removed. */
calm_status calm_write_file(calm_ctx *ctx, const char *path, const void *bytes, size_t n_bytes);

/* A file that gets its name when it is complete.  A link stays and its end is written; into a device or a pipe
 * (/dev/stdout, /dev/null) one writes at once, since a rename would put a file in its place. */
typedef struct calm_new_file {
    char *target;       /* `path` without links; all three in ctx->scratch */
    char *folder;       /* that it is in */
    char *temporary;    /* where to write: the target and `ending`, or the device */
} calm_new_file;
calm_status calm_new_file_begin(calm_ctx *ctx, const char *path, const char *ending, calm_new_file *out);
/* Also after a failure: it then removes the temporary file, and returns the failure in ctx. */
calm_status calm_new_file_end(calm_ctx *ctx, const calm_new_file *file);

/* A file being written front to back.  Not atomic: its directory is temporary and is renamed as a whole. */
typedef struct calm_writer {
    FILE *stream;
    const char *path;    /* borrowed */
    uint64_t written;
} calm_writer;
calm_status calm_writer_open(calm_ctx *ctx, calm_writer *writer, const char *path);
calm_status calm_writer_put(calm_ctx *ctx, calm_writer *writer, const void *bytes, size_t n_bytes);
/* Flush, fsync, close.  Also after a failure: it then closes only, and returns the failure in ctx. */
calm_status calm_writer_close(calm_ctx *ctx, calm_writer *writer);

/* Is there anything under this name, a broken link too?  Is it a directory, or a link to one?  Is it something else? */
bool calm_path_exists(const char *path);
bool calm_is_directory(const char *path);
bool calm_is_file(const char *path);

/* Is it, or does it link to, a device, a pipe or a socket? */
bool calm_path_is_special(const char *path);

/* Where something written under this name goes: the end of its links, even if nothing is there yet; in ctx->scratch.
 * A special file keeps its name. */
calm_status calm_path_target(calm_ctx *ctx, const char *path, char **out);

/* CALM_EARG: it is a directory, where a file is to be read. */
calm_status calm_path_refuse_directory(calm_ctx *ctx, const char *path);

/* Does the file begin with these characters?  false where it cannot be read. */
bool calm_file_begins(const char *path, const char *magic);

/* CALM_EFORMAT: the bytes are what Git LFS leaves in the place of a file that it has not fetched. */
calm_status calm_refuse_pointer(calm_ctx *ctx, const char *path, const void *bytes, size_t n_bytes);

/* Is there anything of this name in the directory? */
bool calm_path_has(const char *dir, const char *name);

/* Create a directory and its parents; no error when it is there. */
calm_status calm_make_directories(calm_ctx *ctx, const char *path);

/* Create the directory part of `path`, and its parents. */
calm_status calm_make_parent(calm_ctx *ctx, const char *path);

/* Remove a file or a directory with all below it; no error when it is not there.  Links are not followed. */
calm_status calm_remove_tree(calm_ctx *ctx, const char *path);

/* The part of a path behind its last slash. */
const char *calm_path_name(const char *path);

/* The directory part of a path, "." when it has none; in ctx->scratch. */
calm_status calm_path_parent(calm_ctx *ctx, const char *path, char **out);

/* The path where there is something, else the nearest folder above it that exists; in ctx->scratch. */
calm_status calm_path_existing(calm_ctx *ctx, const char *path, char **out);

/* Bytes that may still be written to the disk of an existing path; false, with errno: the system does not say. */
bool calm_disk_free(const char *path, double *bytes);

/* dir + "/" + name in `arena`. */
calm_status calm_path_join(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *dir, const char *name);

/* `name` in the directory `place`, or where `place` is a file next to it; in `arena`. */
calm_status calm_path_beside(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *place,
                             const char *name);

/* fsync a directory, so that a rename in it survives a power cut. */
calm_status calm_sync_directory(calm_ctx *ctx, const char *path);

/* Copy the bytes of a file, without owner, mode and times. */
calm_status calm_copy_file(calm_ctx *ctx, const char *from, const char *to);

/* A mapping of nothing yet that is unmapped at the end of its scope. */
#define CALM_SCOPED_MAPPING(name) CALM_SCOPED(calm_mapping, calm_unmap_file) name = {0}
