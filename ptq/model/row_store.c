/* Rows in memory or in a file. */
#include "ptq/model/row_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of `bytes` bytes that has no name, so that nothing is left behind when the process is killed. */
static calm_status open_file(calm_ctx *ctx, const char *dir, size_t bytes, int *out)
{
    int file = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) {    /* a file system without nameless files */
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s/calm-spill-XXXXXX", dir));
        file = mkostemp(name, O_CLOEXEC);
        if (file < 0)
            return calm_fail_errno(ctx, errno, "%s: cannot make a temporary file", dir);
        /* The name existed for a moment only. */
        unlink(name);
    }
    /* A full disk is reported now and not in the middle of a block. */
    const int reserved = posix_fallocate(file, 0, (off_t)bytes);
    if (reserved != 0) {
        close(file);
        return calm_fail_errno(ctx, reserved, "%s: cannot reserve %zu bytes for hidden rows", dir, bytes);
    }
    *out = file;
    return CALM_OK;
}

size_t calm_row_store_bytes(size_t n, size_t width)
{
    return CALM_BYTES(float, n * width);
}

calm_status calm_row_store_open(calm_ctx *ctx, calm_arena *arena, size_t n, size_t width, const char *spill_dir,
                                calm_row_store *out)
{
    size_t elements, bytes;
    *out = (calm_row_store){.n = n, .width = width, .file = -1};
    if (!calm_size_mul(&elements, n, width) || !calm_size_mul(&bytes, elements, sizeof(float)))
        return calm_fail(ctx, CALM_ENOMEM, "hidden rows: %zu x %zu overflows", n, width);
    if (spill_dir && bytes)
        return open_file(ctx, spill_dir, bytes, &out->file);
    return CALM_NEW_RAW(ctx, arena, out->data, elements);
}

void calm_row_store_close(calm_row_store *rows)
{
    if (rows->file >= 0)
        close(rows->file);
    rows->file = -1;
}

calm_status calm_row_store_get(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float **x)
{
    const size_t bytes = count * rows->width * sizeof(float);
    size_t done = 0;
    /* The rows themselves, not a copy: what is written to x is in the store. */
    if (rows->file < 0) {
        *x = rows->data + first * rows->width;
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *x, count * rows->width));
    while (done < bytes) {
        const ssize_t n =
            pread(rows->file, (char *)*x + done, bytes - done, (off_t)(first * rows->width * sizeof(float) + done));
        /* A signal (the progress timer) may interrupt a long read. */
        if (n < 0 && errno == EINTR)
            continue;
        /* 0 is the end of a file that was reserved in full: something has truncated it. */
        if (n <= 0)
            return calm_fail_errno(ctx, n < 0 ? errno : EIO, "cannot read hidden rows back from their temporary file");
        done += (size_t)n;
    }
    return CALM_OK;
}

calm_status calm_row_store_put(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, const float *x)
{
    const size_t bytes = count * rows->width * sizeof(float);
    size_t done = 0;
    /* pread and pwrite have no common position: workers share the descriptor. */
    while (rows->file >= 0 && done < bytes) {
        const ssize_t n = pwrite(rows->file, (const char *)x + done, bytes - done,
                                 (off_t)(first * rows->width * sizeof(float) + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return calm_fail_errno(ctx, errno, "cannot write hidden rows to their temporary file");
        done += (size_t)n;
    }
    return CALM_OK;
}
