/* Blobs: files named by the SHA-256 of their content, in a folder that only grows until `calm gc` (store/gc.h).
 *
 *   <root>/ab/cdef...          62 hexadecimal digits after the first two
 *   <root>/tmp/...             being written; what a dead process left there is removed by the next writer
 *
 * A blob appears under its name complete or not at all: it is written to tmp/, flushed to the disk and renamed.
 * The caller commits the row that names it afterwards, so a row never names a blob that was not written.
 * Functions are safe to call from several threads with a context each. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/file.h"
#include "ptq/base/sha256.h"

/* One piece of a blob; the pieces are written one after the other. */
typedef struct calm_blob_piece {
    const void *bytes;
    size_t n_bytes;
} calm_blob_piece;

/* Write a blob and return its digest.  The folder is made when absent; a blob that is there is written anew, which
 * repairs a damaged one.  CALM_ENOSPC, CALM_EIO: nothing is left behind, the message names the folder. */
calm_status calm_blob_put(calm_ctx *ctx, const char *root, const calm_blob_piece *pieces, size_t n_pieces,
                          char digest[CALM_SHA256_HEX]);

/* Map a blob and check its content against its name; close with calm_unmap_file.
 * CALM_ENOTFOUND: absent.  CALM_EFORMAT: damaged (the caller computes it again and puts it), or `digest` is not 64
 * lower-case hexadecimal digits. */
calm_status calm_blob_get(calm_ctx *ctx, const char *root, const char *digest, calm_mapping *out);

/* Is there a file of this name and size?  The content is not read. */
bool calm_blob_present(const char *root, const char *digest, size_t n_bytes);

/* Receives each blob; anything but CALM_OK ends the walk and is its result. */
typedef calm_status calm_blob_fn(calm_ctx *ctx, void *user, const char *digest, size_t n_bytes);

/* Call `fn` for every file that is named like a blob; it may remove that one.  Files with other names, and what links
 * in the folder lead to, stay as they are.  No error when there is no folder. */
calm_status calm_blob_walk(calm_ctx *ctx, const char *root, calm_blob_fn *fn, void *user);

/* Remove a blob; no error when it is not there.  Only for who holds the writer's lock and has no row that names it. */
calm_status calm_blob_remove(calm_ctx *ctx, const char *root, const char *digest);

/* Remove what dead writers left in tmp/; only for who holds the writer's lock.  No error when there is no folder. */
calm_status calm_blob_sweep(calm_ctx *ctx, const char *root);
