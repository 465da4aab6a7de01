/* What a later run takes from the store.  Candidates are found by their content, whatever the files are called and
 * whenever they were written; blobs that differ from what their rows say are computed again. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/run_rooms.h"
#include "ptq/base/file.h"
#include "store/blob.h"
#include "tests/support/play.h"
#include "tests/program/program.h"

#define POOL "rtn,gptq"
#define N_CANDIDATES 16    /* 2 blocks x 4 jobs x 2 algorithms */

/* Rejected candidates keep their codes, so that any of them can be damaged. */
static play new_run(void)
{
    play run = play_new(NULL, "w4a16_g16", POOL);
    run.recipe.keep_candidates = true;
    return run;
}

static play with_output(const play *run, const char *name)
{
    play other = *run;
    other.recipe.output = play_path(run, name);
    return other;
}

/* ---- damaged blobs ---- */

typedef enum damage { FLIP, TRUNCATE, DELETE, DIRECTORY, N_DAMAGES } damage;

static void do_damage(const char *path, damage kind)
{
    struct stat info;
    unsigned char byte;
    ck_assert_msg(stat(path, &info) == 0, "%s", path);
    if (kind == FLIP) {
        const int fd = open(path, O_RDWR);
        ck_assert_int_eq(pread(fd, &byte, 1, info.st_size / 2), 1);
        byte ^= 1;
        ck_assert_int_eq(pwrite(fd, &byte, 1, info.st_size / 2), 1);
        close(fd);
        return;
    }
    ck_assert_int_eq(kind == TRUNCATE ? truncate(path, info.st_size - 1) : unlink(path), 0);
    if (kind == DIRECTORY)
        ck_ok(calm_make_directories(ctx, test_format("%s/of/another", path)));
}

static const char *blob_path(const play *run, int candidate)
{
    const char *digest = play_text(run, test_format("SELECT blob FROM candidate WHERE id = %d", candidate));
    return test_format("%s.blobs/%.2s/%.62s", run->recipe.store, digest, digest + 2);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

TEST(damaged_blobs_are_computed_again)
{
    const play first = new_run(), again = with_output(&first, "again"), third = with_output(&first, "third");
    play_must_run(&first);
    for (int kind = 0; kind < N_DAMAGES; kind++)
        do_damage(blob_path(&first, 3 * kind + 1), (damage)kind);
    const outcome said = play_must_run(&again);
    ck_assert_uint_eq(said.cached, N_CANDIDATES - N_DAMAGES);
    /* A deleted blob may have been dropped on purpose, so that it is no damage. */
    ck_assert_msg(count(said.log, "it is computed again") == N_DAMAGES - 1, "%s", said.log);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(first.recipe.output));
    const outcome whole = play_must_run(&third);
    ck_assert_uint_eq(whole.cached, N_CANDIDATES);
    ck_assert_uint_eq(count(whole.log, "computed again"), 0);
}
END_OF_TEST

/* Damage that happens after the run has looked through the store. */
typedef struct late {
    damage kind;
    bool guarded;    /* after the guard, which also reads the blobs */
} late;

static calm_status damage_all(calm_ctx *context, calm_run *p, void *user)
{
    const late *how = user;
    const size_t n = calm_model_layout(p->in.model)->n_jobs * p->in.recipe->n_pool;
    CALM_TRY(calm_run_choose(context, p));
    if (how->guarded)
        CALM_TRY(calm_run_guard(context, p));
    for (size_t i = 0; i < n; i++)
        do_damage(test_format("%s/%.2s/%s", calm_store_blobs(p->in.store), p->in.candidates[i].blob,
                              p->in.candidates[i].blob + 2),
                  how->kind);
    if (!how->guarded)
        CALM_TRY(calm_run_guard(context, p));
    return calm_run_export(context, p);
}

static void check_late(const late *how)
{
    const play run = new_run(), plain = play_elsewhere(&run, "plain");
    outcome *said = program_shared(sizeof *said);
    int status;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const calm_run_options options = {.command = "calm test"};
        calm_run *damaged;
        late copy = *how;
        said->status = calm_run_stages(ctx, &run.recipe, &options, damage_all, &copy, &damaged);
        memcpy(said->message, ctx->message, sizeof said->message);
        calm_run_close(&damaged);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    /* Not CALM_EARG, which would blame the command line. */
    ck_assert_msg(said->status == (how->kind == DELETE ? CALM_ENOTFOUND : CALM_EFORMAT), "%s: %s",
                  calm_status_name(said->status), said->message);
    ck_assert_msg(strstr(said->message, "calm.db.blobs/") && strstr(said->message, "run the same command again"), "%s",
                  said->message);
    ck_assert_str_eq(play_list(&run, "out"), "");
    ck_assert_str_eq(play_text(&run, "SELECT status FROM run"), "failed\n");
    ck_assert_uint_eq(play_must_run(&run).cached, 0);
    play_must_run(&plain);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(plain.recipe.output));
}

TEST(damaged_while_it_runs)
{
    check_late(&(late){FLIP, false});
    check_late(&(late){DELETE, true});
    check_late(&(late){DIRECTORY, true});
}
END_OF_TEST

/* ---- keys ---- */

static void check_cached(const play *run, size_t expected, const char *what)
{
    const size_t found = play_must_run(run).cached;
    ck_assert_msg(found == expected, "%s: %zu of %zu candidates were in the store", what, found, expected);
}

static void touch(const char *path)
{
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST(names_and_times_are_in_no_key)
{
    play first = new_run();
    play_must_run(&first);
    const char *digest = play_digest(first.recipe.output);
    play run = with_output(&first, "moved");
    char *dir = test_format("%s/another-name", first.dir);
    ck_assert_int_eq(rename(first.recipe.model.dir, dir), 0);
    run.recipe.model.dir = dir;
    run.recipe.model.name = "another";
    check_cached(&run, N_CANDIDATES, "model moved");
    run = with_output(&run, "touched");
    touch(test_format("%s/model.safetensors", dir));
    touch(test_format("%s/config.json", dir));
    touch(run.recipe.calib_path);
    check_cached(&run, N_CANDIDATES, "files touched");
    run = with_output(&run, "threads");
    run.threads = 3;
    check_cached(&run, N_CANDIDATES, "other threads");
    run = with_output(&run, "text");
    const char *text = play_path(&run, "other.txt");
    ck_ok(calm_copy_file(ctx, run.recipe.calib_path, text));
    run.recipe.calib_path = run.recipe.calib_name = text;
    check_cached(&run, N_CANDIDATES, "text copied");
    run = with_output(&run, "store");
    const char *store = play_path(&run, "sub/other.db");
    ck_ok(calm_make_parent(ctx, store));
    ck_assert_int_eq(rename(run.recipe.store, store), 0);
    ck_assert_int_eq(rename(test_format("%s.blobs", run.recipe.store), test_format("%s.blobs", store)), 0);
    run.recipe.store = store;
    check_cached(&run, N_CANDIDATES, "store moved");
    play last = with_output(&run, "last");
    last.recipe.model.name = "tiny";
    last.recipe.calib_path = first.recipe.calib_path;
    last.recipe.calib_name = "text.txt";
    check_cached(&last, N_CANDIDATES, "names as before");
    ck_assert_str_eq(play_digest(last.recipe.output), digest);
}
END_OF_TEST

static void flip_last_byte(const char *path)
{
    struct stat info;
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    ck_assert_int_eq(fstat(fd, &info), 0);
    ck_assert_int_eq(pread(fd, &byte, 1, info.st_size - 2), 1);    /* the less significant byte of a BF16 */
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, info.st_size - 2), 1);
    close(fd);
}

/* Returns a text in which another word replaces each "the". */
static const char *other_text(const play *run)
{
    char *text;
    size_t n;
    const char *path = play_path(run, "changed.txt");
    ck_ok(calm_read_file(ctx, run->recipe.calib_path, 1 << 20, &text, &n));
    ck_assert_uint_gt(count(text, " the "), 20);
    for (char *at = text; (at = strstr(at, " the "));)
        at[1] = 's';
    ck_ok(calm_write_file(ctx, path, text, n));
    return path;
}

TEST(what_changes_a_key)
{
    const play first = new_run();
    play_must_run(&first);
    play run = with_output(&first, "option");
    play_pool(&run, NULL, "rtn,absmax+gptq(damp=0.03)");
    check_cached(&run, N_CANDIDATES / 2, "an option of one chain");
    run = with_output(&first, "scheme");
    play_pool(&run, "w3a16_g16", POOL);
    check_cached(&run, 0, "another scheme");
    run = with_output(&first, "token");
    run.recipe.calib_path = other_text(&first);
    check_cached(&run, 0, "a token");
    run = with_output(&first, "windows");
    run.recipe.score_windows++;
    check_cached(&run, N_CANDIDATES, "more scoring windows than are held out");
    run.recipe.calib_windows = 8;
    run = with_output(&run, "eight");
    check_cached(&run, 0, "more windows");
    run = with_output(&run, "one");
    run.recipe.score_windows = 1;
    check_cached(&run, 0, "another number of scoring windows");
    run = with_output(&first, "bytes");
    run = with_output(&first, "byte");
    flip_last_byte(test_format("%s/model.safetensors", run.recipe.model.dir));
    check_cached(&run, 0, "a bit of a weight");
    run = with_output(&run, "same");
    check_cached(&run, N_CANDIDATES, "the same again");
}
END_OF_TEST

/* Keys contain the canonical text of a chain, each part with its revision (test_key has another revision). */
TEST(chains_carry_revisions)
{
    const play run = new_run();
    play_must_run(&run);
    for (size_t i = 0; i < run.recipe.n_pool; i++) {
        const char *chain = calm_algorithm_canonical(run.recipe.pool[i].algorithm);
        ck_assert_msg(count(chain, "@") == count(chain, "+") + 1, "%s", chain);
        ck_assert_int_eq(play_sql(&run, test_format("SELECT count(*) FROM candidate c JOIN algorithm a ON a.id ="
                                                    " c.algorithm_id WHERE a.chain = '%s'", chain)),
                         N_CANDIDATES / 2);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("resume",
                     (const TTest *[]){names_and_times_are_in_no_key, what_changes_a_key, chains_carry_revisions,
                                       damaged_blobs_are_computed_again, damaged_while_it_runs, NULL});
}
