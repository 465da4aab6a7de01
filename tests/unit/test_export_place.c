/* Temporary directories next to a target: a lock decides whether one is in use, since the process id in its name
 * means nothing in another container. */
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/export/export.h"
#include "tests/support/harness.h"

static const char *path_of(const char *dir, const char *name)
{
    return test_format("%s/%s", dir, name);
}

/* Makes a directory with a file that nobody locks. */
static const char *leftover(const char *dir, const char *name)
{
    const char *path = path_of(dir, name);
    ck_ok(calm_make_directories(ctx, path));
    ck_ok(calm_write_file(ctx, path_of(path, "model.safetensors"), "x", 1));
    return path;
}

/* Process 1 and this process exist, but neither writes there. */
TEST(unlocked_is_stale)
{
    const char *dir = test_directory();
    calm_export_place place;
    const char *stale[] = {leftover(dir, "out.tmp.1"), leftover(dir, "out.old.1"), leftover(dir, "out.tmp.1.2"),
                           leftover(dir, "out.tmp.999999999")};
    const char *own = leftover(dir, test_format("out.tmp.%ld", (long)getpid()));
    ck_ok(calm_export_begin(ctx, path_of(dir, "out"), &place));
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
        ck_assert_msg(!calm_path_exists(stale[i]), "%s", stale[i]);
    ck_assert_str_eq(place.temporary, own);
    ck_assert(!calm_path_exists(path_of(own, "model.safetensors")));
    calm_export_abandon(ctx, &place);
    ck_assert(!calm_path_exists(own));
    ck_assert_int_eq(place.lock, -1);
}
END_OF_TEST

TEST(other_names_stay)
{
    const char *dir = test_directory();
    calm_export_place place;
    const char *others[] = {leftover(dir, "out"), leftover(dir, "out.tmp.x"), leftover(dir, "out.tmp.12a"),
                            leftover(dir, "out.tmp.1."), leftover(dir, "out.tmp.1.2.3"), leftover(dir, "outer.tmp.1"),
                            leftover(dir, "out.tmp.0"), leftover(dir, "out.tmp.")};
    ck_ok(calm_export_begin(ctx, path_of(dir, "out/"), &place));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(calm_path_exists(path_of(others[i], "model.safetensors")), "%s", others[i]);
    calm_export_abandon(ctx, &place);
}
END_OF_TEST

/* Starts a process that writes until it is killed; *path = its temporary directory. */
static pid_t start_writer(const char *target, const char **path)
{
    char name[4096];
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        calm_export_place place;
        if (calm_export_begin(ctx, target, &place) == CALM_OK &&
            write(ends[1], place.temporary, strlen(place.temporary)) > 0)
            sleep(300);
        _exit(1);
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], name, sizeof name);
    ck_assert_int_gt(n, 0);
    close(ends[0]);
    *path = test_format("%.*s", (int)n, name);
    return child;
}

TEST(locked_is_not_stale)
{
    const char *dir = test_directory(), *target = path_of(dir, "out"), *written;
    calm_export_place place;
    const pid_t writer = start_writer(target, &written);
    /* As another container sees it: no process has the number. */
    const char *renamed = path_of(dir, "out.tmp.999999999");
    ck_assert_int_eq(rename(written, renamed), 0);
    ck_ok(calm_export_begin(ctx, target, &place));
    ck_assert(calm_path_exists(renamed));
    calm_export_abandon(ctx, &place);
    ck_assert(calm_path_exists(renamed));
    kill(writer, SIGKILL);
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    ck_ok(calm_export_begin(ctx, target, &place));
    ck_assert(!calm_path_exists(renamed));
    calm_export_abandon(ctx, &place);
}
END_OF_TEST

static const char *config_of(const char *dir)
{
    char *text;
    size_t n;
    ck_ok(calm_read_file(ctx, path_of(dir, "config.json"), 9, &text, &n));
    return text;
}

/* Two containers, in each of which calm is process 7. */
TEST(one_number_twice)
{
    const char *dir = test_directory(), *target = path_of(dir, "out");
    calm_export_place a, b;
    ck_ok(calm_export_begin(ctx, target, &a));
    ck_ok(calm_write_file(ctx, path_of(a.temporary, "config.json"), "a", 1));
    ck_ok(calm_export_begin(ctx, target, &b));
    ck_assert_str_eq(b.temporary, test_format("%s.2", a.temporary));
    ck_assert(calm_path_exists(path_of(a.temporary, "config.json")));
    ck_ok(calm_write_file(ctx, path_of(b.temporary, "config.json"), "b", 1));
    ck_ok(calm_export_commit(ctx, &a, target));
    ck_assert_str_eq(config_of(target), "a");
    /* Neither began with a target that it may replace, so the first result stays. */
    ck_fails(calm_export_commit(ctx, &b, target), CALM_EEXIST, "another process has written it");
    ck_assert_str_eq(config_of(target), "a");
    b.replaces = true;
    ck_ok(calm_export_commit(ctx, &b, target));
    ck_assert_str_eq(config_of(target), "b");
    ck_assert(!calm_path_exists(a.temporary) && !calm_path_exists(b.temporary));
    /* No process holds a lock on the written directory. */
    const int fd = open(target, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
}
END_OF_TEST

TEST(abandoned_after_a_failure)
{
    calm_export_place place;
    const char *dir = test_directory();
    ck_ok(calm_export_begin(ctx, path_of(dir, "out"), &place));
    ck_ok(calm_write_file(ctx, path_of(dir, "file"), "x", 1));
    ck_fails(calm_export_commit(ctx, &place, path_of(dir, "file/out")), CALM_EARG, "file is not a directory");
    calm_fail(ctx, CALM_EFORMAT, "the first");
    calm_export_abandon(ctx, &place);
    ck_assert_str_eq(ctx->message, "the first");
    calm_ctx_clear_failure(ctx);
    ck_assert(!calm_path_exists(place.temporary));
}
END_OF_TEST

int main(void)
{
    return run_tests("export_place", (const TTest *[]){unlocked_is_stale, other_names_stay, locked_is_not_stale,
                                                       one_number_twice, abandoned_after_a_failure, NULL});
}
