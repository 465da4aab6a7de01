/* Context: the first failure, the log, and allocation that reports. */
#include "ptq/base/context.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void calm_ctx_init(calm_ctx *ctx, calm_arena *out, calm_arena *scratch)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->out = out;
    ctx->scratch = scratch;
    ctx->n_threads = 1;
}

void calm_ctx_clear_failure(calm_ctx *ctx)
{
    ctx->status = CALM_OK;
    ctx->message[0] = '\0';
}

calm_status calm_fail(calm_ctx *ctx, calm_status status, const char *format, ...)
{
    assert(status != CALM_OK);
    if (ctx->status != CALM_OK)
        return ctx->status;
    va_list args;
    va_start(args, format);
    vsnprintf(ctx->message, sizeof ctx->message, format, args);
    va_end(args);
    ctx->status = status;
    return status;
}

calm_status calm_check_interrupt(calm_ctx *ctx)
{
    if (!ctx->stop || !atomic_load(ctx->stop) || !atomic_exchange(ctx->stop, false))
        return CALM_OK;
    return calm_fail(ctx, CALM_EINTERRUPTED, "interrupted");
}

static calm_status errno_status(int error_number)
{
    return error_number == ENOSPC || error_number == EDQUOT ? CALM_ENOSPC
           : error_number == ENOENT                         ? CALM_ENOTFOUND
           : error_number == ENOMEM                         ? CALM_ENOMEM
                                                            : CALM_EIO;
}

calm_status calm_fail_errno(calm_ctx *ctx, int error_number, const char *format, ...)
{
    char text[CALM_MESSAGE_MAX], reason[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return calm_fail(ctx, errno_status(error_number), "%s: %s", text,
                     strerror_r(error_number, reason, sizeof reason));
}

void calm_log(calm_ctx *ctx, calm_log_level level, const char *format, ...)
{
    if (!ctx->log)
        return;
    char line[CALM_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}

/* Returns whether the limit refuses an allocation.  Arenas request whole chunks, and slightly more than the
 * allocation. */
static bool passes_limit(const calm_memory *memory, size_t count, size_t size)
{
    const size_t limit = calm_memory_limit(memory), used = calm_memory_used(memory);
    size_t bytes;
    return limit && calm_size_mul(&bytes, count, size) && calm_size_add(&bytes, bytes, CALM_ARENA_CHUNK) &&
           (used > limit || bytes > limit - used);
}

/* Returns the arena after assigning the account of the first context that uses it, to which later chunks are
 * charged. */
static calm_arena *counted(const calm_ctx *ctx, calm_arena *arena)
{
    if (!arena->memory)
        arena->memory = ctx->memory;
    return arena;
}

/* Stores an allocation in *out, or fails with its size and purpose. */
static calm_status deliver(calm_ctx *ctx, void *block, void *out, size_t count, size_t size, const char *what)
{
    memcpy(out, &block, sizeof block);
    if (block)
        return CALM_OK;
    if (passes_limit(ctx->memory, count, size))
        return calm_fail(ctx, CALM_ENOMEM,
                         "out of memory: %zu x %zu bytes for %s would pass the limit of %.2f GB (`memory`)", count,
                         size, what, (double)calm_memory_limit(ctx->memory) / 1e9);
    return calm_fail(ctx, CALM_ENOMEM, "out of memory: %zu x %zu bytes for %s", count, size, what);
}

calm_status calm_alloc_raw(calm_ctx *ctx, calm_arena *arena, void *out, size_t count, size_t size, const char *what)
{
    return deliver(ctx, calm_arena_alloc(counted(ctx, arena), count, size), out, count, size, what);
}

calm_status calm_alloc(calm_ctx *ctx, calm_arena *arena, void *out, size_t count, size_t size, const char *what)
{
    return deliver(ctx, calm_arena_zalloc(counted(ctx, arena), count, size), out, count, size, what);
}

calm_status calm_strf(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *format, ...)
{
    char *text;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    assert(length >= 0);
    calm_status status = calm_alloc(ctx, arena, &text, (size_t)length + 1, 1, "a string");
    if (status == CALM_OK)
        vsnprintf(text, (size_t)length + 1, format, again);
    memcpy(out.text, &text, sizeof text);    /* of either type */
    va_end(again);
    return status;
}
