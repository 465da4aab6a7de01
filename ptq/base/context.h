/* Context: what every fallible function receives - memory, the first error, threads, the log.
 *
 * One context belongs to one thread.  calm_parallel_for (threads.h) makes child contexts for its workers. */
#pragma once

#include <stdatomic.h>

#include "ptq/base/arena.h"
#include "ptq/base/status.h"

#define CALM_MESSAGE_MAX 2048

/* Receives the progress of a long piece of work; called from the thread that runs it. */
typedef void calm_tick_fn(void *user, size_t done, size_t total);

/* What operands of matrix products are: as they stand, rounded to bfloat16, or to the sum of two bfloat16 where the CPU
 * multiplies those (ptq/tensor/bf16_product.h). */
typedef enum calm_operands { CALM_OPERANDS_F32, CALM_OPERANDS_BF16, CALM_OPERANDS_BF16X2 } calm_operands;
#define CALM_OPERANDS_NAMES "f32|bf16|bf16x2"

/* What computes with them where one bfloat16 is too far off: all but the calibration. */
static inline calm_operands calm_operands_near(calm_operands operands)
{
    return operands == CALM_OPERANDS_BF16 ? CALM_OPERANDS_F32 : operands;
}

struct calm_ctx {
    calm_arena *out;                   /* results of the work in progress; owned by the caller      */
    calm_arena *scratch;               /* temporaries; the code that runs a piece of work rewinds it      */
    calm_status status;                /* first failure, CALM_OK before one                         */
    char message[CALM_MESSAGE_MAX];    /* one sentence about it, no newline                         */
    calm_memory *memory;               /* account of its arenas and its workers'; NULL: not counted */
    int n_threads;                     /* workers for calm_parallel_for, of a task its share; >= 1   */
    calm_operands operands;            /* of calm_multiply                                          */
    bool ints;                         /* quantized linears are products of whole numbers: ptq/model/int_linear.h */
    bool int_attention;                /* so is the attention between them: ptq/model/int_attention.c */
    bool decode;                       /* weights stay as they are stored, for few rows: ptq/model/row_linear.h */
    bool resident;                     /* mapped pages that were read stay: there is memory for the whole model */
    atomic_bool *stop;                 /* calm_interrupt sets it; NULL: nobody can                 */
    size_t columns;                    /* of lines of text for people; 0: as wide as they come      */
    calm_log_fn *log;                  /* NULL: silent                                              */
    void *log_user;
};

/* A context over two arenas of the caller: not counted, one thread, no log. */
void calm_ctx_init(calm_ctx *ctx, calm_arena *out, calm_arena *scratch);

/* Forget the failure, for callers that continue after one (a candidate that failed is a row in the store). */
void calm_ctx_forgive(calm_ctx *ctx);

/* For functions of calm.h, first: forget what the last call failed with; CALM_EARG without a context, or when `given`,
 * which says that every needed pointer is there, is false. */
#define CALM_ENTER(ctx, given)                                                                                         \
    do {                                                                                                               \
        if (!(ctx))                                                                                                    \
            return CALM_EARG;                                                                                          \
        calm_ctx_forgive(ctx);                                                                                         \
        if (!(given))                                                                                                  \
            return calm_fail((ctx), CALM_EARG, "%s: a pointer that is needed is NULL", __func__);                      \
    } while (0)

/* Record a failure and return its status.  The first failure wins: a later call changes nothing and returns
 * the first status.  `status` must not be CALM_OK. */
calm_status calm_fail(calm_ctx *ctx, calm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Failure of a system call: the text is followed by ": " and strerror(error_number); ENOSPC and EDQUOT become
 * CALM_ENOSPC, ENOENT CALM_ENOTFOUND, ENOMEM CALM_ENOMEM, everything else CALM_EIO. */
calm_status calm_fail_errno(calm_ctx *ctx, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* CALM_EINTERRUPTED where somebody asked that the work ends.  For the beginning of what takes a second and can fail. */
calm_status calm_go_on(calm_ctx *ctx);

/* Log one line; does nothing without a log function. */
void calm_log(calm_ctx *ctx, calm_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Allocate `count` objects of `size` bytes from `arena` into *out, zero-filled.
 * Fails with CALM_ENOMEM, naming `what` and the size; *out is then NULL. */
calm_status calm_alloc(calm_ctx *ctx, calm_arena *arena, void *out, size_t count, size_t size,
                       const char *what);

/* The same without filling: for large buffers that are written before they are read. */
calm_status calm_alloc_raw(calm_ctx *ctx, calm_arena *arena, void *out, size_t count, size_t size,
                           const char *what);

/* Allocate an array for the pointer variable `ptr`: CALM_TRY(CALM_NEW(ctx, ctx->scratch, ptr, n)). */
#define CALM_NEW(ctx, arena, ptr, count)                                                                     \
    calm_alloc((ctx), (arena), &(ptr), (count), sizeof *(ptr), #ptr)
#define CALM_NEW_RAW(ctx, arena, ptr, count)                                                                 \
    calm_alloc_raw((ctx), (arena), &(ptr), (count), sizeof *(ptr), #ptr)

/* Where a new string goes: the address of a `char *` or of a `const char *`, either of which is passed as it is. */
typedef union calm_string_out {
    char **text;
    const char **constant;
} calm_string_out __attribute__((transparent_union));

/* printf into the arena; *out is a NUL-terminated string.  Fails with CALM_ENOMEM. */
calm_status calm_strf(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
