/* Threads: parallel loops over independent tasks on OpenMP workers; the only user of omp.h.
 *
 * Loops are parallel over independent work, never inside a sum: a task writes only the results of its index, so the
 * bytes do not depend on the number of threads. */
#pragma once

#include "ptq/base/context.h"

/* Runs one task.  `ctx` belongs to the worker: its scratch is rewound after each task, its `out` is NULL, and its
 * n_threads is the number of threads that loops inside the task can expect, from which they choose the number of
 * pieces of work whose bytes do not depend on it. */
typedef calm_status calm_task_fn(calm_ctx *ctx, size_t index, void *user);

/* Runs fn for index 0 .. n-1 on ctx->n_threads workers.  Returns the failure with the lowest index, with its
 * message; tasks after a failed one are skipped, tasks before it still run.  Inside a task the loop runs on the
 * same team: workers without another task help. */
calm_status calm_parallel_for(calm_ctx *ctx, size_t n, calm_task_fn *fn, void *user);

/* Does the same for tasks that need no memory and cannot fail. */
typedef void calm_sure_task_fn(size_t index, void *user);
void calm_parallel_each(calm_ctx *ctx, size_t n, calm_sure_task_fn *fn, void *user);

/* Rows per task of calm_parallel_rows. */
#define CALM_ROWS_OF_TASK ((size_t)32)

/* Runs one task over rows first .. first + n - 1. */
typedef calm_status calm_row_range_fn(calm_ctx *ctx, size_t first, size_t n, void *user);

/* Runs fn over n_rows rows, CALM_ROWS_OF_TASK at a time, as calm_parallel_for does. */
calm_status calm_parallel_rows(calm_ctx *ctx, size_t n_rows, calm_row_range_fn *fn, void *user);

/* Does the same for tasks that need no memory and cannot fail. */
typedef void calm_sure_range_fn(size_t first, size_t n, void *user);
void calm_parallel_each_rows(calm_ctx *ctx, size_t n_rows, calm_sure_range_fn *fn, void *user);

/* Sets the number of threads for libraries that start OpenMP threads by themselves; loops of this file ignore it. */
void calm_parallel_offer(int n_threads);

/* Releases the workers before a serial section.  Otherwise they spin for some milliseconds, in case another loop
 * follows; the next loop starts them again. */
void calm_parallel_rest(void);

/* Call before exec: if OMP_PROC_BIND has bound this thread to one core, allows it to run on all cores of its team.
 * Otherwise the new process would see only that core. */
void calm_parallel_unbind(void);

/* Returns the number of cores that this process may use, >= 1. */
int calm_n_cores(void);

/* Returns seconds of a monotonic clock, for progress and `bench`; no result depends on it. */
double calm_seconds(void);

/* Sleeps for `ms` milliseconds.  calm_interrupt, also from another thread, ends the sleep early: CALM_EINTERRUPTED */
calm_status calm_sleep(calm_ctx *ctx, long ms);
