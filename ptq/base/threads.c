/* Parallel loops over OpenMP with one context per worker; loops inside tasks run as tasks of the same team. */
#include "ptq/base/threads.h"

#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "ptq/base/scope.h"

/* Seconds after which a sleeper notices an interruption. */
#define SLEEP_STEP 0.05

/* The failure with the lowest index so far. */
typedef struct first_failure {
    size_t index;
    calm_status status;
    char message[CALM_MESSAGE_MAX];
} first_failure;

static void note_failure(first_failure *first, size_t index, const calm_ctx *worker)
{
#pragma omp critical(calm_first_failure)
    if (index < first->index) {
#pragma omp atomic write
        first->index = index;
        first->status = worker->status;
        memcpy(first->message, worker->message, sizeof first->message);
    }
}

/* Returns the threads for loops inside task `index` of n: one while every thread has a task; tasks of the last,
 * incomplete round share all threads equally. */
static int share_of_task(const calm_ctx *parent, size_t n, size_t index)
{
    const size_t threads = (size_t)parent->n_threads, rounds = n / threads * threads;
    return index < rounds ? 1 : (int)((threads + n - rounds - 1) / (n - rounds));
}

static void work(calm_ctx *parent, size_t n, calm_task_fn *fn, void *user, first_failure *first, size_t *next)
{
    CALM_SCOPED_ARENA(scratch);
    calm_ctx ctx;
    calm_ctx_init(&ctx, NULL, &scratch);
    ctx.memory = parent->memory;
    ctx.operands = parent->operands;
    ctx.ints = parent->ints;
    ctx.int_attention = parent->int_attention;
    ctx.decode = parent->decode;
    ctx.resident = parent->resident;
    ctx.stop = parent->stop;
    ctx.log = parent->log;
    ctx.log_user = parent->log_user;
    for (;;) {
        CALM_SCOPED_SCRATCH(&ctx);
        size_t index, failed;
#pragma omp atomic capture
        index = (*next)++;
#pragma omp atomic read
        failed = first->index;
        /* Tasks before the failed one still run, so that the lowest failure is reported whatever the timing. */
        if (index >= n || index > failed)
            break;
        ctx.n_threads = share_of_task(parent, n, index);
        if (fn(&ctx, index, user) != CALM_OK) {
            note_failure(first, index, &ctx);
            break;
        }
    }
}

/* Runs a loop inside a task: idle threads of the team can take its indices.  A thread that waits at the end of this
 * loop runs no other task meanwhile (OpenMP ties tasks to threads), so it never holds the scratch memory of two
 * tasks of the outermost loop.
 *
 * ThreadSanitizer ignores this function: LLVM's OpenMP reuses the memory of an ended task for the next one, under
 * locks that the sanitizer does not see, and it would report the arguments written here as a race. */
__attribute__((no_sanitize("thread")))
static void share(calm_ctx *parent, size_t n, calm_task_fn *fn, void *user, first_failure *first, size_t *next)
{
    const size_t helpers = calm_size_min(n ? n - 1 : 0, (size_t)omp_get_num_threads() - 1);
    /* The group makes this loop wait for its own helpers only, not for those of an enclosing loop. */
#pragma omp taskgroup
    {
        for (size_t i = 0; i < helpers; i++) {
#pragma omp task
            work(parent, n, fn, user, first, next);
        }
        work(parent, n, fn, user, first, next);
    }
}

calm_status calm_parallel_for(calm_ctx *ctx, size_t n, calm_task_fn *fn, void *user)
{
    first_failure first = {.index = SIZE_MAX, .status = CALM_OK};
    size_t next = 0;
    if (omp_in_parallel()) {
        share(ctx, n, fn, user, &first, &next);
    } else if (ctx->n_threads == 1) {
        work(ctx, n, fn, user, &first, &next);    /* ending an OpenMP team of one costs a system call, too */
    } else {
        /* Starts the whole team even for fewer indices than threads: idle threads help with inner loops. */
#pragma omp parallel num_threads(ctx->n_threads)
        work(ctx, n, fn, user, &first, &next);
    }
    if (first.status != CALM_OK)
        return calm_fail(ctx, first.status, "%s", first.message);
    return CALM_OK;
}

typedef struct sure_task {
    calm_sure_task_fn *fn;
    void *user;
} sure_task;

static calm_status run_sure(calm_ctx *ctx, size_t index, void *user)
{
    const sure_task *task = user;
    (void)ctx;
    task->fn(index, task->user);
    return CALM_OK;
}

void calm_parallel_each(calm_ctx *ctx, size_t n, calm_sure_task_fn *fn, void *user)
{
    calm_parallel_for(ctx, n, run_sure, &(sure_task){fn, user});
}

void calm_parallel_offer(int n_threads)
{
    omp_set_num_threads(n_threads);
}

void calm_parallel_rest(void)
{
    if (!omp_in_parallel())
        omp_pause_resource_all(omp_pause_soft);
}

typedef struct rows_task {
    size_t n_rows;
    calm_row_range_fn *fn;
    void *user;
} rows_task;

static calm_status run_rows(calm_ctx *ctx, size_t index, void *user)
{
    const rows_task *task = user;
    const size_t first = index * CALM_ROWS_OF_TASK;
    return task->fn(ctx, first, calm_size_min(CALM_ROWS_OF_TASK, task->n_rows - first), task->user);
}

calm_status calm_parallel_rows(calm_ctx *ctx, size_t n_rows, calm_row_range_fn *fn, void *user)
{
    rows_task task = {n_rows, fn, user};
    return calm_parallel_for(ctx, (n_rows + CALM_ROWS_OF_TASK - 1) / CALM_ROWS_OF_TASK, run_rows, &task);
}

typedef struct sure_rows_task {
    calm_sure_range_fn *fn;
    void *user;
} sure_rows_task;

static calm_status run_sure_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const sure_rows_task *task = user;
    (void)ctx;
    task->fn(first, n, task->user);
    return CALM_OK;
}

void calm_parallel_each_rows(calm_ctx *ctx, size_t n_rows, calm_sure_range_fn *fn, void *user)
{
    calm_parallel_rows(ctx, n_rows, run_sure_rows, &(sure_rows_task){fn, user});
}

void calm_parallel_unbind(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int place = 0; place < omp_get_num_places(); place++) {
        int cores[CPU_SETSIZE];
        const int n = omp_get_place_num_procs(place);
        if (n > CPU_SETSIZE)
            return;
        omp_get_place_proc_ids(place, cores);
        for (int i = 0; i < n; i++)
            CPU_SET(cores[i], &set);
    }
    if (CPU_COUNT(&set) > 0)
        sched_setaffinity(0, sizeof set, &set);
}

int calm_n_cores(void)
{
    /* Not the cores of this thread, which OMP_PROC_BIND reduces to one. */
    const int n = omp_get_num_procs();
    return n > 0 ? n : 1;
}

double calm_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

calm_status calm_sleep(calm_ctx *ctx, long ms)
{
    /* In short steps, because calm_interrupt in another thread wakes no sleeper. */
    const double end = calm_seconds() + 1e-3 * (double)ms;
    for (double left; (left = end - calm_seconds()) > 0;) {
        CALM_TRY(calm_check_interrupt(ctx));
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * (left < SLEEP_STEP ? left : SLEEP_STEP))}, NULL);
    }
    return calm_check_interrupt(ctx);
}
