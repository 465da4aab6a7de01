/* Memory of OpenBLAS's buffers under a limit on address space. */
#include "ptq/tensor/linalg_memory.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include "ptq/base/memory.h"
#include "ptq/tensor/linalg.h"

#define MIB ((size_t)1 << 20)
#define BUFFER_BYTES (129 * MIB)    /* OpenBLAS's largest BUFFER_SIZE on x86-64, with its alignment       */
#define HEAP_BYTES (64 * MIB)       /* reserved by the C library for a thread's arena                     */
#define STACK_BYTES (8 * MIB)       /* of a thread, if RLIMIT_STACK is unlimited                          */
#define SPARE_BYTES (64 * MIB)      /* for a small model, its statistics and the store                    */

/* OpenBLAS's allocator, which reuses the buffer of an earlier call; absent in other libraries. */
extern void *blas_memory_alloc(int position) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

static size_t stack_bytes(void)
{
    struct rlimit limit;
    const bool known = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return known ? (size_t)limit.rlim_cur : STACK_BYTES;
}

/* Returns the bytes of address space of a thread. */
static size_t thread_bytes(void)
{
    return BUFFER_BYTES + HEAP_BYTES + stack_bytes();
}

/* Message about a reduced number of threads, which is decided before a log exists. */
static char note[160];

void calm_linalg_note_limit(calm_ctx *ctx)
{
    if (*note)
        calm_log(ctx, CALM_LOG_INFO, "%s", note);
    *note = '\0';
}

bool calm_linalg_is_limited(void)
{
    size_t limit;
    const char *option;
    return calm_memory_left(&limit, &option) != SIZE_MAX;
}

/* Writes a message about the missing memory to text [n]. */
static void say_too_little(size_t limit, const char *option, size_t left, char *text, size_t n)
{
    const size_t need = thread_bytes() + SPARE_BYTES;
    snprintf(text, n, "the limit of %zu MiB on memory (%s) leaves %zu MiB to calm; one thread needs %zu MiB and the "
             "model more: raise it (%s %zu)", limit / MIB, option, left / MIB, need / MIB, option,
             (limit - left + 2 * need) / 1024);
}

bool calm_linalg_cannot_load(char *text, size_t n)
{
    size_t limit = 0;
    const char *option = "";
    const size_t left = calm_memory_left(&limit, &option);
    if (left >= BUFFER_BYTES)
        return false;
    say_too_little(limit, option, left, text, n);
    return true;
}

/* Makes OpenBLAS allocate n buffers, which it keeps. */
static void make_buffers(size_t n)
{
    void *buffer[1024];
    if (!blas_memory_alloc || !blas_memory_free)
        return;
    n = n < sizeof buffer / sizeof *buffer ? n : sizeof buffer / sizeof *buffer;
    for (size_t i = 0; i < n; i++)
        buffer[i] = blas_memory_alloc(0);
    for (size_t i = 0; i < n; i++)
        blas_memory_free(buffer[i]);
}

void calm_linalg_cap(calm_ctx *ctx)
{
    const int most = calm_linalg_most_threads();
    if (ctx->n_threads <= most)
        return;
    snprintf(note, sizeof note, "this OpenBLAS was built for %d threads and has buffers for %d: calm uses %d of %d "
             "threads", most / 2, most, most, ctx->n_threads);
    ctx->n_threads = most;
}

calm_status calm_linalg_reserve(calm_ctx *ctx)
{
    calm_linalg_cap(ctx);
    static bool done;
    size_t limit = 0;
    const char *option = "";
    const size_t left = calm_memory_left(&limit, &option), each = thread_bytes();
    if (done || left == SIZE_MAX)
        return CALM_OK;
    const size_t fit = left > SPARE_BYTES ? (left - SPARE_BYTES) / each : 0;
    if (!fit) {
        char text[256];
        say_too_little(limit, option, left, text, sizeof text);
        return calm_fail(ctx, CALM_ENOMEM, "%s", text);
    }
    if (fit < (size_t)ctx->n_threads) {
        snprintf(note, sizeof note, "the limit of %zu MiB on memory (%s) has room for %zu of %d threads", limit / MIB,
                 option, fit, ctx->n_threads);
        ctx->n_threads = (int)fit;
    }
    make_buffers((size_t)ctx->n_threads);
    done = true;
    return CALM_OK;
}
