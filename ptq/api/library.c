/* Contexts of the library. */
#include "ptq/api/library.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>

#include "ptq/base/threads.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/linalg_memory.h"

const char *calm_version(void)
{
    return CALM_VERSION;
}

calm_status calm_start(calm_ctx **out)
{
    if (!out)
        return CALM_EARG;
    calm_library *library = calloc(1, sizeof *library);
    *out = library ? &library->ctx : NULL;
    if (!library)
        return CALM_ENOMEM;
    calm_arena_init(&library->out);
    calm_arena_init(&library->scratch);
    calm_ctx_init(&library->ctx, &library->out, &library->scratch);
    /* Memory that is allocated without calm_alloc is counted too. */
    library->ctx.memory = library->out.memory = library->scratch.memory = &library->memory;
    library->ctx.n_threads = calm_n_cores();
    library->ctx.stop = &library->stop;
    calm_linalg_cap(&library->ctx);
    calm_linalg_setup();
    return CALM_OK;
}

void calm_stop(calm_ctx **ctx)
{
    if (!ctx || !*ctx)
        return;
    calm_clear(*ctx);
    free(*ctx);
    *ctx = NULL;
}

void calm_clear(calm_ctx *ctx)
{
    if (!ctx)
        return;
    calm_arena_clear(ctx->out);
    calm_arena_clear(ctx->scratch);
    calm_memory_release(ctx->memory);
}

const char *calm_error_text(const calm_ctx *ctx)
{
    if (!ctx)
        return "there is no context: calm_start did not run, or calm_stop did";
    if (ctx->status == CALM_OK)
        return "";
    return ctx->message[0] ? ctx->message : calm_status_words(ctx->status);
}

calm_status calm_set_threads(calm_ctx *ctx, int n_threads)
{
    CALM_ENTER(ctx, true);
    if (n_threads < 0)
        return calm_fail(ctx, CALM_EARG, "calm_set_threads: expected a number of threads from 0 on, found %d",
                         n_threads);
    ctx->n_threads = n_threads ? n_threads : calm_n_cores();
    calm_linalg_cap(ctx);
    return CALM_OK;
}

/* Warns, once per process, that OpenBLAS uses slow kernels: the command line restarts the program, a library cannot. */
static void warn_of_slow_kernels(calm_ctx *ctx)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *loaded = calm_linalg_kernels(), *wanted = calm_linalg_wanted(NULL);
    if (strcasecmp(loaded, wanted) == 0 || atomic_flag_test_and_set(&warned))
        return;
    calm_log(ctx, CALM_LOG_WARNING,
             "OpenBLAS has loaded its %s kernels, which are slow on this CPU: start the process with "
             CALM_BLAS_VARIABLE "=%s", loaded, wanted);
}

calm_status calm_set_log(calm_ctx *ctx, calm_log_fn *fn, void *user)
{
    CALM_ENTER(ctx, true);
    ctx->log = fn;
    ctx->log_user = user;
    if (fn)
        warn_of_slow_kernels(ctx);
    return CALM_OK;
}

calm_status calm_set_events(calm_ctx *ctx, calm_event_fn *fn, void *user)
{
    CALM_ENTER(ctx, true);
    ((calm_library *)ctx)->events = (calm_events){.fn = fn, .user = user};
    return CALM_OK;
}

void calm_interrupt(calm_ctx *ctx)
{
    if (ctx)
        atomic_store(&((calm_library *)ctx)->stop, true);
}

const calm_events *calm_library_events(const calm_ctx *ctx)
{
    return &((const calm_library *)ctx)->events;
}
