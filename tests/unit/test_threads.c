/* The task loop: every index once, the same bytes for any number of threads, the lowest failure. */
#include "ptq/base/threads.h"

#include <stdatomic.h>
#include <stdint.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define N_TASKS 500

/* Sums in the task's scratch memory: its order is fixed by the task. */
static calm_status sum_task(calm_ctx *worker, size_t index, void *user)
{
    double *out = user, *values;
    CALM_TRY(CALM_NEW(worker, worker->scratch, values, 100 + index));
    for (size_t i = 0; i < 100 + index; i++)
        values[i] = calm_rng_normal(1, index, i);
    for (size_t i = 0; i < 100 + index; i++)
        out[index] += values[i];
    return CALM_OK;
}

TEST(the_same_bytes_for_1_to_4_threads)
{
    static double first[N_TASKS], other[N_TASKS];
    ctx->n_threads = 1;
    ck_ok(calm_parallel_for(ctx, N_TASKS, sum_task, first));
    for (int n_threads = 2; n_threads <= 4; n_threads++) {
        memset(other, 0, sizeof other);
        ctx->n_threads = n_threads;
        ck_ok(calm_parallel_for(ctx, N_TASKS, sum_task, other));
        ck_assert_mem_eq(first, other, sizeof first);
    }
}
END_OF_TEST

static calm_status count_task(calm_ctx *worker, size_t index, void *user)
{
    (void)worker;
    atomic_int *counts = user;
    atomic_fetch_add(&counts[index], 1);
    return CALM_OK;
}

TEST(every_index_runs_once)
{
    static atomic_int counts[N_TASKS + 1];
    ctx->n_threads = 3;
    ck_ok(calm_parallel_for(ctx, 0, count_task, counts));
    ck_assert_int_eq(counts[0], 0);
    ck_ok(calm_parallel_for(ctx, 1, count_task, counts));
    ck_ok(calm_parallel_for(ctx, N_TASKS, count_task, counts));
    ck_assert_int_eq(counts[0], 2);
    for (int i = 1; i < N_TASKS; i++)
        ck_assert_int_eq(counts[i], 1);
    ck_assert_int_eq(counts[N_TASKS], 0);
}
END_OF_TEST

static calm_status fail_from_task(calm_ctx *worker, size_t index, void *user)
{
    const size_t *first = user;
    return index >= *first ? calm_fail(worker, CALM_ENUMERIC, "row %zu", index) : CALM_OK;
}

TEST(a_failure_has_its_status_and_message)
{
    size_t first = 5;
    ctx->n_threads = 1;
    ck_fails(calm_parallel_for(ctx, 20, fail_from_task, &first), CALM_ENUMERIC, "row 5");
    ctx->n_threads = 4;
    first = 19;
    ck_fails(calm_parallel_for(ctx, 20, fail_from_task, &first), CALM_ENUMERIC, "row 19");
}
END_OF_TEST

/* Two tasks that begin together, of which the later one fails first.  The wait ends if there is only one thread. */
static calm_status fail_in_turn(calm_ctx *worker, size_t index, void *user)
{
    atomic_int *begun = user, *failed = begun + 1;
    atomic_fetch_add(begun, 1);
    double until = calm_seconds() + 2;
    while (atomic_load(begun) < 2 && calm_seconds() < until)
        ;
    if (index == 0)
        while (!atomic_load(failed) && calm_seconds() < until)
            ;
    else
        atomic_store(failed, 1);
    return calm_fail(worker, CALM_EFORMAT, "task %zu", index);
}

TEST(the_lowest_failing_index_wins)
{
    atomic_int state[2] = {0, 0};
    ctx->n_threads = 2;
    ck_fails(calm_parallel_for(ctx, 2, fail_in_turn, state), CALM_EFORMAT, "task 0");
}
END_OF_TEST

static calm_status nested_task(calm_ctx *worker, size_t index, void *user)
{
    double *rows = user;
    return calm_parallel_for(worker, N_TASKS / 10, sum_task, rows + index * (N_TASKS / 10));
}

TEST(a_task_may_loop_itself)
{
    static double serial[N_TASKS], nested[N_TASKS];
    for (size_t i = 0; i < 10; i++)
        ck_ok(calm_parallel_for(ctx, N_TASKS / 10, sum_task, serial + i * (N_TASKS / 10)));
    ctx->n_threads = 2;
    ck_ok(calm_parallel_for(ctx, 10, nested_task, nested));
    ck_assert_mem_eq(serial, nested, sizeof serial);
}
END_OF_TEST

static calm_status look_at_worker(calm_ctx *worker, size_t index, void *user)
{
    size_t *used = user;
    char *block;
    used[index] = worker->scratch->used_bytes;    /* what the task before left */
    ck_assert_ptr_null(worker->out);
    ck_assert_int_eq(worker->status, CALM_OK);
    return CALM_NEW(worker, worker->scratch, block, 1000);
}

/* Counts the indices of a loop inside a task; those above `first` fail, and skip what follows. */
typedef struct inner_loop {
    atomic_int *counts;
    size_t first;
} inner_loop;

static calm_status count_or_fail(calm_ctx *worker, size_t index, void *user)
{
    const inner_loop *loop = user;
    atomic_fetch_add(&loop->counts[index], 1);
    return index >= loop->first ? calm_fail(worker, CALM_ENUMERIC, "tile %zu", index) : CALM_OK;
}

static calm_status loop_inside(calm_ctx *worker, size_t index, void *user)
{
    (void)index;
    return calm_parallel_for(worker, N_TASKS, count_or_fail, user);
}

#define N_ROUNDS 50
#define N_TILES 12

static calm_status loop_many_times(calm_ctx *worker, size_t index, void *user)
{
    atomic_int *counts = user;
    for (int i = 0; i < N_ROUNDS; i++)
        CALM_TRY(calm_parallel_for(worker, N_TILES, count_task, counts + index * N_TILES));
    return CALM_OK;
}

/* Short loops inside tasks: OpenMP reuses the memory of an ended task for the next one of the same loop. */
TEST(many_short_loops_inside_tasks)
{
    static atomic_int counts[40 * N_TILES];
    ctx->n_threads = 16;
    for (int i = 0; i < 10; i++)
        ck_ok(calm_parallel_for(ctx, 40, loop_many_times, counts));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        ck_assert_int_eq(counts[i], 10 * N_ROUNDS);
}
END_OF_TEST

/* Of two tasks the first runs a loop before it sets a flag, for which the second waits for a limited time. */
static calm_status flag_behind_a_loop(calm_ctx *worker, size_t index, void *user)
{
    atomic_int *state = user, *count = state, *flag = state + 1, *seen = state + 2;
    const double until = calm_seconds() + 2;
    if (index == 0) {
        CALM_TRY(calm_parallel_for(worker, 1, count_task, count));
        atomic_store(flag, 1);
        return CALM_OK;
    }
    while (!atomic_load(flag) && calm_seconds() < until)
        ;
    atomic_fetch_add(seen, atomic_load(flag));
    return CALM_OK;
}

static calm_status flag_in_a_task(calm_ctx *worker, size_t index, void *user)
{
    (void)index;
    return calm_parallel_for(worker, 2, flag_behind_a_loop, user);
}

/* A loop ends when its tasks have ended, whatever helps with a loop around it. */
TEST(a_loop_waits_for_its_own_tasks)
{
    enum { ROUNDS = 50 };
    atomic_int state[3] = {0, 0, 0};
    ctx->n_threads = 2;
    for (int i = 0; i < ROUNDS; i++) {
        state[1] = 0;
        ck_ok(calm_parallel_for(ctx, 1, flag_in_a_task, state));
        ck_assert_int_eq(state[2], i + 1);
    }
    ck_assert_int_eq(state[0], ROUNDS);
}
END_OF_TEST

/* One task and far more threads than cores: threads without a task help with the inner loop, or end. */
TEST(more_threads_than_tasks_and_cores)
{
    static atomic_int counts[N_TASKS];
    inner_loop loop = {counts, N_TASKS};
    ctx->n_threads = 4 * calm_n_cores() + 16;
    ck_ok(calm_parallel_for(ctx, 1, loop_inside, &loop));
    for (size_t i = 0; i < N_TASKS; i++)
        ck_assert_int_eq(counts[i], 1);
    loop.first = 37;
    memset(counts, 0, sizeof counts);
    ck_fails(calm_parallel_for(ctx, 3, loop_inside, &loop), CALM_ENUMERIC, "tile 37");
    for (size_t i = 0; i < 37; i++)
        ck_assert_int_ge(counts[i], 1);    /* the lowest failure is known only if all tasks before it ran */
}
END_OF_TEST

/* The threads that workers of a loop, and of a loop inside one of its tasks, have for further loops. */
typedef struct shares {
    size_t n_inner, last;
    atomic_int of_first, of_last, innermost;
} shares;

static calm_status keep_inner_share(calm_ctx *worker, size_t index, void *user)
{
    shares *seen = user;
    if (index == 0)
        atomic_store(&seen->innermost, worker->n_threads);
    return CALM_OK;
}

static calm_status keep_share(calm_ctx *worker, size_t index, void *user)
{
    shares *seen = user;
    if (index == 0)
        atomic_store(&seen->of_first, worker->n_threads);
    if (index < seen->last)
        return CALM_OK;
    atomic_store(&seen->of_last, worker->n_threads);
    return calm_parallel_for(worker, seen->n_inner, keep_inner_share, seen);
}

/* A single task has all threads; each of many tasks has one, except those of a last round that is not full. */
TEST(tasks_share_the_threads)
{
    static const struct {
        size_t tasks, inner;
        int first, last, innermost;
    } cases[] = {{1, 1, 8, 8, 8}, {2, 3, 4, 4, 2}, {5, 2, 2, 2, 1}, {8, 1, 1, 1, 1}, {17, 3, 1, 8, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shares seen = {.n_inner = cases[i].inner, .last = cases[i].tasks - 1};
        ctx->n_threads = 8;
        ck_ok(calm_parallel_for(ctx, cases[i].tasks, keep_share, &seen));
        ck_assert_int_eq(seen.of_first, cases[i].first);
        ck_assert_int_eq(seen.of_last, cases[i].last);
        ck_assert_int_eq(seen.innermost, cases[i].innermost);
    }
}
END_OF_TEST

TEST(each_task_begins_with_an_empty_scratch)
{
    static size_t used[100];
    memset(used, 0xff, sizeof used);
    ck_ok(calm_parallel_for(ctx, 100, look_at_worker, used));
    for (size_t i = 0; i < 100; i++)
        ck_assert_uint_eq(used[i], 0);
}
END_OF_TEST

static void count_index(size_t index, void *user)
{
    ((int *)user)[index]++;
}

static void count_rows(size_t first, size_t n, void *user)
{
    ck_assert_uint_le(n, CALM_ROWS_OF_TASK);
    for (size_t i = first; i < first + n; i++)
        count_index(i, user);
}

TEST(tasks_that_cannot_fail_run_once_for_each_index_and_row)
{
    enum { N = 3 * 32 + 5 };
    for (int threads = 1; threads <= 4; threads += 3) {
        int tasks[N] = {0}, rows[N] = {0};
        ctx->n_threads = threads;
        calm_parallel_each(ctx, N, count_index, tasks);
        calm_parallel_each_rows(ctx, N, count_rows, rows);
        for (size_t i = 0; i < N; i++) {
            ck_assert_int_eq(tasks[i], 1);
            ck_assert_int_eq(rows[i], 1);
        }
    }
}
END_OF_TEST

TEST(cores_and_clock_are_sensible)
{
    ck_assert_int_ge(calm_n_cores(), 1);
    double before = calm_seconds();
    ck_assert_double_ge(calm_seconds(), before);
}
END_OF_TEST

/* A calm_task_fn for two threads: one sleeps, the other interrupts it. */
static calm_status sleep_or_stop(calm_ctx *task, size_t index, void *user)
{
    if (index == 0)
        return calm_sleep(task, 60000);
    const calm_status status = calm_sleep(&(calm_ctx){.n_threads = 1}, 100);
    atomic_store((atomic_bool *)user, true);
    return status;
}

TEST(an_interruption_ends_a_sleep)
{
    atomic_bool stop = false;
    double begun = calm_seconds();
    ck_ok(calm_sleep(ctx, 120));
    ck_assert_double_ge(calm_seconds() - begun, 0.12);
    ck_ok(calm_sleep(ctx, 0));
    begun = calm_seconds();
    ctx->n_threads = 2;
    ctx->stop = &stop;
    ck_fails(calm_parallel_for(ctx, 2, sleep_or_stop, &stop), CALM_EINTERRUPTED, "interrupted");
    ck_assert_double_lt(calm_seconds() - begun, 30);
    ck_assert(!atomic_load(&stop));    /* it ended one call */
    ctx->stop = NULL;
}
END_OF_TEST

int main(void)
{
    return run_tests("threads",
                     (const TTest *[]){the_same_bytes_for_1_to_4_threads, every_index_runs_once,
                                       a_failure_has_its_status_and_message, the_lowest_failing_index_wins,
                                       a_task_may_loop_itself, many_short_loops_inside_tasks,
                                       a_loop_waits_for_its_own_tasks,
                                       more_threads_than_tasks_and_cores, tasks_share_the_threads,
                                       each_task_begins_with_an_empty_scratch,
                                       tasks_that_cannot_fail_run_once_for_each_index_and_row,
                                       cores_and_clock_are_sensible, an_interruption_ends_a_sleep, NULL});
}
