/* Blobs: files named by the SHA-256 of their content, in a folder that only grows until `calm gc` (store/gc.h).
 *
 *   <root>/ab/cdef...          62 hexadecimal digits after the first two
 *   <root>/tmp/...             blobs being written; the next writer removes those of dead processes
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

/* Writes a blob and returns its digest.  Creates the folder if absent; writes an existing blob again, which repairs a
 * damaged one.  CALM_ENOSPC, CALM_EIO: no file remains; the message names the folder. */
calm_status calm_blob_put(calm_ctx *ctx, const char *root, const calm_blob_piece *pieces, size_t n_pieces,
                          char digest[CALM_SHA256_HEX]);

/* Maps a blob and checks its content against its name; the caller closes *out with calm_unmap_file.
 * CALM_ENOTFOUND: absent.  CALM_EFORMAT: damaged (the caller computes it again and puts it), or `digest` is not 64
 * lower-case hexadecimal digits. */
calm_status calm_blob_get(calm_ctx *ctx, const char *root, const char *digest, calm_mapping *out);

/* Is there a file of this name and size?  The content is not read. */
bool calm_blob_present(const char *root, const char *digest, size_t n_bytes);

/* Receives each blob; any status but CALM_OK ends the walk and is its result. */
typedef calm_status calm_blob_fn(calm_ctx *ctx, void *user, const char *digest, size_t n_bytes);

/* Calls `fn` for every file that has the name of a blob; `fn` may remove this blob.  Ignores other files and symbolic
 * links.  No error if there is no folder. */
calm_status calm_blob_walk(calm_ctx *ctx, const char *root, calm_blob_fn *fn, void *user);

/* Removes a blob; no error if there is none.  The caller must hold the writer's lock, and no row may name the blob. */
calm_status calm_blob_remove(calm_ctx *ctx, const char *root, const char *digest);

/* Removes the files of dead writers in tmp/.  The caller must hold the writer's lock.  No error without a folder. */
calm_status calm_blob_sweep(calm_ctx *ctx, const char *root);
