/* Rows in memory or in a file. */
#include "ptq/layers/row_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"

/* Opens a file without a name, so that nothing remains when the process is killed. */
static calm_status open_nameless(calm_ctx *ctx, const char *dir, int *out)
{
    int file = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) {    /* the file system has no nameless files */
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s/calm-spill-XXXXXX", dir));
        file = mkostemp(name, O_CLOEXEC);
        if (file < 0)
            return calm_fail_errno(ctx, errno, "%s: cannot make a temporary file", dir);
        /* The name existed only for a moment. */
        unlink(name);
    }
    *out = file;
    return CALM_OK;
}

/* Reserves space, so that a full disk is reported now and not in the middle of a block. */
static calm_status reserve(calm_ctx *ctx, const char *where, size_t bytes, calm_row_store *rows)
{
    const int reserved = bytes ? posix_fallocate(rows->file, 0, (off_t)bytes) : 0;
    if (reserved == 0)
        return CALM_OK;
    calm_row_store_close(rows);
    return calm_fail_errno(ctx, reserved, "%s: cannot reserve %zu bytes for hidden rows", where, bytes);
}

/* Initialises a store without rows, and computes the bytes of its rows. */
static calm_status begin(calm_ctx *ctx, size_t n, size_t width, calm_row_store *out, size_t *bytes)
{
    *out = (calm_row_store){.n = n, .width = width, .file = -1};
    if (calm_size_mul(bytes, n, width) && calm_size_mul(bytes, *bytes, sizeof(float)))
        return CALM_OK;
    return calm_fail(ctx, CALM_ENOMEM, "hidden rows: %zu x %zu overflows", n, width);
}

size_t calm_row_store_bytes(size_t n, size_t width)
{
    return CALM_BYTES(float, n * width);
}

calm_status calm_row_store_open(calm_ctx *ctx, calm_arena *arena, size_t n, size_t width, const char *spill_dir,
                                calm_row_store *out)
{
    size_t bytes;
    CALM_TRY(begin(ctx, n, width, out, &bytes));
    /* A file of 0 bytes cannot be reserved. */
    if (!spill_dir || !bytes)
        return CALM_NEW_RAW(ctx, arena, out->data, n * width);
    CALM_TRY(open_nameless(ctx, spill_dir, &out->file));
    return reserve(ctx, spill_dir, bytes, out);
}

calm_status calm_row_store_create(calm_ctx *ctx, const char *path, size_t n, size_t width, calm_row_store *out)
{
    size_t bytes;
    CALM_TRY(begin(ctx, n, width, out, &bytes));
    /* Leftovers of a killed process are overwritten. */
    out->file = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666);
    if (out->file < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot create", path);
    return reserve(ctx, path, bytes, out);
}

calm_status calm_row_store_reopen(calm_ctx *ctx, const char *path, size_t width, calm_row_store *out)
{
    struct stat info;
    /* Read-only: a caller with more rows creates another file. */
    *out = (calm_row_store){.width = width, .file = open(path, O_RDONLY | O_CLOEXEC)};
    if (out->file < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot open", path);
    /* An incomplete row at the end was cut off, and is ignored. */
    if (fstat(out->file, &info) == 0 && S_ISREG(info.st_mode)) {
        out->n = (size_t)info.st_size / (width * sizeof(float));
        return CALM_OK;
    }
    calm_row_store_close(out);
    return calm_fail(ctx, CALM_EFORMAT, "%s: is no file of rows", path);
}

calm_status calm_row_store_publish(calm_ctx *ctx, const calm_row_store *rows, const char *path, const char *name)
{
    char *dir;
    /* Rows before the name: after a power failure no file must have half of them. */
    if (fsync(rows->file) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot flush", path);
    if (rename(path, name) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot rename to it", name);
    CALM_TRY(calm_path_parent(ctx, name, &dir));
    return calm_sync_directory(ctx, dir);
}

void calm_row_store_close(calm_row_store *rows)
{
    if (rows->file >= 0)
        close(rows->file);
    rows->file = -1;
}

calm_status calm_row_store_read(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float *x)
{
    const size_t bytes = count * rows->width * sizeof(float);
    size_t done = 0;
    if (rows->file < 0)
        memcpy(x, rows->data + first * rows->width, bytes);
    while (rows->file >= 0 && done < bytes) {
        const ssize_t n =
            pread(rows->file, (char *)x + done, bytes - done, (off_t)(first * rows->width * sizeof(float) + done));
        /* A signal (the progress timer) may interrupt a long read. */
        if (n < 0 && errno == EINTR)
            continue;
        /* 0 means the end of a fully reserved file: something has truncated it. */
        if (n <= 0)
            return calm_fail_errno(ctx, n < 0 ? errno : EIO, "cannot read hidden rows back from their file");
        done += (size_t)n;
    }
    return CALM_OK;
}

calm_status calm_row_store_get(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, float **x)
{
    /* A pointer to the rows, not a copy: changes of x are in the store. */
    if (rows->file < 0) {
        *x = rows->data + first * rows->width;
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *x, count * rows->width));
    return calm_row_store_read(ctx, rows, first, count, *x);
}

calm_status calm_row_store_put(calm_ctx *ctx, const calm_row_store *rows, size_t first, size_t count, const float *x)
{
    const size_t bytes = count * rows->width * sizeof(float);
    size_t done = 0;
    /* pread and pwrite use no common position, so workers share the descriptor. */
    while (rows->file >= 0 && done < bytes) {
        const ssize_t n = pwrite(rows->file, (const char *)x + done, bytes - done,
                                 (off_t)(first * rows->width * sizeof(float) + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return calm_fail_errno(ctx, errno, "cannot write hidden rows to their file");
        done += (size_t)n;
    }
    return CALM_OK;
}
