/* Row store: a tall float32 matrix in memory, or in a file when it exceeds its memory limit.
 *
 * Readers get a range of rows as a plain pointer; several threads may work on different ranges at once. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_row_store {
    size_t n, width;
    float *data;    /* [n, width]; NULL: the rows are in the file */
    int file;       /* file descriptor; -1: the rows are in memory */
} calm_row_store;

/* Allocates n x width uninitialised floats.  `spill_dir` NULL: in `arena`; else in a nameless file in that directory,
 * which disappears when the process ends, however it ends.  CALM_ENOMEM, CALM_ENOSPC (space is reserved at once),
 * CALM_EIO. */
calm_status calm_row_store_open(calm_ctx *ctx, calm_arena *arena, size_t n, size_t width, const char *spill_dir,
                           calm_row_store *out);
void calm_row_store_close(calm_row_store *rows);

/* Creates or truncates the file `path`, which stays, for n x width floats.  Fails as calm_row_store_open. */
calm_status calm_row_store_create(calm_ctx *ctx, const char *path, size_t n, size_t width, calm_row_store *out);

/* Opens all rows of an existing file for reading; an incomplete row at its end is ignored.  CALM_ENOTFOUND, CALM_EIO;
 * CALM_EFORMAT: it is no regular file. */
calm_status calm_row_store_reopen(calm_ctx *ctx, const char *path, size_t width, calm_row_store *out);

/* Flushes the file `path` to the disk and renames it atomically to `name`, replacing an existing file. */
calm_status calm_row_store_publish(calm_ctx *ctx, const calm_row_store *rows, const char *path, const char *name);

/* Returns the bytes of n rows: in memory, or for calm_row_store_get from a file in ctx->scratch. */
size_t calm_row_store_bytes(size_t n, size_t width);

/* Gets rows first .. first + count - 1, *x [count, width]: a pointer into the matrix, or a copy in ctx->scratch. */
calm_status calm_row_store_get(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float **x);

/* Copies those rows to x [count, width]. */
calm_status calm_row_store_read(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float *x);

/* Writes changes of x from calm_row_store_get back to the file; does nothing for rows in memory. */
calm_status calm_row_store_put(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, const float *x);
