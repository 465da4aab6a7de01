/* May an output be written?  Known before anything is computed.  (Inputs: tests/program/cases/never_destroy.case) */
#include "ptq/base/output.h"

#include <sys/stat.h>
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
    check_both(test_format("%s/file/new", dir), CALM_EARG, "file is no directory");
    check_both(test_format("%s/file/not/there/yet", dir), CALM_EARG, "file is no directory");
    ck_ok(calm_output_file(ctx, "/dev/null", false, NULL, NULL));
}
END_OF_TEST

/* As a user without rights, whatever the test runs as; names are relative, as such a user may not reach the folder. */
TEST(folders_that_cannot_be_written)
{
    ck_assert_int_eq(chdir(test_directory()), 0);
    ck_ok(calm_make_directories(ctx, "closed"));
    ck_ok(calm_make_directories(ctx, "open"));
    ck_ok(calm_write_file(ctx, "closed/old", "x", 1));
    ck_assert_int_eq(chmod("closed", 0555), 0);
    ck_assert_int_eq(chmod("open", 0777), 0);
    ck_assert_int_eq(chmod(".", 0555), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
    check_both("open/new", CALM_OK, "");
    check_both("closed/new", CALM_EIO, "closed/new: cannot be written in closed: Permission denied");
    check_both("closed/not/there/yet", CALM_EIO, "cannot be written in closed: Permission denied");
    check_both("new", CALM_EIO, "new: cannot be written in .: Permission denied");
    ck_fails(calm_output_file(ctx, "closed/old", true, NULL, NULL), CALM_EIO, "cannot be written in closed");
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
    ck_ok(calm_make_directories(ctx, test_format("%s/m.gguf", dir)));    /* one that is there is meant */
    ck_ok(calm_output_folder(ctx, test_format("%s/m.gguf", dir), true, NULL));
}
END_OF_TEST

int main(void)
{
    return run_tests("output", (const TTest *[]){the_nearest_folder_decides, folders_that_cannot_be_written,
                                                 folders_are_not_called_as_files, NULL});
}
