/* Context, the first argument of every fallible function: memory, the first error, threads, the log.
 *
 * A context belongs to one thread.  calm_parallel_for (threads.h) makes child contexts for its workers. */
#pragma once

#include <stdatomic.h>

#include "ptq/base/arena.h"
#include "ptq/base/status.h"

#define CALM_MESSAGE_MAX 2048

/* Receives the progress of long work; called from the thread that runs the work. */
typedef void calm_tick_fn(void *user, size_t done, size_t total);

/* Type of the operands of matrix products: float32, bfloat16, or the sum of two bfloat16 values where the CPU has
 * bfloat16 products (ptq/tensor/bf16_product.h). */
typedef enum calm_operands { CALM_OPERANDS_F32, CALM_OPERANDS_BF16, CALM_OPERANDS_BF16X2 } calm_operands;
#define CALM_OPERANDS_NAMES "f32|bf16|bf16x2"

/* Returns the operand type for everything but the calibration: float32 in place of a single bfloat16, whose error
 * is too large there. */
static inline calm_operands calm_operands_near(calm_operands operands)
{
    return operands == CALM_OPERANDS_BF16 ? CALM_OPERANDS_F32 : operands;
}

struct calm_ctx {
    calm_arena *out;                   /* arena for results of the work in progress; owned by the caller */
    calm_arena *scratch;               /* arena for temporaries; the code that runs a piece of work rewinds it */
    calm_status status;                /* first failure; CALM_OK: none                              */
    char message[CALM_MESSAGE_MAX];    /* one sentence about the failure, without a newline         */
    calm_memory *memory;               /* account of its arenas and of its workers' arenas; NULL: not counted */
    int n_threads;                     /* workers of calm_parallel_for, >= 1; in a task: its share of them */
    calm_operands operands;            /* operand type of calm_multiply                             */
    bool ints;                         /* compute quantized linears as integer products: ptq/weights/int_linear.h   */
    bool int_attention;                /* compute attention as integer products, too: ptq/layers/int_attention.c */
    bool decode;                       /* keep weights in their stored format, for few rows: ptq/weights/row_linear.h */
    bool resident;                     /* keep mapped pages resident after reading: the whole model fits in memory */
    atomic_bool *stop;                 /* calm_interrupt sets it; NULL: the work cannot be interrupted */
    size_t columns;                    /* width of lines of text for people; 0: unlimited           */
    calm_log_fn *log;                  /* NULL: silent                                              */
    void *log_user;
};

/* Initialises a context over two arenas of the caller: memory not counted, one thread, no log. */
void calm_ctx_init(calm_ctx *ctx, calm_arena *out, calm_arena *scratch);

/* Clears the failure, for callers that continue after one (a candidate that failed is a row in the store). */
void calm_ctx_clear_failure(calm_ctx *ctx);

/* Begins a function of calm.h: clears the failure of the last call.  Returns CALM_EARG without a context, or when
 * `given` is false, which says that every required pointer is not NULL. */
#define CALM_ENTER(ctx, given)                                                                                         \
    do {                                                                                                               \
        if (!(ctx))                                                                                                    \
            return CALM_EARG;                                                                                          \
        calm_ctx_clear_failure(ctx);                                                                                   \
        if (!(given))                                                                                                  \
            return calm_fail((ctx), CALM_EARG, "%s: a pointer that is needed is NULL", __func__);                      \
    } while (0)

/* Records a failure and returns its status.  The first failure wins: a later call changes nothing and returns the
 * first status.  `status` must not be CALM_OK. */
calm_status calm_fail(calm_ctx *ctx, calm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Records the failure of a system call: ": " and strerror(error_number) follow the text; ENOSPC and EDQUOT become
 * CALM_ENOSPC, ENOENT CALM_ENOTFOUND, ENOMEM CALM_ENOMEM, everything else CALM_EIO. */
calm_status calm_fail_errno(calm_ctx *ctx, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails with CALM_EINTERRUPTED after calm_interrupt.  Called before each piece of work that takes about a second. */
calm_status calm_check_interrupt(calm_ctx *ctx);

/* Logs one line; does nothing without a log function. */
void calm_log(calm_ctx *ctx, calm_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Allocates `count` objects of `size` bytes from `arena` into *out, filled with zeros.  CALM_ENOMEM names `what`
 * and the size; *out is then NULL. */
calm_status calm_alloc(calm_ctx *ctx, calm_arena *arena, void *out, size_t count, size_t size,
                       const char *what);

/* Does the same without filling: for large buffers that are written before they are read. */
calm_status calm_alloc_raw(calm_ctx *ctx, calm_arena *arena, void *out, size_t count, size_t size,
                           const char *what);

/* Allocate an array for the pointer variable `ptr`: CALM_TRY(CALM_NEW(ctx, ctx->scratch, ptr, n)). */
#define CALM_NEW(ctx, arena, ptr, count)                                                                     \
    calm_alloc((ctx), (arena), &(ptr), (count), sizeof *(ptr), #ptr)
#define CALM_NEW_RAW(ctx, arena, ptr, count)                                                                 \
    calm_alloc_raw((ctx), (arena), &(ptr), (count), sizeof *(ptr), #ptr)

/* Address of the pointer that receives a new string: the argument may be a `char **` or a `const char **`. */
typedef union calm_string_out {
    char **text;
    const char **constant;
} calm_string_out __attribute__((transparent_union));

/* Formats a string into the arena; *out is NUL-terminated.  CALM_ENOMEM. */
calm_status calm_strf(calm_ctx *ctx, calm_arena *arena, calm_string_out out, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
