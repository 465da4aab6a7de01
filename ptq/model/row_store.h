/* Rows: a tall float32 matrix kept in memory, or in a file when it is larger than the memory it may have.
 *
 * Readers ask for a range and get it as a plain pointer; several threads may work on different ranges at once. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_row_store {
    size_t n, width;
    float *data;    /* [n, width]; NULL: they are in the file */
    int file;       /* -1: they are in memory */
} calm_row_store;

/* n x width floats of unspecified value.  `spill_dir` NULL: in `arena`; else in a nameless file in that directory,
 * which is gone when the process ends, however it ends.  CALM_ENOMEM, CALM_ENOSPC (space is reserved at once),
 * CALM_EIO. */
calm_status calm_row_store_open(calm_ctx *ctx, calm_arena *arena, size_t n, size_t width, const char *spill_dir,
                           calm_row_store *out);
void calm_row_store_close(calm_row_store *rows);

/* The same in a file of that name, which stays; what was in it is gone.  Fails as above. */
calm_status calm_row_store_create(calm_ctx *ctx, const char *path, size_t n, size_t width, calm_row_store *out);

/* Rows to read of a file that is there, all that it has.  CALM_ENOTFOUND, CALM_EIO; CALM_EFORMAT: it is none. */
calm_status calm_row_store_reopen(calm_ctx *ctx, const char *path, size_t width, calm_row_store *out);

/* Flush rows in the file `path` and give it another name, at once and in place of what had it. */
calm_status calm_row_store_publish(calm_ctx *ctx, const calm_row_store *rows, const char *path, const char *name);

/* Of n rows in memory; and what calm_row_store_get of n rows in a file takes of ctx->scratch. */
size_t calm_row_store_bytes(size_t n, size_t width);

/* *x [count, width] = rows first .. first + count - 1: the matrix itself, or a copy in ctx->scratch. */
calm_status calm_row_store_get(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float **x);

/* x [count, width] = a copy of those. */
calm_status calm_row_store_read(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float *x);

/* Keep what was changed in x from calm_row_store_get; nothing to do in memory. */
calm_status calm_row_store_put(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, const float *x);
