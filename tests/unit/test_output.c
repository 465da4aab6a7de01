/* Whether an output can be written is known before anything is computed.  (Inputs:
 * tests/program/cases/never_destroy.case) */
#include "ptq/base/output.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"

static void check_both(const char *target, calm_status status, const char *text)
{
    if (status == CALM_OK) {
        ck_ok(calm_output_folder(ctx, target, false, NULL));
        ck_ok(calm_output_file(ctx, target, false, NULL, NULL));
        return;
    }
    ck_fails(calm_output_folder(ctx, target, false, NULL), status, text);
    ck_fails(calm_output_file(ctx, target, false, NULL, NULL), status, text);
}

TEST(the_nearest_folder_decides)
{
    const char *dir = test_directory();
    ck_ok(calm_write_file(ctx, test_format("%s/file", dir), "x", 1));
    check_both(test_format("%s/new", dir), CALM_OK, "");
    check_both(test_format("%s/not/there/yet", dir), CALM_OK, "");
    check_both(test_format("%s/file/new", dir), CALM_EARG, "file is not a directory");
    check_both(test_format("%s/file/not/there/yet", dir), CALM_EARG, "file is not a directory");
    ck_ok(calm_output_file(ctx, "/dev/null", false, NULL, NULL));
}
END_OF_TEST

static bool is(calm_status came, calm_status status, const char *text)
{
    const bool same = came == status && (status == CALM_OK || strcmp(ctx->message, text) == 0);
    calm_ctx_clear_failure(ctx);
    return same;
}

/* Checks the status of both questions, and the message of a failure. */
static bool both_are(const char *target, calm_status status, const char *text)
{
    return is(calm_output_folder(ctx, target, true, NULL), status, text) &&
           is(calm_output_file(ctx, target, true, NULL, NULL), status, text);
}

/* Runs the checks as a user without rights, whatever user runs the test, in a process that exits with the number of
 * the first failed check.  Names are relative, because such a user may not reach the directory. */
static int as_nobody(void)
{
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        return 1;
    if (!both_are("open/new", CALM_OK, ""))
        return 2;
    if (!both_are("closed/new", CALM_EIO, "closed/new: cannot be written in closed: Permission denied"))
        return 3;
    if (!both_are("closed/a/b", CALM_EIO, "closed/a/b: cannot be written in closed: Permission denied"))
        return 4;
    if (!both_are("new", CALM_EIO, "new: cannot be written in .: Permission denied"))
        return 5;
    if (calm_output_file(ctx, "closed/old", true, NULL, NULL) != CALM_EIO)
        return 6;
    return 0;
}

TEST(folders_that_cannot_be_written)
{
    const char *dir = test_directory();
    int came;
    ck_ok(calm_make_directories(ctx, test_format("%s/closed", dir)));
    ck_ok(calm_make_directories(ctx, test_format("%s/open", dir)));
    ck_ok(calm_write_file(ctx, test_format("%s/closed/old", dir), "x", 1));
    ck_assert_int_eq(chmod(test_format("%s/closed", dir), 0555), 0);
    ck_assert_int_eq(chmod(test_format("%s/open", dir), 0777), 0);
    ck_assert_int_eq(chmod(dir, 0555), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(chdir(dir) == 0 ? as_nobody() : 7);
    ck_assert_int_eq(waitpid(child, &came, 0), child);
    ck_assert_int_eq(chmod(dir, 0755), 0);    /* so that its contents can be removed */
    ck_assert_int_eq(chmod(test_format("%s/closed", dir), 0755), 0);
    ck_assert_msg(WIFEXITED(came) && WEXITSTATUS(came) == 0, "check %d", WEXITSTATUS(came));
}
END_OF_TEST

TEST(the_working_directory_is_removed)
{
    const char *dir = test_format("%s/gone", test_directory());
    int came;
    ck_ok(calm_make_directories(ctx, dir));
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(chdir(dir) != 0 || rmdir(dir) != 0 ||
              !is(calm_output_apart(ctx, "x", NULL), CALM_ENOTFOUND,
                  "x: cannot find the working directory: No such file or directory"));
    ck_assert_int_eq(waitpid(child, &came, 0), child);
    ck_assert(WIFEXITED(came) && WEXITSTATUS(came) == 0);
}
END_OF_TEST

TEST(folders_are_not_called_as_files)
{
    const char *dir = test_directory();
    ck_fails(calm_output_folder(ctx, test_format("%s/m.gguf", dir), true, NULL), CALM_EARG,
             "names a folder, in which model.gguf is written; leave .gguf out");
    ck_fails(calm_output_folder(ctx, test_format("%s/m.safetensors", dir), false, NULL), CALM_EARG,
             "model.safetensors");
    ck_ok(calm_output_folder(ctx, test_format("%s/gguf", dir), false, NULL));
    ck_ok(calm_output_file(ctx, test_format("%s/m.gguf", dir), false, NULL, NULL));
    ck_ok(calm_make_directories(ctx, test_format("%s/m.gguf", dir)));    /* one that exists is meant */
    ck_ok(calm_output_folder(ctx, test_format("%s/m.gguf", dir), true, NULL));
}
END_OF_TEST

int main(void)
{
    return run_tests("output", (const TTest *[]){the_nearest_folder_decides, folders_that_cannot_be_written,
                                                 the_working_directory_is_removed, folders_are_not_called_as_files,
                                                 NULL});
}
