/* The program is killed by SIGKILL at points spread over its operations on the disk.  Whatever it had done: under
 * the output's name is nothing or a complete checkpoint, the store is sound, and the same command continues where it
 * stopped and ends with the same bytes as an undisturbed run. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "ptq/base/file.h"
#include "tests/program/program.h"

#ifdef CALM_SANITIZED
#define KILL_POINTS 10
#define TWICE_POINTS 3
#else
#define KILL_POINTS 120
#define TWICE_POINTS 15
#endif

#define BLOCKS 2
#define POOL "rtn,gptq,gptq-hls"
#define N_CANDIDATES 24    /* 2 blocks x 4 jobs x 3 algorithms */
#define THREADS_EVERY 10   /* points of two threads            */

/* Counts over all points, shared by the workers. */
typedef struct tally {
    atomic_long with_some, with_all, with_output, killed_twice;
} tally;

/* An undisturbed run, with which all others are compared. */
typedef struct model_run {
    program p;
    long operations;
    size_t blobs;
    const char *digest, *files;
    tally *count;
} model_run;

static model_run undisturbed(void)
{
    const play of = program_play(BLOCKS, POOL);
    model_run first = {.p = program_new(&of, "run")};
    first.operations = program_count(&first.p);
    ck_assert_int_gt(first.operations, KILL_POINTS);
    ck_assert_int_eq(program_cached(&first.p), 0);
    first.digest = play_digest(first.p.output);
    first.files = program_files(&first.p);
    first.blobs = program_blobs(&first.p);
    ck_assert_uint_lt(first.blobs, (size_t)program_number(&first.p, "SELECT count(DISTINCT blob) FROM candidate"));
    first.count = program_shared(sizeof *first.count);
    ck_assert_int_eq(program_check(&first.p, first.digest, "undisturbed"), N_CANDIDATES);
    return first;
}

/* Checks that the command, started again, uses the `have` candidates that are there and ends like the first run. */
static void check_resume(const model_run *first, const program *p, int64_t have, const char *where)
{
    long long done = 0, begun = 0;
    if (calm_path_exists(p->store))
        sscanf(
            program_text(p, "SELECT printf('%d %d', total(status = 'finished'), total(status <> 'finished')) FROM run"),
            "%lld %lld", &done, &begun);
    const program_end end = program_run(p, NULL, calm_path_exists(p->output));
    ck_assert_msg(end.status == 0, "%s: %d %d %s", where, end.status, end.signal, end.said);
    ck_assert_msg(program_cached(p) == have, "%s: %lld of %lld candidates were used", where,
                  (long long)program_cached(p), (long long)have);
    const char *found = play_digest(p->output);
    ck_assert_msg(strcmp(found, first->digest) == 0, "%s: resumed to other bytes:\n%s%s", where, found, first->digest);
    ck_assert_msg(strcmp(program_files(p), first->files) == 0, "%s: left behind: %s", where, program_files(p));
    ck_assert_int_eq(program_check(p, first->digest, where), N_CANDIDATES);
    ck_assert_msg(program_blobs(p) == first->blobs, "%s: %zu blobs, not %zu", where, program_blobs(p), first->blobs);
    /* The row of the run is the same one, unless that run had ended. */
    const char *rows = program_text(
        p, "SELECT printf('%d %d %d', count(*), total(status = 'finished'), max(attempts)) FROM run");
    const char *expected = test_format("%lld %lld %lld", done + 1, done + 1, 1 + begun);
    ck_assert_msg(strcmp(rows, expected) == 0, "%s: runs, finished, attempts: %s, not %s", where, rows, expected);
}

static const char *where_of(const model_run *first, const disturbance *wanted)
{
    return test_format("%s at %s", wanted->what, program_operation(&first->p, wanted->at));
}

static void kill_once(void *user, long point, int worker)
{
    const model_run *first = user;
    const disturbance wanted = {.at = 1 + point * (first->operations - 1) / (KILL_POINTS - 1),
                                .what = point / 2 % 2 ? "tear" : "kill"};
    const char *where = where_of(first, &wanted);
    program p = program_new(&first->p.of, test_format("killed%d", worker));
    p.of.threads = point % THREADS_EVERY == 3 ? 2 : 1;
    const program_end end = program_run(&p, &wanted, false);
    ck_assert_msg(end.signal == SIGKILL, "%s was not reached: %d %s", where, end.status, end.said);
    const int64_t have = program_check(&p, first->digest, where);
    atomic_fetch_add(&first->count->with_some, have > 0 && have < N_CANDIDATES);
    atomic_fetch_add(&first->count->with_all, have == N_CANDIDATES);
    atomic_fetch_add(&first->count->with_output, calm_path_exists(p.output));
    check_resume(first, &p, have, where);
}

TEST(killed_anywhere)
{
    model_run first = undisturbed();
    program_spread(KILL_POINTS, kill_once, &first);
    const long with_some = first.count->with_some, with_all = first.count->with_all,
               with_output = first.count->with_output;
    printf("%ld operations, %d points: %ld with some candidates, %ld with all, %ld with the output\n", first.operations,
           KILL_POINTS, with_some, with_all, with_output);
    ck_assert_int_gt(4 * with_some, KILL_POINTS);
    ck_assert_int_gt(8 * with_all, KILL_POINTS);
    ck_assert_int_gt(with_output, 0);
    ck_assert_int_lt(with_output, KILL_POINTS);
}
END_OF_TEST

static void kill_twice(void *user, long point, int worker)
{
    const model_run *first = user;
    const disturbance once = {.at = 1 + point * (first->operations - 1) / TWICE_POINTS, .what = "kill"};
    const disturbance again = {.at = 1 + point * 7 % TWICE_POINTS * (first->operations - once.at) / TWICE_POINTS,
                               .what = "tear"};
    const char *where = test_format("%s, then number %ld", where_of(first, &once), again.at);
    program p = program_new(&first->p.of, test_format("twice%d", worker));
    ck_assert_int_eq(program_run(&p, &once, false).signal, SIGKILL);
    const int64_t had = program_check(&p, first->digest, where);
    const bool struck = program_run(&p, &again, calm_path_exists(p.output)).signal == SIGKILL;
    const int64_t have = program_check(&p, first->digest, where);
    ck_assert_msg(have >= had, "%s: %lld candidates, then %lld", where, (long long)had, (long long)have);
    atomic_fetch_add(&first->count->killed_twice, struck);
    if (struck)    /* else it ended before the second point */
        ck_assert_int_eq(program_run(&p, NULL, calm_path_exists(p.output)).status, 0);
    ck_assert_str_eq(play_digest(p.output), first->digest);
    ck_assert_str_eq(program_files(&p), first->files);
    ck_assert_int_eq(program_check(&p, first->digest, where), N_CANDIDATES);
}

/* A resumed run may be killed too: what it leaves meets the same conditions, and the next run ends with the same
 * bytes. */
TEST(killed_while_it_resumes)
{
    model_run first = undisturbed();
    program_spread(TWICE_POINTS, kill_twice, &first);
    ck_assert_int_gt(4 * first.count->killed_twice, 3 * TWICE_POINTS);
}
END_OF_TEST

/* A run that SIGINT or SIGTERM interrupts in the middle of the queue, with two threads at work, stops, and the same
 * command continues it. */
TEST(interrupted_in_the_queue)
{
    const play of = program_play(12, POOL);
    program plain = program_new(&of, "plain"), p = program_new(&of, "interrupted");
    ck_assert_int_eq(program_run(&plain, NULL, false).status, 0);
    const char *digest = play_digest(plain.output);
    for (int i = 0; i < 2; i++) {
        const int with = i ? SIGTERM : SIGINT;
        program_clear(&p);
        p.of.threads = 2;
        const program_end end = program_interrupt(&p, with, 20);
        ck_assert_msg(end.signal == with, "%d %d %s", end.status, end.signal, end.said);
        const int64_t have = program_check(&p, digest, "interrupted");
        ck_assert_int_ge(have, 19);    /* the row of the last blob may not be there */
        ck_assert_int_lt(have, 12 * N_CANDIDATES / BLOCKS);
        ck_assert_int_eq(program_run(&p, NULL, false).status, 0);
        ck_assert_int_eq(program_cached(&p), have);
        ck_assert_str_eq(play_digest(p.output), digest);
        ck_assert_uint_eq(program_blobs(&p), program_blobs(&plain));
        ck_assert_str_eq(program_text(&p, "SELECT printf('%d %s', attempts, status) FROM run"), "2 finished");
    }
}
END_OF_TEST

/* Operations are counted alike: a run makes the same ones in the same order each time, so that a number means the
 * same. */
TEST(operations_are_counted_alike)
{
    const model_run first = undisturbed();
    program p = program_new(&first.p.of, "again");
    ck_assert_int_eq(program_count(&p), first.operations);
    p.of.threads = 2;
    ck_assert_int_eq(program_count(&p), first.operations);
}
END_OF_TEST

int main(void)
{
    return run_tests("program_kills", (const TTest *[]){operations_are_counted_alike, killed_anywhere,
                                                        killed_while_it_resumes, interrupted_in_the_queue, NULL});
}
