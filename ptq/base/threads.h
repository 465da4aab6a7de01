/* Threads: independent tasks on OpenMP workers; the one user of omp.h.
 *
 * Parallel over independent work, never inside a sum: a task writes only the results of its index, so the bytes do not
 * depend on the number of threads. */
#pragma once

#include "ptq/base/context.h"

/* One task.  `ctx` is the worker's own: its scratch is rewound after each task, its `out` is NULL, and its n_threads
 * says how many threads loops inside the task may hope for; into how many pieces they cut what has the same bytes in
 * any number of them follows from it. */
typedef calm_status calm_task_fn(calm_ctx *ctx, size_t index, void *user);

/* Run fn for index 0 .. n-1 on ctx->n_threads workers.  Returns the failure with the lowest index, with its
 * message; tasks after a failed one are skipped, those before it still run.  Inside a task it runs on the same workers:
 * those that have nothing else to do help. */
calm_status calm_parallel_for(calm_ctx *ctx, size_t n, calm_task_fn *fn, void *user);

/* The same of tasks that need no memory and cannot fail. */
typedef void calm_sure_task_fn(size_t index, void *user);
void calm_parallel_each(calm_ctx *ctx, size_t n, calm_sure_task_fn *fn, void *user);

/* Rows of a window that one task takes. */
#define CALM_ROWS_OF_TASK ((size_t)32)

/* One task over rows first .. first + n - 1. */
typedef calm_status calm_row_range_fn(calm_ctx *ctx, size_t first, size_t n, void *user);

/* Run fn over all of n_rows rows, CALM_ROWS_OF_TASK at a time: as calm_parallel_for. */
calm_status calm_parallel_rows(calm_ctx *ctx, size_t n_rows, calm_row_range_fn *fn, void *user);

/* The same of tasks that need no memory and cannot fail. */
typedef void calm_sure_range_fn(size_t first, size_t n, void *user);
void calm_parallel_each_rows(calm_ctx *ctx, size_t n_rows, calm_sure_range_fn *fn, void *user);

/* How many threads a library gets that starts OpenMP's by itself; loops here do not ask. */
void calm_parallel_offer(int n_threads);

/* Let the workers go: what follows is this thread's.  Otherwise they turn around for some milliseconds, in case the
 * next loop comes soon; that one starts them again. */
void calm_parallel_rest(void);

/* Before this process becomes another one: where OMP_PROC_BIND has bound this thread to a core, let it run again where
 * its team does.  The other process would find that one core alone. */
void calm_parallel_unbind(void);

/* Cores this process may use, >= 1. */
int calm_n_cores(void);

/* Seconds from a monotonic clock, for progress and `bench`; no result depends on it. */
double calm_seconds(void);
