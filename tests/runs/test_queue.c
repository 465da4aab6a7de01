/* The queue of a run's candidates and windows: the same bytes for any number of threads, one failure among many tasks,
 * a memory limit reached half-way.
 *
 * The runs are made in this process, so that ThreadSanitizer sees their threads (tests/run --tsan). */
#include <stdatomic.h>
#include <string.h>

#include "algorithms/chain.h"
#include "ptq/base/memory.h"
#include "ptq/base/threads.h"
#include "tests/support/run_rooms.h"
#include "tests/support/play.h"

#define POOL "rtn,gptq,mkq"
#define N_POOL 3

/* Makes a run with this many threads; *message receives its error. */
static calm_status run_here(const play *run, int n_threads, size_t *cached, char message[CALM_MESSAGE_MAX])
{
    const calm_run_options options = {.command = "calm test"};
    calm_run *made = NULL;
    ctx->n_threads = n_threads;
    if (ctx->memory)
        calm_memory_restart(ctx->memory);
    const calm_status status = calm_run_quantize(ctx, &run->recipe, &options, &made);
    memcpy(message, ctx->message, CALM_MESSAGE_MAX);
    if (cached)
        *cached = made ? calm_run_result(made)->n_cached : 0;
    calm_run_close(&made);
    calm_ctx_clear_failure(ctx);
    return status;
}

/* Makes a run that must succeed; returns the digests of its output. */
static const char *must_run(const play *run, int n_threads, size_t *cached)
{
    char message[CALM_MESSAGE_MAX];
    const calm_status status = run_here(run, n_threads, cached, message);
    ck_assert_msg(status == CALM_OK, "%d threads: %s", n_threads, message);
    return play_digest(run->recipe.output);
}

/* ---- any number of threads ---- */

static void check_threads(const tiny_model *spec, const char *scheme)
{
    const play run = play_new(spec, scheme, POOL);
    const char *expected = must_run(&run, 1, NULL);
    const int n[] = {2, 4, 16, 3 * calm_n_cores() + 5};    /* the last: more than cores, and at times than tasks */
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        const play other = play_elsewhere(&run, test_format("with%d", n[i]));
        ck_assert_str_eq(must_run(&other, n[i], NULL), expected);
        ck_assert_str_eq(play_text(&other, "SELECT key || coalesce(blob, failure) FROM candidate ORDER BY id"),
                         play_text(&run, "SELECT key || coalesce(blob, failure) FROM candidate ORDER BY id"));
    }
}

TEST(threads_and_a_dense_model)
{
    check_threads(NULL, "w4a16_g16");
}
END_OF_TEST

TEST(threads_and_a_mixture)
{
    const tiny_model spec = tiny_of("qwen3_moe");
    check_threads(&spec, "w4a8_g8");
}
END_OF_TEST

/* One window, one block and one algorithm: many threads and nothing to share. */
TEST(one_of_each)
{
    tiny_model spec = tiny_default;
    spec.n_blocks = 1;
    play run = play_new(&spec, "w4a16_g16", "gptq");
    run.recipe.calib_windows = run.recipe.score_windows = run.recipe.eval_windows = 1;
    run.recipe.guard_windows = 0;
    const play other = play_elsewhere(&run, "other");
    const char *expected = must_run(&run, 1, NULL);
    ck_assert_str_eq(must_run(&other, 2 * calm_n_cores() + 7, NULL), expected);
}
END_OF_TEST

/* ---- an algorithm that a test disturbs ---- */

/* What the algorithm does in addition to rounding to nearest. */
static enum { SOUND, TOGETHER, BREAKS, GREEDY } mood;
static atomic_int n_broken, n_met;
static bool alone;    /* with one thread */

/* Fails qkv only after o, which is behind it in the queue, has failed.  The wait ends after 2 s if no thread runs o. */
static calm_status break_off(calm_ctx *c, const char *job)
{
    const double until = calm_seconds() + 2;
    while (!alone && strstr(job, "qkv") && !atomic_load(&n_broken) && calm_seconds() < until)
        ;
    atomic_fetch_add(&n_broken, 1);
    return calm_fail(c, CALM_EIO, "%s broke off", job);
}

/* Waits for the other job of the sublayer, so that another thread must take the tasks in between; at most 2 s.
 * Relaxed order, so that ThreadSanitizer does not take it for a synchronisation. */
static void meet(void)
{
    const int other = atomic_fetch_add_explicit(&n_met, 1, memory_order_relaxed) | 1;
    const double until = calm_seconds() + 2;
    while (atomic_load_explicit(&n_met, memory_order_relaxed) <= other && calm_seconds() < until)
        ;
}

static calm_status moody(calm_ctx *c, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const char *job = problem->job->name;
    float *room;
    (void)opts;
    if (mood == TOGETHER)
        meet();
    if (mood == BREAKS && (strcmp(job, "model.layers.1.qkv") == 0 || strcmp(job, "model.layers.1.o") == 0))
        return break_off(c, job);
    if (mood == GREEDY && strcmp(job, "model.layers.1.o") == 0)    /* more than any plan of memory */
        CALM_TRY(CALM_NEW(c, c->scratch, room, (size_t)1 << 30));
    return calm_problem_nearest(c, problem, qjob);
}

/* Returns a run whose first entry is this algorithm, with the same keys in every mood. */
static play moody_play(void)
{
    static calm_part part = {.name = "moody", .kind = CALM_KIND_ROUND, .run.round = moody};
    play run = play_new(NULL, "w4a16_g16", POOL);
    calm_algorithm *algorithm;
    calm_entry *pool;
    ck_ok(CALM_NEW(ctx, ctx->out, pool, run.recipe.n_pool));
    memcpy(pool, run.recipe.pool, run.recipe.n_pool * sizeof *pool);
    ck_ok(calm_algorithm_parse(ctx, "absmax+nearest", &algorithm));
    algorithm->name = algorithm->canonical = pool[0].name = "moody";
    algorithm->steps[1].part = &part;
    pool[0].algorithm = algorithm;
    run.recipe.pool = pool;
    return run;
}

/* One thread could finish small tasks before another wakes, so here two tasks must run at the same time. */
TEST(two_at_work)
{
    const play run = moody_play();
    mood = SOUND;
    const char *expected = must_run(&run, 1, NULL);
    mood = TOGETHER;
    /* Without accounting of memory, whose counters would order the threads. */
    calm_memory *account = ctx->memory;
    for (int n_threads = 2; n_threads <= 4; n_threads++) {
        const play other = play_elsewhere(&run, test_format("with%d", n_threads));
        atomic_store(&n_met, 0);
        ctx->memory = NULL;
        const char *found = must_run(&other, n_threads, NULL);
        ctx->memory = account;
        ck_assert_str_eq(found, expected);
        ck_assert_int_eq(atomic_load(&n_met), 8);
    }
}
END_OF_TEST

/* ---- failures ---- */

/* Checks that the run fails in the second block with `expected` and these words, and that it continues there once
 * the cause is gone. */
static void check_failure(int wrong, int n_threads, calm_status expected, const char *words)
{
    play run = moody_play();
    const play plain = play_elsewhere(&run, "plain");
    char message[CALM_MESSAGE_MAX];
    size_t cached;
    mood = SOUND;
    const char *digest = must_run(&plain, n_threads, NULL);
    mood = wrong;
    atomic_store(&n_broken, 0);
    alone = n_threads == 1;
    if (wrong == GREEDY)
        run.recipe.memory = "1500MB";    /* enough for a sanitizer */
    const calm_status status = run_here(&run, n_threads, NULL, message);
    ck_assert_msg(status == expected && strstr(message, words), "%s: %s", calm_status_name(status), message);
    ck_assert_str_eq(play_list(&run, "out"), "");
    ck_assert_str_eq(play_text(&run, "SELECT status FROM run"), "failed\n");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate"), 4 * N_POOL);    /* the first block's */
    mood = SOUND;
    run.recipe.memory = NULL;
    ck_assert_str_eq(must_run(&run, n_threads, &cached), digest);
    ck_assert_uint_eq(cached, 4 * N_POOL);
}

/* If two tasks fail, the error of the first in the queue is reported. */
TEST(a_failing_task_among_many)
{
    check_failure(BREAKS, 1, CALM_EIO, "model.layers.1.qkv broke off");
    check_failure(BREAKS, 2, CALM_EIO, "model.layers.1.qkv broke off");
    check_failure(BREAKS, 2 * calm_n_cores() + 7, CALM_EIO, "model.layers.1.qkv broke off");
}
END_OF_TEST

TEST(a_limit_that_is_reached_half_way)
{
    check_failure(GREEDY, 1, CALM_ENOMEM, "memory");
    check_failure(GREEDY, 4, CALM_ENOMEM, "memory");
}
END_OF_TEST

int main(void)
{
    return run_tests("queue", (const TTest *[]){
        threads_and_a_dense_model, threads_and_a_mixture, one_of_each, two_at_work, a_failing_task_among_many,
        a_limit_that_is_reached_half_way, NULL});
}
