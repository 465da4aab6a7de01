/* Whole runs when the machine fails: killed at calls that write, a full disk, calls that fail once.
 *
 * After each fault the store opens, the output is whole or missing, no temporary file stays, and the same command
 * ends with the bytes of an undisturbed run and uses what the store has. */
#include <errno.h>

#include "tests/support/run_rooms.h"
#include "ptq/base/output.h"
#include "ptq/base/file.h"
#include "tests/support/play.h"

#ifdef CALM_SANITIZED
#define KILL_POINTS 8
#define FAIL_POINTS 6
#define REPLACE_STEP 5
#else
#define KILL_POINTS 16
#define FAIL_POINTS 8
#define REPLACE_STEP 1
#endif

static const fault none = {0};

/* Returns a run with a small pool: 8 jobs, 16 candidates. */
static play new_run(void)
{
    play run = play_new(NULL, "w4a16_g16", "rtn,gptq-hls");
    run.threads = 1;
    run.recipe.guard_windows = run.recipe.eval_windows = 1;
    return run;
}

/* Returns the same run with another output and store. */
static play nth_run(const play *run, long i)
{
    play other = *run;
    other.recipe.output = play_path(run, test_format("out%ld", i));
    other.recipe.store = play_path(run, test_format("store%ld.db", i));
    return other;
}

static const char *undisturbed(const play *run, long *calls)
{
    const outcome said = play_run(run, none);
    ck_assert_msg(said.status == CALM_OK, "%s", said.message);
    ck_assert_uint_eq(said.cached, 0);
    *calls = said.calls;
    ck_assert_int_gt(*calls, 100);
    return play_digest(run->recipe.output);
}

/* Returns the number of the call at point i of n evenly spaced points from the first call to the last. */
static long call_at(long i, long n, long calls)
{
    return 1 + i * (calls - 1) / (n - 1);
}

/* Checks that the output is as expected or missing; returns whether it is there. */
static bool check_output(const play *run, long at, const char *expected)
{
    const char *found = play_digest(run->recipe.output);
    ck_assert_msg(!found || strcmp(found, expected) == 0, "call %ld: a half output:\n%s", at, found);
    return found != NULL;
}

/* Returns the number of candidates that the store has with all their scores. */
static int64_t stored_candidates(const play *run)
{
    calm_store *store;
    calm_value n;
    if (!calm_path_exists(run->recipe.store))
        return 0;
    ck_ok(calm_store_open(ctx, run->recipe.store, NULL, &store));
    ck_ok(calm_store_query_one(ctx, store, "SELECT count(*) FROM candidate WHERE (SELECT count(*) FROM score"
                                           " WHERE candidate_id = id) = 8", NULL, 0, &n, 1));
    calm_store_close(store);
    return n.integer;
}

static void check_resume(play *run, long at, const char *expected)
{
    const int64_t stored = stored_candidates(run);
    run->recipe.force = true;    /* the output may have been complete */
    const outcome said = play_run(run, none);
    ck_assert_msg(said.status == CALM_OK, "call %ld: %s", at, said.message);
    ck_assert_msg((int64_t)said.cached == stored, "call %ld: %zu of %lld candidates were used", at, said.cached,
                  (long long)stored);
    const char *found = play_digest(run->recipe.output);
    ck_assert_msg(strcmp(found, expected) == 0, "call %ld: resumed to other bytes:\n%s\n%s", at, found, expected);
    ck_assert_str_eq(play_list(run, ".tmp."), "");
    ck_assert_str_eq(play_list(run, ".old."), "");
    ck_assert_int_eq(stored_candidates(run), 16);
}

TEST(killed_and_started_again)
{
    const play first = new_run();
    long calls, used = 0, whole = 0;
    const char *expected = undisturbed(&first, &calls);
    for (long i = 0; i < KILL_POINTS; i++) {
        const long at = call_at(i, KILL_POINTS, calls);
        play run = nth_run(&first, i);
        ck_assert_msg(play_run(&run, (fault){.at = at}).killed, "call %ld was not reached", at);
        whole += check_output(&run, at, expected);
        used += stored_candidates(&run) > 0;
        check_resume(&run, at, expected);
    }
    ck_assert_int_gt(3 * used, KILL_POINTS);
    ck_assert_int_gt(whole, 0);
    ck_assert_int_lt(whole, KILL_POINTS);
}
END_OF_TEST

/* Killed twice: a resumed run can be resumed. */
TEST(killed_while_it_resumes)
{
    const play first = new_run();
    long calls;
    const char *expected = undisturbed(&first, &calls);
    play run = nth_run(&first, 0);
    ck_assert(play_run(&run, (fault){.at = calls / 3}).killed);
    ck_assert(play_run(&run, (fault){.at = calls / 4}).killed);
    ck_assert_int_gt(stored_candidates(&run), 0);
    check_resume(&run, 0, expected);
}
END_OF_TEST

/* The stored row of a killed run lists the candidates that it found and those that it computed. */
TEST(a_killed_run_names_what_it_has)
{
    play run = new_run();
    long calls;
    undisturbed(&run, &calls);
    play_pool(&run, NULL, "gptq-hls,gptq,rtn");
    run.recipe.output = play_path(&run, "more");
    ck_assert(play_run(&run, (fault){.at = calls / 5}).killed);
    const char *computed = play_text(&run, "SELECT count(*) - 16 FROM candidate");
    ck_assert_int_gt(atoi(computed), 0);
    ck_assert_int_lt(atoi(computed), 8);
    ck_assert_str_eq(play_text(&run, "SELECT count(*) - 16 FROM run_candidate WHERE run_id = 2"), computed);
}
END_OF_TEST

/* Writes a file of an earlier output of calm, which the next output does not have. */
static void leave(const char *file, const char *output)
{
    ck_ok(calm_write_file(ctx, file, "x", 1));
    ck_ok(calm_output_list(ctx, output));
}

/* With --force the output's name is at every moment that of the whole old or the whole new checkpoint. */
TEST(replaced_as_a_whole)
{
    play run = new_run();
    long calls, n_old = 0, n_new = 0;
    const char *expected = undisturbed(&run, &calls);
    const char *stray = test_format("%s/stray.txt", run.recipe.output);
    run.recipe.force = true;
    leave(stray, run.recipe.output);
    const char *old = play_digest(run.recipe.output);
    const outcome again = play_run(&run, none);
    ck_assert_msg(again.status == CALM_OK, "%s", again.message);
    ck_assert_str_eq(play_digest(run.recipe.output), expected);
    /* Two thirds of the calls come before the checkpoint is written. */
    for (long at = again.calls * 2 / 3; at <= again.calls; at += REPLACE_STEP) {
        leave(stray, run.recipe.output);
        const outcome said = play_run(&run, (fault){.at = at});
        const char *found = play_digest(run.recipe.output);
        ck_assert_msg(found && (strcmp(found, old) == 0 || strcmp(found, expected) == 0),
                      "call %ld of %ld: neither the old "
                      "nor the new checkpoint:\n%s",
                      at, again.calls, found ? found : "nothing");
        ck_assert_msg(said.killed || strcmp(found, expected) == 0, "call %ld", at);
        n_old += strcmp(found, old) == 0;
        n_new += strcmp(found, expected) == 0;
    }
    ck_assert_int_gt(n_old, 0);
    ck_assert_int_gt(n_new, 0);
    check_resume(&run, 0, expected);
}
END_OF_TEST

/* Two renames replace the output if the file system cannot exchange names. */
TEST(replaced_without_exchange)
{
    play run = new_run();
    long calls;
    const char *expected = undisturbed(&run, &calls);
    leave(test_format("%s/stray.txt", run.recipe.output), run.recipe.output);
    run.recipe.force = true;
    const outcome said = play_run(&run, (fault){.no_exchange = true});
    ck_assert_msg(said.status == CALM_OK, "%s", said.message);
    ck_assert_str_eq(play_digest(run.recipe.output), expected);
    ck_assert_str_eq(play_list(&run, "out"), "out");
}
END_OF_TEST

static void fail_calls(int error, bool stays, calm_status status)
{
    const play first = new_run();
    long calls, reported = 0;
    const char *expected = undisturbed(&first, &calls);
    for (long i = 0; i < FAIL_POINTS; i++) {
        const long at = call_at(i, FAIL_POINTS, calls);
        play run = nth_run(&first, i);
        const outcome said = play_run(&run, (fault){.at = at, .error = error, .stays = stays});
        check_output(&run, at, expected);
        ck_assert_str_eq(play_list(&run, ".tmp."), "");
        if (said.status != CALM_OK) {
            reported++;
            ck_assert_msg(said.status == status && strchr(said.message, '/'), "call %ld: %s: %s", at,
                          calm_status_name(said.status), said.message);
        } else {
            ck_assert_msg(play_digest(run.recipe.output) != NULL, "call %ld failed unseen", at);
        }
        check_resume(&run, at, expected);
    }
    ck_assert_int_gt(2 * reported, FAIL_POINTS);
}

TEST(disk_full)
{
    fail_calls(ENOSPC, true, CALM_ENOSPC);
}
END_OF_TEST

TEST(calls_that_fail_once)
{
    fail_calls(EIO, false, CALM_EIO);
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_faults",
                     (const TTest *[]){killed_and_started_again, killed_while_it_resumes,
                                       a_killed_run_names_what_it_has, replaced_as_a_whole, replaced_without_exchange,
                                       disk_full, calls_that_fail_once, NULL});
}
